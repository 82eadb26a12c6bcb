"""Calls beside what they share with commands (`test_faces.py`): errors, inputs, iterators, examples."""

import doctest
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from running import ROOT, objects, run, run_bytes

import mqpcap
from mqpcap import api
from mqpcap.tables.json_lines import json_text

QOS1 = "pcaps/blipmq/qos1.pcap"
ERRORS = "pcaps/blipmq/errors.pcap"
SESSION = "pcaps/fq/session.pcap"


@pytest.fixture(autouse=True)
def in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def as_json(value: Any) -> Any:
    return json.loads(json_text(value))


def test_a_filter_that_matches_nothing_gives_a_table_with_columns_and_a_note() -> None:
    notes: list[str] = []
    table = mqpcap.stats(QOS1, filter="topic == nothing", notes=notes)

    assert (table.num_rows, table["messages"].type) == (0, "int64")
    assert notes[0].startswith("0 of 242 messages match")


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


def test_follow_writes_the_bytes_of_the_command() -> None:
    followed = mqpcap.follow(QOS1, "connection == c2")

    assert followed.connection.number == 2
    assert b"".join(followed.raw("c2s")) == run_bytes("follow", "-q", QOS1, "c2", "--raw", "c2s").stdout


def test_a_call_without_a_filter_takes_no_words_for_one() -> None:
    with pytest.raises(TypeError, match="op"):
        mqpcap.info(QOS1, op="PUBLISH")


def test_extract_says_what_the_command_says(tmp_path: Path) -> None:
    summary = mqpcap.extract(QOS1, tmp_path / "a.pcapng", "op == PING")
    printed = run("extract", QOS1, "--op", "PING", "--out", tmp_path / "b.pcapng").stderr

    said = list(summary.lines("b"))  # the command may say first that nothing is compiled
    assert said == [line.replace(str(tmp_path / "b.pcapng"), "b") for line in printed.splitlines()[-len(said) :]]
    assert summary.message_count == len(objects(run("show", "-q", "--json", "--op", "PING", QOS1)))
    with pytest.raises(mqpcap.MqpcapError, match="replaces no file"):
        mqpcap.extract(QOS1, tmp_path / "a.pcapng")


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

    assert (sum(x.failed for x in results), sum(x.attempted for x in results)) == (0, 19)


def test_report_replaces_nothing_but_a_report(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p>by hand</p>")

    with pytest.raises(mqpcap.MqpcapError, match="no report of ours"):
        mqpcap.report(QOS1, tmp_path / "page.html")

    assert (tmp_path / "page.html").read_text() == "<p>by hand</p>"
