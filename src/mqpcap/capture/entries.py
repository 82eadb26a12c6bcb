"""The middle of a capture file to the border of a record, and its end to the time of its last packet.

Feeds ``inputs`` and who reads a file in parts. Only for files that can be read from any byte on: neither compressed
ones nor pipes. A border is told by a chain of records, each beginning where the one before ends, longer than a packet
can be. A packet that carries a capture may still look like one, so an entry is a guess: it holds only if the reader of
the part before comes out there (`Reader.exit`). A last packet counts only where all chains agree on it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mqpcap.capture import records_index
from mqpcap.capture.records_index import CHAIN_BYTES, LONGEST_BYTES, SEARCH_BYTES
from mqpcap.capture.sources import Headed
from mqpcap.capture.windows import Entry, FileFacts, Reader

CHAIN_STEPS = 1 << 22
"""Records looked at in one search, whatever the bytes are."""
HEAD_BYTES = 1 << 16
"""Bytes at the beginning of a file that are read for its interfaces and its first packet."""
TAIL_BYTES = LONGEST_BYTES + CHAIN_BYTES
"""Bytes at the end of a file that are read for its last packet."""
SPAN_NS = 366 * 86_400 * 1_000_000_000
"""A last packet that is later than this after the first is not believed."""


def entry(name: str, source: Headed, position: int) -> Entry | None:
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
    if facts.format == "pcap":
        found = records_index.pcap_border(buffer.data, is_end, big, CHAIN_STEPS)
    else:
        # The lengths of blocks are multiples of four.
        found = records_index.pcapng_border(buffer.data, -position % 4, is_end, big, CHAIN_STEPS)
    return None if found < 0 else replace(state, position=position + found)


def times(name: str, source: Headed) -> tuple[int, int] | None:
    """Times of the first and the last packet (ns) from both ends of a large file; None where they do not tell.

    Raises CaptureError if the source is no capture.
    """
    if source.size_bytes is None or source.size_bytes < 2 * TAIL_BYTES:
        return None
    state, facts = _head(name, source)
    if facts is None or facts.first_ts_ns is None:
        return None
    begin = (source.size_bytes - TAIL_BYTES) // 4 * 4
    source.seek(begin)
    buffer = np.frombuffer(source.read(source.size_bytes - begin), np.uint8)
    if begin + len(buffer) < source.size_bytes:
        return None
    last = _last_packet(buffer, facts)
    if last < 0:
        return None
    reader = Reader(name, 0, source, replace(state, position=begin + last))
    for _ in reader.windows():
        pass
    assert reader.facts is not None
    last_ts_ns = reader.facts.last_ts_ns
    if last_ts_ns is None or not 0 <= last_ts_ns - facts.first_ts_ns <= SPAN_NS:
        return None
    return facts.first_ts_ns, last_ts_ns


def _head(name: str, source: Headed) -> tuple[Entry, FileFacts | None]:
    """What the first bytes say: the state behind them, and the facts, None if they are too few."""
    source.seek(0)
    reader = Reader(name, 0, source, until=HEAD_BYTES)
    for _ in reader.windows():
        pass
    return replace(reader.exit, last_ts_ns=0), reader.facts


def _last_packet(buffer: NDArray[np.uint8], facts: FileFacts) -> int:
    """Where the last record begins in the end of a file, -1 if that is in doubt."""
    room = np.empty(len(buffer), np.int32)
    big = facts.byte_order == "big"
    if facts.format == "pcap":
        return int(records_index.last_pcap_record(buffer.data, len(buffer), big, LONGEST_BYTES + 16, room.data))
    return int(records_index.last_pcapng_packet(buffer.data, 0, len(buffer), big, LONGEST_BYTES + 32, room.data))
