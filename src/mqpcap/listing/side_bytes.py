"""The reassembled bytes of one side of a connection, secrets hidden.

In: a capture and a connection in it. Out: bytes in order, and notes on those that are missing or hidden. Called by:
``follow --raw``. The capture is read once more, and twice if secrets must be found.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.capture import Capture
from mqpcap.listing.connection_search import SelectedConnection
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.row_bytes import row_secrets
from mqpcap.listing.shown_messages import ShownMessages
from mqpcap.listing.time_merge import merge
from mqpcap.protocols import protocols
from mqpcap.reading import Meter, Outcome, wired
from mqpcap.schema.secrets import STAR, holds_secrets
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.exclusion import Endpoints
from mqpcap.tcp.headers import Segments
from mqpcap.tcp.reassembly import Reassembler
from mqpcap.wording import plural

Span = tuple[int, int]


def side_bytes(
    capture: Capture, connection: SelectedConnection, direction: str, outcome: Outcome, meter: Meter
) -> Iterator[bytes]:
    """The bytes of a side, in order; what was never captured is left out, and a note says how much."""
    begins, ends = _shown(capture, connection, direction, outcome, meter)
    missing = hidden_count = next_offset = 0
    for offset, run in _runs(capture, connection, direction, outcome, meter):
        missing += offset - next_offset
        next_offset = offset + len(run)
        offsets = np.arange(offset, next_offset)
        is_hidden = np.searchsorted(begins, offsets, "right") <= np.searchsorted(ends, offsets, "right")
        hidden_count += int(is_hidden.sum())
        yield np.where(is_hidden, np.uint8(ord(STAR)), run).tobytes()
    if missing:
        outcome.notes.append(f"{plural(missing, 'byte')} were never captured; the output goes on after them")
    if hidden_count:
        outcome.notes.append(f"{plural(hidden_count, 'byte')} may be secret and are *; --show-secrets shows them")


def _runs(
    capture: Capture, connection: SelectedConnection, direction: str, outcome: Outcome, meter: Meter
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The bytes of a side that follow each other, with the offset of the first, each given once, in order."""
    stages = wired(capture, outcome.choices.dissection(only=frozenset()), lambda *_: None).stages
    is_selected = connection.query().connections
    assert is_selected is not None  # it names both ends

    def is_wanted(s: Segments) -> NDArray[np.bool_]:
        ends = Endpoints(s.src_hi, s.src_lo, s.sport), Endpoints(s.dst_hi, s.dst_lo, s.dport)
        return is_selected(s.version, *ends)

    for window in capture.windows():
        for received in stages.streams(window, is_wanted=is_wanted):
            yield from _of_side(stages.assembler, stages.derived(received), connection, direction)
        meter(int(window.caplen.sum()))
    yield from _of_side(stages.assembler, stages.derived(stages.assembler.finish(), None), connection, direction)


def _of_side(
    assembler: Reassembler, chunks: StreamChunks, connection: SelectedConnection, direction: str
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    client, zero = (connection.row["client_ip"], connection.row["client_port"]), np.zeros(1, np.int64)
    for i in np.flatnonzero(chunks.length).tolist():
        flow_columns = assembler.flows.columns(chunks.flow[i : i + 1])
        is_first = (flow_columns.ips(zero)[0], int(flow_columns.ports(zero)[0])) == client
        if flow_columns.connection_ids()[0] == connection.id and (chunks.side[i] != is_first) == (direction == "c2s"):
            start = int(chunks.start[i])
            yield int(chunks.offset[i]), chunks.buffer[start : start + int(chunks.length[i])]


def _shown(
    capture: Capture, connection: SelectedConnection, direction: str, outcome: Outcome, meter: Meter
) -> Sequence[Int64Array]:
    """Starts and ends of the parts of a side to show: all of it, or its messages without their secrets."""
    protocol = connection.row["protocol"]
    if not outcome.choices.show_secrets and protocol is None:
        return np.zeros((2, 0), np.int64)  # type: ignore[return-value]  # a damaged login may be anywhere in it
    if outcome.choices.show_secrets or not holds_secrets(protocols()[str(protocol)]):
        return np.array([[0], [np.iinfo(np.int64).max]])  # type: ignore[return-value]  # two rows
    spans: list[Span] = []

    def take(rows: Iterator[MessageRow]) -> None:
        for row in rows:
            if row.message["direction"] == direction:
                spans.extend(_shown_spans(row, outcome))

    merge([capture], ShownMessages(connection.query()), Outcome(outcome.choices), take, meter, with_bytes=True)
    return np.array(sorted(spans), np.int64).reshape(-1, 2).T  # type: ignore[return-value]


def _shown_spans(row: MessageRow, outcome: Outcome) -> Iterator[Span]:
    """The parts of the stream with bytes of a message and no secret."""
    begin = int(str(row.message["stream_offset"]))
    mask = row_secrets(row, outcome.choices)
    end_shown = 0
    for start, end in sorted(mask.spans) if mask is not None else ():
        if start > end_shown:
            yield begin + end_shown, begin + start
        end_shown = max(end_shown, end)
    if end_shown < len(row.data):
        yield begin + end_shown, begin + len(row.data)
