"""Finds captures; a connection that goes on in another file of its folder makes both files one recording.

In: inputs. Out: `FoundCaptures`. Called by: ``reading``, ``recording``, Spark and lakes.

A file continues an earlier file if it begins where that file ends, by its times, and a connection goes on in it. The
first packet of each side then has the number after a packet of the earlier file, which has no bytes at this number.
Packets at the border may have changed places. If a connection is in both files, but bytes between them are missing,
the captures stay apart and a note names the option that joins them.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, groupby, pairwise
from os.path import dirname, realpath

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.capture import Capture, FoundCaptures, Window, WindowReader, boundaries
from mqpcap.capture import captures as captures_by_name
from mqpcap.capture.file_sets import TimeSpan, is_border
from mqpcap.capture.inputs import is_remote
from mqpcap.errors import CaptureError
from mqpcap.records import dataclass
from mqpcap.tcp.flags import FIN, SYN
from mqpcap.tcp.headers import Dissector, Segments, endpoint_pairs

END_BYTES = 1 << 20
"""Bytes at the beginning and at the end of a file that are searched for connections."""
MAX_MISSING_BYTES = 1 << 30
"""Bytes of a connection that are missing between two files, if it may go on in the second."""
MAX_CANDIDATES = 16
"""Earlier captures of a connection that are compared; the latest are taken."""


def captures(inputs: Sequence[str], is_one: bool = False) -> FoundCaptures:
    """The captures in files, directories, globs, URIs and ``-``; is_one: all inputs are one recording.

    Captures are in the order of their first files. Bad inputs raise nothing.
    """
    named = captures_by_name(inputs)
    if len(named.captures) < 2:
        return named
    if is_one:
        return replace(named, captures=[_as_one(named.captures)])
    continued_ids = set()
    for capture, earlier in links(named.captures):
        earlier.add(capture)
        continued_ids.add(id(capture))
    return replace(named, captures=[x for x in named.captures if id(x) not in continued_ids])


def _as_one(parts: Sequence[Capture]) -> Capture:
    """All files as one capture, in order of time; a file without packets comes first."""
    spans = {id(file): file.span() or (0, 0) for part in parts for file in part.inputs}
    files = sorted((file for part in parts for file in part.inputs), key=lambda file: spans[id(file)])
    capture = Capture(tuple(files))
    for file, later in pairwise(files):
        overlap_ns = spans[id(file)][1] - spans[id(later)][0]
        if overlap_ns > 0 and not is_border(spans[id(file)], spans[id(later)]):
            text = f"begins {overlap_ns / 1e9:.3f} s before {file.name} ends; mergecap puts their packets in order"
            capture.doubts.append(f"{later.name}: {text}")
    return capture


def links(later: Sequence[Capture], open_ends: Sequence[Capture] = ()) -> Iterator[tuple[Capture, Capture]]:
    """Captures that continue an earlier capture of their folder, each with the earlier capture; the latest come first.

    ``open_ends``: captures that may be continued, but continue nothing.
    """
    later_ids = set(map(id, later))
    places = [(realpath(dirname(x.inputs[0].path)), x) for x in (*later, *open_ends) if _has_ends(x)]
    for _, members in groupby(sorted(places, key=lambda place: place[0]), key=lambda place: place[0]):
        group = [capture for _, capture in members]
        if len(group) > 1:
            yield from _Folder(group, [x for x in group if id(x) in later_ids]).links()


def _has_ends(capture: Capture) -> bool:
    return not capture.is_pipe and capture.next_file is None and not is_remote(capture.files[0])


@dataclass(slots=True)
class _Begin:
    """The begin of a capture: the time, and the first number of each side, by connection that began before it."""

    capture: Capture
    first_ns: int
    connections: list[dict[int, int]]


@dataclass(slots=True)
class _End:
    """The end of a capture: its times, and sides with the numbers that follow a packet and that no packet has.

    ``next_number``: of each side the number after its last packet.
    """

    capture: Capture
    span: TimeSpan
    numbers: set[tuple[int, int]]
    next_number: dict[int, int]

    def has_before(self, connection: dict[int, int]) -> bool:
        """Whether a connection with these first numbers of its sides goes on where it stops here."""
        shared_sides = [pair for pair in connection.items() if pair[0] in self.next_number]
        return bool(shared_sides) and self.numbers.issuperset(shared_sides)


class _Folder:
    """The captures of a folder, and how they continue each other."""

    def __init__(self, group: Sequence[Capture], later: Sequence[Capture]) -> None:
        begins = [begin for capture in later if (begin := _begin(capture)) is not None and begin.connections]
        self._begins = sorted(begins, key=lambda begin: begin.first_ns)
        wanted = np.array([side for begin in begins for sides in begin.connections for side in sides], np.int64)
        ends = [_end(capture, wanted) for capture in (group if begins else ())]
        self._ends = sorted((end for end in ends if end is not None), key=_first_ns)
        self._spans = {id(end.capture): end.span for end in self._ends}
        self._by_side: dict[int, list[_End]] = defaultdict(list)
        for end in self._ends:
            for side in end.next_number:
                self._by_side[side].append(end)

    def links(self) -> Iterator[tuple[Capture, Capture]]:
        """Captures that continue an earlier capture, with it; the latest come first."""
        pairs: list[tuple[Capture, Capture]] = []
        continued_ids: set[int] = set()
        for begin in self._begins:
            ends = [end for end in self._fitting(begin) if id(end.capture) not in continued_ids]
            if exact := [end for end in ends if any(map(end.has_before, begin.connections))]:
                earlier = max(exact, key=_last_ns).capture
                continued_ids.add(id(earlier))
                pairs.append((begin.capture, earlier))
            elif ends:
                _doubt(begin, max(ends, key=_last_ns))
        yield from reversed(pairs)

    def _fitting(self, begin: _Begin) -> list[_End]:
        """The captures that share a connection and end where this capture begins, by their times."""
        own_span = self._spans.get(id(begin.capture))
        near: dict[int, _End] = {}
        for side in chain.from_iterable(begin.connections) if own_span is not None else ():
            ends = self._by_side.get(side, [])
            count = bisect_left(ends, begin.first_ns, key=_first_ns)
            near |= {id(end): end for end in ends[max(count - MAX_CANDIDATES, 0) : count]}
        return [
            end
            for end in near.values()
            if end.capture is not begin.capture and own_span is not None and _follows(end.span, own_span)
        ]


def _first_ns(end: _End) -> int:
    return end.span[0]


def _last_ns(end: _End) -> int:
    return end.span[1]


def _follows(earlier: TimeSpan, later: TimeSpan) -> bool:
    """Whether a capture begins where another one ends, by their times."""
    return earlier[0] <= later[0] and (earlier[1] <= later[0] or is_border(earlier, later))


def _doubt(begin: _Begin, end: _End) -> None:
    firsts = chain.from_iterable(connection.items() for connection in begin.connections)
    missing = [(number - end.next_number[side]) % 2**32 for side, number in firsts if side in end.next_number]
    name = begin.capture.files[0]
    if 0 < min(missing) < MAX_MISSING_BYTES:
        text = f"{min(missing):,} bytes after {end.capture.files[-1]} ends; --one reads them as one recording"
        begin.capture.doubts.append(f"{name}: a connection goes on {text}")


def _begin(capture: Capture) -> _Begin | None:
    """The begin of a capture; None without packets, or if it cannot be read."""
    with suppress(CaptureError, OSError):
        source = capture.source(0)
        try:
            windows = [*WindowReader("", 0, source, until=END_BYTES).windows()]
        finally:
            source.close()
        if windows and len((segments := _segments(windows)).seq):
            return _Begin(capture, int(windows[0].ts_ns[0]), _first_numbers(segments))
    return None


def _segments(windows: Sequence[Window]) -> Segments:
    dissector = Dissector()
    return Segments.joined([dissector.segments(window) for window in windows])


def _sides(segments: Segments) -> Int64Array:
    """A hash of the side of each segment."""
    source, target = endpoint_pairs(segments)
    return (source.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + target.view(np.uint64)).view(np.int64)


def _first_numbers(segments: Segments) -> list[dict[int, int]]:
    """By connection whose first packet is not a SYN: the first sequence number of each side."""
    keys, first_rows = np.unique(segments.key, return_index=True)
    numbers: dict[int, dict[int, int]] = {key: {} for key in keys[segments.flags[first_rows] & SYN == 0].tolist()}
    sides, rows = np.unique(_sides(segments), return_index=True)
    for key, side, number in zip(segments.key[rows].tolist(), sides.tolist(), segments.seq[rows].tolist(), strict=True):
        if key in numbers:
            numbers[key][side] = number
    return [*numbers.values()]


def _end(capture: Capture, wanted: Int64Array) -> _End | None:
    """The end of a capture, of some sides; None without packets, or if it cannot be read."""
    with suppress(CaptureError, OSError):
        span = capture.span()
        index = len(capture.inputs) - 1
        source = capture.source(index)
        try:
            windows = boundaries.last_windows(capture.files[index], source, END_BYTES)
        finally:
            source.close()
        if span is not None and windows:
            segments = _segments(windows)
            sides, length = _sides(segments), segments.wire_length + (segments.flags & (SYN | FIN) != 0)
            rows = np.flatnonzero(np.isin(sides, wanted))
            ends = ((segments.seq + length) % 2**32)[rows]
            pairs = [*zip(sides[rows].tolist(), ends.tolist(), strict=True)]
            filled = rows[length[rows] > 0]
            begins = {*zip(sides[filled].tolist(), segments.seq[filled].tolist(), strict=True)}
            return _End(capture, span, {*pairs} - begins, dict(pairs))
    return None
