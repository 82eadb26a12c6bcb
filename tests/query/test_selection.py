"""What a selection gives out of all tables is what a person would pick from the whole ones."""

from pathlib import Path

import numpy as np
import pytest

from mqpcap.capture import captures, windows
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.query import Query, Selection, query, selection
from mqpcap.tables.messages import RowPolicy
from mqpcap.tables.output import Output

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, object]
OPTIONS = Options(policy=RowPolicy(seeds=(1 << 29, 1 << 29)))


def tables(path: str, asked: Query | None) -> dict[str, list[Row]]:
    (capture,) = captures([str(ROOT / path)]).captures
    found: dict[str, list[Row]] = {}

    def give(output: Output) -> None:
        found.setdefault(output.table, []).extend(output.rows.to_pylist())
        if output.fields is not None and output.protocol is not None:
            found.setdefault(output.protocol, []).extend(output.fields.to_pylist())

    if asked is None:
        pipeline = CapturePipeline(capture, OPTIONS, give)
        pipeline.run()
        return found
    chosen = Selection(asked, give)
    pipeline = CapturePipeline(capture, OPTIONS, lambda output: chosen.add(output, pipeline.first_ns or 0))
    pipeline.run()
    chosen.finish()
    return found


def key(row: Row, offset: str = "stream_offset", direction: object = None) -> tuple[object, ...]:
    return row["connection_id"], direction or row.get("direction"), row[offset]


def ends_of(exchange: Row) -> list[tuple[object, ...]]:
    asks = exchange["request_direction"]
    answers = "s2c" if asks == "c2s" else "c2s"
    return [key(exchange, "request_offset", asks), key(exchange, "reply_offset", answers)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pcaps/blipmq/qos1.pcap", "op == PUBLISH"),
        ("pcaps/blipmq/qos1.pcap", "latency > 40ms"),
        ("pcaps/blipmq/qos1.pcap", "op == POLL and not latency > 40ms"),
        ("pcaps/flymq/core.pcap", "key exists and state == answered"),
        ("pcaps/fq/session.pcap", "client_name == alice"),
        ("pcaps/fq/session.pcap", "is_reply is null"),
        ("pcaps/faults/kokaq_lost.pcap", "state in (lost, unanswered, orphan)"),
    ],
)
def test_a_selection_is_the_rows_of_the_selected_messages(
    path: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", 3000)
    monkeypatch.setattr(selection, "MAX_BUFFERED_BATCHES", 2)
    whole, some = tables(path, None), tables(path, query(text))
    wanted = {key(row) for row in some["messages"]}
    connections = {row["connection_id"] for row in some["messages"]}
    protocol = path.split("/")[1] if "faults" not in path else "kokaq"

    assert 0 < len(wanted) < len(whole["messages"])
    assert len(wanted) == len(some["messages"])
    assert by_key(some[protocol]) == by_key([row for row in whole[protocol] if key(row) in wanted])
    assert by_key(some["messages"]) == by_key([row for row in whole["messages"] if key(row) in wanted])
    assert by_key(some.get("exchanges", [])) == by_key(
        [row for row in whole["exchanges"] if not wanted.isdisjoint(ends_of(row))]
    )
    for name in ("connections", "problems"):
        assert by_key(some.get(name, [])) == by_key(
            [row for row in whole.get(name, []) if row["connection_id"] in connections]
        )
    assert [row["messages"] for row in some["captures"]] == [len(wanted)]


def by_key(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def test_a_delivery_is_there_with_both_its_messages() -> None:
    path = "pcaps/fq/session.pcap"
    whole = tables(path, None)

    assert by_key(tables(path, query("op == message"))["deliveries"]) == by_key(whole["deliveries"])
    assert "deliveries" not in tables(path, query("op == message and direction == c2s"))


def test_of_too_many_messages_the_oldest_are_forgotten() -> None:
    keys = selection._KeySet(max_keys=8)

    for number in range(0, 100, 2):
        keys.add(np.array([number, number + 1]))

    known = np.flatnonzero(keys.contains(np.arange(100))).tolist()
    assert known[-2:] == [98, 99]
    assert known[0] > 80
