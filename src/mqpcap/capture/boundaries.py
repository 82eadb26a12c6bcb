"""The middle of a capture file to the border of a record, and its end to the time of its last packet.

Feeds ``inputs`` and who reads a file in parts. Only for files that can be read from any byte on: neither compressed
ones nor pipes. A border is told by a chain of records, each beginning where the one before ends, longer than a packet
can be. A packet that carries a capture may still look like one, so an entry is a guess: it holds only if the reader of
the part before comes out there (`WindowReader.end_point`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mqpcap.capture import records_index
from mqpcap.capture.records_index import CHAIN_BYTES, LONGEST_BYTES, SEARCH_BYTES
from mqpcap.capture.sources import PeekableStream
from mqpcap.capture.windows import FileFacts, ResumePoint, WindowReader

CHAIN_STEPS = 1 << 22
"""Records looked at in one search, whatever the bytes are."""
HEAD_BYTES = 1 << 16
"""Bytes at the beginning of a file that are read for its interfaces and its first packet."""
TAIL_BYTES = 2 * LONGEST_BYTES
"""Bytes at the end of a file that are read for its last packet."""
USUAL_HEADER_BYTES = 16
"""Bytes of a pcap record's header; files with longer ones are read from their beginning only."""
SPAN_NS = 366 * 86_400 * 1_000_000_000
"""A last packet that is later than this after the first is not believed."""


def find_boundary(name: str, source: PeekableStream, position: int) -> ResumePoint | None:
    """The first border of a record at a byte or behind it; None if none is told within SEARCH_BYTES.

    Raises CaptureError if the source, which has a size, is no capture.
    """
    state, facts = _head(name, source)
    if facts is None:
        return None
    source.seek(position)
    buffer = np.frombuffer(source.read(SEARCH_BYTES + CHAIN_BYTES), np.uint8)
    is_end = position + len(buffer) == source.size_bytes
    big = facts.byte_order == "big"
    is_pcap = facts.format == "pcap"
    if is_pcap and state.interfaces[-1] != USUAL_HEADER_BYTES:
        return None
    # The lengths of blocks are multiples of four.
    offset = records_index.find_chain(buffer.data, 0 if is_pcap else -position % 4, is_pcap, is_end, big, CHAIN_STEPS)
    return None if offset < 0 else replace(state, position=position + offset)


def first_and_last_ns(name: str, source: PeekableStream) -> tuple[int, int] | None:
    """Times of the first and the last packet (ns) from both ends of a large file; None where they do not tell.

    Raises CaptureError if the source is no capture.
    """
    if source.size_bytes is None or source.size_bytes < 2 * TAIL_BYTES:
        return None
    state, facts = _head(name, source)
    if facts is None or facts.first_ts_ns is None:
        return None
    tail_point = find_boundary(name, source, source.size_bytes - TAIL_BYTES)
    if tail_point is None:
        return None
    reader = WindowReader(name, 0, source, tail_point)
    for _ in reader.windows():
        pass
    # What is said of an interface behind the first bytes and before the last ones is not known.
    is_read = all(note.kind == "cut_short" for note in reader.notes) and reader.end_point.interfaces == state.interfaces
    last_ts_ns = None if reader.facts is None or not is_read else reader.facts.last_ts_ns
    if last_ts_ns is None or not 0 <= last_ts_ns - facts.first_ts_ns <= SPAN_NS:
        return None
    return facts.first_ts_ns, last_ts_ns


def _head(name: str, source: PeekableStream) -> tuple[ResumePoint, FileFacts | None]:
    """What the first bytes say: the state behind them, and the facts, None if they are too few."""
    source.seek(0)
    reader = WindowReader(name, 0, source, until=HEAD_BYTES)
    for _ in reader.windows():
        pass
    return replace(reader.end_point, last_ts_ns=0), reader.facts
