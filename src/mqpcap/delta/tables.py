"""Rows to the Delta tables of a lake: files of one run, committed table by table, ``captures`` last.

In: record batches, as for an export. Out: ``DIR/TABLE/date=.../part-RUN-...parquet`` and the tables' logs. The number
of the run is in every file's name. A killed run leaves files that no log names, or logs without the last commit: `undo`
removes both, so a run counts if ``captures`` has its number, and else nothing of it does.
"""

import json
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction, create_table_with_add_actions
from pyarrow.dataset import dataset

from mqpcap.errors import OutputError, one_line
from mqpcap.protocols import protocols
from mqpcap.tables.parquet import (
    DATES,
    MAX_BUFFERED_BYTES,
    MAX_FILE_BYTES,
    MAX_GROUP_BYTES,
    DayPart,
    RowFiles,
    TableFile,
)
from mqpcap.tables.schemas import TABLES, plain, protocol_schema

APP: Final = "mqpcap"
"""The application whose number of runs ``captures`` has in its log."""
MARK: Final = "captures"
"""The table that is committed last."""
DAY: Final = "date"
_OURS: Final = re.compile(r"part-([0-9]{6})-[0-9a-f]{8}-[0-9]{5}\.parquet")
_PARTITION: Final = pa.field(DAY, pa.date32(), metadata={"comment": "UTC day of the row's time"})
COMPACT_BYTES: Final = MAX_FILE_BYTES // 4
"""Files below this size are compacted."""


@contextmanager
def declared_errors(folder: Path) -> Iterator[None]:
    """Errors of the table format, its files and the disk, as OutputError."""
    try:
        yield
    except (DeltaError, pa.ArrowInvalid) as error:
        raise OutputError(f"{folder}: {one_line(error)}") from error
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror or one_line(error)}") from error


def opened(folder: Path, table: str) -> DeltaTable | None:
    """A table of the lake, None if it has no rows yet."""
    path = folder / table
    return DeltaTable(path) if (path / "_delta_log").is_dir() else None


def table_names(folder: Path) -> list[str]:
    """The tables of a lake."""
    return sorted(path.parent.name for path in folder.glob("*/_delta_log"))


def committed_run(folder: Path) -> int:
    """The number of the last run that counts, 0 before the first."""
    table = opened(folder, MARK)
    return 0 if table is None else table.transaction_version(APP) or 0


class LakeTables(RowFiles):
    """The rows of one run; nothing counts before `commit`."""

    def __init__(self, folder: Path, run: int, threads: int = 1) -> None:
        self.folder, self.run = folder, run
        self._token, self._number = secrets.token_hex(4), 0
        super().__init__(MAX_GROUP_BYTES, MAX_BUFFERED_BYTES, threads)

    def close(self) -> None:
        """Writes the rows that are still buffered."""
        with declared_errors(self.folder):
            self._close_all()

    def commit(self, replaced: Mapping[str, Sequence[str]]) -> None:
        """Makes the rows visible, in ``captures`` last; ``replaced``: by table, files whose rows these replace."""
        by_table: dict[str, list[TableFile]] = {MARK: []}
        for file in self.files:
            by_table.setdefault(file.table, []).append(file)
        with declared_errors(self.folder):
            for table in sorted(by_table, key=lambda name: (name == MARK, name)):
                self._commit(table, by_table[table], replaced.get(table, ()))

    def _commit(self, table: str, files: Sequence[TableFile], replaced: Sequence[str]) -> None:
        path = self.folder / table
        adding = [_add_action(path, file, table) for file in files]
        properties = CommitProperties(
            app_transactions=[Transaction(APP, self.run)] if table == MARK else None,
            custom_metadata={"mqpcap.run": self.run},
        )
        schema = delta_schema(table)
        if (existing := opened(self.folder, table)) is None:
            create_table_with_add_actions(
                str(path), schema, adding, partition_by=[DAY], name=table, commit_properties=properties
            )
        else:
            removing = [RemoveAction(name, True, _now_ms()) for name in replaced]
            existing.create_write_transaction(
                [*adding, *removing], "append", schema, [DAY], commit_properties=properties
            )

    def adopt(self, path: Path, file: TableFile) -> None:
        """Takes in a finished file on the same file system, which moves; its name begins with the folder of its day."""
        name = self._name_of_day(file.path.partition("/")[0])
        new = self._root(file.table) / name
        new.parent.mkdir(parents=True, exist_ok=True)
        path.rename(new)
        self.files.append(replace(file, path=name))

    def _root(self, table: str) -> Path:
        return self.folder / table

    def _new_name(self, part: DayPart) -> str:
        return self._name_of_day(f"{DAY}={part.date}")

    def _name_of_day(self, day: str) -> str:
        self._number += 1
        return f"{day}/part-{self.run:06d}-{self._token}-{self._number - 1:05d}.parquet"


def delta_schema(table: str) -> Schema:
    """The columns of a table in Delta's types, with their comments."""
    return Schema.from_arrow(_columns(table).append(_PARTITION))


def _columns(table: str) -> pa.Schema:
    """The columns of a table's files; any may be null, as the table format has it."""
    columns = plain(TABLES[table]) if table in TABLES else plain(protocol_schema(protocols()[table]))
    return pa.schema([field.with_nullable(True) for field in columns])


def _add_action(folder: Path, file: TableFile, table: str, is_new: bool = True) -> AddAction:
    day = file.path.partition("/")[0].partition("=")[2]
    stats: dict[str, Any] = {"numRecords": file.row_count}
    date_column = DATES.get(table, "ts_ns")
    if isinstance(date_column, str) and date_column.endswith("_ns"):
        footer = pq.read_metadata(folder / file.path)
        index = footer.schema.names.index(date_column)
        bounds = [footer.row_group(k).column(index).statistics for k in range(footer.num_row_groups)]
        stats |= {
            "minValues": {date_column: min(x.min for x in bounds)},
            "maxValues": {date_column: max(x.max for x in bounds)},
            "nullCount": {date_column: 0},
        }
    return AddAction(file.path, file.size_bytes, {DAY: day}, _now_ms(), is_new, json.dumps(stats))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def paths_of_days(folder: Path, table: str, days: Iterable[str]) -> list[str]:
    """The files of a table with rows of some days."""
    if (existing := opened(folder, table)) is None:
        return []
    return [name for name, _ in _active(existing) if name.partition("/")[0].partition("=")[2] in {*days}]


def _active(table: DeltaTable) -> list[tuple[str, int]]:
    """The files that count, with their sizes."""
    actions = pa.table(table.get_add_actions(flatten=True))
    return list(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))


def totals(folder: Path, name: str) -> tuple[int, int, int, int]:
    """Rows, files, bytes and version of a table."""
    table = opened(folder, name)
    assert table is not None
    actions = pa.table(table.get_add_actions(flatten=True))
    rows, sizes = (pc.sum(actions[column]).as_py() or 0 for column in ("num_records", "size_bytes"))
    return rows, actions.num_rows, sizes, table.version()


def undo(folder: Path, run: int) -> None:
    """Removes the files and rows of all later runs."""
    with declared_errors(folder):
        for name in table_names(folder):
            table = opened(folder, name)
            assert table is not None
            later = [path for path, _ in _active(table) if _run_of(path) > run]
            if later:
                removing: list[AddAction | RemoveAction] = [RemoveAction(path, True, _now_ms()) for path in later]
                table.create_write_transaction(removing, "append", table.schema(), [DAY])
        for path in folder.glob(f"*/{DAY}=*/part-*.parquet"):
            if _run_of(path.name) > run:
                path.unlink()


def _run_of(path: str) -> int:
    match = _OURS.fullmatch(path.rpartition("/")[2])
    return int(match[1]) if match else 0


def remove_rows(folder: Path, capture: str) -> None:
    """Removes the rows of a capture from all tables but ``captures``."""
    literal = "'" + capture.replace("'", "''") + "'"
    with declared_errors(folder):
        for name in table_names(folder):
            table = opened(folder, name) if name != MARK else None
            if table is not None:
                table.delete(f"capture = {literal}")


def optimize(folder: Path, run: int) -> Iterator[tuple[str, int, int]]:
    """Makes large files of the small files of a day, by time and connection: table, file counts before and after."""
    with declared_errors(folder):
        for name in table_names(folder):
            table = opened(folder, name)
            assert table is not None
            active = [path for path, size_bytes in _active(table) if size_bytes < COMPACT_BYTES]
            by_day: dict[str, list[str]] = {}
            for path in active:
                by_day.setdefault(path.partition("/")[0], []).append(path)
            small = {day: paths for day, paths in by_day.items() if len(paths) > 1}
            if not small:
                continue
            tables = LakeTables(folder, run)
            for paths in small.values():
                files = [str(folder / name / path) for path in sorted(paths)]
                # One schema: deltalake writes files of its own types, as string_view, where it deletes rows.
                rows = _rows(folder / name, files, name)
                tables.write(name, _sorted(rows, name), DATES.get(name, "ts_ns"))
            tables.close()
            adding = [_add_action(folder / name, file, name, is_new=False) for file in tables.files]
            removing = [RemoveAction(path, False, _now_ms()) for paths in small.values() for path in paths]
            table.create_write_transaction([*adding, *removing], "append", delta_schema(name), [DAY])
            yield name, len(removing), len(adding)


def _rows(folder: Path, files: Sequence[str], table: str) -> pa.Table:
    """All rows of some files of a table. Raises OutputError that names what cannot be read."""
    try:
        return dataset(files, schema=_columns(table)).to_table()
    except (OSError, pa.ArrowException) as error:
        raise OutputError(f"cannot read {folder}: {one_line(error)}") from error


def _sorted(rows: pa.Table, table: str) -> pa.Table:
    """Rows by time, and by connection at the same time."""
    date_column = DATES.get(table, "ts_ns")
    names = [
        name for name in ((date_column,) if isinstance(date_column, str) else date_column) if isinstance(name, str)
    ]
    times = pc.coalesce(*(rows[name] for name in names)) if len(names) > 1 else rows[names[0]]
    keys = {"time": times} | {
        name: rows[name] for name in ("connection_id", "stream_offset") if name in rows.column_names
    }
    return rows.take(pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys]))


def vacuum(folder: Path, keep_hours: int) -> int:
    """Deletes files that no version of the last hours needs; returns their number."""
    count = 0
    with declared_errors(folder):
        for name in table_names(folder):
            table = opened(folder, name)
            assert table is not None
            count += len(table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False))
    return count
