"""Every command is a call: its result is what the command's ``--json`` prints."""

import doctest
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from running import ROOT, objects, run, run_bytes

import mqpcap
from mqpcap import api
from mqpcap.listing.field_lines import json_line
from mqpcap.tables.json_lines import json_object, json_text, with_exact_numbers

QOS1 = "pcaps/blipmq/qos1.pcap"
ERRORS = "pcaps/blipmq/errors.pcap"
SESSION = "pcaps/fq/session.pcap"


@pytest.fixture(autouse=True)
def in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def as_json(value: Any) -> Any:
    return json.loads(json_text(value))


@pytest.mark.parametrize(
    ("report", "option"),
    [(None, []), ("producers", ["--producers"]), ("slowest", ["--slowest", "10"]), ("errors", ["--errors"])],
)
def test_stats_are_the_rows_of_the_command(report: Any, option: list[str]) -> None:
    rows = mqpcap.stats(ERRORS, report).to_pylist()

    assert [as_json(json_object(row)) for row in rows] == objects(run("stats", "-q", "--json", *option, ERRORS))


def test_stats_over_time_of_selected_messages_are_the_rows_of_the_command() -> None:
    table = mqpcap.stats(QOS1, by=["op"], metric=["count"], interval="1s", filter="op == POLL")
    options = ("--by", "op", "--metric", "count", "--interval", "1s", "--op", "POLL")

    assert [as_json(json_object(row)) for row in table.to_pylist()] == objects(run("stats", "--json", *options, QOS1))


def test_a_filter_that_matches_nothing_gives_a_table_with_columns_and_a_note() -> None:
    notes: list[str] = []
    table = mqpcap.stats(QOS1, filter="topic == nothing", notes=notes)

    assert (table.num_rows, table["messages"].type) == (0, "int64")
    assert notes[0].startswith("0 of 242 messages match")


def test_diff_is_the_object_of_the_command() -> None:
    comparison = mqpcap.diff("pcaps/flymq/core.pcap", "pcaps/flymq/fetch.pcap")

    (printed,) = objects(run("diff", "-q", "--json", "pcaps/flymq/core.pcap", "pcaps/flymq/fetch.pcap"))
    assert as_json(comparison.as_json()) == printed


def test_info_is_the_list_of_the_command() -> None:
    reports = mqpcap.info([QOS1, SESSION])

    (printed,) = objects(run("info", "-q", "--json", QOS1, SESSION))
    assert [as_json(with_exact_numbers(report.as_json())) for report in reports] == printed["captures"]


def test_show_gives_the_messages_of_the_command_in_its_order() -> None:
    rows = mqpcap.show([QOS1, SESSION], "body_len > 0")

    printed = objects(run("show", "-q", "--json", "-Y", "body_len > 0", QOS1, SESSION))
    assert [json.loads(json_line(row)) for row in rows] == printed


def test_messages_are_those_of_the_command_as_scapy_messages() -> None:
    messages = list(mqpcap.messages(QOS1, "op == POLL"))

    printed = objects(run("show", "-q", "--json", "--op", "POLL", QOS1))
    assert [str(m.mq.stream_offset) for m in messages] == [str(row["stream_offset"]) for row in printed]
    assert {type(m).__name__ for m in messages} == {"BlipMQ"}
    assert all((m.mq.reply is not None) == (row["exchange"]["state"] in ("answered", "likely")) for m, row in
               zip(messages, printed, strict=True) if "exchange" in row)  # fmt: skip


def test_messages_are_read_as_they_are_taken() -> None:
    read_bytes: list[int] = []
    messages = mqpcap.messages(QOS1, progress=read_bytes.append)
    assert read_bytes == []

    assert next(messages).mq.first_packet == 4
    assert read_bytes != []


def test_follow_gives_the_messages_of_the_command() -> None:
    followed = mqpcap.follow(QOS1, "connection == c2")

    printed = objects(run("follow", "-q", "--json", "--connection", "c2", QOS1))
    assert [json.loads(json_line(row)) for row in followed.messages] == printed
    assert followed.connection.number == 2


def test_follow_writes_the_conversation_and_the_bytes_of_the_command() -> None:
    followed = mqpcap.follow(QOS1, "connection == c2")

    assert "\n".join(followed.lines()) == run("follow", "-q", "-u", QOS1, "c2").stdout.rstrip("\n")
    assert b"".join(followed.raw("c2s")) == run_bytes("follow", "-q", QOS1, "c2", "--raw", "c2s").stdout


def test_info_writes_the_lines_of_the_command() -> None:
    (report,) = mqpcap.info(QOS1)

    lines = [*report.lines()]
    assert run("info", "-q", "-u", QOS1).stdout.splitlines()[: len(lines)] == lines
    assert len(lines) > 5


def test_explain_and_trace_write_the_lines_of_the_commands() -> None:
    (explained,), (traced,) = mqpcap.explain(QOS1, at=12), mqpcap.trace(QOS1, at=12)

    assert "\n".join(explained.lines()) == run("explain", "-q", "-u", QOS1, "--at", "12").stdout.rstrip("\n")
    assert "\n".join(traced.lines()) == run("follow", "-q", "-u", QOS1, "--at", "12").stdout.rstrip("\n")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ({"op": "PUB*"}, ["--op", "PUB*"]),
        ({"op": ["POLL", "PING"], "slower_than": "40ms"}, ["--op", "POLL,PING", "--slower-than", "40ms"]),
        ({"since": "+1s", "until": "+2s", "client": ""}, ["--since", "+1s", "--until", "+2s", "--client", ""]),
        ({"since": "-1s", "flawed": False, "connection": "c2"}, ["--since", "-1s", "--connection", "c2"]),
    ],
)
def test_the_words_of_the_commands_select_what_they_select_there(words: dict[str, Any], options: list[str]) -> None:
    printed = run("show", "-q", "--json", QOS1, *options)
    if printed.exit_code:
        with pytest.raises(mqpcap.QueryError, match="client"):
            mqpcap.show(QOS1, **words)
        return
    assert [json.loads(json_line(row)) for row in mqpcap.show(QOS1, **words)] == objects(printed)


def test_a_call_without_a_filter_takes_no_words_for_one() -> None:
    with pytest.raises(TypeError, match="op"):
        mqpcap.info(QOS1, op="PUBLISH")


def test_several_connections_are_refused_as_by_the_command() -> None:
    with pytest.raises(mqpcap.MqpcapError, match="connections match"):
        mqpcap.follow(QOS1, "op == PUBLISH")


def test_explain_is_the_objects_of_the_command() -> None:
    by_packet = mqpcap.explain(QOS1, at=12)
    assert [as_json(message.as_json()) for message in by_packet] == objects(
        run("explain", "--json", QOS1, "--at", "12")
    )

    (by_bytes,) = mqpcap.explain(hex="00 00 00 05 01 00 00 00 07", protocol="blipmq")
    printed = objects(run("explain", "--json", "--hex", "00 00 00 05 01 00 00 00 07", "--protocol", "blipmq"))
    assert [as_json(by_bytes.as_json())] == printed


def test_a_message_that_is_not_there_is_a_lookup_error() -> None:
    with pytest.raises(LookupError, match="there is no packet 9999"):
        mqpcap.explain(QOS1, at=9999)
    with pytest.raises(ValueError, match="name the message"):
        mqpcap.explain(QOS1, connection="c1")


def test_extract_writes_the_file_of_the_command(tmp_path: Path) -> None:
    summary = mqpcap.extract(QOS1, tmp_path / "a.pcapng", "op == PING")
    printed = run("extract", QOS1, "--op", "PING", "--out", tmp_path / "b.pcapng").stderr

    assert (tmp_path / "a.pcapng").read_bytes() == (tmp_path / "b.pcapng").read_bytes()
    said = list(summary.lines("b"))  # the command may say first that nothing is compiled
    assert said == [line.replace(str(tmp_path / "b.pcapng"), "b") for line in printed.splitlines()[-len(said) :]]
    assert summary.message_count == len(objects(run("show", "-q", "--json", "--op", "PING", QOS1)))
    with pytest.raises(mqpcap.MqpcapError, match="replaces no file"):
        mqpcap.extract(QOS1, tmp_path / "a.pcapng")


def test_export_writes_the_tables_of_the_command(tmp_path: Path) -> None:
    summary = mqpcap.export([QOS1, SESSION], tmp_path / "a", "body_len > 0")
    run("export", "-q", QOS1, SESSION, "-Y", "body_len > 0", "--out", tmp_path / "b")

    for folder in ("messages", "exchanges", "connections"):
        tables = [pq.read_table(tmp_path / out / folder) for out in "ab"]
        assert tables[0].equals(tables[1])
    assert summary.row_count > 0


def test_the_tables_of_a_uri_are_refused_as_by_the_command() -> None:
    with pytest.raises(mqpcap.MqpcapError, match="no path of this machine"):
        mqpcap.export(QOS1, "s3://bucket/tables")


def test_extract_anonymises_by_the_key_file_of_the_command(tmp_path: Path) -> None:
    key_file = str(tmp_path / "key")
    run("extract", "-q", QOS1, "--op", "PING", "--anonymise", "--key-file", key_file, "--out", tmp_path / "a.pcapng")
    mqpcap.extract(QOS1, tmp_path / "b.pcapng", op="PING", anonymise=key_file)

    assert (tmp_path / "a.pcapng").read_bytes() == (tmp_path / "b.pcapng").read_bytes()


def test_an_empty_key_is_no_key(tmp_path: Path) -> None:
    """Packets that were not anonymised would be shared as if they were."""
    with pytest.raises(ValueError, match="a key has 32 bytes, not 0"):
        mqpcap.extract(QOS1, tmp_path / "a.pcapng", anonymise=b"")

    assert not (tmp_path / "a.pcapng").exists()


def test_an_input_that_is_no_capture_raises(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(b"no capture")
    for call in (mqpcap.stats, mqpcap.info, mqpcap.show):
        with pytest.raises(mqpcap.CaptureError):
            call(tmp_path / "a.pcap")


def test_bytes_and_open_files_are_captures(tmp_path: Path) -> None:
    data = Path(QOS1).read_bytes()
    assert mqpcap.stats(data) == mqpcap.stats(QOS1)
    assert [row.order for row in mqpcap.show(data)] == [row.order for row in mqpcap.show(QOS1)]


def test_the_examples_of_the_docstrings_run() -> None:
    modules = [import_module(f"mqpcap.api.{path.stem}") for path in Path(api.__path__[0]).glob("[a-z]*.py")]
    results = [doctest.testmod(module) for module in modules]

    assert (sum(x.failed for x in results), sum(x.attempted for x in results)) == (0, 16)


def test_report_writes_the_file_of_the_command(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    size_bytes = mqpcap.report(QOS1, tmp_path / "call.html")

    run("report", "-q", QOS1, "--out", tmp_path / "command.html")
    assert (tmp_path / "call.html").read_bytes() == (tmp_path / "command.html").read_bytes()
    assert size_bytes == (tmp_path / "call.html").stat().st_size


def test_report_replaces_nothing_but_a_report(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p>by hand</p>")

    with pytest.raises(mqpcap.MqpcapError, match="no report of ours"):
        mqpcap.report(QOS1, tmp_path / "page.html")

    assert (tmp_path / "page.html").read_text() == "<p>by hand</p>"
