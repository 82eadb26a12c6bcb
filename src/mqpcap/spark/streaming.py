"""``spark.readStream.format("mqpcap")``: the files that a capture process leaves behind, each once.

Offsets count files. Which file has which number is written down under ``stateDir`` before Spark hears of it, so a
restart from a checkpoint reads exactly the same files for the same offsets. A micro-batch is read by one task: it
takes up the connections where the batch before left them (also under ``stateDir``, by number), reads the new files and
leaves the connections behind for the next. A batch that is done again starts from the same state and gives the same
rows.

README.md beside this file says when rows come. At the end of each file, connections that are over
(`Reassembler.expired`) give what was still open of them, as at the end of a capture, and are forgotten: a packet that
comes later begins a new one. No two have one id unless the capture's clock is set back by more than a minute.
"""

import glob
import io
import os
import pickle
import posixpath
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mqpcap.background import Background
from mqpcap.capture import Capture, captures
from mqpcap.capture.chains import rotated_name
from mqpcap.correlate import Batch
from mqpcap.correlate.rules import lanes
from mqpcap.decode.columns import Records
from mqpcap.decode.frames import Frames
from mqpcap.errors import CaptureError, one_line
from mqpcap.pipeline import OPTIONAL_TABLES, Options, Output, Tables
from mqpcap.protocols import protocols
from mqpcap.schema.protocol import MessageQueue
from mqpcap.spark import partitions, schemas
from mqpcap.spark.partitions import MISSING
from mqpcap.spark.share import drained, wanted_of
from mqpcap.spark.source import Reading
from mqpcap.spark.storage import Storage, is_remote
from mqpcap.tables.captures import is_no_capture
from mqpcap.tables.messages import Connections

STATES_KEPT = 4
"""States of so many batches stay: Spark asks again for the last one or two."""


class Carried(Tables):
    """One table of one chain of files, from batch to batch; files are known by their numbers.

    capture: the name of the first file. name_of gives that of any, while a batch is read.
    """

    def __init__(self, options: Options, table: str, capture: str) -> None:
        super().__init__(replace(options, optional_tables=OPTIONAL_TABLES & {table}), lambda output: None)
        self.table, self.capture = table, capture
        self.wanted = wanted_of(table)
        self.name_of: Callable[[int], str] = str

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"name_of": str}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, background=Background())

    def rows(self, capture: Capture, number: int) -> Iterator[pa.Table]:
        """The rows that a file makes certain."""
        outputs: list[Output] = []
        self.emit = outputs.append
        for window in capture.windows():
            for part in self.messages(replace(window, file=number)):
                self.take(part, [self.capture])
            yield from drained(outputs, self.table)
        # What waits to be told its dialect is read by what is known at the end of the file.
        self.take(self.early_messages(self.waiting_flows()), [self.capture])
        self._close(self.assembler.expired())
        yield from drained(outputs, self.table)

    def _close(self, over: NDArray[np.int64]) -> None:
        """Tell what was still open of connections that are over, and know nothing more of them."""
        self.take(self.last_of(over), [self.capture])
        self.close(over, [self.capture], of_others=True)
        ids = {*self.assembler.flows.columns(over).connection_ids().tolist()}
        for shared in self.shared.values():
            shared.forget(ids)
        self.assembler.forget(over)
        self.framer.detector.doubted = set()

    def _read(self, found: Sequence[Frames]) -> Iterator[tuple[Frames, Records]]:
        return super()._read(self.wanted.of(found))

    def _rows_made(
        self, protocol: MessageQueue, frames: Frames, records: Records, known: Connections, files: Sequence[str],
        batches: dict[str, list[Batch]],
    ) -> None:  # fmt: skip
        numbers, place = np.unique(frames.first_file, return_inverse=True)
        names = [*files, *map(self.name_of, numbers.tolist())]
        frames = replace(frames, first_file=place.reshape(-1) + len(files))
        super()._rows_made(protocol, frames, records, known, names, batches)


@cache
def _described() -> dict[tuple[str, ...], object]:
    """What descriptions say of protocols, and the name of each: no state of a stream holds it."""
    found: dict[tuple[str, ...], object] = {}
    for name, protocol in protocols().items():
        found[name, "protocol"] = protocol
        if (rule := protocol.rule) is not None:
            found |= {(name, "rule"): rule, (name, "deliveries"): rule.deliveries}
            for i, lane in enumerate(lanes(rule)):
                found |= {(name, "lane", str(i)): lane, (name, "tables", str(i)): lane.tables}
    return {name: what for name, what in found.items() if what is not None}


def frozen(carried: Mapping[str, Carried]) -> bytes:
    """The connections as bytes; what is only a cache is left out, what is described goes by name."""
    out = io.BytesIO()
    names = {id(what): name for name, what in _described().items()}
    pickler = pickle.Pickler(out, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.persistent_id = lambda one: names.get(id(one))  # type: ignore[method-assign]
    pickler.dump(dict(carried))
    return out.getvalue()


def thawed(content: bytes) -> dict[str, Carried]:
    """The connections out of bytes that `frozen` gave."""
    unpickler = pickle.Unpickler(io.BytesIO(content))
    unpickler.persistent_load = lambda name: _described()[name]  # type: ignore[method-assign]
    carried: dict[str, Carried] = unpickler.load()
    return carried


class CaptureStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one table of finished capture files as they come."""

    def __init__(self, asked: Reading, schema: StructType) -> None:
        if asked.table == "captures":
            raise CaptureError("captures counts whole files: read it as a batch, not as a stream")
        if not asked.state_dir:
            raise CaptureError("a stream needs option stateDir, where connections wait between micro-batches")
        for name in asked.inputs:
            if is_remote(name):
                raise CaptureError(f"a stream reads directories that all machines mount, not {name}")
            if not glob.has_magic(name) and not os.path.exists(name):
                partitions.check_readable([(name, "no such file")], asked.permissive)
        self.asked, self.schema = asked, schema
        self.storage = Storage(posixpath.join(asked.state_dir, asked.table))
        self.until: int | None = None
        self._known: list[tuple[str, int]] = []
        self._strangers: set[tuple[str, int]] = set()
        self._left_out: set[str] = set()

    # On the driver

    def initialOffset(self) -> dict[str, int]:
        """Before the first file."""
        return {"files": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Files of a micro-batch at most."""
        return ReadAllAvailable() if self.asked.max_files is None else ReadMaxFiles(self.asked.max_files)

    def prepareForTriggerAvailableNow(self) -> None:
        """What is finished now is all that this run reads."""
        self.until = len(self._numbered())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Up to which file the next micro-batch reads."""
        count = self.until if self.until is not None else len(self._numbered())
        if isinstance(limit, ReadMaxFiles):
            count = min(count, start["files"] + limit.max_files)
        return {"files": max(count, start["files"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One, as connections go from file to file: its files by number, with the times of their last bytes (ns)."""
        files = {number: self._file(number) for number in range(start["files"], end["files"])}
        return [InputPartition(files)] if files else []

    def commit(self, end: dict[str, int]) -> None:
        """States that no restart can ask for go."""
        for number in [n for n in self._states() if n < end["files"]][:-STATES_KEPT]:
            self.storage.remove_file(_state_name(number))

    def _states(self) -> list[int]:
        """Behind how many files there is a state."""
        return sorted(int(name[6:-7]) for name in self.storage.sizes("state") if name.endswith(".pickle"))

    def _numbered(self) -> list[tuple[str, int]]:
        """The files by number; finished ones that are new are numbered first."""
        if not self._known:
            names = sorted(name for name in self.storage.sizes("files") if "/." not in name)
            self._known = [self._file(int(posixpath.basename(name))) for name in names]
        # A ring of files comes back to its names: a file is its name with the time of its last byte.
        known = {*self._known} | self._strangers
        for file in self._finished():
            if file in known:
                continue
            found = captures([file[0]])
            if found.captures:
                self.storage.write(_file_name(len(self._known)), f"{file[0]}\0{file[1]}".encode())
                self._known.append(file)
            else:
                self._sort_out(file, found.unreadable[0][1])
        return self._known

    def _file(self, number: int) -> tuple[str, int]:
        content = self.storage.read(_file_name(number))
        if content is None:
            raise CaptureError(f"{_file_name(number)} is gone from {self.storage.name}: delete the checkpoint too")
        name, _, modified_ns = content.decode().partition("\0")
        return name, int(modified_ns)

    def _finished(self) -> list[tuple[str, int]]:
        """Files that nobody writes to any more, with the times of their last bytes, in order of time."""
        found: dict[str, int] = {}
        for name in _below(self.asked.inputs, self._cannot_be_read):
            try:
                found[name] = os.stat(name).st_mtime_ns
            except OSError as error:
                self._cannot_be_read(error)
        ordered = sorted(found.items(), key=lambda file: (file[1], file[0]))
        newest = {_chain(name): name for name, _ in ordered}
        now = time.time_ns()
        return [
            (name, modified_ns) for name, modified_ns in ordered
            if newest[_chain(name)] != name or now - modified_ns >= self.asked.idle_s * 1e9
        ]  # fmt: skip

    def _sort_out(self, file: tuple[str, int], reason: str) -> None:
        """Leaves a stranger in a directory out; one that is named or cannot be opened only as the mode says."""
        name = file[0]
        if reason in MISSING:
            return  # rotation took it away meanwhile
        if not is_no_capture(reason) or any(
            name in glob.glob(x, recursive=True) if glob.has_magic(x) else name == x for x in self.asked.inputs
        ):
            partitions.check_readable([(name, reason)], self.asked.permissive)
        self._strangers.add(file)

    def _cannot_be_read(self, error: OSError) -> None:
        """What rotation took away meanwhile is no loss; anything else is told, once."""
        name = str(error.filename)
        if not isinstance(error, FileNotFoundError) and name not in self._left_out:
            partitions.check_readable([(name, error.strerror or one_line(error))], self.asked.permissive)
            self._left_out.add(name)

    # In a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a micro-batch."""
        files: dict[int, tuple[str, int]] = partition.value
        schema = to_arrow_schema(self.schema, timezone="UTC")
        carried, before = self._state(min(files))
        for number in range(before, max(files) + 1):
            file = files.get(number) or self._file(number)
            if not self._is_there(*file):
                continue
            chain = _chain(file[0])
            if chain not in carried:
                carried[chain] = Carried(self.asked.options, self.asked.table, file[0])
            carried[chain].name_of = lambda number: self._file(number)[0]
            found = captures([file[0]])
            partitions.check_readable(found.unreadable, permissive=False)  # it was a capture when it was numbered
            for rows in (rows for capture in found.captures for rows in carried[chain].rows(capture, number)):
                if number in files:
                    yield from schemas.batches(rows, schema)
        self.storage.write(_state_name(max(files) + 1), frozen(carried))

    def _is_there(self, name: str, modified_ns: int) -> bool:
        """Whether the file is as it was numbered; a ring that was faster than the stream is told."""
        with suppress(OSError):
            if os.stat(name).st_mtime_ns == modified_ns:
                return True
        if self.asked.ignores_missing:
            return False
        raise CaptureError(
            f"{name} was deleted or written anew before it was read; option ignoreMissingFiles goes on without it"
        )

    def _state(self, number: int) -> tuple[dict[str, Carried], int]:
        """The connections behind so many files, or the nearest known before: the files between are read again."""
        for one in [n for n in reversed(self._states()) if n <= number]:
            content = self.storage.read(_state_name(one))
            if content is not None:
                return thawed(content), one
        return {}, 0


def _state_name(number: int) -> str:
    return f"state/{number:08d}.pickle"


def _file_name(number: int) -> str:
    return f"files/{number:08d}"


def _below(inputs: Sequence[str], cannot_be_read: Callable[[OSError], None]) -> Iterator[str]:
    """Every file that the inputs name: themselves, in directories, by globs."""
    for name in inputs:
        for found in sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) else [name]:
            if os.path.isdir(found):
                for folder, _, files in os.walk(found, onerror=cannot_be_read):
                    yield from (os.path.join(folder, file) for file in sorted(files))
            else:
                yield found


def _chain(name: str) -> str:
    """Files of one chain have one word for it."""
    path = Path(name)
    return f"{path.parent}/{rotated_name(path.name).key}"
