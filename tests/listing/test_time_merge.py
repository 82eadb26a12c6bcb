"""Rows of several captures in order of time."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from known import inflating, pings, topic_of
from message_rows import PCAPS, capture_of, merged
from running import objects, run

from mqpcap import pipeline
from mqpcap.decode import columns
from mqpcap.listing import reorder_buffer, time_merge
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.shown_messages import ShownMessages
from mqpcap.listing.time_merge import merge
from mqpcap.query import query
from mqpcap.reading import Choices, Outcome
from mqpcap.tables.output import Output

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_rows_come_in_order_of_time_over_all_captures() -> None:
    rows = objects(run("show", "--json", "-q", "pcaps/flymq/core.pcap", QOS1, "pcaps/fq"))
    times = [int(str(row["ts_ns"])) for row in rows]

    assert times == sorted(times)


NAMES = ("blipmq/qos1", "fq/session", "flymq/core", "kokaq/doc_session")


def key(row: MessageRow) -> tuple[object, ...]:
    return row.protocol, *(row.message[name] for name in ("connection_id", "direction", "stream_offset"))


def test_rows_of_several_are_those_of_each_sorted_by_time() -> None:
    alone = [row for name in NAMES for row in merged(name)]

    together = merged(*NAMES)

    assert sorted(map(key, together), key=str) == sorted(map(key, alone), key=str)
    assert [row.order for row in together] == sorted(row.order for row in together)
    assert {row.capture for row in together} == set(range(len(NAMES)))


@pytest.mark.parametrize("most", [1, 256])
def test_captures_that_do_not_overlap_need_not_be_open_together(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(map(key, merged(*NAMES)))

    monkeypatch.setattr(time_merge, "MAX_OPEN_CAPTURES", most)
    monkeypatch.setattr(time_merge, "SMALL_BYTES", 0)

    assert list(map(key, merged(*NAMES))) == before


def test_rows_of_captures_at_the_same_time_alternate(tmp_path: Path) -> None:
    """Both begin in the same second; one asks every 3 milliseconds, the other every 500, for longer than rows wait."""
    paths = [tmp_path / "often.pcap", tmp_path / "seldom.pcap"]
    for path, delays in zip(paths, ([3] * 500, [500] * 4), strict=True):
        path.write_bytes(pings(delays))

    rows = merged(*paths)

    assert [row.order for row in rows] == sorted(row.order for row in rows)
    captures = [row.capture for row in rows]
    assert captures.count(0) > captures.count(1) == 4 + 2 * 4  # two requests of the login, then four, with answers
    assert sum(a != b for a, b in pairwise(captures)) > 8


def test_what_the_writer_raises_ends_the_reading() -> None:
    """Of three captures that follow each other none but the first is read."""
    read_bytes: list[int] = []
    names = sorted(NAMES, key=lambda name: merged(name)[0].order)
    assert merged(names[0])[-1].order < merged(names[1])[0].order < merged(names[2])[0].order

    def write(rows: Iterator[MessageRow]) -> None:
        if any(rows):
            raise EOFError("enough")

    with pytest.raises(EOFError, match="enough"):
        merge(list(map(capture_of, names[:3])), ShownMessages(), Outcome(Choices()), write, read_bytes.append)

    assert 0 < sum(read_bytes) <= (PCAPS / f"{names[0]}.pcap").stat().st_size


def test_only_what_is_wanted_comes_with_its_exchange() -> None:
    rows = merged(NAMES[0], wanted=query("op == POLL and latency > 40ms"))

    assert rows
    assert all(row.message["op"] == "POLL" for row in rows)
    assert all(row.exchange is not None and (row.exchange.latency_ns or 0) > 40_000_000 for row in rows)


def test_messages_that_inflate_to_much_are_emitted_before_their_window_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 messages of a packet each, one window, whose topics of 60,000 characters are 6 MB in each of two tables."""
    for module, name in (
        (pipeline, "MAX_PAIRED_BYTES"),
        (columns, "INFLATED_BYTES"),
        (reorder_buffer, "MAX_BUFFERED_BYTES"),
    ):
        monkeypatch.setattr(module, name, 1 << 19)
    capture = tmp_path / "inflating.pcap"
    capture.write_bytes(inflating(100, 60_000))
    held_bytes: list[int] = []
    take = reorder_buffer.ReorderBuffer.add

    def taken(held: reorder_buffer.ReorderBuffer, output: Output, first_ns: int) -> None:
        take(held, output, first_ns)
        held_bytes.append(held.size_bytes)

    monkeypatch.setattr(reorder_buffer.ReorderBuffer, "add", taken)
    rows = merged(capture)

    assert [row.fields["topic"] for row in rows] == [topic_of(k, 60_000) for k in range(100)]
    # Two tables, what waits and what a batch or two bring.
    assert max(held_bytes) < 2 * 4 * (1 << 19)
