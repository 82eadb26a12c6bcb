"""``spark.readStream.format("mqpcap")``: streams the finished files of a capture process, each file once.

Offsets count files. The number of a file is written below ``stateDir`` before Spark gets it, so a restart from a
checkpoint reads the same files for the same offsets. One task reads a micro-batch: it loads the connections that the
previous batch left (``stateDir``, by number), reads the new files, and dumps the connections for the next batch. A
repeated batch starts from the same state and gives the same rows.

README.md in this directory says when rows are final. At the end of each file, connections that ended or timed out
(`Reassembler.expired`) are closed, as at the end of a capture. A later packet on their 5-tuple starts a new connection.
Its id differs unless the clock of the capture was set back by more than a minute.
"""

import glob
import os
import posixpath
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mqpcap.capture import Capture, captures
from mqpcap.capture.file_sets import rotated_name
from mqpcap.delta.recordings import dump_state, load_state
from mqpcap.errors import CaptureError, one_line
from mqpcap.pipeline import OPTIONAL_TABLES, Options, Pipeline
from mqpcap.spark import partitions, schemas
from mqpcap.spark.partitions import MISSING
from mqpcap.spark.reading_options import Reading
from mqpcap.spark.share import drain, table_needs
from mqpcap.spark.storage import Storage, is_remote
from mqpcap.tables.captures import is_no_capture
from mqpcap.tables.output import Output

STATES_KEPT = 4
"""Batches whose states are kept. Spark may repeat the last two batches."""


class StreamState:
    """The state of one file set for one table, kept from batch to batch; files have numbers.

    capture: name of the first file. name_of: maps the number of a file to its name while a batch is read.
    """

    def __init__(self, options: Options, table: str, capture: str) -> None:
        options = replace(options, optional_tables=OPTIONAL_TABLES & {table}, protocols=table_needs(table).protocols)
        self.pipeline = Pipeline(options, lambda output: None, capture)
        self.table = table
        self.name_of: Callable[[int], str] = str

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"name_of": str}

    def rows(self, capture: Capture, number: int) -> Iterator[pa.Table]:
        """The rows that become final with this file."""
        outputs: list[Output] = []
        pipeline = self.pipeline
        pipeline.emit, pipeline.file_name = outputs.append, self.name_of
        for window in capture.windows():
            pipeline.feed(replace(window, file=number))
            yield from drain(outputs, self.table)
        # Messages whose dialect is still unknown are decoded with the evidence available at the end of the file.
        pipeline.flush_unresolved(pipeline.progress.unresolved_flows())
        ended_flows = pipeline.assembler.expired()
        ids = {*pipeline.assembler.flows.columns(ended_flows).connection_ids().tolist()}
        pipeline.end(ended_flows)
        for shared in pipeline.evidence.shared.values():
            shared.forget(ids)
        pipeline.framer.detector.missing_servers.clear()
        yield from drain(outputs, self.table)


class CaptureStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one table of capture files as files are finished."""

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
        self._numbered_files: list[tuple[str, int]] = []
        self._foreign_files: set[tuple[str, int]] = set()
        self._left_out: set[str] = set()

    # On the driver

    def initialOffset(self) -> dict[str, int]:
        """The offset of the first file."""
        return {"files": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit on files per micro-batch."""
        return ReadAllAvailable() if self.asked.max_files is None else ReadMaxFiles(self.asked.max_files)

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit this run to the files that are finished now."""
        self.until = len(self._numbered())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The end of the next micro-batch, as a number of files."""
        count = self.until if self.until is not None else len(self._numbered())
        if isinstance(limit, ReadMaxFiles):
            count = min(count, start["files"] + limit.max_files)
        return {"files": max(count, start["files"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One partition, as connections continue across files: files by number, with times of modification (ns)."""
        files = {number: self._file(number) for number in range(start["files"], end["files"])}
        return [InputPartition(files)] if files else []

    def commit(self, end: dict[str, int]) -> None:
        """Remove the states that no restart can need."""
        for number in [n for n in self._states() if n < end["files"]][:-STATES_KEPT]:
            self.storage.remove_file(_state_name(number))

    def _states(self) -> list[int]:
        """The numbers of files after which a state was saved."""
        return sorted(int(name[6:-7]) for name in self.storage.sizes("state") if name.endswith(".pickle"))

    def _numbered(self) -> list[tuple[str, int]]:
        """All numbered files; first assigns numbers to files that were finished since the last call."""
        if not self._numbered_files:
            names = sorted(name for name in self.storage.sizes("files") if "/." not in name)
            self._numbered_files = [self._file(int(posixpath.basename(name))) for name in names]
        # A ring of files reuses names, so name and time of modification identify a file.
        seen_files = {*self._numbered_files} | self._foreign_files
        for file in self._finished():
            if file in seen_files:
                continue
            search = captures([file[0]])
            if search.captures:
                self.storage.write(_file_name(len(self._numbered_files)), f"{file[0]}\0{file[1]}".encode())
                self._numbered_files.append(file)
            else:
                self._sort_out(file, search.unreadable[0][1])
        return self._numbered_files

    def _file(self, number: int) -> tuple[str, int]:
        content = self.storage.read(_file_name(number))
        if content is None:
            raise CaptureError(f"{_file_name(number)} is gone from {self.storage.name}: delete the checkpoint too")
        name, _, modified_ns = content.decode().partition("\0")
        return name, int(modified_ns)

    def _finished(self) -> list[tuple[str, int]]:
        """Files that are no longer written, with their times of modification, oldest first."""
        modified_by_name: dict[str, int] = {}
        for name in _below(self.asked.inputs, self._cannot_be_read):
            try:
                modified_by_name[name] = os.stat(name).st_mtime_ns
            except OSError as error:
                self._cannot_be_read(error)
        ordered = sorted(modified_by_name.items(), key=lambda file: (file[1], file[0]))
        newest = {_chain(name): name for name, _ in ordered}
        now_ns = time.time_ns()
        return [
            (name, modified_ns) for name, modified_ns in ordered
            if newest[_chain(name)] != name or now_ns - modified_ns >= self.asked.idle_s * 1e9
        ]  # fmt: skip

    def _sort_out(self, file: tuple[str, int], reason: str) -> None:
        """Skip a foreign file of a directory; files that were named or cannot be opened only in permissive mode."""
        name = file[0]
        if reason in MISSING:
            return  # deleted by rotation
        if not is_no_capture(reason) or any(
            name in glob.glob(x, recursive=True) if glob.has_magic(x) else name == x for x in self.asked.inputs
        ):
            partitions.check_readable([(name, reason)], self.asked.permissive)
        self._foreign_files.add(file)

    def _cannot_be_read(self, error: OSError) -> None:
        """Report a file that cannot be read, once; a file that rotation deleted is not reported."""
        name = str(error.filename)
        if not isinstance(error, FileNotFoundError) and name not in self._left_out:
            partitions.check_readable([(name, error.strerror or one_line(error))], self.asked.permissive)
            self._left_out.add(name)

    # In a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a micro-batch."""
        files: dict[int, tuple[str, int]] = partition.value
        schema = to_arrow_schema(self.schema, timezone="UTC")
        states, first_number = self._state(min(files))
        for number in range(first_number, max(files) + 1):
            file = files.get(number) or self._file(number)
            if not self._is_there(*file):
                continue
            chain = _chain(file[0])
            if chain not in states:
                states[chain] = StreamState(self.asked.options, self.asked.table, file[0])
            states[chain].name_of = lambda number: self._file(number)[0]
            search = captures([file[0]])
            partitions.check_readable(
                search.unreadable, permissive=False
            )  # it was a capture file when it got its number
            for rows in (rows for capture in search.captures for rows in states[chain].rows(capture, number)):
                if number in files:
                    yield from schemas.batches(rows, schema)
        self.storage.write(_state_name(max(files) + 1), dump_state(states))

    def _is_there(self, name: str, modified_ns: int) -> bool:
        """Whether the file is unchanged since it was numbered; raises CaptureError if the ring overtook the stream."""
        with suppress(OSError):
            if os.stat(name).st_mtime_ns == modified_ns:
                return True
        if self.asked.ignores_missing:
            return False
        raise CaptureError(
            f"{name} was deleted or written anew before it was read; option ignoreMissingFiles goes on without it"
        )

    def _state(self, number: int) -> tuple[dict[str, StreamState], int]:
        """The newest saved states up to a number of files, and that number; later files are read again."""
        for state_number in [n for n in reversed(self._states()) if n <= number]:
            content = self.storage.read(_state_name(state_number))
            if content is not None:
                return _states_of(content), state_number
        return {}, 0


def _states_of(content: bytes) -> dict[str, StreamState]:
    """The states of a batch; raises CaptureError for those of another release."""
    try:
        states: dict[str, StreamState] = load_state(content)
        return states
    except CaptureError as error:
        raise CaptureError(f"stateDir: {error}: start anew with another stateDir and checkpoint") from error


def _state_name(number: int) -> str:
    return f"state/{number:08d}.pickle"


def _file_name(number: int) -> str:
    return f"files/{number:08d}"


def _below(inputs: Sequence[str], cannot_be_read: Callable[[OSError], None]) -> Iterator[str]:
    """Every file that the inputs name: files, files in directories, matches of globs."""
    for name in inputs:
        for match in sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) else [name]:
            if os.path.isdir(match):
                for folder, _, files in os.walk(match, onerror=cannot_be_read):
                    yield from (os.path.join(folder, file) for file in sorted(files))
            else:
                yield match


def _chain(name: str) -> str:
    """A key that all files of a file set share."""
    path = Path(name)
    return f"{path.parent}/{rotated_name(path.name).key}"
