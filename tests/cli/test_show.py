"""``mqpcap show``: what its options give."""

import json
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from running import ROOT, objects, run

from mqpcap.cli.show import ROWS_AT_ONCE, _Enough, _limited
from mqpcap.listing.field_lines import DEFAULT_FIELDS
from mqpcap.listing.message_row import MessageRow
from mqpcap.tables.schemas import KEYS

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_json_has_what_the_tables_have_without_nulls(tmp_path: Path) -> None:
    inputs = ["pcaps/blipmq/qos1.pcap", "pcaps/flymq/core.pcap", "pcaps/fq/session.pcap"]
    out = tmp_path / "tables"
    assert run("export", "-q", *inputs, "--out", out).exit_code == 0
    stored = {name: ds.dataset(out / name).to_table().to_pylist() for name in ("messages", "blipmq", "flymq", "fq")}
    key = ("capture", "connection_id", "direction", "stream_offset")

    rows = objects(run("show", "--json", "-q", *inputs))

    assert len(rows) == len(stored["messages"])
    said = {tuple(str(row[name]) for name in key): row for row in rows}
    for message in stored["messages"]:
        row = said[tuple(str(message[name]) for name in key)]
        others = {"topic", "packet", "state", "latency_ns", "body", "body_hex", "payload", "payload_hex"}
        assert set(row) - others - {"fields", "exchange", "connection", "client", "server"} == {
            name for name, value in message.items() if value is not None
        }
        client = "src" if row["direction"] == "c2s" else "dst"
        assert row["client"] == f"{message[f'{client}_ip']}:{message[f'{client}_port']}"
        assert row["connection_id"] == str(message["connection_id"])
        assert row["body_len"] == message["body_len"] if message["body_len"] is not None else "body_len" not in row
    for name in ("blipmq", "flymq", "fq"):
        for values in stored[name]:
            row = said[tuple(str(values[name]) for name in key)]
            there = {name for name, value in values.items() if value is not None and name not in KEYS}
            told = {field.removesuffix("_hex") for field in row["fields"]}  # type: ignore[attr-defined]
            assert told <= there
            assert all(str(row[field]) == str(values[field]) for field in there - told)


@pytest.mark.parametrize(
    "path", [QOS1, "pcaps/flymq/fetch.pcap", "pcaps/fq/session.pcap", "pcaps/kokaq/doc_session.pcap"]
)
def test_json_has_the_names_of_fields_and_filters_at_the_top(path: str) -> None:
    names = (*DEFAULT_FIELDS, "topic", "packet", "body", "payload", "connection_id")
    values = objects(run("show", "-q", "--json", "--fields", ",".join(names), path))

    rows = objects(run("show", "-q", "--json", path))

    keys = {key for value in values for key in value}
    assert [{key: row[key] for key in keys & set(row)} for row in rows] == values
    assert {"topic", "state", "latency_ns"} <= keys


def test_a_connection_id_of_any_output_selects_its_connection() -> None:
    (row, *_), (record, *_) = (
        objects(run("show", "-q", "--json", *form, "--op", "POLL", QOS1)) for form in ((), ("--body-encoding", "text"))
    )
    value = run("show", "-q", "--fields", "connection_id", "--op", "POLL", "-c", "1", QOS1).stdout.strip()

    assert row["connection_id"] == record["connection_id"] == value
    chosen = objects(run("show", "-q", "--json", "--connection", value, QOS1))
    assert {x["connection"] for x in chosen} == {row["connection"]}


def test_json_says_bytes_as_text_or_as_hex() -> None:
    rows = objects(run("show", "--json", "-q", "--op", "message", "pcaps/fq/session.pcap"))
    bodies = [row["fields"] for row in rows]

    assert {"a": 1} in [json.loads(x["body"]) for x in bodies if x.get("body", "").startswith("{")]  # type: ignore[attr-defined, index]
    assert "4d165bf267d1287beab8" in [x.get("body_hex") for x in bodies]  # type: ignore[attr-defined]


def test_threads_change_nothing() -> None:
    one = run("show", "-q", "--json", "--jobs", "1", "pcaps/blipmq")

    assert run("show", "-q", "--json", "--jobs", "4", "pcaps/blipmq").stdout == one.stdout


def test_filters_and_count() -> None:
    rows = objects(
        run("show", "-q", "--json", "--protocol", "BlipMQ", "--op", "publish", "-c", "3", "pcaps/blipmq", "pcaps/fq")
    )
    one = str(rows[0]["connection_id"])

    assert [row["op"] for row in rows] == ["PUBLISH"] * 3
    assert {
        row["connection_id"] for row in objects(run("show", "-q", "--json", "--connection", one, "pcaps/blipmq"))
    } == {rows[0]["connection_id"]}


def test_only_messages_with_a_flaw() -> None:
    rows = objects(run("show", "-q", "--json", "--flawed", "--op", "POLL", "pcaps/faults/blipmq_snapped.pcap"))

    assert [(row["op"], row["flaw"]) for row in rows] == [("POLL", "truncated")] * 2


def test_standard_input_is_an_input_also_when_bytes_are_wanted() -> None:
    data = (ROOT / QOS1).read_bytes()

    assert len(run("show", "-q", "-", stdin=data).stdout.splitlines()) == 242
    assert "00 00 00 0b 01" in run("show", "-q", "-x", "-c", "1", "-", stdin=data).stdout


def test_verbose_shows_the_fields_that_are_there() -> None:
    said = run("show", "-q", "-v", "-c", "1", QOS1).stdout.splitlines()

    assert said[1:] == ["    correlation_id: 1", "    protocol_version: 1"]


@pytest.mark.parametrize("count", [None, 1, 5, ROWS_AT_ONCE, ROWS_AT_ONCE + 7, 3000])
def test_as_many_rows_are_written_as_were_asked_for(count: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    batches = [0, 3, 2, 0, 1000, 700]
    numbers = iter(range(sum(batches)))
    write = _limited(lambda rows: print(*(row.capture for row in rows), sep="\n"), count)
    is_over = False
    for size in batches:
        try:
            write(MessageRow(next(numbers), "", {}, {}) for _ in range(size))
        except _Enough:
            is_over = True
            break

    most = sum(batches) if count is None else min(count, sum(batches))
    assert list(map(int, capsys.readouterr().out.split())) == list(range(most))
    assert is_over == (count is not None and count <= sum(batches))
    assert next(numbers, most) == most  # none was made in vain


def test_no_row_is_read_where_none_was_asked_for() -> None:
    with pytest.raises(_Enough):
        _limited(print, 0)
