"""``mqpcap explain``: one message, field by field."""

import json

import pytest
from running import ROOT, run

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_explain_says_offset_length_hex_name_and_value_of_each_field() -> None:
    said = json.loads(run("explain", "-q", "--json", QOS1, "--at", "12").stdout)
    fields = {f["name"]: f for f in said["fields"]}

    assert said["fits"] is True
    assert (said["op"], said["destination"], said["stream_offset"]) == ("PUBLISH", "q1", 55)
    assert {k: fields["topic"][k] for k in ("offset", "length", "hex", "value")} == {
        "offset": 16, "length": 2, "hex": "7131", "value": "q1",
    }  # fmt: skip
    assert fields["frame_type"]["meaning"] == "PUBLISH"
    assert sum(f["length"] for f in said["fields"]) == said["frame_len"] == 23


def test_explain_reads_bytes_and_says_why_other_readings_do_not_fit() -> None:
    # FlyMQ CREATE_TOPIC reply in the document's form: success and an empty message.
    result = run("explain", "--hex", "af 01 03 01 00000003 01 0000", "--protocol", "flymq", "--direction", "s2c",
                 "--readings")  # fmt: skip

    assert result.exit_code == 0
    assert "CREATE_TOPIC reply of the document" in result.stdout
    assert "not: " in result.stdout


def test_explain_of_bytes_that_fit_nothing_is_an_answer() -> None:
    result = run("explain", "--hex", "ff", "--protocol", "blipmq")

    assert result.exit_code == 0
    assert "does not fit" in result.stdout
    assert run("explain", "--strict", "--hex", "ff", "--protocol", "blipmq").exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [QOS1],
        ["--hex", "00"],
        ["--hex", "0g", "--protocol", "blipmq"],
        ["--hex", "00", "--protocol", "kafka"],
        ["--hex", "00", "--protocol", "blipmq", "--dialect", "v9"],
        [QOS1, "--at", "1", "--offset", "3"],
        [QOS1, "--connection", "1"],
        [QOS1, "--at", "1", "--protocol", "blipmq"],
    ],
)
def test_explain_without_one_clear_message_is_misuse(arguments: list[str]) -> None:
    assert run("explain", *arguments).exit_code == 2


def test_a_login_that_does_not_decode_is_hidden_whole() -> None:
    # FlyMQ AUTH: a name, then a password whose length claims more than there is.
    data = "af017001" + "0000000e" + "000461626364" + "00ff" + b"secret".hex()

    result = run("explain", "--hex", data, "--protocol", "flymq", "--direction", "c2s")

    assert result.exit_code == 0
    assert "secret" not in result.stdout
    assert b"secret".hex() not in result.stdout


def test_explanation_and_tables_agree_on_every_message() -> None:
    names = ["pcaps/blipmq/errors.pcap", "pcaps/fq/session.pcap", "pcaps/flymq/core.pcap"]
    from mqpcap.capture import captures
    from mqpcap.listing.explanation import explanation
    from mqpcap.listing.extra_columns import WITH_BYTES
    from mqpcap.pipeline import CapturePipeline, Options
    from mqpcap.protocols import protocols
    from mqpcap.tables.output import Output

    wrong = []

    def look(output: Output) -> None:
        for message in output.rows.to_pylist() if output.table == "messages" else []:
            assert len(message["bytes"]) == message["frame_len"]
            told = explanation(protocols()[message["protocol"]], message["bytes"], message["direction"])
            if (told.best is not None and told.best.fits) != (message["flaw"] is None):
                wrong.append((message["protocol"], message["op"], message["flaw"], told.best and told.best.why))

    for capture in captures(names).captures:
        CapturePipeline(capture, Options(), look, hooks=WITH_BYTES).run()

    assert wrong == []


def test_explain_names_the_reply_and_the_request() -> None:
    """qos1: packet 13 is a POLL that packet 15 answers with a message."""
    assert "  => #15 ok in 0.056 ms" in run("explain", "-u", QOS1, "--at", "13").stdout.splitlines()[0]
    assert "  <= #13 in 0.056 ms" in run("explain", "-u", QOS1, "--at", "15").stdout.splitlines()[0]
    assert '"exchange":{"state":"answered","latency_ns":56000,"server_ns":56000,"reply_packet":15}' in (
        run("explain", "--json", QOS1, "--at", "13").stdout
    )


def test_a_packet_of_several_files_is_named_with_its_files() -> None:
    said = run("explain", "pcaps/blipmq", "--at", "12").stderr
    named = run("explain", "pcaps/blipmq", "--at", "qos1.pcap#12").stderr

    count = len(list((ROOT / "pcaps/blipmq").glob("*.pcap")))
    assert f"{count} files have a packet 12: pcaps/blipmq/" in said
    assert "have a packet" not in named


def test_explain_lists_readings_that_do_not_fit_with_an_option_only() -> None:
    reply = ("--hex", "af 01 03 01 00000003 01 0000", "--protocol", "flymq", "--direction", "s2c")

    assert "\nnot: " not in run("explain", *reply).stdout
    assert "\nnot: " in run("explain", *reply, "--readings").stdout


def test_a_truth_that_is_neither_0_nor_1_is_its_number_in_json() -> None:
    """FlyMQ's AUTH_RESPONSE with a 2 for success, as a damaged capture has it."""
    body = b"\2" + b"\0\5admin" + b"\0\0\0\1" + b"\5admin" + b"\0\0"
    sent = b"\xaf\1\x71\1" + len(body).to_bytes(4, "big") + body

    answer = run("explain", "--json", "--protocol", "flymq", "--direction", "s2c", "--hex", sent.hex())

    assert answer.exit_code == 0, answer.stderr
    values = {field["name"]: field["value"] for field in json.loads(answer.stdout)["fields"]}
    assert (values["success"], type(values["success"])) == (2, int)
