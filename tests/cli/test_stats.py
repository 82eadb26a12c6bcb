"""``mqpcap stats``: counts against what clients logged, latencies against arithmetic."""

import csv
import io
import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import running
from known import pings, truth
from rows import rotated
from running import ROOT, Ended, lines_on_terminal, objects
from torture import ACK, SYN, Segment, pcap

import mqpcap
from mqpcap.capture import captures
from mqpcap.cli.console import put_rows
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.statistics import reports
from mqpcap.statistics.groups import OTHER
from mqpcap.statistics.reports import LATENCY, by_group

QOS1 = "pcaps/blipmq/qos1.pcap"
ERRORS = "pcaps/blipmq/errors.pcap"
SESSION = "pcaps/fq/session.pcap"


def run(*arguments: str | Path) -> Ended:
    return running.run("stats", *arguments)


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    """What comes out as JSON."""
    said = run("-q", "--json", *arguments)
    assert (said.exit_code, said.stderr) == (0, "")
    return [json.loads(line) for line in said.stdout.splitlines()]


# -- counts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["blipmq/qos1", "blipmq/errors", "blipmq/handshake"])
def test_operations_are_counted_as_the_clients_logged_them(name: str) -> None:
    found = {
        (row["direction"], row.get("op")): row["messages"] for row in rows("--by", "direction,op", f"pcaps/{name}.pcap")
    }

    said = {(way, op): count for way, ops in truth(name)["counts"].items() for op, count in ops.items()}
    for key, count in said.items():
        if isinstance(count, int) and key[1] != "not_a_frame":
            assert found[key] == count


def test_bytes_are_those_that_the_client_wrote_and_read() -> None:
    (connection,) = truth("flymq/core")["connections"]

    found = {row["direction"]: row["bytes"] for row in rows("--by", "direction", "pcaps/flymq/core.pcap")}

    assert found == {"c2s": connection["c2s_bytes"], "s2c": connection["s2c_bytes"]}


def test_a_percentile_is_a_metric_with_one_column() -> None:
    both = rows("--by", "op", "--metric", "latency", QOS1)
    alone = rows("--by", "op", "--metric", "p99,count", QOS1)

    assert {row["op"]: row.get("latency_p99_ns") for row in alone} == {
        row["op"]: row.get("latency_p99_ns") for row in both
    }
    assert "latency_p50_ns" not in alone[0] and "messages" in alone[0]
    assert run("stats", "-q", "--by", "op", "--metric", "P99", QOS1).stdout.splitlines()[0].split() == [
        "operation", "p99", "ms",
    ]  # fmt: skip


def test_intervals_add_up_and_quiet_ones_are_rows_of_zeros() -> None:
    found = rows("--interval", "500ms", QOS1)

    starts = [int(row["start_ns"]) for row in found]
    assert starts == list(range(starts[0], starts[-1] + 1, 500_000_000))
    assert all(start % 500_000_000 == 0 for start in starts)
    assert any(row["messages"] == 0 for row in found)
    counts = truth("blipmq/qos1")["counts"]
    assert sum(row["messages"] for row in found) == sum(sum(ops.values()) for ops in counts.values())


def test_an_error_counts_in_the_group_of_its_request() -> None:
    """What each NACK answers is in the client's log."""
    said: Counter[str] = Counter()
    for connection in truth("blipmq/errors")["connections"]:
        events = connection["events"]
        for event in events:
            if event.get("type_name") == "NACK" and event["dir"] == "s2c":
                said[events[event["answers"]]["type_name"]] += 1

    found = {row["op"]: row["errors"] for row in rows("--by", "op", "--metric", "errors", ERRORS)}

    assert {op: count for op, count in found.items() if count} == said
    assert sum(said.values()) == truth("blipmq/errors")["counts"]["s2c"]["NACK"]


def test_rows_are_in_order_of_the_first_metric_then_of_the_key() -> None:
    found = rows("--by", "op,topic", "--metric", "bytes", QOS1)

    keys = [(-row["bytes"], row["op"], "topic" not in row, row.get("topic", "")) for row in found]
    assert keys == sorted(keys)


def test_top_gives_the_first_rows_and_says_how_many_there_are_more() -> None:
    every = rows("--by", "op", QOS1)

    said = run("--by", "op", "--top", "2", "--json", QOS1)

    assert [json.loads(line) for line in said.stdout.splitlines()] == every[:2]
    assert said.stderr.splitlines()[0] == f"note: {len(every) - 2} more rows"


def test_csv_json_and_text_have_the_same_rows() -> None:
    options = ("-q", "--by", "op,topic", QOS1)
    with_commas = list(csv.DictReader(io.StringIO(run("--csv", *options).stdout)))

    assert [{k: v for k, v in row.items() if v} for row in with_commas] == [
        {k: str(v) for k, v in row.items() if v != ""} for row in rows(*options[1:])
    ]
    assert len(run(*options).stdout.splitlines()) == 1 + len(with_commas)


# -- latencies, by arithmetic ----------------------------------------------------------------------------


def test_percentiles_are_nearest_ranks(tmp_path: Path) -> None:
    (tmp_path / "pings.pcap").write_bytes(pings([*range(20, 0, -1)]))

    (row,) = [row for row in rows("--by", "op", tmp_path / "pings.pcap") if row["op"] == "PING"]

    ms = 1_000_000
    assert row["answered"] == 20
    percentiles = [row[f"latency_{word}_ns"] for word in ("p50", "p95", "p99", "max")]
    assert percentiles == [10 * ms, 19 * ms, 20 * ms, 20 * ms]


def test_slowest_names_both_packets_and_both_ends(tmp_path: Path) -> None:
    """Packets 1 and 2 open, 3 to 6 log in; the PINGs are 7 to 10 (3 ms), 11 to 18 (7 ms) and 19 to 24 (5 ms)."""
    (tmp_path / "pings.pcap").write_bytes(pings([3, 7, 5]))

    found = rows("--slowest", "2", tmp_path / "pings.pcap")

    told = ("latency_ns", "op", "request_packet", "reply_packet", "client", "server")
    assert [[row[name] for name in told] for row in found] == [
        [7_000_000, "PING", 11, 18, "10.0.0.1:40000", "10.0.0.2:5555"],
        [5_000_000, "PING", 19, 24, "10.0.0.1:40000", "10.0.0.2:5555"],
    ]


def test_numbers_without_a_unit_are_seconds(tmp_path: Path) -> None:
    """As in tshark: PINGs answered after 30 and 50 ms, of a capture that begins at 1700000000."""
    (tmp_path / "pings.pcap").write_bytes(pings([30, 50]))

    def counted(*options: str) -> list[object]:
        return [row["messages"] for row in rows("--by", "op", *options, tmp_path / "pings.pcap") if row["op"] == "PING"]

    both = "op == PING and is_request and "
    assert counted("-Y", both + "latency > 0.04") == counted("--op", "PING", "--slower-than", "0.04") == [1]
    assert counted("-Y", both + "latency > 40") == counted("-Y", both + "latency > 1") == []
    begin = json.loads(running.run("info", "--json", tmp_path / "pings.pcap").stdout)["captures"][0]["files"][0]
    seconds, ns = divmod(int(begin["first_ts_ns"]), 1_000_000_000)
    # The second PING is asked 34 ms after the first packet.
    assert counted("-Y", both + "ts", "--since", f"{seconds}.{ns + 34_000_000:09d}") == [1]
    assert counted("--op", "PING", "--since", f"{seconds + 1}") == []
    assert counted("--op", "PING", "--since", f"{seconds - 1}") == [2]


def test_packet_numbers_of_a_rotated_capture_go_with_their_file(tmp_path: Path) -> None:
    """24 packets in files of 8: the PING of 7 ms is in packets 11 and 18, numbers 3 and 2 of the second and third."""
    (tmp_path / "pings.pcap").write_bytes(pings([3, 7, 5]))
    (tmp_path / "parts").mkdir()
    first, second, third = map(str, rotated(tmp_path / "pings.pcap", tmp_path / "parts", 3))

    seven, five = rows("--slowest", "2", tmp_path / "parts")

    names = ("latency_ns", "request_file", "request_packet", "reply_file", "reply_packet")
    assert [seven.get(name) for name in names] == [7_000_000, second, 3, third, 2]
    assert [five.get(name) for name in names] == [5_000_000, third, 3, None, 8]
    assert {seven["capture"], five["capture"]} == {first}
    text = run("-q", "--slowest", "2", tmp_path / "parts").stdout
    assert text.count(second) == 1 and text.count(third) == 2
    report = running.run("report", "-q", tmp_path / "parts", "--out", "-").stdout
    assert re.search(rf"{re.escape(third)}</td><td [^>]*>#3</td>", report)


def test_messages_of_client_and_server_are_distinguished() -> None:
    """CORE has nine PRODUCE requests, and a reply to each."""
    logged = [event for connection in truth("flymq/core")["connections"] for event in connection["events"]]
    sides = Counter(event["dir"] for event in logged if event["op_name"] == "PRODUCE")

    (row,) = [row for row in rows("--by", "op", "pcaps/flymq/core.pcap") if row["op"] == "PRODUCE"]

    assert (row["messages_c2s"], row["messages_s2c"]) == (sides["c2s"], sides["s2c"]) == (9, 9)
    assert row["messages"] == 18
    text = run("-q", "--by", "op", "pcaps/flymq/core.pcap").stdout
    assert text.split()[:6] == ["operation", "messages", "from", "client", "from", "server"]


def test_polls_without_a_topic_count_for_the_topic_of_their_connection() -> None:
    """Each connection of the capture subscribes to one topic, and polls without naming it."""
    logged = [event for connection in truth("blipmq/qos1")["connections"] for event in connection["events"]]
    polls = sum(event["dir"] == "c2s" and event["type_name"] in ("POLL", "SUBSCRIBE") for event in logged)

    found = rows("--consumers", QOS1)

    assert sum(row["asked"] for row in found) == polls
    assert all(row["topic"] is not None for row in found)
    delivered = sum(event["dir"] == "s2c" and event["type_name"] == "PUBLISH" for event in logged)
    assert sum(row["received"] for row in found) == delivered


# -- ready-made ------------------------------------------------------------------------------------------


def test_producers_are_those_whose_publishes_the_clients_logged() -> None:
    sent = truth("fq/session")["messages"]["client_to_server"]
    said = {
        (who, exchange): (count, size)
        for who in ("bob", "linesender")
        for exchange in {m["exchange"] for m in sent[who]}
        for count, size in [
            (
                sum(m["exchange"] == exchange for m in sent[who]),
                sum(m["payload_len"] for m in sent[who] if m["exchange"] == exchange),
            )
        ]
    }

    found = {
        (row["name"], row["topic"]): (row["messages"], row["body_bytes"])
        for row in rows("--producers", SESSION)
        if row["name"] in ("bob", "linesender")
    }

    assert found == said


def test_consumers_get_what_they_printed() -> None:
    printed = truth("fq/session")["messages"]["server_to_client"]

    found = rows("--consumers", SESSION)

    assert sum(row["received"] for row in found) == printed["count"]
    alice = [row for row in found if row["name"] == "alice"]
    assert sum(row["received"] for row in alice) == len(printed["alice_printed_by_client"])


def test_a_reply_with_messages_is_received_on_the_topic_of_its_request() -> None:
    """CONSUME has no topic in its reply."""
    found = rows("--consumers", "pcaps/flymq/core.pcap")

    (calls,) = [c["events"] for c in truth("flymq/core")["connections"]]
    asked = Counter(e["fields"]["topic"] for e in calls if e["op_name"] == "CONSUME" and e["dir"] == "c2s")
    got = Counter(
        one["fields"]["topic"]
        for one, two in pairwise(calls)
        if one["op_name"] == "CONSUME" and one["dir"] == "c2s" and two["op_name"] == "CONSUME"
    )
    assert {row["topic"]: row["asked"] for row in found} == asked
    assert {row["topic"]: row["received"] for row in found if row["received"]} == got


def test_errors_have_code_text_and_the_place_of_the_first() -> None:
    found = rows("--errors", ERRORS)

    assert sum(row["errors"] for row in found) == truth("blipmq/errors")["counts"]["s2c"]["NACK"]
    for row in found:
        shown = running.run("show", "-q", "--json", "--op", "NACK", ERRORS).stdout.splitlines()
        first = next(m for m in map(json.loads, shown) if m["error_text"] == row["error_text"])
        assert first["error_code"] == row["error_code"]
        break


def test_a_connection_is_selected_by_its_short_name() -> None:
    for number, connection in enumerate(truth("flymq/groups")["connections"], 1):
        found = rows("--connection", f"c{number}", "--by", "direction", "--metric", "bytes", "pcaps/flymq/groups.pcap")

        assert {row["direction"]: row["bytes"] for row in found} == {
            "c2s": connection["c2s_bytes"], "s2c": connection["s2c_bytes"]
        }  # fmt: skip


def test_talkers_are_all_connections_with_their_payload() -> None:
    found = rows("--talkers", "pcaps/flymq/core.pcap")

    (connection,) = truth("flymq/core")["connections"]
    (row,) = found
    assert (row["connections"], row["bytes_c2s"], row["bytes_s2c"]) == (
        1, connection["c2s_bytes"], connection["s2c_bytes"],
    )  # fmt: skip


def test_deliveries_are_those_that_the_clients_printed() -> None:
    found = rows("--deliveries", SESSION)

    assert sum(row["delivered"] for row in found) == truth("fq/session")["messages"]["server_to_client"]["count"]


def test_what_was_delivered_again_is_what_the_client_got_twice() -> None:
    """Redeliveries repeat tag and topic on their connection, as the client logged them."""
    said: Counter[str] = Counter()
    for connection in truth("blipmq/qos1")["connections"]:
        got = [e for e in connection["events"] if (e["dir"], e.get("type_name")) == ("s2c", "PUBLISH")]
        counts = Counter((e["id"], e["fields"]["topic"]) for e in got)
        said.update({topic: count - 1 for (_, topic), count in counts.items() if count > 1 and topic != "fanout"})

    found = {row["topic"]: row["again"] for row in rows("--deliveries", QOS1)}

    assert {topic: count for topic, count in found.items() if count and topic != "fanout"} == said
    assert found["fanout"] == 0  # three subscriptions of one connection
    listed = Counter(row["topic"] for row in rows("--deliveries", "--list", QOS1) if row["again"])
    assert listed == said


def test_delays_are_those_of_network_server_and_client(tmp_path: Path) -> None:
    """SYN, SYN-ACK, HELLO are 1 ms apart; replies take 1, 1, 3, 7 and 5 ms; the client waits 1 ms each time."""
    (tmp_path / "pings.pcap").write_bytes(pings([3, 7, 5]))

    (row,) = rows("--delays", tmp_path / "pings.pcap")

    ms = 1_000_000
    assert (row["client"], row["server"], row["connections"]) == ("10.0.0.1", "10.0.0.2:5555", 1)
    assert (row["rtt_to_server_ns"], row["rtt_to_client_ns"]) == (ms, ms)
    assert (row["answered"], row["reply_p50_ns"], row["reply_p95_ns"]) == (5, 3 * ms, 7 * ms)
    assert (row["server_p50_ns"], row["client_p50_ns"]) == (2 * ms, ms)


@pytest.mark.parametrize("again_count", [1, 2])
def test_a_retransmitted_syn_shows_no_round_trip(again_count: int, tmp_path: Path) -> None:
    """Nobody knows which of them was answered."""
    capture = pings([3])
    syn = capture[24 : 24 + 16 + 54]  # the first record: Ethernet, IP and TCP headers
    (tmp_path / "again.pcap").write_bytes(capture[:24] + syn * again_count + capture[24:])

    (row,) = rows("--delays", tmp_path / "again.pcap")

    assert "rtt_to_server_ns" not in row
    assert row["answered"] == 3


# -- of a part of the messages ---------------------------------------------------------------------------


def test_errors_of_selected_requests_count_though_their_replies_are_not_selected() -> None:
    every = {row["op"]: row for row in rows("--by", "op", ERRORS)}

    (found,) = rows("--by", "op", "--op", "ACK", "-Y", "direction == c2s", ERRORS)

    assert found["errors"] == every["ACK"]["errors"] == 7
    assert found["messages"] == truth("blipmq/errors")["counts"]["c2s"]["ACK"]


def test_errors_are_those_of_selected_requests() -> None:
    found = rows("--errors", "--op", "ACK", ERRORS)

    assert {row["op"] for row in found} == {"ACK"}
    assert sum(row["errors"] for row in found) == 7


def test_a_filter_on_latencies_selects_what_was_slow(tmp_path: Path) -> None:
    (tmp_path / "pings.pcap").write_bytes(pings([3, 7, 5, 9]))

    (row,) = rows("--by", "op", "--slower-than", "5ms", tmp_path / "pings.pcap")

    assert (row["op"], row["messages"], row["answered"]) == ("PING", 2, 2)
    assert (row["latency_p50_ns"], row["latency_max_ns"]) == (7_000_000, 9_000_000)


def test_nothing_that_matches_is_a_note() -> None:
    said = run("--op", "PUBLIS", QOS1)

    assert (said.exit_code, said.stdout) == (0, "")
    assert said.stderr.startswith("note: 0 of 242 messages match; operations here: ACK, ")


def test_percentiles_from_a_histogram_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    exact = {"latency_p50_ns": 1_000_000, "latency_max_ns": 2_000_000, "latency_exact": None}

    put_rows(LATENCY, [exact, exact | {"latency_exact": False}], "text")

    _, one, two = capsys.readouterr().out.splitlines()
    assert one.split() == ["-", "1.000", "-", "-", "2.000"]
    assert two.split() == ["-", "~1.000", "-", "-", "2.000"]


def test_captures_are_named_where_there_are_several() -> None:
    assert "pcaps/" not in run("-q", "--slowest", "2", QOS1).stdout

    said = run("-q", "--slowest", "400", QOS1, SESSION).stdout

    assert QOS1 in said and SESSION in said


def test_standard_input_is_read() -> None:
    said = running.run("stats", "-q", "--by", "op", "-", stdin=(ROOT / QOS1).read_bytes())

    assert said.stdout == run("-q", "--by", "op", QOS1).stdout


# -- how it is asked -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [("--slowest", "0"), ("--slowest", "3", "--errors"), ("--producers", "--consumers")], ids=" ".join
)
def test_misuse_is_exit_2(options: tuple[str, ...]) -> None:
    """What calls refuse, too, is in `test_faces`."""
    said = run(*options, QOS1)

    assert (said.exit_code, said.stdout) == (2, "")
    (line,) = said.stderr.splitlines()
    assert line.startswith("mqpcap: ")


def test_what_cannot_be_read_is_a_line_and_exit_1_after_the_others() -> None:
    said = run("-q", "--by", "op", "pcaps/nothing.pcap", QOS1)

    assert said.exit_code == 1
    assert said.stderr == "mqpcap: pcaps/nothing.pcap: no such file\n"
    assert "PUBLISH" in said.stdout


def test_a_capture_without_supported_protocols_gives_a_note() -> None:
    said = run("pcaps/strangers/tls_9092.pcap")

    assert (said.exit_code, said.stdout) == (0, "")
    assert said.stderr == "note: nothing to count; info says what there is\n"


def test_groups_beyond_the_bound_are_one_row_and_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_GROUPS", 3)
    question = by_group(("op",), ("count",))
    (capture,) = captures([str(ROOT / QOS1)]).captures
    CapturePipeline(capture, Options(), question.counters.take).run()

    found = question.rows()
    assert len(found) == 4
    assert sum(int(str(row["messages"])) for row in found) == 242
    assert OTHER[0] in [row["op"] for row in found]
    assert "3 groups are distinguished" in question.notes()[0]


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize(
    "options", ["--by op", "--slowest 5", "--errors", "--producers", "--interval 1s --by op", "--delays"]
)
def test_lines_fit_the_terminal(columns: int, options: str) -> None:
    said = lines_on_terminal(columns, "stats", "-q", *options.split(), SESSION, ERRORS)

    assert max(map(len, said)) <= columns


def test_the_example_of_the_help_runs() -> None:
    words = run("--help").stdout.split("Example: mqpcap stats ")[1].split()

    assert run("-q", *words).exit_code == 0


def test_talkers_by_host_and_by_port_are_sums_of_connections(tmp_path: Path) -> None:
    """Two hosts, of which each sends: sums by hand over the table of connections."""
    capture = tmp_path / "two.pcap"
    segments = [Segment(b"", 99, 0, SYN), Segment(b"", 499, 100, SYN | ACK, True)]
    segments += [Segment(b"GET / HTTP/1.1\r\n\r\n", 100, 500)]
    segments += [Segment(b"HTTP/1.1 200 OK\r\n\r\n", 500, 118, from_server=True)]
    capture.write_bytes(pcap(segments, 8080))
    peers = "pcaps/fq/peers.pcap"

    hosts = {row["host"]: row for row in objects(run("--talkers", "--by", "host", "--json", "-q", capture))}
    ports = objects(run("--talkers", "--by", "port", "--json", "-q", peers))
    (itself,) = objects(run("--talkers", "--by", "host", "--json", "-q", peers))

    sizes = {host: (row["connections"], row["bytes_sent"], row["bytes_received"]) for host, row in hosts.items()}
    assert sizes == {"10.0.0.1": (1, 18, 19), "10.0.0.2": (1, 19, 18)}
    connections = mqpcap.read(str(ROOT / peers), "connections").to_pylist()
    assert {(row.get("protocol"), row["port"]): row["bytes_c2s"] for row in ports} == {
        key: sum(row["bytes_c2s"] for row in connections if (row["protocol"], row["server_port"]) == key)
        for key in {(row["protocol"], row["server_port"]) for row in connections}
    }
    assert itself["connections"] == len(connections)


def test_a_narrow_terminal_keeps_the_median() -> None:
    _, above, titles, *_ = lines_on_terminal(80, "stats", "-q", "pcaps/blipmq/qos1.pcap")

    assert (above.split()[-2:], titles.split()[-2:]) == (["p50", "p95"], ["ms", "ms"])
