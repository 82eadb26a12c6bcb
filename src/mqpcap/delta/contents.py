"""The contents of a lake: its recordings, the gaps between their files, rows, sizes and versions of its tables."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from mqpcap.delta import tables as delta_tables
from mqpcap.delta.catalog import FOLDER, Recording, load_catalog
from mqpcap.errors import OutputError


@dataclass(frozen=True, slots=True)
class LakeRecording:
    """A recording; ``is_open``: it goes on, and connections wait in its state of ``state_bytes``.

    gap_ns: the longest time between the last packet of a file and the first of the next; null with one file.
    """

    capture: str
    file_count: int
    packets: int
    messages: int
    first_ts_ns: int | None
    last_ts_ns: int | None
    gap_ns: int | None
    is_open: bool
    state_bytes: int


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table: its rows, the files and bytes that its newest version needs, and that version."""

    name: str
    row_count: int
    file_count: int
    size_bytes: int
    version: int


@dataclass(frozen=True, slots=True)
class LakeContents:
    """The number of runs of a lake, its recordings and its tables."""

    run: int
    recordings: tuple[LakeRecording, ...]
    tables: tuple[LakeTable, ...]


def is_lake(folder: Path) -> bool:
    """Whether a folder is a lake."""
    return (folder / FOLDER).is_dir()


def lake_contents(folder: Path) -> LakeContents:
    """The contents of a lake. Raises OutputError if the folder is not a lake, or its catalog cannot be read."""
    if not is_lake(folder):
        raise OutputError(f"{folder} is no lake; mqpcap export INPUT... --append {folder} makes one")
    with delta_tables.declared_errors(folder):
        run = delta_tables.committed_run(folder)
        recordings = load_catalog(folder, run).recordings
        tables = [LakeTable(name, *delta_tables.totals(folder, name)) for name in delta_tables.table_names(folder)]
    return LakeContents(run, tuple(_recording(folder, x) for x in recordings), tuple(tables))


def _recording(folder: Path, recording: Recording) -> LakeRecording:
    rows = [file.row for file in recording.files if file.row["first_ts_ns"] is not None]
    gaps = [later["first_ts_ns"] - earlier["last_ts_ns"] for earlier, later in pairwise(rows)]
    state = None if recording.state is None else folder / FOLDER / recording.state
    return LakeRecording(
        recording.capture, len(recording.files), sum(row["packets"] or 0 for row in rows),
        sum(row["messages"] or 0 for row in rows), rows[0]["first_ts_ns"] if rows else None,
        recording.last_ns or None, max(gaps, default=None), state is not None,
        state.stat().st_size if state is not None and state.exists() else 0,
    )  # fmt: skip
