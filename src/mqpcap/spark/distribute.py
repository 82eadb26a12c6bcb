"""A capture's packets distributed to its shares, so that each share reads its own packets and no others.

Shares that all read the whole capture cost a pass over it each, and from a network a download each. So where they are
many, tasks first read the capture, each a range of the bytes of a file: they look at the headers and write the packets
into a file of the staging directory, share by share. A share's task then reads its batches of all of these files, as a
`ShareCapture`. IP fragments say too little of their connection: every share reads them and joins them as the whole
capture would.

Where a range begins in the middle of a file, its first record is found by a search that may err
(`mqpcap.capture.entries`), its packets are counted from 1, and of pcapng the interfaces are those of the file's
beginning. So a range counts only if the one before it, which is right, ended just there; if not, the rest of the file
is read as one range from there.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import whole
from mqpcap.capture import Capture, Entry, Window, WindowReader, entries
from mqpcap.decode.columns import span_array
from mqpcap.spark.partitions import SharePlan, packed
from mqpcap.spark.storage import Storage
from mqpcap.tcp.headers import connections_of, keys_of

RANGE_BYTES = 64 << 20
"""A task reads about so much of a file, or small files of so much together; and so much it holds before it writes."""
WINDOW_BYTES = 8 << 20
"""A share gets its packets in windows of so much; unlike in the capture's, all in them is its own."""
WINDOW_PACKETS = 1 << 15
"""Packets in such a window: with many short connections more cost memory and CPU (measured)."""

_NUMBERS = {"number": pa.int64(), "ts_ns": pa.int64(), "wirelen": pa.int64(), "link_type": pa.int32()}
_SCHEMA = pa.schema(_NUMBERS | {"packet": pa.binary()})
Batches = tuple[tuple[int, int], ...]
"""Number and bytes of a batch for each share and, last, of one for all."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """The records of a file, by its number in the capture, that begin at or behind a byte and before another.

    entry: the border of the first, where it is known; the beginning of a file needs none.
    """

    file: int
    begin: int
    until: int | None = None
    entry: Entry | None = None


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What became of a range.

    entry: where it began, None if no border was found. exit: where reading ended. number_count: by how much it moves
    the numbers of packets behind it. first_ts_ns: of its first packet. notes: of the file, which ended there. batches:
    those in the file ``name``.
    """

    file_range: FileRange
    entry: Entry | None
    exit: Entry
    name: str = ""
    number_count: int = 0
    first_ts_ns: int | None = None
    notes: tuple[str, ...] = ()
    batches: tuple[Batches, ...] = ()

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


# A task


def distribute(
    capture: Capture, wanted: Sequence[FileRange], cut: SharePlan, storage: Storage, name: str
) -> list[RangeResult]:
    """Reads ranges and writes their packets, share by share, into one file; raises CaptureError if one is gone."""
    with storage.output(name) as stream, pa.ipc.new_file(stream, _SCHEMA) as writer:
        return [_distributed(capture, file_range, cut, writer, name) for file_range in wanted]


def _distributed(
    capture: Capture, file_range: FileRange, cut: SharePlan, writer: pa.ipc.RecordBatchFileWriter, name: str
) -> RangeResult:
    file_name = capture.files[file_range.file]
    first_ts_ns = None
    written: list[Batches] = []
    held: list[list[pa.RecordBatch]] = []
    with closing(capture.source(file_range.file)) as source:
        entry = file_range.entry
        if entry is None and file_range.begin:
            entry = entries.entry(file_name, source, file_range.begin)
            if entry is None or (file_range.until is not None and entry.position >= file_range.until):
                return RangeResult(file_range, entry, entry or Entry(file_range.begin))
        reader = WindowReader(file_name, file_range.file, source, entry, file_range.until)
        for window in reader.windows():
            first_ts_ns = int(window.ts_ns[0]) if first_ts_ns is None else first_ts_ns
            held.append(_by_share(window, cut))
            if sum(batch.nbytes for batches in held for batch in batches) >= RANGE_BYTES:
                written.append(_write(held, writer))
                held.clear()
    if held:
        written.append(_write(held, writer))
    notes = tuple(map(str, reader.notes))
    return RangeResult(file_range, entry, reader.exit, name, reader.number_count, first_ts_ns, notes, tuple(written))


def _write(held: Sequence[Sequence[pa.RecordBatch]], writer: pa.ipc.RecordBatchFileWriter) -> Batches:
    """Write the packets of some windows, a batch for each share."""
    tables = [pa.Table.from_batches(batches, _SCHEMA).combine_chunks() for batches in zip(*held, strict=True)]
    first_batch = writer.stats.num_record_batches
    for table in tables:
        writer.write_batch((table.to_batches() or [pa.RecordBatch.from_pylist([], _SCHEMA)])[0])
    return tuple((first_batch + k, table.nbytes) for k, table in enumerate(tables))


def _by_share(window: Window, cut: SharePlan) -> list[pa.RecordBatch]:
    """TCP packets, a batch for each share; those that all shares read come last."""
    rows, ends, fragments = connections_of(window)
    share = np.concatenate([cut.shares(keys_of(ends)), np.full(len(fragments), cut.share_count)])
    rows = np.concatenate([rows, fragments])
    order = np.lexsort((rows, share))
    rows, first_row = rows[order], np.searchsorted(share[order], np.arange(cut.share_count + 2)).tolist()
    if not len(rows):
        return [pa.RecordBatch.from_pylist([], _SCHEMA)] * (cut.share_count + 1)
    each = np.arange(len(rows), dtype=np.int32)
    packets = span_array(window.buffer, len(rows), each, window.offset[rows], window.caplen[rows], pa.binary())
    columns = {name: getattr(window, name)[rows] for name in _NUMBERS}
    batch = pa.RecordBatch.from_pydict(columns | {"packet": packets}, _SCHEMA)
    return [batch.slice(start, end - start) for start, end in pairwise(first_row)]


# The driver


def ranges(capture: Capture) -> list[tuple[FileRange, ...]]:
    """The files of a capture in ranges, those of one task together; raises CaptureError if a file is gone.

    A file that cannot be entered in the middle is one range, and a task of its own.
    """
    sized_ranges: list[tuple[FileRange, int]] = []
    for file in range(len(capture.files)):
        with closing(capture.source(file)) as source:
            size_bytes = source.size_bytes
        count = 1 if size_bytes is None else max(1, round(size_bytes / RANGE_BYTES))
        size_bytes = RANGE_BYTES if size_bytes is None else size_bytes
        borders = [size_bytes * i // count for i in range(count)]
        for begin, until in zip(borders, [*borders[1:], None], strict=True):
            sized_ranges.append((FileRange(file, begin, until), (until or size_bytes) - begin))
    return [tuple(file_range for file_range, _ in pack) for pack in packed(sized_ranges, itemgetter(1), RANGE_BYTES)]


class Distribution:
    """The ranges of one capture on their way to be right; for the driver."""

    def __init__(self, capture: Capture, cut: SharePlan) -> None:
        self.capture, self.cut = capture, cut
        self.wanted = ranges(capture)
        """The ranges to be read now, task by task; none once all are right."""
        self._made: dict[tuple[int, int], RangeResult] = {}
        self._right: list[tuple[RangeResult, int]] = []

    def take(self, made: Iterable[RangeResult]) -> None:
        """What became of the ranges that were wanted."""
        self._made |= {(one.file_range.file, one.file_range.begin): one for one in made}
        self._right.clear()
        in_order = sorted(self._made.items())
        rest = [self._accept_valid([one for _, one in of_file]) for _, of_file in groupby(in_order, lambda item: item[0][0])]
        self.wanted = [(file_range,) for file_range in rest if file_range is not None]

    def _accept_valid(self, results: Sequence[RangeResult]) -> FileRange | None:
        """Takes the ranges of a file that are right; what begins at the first that is not, to be read again."""
        exit: Entry | None = None
        number = 0
        for result in results:
            file_range = result.file_range
            if exit is not None and file_range.until is not None and exit.position >= file_range.until:
                continue  # a record reaches over it
            if exit is not None and not result.follows(exit):
                return FileRange(file_range.file, file_range.begin, None, exit)
            self._right.append((result, number))
            number += result.number_count
            if result.ends_file:
                break
            is_untimed = exit is not None and result.first_ts_ns is None
            exit = replace(result.exit, last_ts_ns=exit.last_ts_ns) if exit is not None and is_untimed else result.exit
        return None

    def share_capture(self, share: int, storage: Storage) -> "ShareCapture":
        """The packets of a share."""
        return ShareCapture(self.capture._files, storage=storage, share=share, ranges=self._right)


# A share


class ShareBatches(NamedTuple):
    """Packets of one file of a capture for one share: where its own batch and that for all are in the file ``name``.

    number: of packets in the capture's file before the range that they are of.
    """

    file: int
    name: str
    number: int
    places: tuple[int, int]
    size_bytes: int


@dataclass(slots=True)
class ShareCapture(Capture):
    """The packets of a capture that are those of one share, and those that every share reads.

    ranges: what became of those that are right, each with the number of packets before it in its file. All shares have
    the same object, so that it travels once. Numbers, times and order are those of the capture. notes and facts are not
    filled.
    """

    storage: Storage = field(default_factory=lambda: Storage(""))
    share: int = 0
    ranges: Sequence[tuple[RangeResult, int]] = ()

    def windows(self) -> Iterator[Window]:
        """Its packets, a window at a time."""
        share_batches = (
            ShareBatches(result.file_range.file, result.name, number, (share_batch[0], common[0]), share_batch[1] + common[1])
            for result, number in self.ranges
            for share_batch, common in ((batches[self.share], batches[-1]) for batches in result.batches)
        )
        for number, of_file in groupby((result for result in share_batches if result.size_bytes), attrgetter("file")):
            for group in packed(of_file, attrgetter("size_bytes"), WINDOW_BYTES):
                tables = []
                for name, file_batches in groupby(group, attrgetter("name")):
                    with self.storage.input(name) as file, pa.ipc.open_file(file) as reader:
                        tables += [_numbered(reader.get_batch(i), x.number) for x in file_batches for i in x.places]
                yield from _windows(pa.concat_tables(tables), number)


def _numbered(batch: pa.RecordBatch, packets_before: int) -> pa.Table:
    """The packets, behind so many in their file."""
    return pa.Table.from_batches([batch]).set_column(0, "number", pc.add(batch["number"], packets_before))


def _windows(packets: pa.Table, file: int) -> Iterator[Window]:
    """The packets in order, in windows of a bounded size."""
    number = packets["number"].to_numpy()
    if (np.diff(number) < 0).any():
        packets = packets.take(pa.array(np.argsort(number, kind="stable")))
    caplen = pc.binary_length(packets["packet"]).to_numpy().astype(np.int64)
    filled, counted = np.cumsum(caplen) // WINDOW_BYTES, np.arange(len(caplen)) // WINDOW_PACKETS
    borders = np.flatnonzero((np.diff(filled, prepend=-1) != 0) | (np.diff(counted, prepend=-1) != 0)).tolist()
    for start, end in pairwise([*borders, len(caplen)]):
        window_packets = packets.slice(start, end - start).combine_chunks()
        column = whole(window_packets["packet"])
        offset = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: end - start].astype(np.int64)
        # Copies: what reads packets takes arrays that can be written to.
        buffer = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offset[0] :][: caplen[start:end].sum()].copy()
        columns = {name: window_packets[name].to_numpy().copy() for name in _NUMBERS}
        yield Window(buffer, offset - offset[0], caplen[start:end], file=file, **columns)
