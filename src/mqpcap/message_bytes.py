"""The bytes of messages, read again from their capture.

The tables say where in a stream a message stands but do not keep its bytes. Here one pass over the capture
collects those of all messages asked for: in memory while they are few, in one temporary file beyond that.
Fed by any face with rows of ``messages``; promises no byte that the message does not have: where a hole is in
it, the bytes on both sides of the hole come as two runs.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mqpcap.capture import Capture
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.flows import Flow
from mqpcap.tcp.headers import Dissector, address_text
from mqpcap.tcp.reassembly import MAX_BYTES, Reassembler

MEMORY_BYTES = 64 << 20
"""Collected bytes beyond this wait in a file."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A message: the key of its row, its sender, and the captured bytes it has."""

    connection_id: int
    src_ip: str
    src_port: int
    stream_offset: int
    frame_len: int


@dataclass(frozen=True, slots=True)
class Run:
    """Contiguous bytes of a message; ``offset`` counts from its first byte."""

    offset: int
    data: bytes


@dataclass(slots=True)
class _Collected:
    """Where the bytes of a message stand in the store: (stream offset, place, length) of each run."""

    want: Wanted
    left: int
    runs: list[tuple[int, int, int]] = field(default_factory=list)


class Excerpts:
    """The bytes of messages of one capture; a context manager that lets the store go.

    A capture that was a pipe cannot be read again: CaptureError.
    """

    def __init__(
        self,
        capture: Capture,
        wanted: Iterable[Wanted],
        max_memory_bytes: int = MAX_BYTES,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._capture = capture
        self._store = tempfile.SpooledTemporaryFile(MEMORY_BYTES, prefix="mqpcap-bytes-")  # noqa: SIM115 - closed on exit
        self._used = 0
        self._found: dict[Wanted, _Collected] = {}
        sides: dict[tuple[int, str, int], list[Wanted]] = {}
        for want in wanted:
            sides.setdefault((want.connection_id, want.src_ip, want.src_port), []).append(want)
        if not sides:
            return
        self._collect(sides, max_memory_bytes, progress)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.close()

    def runs(self, want: Wanted) -> tuple[Run, ...]:
        """The captured bytes of a message, without those that came too late to be in its row."""
        collected = self._found.get(want)
        if collected is None:
            return ()
        out: list[Run] = []
        for offset, place, length in collected.runs:
            self._store.seek(place)
            run = Run(offset - want.stream_offset, self._store.read(length))
            if out and out[-1].offset + len(out[-1].data) == run.offset:
                run = Run(out[-1].offset, out.pop().data + run.data)
            out.append(run)
        return tuple(out)

    def _collect(
        self,
        sides: dict[tuple[int, str, int], list[Wanted]],
        max_memory_bytes: int,
        progress: Callable[[int], None] | None,
    ) -> None:
        """Read the capture once."""
        connections = {key[0] for key in sides}
        queues: dict[tuple[int, int], _Queue | None] = {}
        assembler = Reassembler(max_memory_bytes)
        ids: list[int] = []
        for stretches in _stretches(self._capture, assembler, progress):
            for s in range(len(stretches.flow)):
                side = int(stretches.flow[s]), int(stretches.side[s])
                if side not in queues:
                    queues[side] = None
                    while len(ids) <= side[0]:
                        ids.append(assembler.flows[len(ids)].connection_id)
                    if ids[side[0]] in connections:
                        key = _sender(assembler.flows[side[0]], side[1])
                        queues[side] = _Queue(sides[key]) if key in sides else None
                queue = queues[side]
                if queue is not None:
                    queue.take(stretches, s, self._put)
        for queue in queues.values():
            if queue is not None:
                self._found.update({c.want: c for c in queue.collected})

    def _put(self, data: bytes) -> int:
        place = self._used
        self._store.seek(place)
        self._store.write(data)
        self._used += len(data)
        return place


class _Queue:
    """The messages wanted of one side, in order of their offsets, and the next of them."""

    def __init__(self, wanted: list[Wanted]) -> None:
        self.collected = [_Collected(want, want.frame_len) for want in sorted(wanted, key=lambda w: w.stream_offset)]
        self._next = 0

    def take(self, stretches: StreamChunks, s: int, put: Callable[[bytes], int]) -> None:
        """The bytes of stretch ``s`` that belong to a wanted message."""
        begin = int(stretches.offset[s])
        end = begin + int(stretches.length[s])
        while self._next < len(self.collected):
            one = self.collected[self._next]
            following = self._next + 1
            limit = self.collected[following].want.stream_offset if following < len(self.collected) else end
            at = max(begin, one.want.stream_offset, one.runs[-1][0] + one.runs[-1][2] if one.runs else 0)
            if at >= end:
                return
            length = max(min(one.left, end - at, limit - at), 0)
            if length:
                place = int(stretches.start[s]) + at - begin
                one.runs.append((at, put(stretches.buffer[place : place + length].tobytes()), length))
                one.left -= length
            if one.left and at + length >= end:
                return
            self._next = following


def _sender(flow: Flow, side: int) -> tuple[int, str, int]:
    return flow.connection_id, *((flow.a_ip, flow.a_port) if side == 0 else (flow.b_ip, flow.b_port))


def _stretches(
    capture: Capture, assembler: Reassembler, progress: Callable[[int], None] | None
) -> Iterator[StreamChunks]:
    """The stretches of a capture, each byte once."""
    dissector = Dissector()
    for window in capture.windows():
        stretches = assembler.feed(dissector.segments(window))
        yield stretches
        assembler.keep(stretches, stretches.length)
        if progress is not None:
            progress(len(window.buffer))
    yield assembler.finish()


def _address(version: NDArray[np.int8], hi: NDArray[np.int64], lo: NDArray[np.int64], i: int) -> str:
    return address_text(int(version[i]), int(hi[i]), int(lo[i]))


@dataclass(frozen=True, slots=True)
class Place:
    """What a packet is to the streams: who sent it to whom, and the payload bytes it has; ports -1: no TCP."""

    file: str
    ts_ns: int
    src_ip: str
    src_port: int
    dst_ip: str
    dst_port: int
    payload_len: int


def packet(capture: Capture, number: int) -> list[Place]:
    """The packet of that number in each file of the capture that has one."""
    dissector = Dissector()
    places = []
    for window in capture.windows():
        segments = dissector.segments(window)
        rows = np.flatnonzero(segments.number == number)
        here = np.flatnonzero(window.number == number)
        for i in here.tolist():
            if not len(rows):
                places.append(Place(capture.files[window.file], int(window.ts_ns[i]), "", -1, "", -1, 0))
        for i in rows.tolist():
            places.append(
                Place(
                    capture.files[int(segments.file[i])], int(segments.ts_ns[i]),
                    _address(segments.version, segments.src_hi, segments.src_lo, i), int(segments.sport[i]),
                    _address(segments.version, segments.dst_hi, segments.dst_lo, i), int(segments.dport[i]),
                    int(segments.length[i]),
                )
            )  # fmt: skip
    return places
