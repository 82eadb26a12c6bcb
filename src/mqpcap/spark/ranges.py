"""Reads ranges of capture files, and groups their packets by share, for Spark to bring each share its own.

In: ranges of bytes of files, each read by a task. Out: packets of each share, and a `RangeResult` of each range.
Called by: ``tasks``; ``job`` plans the ranges.

If each share read the whole capture, each share would cost a pass over it, and over a network a download. An IP
fragment does not show its connection, so every share gets all fragments.

The first record of a range in the middle of a file is found by a search that may be wrong (``capture.boundaries``).
Its packets are counted from 1, and its pcapng interfaces are those at the start of the file. A range is therefore valid
only if the range before it ended exactly at its start. Otherwise the file is read again from there, as one range.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import single_array
from mqpcap.capture import Capture, ResumePoint, Window, WindowReader, boundaries
from mqpcap.decode.columns import span_array
from mqpcap.spark.partitions import SharePlan, pack
from mqpcap.tcp.headers import connections_of, keys_of

RANGE_BYTES = 64 << 20
"""A task reads about this much of a file, or of several small files."""
BUFFERED_BYTES = 32 << 20
"""Packets that a task buffers before it gives each share its part."""
WINDOW_BYTES = 8 << 20
"""Windows of a share have this size; all packets in them belong to the share."""
WINDOW_PACKETS = 1 << 15
"""Packets per window of a share: with many short connections, more cost memory and CPU (measured)."""

_NUMBERS = {"packet_number": pa.int64(), "ts_ns": pa.int64(), "wirelen": pa.int64(), "link_type": pa.int32()}
_SCHEMA = pa.schema(_NUMBERS | {"packet": pa.binary()})
_KEY_LOG = -1
"""The link type of a row that is not a packet: secrets of TLS, which every share gets before the packets after them."""


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
    """The result of reading a range."""

    file_range: FileRange
    entry: ResumePoint | None
    """The start of its first record, None if no record was found."""
    exit: ResumePoint
    """The point where reading ended."""
    number_count: int = 0
    """Packets counted, which the packet numbers of later ranges add."""
    first_ts_ns: int | None = None
    """Time of its first packet."""
    is_cut: bool = False
    """Whether the file is cut short or damaged in this range."""

    def follows(self, exit: ResumePoint) -> bool:
        """Whether it began where the previous range ended, with the state (interfaces, time) that was current there."""
        if self.entry is None or replace(self.entry, last_ts_ns=exit.last_ts_ns) != exit:
            return False
        # A packet without a time has that of the packet before it.
        return self.entry == exit or self.first_ts_ns != self.entry.last_ts_ns

    @property
    def ends_file(self) -> bool:
        """Whether the file ended in this range: it is cut short or damaged, or ended before the range did."""
        return self.is_cut or self.file_range.until is None or self.exit.position < self.file_range.until


class RangeReader:
    """Reads a range of a capture; ``result`` is there afterwards. Raises CaptureError if the file is gone."""

    def __init__(self, capture: Capture, file_range: FileRange, plan: SharePlan) -> None:
        self.capture, self.file_range, self.plan = capture, file_range, plan
        entry = file_range.entry
        self.result = RangeResult(file_range, entry, entry or ResumePoint(file_range.begin))

    def packets(self) -> Iterator[list[pa.Table]]:
        """The packets, some megabytes at a time: a table for each share."""
        file_range, entry = self.file_range, self.file_range.entry
        name = self.capture.files[file_range.file]
        first_ts_ns = None
        buffered: list[list[pa.RecordBatch]] = []
        buffered_bytes = 0
        with closing(self.capture.source(file_range.file)) as source:
            if entry is None and file_range.begin:
                entry = boundaries.find_boundary(name, source, file_range.begin)
                if entry is None or (file_range.until is not None and entry.position >= file_range.until):
                    self.result = RangeResult(file_range, entry, entry or self.result.exit)
                    return
            reader = WindowReader(name, file_range.file, source, entry, file_range.until)
            for window in reader.windows():
                first_ts_ns = int(window.ts_ns[0]) if first_ts_ns is None else first_ts_ns
                added = [*_key_logs(window.secrets, self.plan), _by_share(window, self.plan)]
                buffered += added
                buffered_bytes += sum(batch.nbytes for batches in added for batch in batches)
                if buffered_bytes >= BUFFERED_BYTES:
                    yield _tables(buffered)
                    buffered, buffered_bytes = [], 0
            # Secrets after the last packet serve the next range.
            buffered += _key_logs(reader.secrets if file_range.until is not None else (), self.plan)
        if buffered:
            yield _tables(buffered)
        is_cut = bool(reader.notes)
        self.result = RangeResult(file_range, entry, reader.end_point, reader.number_count, first_ts_ns, is_cut)


def _tables(buffered: Sequence[Sequence[pa.RecordBatch]]) -> list[pa.Table]:
    """The packets of some windows, a table for each share."""
    return [pa.Table.from_batches(batches) for batches in zip(*buffered, strict=True)]


def _key_logs(secrets: Iterable[bytes], plan: SharePlan) -> Iterator[list[pa.RecordBatch]]:
    """A batch for each share, of each key log in the file."""
    numbers = {name: [0] for name in _NUMBERS} | {"link_type": [_KEY_LOG]}
    for lines in secrets:
        yield [pa.RecordBatch.from_pydict(numbers | {"packet": [lines]}, _SCHEMA)] * plan.share_count


def _by_share(window: Window, plan: SharePlan) -> list[pa.RecordBatch]:
    """The TCP packets of a window, a batch for each share, in order."""
    rows, ends, fragments = connections_of(window, plan.rules)
    each_share = np.arange(plan.share_count)
    share = np.concatenate([plan.shares(keys_of(ends)), np.repeat(each_share, len(fragments))])
    rows = np.concatenate([rows, np.tile(fragments, plan.share_count)])
    order = np.lexsort((rows, share))
    rows, first_row = rows[order], np.searchsorted(share[order], [*each_share, plan.share_count]).tolist()
    if not len(rows):
        return [pa.RecordBatch.from_pylist([], _SCHEMA)] * plan.share_count
    each = np.arange(len(rows), dtype=np.int32)
    packets = span_array(window.buffer, len(rows), each, window.offset[rows], window.caplen[rows], pa.binary())
    columns = {name: getattr(window, name)[rows] for name in _NUMBERS}
    batch = pa.RecordBatch.from_pydict(columns | {"packet": packets}, _SCHEMA)
    return [batch.slice(start, end - start) for start, end in pairwise(first_row)]


# The plan


def plan_ranges(capture: Capture) -> list[tuple[FileRange, ...]]:
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


class Borders(NamedTuple):
    """The valid ranges of a capture, and the ranges to read again."""

    valid: dict[int, tuple[int, int]]
    """By index of a valid range: its file, and the packets of the file before it."""
    corrected: list[FileRange]
    """All ranges, with the right borders; empty if the borders were right."""


def check_borders(ranges: Sequence[RangeResult]) -> Borders:
    """Finds the borders that were guessed wrong; ``ranges`` are in order of file and position."""
    valid: dict[int, tuple[int, int]] = {}
    corrected: list[FileRange] = []
    is_wrong = False
    for file, of_file in groupby(enumerate(ranges), lambda item: item[1].file_range.file):
        exit: ResumePoint | None = None
        packets_before = 0
        for index, result in of_file:
            file_range = result.file_range
            if exit is not None and file_range.until is not None and exit.position >= file_range.until:
                continue  # its last record ends beyond this range
            if exit is not None and not result.follows(exit):
                corrected.append(FileRange(file, file_range.begin, None, exit))
                is_wrong = True
                break
            valid[index] = file, packets_before
            corrected.append(file_range)
            packets_before += result.number_count
            if result.ends_file:
                break
            is_untimed = exit is not None and result.first_ts_ns is None
            exit = replace(result.exit, last_ts_ns=exit.last_ts_ns) if exit is not None and is_untimed else result.exit
    return Borders(valid, corrected if is_wrong else [])


# A share


class SharePackets(NamedTuple):
    """Packets of a share in one range of file number ``file``; the file has ``packets_before`` before the range."""

    file: int
    packets_before: int
    packets: pa.Table


@dataclass(slots=True)
class ShareCapture(Capture):
    """The packets of one share of a capture, and the packets that every share reads; can be read once.

    Packet numbers, times and order are those of the capture; notes and facts are empty.
    """

    packets: Iterable[SharePackets] = field(default=())

    def windows(self) -> Iterator[Window]:
        """The windows of the share; each has the secrets since the window before it."""
        secrets: list[bytes] = []
        for file, packets in self._tables():
            begin, key_logs = 0, np.flatnonzero(packets["link_type"].to_numpy() == _KEY_LOG).tolist()
            for row in (*key_logs, len(packets)):
                for window in _windows(packets.slice(begin, row - begin), file):
                    yield replace(window, secrets=tuple(secrets))
                    secrets = []
                secrets += packets["packet"].slice(row, 1).to_pylist()
                begin = row + 1

    def _tables(self) -> Iterator[tuple[int, pa.Table]]:
        """The packets of some megabytes, of one file, by its index."""
        for file, of_file in groupby(self.packets, itemgetter(0)):
            tables, size_bytes = [], 0
            for part in of_file:
                numbers = pc.add(part.packets["packet_number"], part.packets_before)
                tables.append(part.packets.set_column(0, "packet_number", numbers))
                size_bytes += part.packets.nbytes
                if size_bytes >= WINDOW_BYTES:
                    yield file, pa.concat_tables(tables)
                    tables, size_bytes = [], 0
            if tables:
                yield file, pa.concat_tables(tables)


def _windows(packets: pa.Table, file: int) -> Iterator[Window]:
    """The packets in order, in windows of at most WINDOW_BYTES and WINDOW_PACKETS."""
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
