"""Other views of a connection: both sides of NAT, captured together, are one connection.

In: the `Segments` of a window. Out: the same, where packets of another view have the endpoints of the first one, so
that reassembly takes them for copies. Called by: the pipeline, before `Reassembler.feed`.

A view is known by its SYN-ACK: both sequence numbers and both TCP timestamps of another SYN-ACK within MAX_DELAY_NS,
and one end in common. Its time to live differs, as what translates addresses forwards packets. Copies of a
connection that a program made with other ports have the same, and stay apart.
"""

import struct
from collections.abc import Iterable
from dataclasses import replace
from socket import IPPROTO_TCP
from typing import Any, NamedTuple

import numpy as np

from mqpcap.records import dataclass
from mqpcap.tcp.flags import ACK, SYN
from mqpcap.tcp.headers import Segments, address_text, option_values

MAX_VIEWS = 1 << 16
"""SYN-ACKs, and other views, that are remembered; the oldest are forgotten."""
MAX_DELAY_NS = 1_000_000_000
"""Time between a packet of one view and the same packet of another view."""
NAMED_VIEWS = 8
"""Views that are named in notes; further ones are counted."""
HEADER_BYTES = 100
"""The longest header of TCP and the header of IPv6."""
_TIMESTAMPS, _TIMESTAMPS_BYTES = 8, 8
SOURCE = ("src_hi", "src_lo", "sport")
TARGET = ("dst_hi", "dst_lo", "dport")

Endpoint = tuple[int, int, int]
"""Halves of the address, and the port."""


class NewRelative(NamedTuple):
    """A connection whose packets count for another one: `Segments.key` of both.

    ``numbers``: where the streams of both begin; None if their keys are enough.
    """

    key: int
    first_key: int
    numbers: tuple[int, int] | None = None


@dataclass(slots=True)
class _View:
    """Another view: its ends (client, server), and those of the first view."""

    ends: tuple[Endpoint, Endpoint]
    first_ends: tuple[Endpoint, Endpoint]
    key: int
    first_key: int
    numbers: tuple[int, int]
    """Sequence numbers of stream offset 0, client and server."""
    version: int

    def text(self) -> str:
        """For a note: which connection it is."""
        ends = [f"{address_text(self.version, *end[:2])}:{end[2]}" for end in (*self.ends, *self.first_ends)]
        return f"{ends[0]} to {ends[1]} is {ends[2]} to {ends[3]} on the other side of NAT: its messages count once"


@dataclass(slots=True)
class _Answer:
    """A SYN-ACK: its ends (client, server), `Segments.key`, and ``header``: the bytes up to the end of its header."""

    ends: tuple[Endpoint, Endpoint]
    seq: int
    ack: int
    ts_ns: int
    key: int
    version: int
    header: bytes

    def is_view_of(self, other: "_Answer") -> bool:
        """Whether it is the SYN-ACK of the first view, forwarded to other addresses."""
        has_common_end = (self.ends[0] == other.ends[0]) != (self.ends[1] == other.ends[1])
        if not has_common_end or abs(self.ts_ns - other.ts_ns) > MAX_DELAY_NS:
            return False
        timestamps, hops = self.read()
        other_timestamps, other_hops = other.read()
        return timestamps == other_timestamps != b"" and hops != other_hops and 0 not in (hops, other_hops)

    def read(self) -> tuple[bytes, int]:
        """The value of the TCP option timestamps (RFC 7323) and the time to live; empty and 0 where there is none.

        An IP header with options has no time to live here.
        """
        header, (client, server) = self.header, self.ends
        start = _tcp_start(header, struct.pack(">HHI", server[2], client[2], self.seq))
        values = (x for x in option_values(header[start:], _TIMESTAMPS) if len(x) == _TIMESTAMPS_BYTES)
        ip = header[:start][-40:]
        if self.version == 4:
            hops = ip[-12] if len(ip) >= 20 and ip[-20] == 0x45 else 0
        else:
            hops = ip[7] if len(ip) == 40 and ip[0] >> 4 == 6 and ip[6] == IPPROTO_TCP else 0
        return next(values, b""), hops


class Views:
    """The other views of a capture's connections; ``new``: those that the latest segments showed."""

    def __init__(self) -> None:
        self._answers: dict[bytes, tuple[Segments, int]] = {}
        """By both sequence numbers: the first SYN-ACK with TCP options that has them, as `_headers` and row."""
        self._views: dict[tuple[Endpoint, Endpoint], _View] = {}
        self._since: dict[tuple[Endpoint, Endpoint], int] = {}
        """By the ends of a view that these segments show: the row that shows it."""
        self.new: list[NewRelative] = []
        self._texts: list[str] = []
        self._count = 0

    def translated(self, segments: Segments) -> Segments:
        """The segments, packets of other views with the endpoints of the first."""
        self._since.clear()
        rows = np.flatnonzero(segments.flags & (SYN | ACK) == SYN | ACK)
        if len(rows) and len(segments.buffer):
            self._find(segments.taken(rows), rows.tolist())
        if not self._views:
            return segments
        keys = np.array([view.key for view in self._views.values()], np.int64)
        rows = np.flatnonzero(np.isin(segments.key, keys))
        changes = {row: change for row in rows.tolist() if (change := self._change(segments, row)) is not None}
        if not changes:
            return segments
        columns: dict[str, Any] = {name: getattr(segments, name).copy() for name in (*SOURCE, *TARGET, "key")}
        for row, (source, target, key) in changes.items():
            for name, value in zip(columns, (*source, *target, key), strict=True):
                columns[name][row] = value
        return replace(segments, **columns)

    def _change(self, segments: Segments, row: int) -> tuple[Endpoint, Endpoint, int] | None:
        """The ends and the key of the first view, if a packet belongs to another one."""
        source, target = ends_of(segments, row)
        view = self._views.get((source, target)) or self._views.get((target, source))
        if view is None or row <= self._since.get(view.ends, -1):
            return None
        is_client = view.ends[0] == source
        if segments.flags[row] & SYN and (int(segments.seq[row]) + 1) % 2**32 not in view.numbers:
            del self._views[view.ends]  # its ports are used again
            return None
        client, server = view.first_ends
        return (client, server, view.first_key) if is_client else (server, client, view.first_key)

    def _find(self, segments: Segments, rows: list[int]) -> None:
        """Whether SYN-ACKs are those of earlier ones, on the other side of NAT; ``rows``: where they stand."""
        segments, places = _headers(segments)
        numbers = np.column_stack([segments.seq, segments.ack]).astype(">u4").tobytes()
        for k in places:
            answer = segments, k
            origin = self._answers.setdefault(numbers[8 * k : 8 * k + 8], answer)
            if len(self._answers) > MAX_VIEWS:
                del self._answers[next(iter(self._answers))]
            if origin is not answer:
                self._compare(_answer(*answer), _answer(*origin), rows[k])

    def _compare(self, answer: _Answer, origin: _Answer, row: int) -> None:
        if answer.ends in self._views or not answer.is_view_of(origin):
            return
        numbers = answer.ack, (answer.seq + 1) % 2**32
        view = _View(answer.ends, origin.ends, answer.key, origin.key, numbers, answer.version)
        self._views[view.ends] = view
        self._since[view.ends] = row
        self.new.append(NewRelative(view.key, view.first_key, numbers))
        self._count += 1
        if self._count <= NAMED_VIEWS:
            self._texts.append(view.text())
        if len(self._views) > MAX_VIEWS:
            del self._views[next(iter(self._views))]

    def notes(self) -> list[str]:
        """Which connections are other views of others."""
        unnamed = self._count - len(self._texts)
        return [*self._texts, *([f"{unnamed:,} more connections are other views of others"] if unnamed else [])]


def ends_of(segments: Segments, row: int) -> tuple[Endpoint, Endpoint]:
    """Source and destination of a segment."""
    source, target = ((getattr(segments, name)[row] for name in names) for names in (SOURCE, TARGET))
    return _endpoint(source), _endpoint(target)


def _endpoint(numbers: Iterable[int]) -> Endpoint:
    hi, lo, port = map(int, numbers)
    return hi, lo, port


def _tcp_start(header: bytes, begin: bytes) -> int:
    """The offset of the TCP header at the end of some bytes, by its first eight bytes; their length without one."""
    starts = range(len(header) - 20, max(len(header) - 60, 0) - 1, -4)
    places = (k for k in starts if header[k : k + 8] == begin and header[k + 12] >> 4 == (len(header) - k) // 4)
    return next(places, len(header))


def tcp_header(segments: Segments, row: int) -> bytes:
    """The TCP header of a segment; empty if its options are not captured."""
    end = int(segments.start[row])
    header = b"" if end > len(segments.buffer) else segments.buffer[max(end - 60, 0) : end].tobytes()
    ports_and_number = int(segments.sport[row]), int(segments.dport[row]), int(segments.seq[row])
    return header[_tcp_start(header, struct.pack(">HHI", *ports_and_number)) :]


def _headers(segments: Segments) -> tuple[Segments, list[int]]:
    """SYN-ACKs over a buffer that holds only their last HEADER_BYTES of headers; which of them may have timestamps."""
    places = segments.start[:, None] + np.arange(-HEADER_BYTES, 0)
    is_there = (places >= 0) & (segments.start[:, None] <= len(segments.buffer))
    headers = np.where(is_there, segments.buffer[np.where(is_there, places, 0)], 0).astype(np.uint8)
    ports = np.column_stack([segments.sport, segments.dport]).astype(">u2").view(np.uint8)
    begin = np.hstack([ports, segments.seq[:, None].astype(">u4").view(np.uint8)])
    has_no_options = (headers[:, -20:-12] == begin).all(axis=1) & (headers[:, -8] >> 4 == 5)
    starts = np.arange(1, len(headers) + 1) * HEADER_BYTES
    return replace(segments, buffer=headers.reshape(-1), start=starts), np.flatnonzero(~has_no_options).tolist()


def _answer(segments: Segments, row: int) -> _Answer:
    server, client = ends_of(segments, row)
    end = int(segments.start[row])
    header = segments.buffer[end - HEADER_BYTES : end].tobytes()
    seq, ack, ts_ns = int(segments.seq[row]), int(segments.ack[row]), int(segments.ts_ns[row])
    return _Answer((client, server), seq, ack, ts_ns, int(segments.key[row]), int(segments.version[row]), header)
