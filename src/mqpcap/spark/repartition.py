"""A capture's packets dealt out to its shares, so that each share reads its own packets and no others.

Shares that all read the whole capture cost a pass over it each, and from a network a download each. So where they are
many, tasks enter the files first, each a span of bytes in the middle of one, look at the headers and write the packets
of their span into a file of the staging directory, each share's behind one another. A share's task then reads its part
of all of these files: its `Hand`, a capture like any other. IP fragments say too little of their connection to be dealt
out; they lie in a part of their own that every share reads, and each share joins them as the whole capture would. So do
packets between servers of two shares, of which both have to know.

Where a span begins in the middle, its first record is found by a search that may err (`mqpcap.capture.entries`), its
packets are counted from 1, and of pcapng the interfaces are those of the file's beginning. So a span counts only if the
one before it, which is right, came out just there and so; if not it is read again from there. After ROUNDS the rest of
a file is read as one span.
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
from mqpcap.spark.storage import Place
from mqpcap.spark.partitions import Cut
from mqpcap.tcp.headers import connections_of

SPAN_BYTES = 64 << 20
"""A task reads about so much of a file, or small files of so much together; and so much it holds before it writes."""
WINDOW_BYTES = 8 << 20
"""A share gets its packets in windows of so much; unlike in the capture's, all in them is its own."""
WINDOW_PACKETS = 1 << 15
"""Packets in such a window: with many short connections more cost memory and CPU (measured)."""
ROUNDS = 3
"""Spans are read so often, then the rest of their file is one."""

_COLUMNS: tuple[tuple[str, type[np.integer]], ...] = (
    ("number", np.int64), ("ts_ns", np.int64), ("caplen", np.uint32), ("wirelen", np.uint32), ("link_type", np.int32),
)  # fmt: skip
_ROW_BYTES = sum(np.dtype(kind).itemsize for _, kind in _COLUMNS)


@dataclass(frozen=True, slots=True)
class Span:
    """The records of a file, by its number in the capture, that begin at or behind a byte and before another.

    entry: the border of the first, where it is known; the beginning of a file needs none.
    """

    file: int
    begin: int
    until: int | None = None
    entry: Entry | None = None


class Part(NamedTuple):
    """The packets of a span for one share, or those for all of them, and where they lie in a file."""

    packet_count: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Dealt:
    """What became of a span.

    entry: where it began, None if no border was found. exit: where reading ended. number_count: by how much it moves
    the numbers of packets behind it. first_ts_ns: of its first packet. notes: of the file, which ended there. parts:
    in the file ``name``, each time a part for each share and, last, one for all.
    """

    span: Span
    entry: Entry | None
    exit: Entry
    name: str = ""
    number_count: int = 0
    first_ts_ns: int | None = None
    notes: tuple[str, ...] = ()
    parts: tuple[tuple[Part, ...], ...] = ()

    def follows(self, exit: Entry) -> bool:
        """Whether it began where the span before it ended, and knew what it had to of the bytes before."""
        if self.entry is None or replace(self.entry, last_ts_ns=exit.last_ts_ns) != exit:
            return False
        # A packet without a time has that of the packet before it.
        return self.entry == exit or self.first_ts_ns != self.entry.last_ts_ns

    @property
    def ends_file(self) -> bool:
        """Whether the file has nothing behind it: it is cut short or damaged, or ended before the span did."""
        return bool(self.notes) or self.span.until is None or self.exit.position < self.span.until


def dealt(found: dict[str, Any]) -> Dealt:
    """A `Dealt` out of its JSON."""
    span = Span(**{**found["span"], "entry": _entry(found["span"]["entry"])})
    exit = _entry(found["exit"])
    assert exit is not None
    parts = tuple(tuple(Part(*part) for part in parts) for parts in found["parts"])
    return Dealt(**{
        **found, "span": span, "entry": _entry(found["entry"]), "exit": exit, "notes": tuple(found["notes"]),
        "parts": parts,
    })  # fmt: skip


def _entry(found: dict[str, Any] | None) -> Entry | None:
    return None if found is None else Entry(**{**found, "interfaces": tuple(found["interfaces"])})


# A task


def deal(capture: Capture, wanted: Sequence[Span], cut: Cut, place: Place, name: str) -> list[Dealt]:
    """Reads spans and writes their packets, share by share, into one file; raises CaptureError if one is gone."""
    with place.output(name) as out:
        return [_dealt(capture, span, cut, out, name) for span in wanted]


def _dealt(capture: Capture, span: Span, cut: Cut, out: pa.NativeFile, name: str) -> Dealt:
    file_name = capture.files[span.file]
    source = capture.source(span.file)
    try:
        entry = span.entry
        if entry is None and span.begin:
            entry = entries.entry(file_name, source, span.begin)
            if entry is None or (span.until is not None and entry.position >= span.until):
                return Dealt(span, entry, entry or Entry(span.begin))
        reader = Reader(file_name, span.file, source, entry, span.until)
        piles = _Piles(cut, out)
        for window in reader.windows():
            piles.add(window)
        piles.write()
    finally:
        source.close()
    notes = tuple(str(note) for note in reader.notes)
    parts = tuple(piles.parts)
    return Dealt(span, entry, reader.exit, name, reader.number_count, piles.first_ts_ns, notes, parts)


class _Piles:
    """Packets of a span share by share, held until they are many."""

    def __init__(self, cut: Cut, out: pa.NativeFile) -> None:
        self.parts: list[tuple[Part, ...]] = []
        self.first_ts_ns: int | None = None
        self._cut = cut
        self._out = out
        self._held: list[_Sorted] = []
        self._held_bytes = 0

    def add(self, window: Window) -> None:
        """Deals out the packets of a window."""
        if self.first_ts_ns is None:
            self.first_ts_ns = int(window.ts_ns[0])
        pile = _sorted(window, self._cut)
        self._held.append(pile)
        self._held_bytes += pile.size_bytes
        if self._held_bytes >= SPAN_BYTES:
            self.write()

    def write(self) -> None:
        """Writes what is held, share by share: each one's columns, then its packets."""
        if self._held_bytes:
            self.parts.append(tuple(self._part(share) for share in range(self._cut.share_count + 1)))
        self._held.clear()
        self._held_bytes = 0

    def _part(self, share: int) -> Part:
        offset = self._out.tell()
        rows = [slice(pile.first[share], pile.first[share + 1]) for pile in self._held]
        for name, _ in _COLUMNS:
            for pile, mine in zip(self._held, rows, strict=True):
                self._out.write(pile.columns[name][mine].data)
        for pile, mine in zip(self._held, rows, strict=True):
            self._out.write(pile.packets[pile.place[mine.start] : pile.place[mine.stop]].data)
        return Part(sum(int(mine.stop - mine.start) for mine in rows), offset, self._out.tell() - offset)


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


def spans(capture: Capture) -> list[tuple[Span, ...]]:
    """The files of a capture in spans, those of one task together; raises CaptureError if a file is gone.

    A file that cannot be entered in the middle is one span, and a task of its own.
    """
    found: list[tuple[Span, ...]] = []
    pack: list[Span] = []
    filled = 0
    for file in range(len(capture.files)):
        source = capture.source(file)
        size_bytes = SPAN_BYTES if source.size_bytes is None else source.size_bytes
        count = 1 if source.size_bytes is None else max(1, round(size_bytes / SPAN_BYTES))
        source.close()
        borders = [size_bytes * i // count for i in range(count)]
        for begin, until in zip(borders, [*borders[1:], None], strict=True):
            length = (size_bytes if until is None else until) - begin
            if pack and filled + length > SPAN_BYTES:
                found.append(tuple(pack))
                pack, filled = [], 0
            pack.append(Span(file, begin, until))
            filled += length
    return [*found, tuple(pack)]


class Dealing:
    """The spans of one capture on their way to be right; for the driver."""

    def __init__(self, capture: Capture, cut: Cut) -> None:
        self.capture = capture
        self.cut = cut
        self._wanted = spans(capture)
        self._spans = [span for pack in self._wanted for span in pack]
        self._made: dict[tuple[int, int], Dealt] = {}
        self._right: list[tuple[Dealt, int]] = []
        self._round = 0

    def wanted(self) -> list[tuple[Span, ...]]:
        """The spans to be read now, task by task; none once all are right."""
        return self._wanted

    def take(self, made: Iterable[Dealt]) -> None:
        """What became of the spans that were wanted."""
        self._round += 1
        self._made.update({(one.span.file, one.span.begin): one for one in made})
        self._right.clear()
        again = [span for _, of_file in groupby(self._spans, lambda s: s.file) for span in self._check([*of_file])]
        self._wanted = [(span,) for span in again]
        if self._round >= ROUNDS:
            ends = {span.file: span.begin for span in again}
            self._spans = [s for s in self._spans if s.begin < ends.get(s.file, s.begin + 1)] + again
            self._spans.sort(key=lambda s: (s.file, s.begin))

    def _check(self, spans: list[Span]) -> Iterator[Span]:
        """Takes the spans of a file that are right, and gives those that are to be read again."""
        exit: Entry | None = None
        number = 0
        for at, span in enumerate(spans):
            if exit is not None and span.until is not None and exit.position >= span.until:
                continue  # a record reaches over it
            one = self._made[span.file, span.begin]
            if exit is not None and not one.follows(exit):
                yield from self._again(spans[at:], exit)
                return
            self._right.append((one, number))
            number += one.number_count
            if one.ends_file:
                return
            untimed = exit is not None and one.first_ts_ns is None
            exit = replace(one.exit, last_ts_ns=exit.last_ts_ns) if exit is not None and untimed else one.exit

    def _again(self, spans: list[Span], exit: Entry) -> Iterator[Span]:
        if self._round >= ROUNDS:
            yield Span(spans[0].file, spans[0].begin, None, exit)
            return
        yield replace(spans[0], entry=exit)
        for span in spans[1:]:
            entry = self._made[span.file, span.begin].entry
            # Interfaces that were described on the way are those of what follows, too.
            if entry is not None and entry != (known := replace(exit, position=entry.position, last_ts_ns=0)):
                yield replace(span, entry=known)

    def hand(self, share: int, place: Place, name: str) -> "Hand":
        """The packets of a share, which a file of that name tells."""
        cards = [
            Card(one.span.file, one.name, number, parts[share], parts[-1])
            for one, number in self._right
            for parts in one.parts
            if parts[share].packet_count or parts[-1].packet_count
        ]
        place.write(name, pickle.dumps(cards))
        return Hand(self.capture._files, place=place, name=name)


# A share


class Card(NamedTuple):
    """Packets of one file of a capture for one share: in which file they lie, its own part and that for all.

    number: of packets in the capture's file before the span that they are of.
    """

    file: int
    name: str
    number: int
    own: Part
    common: Part

    @property
    def size_bytes(self) -> int:
        """Bytes to read."""
        return self.own.length + self.common.length


@dataclass(slots=True)
class Hand(Capture):
    """The packets of a capture that were dealt to one share, and those that every share reads.

    Numbers, times and order are those of the capture. notes and facts are not filled.
    """

    place: Place = field(default_factory=lambda: Place(""))
    name: str = ""

    def windows(self, times: int = 1) -> Iterator[Window]:
        """Its packets, a window at a time, as they were dealt out: ``times`` changes nothing."""
        # Written by the driver of this job into a directory that only its user can write.
        cards: list[Card] = pickle.loads(self.place.read(self.name) or b"")
        for group in _groups(cards):
            with ExitStack() as opened:
                files = {n: opened.enter_context(self.place.input(n)) for n in dict.fromkeys(c.name for c in group)}
                yield from _Dealt(group, files).windows()


def _groups(cards: Sequence[Card]) -> Iterator[list[Card]]:
    """Cards of one file that make a window together; a large one is alone."""
    group: list[Card] = []
    filled = 0
    for card in cards:
        if group and (group[-1].file != card.file or filled + card.size_bytes > WINDOW_BYTES):
            yield group
            group, filled = [], 0
        group.append(card)
        filled += card.size_bytes
    if group:
        yield group


class _Dealt:
    """The packets of some cards, in order; their bytes are read a window at a time."""

    def __init__(self, cards: Sequence[Card], files: dict[str, pa.NativeFile]) -> None:
        self._file = cards[0].file
        self._files: list[pa.NativeFile] = []
        rows: dict[str, list[NDArray[np.integer]]] = {name: [] for name, _ in _COLUMNS}
        place: list[NDArray[np.int64]] = []
        for card in cards:
            for part in (card.own, card.common):
                for name, values in _columns(files[card.name], part).items():
                    rows[name].append(values + card.number if name == "number" else values)
                length = rows["caplen"][-1].astype(np.int64)
                place.append(part.offset + _ROW_BYTES * part.packet_count + np.cumsum(length) - length)
                self._files.append(files[card.name])
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


def _columns(file: pa.NativeFile, part: Part) -> dict[str, NDArray[np.integer]]:
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
        raise OSError(f"a file of dealt packets ends after {offset + count} bytes, {len(into) - count} too few")
