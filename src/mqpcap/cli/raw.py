"""The reassembled bytes of one side of a connection, secrets hidden."""

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mqpcap.capture import Capture
from mqpcap.cli.connection_search import Chosen, keys
from mqpcap.cli.console import Meter, plural
from mqpcap.cli.dumps import hidden
from mqpcap.cli.filters import Filter
from mqpcap.cli.held_rows import Row
from mqpcap.cli.reading import Outcome
from mqpcap.cli.time_merge import TimeMerge
from mqpcap.pipeline import taken
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.headers import Dissector
from mqpcap.tcp.reassembly import Reassembler

Span = tuple[int, int]


def write_raw(capture: Capture, one: Chosen, direction: str, outcome: Outcome, meter: Meter) -> None:
    """Write the bytes of a side to stdout, in order; what was never captured is left out and told."""
    shows = _Shows(capture, one, direction, outcome, meter)
    missing = hidden_count = at = 0
    for offset, run in _runs(capture, one, direction, meter):
        missing += offset - at
        at = offset + len(run)
        data, count = shows.veiled(offset, run)
        hidden_count += count
        sys.stdout.buffer.write(data.tobytes())
    sys.stdout.buffer.flush()
    if missing:
        outcome.notes.append(f"{plural(missing, 'byte')} were never captured; the output goes on behind them")
    if hidden_count:
        outcome.notes.append(f"{plural(hidden_count, 'byte')} may be secret and are *; --show-secrets shows them")


def _runs(capture: Capture, one: Chosen, direction: str, meter: Meter) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The bytes of a side that follow each other, with the offset of the first, each given once, in order."""
    dissector, assembler, key = Dissector(), Reassembler(), keys([one])
    for window in capture.windows():
        segments = dissector.segments(window)
        some = taken(segments, np.flatnonzero(np.isin(segments.key, key)))
        yield from _of_side(assembler, assembler.feed(some), one, direction)
        meter(int(window.caplen.sum()))
    yield from _of_side(assembler, assembler.finish(), one, direction)


def _of_side(
    assembler: Reassembler, chunks: StreamChunks, one: Chosen, direction: str
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    client, first = (one.row["client_ip"], one.row["client_port"]), np.zeros(1, np.int64)
    for i in np.flatnonzero(chunks.length).tolist():
        of = assembler.flows.columns(chunks.flow[i : i + 1])
        is_first = (of.ips(first)[0], int(of.ports(first)[0])) == client
        if of.connection_ids()[0] == one.id and (chunks.side[i] != is_first) == (direction == "c2s"):
            start = int(chunks.start[i])
            yield int(chunks.offset[i]), chunks.buffer[start : start + int(chunks.length[i])]


class _Shows:
    """Which bytes of a side may be shown: all of them, or those of messages that are no secret."""

    def __init__(self, capture: Capture, one: Chosen, direction: str, outcome: Outcome, meter: Meter) -> None:
        from mqpcap.explain import holds_secrets
        from mqpcap.protocols import protocols

        self._begins, self._ends = np.array([0]), np.array([np.iinfo(np.int64).max])
        """Of the stretches that may be shown."""
        protocol = one.row["protocol"]
        if outcome.choices.show_secrets or protocol is None or not holds_secrets(protocols()[str(protocol)]):
            return
        spans: list[Span] = []

        def take(rows: "Iterator[Row]") -> None:
            for row in rows:
                if row.message["direction"] == direction:
                    spans.extend(_shown_spans(row, outcome))

        TimeMerge([capture], Filter(one.query()), Outcome(outcome.choices), take, True).run(meter)
        self._begins, self._ends = np.array(sorted(spans), np.int64).reshape(-1, 2).T

    def veiled(self, offset: int, data: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], int]:
        """The bytes with stars for those that may not be shown, and how many they are."""
        at = np.arange(offset, offset + len(data))
        is_shown = np.searchsorted(self._begins, at, "right") > np.searchsorted(self._ends, at, "right")
        return np.where(is_shown, data, np.uint8(ord("*"))), int((~is_shown).sum())


def _shown_spans(row: Row, outcome: Outcome) -> Iterator[Span]:
    """The stretches of the stream in which a message has no secret."""
    begin = int(str(row.message["stream_offset"]))
    veil = hidden(row, outcome.choices)
    at = 0
    for start, end in sorted(veil.spans) if veil is not None else ():
        if start > at:
            yield begin + at, begin + start
        at = max(at, end)
    if at < len(row.data):
        yield begin + at, begin + len(row.data)
