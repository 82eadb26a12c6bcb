"""``mqpcap follow --message`` and ``stats --deliveries --list`` as installed: published messages to the end."""

import pytest
from running import ROOT, objects, run

import mqpcap

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_steps_stand_below_each_other_with_the_times_between() -> None:
    said = run("follow", "-q", "-u", QOS1, "--at", "#93")

    lines = said.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[:4]] == [
        "published", "delivered in 0.087 ms", "delivered again in 650.726 ms 05:24:10.078849Z",
        "acknowledged in 0.162 ms",
    ]  # fmt: skip
    assert [line.split("#")[1].split()[0] for line in lines[:4]] == ["85", "88", "93", "94"]
    assert lines[4:] == [
        "2 deliveries to 1 consumer, 1 again, 1 acknowledged, 1 not acknowledged in the capture; evidence: body_hash"
    ]


def test_json_is_the_message_of_show_with_its_step() -> None:
    traced = objects(run("follow", "-q", QOS1, "--at", "93", "--json"))
    shown = {row["first_packet"]: row for row in objects(run("show", "-q", "--json", QOS1))}

    steps = [row.pop("trace") for row in traced]
    assert [(x["step"], x.get("after_ns"), x.get("again")) for x in steps] == [
        ("published", None, None), ("delivered", 87_000, 0), ("delivered", 650_726_000, 1),
        ("acknowledged", 162_000, 1),
    ]  # fmt: skip
    assert traced == [shown[row["first_packet"]] for row in traced]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--at", "5"], 1, "packet 5 has no TCP payload"),
        (["--at", "0"], 2, "'0' is not a packet's number"),
        (["--message", "no such"], 1, "no message is published with the id no such"),
        (["--message", "4", "--at", "12"], 2, "follows one message"),
        (["--message", "4", "c1"], 2, "follows one message"),
        (["--at", "12", "--raw", "c2s"], 2, "follows one message"),
        (["--at", "12", "--csv"], 2, "follows one message"),
    ],
)
def test_what_cannot_be_traced(options: list[str], code: int, words: str) -> None:
    said = run("follow", QOS1, *options)

    assert (said.exit_code, said.stdout) == (code, "")
    assert words in said.stderr


def test_list_has_both_packets_of_each_delivery() -> None:
    rows = objects(run("stats", "-q", "--deliveries", "--list", "--json", QOS1))
    messages = {(row["connection_id"], row["direction"], row["stream_offset"]): row
                for row in objects(run("show", "-q", "--json", QOS1))}  # fmt: skip

    assert len(rows) == len(mqpcap.read(str(ROOT / QOS1), "deliveries"))
    for row in rows:
        for end, way, client in (("publish", "c2s", "src"), ("deliver", "s2c", "dst")):
            message = messages[row[f"{end}_connection_id"], way, row[f"{end}_offset"]]
            assert row[f"{end}_packet"] == message["first_packet"]
            assert row[f"{end}_client"] == f"{message[f'{client}_ip']}:{message[f'{client}_port']}"
        assert int(row["deliver_ts_ns"]) - int(row["publish_ts_ns"]) == row["latency_ns"]


def test_list_of_redeliveries() -> None:
    rows = objects(run("stats", "-q", "--deliveries", "--list", "--json", "--having", "again > 0", QOS1))

    assert (rows[0]["publish_packet"], rows[0]["deliver_packet"], rows[0]["again"]) == (85, 93, 1)
    assert rows[0]["latency_ns"] == 650_726_000


def test_list_goes_with_deliveries() -> None:
    assert "--list goes with --deliveries" in run("stats", "--list", QOS1).stderr
    assert "with no filter" in run("stats", "--deliveries", "--list", "--op", "PUBLISH", QOS1).stderr
