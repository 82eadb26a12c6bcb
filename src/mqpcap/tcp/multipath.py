"""Multipath TCP: the subflows of a connection are put together to the stream of the first one.

In: the `Segments` of a window. Out: the same, where packets of subflows have the endpoints of the first subflow, and
sequence numbers of its stream. Called by: the pipeline, before `Reassembler.feed`, which takes them for one connection.

RFC 8684, and RFC 6824 for version 0. MP_CAPABLE has the keys of both sides. The hash of a key holds the token that
MP_JOIN repeats, and the initial data sequence number. DSS maps bytes of a subflow to data sequence numbers,
and acknowledges those of the other side. Only the lower 32 bits matter, as no window is larger. A subflow keeps its
handshake and its end. Bytes whose mapping was not captured count as not captured, and a note has their packets: what
they would have said is unknown. So it is with a connection whose MP_CAPABLE was not captured.
"""

import struct
from collections import deque
from dataclasses import field, replace
from hashlib import sha1, sha256
from typing import Any, NamedTuple

import numpy as np

from mqpcap.records import dataclass
from mqpcap.tcp.flags import ACK, FIN, MULTIPATH, RST, SYN
from mqpcap.tcp.headers import MULTIPATH_OPTION, Segments, option_values
from mqpcap.tcp.sequence_numbers import ahead, wrapped
from mqpcap.tcp.views import SOURCE, TARGET, Endpoint, NewRelative, ends_of, tcp_header

MAX_SUBFLOWS = 1 << 16
"""Subflows, and tokens, that are remembered; the oldest are forgotten."""
MAX_MAPPINGS = 64
"""Mappings of a side of a subflow that are remembered: those of packets that may still come."""
_CAPABLE, _JOIN, _DSS = 0, 1, 2
_JOIN_SYN_BYTES = 10
_ENDLESS = 1 << 30
"""Length of the mapping of a connection that falls back to plain TCP."""
_HAS_ACK, _WIDE_ACK, _HAS_MAPPING, _WIDE_NUMBER, _DATA_FIN = 1, 2, 4, 8, 16


class _Mapping(NamedTuple):
    """The data sequence number of subflow bytes; ``start``: relative to the subflow's initial number."""

    number: int
    start: int
    length: int
    is_end: bool


@dataclass(slots=True)
class _Stream:
    """A connection; of each side (client, server) of the first subflow the difference to data sequence numbers.

    ``sent``, ``acked``: the highest number of each side that it sent or acknowledged, in the first subflow's stream.
    """

    ends: tuple[Endpoint, Endpoint]
    key: int
    subflow_count: int = 1
    delta: list[int | None] = field(default_factory=lambda: [None, None])
    sent: list[int | None] = field(default_factory=lambda: [None, None])
    acked: list[int | None] = field(default_factory=lambda: [None, None])


@dataclass(slots=True)
class _Subflow:
    """``initial``: the sequence numbers, client and server. ``is_turned``: its client is the stream's server."""

    stream: _Stream
    ends: tuple[Endpoint, Endpoint]
    key: int
    initial: list[int | None]
    version: int = 1
    is_turned: bool = False
    mappings: tuple[deque[_Mapping], deque[_Mapping]] = field(
        default_factory=lambda: (deque(maxlen=MAX_MAPPINGS), deque(maxlen=MAX_MAPPINGS))
    )


class _Dss(NamedTuple):
    """The option DSS: the acknowledged data sequence number, and the mapping."""

    ack: int | None = None
    mapping: _Mapping | None = None


def _dss(value: bytes) -> _Dss:
    """The option DSS, as far as it is whole; the numbers' lower 32 bits."""
    flags, position, ack = value[1] if len(value) > 1 else 0, 2, None
    if flags & _HAS_ACK:
        position += 8 if flags & _WIDE_ACK else 4
        ack = int.from_bytes(value[position - 4 : position], "big") if len(value) >= position else None
    if not flags & _HAS_MAPPING:
        return _Dss(ack)
    position += 8 if flags & _WIDE_NUMBER else 4
    if len(value) < position + 6:
        return _Dss(ack)
    number, start, length = struct.unpack(">IIH", value[position - 4 : position + 6])
    return _Dss(ack, _Mapping(number, start, length, bool(flags & _DATA_FIN)))


class Multipath:
    """The subflows of a capture's connections; ``new``: those that the latest segments showed."""

    def __init__(self) -> None:
        self._subflows: dict[tuple[Endpoint, Endpoint], _Subflow] = {}
        self._streams: dict[bytes, tuple[_Stream, int]] = {}
        """By token: its connection and side."""
        self.new: list[NewRelative] = []
        self._lost = self._joined = self.missing_count = 0
        """``missing_count``: subflows whose connection is not known."""

    def joined(self, segments: Segments) -> Segments:
        """The segments, those of subflows with endpoints and numbers of the first."""
        has_option = segments.flags & MULTIPATH != 0
        if not has_option.any() and not self._subflows:
            return segments
        keys = np.array([subflow.key for subflow in self._subflows.values()], np.int64)
        rows = np.flatnonzero(has_option | np.isin(segments.key, keys)).tolist()
        names = *SOURCE, *TARGET, "key", "seq", "ack", "flags"
        columns: dict[str, Any] = {name: getattr(segments, name).copy() for name in names}
        lost = np.array([row for row in rows if not self._join(segments, row, columns)], np.int64)
        self._lost += int((segments.wire_length[lost] > 0).sum())
        return replace(segments, **columns).taken(np.delete(np.arange(len(segments.key)), lost))

    def _join(self, segments: Segments, row: int, columns: dict[str, Any]) -> bool:
        """Set the columns of a packet; False if its bytes have no place in the stream."""
        source, target = ends_of(segments, row)
        flags = int(segments.flags[row])
        header = tcp_header(segments, row) if flags & MULTIPATH else b""
        values = [*filter(None, option_values(header, MULTIPATH_OPTION))]
        if flags & SYN:
            self._open(segments, row, values)
            return True
        subflow = self._subflows.get((source, target)) or self._subflows.get((target, source))
        if subflow is None:
            if not values:
                return True
            subflow = self._add(_Stream((source, target), int(segments.key[row])), segments, row, source, target)
        side = int(subflow.ends[0] != source)
        if flags & (FIN | RST) and subflow.stream.key != subflow.key and not segments.wire_length[row]:
            numbers = [wrapped((number or 0) + 1) for number in subflow.initial]
            columns["seq"][row], columns["ack"][row] = numbers[side], numbers[1 - side]
            return True
        return self._place(segments, row, columns, subflow, side, values)

    def _place(
        self, segments: Segments, row: int, columns: dict[str, Any], subflow: _Subflow, side: int, values: list[bytes]
    ) -> bool:
        """Set the columns of a packet without SYN."""
        stream, sender = subflow.stream, side ^ subflow.is_turned
        length, seq = int(segments.wire_length[row]), int(segments.seq[row])
        for value in values:
            if value[0] >> 4 == _CAPABLE and len(value) >= 18:
                self._learn(subflow, value[2:10], side)
                self._learn(subflow, value[10:18], 1 - side)
                initial, delta = subflow.initial[side], stream.delta[sender]
                if len(value) >= 20 and initial is not None and delta is not None:
                    mapping = _Mapping(wrapped(initial + 1 - delta), 1, int.from_bytes(value[18:20], "big"), False)
                    subflow.mappings[side].append(mapping)
        dss = next((_dss(value) for value in values if value[0] >> 4 == _DSS), _Dss())
        if dss.mapping is not None:
            subflow.mappings[side].append(dss.mapping)
        is_plain = subflow.key == stream.key and not subflow.mappings[side]
        number, is_end = self._number(subflow, side, seq, length, is_plain, dss.mapping)
        if dss.ack is not None and stream.delta[1 - sender] is None and subflow.key == stream.key:
            stream.delta[1 - sender] = wrapped(int(segments.ack[row]) - dss.ack)
        if dss.ack is not None and (delta := stream.delta[1 - sender]) is not None:
            acked = wrapped(dss.ack + delta)
            highest = stream.acked[sender]
            stream.acked[sender] = acked if highest is None or ahead(acked, highest) > 0 else highest
            ack: int | None = acked
        else:
            ack = int(segments.ack[row]) if is_plain and dss.ack is None else stream.acked[sender]
        if number is None or (ack is None and not length):
            return False
        high = wrapped(number + length + is_end)
        sent = stream.sent[sender]
        stream.sent[sender] = high if sent is None or ahead(high, sent) > 0 else sent
        flags = int(segments.flags[row]) & ~(FIN | MULTIPATH) | (FIN if is_end else 0)
        if stream.subflow_count > 1:
            flags &= ~RST  # the other subflows go on
        source, target = stream.ends if sender == 0 else stream.ends[::-1]
        values_of = *source, *target, stream.key, number, ack or 0, flags if ack is not None else flags & ~ACK
        for name, value_of in zip(columns, values_of, strict=True):
            columns[name][row] = value_of
        return True

    def _number(
        self, subflow: _Subflow, side: int, seq: int, length: int, is_plain: bool, own_mapping: _Mapping | None
    ) -> tuple[int | None, bool]:
        """The number in the first subflow's stream of a packet, and whether the stream ends with it.

        ``own_mapping``: the mapping in the packet.
        """
        sender = side ^ subflow.is_turned
        stream, initial = subflow.stream, subflow.initial[side]
        for mapping in reversed(subflow.mappings[side]):
            size = (mapping.length or _ENDLESS) - mapping.is_end
            if mapping.start == 0:  # the end of the stream, without bytes
                begin = 0 if not length and mapping is own_mapping else None
            elif initial is None:
                begin = 0 if size == length else None
            else:
                begin = ahead(wrapped(seq - initial), mapping.start)
            if begin is None or not 0 <= begin <= size - length or (not length and not mapping.is_end):
                continue
            if stream.delta[sender] is None and subflow.key == stream.key:
                stream.delta[sender] = wrapped(seq - mapping.number - begin)
            delta = stream.delta[sender]
            is_end = mapping.is_end and begin + length == size
            return (None if delta is None else wrapped(mapping.number + begin + delta)), is_end
        if length:
            return (seq if is_plain else None), False
        return (seq if is_plain else stream.sent[sender]), False

    # Handshakes

    def _open(self, segments: Segments, row: int, values: list[bytes]) -> None:
        """Note a SYN or SYN-ACK of a subflow."""
        source, target = ends_of(segments, row)
        seq, is_answer = int(segments.seq[row]), bool(segments.flags[row] & ACK)
        ends = (target, source) if is_answer else (source, target)
        subflow = self._subflows.get(ends)
        kinds = {value[0] >> 4: value for value in values}
        if is_answer:
            if subflow is not None and _CAPABLE not in kinds and _JOIN not in kinds:
                self._subflows.pop(ends)  # the server speaks plain TCP
            elif subflow is not None:
                subflow.initial[1] = seq
                if len(capable := kinds.get(_CAPABLE, b"")) >= 10:
                    subflow.version = capable[0] & 15
                    self._learn(subflow, capable[2:10], 1)
            return
        if subflow is not None and subflow.initial[0] != seq:
            self._subflows.pop(ends)  # its ports are used again
            subflow = None
        if subflow is not None or not (_CAPABLE in kinds or len(kinds.get(_JOIN, b"")) == _JOIN_SYN_BYTES):
            return
        token = b"" if _CAPABLE in kinds else kinds[_JOIN][2:6]
        self.missing_count += bool(token) and token not in self._streams
        stream, owner = self._streams.get(token) or (_Stream(ends, int(segments.key[row])), 1)
        subflow = self._add(stream, segments, row, *ends)
        subflow.initial[0] = seq
        if stream.key != subflow.key:
            subflow.is_turned = owner == 0
            stream.subflow_count += 1
            self._joined += 1
            self.new.append(NewRelative(subflow.key, stream.key))
        elif len(capable := kinds.get(_CAPABLE, b"")) >= 10:
            subflow.version = capable[0] & 15
            self._learn(subflow, capable[2:10], 0)

    def _add(self, stream: _Stream, segments: Segments, row: int, client: Endpoint, server: Endpoint) -> _Subflow:
        subflow = _Subflow(stream, (client, server), int(segments.key[row]), [None, None])
        self._subflows[subflow.ends] = subflow
        if len(self._subflows) > MAX_SUBFLOWS:
            del self._subflows[next(iter(self._subflows))]
        return subflow

    def _learn(self, subflow: _Subflow, key: bytes, side: int) -> None:
        """Note the token of a key, and the first data sequence number of its side."""
        digest = (sha256(key) if subflow.version else sha1(key, usedforsecurity=False)).digest()
        initial = subflow.initial[side]
        self._streams[digest[:4]] = subflow.stream, side ^ subflow.is_turned
        if len(self._streams) > MAX_SUBFLOWS:
            del self._streams[next(iter(self._streams))]
        if initial is not None and subflow.key == subflow.stream.key:
            subflow.stream.delta[side] = wrapped(initial - int.from_bytes(digest[-4:], "big"))

    def notes(self) -> list[str]:
        """How many subflows and packets without a mapping there are."""
        joined = f"subflows of Multipath TCP, read with the first one of their connection: {self._joined:,}"
        lost = f"packets of Multipath TCP whose mapping was not captured; their bytes count as missing: {self._lost:,}"
        return [*([joined] if self._joined else []), *([lost] if self._lost else [])]
