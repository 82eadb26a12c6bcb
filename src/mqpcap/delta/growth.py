"""Adds captures to a lake, finishes recordings and removes captures; a writer at a time.

New files are sorted out first. Files that were taken are known by their content and skipped. The newest file of a set
waits for the next run while somebody may write to it. A file that is older than its recording is refused.
Then the pipeline of each recording reads its new files, from the state that the last run left.
"""

import fcntl
import glob
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import pyarrow as pa

from mqpcap.background import Background
from mqpcap.capture import Capture, WindowReader
from mqpcap.capture.file_sets import rotated_name
from mqpcap.capture.inputs import InputFile, is_remote, span
from mqpcap.capture.remote import redacted_uri
from mqpcap.continued_files import captures, links
from mqpcap.delta import tables as delta_tables
from mqpcap.delta.catalog import FOLDER, HEAD_PACKETS, Recording, TakenFile, head_of, load_catalog, save
from mqpcap.delta.recordings import RecordingPipeline, full_fingerprint, state_of_packets
from mqpcap.delta.states import MAX_STATE_BYTES, read_state
from mqpcap.errors import CaptureError, FailedCaptureError, OutputError, one_line
from mqpcap.options import Options
from mqpcap.parallel_export import note_small, row_writer
from mqpcap.reading import Meter, Outcome, background, blamed_on, read
from mqpcap.small_captures import SmallCapture, read_together, small_groups
from mqpcap.tables.captures import captures_rows, captures_table, is_no_capture
from mqpcap.tables.output import Emit, Output
from mqpcap.tables.parquet import DATES, TableFile, by_date
from mqpcap.wording import error_line

IDLE_S: Final = 60
"""The newest file of a set is left alone until nobody has written to it for this time."""
MAX_COPIES: Final = 8
"""Copies of a file that are remembered, so that they are not read again."""
RUNS_KEPT: Final = 2
"""Runs whose catalogs and states are kept."""
_LOCK: Final = "lock"
_PENDING: Final = "pending"


@dataclass(slots=True)
class Addition:
    """A recording and its new files; ``capture`` has no files if the recording is only finished."""

    recording: Recording
    capture: Capture
    taken: list[TakenFile] = field(default_factory=list)


_Reading: TypeAlias = tuple[Recording, list[TakenFile], dict[str, int], str | None]
"""A recording, its new files, messages by earlier file, and the name of its next state."""


class Lake:
    """A lake that is open for one writer; also a context manager.

    Raises OutputError if the folder holds anything else, if another process writes to it, or if it cannot be written.
    """

    def __init__(self, folder: Path, options: Options | None = None) -> None:
        self.folder, self.own = folder, folder / FOLDER
        self.options = options or Options()
        with ExitStack() as stack:
            self._open(stack)
            self._resources = stack.pop_all()

    def _open(self, stack: ExitStack) -> None:
        if self.folder.is_symlink():
            raise OutputError(f"{self.folder} is a symbolic link; name the directory it leads to")
        if self.folder.exists() and not self.folder.is_dir():
            raise OutputError(f"{self.folder} is no folder")
        if self.folder.is_dir() and any(self.folder.iterdir()) and not self.own.is_dir():
            raise OutputError(f"{self.folder} is not empty and no lake; name a lake, an empty or a new folder")
        with delta_tables.declared_errors(self.folder):
            self.own.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.own / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            stack.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.fstat(lock).st_nlink:
                    raise BlockingIOError  # its lake was empty and went meanwhile
            except BlockingIOError:
                raise OutputError(f"another process writes to {self.folder}; try again when it is done") from None
        self._is_changed = False
        self.catalog = load_catalog(self.folder, delta_tables.committed_run(self.folder))
        self._recover()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            if [*self.folder.iterdir()] == [self.own] and [*self.own.iterdir()] == [self.own / _LOCK]:
                (self.own / _LOCK).unlink()  # nothing was ever added: no trace is left
                self.own.rmdir()
                self.folder.rmdir()
        self._resources.close()

    def _recover(self) -> None:
        """Removes the files of a killed run, and does a removal that it had begun."""
        if (self.own / _PENDING).exists():
            delta_tables.undo(self.folder, self.catalog.run)
            for path in self.own.glob("[0-9]*"):
                if int(path.name[:6]) > self.catalog.run:
                    path.unlink()
        self._remove_rows()
        (self.own / _PENDING).unlink(missing_ok=True)

    def _remove_rows(self) -> None:
        """Remove the rows of captures that ``captures`` has no more."""
        if self.catalog.removing:
            for capture in self.catalog.removing:
                delta_tables.remove_rows(self.folder, capture)
            self.catalog.removing = []
            self._save_catalog()

    # New files

    def sort_out(self, inputs: Sequence[str], outcome: Outcome, *, all_now: bool, rebuild: bool) -> list[Addition]:
        """The recordings with new files; everything else is the outcome's.

        Raises OutputError, before anything is changed, if the lake was begun with other options.
        """
        self._check_options()
        listed_lines: list[list[Any]] = [outcome.notes, outcome.unreadable, outcome.skipped]
        line_counts = [*map(len, listed_lines)]
        paths, named = self._new_paths(inputs, outcome)
        paths, alike = self._untaken(paths, outcome)
        if not all_now:
            paths = _finished(paths, outcome)
        for path in [path for path in paths if path in alike]:
            self._sort_out_grown(path, *alike[path], outcome, rebuild)
            paths.remove(path)
        search = captures(paths, outcome.choices.is_one)
        for name, reason in search.unreadable:
            listed = outcome.unreadable if name in named or not is_no_capture(reason) else outcome.skipped
            listed.append((name, reason))
            self._set_aside(name, reason)
        continued = self._continued(search.captures)
        additions: list[Addition] = []
        for capture in sorted(search.captures, key=lambda capture: _first_ns(capture.files[0])):
            if files := self._in_time(capture.files, outcome, rebuild):
                timely = capture if files == capture.files else _capture_of(files)
                recording = continued.get(capture.files[0])
                additions.append(self._addition(timely, recording, [x.recording for x in additions]))
        if self.catalog.removing:
            self._commit_removal()
            for lines, count in zip(listed_lines, line_counts, strict=True):
                del lines[count:]  # everything is sorted out again
            return self.sort_out([*inputs, *self.catalog.wanted], outcome, all_now=all_now, rebuild=False)
        outcome.capture_count += len(additions)
        outcome.file_count += sum(len(x.capture.files) for x in additions)
        return additions

    def _sort_out_grown(
        self, path: str, recording: Recording, file: TakenFile, outcome: Outcome, rebuild: bool
    ) -> None:
        """Take the recording of a file anew that begins as a taken file, or refuse the file."""
        is_grown = not os.path.exists(file.path) or (path == file.path and os.stat(path).st_size > file.copies[0][1])
        gone = [name for x in recording.files if not os.path.exists(name := x.path) and x is not file]
        if (rebuild and path == file.path) or (is_grown and not gone):
            self._take_anew([recording], [path], replaced=file.path)
        elif gone:
            outcome.unreadable.append((path, f"grew after it was taken, but {gone[0]} of its recording is gone"))
        else:
            reason = f"begins as {file.path}, which was taken, but has other packets"
            outcome.unreadable.append((path, f"{reason}; --remove takes {recording.capture} out"))

    def _in_time(self, files: tuple[str, ...], outcome: Outcome, rebuild: bool) -> tuple[str, ...]:
        """The files of a capture that are newer than all taken files of their set; late files are refused."""
        key = _key(files[0])
        recordings = [x for x in self.catalog.recordings if x.key == key]
        times = {name: _first_ns(name) for name in files} if recordings else {}
        late = {name: x for name, ns in times.items() for x in recordings if 0 < ns < x.last_ns}
        if late and rebuild:
            self._take_anew([x for x in recordings if x in late.values()], files)
            return ()
        for name, recording in late.items():
            newer = next(x.path for x in recording.files if times[name] < (x.row["last_ts_ns"] or 0))
            reason = f"its packets are older than those of {newer}, which was taken before it"
            outcome.unreadable.append((name, f"{reason}; --rebuild takes that recording anew"))
        return tuple(name for name in files if name not in late)

    def _new_paths(self, inputs: Sequence[str], outcome: Outcome) -> tuple[list[str], set[str]]:
        """Files that are not known by path, size and time; and the files that were named, not found in a folder."""
        taken_stats = {stat for _, file in self.catalog.files() for stat in file.stats}
        named = {x for x in inputs if not os.path.isdir(x)}
        paths: dict[tuple[int, int], str] = {}
        for name in dict.fromkeys([*inputs, *self.catalog.wanted]):
            if is_remote(name):
                outcome.unreadable.append((redacted_uri(name), "a lake takes files of this machine"))
                continue
            matches = list(_below(name))
            if not matches:
                outcome.unreadable.append((name, "no such file" if not glob.has_magic(name) else "no file matches"))
            for path in matches:
                try:
                    status = os.stat(path)
                except OSError as error:
                    outcome.unreadable.append((path, error.strerror or one_line(error)))
                    continue
                aside = self.catalog.aside.get(path)
                if aside is not None and (*aside[:2],) == (status.st_size, status.st_mtime_ns):
                    outcome.notes.append(f"{path}: set aside until it changes; {aside[2]}")
                elif (path, status.st_size, status.st_mtime_ns) not in taken_stats:
                    paths.setdefault((status.st_dev, status.st_ino), path)
        return list(paths.values()), named

    def _untaken(
        self, paths: Sequence[str], outcome: Outcome
    ) -> tuple[list[str], dict[str, tuple[Recording, TakenFile]]]:
        """The files whose content was not taken before, under whatever name; each other file is noted.

        Also by path the taken file that begins like it, where there is one, with its recording.
        """
        untaken: list[str] = []
        grown: dict[str, tuple[Recording, TakenFile]] = {}
        new_heads: dict[str, list[str]] = {}
        taken: dict[str, list[tuple[Recording, TakenFile]]] = {}
        for x in self.catalog.files():
            for name in {x[1].head, x[1].path}:
                taken.setdefault(name, []).append(x)
        for path in paths:
            try:
                head = head_of(path)
                alike = (
                    [*taken.get(head, ()), *(x for x in taken.get(path, ()) if _is_begin(x[1], path))] if head else []
                )
                twins = new_heads.setdefault(head, []) if head else []
                content = full_fingerprint(path) if alike or twins else ""
                if any(full_fingerprint(twin) == content for twin in twins):
                    outcome.notes.append(f"{path}: has the packets of {twins[0]}")
                elif original := next((file for _, file in alike if file.row["fingerprint"] == content), None):
                    outcome.notes.append(f"{path}: was taken as {original.path}")
                    original.copies = [*original.copies[-MAX_COPIES:], _stat(path)]
                    self._is_changed = True
                else:
                    twins.append(path)
                    untaken.append(path)
                    if alike:
                        grown[path] = alike[0]
            except (CaptureError, OSError):
                untaken.append(path)  # the search for captures says why
        return untaken, grown

    def _continued(self, found: Sequence[Capture]) -> dict[str, Recording]:
        """By first file of a capture: the open recording of its folder whose connections go on in it."""
        folders = {_key(capture.files[0])[0] for capture in found}
        opened = [
            x for x in self.catalog.recordings if x.state and x.key[0] in folders and os.path.exists(x.files[-1].path)
        ]
        if not opened:
            return {}
        ends = {id(capture := _capture_of([x.files[-1].path])): (capture, x) for x in opened}
        pairs = links(found, [capture for capture, _ in ends.values()])
        return {later.files[0]: ends[id(earlier)][1] for later, earlier in pairs if id(earlier) in ends}

    def _addition(self, capture: Capture, continued: Recording | None, taken: Sequence[Recording]) -> Addition:
        """The recording that a capture continues, or a new one: files that overlap in time stand alone."""
        if continued is not None and continued not in taken:
            return Addition(continued, capture)
        key = _key(capture.files[0])
        recordings = sorted((x for x in self.catalog.recordings if x.key == key), key=lambda x: x.last_ns)
        if recordings:
            newest, earlier = recordings[-1], recordings[:-1]
            is_alone = any(x.last_ns > newest.first_ns for x in earlier)
            if newest.state is not None and not is_alone and newest not in taken:
                return Addition(newest, capture)
        return Addition(Recording(capture.files[0], key), capture)

    def _take_anew(self, recordings: Sequence[Recording], files: Sequence[str], replaced: str | None = None) -> None:
        """Remove recordings, and want their files again together with new files; not ``replaced``, which is gone."""
        paths = [file.path for recording in recordings for file in recording.files if file.path != replaced]
        if gone := [path for path in paths if not os.path.exists(path)]:
            raise OutputError(f"{gone[0]} is gone, so its recording cannot be taken anew")
        self.catalog.wanted += [*paths, *files]
        self.catalog.removing += [recording.capture for recording in recordings]
        self.catalog.recordings = [x for x in self.catalog.recordings if x not in recordings]

    def only_new(self, additions: Sequence[Addition], outcome: Outcome) -> list[Addition]:
        """The additions that are recordings of their own; other files go to the outcome."""
        for addition in (x for x in additions if x.recording.files):
            reason = f"continues {addition.recording.capture}, which is open; mqpcap export --append {self.folder}"
            outcome.unreadable += [(name, f"{reason} takes it") for name in addition.capture.files]
        return [x for x in additions if not x.recording.files]

    # Runs

    def add(self, additions: Sequence[Addition], outcome: Outcome, meter: Meter, finish: bool = False) -> bool:
        """Writes the rows of one run, and makes them count; whether there was anything to add."""
        if finish:
            named = [x.recording for x in additions]
            additions = [*additions, *(self._end(x) for x in self.catalog.recordings if x.state and x not in named)]
        while additions:
            part = Outcome(outcome.choices)
            try:
                self._add(additions, part, meter, finish)
            except FailedCaptureError as error:
                self._recover()  # removes what the run wrote
                additions = self.without(additions, error, outcome, finish)
            else:
                outcome.add(part)
                return True
        if self._is_changed and self.catalog.run:
            self._save_catalog()
        return False

    def _add(self, additions: Sequence[Addition], outcome: Outcome, meter: Meter, finish: bool) -> None:
        """Adds in one run. If an addition fails, raises FailedCaptureError and leaves the catalog unchanged."""
        with self._run([x.recording for x in additions], threads=outcome.choices.core_count) as tables:
            together, alone = self._read_small(additions, tables, outcome, meter, finish)
            readings = [*together, *(self._read(addition, tables, outcome, meter, finish) for addition in alone)]
            for recording, files, counts, state in readings:
                for file in recording.files:
                    file.row["messages"] += counts.get(file.row["path"], 0)
                self._take(recording, files, state)

    def without(
        self, additions: Sequence[Addition], error: FailedCaptureError, outcome: Outcome, finish: bool
    ) -> list[Addition]:
        """The additions after a failure. Its files that cannot be read alone are set aside, or all of its files."""
        kept: list[Addition] = []
        for addition in additions:
            recording, files = addition.recording, addition.capture.files
            if files != error.files:
                kept.append(addition)
                continue
            reasons = {name: reason for name in files if (reason := _fault_of(name))} or dict.fromkeys(
                files, str(error)
            )
            for name, reason in (reasons or {recording.capture: str(error)}).items():
                outcome.unreadable.append((name, reason))
                self._set_aside(name, reason)
            if left := [name for name in files if name not in reasons]:
                if not recording.files:
                    recording = Recording(left[0], recording.key)
                kept.append(Addition(recording, _capture_of(left)))
            elif finish and files and recording.state:
                kept.append(self._end(recording))
        return kept

    def _set_aside(self, path: str, reason: str) -> None:
        """Note that a file cannot be taken until it changes, if its permissions are not the reason."""
        if os.access(path, os.R_OK):
            _, size_bytes, modified_ns = _stat(path)
            self.catalog.aside[path] = size_bytes, modified_ns, reason
            self.catalog.wanted = [name for name in self.catalog.wanted if name != path]
            self._is_changed = True

    def add_written(
        self, recordings: Sequence[Recording], captures: pa.Table, files: Iterable[tuple[Path, TableFile]]
    ) -> None:
        """Adds whole recordings that were read elsewhere, as a single run; the recordings are finished.

        captures: their rows of the table. files: of all other tables, each with its present path; they move.
        """
        rows = captures_rows(captures)
        with self._run(recordings) as tables:
            for recording in recordings:
                file_rows = [row for row in rows if row["capture"] == recording.capture]
                self._take(recording, _taken(recording, file_rows, [row["path"] for row in file_rows]))
            for path, file in files:
                tables.adopt(path, file)

    @contextmanager
    def _run(
        self, changed: Sequence[Recording], days: Iterable[str] = (), threads: int = 1
    ) -> Iterator[delta_tables.LakeTables]:
        """A run, which counts after the block; ``captures`` is written anew for changed recordings and these days."""
        run = self.catalog.run + 1
        save(self.own / _PENDING, b"")
        tables = delta_tables.LakeTables(self.folder, run, threads)
        try:
            with delta_tables.declared_errors(self.folder):
                yield tables
                days = sorted({*days, *_days(changed)})
                self._write_captures(tables, days)
                tables.close()
                self._commit(tables, run, days)
        finally:
            tables.stop()

    def _end(self, recording: Recording) -> Addition:
        return Addition(recording, Capture(()))

    def _check_options(self) -> None:
        """Raises OutputError if the lake was begun with other options: its rows would not fit together."""
        policy = self.options.policy
        options = {
            "decode_as": sorted([rule.port, rule.protocol] for rule in self.options.decode_as),
            "show_secrets": policy.show_secrets,
            "bodies": policy.bodies,
            "max_memory_bytes": self.options.max_memory_bytes,
        }
        if self.catalog.options and self.catalog.options != options:
            names = [name.replace("_", "-") for name in options if options[name] != self.catalog.options.get(name)]
            raise OutputError(f"{self.folder} was begun with another --{names[0]}; all runs of a lake have the same")
        self.catalog.options = options

    def _read_small(
        self,
        additions: Sequence[Addition],
        tables: delta_tables.LakeTables,
        outcome: Outcome,
        meter: Meter,
        finish: bool,
    ) -> tuple[list[_Reading], list[Addition]]:
        """Read small captures together that begin recordings: what `_read` gives, and all other additions."""
        write = row_writer(outcome, tables)
        new = {id(x.capture): x.recording for x in additions if x.capture.files and not x.recording.files}
        options = replace(self.options, optional_tables=self.options.optional_tables - {"captures"})
        readings: list[_Reading] = []

        def note(part: SmallCapture) -> None:
            note_small(outcome, meter, part)
            recording = new.pop(id(part.capture))
            files = _taken(recording, captures_rows(part.rows.table(None)), part.capture.files)
            state = None if finish else self._save_state(tables, state_of_packets(part.window, part.capture.files))
            readings.append((recording, files, {}, state))

        for group in small_groups([x.capture for x in additions if id(x.capture) in new]):
            read_together(group, options, write, note, ends=finish)
        read_recordings = {id(recording) for recording, *_ in readings}
        return readings, [x for x in additions if id(x.recording) not in read_recordings]

    def _save_state(self, tables: delta_tables.LakeTables, state: bytes) -> str:
        """Write a state to a file of the run; its name."""
        name = f"{tables.run:06d}-{len(self.catalog.recordings):04d}-{os.urandom(4).hex()}.state"
        save(self.own / name, state)
        return name

    def _read(
        self, addition: Addition, tables: delta_tables.LakeTables, outcome: Outcome, meter: Meter, finish: bool
    ) -> _Reading:
        """Read the new files of a recording from its state."""
        recording, failed_count = addition.recording, len(outcome.unreadable)
        write = row_writer(outcome, tables)
        with background(outcome.choices, None) as worker:
            pipeline = self._pipeline(addition, write, worker, finish)
            with blamed_on(addition.capture.files):
                outcome.dissected_count += read(pipeline, outcome, meter)
                if len(outcome.unreadable) > failed_count:
                    raise CaptureError(outcome.unreadable.pop()[1])
                rows, counts = pipeline.rows_of_files()
                files = _taken(recording, rows, addition.capture.files)
        return recording, files, counts, None if finish else self._save_state(tables, pipeline.state())

    def _take(self, recording: Recording, files: Iterable[TakenFile], state: str | None = None) -> None:
        """Add files to a recording, and its next state."""
        recording.files += files
        recording.state = state
        if recording not in self.catalog.recordings:
            self.catalog.recordings.append(recording)

    def _pipeline(self, addition: Addition, write: Emit, worker: Background, finish: bool) -> RecordingPipeline:
        def emit(output: Output) -> None:
            if output.table != "captures":  # which the catalog has
                write(output)

        name = addition.recording.state
        try:
            max_bytes = MAX_STATE_BYTES + self.options.max_memory_bytes
            state = None if name is None else read_state(self.own / name, max_bytes)
            return RecordingPipeline(state, addition.capture, self.options, emit, worker, ends=finish)
        except OSError as error:
            raise OutputError(f"{error.filename} cannot be read: {error.strerror}") from error
        except CaptureError as error:
            raise OutputError(f"{self.folder}: {one_line(error)}") from error

    def _write_captures(self, tables: delta_tables.LakeTables, days: Collection[str]) -> None:
        """Write the rows of ``captures`` of some days, all of them."""
        for day, part in by_date("captures", _rows_of(self.catalog.recordings), DATES["captures"]):
            if day in days:
                tables.write("captures", part, DATES["captures"])

    def _commit(self, tables: delta_tables.LakeTables, run: int, days: Sequence[str]) -> None:
        """Make a run count: the catalog first, then the tables, ``captures`` last."""
        taken = {file.path for _, file in self.catalog.files()}
        self.catalog.wanted = [path for path in self.catalog.wanted if path not in taken]
        self.catalog.run = run
        self._save_catalog()
        tables.commit({"captures": delta_tables.paths_of_days(self.folder, "captures", days)})
        (self.own / _PENDING).unlink()
        self._forget_old()

    def _save_catalog(self) -> None:
        with delta_tables.declared_errors(self.folder):
            path = self.own / f"{self.catalog.run:06d}.json"
            save(path.with_suffix(".new"), self.catalog.text().encode())
            path.with_suffix(".new").rename(path)

    def _forget_old(self) -> None:
        """Delete the catalogs and states that no run needs."""
        states = {recording.state for recording in self.catalog.recordings}
        for path in self.own.glob("[0-9]*"):
            if path.name not in states and int(path.name[:6]) <= self.catalog.run - RUNS_KEPT:
                with suppress(OSError):
                    path.unlink()

    def remove(self, capture: str) -> int:
        """Removes a capture and its files from the lake; returns the number of files."""
        removed = [x for x in self.catalog.recordings if capture in (x.capture, *(file.path for file in x.files))]
        if not removed:
            raise OutputError(f"{self.folder} has no capture {capture!r}; mqpcap lake {self.folder} lists them")
        self.catalog.removing += [x.capture for x in removed]
        self.catalog.recordings = [x for x in self.catalog.recordings if x not in removed]
        self._commit_removal({*_days(removed)})
        return sum(len(x.files) for x in removed)

    def _commit_removal(self, days: set[str] | None = None) -> None:
        """Make a run count that has no row of the removed captures; their rows in other tables follow."""
        every_day = {path.name.partition("=")[2] for path in (self.folder / "captures").glob("date=*")}
        with self._run((), days or every_day):
            pass
        self._remove_rows()


def _below(name: str) -> Iterator[str]:
    """Every file that an input names: a file, the files of a folder, the matches of a pattern."""
    matches = sorted(glob.glob(name, recursive=True)) if not os.path.lexists(name) and glob.has_magic(name) else [name]
    for match in matches:
        if os.path.isdir(match):
            for folder, folders, files in os.walk(match, followlinks=True):
                folders.sort()
                yield from (os.path.join(folder, file) for file in sorted(files))
        elif os.path.lexists(match):
            yield match


def _finished(paths: Sequence[str], outcome: Outcome) -> list[str]:
    """The files without the newest of each set that may still be written."""
    modified = {path: os.stat(path).st_mtime_ns for path in paths}
    newest = {_key(path): path for path in sorted(paths, key=lambda path: modified[path])}
    now_ns = time.time_ns()
    kept = []
    for path in paths:
        age_s = (now_ns - modified[path]) / 1e9
        is_newest = newest[_key(path)] == path
        if is_newest and age_s < IDLE_S:
            outcome.notes.append(f"{path}: left for the next run, as it was written {max(age_s, 0):.0f} s ago")
        elif is_newest and _is_cut(path):
            outcome.notes.append(f"{path}: left until it is longer, as its last record is cut; --finish takes it")
        else:
            kept.append(path)
    return kept


def _is_cut(path: str) -> bool:
    """Whether a file ends inside of a record, as it does while a program's buffer has the rest."""
    with suppress(CaptureError, OSError), closing(InputFile(path, path).open()) as source:
        reader = WindowReader(path, 0, source)
        deque(reader.windows(), 0)
        return any(note.kind == "cut_short" for note in reader.notes)
    return False


def _taken(recording: Recording, rows: Iterable[dict[str, Any]], names: Iterable[str]) -> list[TakenFile]:
    """Files of a recording, by their rows of ``captures`` and their names."""
    return [
        TakenFile(name, head_of(name), row | {"capture": recording.capture}, [_stat(name)])
        for row, name in zip(rows, names, strict=False)  # a file without packets at the end has no row
    ]


def _fault_of(path: str) -> str:
    """Why a file cannot be read to its end; empty if it can."""
    try:
        full_fingerprint(path)
    except (CaptureError, OSError) as error:
        return error_line(error)
    return ""


def _stat(path: str) -> tuple[str, int, int]:
    status = os.stat(path)
    return path, status.st_size, status.st_mtime_ns


def _key(path: str) -> tuple[str, str]:
    """What all files of a file set share: their folder, and their name without counter and time."""
    return os.path.realpath(os.path.dirname(path)), rotated_name(os.path.basename(path)).key


def _is_begin(file: TakenFile, path: str) -> bool:
    """Whether a taken file with few packets may be the begin of the file that is at its path now."""
    row = file.row
    return path == file.path and 0 < (row["packets"] or 0) < HEAD_PACKETS and _first_ns(path) == row["first_ts_ns"]


def _first_ns(path: str) -> int:
    """The time of a file's first packet, 0 without packets."""
    times = span(path, InputFile(path, path).open)
    return times[0] if times is not None else 0


def _capture_of(files: Iterable[str]) -> Capture:
    return Capture(tuple(InputFile(name, name) for name in files))


def _rows_of(recordings: Iterable[Recording]) -> pa.Table:
    """Their rows of ``captures``."""
    return captures_table([file.row for recording in recordings for file in recording.files])


def _days(recordings: Iterable[Recording]) -> list[str]:
    return [day for day, _ in by_date("captures", _rows_of(recordings), DATES["captures"])]


def append(
    folder: Path,
    inputs: Sequence[str],
    outcome: Outcome,
    meter: Callable[[Sequence[Capture]], Meter],
    *,
    finish: bool = False,
    rebuild: bool = False,
) -> None:
    """Adds the new files of inputs to a lake; ``finish`` also ends its recordings, as the end of a capture does.

    ``meter`` gives the progress of captures that are about to be read.
    """
    with Lake(folder, outcome.choices.dissection()) as lake:
        additions = lake.sort_out(inputs, outcome, all_now=finish, rebuild=rebuild)
        lake.add(additions, outcome, meter([addition.capture for addition in additions]), finish)
