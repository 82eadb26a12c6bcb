"""Finds the first record boundary after a byte of a capture file, and the time of the file's last packet.

In: a seekable `PeekableStream`; neither compressed files nor pipes. Out: a `ResumePoint`, or times.
Called by: ``inputs``, and Spark tasks that read a file in parts.

A boundary is recognised by a chain of records: each begins where the previous record ends, and the chain is longer than
any packet. A packet may carry a capture file as payload, so the boundary is a guess. It is valid only if the reader of
the preceding part ends exactly there (`WindowReader.end_point`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from mqpcap.capture import records_index
from mqpcap.capture.records_index import CHAIN_BYTES, LONGEST_BYTES, SEARCH_BYTES
from mqpcap.capture.sources import PeekableStream
from mqpcap.capture.windows import FileFacts, ResumePoint, Window, WindowReader

CHAIN_STEPS = 1 << 22
"""Records tried in one search."""
HEAD_BYTES = 1 << 16
"""Bytes at the beginning of a file that are read for its interfaces and its first packet."""
TAIL_BYTES = 2 * LONGEST_BYTES
"""Bytes at the end of a file that are read for its last packet."""
USUAL_HEADER_BYTES = 16
"""Bytes of a pcap record's header; files with longer ones are read from their beginning only."""
SPAN_NS = 366 * 86_400 * 1_000_000_000
"""Time between the first and the last packet; a longer time is not trusted."""


def find_boundary(name: str, source: PeekableStream, position: int) -> ResumePoint | None:
    """The first record boundary at or after a byte; None if there is no chain of records within SEARCH_BYTES.

    The source has a size. Raises CaptureError if it is not a capture file.
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


def last_windows(name: str, source: PeekableStream, size_bytes: int) -> list[Window]:
    """The windows at the end of a file, of at least this size; the last window if its end cannot be found.

    The source is at its beginning. Raises CaptureError if it is not a capture file.
    """
    point = None
    if source.size_bytes is not None and source.size_bytes > size_bytes:
        point = find_boundary(name, source, source.size_bytes - size_bytes)
        source.seek(0)
    return [*deque(WindowReader(name, 0, source, point).windows(), 1 if point is None else None)]


def first_and_last_ns(name: str, source: PeekableStream) -> tuple[int, int] | None:
    """Times of the first and the last packet (ns) from both ends of a large file; None if the whole file must be read.

    Raises CaptureError if the source is not a capture file.
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
    # The middle of the file is unread. If the tail has other interface descriptions than the head, its times cannot be
    # trusted.
    is_read = all(note.kind == "cut_short" for note in reader.notes) and reader.end_point.interfaces == state.interfaces
    last_ts_ns = None if reader.facts is None or not is_read else reader.facts.last_ts_ns
    if last_ts_ns is None or not 0 <= last_ts_ns - facts.first_ts_ns <= SPAN_NS:
        return None
    return facts.first_ts_ns, last_ts_ns


def _head(name: str, source: PeekableStream) -> tuple[ResumePoint, FileFacts | None]:
    """The reader's state after the first bytes of the file, and its facts; None if the bytes are too few."""
    source.seek(0)
    reader = WindowReader(name, 0, source, until=HEAD_BYTES)
    for _ in reader.windows():
        pass
    return replace(reader.end_point, last_ts_ns=0), reader.facts
