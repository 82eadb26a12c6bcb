"""The reassembled bytes of one side of a connection, secrets hidden."""

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import I64
from mqpcap.capture import Capture
from mqpcap.cli.connection_search import Chosen
from mqpcap.cli.console import Meter, plural
from mqpcap.cli.dumps import hidden
from mqpcap.cli.filters import Filter
from mqpcap.cli.held_rows import MessageRow
from mqpcap.cli.reading import Outcome
from mqpcap.cli.time_merge import merge
from mqpcap.explain import holds_secrets
from mqpcap.pipeline import taken
from mqpcap.protocols import protocols
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.headers import Dissector
from mqpcap.tcp.muting import End
from mqpcap.tcp.reassembly import Reassembler

Span = tuple[int, int]


def write_raw(capture: Capture, one: Chosen, direction: str, outcome: Outcome, meter: Meter) -> None:
    """Write the bytes of a side to stdout, in order; what was never captured is left out and told."""
    begins, ends = _shown(capture, one, direction, outcome, meter)
    missing = hidden_count = behind = 0
    for offset, run in _runs(capture, one, direction, meter):
        missing += offset - behind
        behind = offset + len(run)
        at = np.arange(offset, behind)
        is_hidden = np.searchsorted(begins, at, "right") <= np.searchsorted(ends, at, "right")
        hidden_count += int(is_hidden.sum())
        sys.stdout.buffer.write(np.where(is_hidden, np.uint8(ord("*")), run).tobytes())
    sys.stdout.buffer.flush()
    if missing:
        outcome.notes.append(f"{plural(missing, 'byte')} were never captured; the output goes on behind them")
    if hidden_count:
        outcome.notes.append(f"{plural(hidden_count, 'byte')} may be secret and are *; --show-secrets shows them")


def _runs(capture: Capture, one: Chosen, direction: str, meter: Meter) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The bytes of a side that follow each other, with the offset of the first, each given once, in order."""
    dissector, assembler, is_wanted = Dissector(), Reassembler(), one.query().connections
    assert is_wanted is not None  # it names both ends
    for window in capture.windows():
        s = dissector.segments(window)
        ends = End(s.src_hi, s.src_lo, s.sport), End(s.dst_hi, s.dst_lo, s.dport)
        some = taken(s, np.flatnonzero(is_wanted(s.version, *ends)))
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


def _shown(capture: Capture, one: Chosen, direction: str, outcome: Outcome, meter: Meter) -> Sequence[I64]:
    """Starts and ends of the parts of a side to show: all of it, or its messages without their secrets."""
    protocol = one.row["protocol"]
    if not outcome.choices.show_secrets and protocol is None:
        return np.zeros((2, 0), np.int64)  # type: ignore[return-value]  # a damaged login may be anywhere in it
    if outcome.choices.show_secrets or not holds_secrets(protocols()[str(protocol)]):
        return np.array([[0], [np.iinfo(np.int64).max]])  # type: ignore[return-value]  # two rows
    spans: list[Span] = []

    def take(rows: Iterator[MessageRow]) -> None:
        for row in rows:
            if row.message["direction"] == direction:
                spans.extend(_shown_spans(row, outcome))

    merge([capture], Filter(one.query()), Outcome(outcome.choices), take, meter, with_bytes=True)
    return np.array(sorted(spans), np.int64).reshape(-1, 2).T  # type: ignore[return-value]


def _shown_spans(row: MessageRow, outcome: Outcome) -> Iterator[Span]:
    """The parts of the stream with bytes of a message and no secret."""
    begin = int(str(row.message["stream_offset"]))
    veil = hidden(row, outcome.choices)
    at = 0
    for start, end in sorted(veil.spans) if veil is not None else ():
        if start > at:
            yield begin + at, begin + start
        at = max(at, end)
    if at < len(row.data):
        yield begin + at, begin + len(row.data)
