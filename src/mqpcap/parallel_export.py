"""Captures exported group by group, each group by a process of its own where there is more than one core.

Python runs one thread at a time and most of a dissection is not compression, so threads alone fill one core and a half.
The files depend on the groups, not on the number of processes: a group has files of its own, and captures are grouped
by their sizes alone.
"""

import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from mqpcap.errors import FailedCaptureError, MqpcapError
from mqpcap.reading import Choices, Meter, Outcome, background, blamed_on, read, size_bytes, wired
from mqpcap.wording import plural

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from pathlib import Path

    import pyarrow as pa

    from mqpcap.background import Background
    from mqpcap.capture import Capture
    from mqpcap.pipeline import CapturePipeline
    from mqpcap.small_captures import SmallCapture
    from mqpcap.tables.export import Export, ExportSummary
    from mqpcap.tables.output import Emit, Output
    from mqpcap.tables.parquet import DateColumn

_Task: TypeAlias = "tuple[list[Capture], Choices, Path]"
"""A group, and the folder where it is to be written."""
GROUP_BYTES = 64 << 20
"""Bytes of captures in a group: two seconds of work, four times the cost of a process."""


def grouped(captures: "Sequence[Capture]") -> "list[list[Capture]]":
    """The captures in their order, in groups of about GROUP_BYTES or one capture.

    A pipe is a group: it cannot be read again when another capture of its group fails.
    """
    groups: list[list[Capture]] = []
    room_bytes = 0
    for capture in captures:
        if room_bytes <= 0 or capture.is_pipe:
            groups.append([])
            room_bytes = GROUP_BYTES
        groups[-1].append(capture)
        room_bytes = 0 if capture.is_pipe else room_bytes - size_bytes([capture])
    return groups


class TableWriter(Protocol):
    """What rows are written to."""

    def write(self, table: str, batch: "pa.RecordBatch | pa.Table", date_column: "DateColumn") -> None:
        """Adds rows to a table."""


def row_writer(outcome: Outcome, tables: TableWriter) -> "Emit":
    """A function that writes the rows of any table, and looks at them for the outcome."""
    import pyarrow.compute as pc

    from mqpcap.tables.parquet import DATES

    def write(output: "Output") -> None:
        outcome.look(output)
        if output.protocol is not None and output.fields is not None:
            tables.write(output.protocol, output.fields, "ts_ns")
        elif output.table == "problems":
            for row in output.rows.select(["kind", "length"]).to_pylist():
                outcome.problem_bytes[row["kind"]] += row["length"]
        elif output.table == "connections":
            begun_inside = pc.and_(pc.invert(output.rows["syn_seen"]), pc.is_valid(output.rows["protocol"]))
            rows = output.rows.filter(begun_inside)  # an array: an expression loads pyarrow's query engine
            outcome.started_inside.update(rows["capture"].to_pylist())
        tables.write(output.table, output.rows, DATES.get(output.table, "ts_ns"))

    return write


def note_neighbours(captures: "Sequence[Capture]", outcome: Outcome) -> None:
    """Note the captures that begin inside connections of a file beside them that was not read."""
    from mqpcap.arrays import file_text
    from mqpcap.capture.inputs import earlier_neighbour

    read_files = {name for capture in captures for name in capture.files}
    for capture in captures:
        name = capture.files[0]
        count = outcome.started_inside[file_text(name)]
        if count and (neighbour := earlier_neighbour(name)) not in (None, *read_files):
            outcome.notes.append(
                f"{name}: begins inside {plural(count, 'connection')}, and {neighbour} lies beside it; "
                "name the folder, or use --append"
            )


def written(captures: "Sequence[Capture]", outcome: Outcome, tables: "Export", meter: Meter) -> None:
    """Write all tables of the captures. Raises FailedCaptureError if one ends the work."""
    from mqpcap.small_captures import read_together, small_groups

    write, note = row_writer(outcome, tables), partial(note_small, outcome, meter)
    is_joined = outcome.choices.wanted is None
    with background(outcome.choices, None) as worker:
        for group in small_groups(captures):
            alone = read_together(group, outcome.choices.dissection(), write, note) if is_joined else group
            for capture in alone:
                _written_alone(capture, outcome, tables, write, worker, meter)


def note_small(outcome: Outcome, meter: Meter, part: "SmallCapture") -> None:
    """Take in a capture that was read together with others."""
    outcome.notes += part.notes()
    outcome.dissected_count += 1
    meter(size_bytes([part.capture]))


def _written_alone(
    capture: "Capture", outcome: Outcome, tables: "Export", write: "Emit", worker: "Background", meter: Meter
) -> None:
    failed_count = len(outcome.unreadable)
    with blamed_on(capture.files):
        pipeline, finished = _pipeline(capture, outcome, write, worker)
        outcome.dissected_count += read(pipeline, outcome, meter)
        finished()
    if len(outcome.unreadable) > failed_count:
        read_files, reason = {facts.file for facts in capture.facts}, outcome.unreadable[-1][1]
        unread = [(name, reason) for name in capture.files if name not in read_files]
        write_unread(tables, unread, "unreadable", capture.files[0])


def _pipeline(
    capture: "Capture", outcome: Outcome, write: "Emit", worker: "Background"
) -> "tuple[CapturePipeline, Callable[[], None]]":
    """A pipeline that writes selected rows, and a function to call after its end."""
    choices = outcome.choices
    if choices.wanted is None:
        return wired(capture, choices.dissection(), lambda output, _: write(output), worker=worker), lambda: None
    from mqpcap.listing.extra_columns import NUMBERED, OTHER_PROTOCOL
    from mqpcap.query import MatchTally, Selection
    from mqpcap.tables.schemas import CONNECTION_NUMBER

    tally = outcome.tally = outcome.tally or MatchTally(choices.wanted)

    def give(output: "Output") -> None:
        tally.match_count += output.rows.num_rows if output.fields is not None else 0
        names = [name for name in output.rows.column_names if name not in (CONNECTION_NUMBER, OTHER_PROTOCOL)]
        write(replace(output, rows=output.rows.select(names)))

    def take(output: "Output", first_ns: int) -> None:
        tally.look(output, first_ns)
        selection.add(output, first_ns)

    selection = Selection(choices.wanted, give)
    options = replace(choices.dissection(), connections=choices.wanted.connections)
    return wired(capture, options, take, NUMBERED, worker), selection.finish


def write_captures(
    captures: "Sequence[Capture]",
    outcome: Outcome,
    tables: "Export",
    meter: Meter,
    prepare: Callable[[], None] | None = None,
) -> None:
    """Write all tables of the captures, in groups side by side where there are several; ``prepare``: see there.

    A capture that fails is left out, with a row in ``captures`` for each of its files.
    """
    groups = grouped(captures)
    for folder, group_outcome in written_in_groups(groups, outcome.choices, tables.scratch, meter, prepare):
        outcome.add(group_outcome)
        if folder.is_dir():
            tables.adopt_all(folder, f"{folder.name}-" if len(groups) > 1 else "")
    for files, reason in outcome.failed:
        outcome.unreadable.append((files[0], reason))
        write_unread(tables, [(name, reason) for name in files], "unreadable", files[0])
    note_neighbours(captures, outcome)


def export_captures(
    captures: "Sequence[Capture]",
    out: "Path",
    outcome: Outcome,
    meter: Meter,
    allow_missing: bool,
    prepare: Callable[[], None] | None = None,
) -> "ExportSummary | None":
    """Write the tables of captures to a directory, with rows of ``captures`` for files that could not be read.

    allow_missing: an earlier export is replaced even if an input could not be read. None: nothing could be read, and
    the directory stays as it was.
    """
    from pathlib import Path

    from mqpcap.tables.captures import is_no_capture
    from mqpcap.tables.export import Export

    missing = list(outcome.unreadable)
    files = [Path(name) for capture in captures for name in capture.files if name != "-"]
    only_new = bool(missing) and not allow_missing
    with Export(out, only_new=only_new, protected=files, threads=outcome.choices.core_count) as tables:
        write_captures(captures, outcome, tables, meter, prepare)
        if not outcome.dissected_count:
            return None  # what was there is worth more than nothing
        write_unread(tables, [x for x in missing if not is_no_capture(x[1])], "unreadable")
        write_unread(tables, [x for x in (*missing, *outcome.skipped) if is_no_capture(x[1])], "no capture")
        tables.only_new = bool(outcome.unreadable) and not allow_missing
        return tables.commit()


def write_unread(tables: "Export", files: Sequence[tuple[str, str]], status: str, capture: str | None = None) -> None:
    """Write rows of ``captures`` for unread files; without ``capture`` each file is a capture of its own."""
    from mqpcap.tables.captures import unread_files
    from mqpcap.tables.parquet import DATES

    for name, reason in files:
        tables.write("captures", unread_files(capture or name, [(name, reason)], status), DATES["captures"])


def _written_apart(captures: "list[Capture]", choices: Choices, folder: "Path", meter: Meter) -> Outcome:
    """Write the tables of captures to a folder of their own; returns the outcome.

    If a capture fails, the folder is dropped and its other captures are read again.
    """
    from mqpcap.tables.export import Export

    failed: list[tuple[tuple[str, ...], str]] = []
    while True:
        left_out = {files for files, _ in failed}
        outcome = Outcome(choices, failed=failed)
        with Export(folder, threads=choices.jobs or 1) as tables:
            try:
                written([c for c in captures if c.files not in left_out], outcome, tables, meter)
            except FailedCaptureError as error:
                failed.append((error.files, str(error)))
                continue
            tables.commit()
            return outcome


def written_in_groups(
    groups: "Sequence[list[Capture]]",
    choices: Choices,
    folder: "Path",
    meter: Meter,
    prepare: Callable[[], None] | None = None,
) -> "Iterator[tuple[Path, Outcome]]":
    """The folder of tables of each group and what it came to, in order; groups are done side by side.

    prepare: a function of a module that each new process calls first.
    """
    jobs = choices.core_count
    process_count = 1 if any(c.is_pipe for group in groups for c in group) else min(jobs, len(groups))
    memory_bytes = choices.dissection(process_count).max_memory_bytes
    task_choices = replace(choices, jobs=max(1, jobs // process_count), max_memory_bytes=memory_bytes)
    tasks = [(group, task_choices, folder / f"{k:05d}") for k, group in enumerate(groups)]
    outcomes = {} if process_count == 1 else _side_by_side(tasks, process_count, meter, prepare)
    for k, task in enumerate(tasks):
        yield task[-1], outcomes[k] if outcomes else _written_apart(*task, meter)


def _side_by_side(
    tasks: "list[_Task]", process_count: int, meter: Meter, prepare: Callable[[], None] | None
) -> dict[int, Outcome]:
    """The outcome of each task, by its number. Raises the error that ended a task.

    If a process is killed, each capture of its task becomes a task. A capture fails if its own task is killed.
    """
    from multiprocessing import get_context
    from multiprocessing.connection import wait

    context = get_context("spawn")  # a fork would copy threads that it does not have
    waiting = deque(range(len(tasks)))
    outcomes: dict[int, Outcome] = {}
    processes: dict[Connection, SpawnProcess] = {}
    task_by_pipe: dict[Connection, int] = {}

    def give(pipe: "Connection") -> None:
        if waiting:
            task_by_pipe[pipe] = number = waiting.popleft()
            pipe.send((number, tasks[number]))

    def start() -> None:
        ours, theirs = context.Pipe()
        processes[ours] = context.Process(target=_serve, args=(theirs, prepare), daemon=True)
        processes[ours].start()
        theirs.close()  # so that the end of the process is the end of the pipe
        give(ours)

    try:
        for _ in range(process_count):
            start()
        while task_by_pipe:
            for pipe in cast("list[Connection]", wait([*task_by_pipe])):
                try:
                    answer = pipe.recv()
                except EOFError:
                    _note_death(task_by_pipe.pop(pipe), processes.pop(pipe), tasks, waiting, outcomes)
                    start()
                    continue
                if isinstance(answer, int):
                    meter(answer)
                elif isinstance(answer, MqpcapError):
                    raise answer
                else:
                    outcomes[task_by_pipe.pop(pipe)] = answer
                    give(pipe)
    finally:
        for process in processes.values():
            process.terminate()
            process.join()
    return outcomes


def _note_death(
    number: int, process: "SpawnProcess", tasks: "list[_Task]", waiting: deque[int], outcomes: dict[int, Outcome]
) -> None:
    """Queue each capture of a task whose process was killed; a capture without others has failed."""
    process.join()
    captures, choices, folder = tasks[number]
    outcomes[number] = Outcome(choices)
    if len(captures) == 1:
        code = process.exitcode or 0
        how = f"signal {-code} ended" if code < 0 else f"exit code {code} of"
        outcomes[number].failed.append((captures[0].files, f"{how} the process that read it"))
        return
    for capture in captures:
        waiting.append(len(tasks))
        tasks.append(([capture], choices, folder.with_name(f"{len(tasks):05d}")))


def _serve(pipe: "Connection", prepare: Callable[[], None] | None) -> None:
    """The life of a process: numbered tasks in; bytes read, what a task came to under its number, or an error out."""
    if prepare is not None:
        prepare()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process gets the signal and ends the other processes
    with suppress(EOFError, BrokenPipeError):
        while True:
            numbered: tuple[int, _Task] = pipe.recv()
            try:
                pipe.send(_written_apart(*numbered[1], pipe.send))
            except MqpcapError as error:
                pipe.send(error)
