"""A capture's packets distributed to its shares, so that each share reads its own packets and no others.

Shares that all read the whole capture cost a pass over it each, and from a network a download each. So where they are
many, tasks first read the capture, each a range of the bytes of a file: they look at the headers and write the packets
into a file of the staging directory, share by share. A share's task then reads its extents of all of these files, as a
`ShareCapture`. IP fragments say too little of their connection: every share reads them and joins them as the whole
capture would. The same goes for packets between servers of two shares, of which both have to know.

Where a range begins in the middle of a file, its first record is found by a search that may err
(`mqpcap.capture.entries`), its packets are counted from 1, and of pcapng the interfaces are those of the file's
beginning. So a range counts only if the one before it, which is right, ended just there; if not it is read again from
there. After ROUNDS the rest of a file is read as one range.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.capture import Capture, Entry, Reader, Window, entries
from mqpcap.decode.columns import span_array
from mqpcap.spark.partitions import Cut
from mqpcap.spark.storage import Storage
from mqpcap.tcp.headers import connections_of

RANGE_BYTES = 64 << 20
"""A task reads about so much of a file, or small files of so much together; and so much it holds before it writes."""
WINDOW_BYTES = 8 << 20
"""A share gets its packets in windows of so much; unlike in the capture's, all in them is its own."""
WINDOW_PACKETS = 1 << 15
"""Packets in such a window: with many short connections more cost memory and CPU (measured)."""
ROUNDS = 3
"""Ranges are read so often, then the rest of their file is one."""

_COLUMNS: tuple[tuple[str, type[np.integer]], ...] = (
    ("number", np.int64), ("ts_ns", np.int64), ("caplen", np.uint32), ("wirelen", np.uint32), ("link_type", np.int32),
)  # fmt: skip
_ROW_BYTES = sum(np.dtype(kind).itemsize for _, kind in _COLUMNS)


@dataclass(frozen=True, slots=True)
class FileRange:
    """The records of a file, by its number in the capture, that begin at or behind a byte and before another.

    entry: the border of the first, where it is known; the beginning of a file needs none.
    """

    file: int
    begin: int
    until: int | None = None
    entry: Entry | None = None


class Extent(NamedTuple):
    """The packets of a range for one share, or those for all of them, and where they lie in a file."""

    packet_count: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What became of a range.

    entry: where it began, None if no border was found. exit: where reading ended. number_count: by how much it moves
    the numbers of packets behind it. first_ts_ns: of its first packet. notes: of the file, which ended there. extents:
    in the file ``name``, each time a part for each share and, last, one for all.
    """

    file_range: FileRange
    entry: Entry | None
    exit: Entry
    name: str = ""
    number_count: int = 0
    first_ts_ns: int | None = None
    notes: tuple[str, ...] = ()
    extents: tuple[tuple[Extent, ...], ...] = ()

    def follows(self, exit: Entry) -> bool:
        """Whether it began where the range before it ended, and knew what it had to of the bytes before."""
        if self.entry is None or replace(self.entry, last_ts_ns=exit.last_ts_ns) != exit:
            return False
        # A packet without a time has that of the packet before it.
        return self.entry == exit or self.first_ts_ns != self.entry.last_ts_ns

    @property
    def ends_file(self) -> bool:
        """Whether the file has nothing behind it: it is cut short or damaged, or ended before the range did."""
        return bool(self.notes) or self.file_range.until is None or self.exit.position < self.file_range.until


def range_result(found: dict[str, Any]) -> RangeResult:
    """A `RangeResult` out of its JSON."""
    file_range, exit = found["file_range"], _entry(found["exit"])
    assert exit is not None
    return RangeResult(
        FileRange(**{**file_range, "entry": _entry(file_range["entry"])}),
        _entry(found["entry"]),
        exit,
        found["name"],
        found["number_count"],
        found["first_ts_ns"],
        tuple(found["notes"]),
        tuple(tuple(Extent(*one) for one in extents) for extents in found["extents"]),
    )


def _entry(found: dict[str, Any] | None) -> Entry | None:
    return None if found is None else Entry(**{**found, "interfaces": tuple(found["interfaces"])})


# A task


def distribute(
    capture: Capture, wanted: Sequence[FileRange], cut: Cut, storage: Storage, name: str
) -> list[RangeResult]:
    """Reads ranges and writes their packets, share by share, into one file; raises CaptureError if one is gone."""
    with storage.output(name) as out:
        return [_distributed(capture, file_range, cut, out, name) for file_range in wanted]


def _distributed(capture: Capture, file_range: FileRange, cut: Cut, out: pa.NativeFile, name: str) -> RangeResult:
    file_name = capture.files[file_range.file]
    source = capture.source(file_range.file)
    try:
        entry = file_range.entry
        if entry is None and file_range.begin:
            entry = entries.entry(file_name, source, file_range.begin)
            if entry is None or (file_range.until is not None and entry.position >= file_range.until):
                return RangeResult(file_range, entry, entry or Entry(file_range.begin))
        reader = Reader(file_name, file_range.file, source, entry, file_range.until)
        buffers = _ShareBuffers(cut, out)
        for window in reader.windows():
            buffers.add(window)
        buffers.write()
    finally:
        source.close()
    notes = tuple(str(note) for note in reader.notes)
    extents = tuple(buffers.extents)
    return RangeResult(file_range, entry, reader.exit, name, reader.number_count, buffers.first_ts_ns, notes, extents)


class _ShareBuffers:
    """Packets of a range share by share, held until they are many."""

    def __init__(self, cut: Cut, out: pa.NativeFile) -> None:
        self.extents: list[tuple[Extent, ...]] = []
        self.first_ts_ns: int | None = None
        self._cut = cut
        self._out = out
        self._held: list[_Sorted] = []
        self._held_bytes = 0

    def add(self, window: Window) -> None:
        """Deals out the packets of a window."""
        if self.first_ts_ns is None:
            self.first_ts_ns = int(window.ts_ns[0])
        buffer_ = _sorted(window, self._cut)
        self._held.append(buffer_)
        self._held_bytes += buffer_.size_bytes
        if self._held_bytes >= RANGE_BYTES:
            self.write()

    def write(self) -> None:
        """Writes what is held, share by share: each one's columns, then its packets."""
        if self._held_bytes:
            self.extents.append(tuple(self._part(share) for share in range(self._cut.share_count + 1)))
        self._held.clear()
        self._held_bytes = 0

    def _part(self, share: int) -> Extent:
        offset = self._out.tell()
        rows = [slice(buffer_.first[share], buffer_.first[share + 1]) for buffer_ in self._held]
        for name, _ in _COLUMNS:
            for buffer_, mine in zip(self._held, rows, strict=True):
                self._out.write(buffer_.columns[name][mine].data)
        for buffer_, mine in zip(self._held, rows, strict=True):
            self._out.write(buffer_.packets[buffer_.place[mine.start] : buffer_.place[mine.stop]].data)
        return Extent(sum(int(mine.stop - mine.start) for mine in rows), offset, self._out.tell() - offset)


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Packets of a window: those of share k are the rows first[k] to first[k + 1], a row's bytes begin at its place."""

    columns: dict[str, NDArray[np.integer]]
    packets: NDArray[np.uint8]
    place: NDArray[np.int64]
    first: NDArray[np.int64]

    @property
    def size_bytes(self) -> int:
        """What it takes in a file."""
        return len(self.packets) + _ROW_BYTES * (len(self.place) - 1)


def _sorted(window: Window, cut: Cut) -> _Sorted:
    """TCP packets by their shares; those that all shares read come last."""
    rows, ends, fragments = connections_of(window)
    shares, torn = cut.shares(ends)
    share = np.concatenate([np.where(torn, cut.share_count, shares), np.full(len(fragments), cut.share_count)])
    rows = np.concatenate([rows, fragments])
    order = np.lexsort((rows, share))
    rows = rows[order]
    caplen = window.caplen[rows]
    place = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(caplen, out=place[1:])
    packets = np.empty(0, np.uint8)
    if place[-1]:
        one_each = np.arange(len(rows), dtype=np.int32)
        gathered = span_array(window.buffer, len(rows), one_each, window.offset[rows], caplen, pa.binary())
        packets = np.frombuffer(gathered.buffers()[2], np.uint8)
    columns = {name: getattr(window, name)[rows].astype(kind) for name, kind in _COLUMNS}
    return _Sorted(columns, packets, place, np.searchsorted(share[order], np.arange(cut.share_count + 2)))


# The driver


def ranges(capture: Capture) -> list[tuple[FileRange, ...]]:
    """The files of a capture in ranges, those of one task together; raises CaptureError if a file is gone.

    A file that cannot be entered in the middle is one range, and a task of its own.
    """
    found: list[tuple[FileRange, ...]] = []
    pack: list[FileRange] = []
    filled = 0
    for file in range(len(capture.files)):
        source = capture.source(file)
        size_bytes = RANGE_BYTES if source.size_bytes is None else source.size_bytes
        count = 1 if source.size_bytes is None else max(1, round(size_bytes / RANGE_BYTES))
        source.close()
        borders = [size_bytes * i // count for i in range(count)]
        for begin, until in zip(borders, [*borders[1:], None], strict=True):
            length = (size_bytes if until is None else until) - begin
            if pack and filled + length > RANGE_BYTES:
                found.append(tuple(pack))
                pack, filled = [], 0
            pack.append(FileRange(file, begin, until))
            filled += length
    return [*found, tuple(pack)]


class Distribution:
    """The ranges of one capture on their way to be right; for the driver."""

    def __init__(self, capture: Capture, cut: Cut) -> None:
        self.capture = capture
        self.cut = cut
        self._wanted = ranges(capture)
        self._ranges = [file_range for pack in self._wanted for file_range in pack]
        self._made: dict[tuple[int, int], RangeResult] = {}
        self._right: list[tuple[RangeResult, int]] = []
        self._round = 0

    def wanted(self) -> list[tuple[FileRange, ...]]:
        """The ranges to be read now, task by task; none once all are right."""
        return self._wanted

    def take(self, made: Iterable[RangeResult]) -> None:
        """What became of the ranges that were wanted."""
        self._round += 1
        self._made.update({(one.file_range.file, one.file_range.begin): one for one in made})
        self._right.clear()
        again = [
            file_range
            for _, of_file in groupby(self._ranges, lambda s: s.file)
            for file_range in self._check([*of_file])
        ]
        self._wanted = [(file_range,) for file_range in again]
        if self._round >= ROUNDS:
            ends = {file_range.file: file_range.begin for file_range in again}
            self._ranges = [s for s in self._ranges if s.begin < ends.get(s.file, s.begin + 1)] + again
            self._ranges.sort(key=lambda s: (s.file, s.begin))

    def _check(self, ranges: list[FileRange]) -> Iterator[FileRange]:
        """Takes the ranges of a file that are right, and gives those that are to be read again."""
        exit: Entry | None = None
        number = 0
        for at, file_range in enumerate(ranges):
            if exit is not None and file_range.until is not None and exit.position >= file_range.until:
                continue  # a record reaches over it
            one = self._made[file_range.file, file_range.begin]
            if exit is not None and not one.follows(exit):
                yield from self._again(ranges[at:], exit)
                return
            self._right.append((one, number))
            number += one.number_count
            if one.ends_file:
                return
            untimed = exit is not None and one.first_ts_ns is None
            exit = replace(one.exit, last_ts_ns=exit.last_ts_ns) if exit is not None and untimed else one.exit

    def _again(self, ranges: list[FileRange], exit: Entry) -> Iterator[FileRange]:
        if self._round >= ROUNDS:
            yield FileRange(ranges[0].file, ranges[0].begin, None, exit)
            return
        yield replace(ranges[0], entry=exit)
        for file_range in ranges[1:]:
            entry = self._made[file_range.file, file_range.begin].entry
            # Interfaces that were described on the way are those of what follows, too.
            if entry is not None and entry != (known := replace(exit, position=entry.position, last_ts_ns=0)):
                yield replace(file_range, entry=known)

    def share_capture(self, share: int, storage: Storage, name: str) -> "ShareCapture":
        """The packets of a share, which a file of that name tells."""
        extents = [
            ShareExtent(one.file_range.file, one.name, number, extents[share], extents[-1])
            for one, number in self._right
            for extents in one.extents
            if extents[share].packet_count or extents[-1].packet_count
        ]
        storage.write(name, pickle.dumps(extents))
        return ShareCapture(self.capture._files, storage=storage, name=name)


# A share


class ShareExtent(NamedTuple):
    """Packets of one file of a capture for one share: in which file they lie, its own part and that for all.

    number: of packets in the capture's file before the range that they are of.
    """

    file: int
    name: str
    number: int
    own: Extent
    common: Extent

    @property
    def size_bytes(self) -> int:
        """Bytes to read."""
        return self.own.length + self.common.length


@dataclass(slots=True)
class ShareCapture(Capture):
    """The packets of a capture that are those of one share, and those that every share reads.

    Numbers, times and order are those of the capture. notes and facts are not filled.
    """

    storage: Storage = field(default_factory=lambda: Storage(""))
    name: str = ""

    def windows(self, times: int = 1) -> Iterator[Window]:
        """Its packets, a window at a time, as they were distributed: ``times`` changes nothing."""
        # Written by the driver of this job into a directory that only its user can write.
        extents: list[ShareExtent] = pickle.loads(self.storage.read(self.name) or b"")
        for group in _groups(extents):
            with ExitStack() as opened:
                files = {n: opened.enter_context(self.storage.input(n)) for n in dict.fromkeys(c.name for c in group)}
                yield from _SharePackets(group, files).windows()


def _groups(extents: Sequence[ShareExtent]) -> Iterator[list[ShareExtent]]:
    """Cards of one file that make a window together; a large one is alone."""
    group: list[ShareExtent] = []
    filled = 0
    for one in extents:
        if group and (group[-1].file != one.file or filled + one.size_bytes > WINDOW_BYTES):
            yield group
            group, filled = [], 0
        group.append(one)
        filled += one.size_bytes
    if group:
        yield group


class _SharePackets:
    """The packets of some extents, in order; their bytes are read a window at a time."""

    def __init__(self, extents: Sequence[ShareExtent], files: dict[str, pa.NativeFile]) -> None:
        self._file = extents[0].file
        self._files: list[pa.NativeFile] = []
        rows: dict[str, list[NDArray[np.integer]]] = {name: [] for name, _ in _COLUMNS}
        place: list[NDArray[np.int64]] = []
        for one in extents:
            for part in (one.own, one.common):
                for name, values in _columns(files[one.name], part).items():
                    rows[name].append(values + one.number if name == "number" else values)
                length = rows["caplen"][-1].astype(np.int64)
                place.append(part.offset + _ROW_BYTES * part.packet_count + np.cumsum(length) - length)
                self._files.append(files[one.name])
        order = np.argsort(np.concatenate(rows["number"]), kind="stable")
        self._rows = {name: np.concatenate(values)[order].astype(np.int64) for name, values in rows.items()}
        self._place = np.concatenate(place)[order]
        self._part = np.repeat(np.arange(len(place)), [len(each) for each in place])[order]

    def windows(self) -> Iterator[Window]:
        """The packets."""
        filled = np.cumsum(self._rows["caplen"]) // WINDOW_BYTES
        counted = np.arange(len(filled)) // WINDOW_PACKETS
        borders = np.flatnonzero((np.diff(filled, prepend=-1) != 0) | (np.diff(counted, prepend=-1) != 0)).tolist()
        for one, two in zip(borders, [*borders[1:], len(filled)], strict=True):
            rows = {name: values[one:two] for name, values in self._rows.items()}
            buffer, offset = self._bytes(slice(one, two))
            yield Window(
                buffer, offset, rows["caplen"], rows["wirelen"], rows["ts_ns"], rows["link_type"].astype(np.int32),
                rows["number"], self._file,
            )  # fmt: skip

    def _bytes(self, rows: slice) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The packets' bytes, and where each begins: those of a part lie behind one another."""
        part, place, caplen = self._part[rows], self._place[rows], self._rows["caplen"][rows]
        buffer, offset = np.empty(int(caplen.sum()), np.uint8), np.empty(len(part), np.int64)
        filled = 0
        for one in np.unique(part).tolist():
            mine = np.flatnonzero(part == one)
            begin, length = int(place[mine[0]]), int(caplen[mine].sum())
            _read(self._files[one], begin, buffer[filled : filled + length])
            offset[mine] = filled + place[mine] - begin
            filled += length
        return buffer, offset


def _columns(file: pa.NativeFile, part: Extent) -> dict[str, NDArray[np.integer]]:
    head = np.empty(_ROW_BYTES * part.packet_count, np.uint8)
    _read(file, part.offset, head)
    found: dict[str, NDArray[np.integer]] = {}
    at = 0
    for name, kind in _COLUMNS:
        found[name] = np.frombuffer(head, kind, part.packet_count, at)
        at += found[name].nbytes
    return found


def _read(file: pa.NativeFile, offset: int, into: NDArray[np.uint8]) -> None:
    if not len(into):
        return
    file.seek(offset)
    count = file.readinto(into.data)
    if count < len(into):
        raise OSError(f"a file of distributed packets ends after {offset + count} bytes, {len(into) - count} too few")
