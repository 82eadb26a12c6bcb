"""Distributes the packets of a capture to its shares, so that each share reads only its own packets.

If every share reads the whole capture, each share costs a pass over it, and over a network a download. For many shares,
tasks therefore read the capture first, each task a range of bytes of a file. They read the headers and write the
packets into a file of the staging directory, share by share. The task of a share then reads its batches in all of these
files, as a `ShareCapture`. An IP fragment does not show its connection, so every share reads all fragments.

The first record of a range in the middle of a file is found by a search that may be wrong (``capture.boundaries``).
Its packets are counted from 1, and its pcapng interfaces are those at the start of the file. A range is therefore valid
only if the valid range before it ended exactly at its start. Otherwise the file is read again from there, as one range.
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

from mqpcap.arrays import single_array
from mqpcap.capture import Capture, ResumePoint, Window, WindowReader, boundaries
from mqpcap.decode.columns import span_array
from mqpcap.spark.partitions import SharePlan, pack
from mqpcap.spark.storage import Storage
from mqpcap.tcp.headers import connections_of, keys_of

RANGE_BYTES = 64 << 20
"""A task reads about this much of a file or of several small files, and buffers this much before it writes."""
WINDOW_BYTES = 8 << 20
"""Windows of a share have this size; all packets in them belong to the share."""
WINDOW_PACKETS = 1 << 15
"""Packets per window of a share: with many short connections, more cost memory and CPU (measured)."""

_NUMBERS = {"packet_number": pa.int64(), "ts_ns": pa.int64(), "wirelen": pa.int64(), "link_type": pa.int32()}
_SCHEMA = pa.schema(_NUMBERS | {"packet": pa.binary()})
Batches = tuple[tuple[int, int], ...]
"""Number and size of a batch: for each share, and last for the packets that all shares read."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """The records of file number ``file`` of a capture that begin at byte ``begin`` or later and before ``until``.

    entry: where the first record begins, if known; not needed at the start of a file.
    """

    file: int
    begin: int
    until: int | None = None
    entry: ResumePoint | None = None


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The result of reading a range.

    * entry: where its first record begins, None if no record was found
    * exit: where reading ended
    * number_count: packets counted, which the packet numbers of later ranges add
    * first_ts_ns: time of its first packet
    * notes: notes on the file, if it ended in this range
    * batches: written to the file ``name``
    """

    file_range: FileRange
    entry: ResumePoint | None
    exit: ResumePoint
    name: str = ""
    number_count: int = 0
    first_ts_ns: int | None = None
    notes: tuple[str, ...] = ()
    batches: tuple[Batches, ...] = ()

    def follows(self, exit: ResumePoint) -> bool:
        """Whether it began where the previous range ended, with the state (interfaces, time) that was current there."""
        if self.entry is None or replace(self.entry, last_ts_ns=exit.last_ts_ns) != exit:
            return False
        # A packet without a time has that of the packet before it.
        return self.entry == exit or self.first_ts_ns != self.entry.last_ts_ns

    @property
    def ends_file(self) -> bool:
        """Whether the file ended in this range: it is cut short or damaged, or ended before the range did."""
        return bool(self.notes) or self.file_range.until is None or self.exit.position < self.file_range.until


# A task


def distribute(
    capture: Capture, pending: Sequence[FileRange], plan: SharePlan, storage: Storage, name: str
) -> list[RangeResult]:
    """Reads ranges and writes their packets by share to a file; raises CaptureError if a capture file is gone."""
    with storage.output(name) as stream, pa.ipc.new_file(stream, _SCHEMA) as writer:
        return [_distributed(capture, file_range, plan, writer, name) for file_range in pending]


def _distributed(
    capture: Capture, file_range: FileRange, plan: SharePlan, writer: pa.ipc.RecordBatchFileWriter, name: str
) -> RangeResult:
    file_name = capture.files[file_range.file]
    first_ts_ns = None
    written: list[Batches] = []
    buffered: list[list[pa.RecordBatch]] = []
    with closing(capture.source(file_range.file)) as source:
        entry = file_range.entry
        if entry is None and file_range.begin:
            entry = boundaries.find_boundary(file_name, source, file_range.begin)
            if entry is None or (file_range.until is not None and entry.position >= file_range.until):
                return RangeResult(file_range, entry, entry or ResumePoint(file_range.begin))
        reader = WindowReader(file_name, file_range.file, source, entry, file_range.until)
        for window in reader.windows():
            first_ts_ns = int(window.ts_ns[0]) if first_ts_ns is None else first_ts_ns
            buffered.append(_by_share(window, plan))
            if sum(batch.nbytes for batches in buffered for batch in batches) >= RANGE_BYTES:
                written.append(_write(buffered, writer))
                buffered.clear()
    if buffered:
        written.append(_write(buffered, writer))
    notes = tuple(map(str, reader.notes))
    return RangeResult(
        file_range, entry, reader.end_point, name, reader.number_count, first_ts_ns, notes, tuple(written)
    )


def _write(buffered: Sequence[Sequence[pa.RecordBatch]], writer: pa.ipc.RecordBatchFileWriter) -> Batches:
    """Write the packets of some windows, a batch for each share."""
    tables = [pa.Table.from_batches(batches, _SCHEMA).combine_chunks() for batches in zip(*buffered, strict=True)]
    first_batch = writer.stats.num_record_batches
    for table in tables:
        writer.write_batch((table.to_batches() or [pa.RecordBatch.from_pylist([], _SCHEMA)])[0])
    return tuple((first_batch + k, table.nbytes) for k, table in enumerate(tables))


def _by_share(window: Window, plan: SharePlan) -> list[pa.RecordBatch]:
    """The TCP packets of a window, a batch for each share; the last batch has the packets that all shares read."""
    rows, ends, fragments = connections_of(window)
    share = np.concatenate([plan.shares(keys_of(ends)), np.full(len(fragments), plan.share_count)])
    rows = np.concatenate([rows, fragments])
    order = np.lexsort((rows, share))
    rows, first_row = rows[order], np.searchsorted(share[order], np.arange(plan.share_count + 2)).tolist()
    if not len(rows):
        return [pa.RecordBatch.from_pylist([], _SCHEMA)] * (plan.share_count + 1)
    each = np.arange(len(rows), dtype=np.int32)
    packets = span_array(window.buffer, len(rows), each, window.offset[rows], window.caplen[rows], pa.binary())
    columns = {name: getattr(window, name)[rows] for name in _NUMBERS}
    batch = pa.RecordBatch.from_pydict(columns | {"packet": packets}, _SCHEMA)
    return [batch.slice(start, end - start) for start, end in pairwise(first_row)]


# The driver


def ranges(capture: Capture) -> list[tuple[FileRange, ...]]:
    """Splits the files of a capture into ranges, grouped by task; raises CaptureError if a file is gone.

    A file that cannot be read from the middle is one range, and a task of its own.
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
    return [tuple(file_range for file_range, _ in group) for group in pack(sized_ranges, itemgetter(1), RANGE_BYTES)]


class Distribution:
    """Keeps, in the driver, which ranges of a capture are valid and which must be read."""

    def __init__(self, capture: Capture, plan: SharePlan) -> None:
        self.capture, self.plan = capture, plan
        self.pending = ranges(capture)
        """The ranges to read now, by task; empty when all are valid."""
        self._results: dict[tuple[int, int], RangeResult] = {}
        self._valid: list[tuple[RangeResult, int]] = []

    def add(self, results: Iterable[RangeResult]) -> None:
        """Add the results of pending ranges; ranges that have to be read again become pending."""
        self._results |= {(result.file_range.file, result.file_range.begin): result for result in results}
        self._valid.clear()
        by_file = groupby(sorted(self._results.items()), lambda item: item[0][0])
        repeated = [self._accept_valid([result for _, result in of_file]) for _, of_file in by_file]
        self.pending = [(file_range,) for file_range in repeated if file_range is not None]

    def _accept_valid(self, results: Sequence[RangeResult]) -> FileRange | None:
        """Accept the valid ranges of a file; gives the range to read again, which begins at the first invalid range."""
        exit: ResumePoint | None = None
        number = 0
        for result in results:
            file_range = result.file_range
            if exit is not None and file_range.until is not None and exit.position >= file_range.until:
                continue  # its last record ends beyond this range
            if exit is not None and not result.follows(exit):
                return FileRange(file_range.file, file_range.begin, None, exit)
            self._valid.append((result, number))
            number += result.number_count
            if result.ends_file:
                break
            is_untimed = exit is not None and result.first_ts_ns is None
            exit = replace(result.exit, last_ts_ns=exit.last_ts_ns) if exit is not None and is_untimed else result.exit
        return None

    def share_capture(self, share: int, storage: Storage) -> "ShareCapture":
        """The packets of a share."""
        return ShareCapture(self.capture._files, storage=storage, share=share, ranges=self._valid)


# A share


class ShareBatches(NamedTuple):
    """A share's packets of one range: the batches in the file ``name`` for this share and for all shares.

    number: packets of the capture file before the range.
    """

    file: int
    name: str
    number: int
    places: tuple[int, int]
    size_bytes: int


@dataclass(slots=True)
class ShareCapture(Capture):
    """The packets of one share of a capture, and the packets that every share reads.

    ranges: results of the valid ranges, each with the number of packets before it in its file. All shares have the
    same object, so that it is sent once. Packet numbers, times and order are those of the capture; notes and facts
    are empty.
    """

    storage: Storage = field(default_factory=lambda: Storage(""))
    share: int = 0
    ranges: Sequence[tuple[RangeResult, int]] = ()

    def windows(self) -> Iterator[Window]:
        """The windows of the share."""
        share_batches = (
            ShareBatches(
                result.file_range.file, result.name, number, (share_batch[0], common[0]), share_batch[1] + common[1]
            )
            for result, number in self.ranges
            for share_batch, common in ((batches[self.share], batches[-1]) for batches in result.batches)
        )
        for number, of_file in groupby((result for result in share_batches if result.size_bytes), attrgetter("file")):
            for group in pack(of_file, attrgetter("size_bytes"), WINDOW_BYTES):
                tables = []
                for name, file_batches in groupby(group, attrgetter("name")):
                    with self.storage.input(name) as file, pa.ipc.open_file(file) as reader:
                        tables += [_numbered(reader.get_batch(i), x.number) for x in file_batches for i in x.places]
                yield from _windows(pa.concat_tables(tables), number)


def _numbered(batch: pa.RecordBatch, packets_before: int) -> pa.Table:
    """The packets of a batch, numbered after the packets that come before them in the file."""
    return pa.Table.from_batches([batch]).set_column(0, "packet_number", pc.add(batch["packet_number"], packets_before))


def _windows(packets: pa.Table, file: int) -> Iterator[Window]:
    """The packets in order, in windows of at most WINDOW_BYTES and WINDOW_PACKETS."""
    packet_number = packets["packet_number"].to_numpy()
    if (np.diff(packet_number) < 0).any():
        packets = packets.take(pa.array(np.argsort(packet_number, kind="stable")))
    caplen = pc.binary_length(packets["packet"]).to_numpy().astype(np.int64)
    filled, counted = np.cumsum(caplen) // WINDOW_BYTES, np.arange(len(caplen)) // WINDOW_PACKETS
    borders = np.flatnonzero((np.diff(filled, prepend=-1) != 0) | (np.diff(counted, prepend=-1) != 0)).tolist()
    for start, end in pairwise([*borders, len(caplen)]):
        window_packets = packets.slice(start, end - start).combine_chunks()
        column = single_array(window_packets["packet"])
        offset = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: end - start].astype(np.int64)
        # Copies, because the readers of packets take only writable arrays.
        buffer = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offset[0] :][: caplen[start:end].sum()].copy()
        columns = {name: window_packets[name].to_numpy().copy() for name in _NUMBERS}
        yield Window(buffer, offset - offset[0], caplen[start:end], file=file, **columns)
