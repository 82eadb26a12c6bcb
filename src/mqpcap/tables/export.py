"""A directory of tables that appears whole or not at all.

In: record batches from any front end. An :class:`Export` writes them below a hidden directory beside the output
directory, and renames it when everything is written. So a killed export leaves the earlier directory unchanged.

How a file becomes visible
    ``DIR`` is made as ``.DIR.mqpcap-HOST-PID-N``, on the same file system. `commit` exchanges the two in
    one step where the system can (Linux ``renameat2``), else in two renames. Hidden directories of dead
    processes are removed on the way.

Foreign files are never deleted
    The manifest ``_mqpcap.json`` names every file with its size, and each file names its writer in its footer. A
    directory is an earlier export if this holds for every file in it. This is checked before any work, and again
    after the old directory was renamed to a private name; if foreign files appeared meanwhile, it is renamed back.
    Then files with an export's names are deleted singly, and folders only when empty.
"""

import ctypes
import errno
import json
import os
import re
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from mqpcap import __version__
from mqpcap.capture.inputs import is_remote
from mqpcap.errors import MisuseError, OutputError
from mqpcap.records import dataclass
from mqpcap.tables.parquet import (
    MAX_BUFFERED_BYTES,
    MAX_GROUP_BYTES,
    SCHEMA_VERSION,
    VERSION,
    DateColumn,
    DayPart,
    RowFiles,
    TableFile,
)
from mqpcap.wording import plural, size

MANIFEST: Final = "_mqpcap.json"
SCRATCH: Final = ".scratch"
MAX_MANIFEST_BYTES: Final = 64 * 1024 * 1024

WRITTEN: Final = re.compile(r"[^/.][^/]*/date=[0-9]{4}-[0-9]{2}-[0-9]{2}/([0-9]{5,}-)?part-[0-9]{5,}\.parquet")
"""Names of the files of an export; the first number belongs to a group of captures."""
_UNFINISHED: Final = re.compile(rf"({re.escape(SCRATCH)}/[^/]+/)?({re.escape(MANIFEST)}|{WRITTEN.pattern})")
_OLD: Final = "-old"
"""Suffix of the hidden name of the earlier directory, if two names cannot be exchanged in a single step."""
_DAY: Final = re.compile(r"[^/.][^/]*/date=[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class TableSummary:
    """Counts of a table after its export."""

    name: str
    row_count: int
    file_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """Result of an export: its directory, and its tables by name."""

    out: Path
    tables: tuple[TableSummary, ...]
    replaced: str | None = None
    """The contents of the earlier export there, in words."""
    source: str = ""
    """The captures and files that were read, in words."""
    losses: str = ""
    """Messages with a flaw and bytes that are in no message, in words."""

    def lines(self, name: str | None = None) -> Iterator[str]:
        """The summary for people; name: the directory as it was given."""
        rows, files = plural(self.row_count, "row"), plural(self.file_count, "file")
        yield f"{name or self.out}: {rows} in {files}, {size(self.size_bytes)}, from {self.source}"
        width = max((len(table.name) for table in self.tables), default=0)
        yield from (f"  {table.name:<{width}}  {plural(table.row_count, 'row')}" for table in self.tables)
        if self.replaced is not None:
            yield f"it replaces an earlier export of {self.replaced}"
        yield self.losses

    @property
    def row_count(self) -> int:
        """Rows over all tables."""
        return sum(table.row_count for table in self.tables)

    @property
    def file_count(self) -> int:
        """Parquet files over all tables."""
        return sum(table.file_count for table in self.tables)

    @property
    def size_bytes(self) -> int:
        """Bytes of all Parquet files."""
        return sum(table.size_bytes for table in self.tables)


def check_local(folder: str) -> None:
    """Raises OutputError for a directory that is a URI."""
    if is_remote(folder):
        from mqpcap.capture.remote import redacted_uri

        raise OutputError(
            f"{redacted_uri(folder)} is no path of this machine; mqpcap spark export --out writes to stores"
        )


def check_export(to_tables: bool, to_lake: bool, of_lakes: bool, is_selected: bool) -> None:
    """Raises MisuseError if an export is not asked for one thing.

    to_tables, to_lake: --out, --append. of_lakes: --finish, --rebuild or --remove. is_selected: -i, a filter or
    --allow-missing.
    """
    if to_tables == to_lake:
        raise MisuseError("name either --out DIR or --append DIR")
    if to_lake and is_selected:
        raise MisuseError("--append goes with files, without -i, a filter or --allow-missing")
    if to_tables and of_lakes:
        raise MisuseError("--finish, --rebuild and --remove go with --append")


class Export(RowFiles):
    """One directory of tables in the making; also a context manager that aborts unless committed.

    ``only_new``: an earlier export is not replaced; may be set until `commit`. ``protected`` are the captures being
    read: a directory that holds any of them is never replaced. ``threads`` write row groups of different tables at
    the same time.
    Raises OutputError before any work when the directory may not be written or replaced.

    >>> import pyarrow as pa, tempfile
    >>> from pathlib import Path
    >>> row = pa.RecordBatch.from_pydict({"ts_ns": pa.array([86_400_000_000_000], pa.int64())})
    >>> with tempfile.TemporaryDirectory() as folder, Export(Path(folder) / "tables") as export:
    ...     export.write("messages", row, "ts_ns")
    ...     export.commit().row_count, (Path(folder) / "tables/messages/date=1970-01-02").is_dir()
    (1, True)
    """

    def __init__(self, out: Path, *, only_new: bool = False, protected: Iterable[Path] = (), threads: int = 1) -> None:
        # DIR itself may be no link, so its name stays, wherever its parents lead.
        self.out = out if os.path.islink(out) else _resolved(out)
        self.only_new = only_new
        self._shown = out
        self._protected = tuple(_resolved(path) for path in protected)
        self._done = False
        self.check()
        self._building = self._new_building()
        super().__init__(MAX_GROUP_BYTES, MAX_BUFFERED_BYTES, threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def write(self, table: str, batch: pa.RecordBatch | pa.Table, date_column: DateColumn) -> None:
        """Adds rows to a table, each to the UTC day of its nanoseconds in ``date_column``.

        If there are several columns, the first value that is not null counts. All batches of a table have one schema.
        Raises OutputError if a row has no date or cannot be stored; all is aborted then.
        """
        with self._aborting():
            super().write(table, batch, date_column)

    def adopt(self, table: str, file: Path, name: str, row_count: int) -> None:
        """Takes in a finished Parquet file of a table, on the same file system: it moves to ``TABLE/name``."""
        with self._aborting():
            path = self._building / table / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                file.rename(path)
                size_bytes = path.stat().st_size
            except OSError as error:
                raise OutputError(f"cannot take in {file}: {error.strerror or error}") from error
            self.files.append(TableFile(f"{table}/{name}", table, row_count, size_bytes))

    def adopt_all(self, folder: Path, prefix: str) -> None:
        """Takes in all tables of another export, made in ``scratch``, with a prefix to the names of its files."""
        manifest = json.loads((folder / MANIFEST).read_bytes())
        for file in manifest["files"]:
            table, date, part = file["path"].split("/")
            self.adopt(table, folder / file["path"], f"{date}/{prefix}{part}", file["row_count"])
        shutil.rmtree(folder, ignore_errors=True)

    @property
    def scratch(self) -> Path:
        """A folder for unfinished files, on the same file system; removed by `commit`."""
        return self._building / SCRATCH

    def commit(self) -> ExportSummary:
        """The summary, after the tables have become visible in the output directory."""
        with self._aborting():
            self._close_all()
            self.files.sort(key=lambda file: file.path)
            try:
                shutil.rmtree(self.scratch, ignore_errors=True)
                (self._building / MANIFEST).write_bytes(manifest(self.files))
                self.check()  # another program may have written there meanwhile
                replaced = self._publish()
            except OSError as error:
                raise OutputError(f"cannot publish {self._shown}: {error.strerror or error}") from error
        self._done = True
        self.stop()
        return ExportSummary(self.out, tuple(table_summaries(self.files)), replaced)

    def abort(self) -> None:
        """Removes all that was written, unless it is committed; the directory asked for stays as it was."""
        if self._done:
            return
        self._done = True
        self.stop()
        self._drop_all()
        remove(self._building)

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        """Makes a failure final: after it nothing can be published, so nothing can be missing in it."""
        if self._done:
            raise OutputError(f"{self._shown} is already committed or aborted")
        try:
            yield
        except BaseException:
            self.abort()
            raise

    # The directory asked for

    def check(self) -> None:
        """Raises OutputError if the directory may not be written or replaced."""
        directory, shown = self.out, self._shown
        if directory.is_symlink():
            raise OutputError(f"{shown} is a symbolic link; name the directory it leads to")
        if not os.path.lexists(directory):
            return
        if not directory.is_dir():
            raise OutputError(f"{shown} is a file, not a directory")
        for place, what in ((Path.cwd(), "the working directory"), (_home(), "the home directory")):
            if place is not None and place.is_relative_to(directory):
                raise OutputError(f"{shown} is or holds {what}, which is never replaced")
        for path in self._protected:
            if path.is_relative_to(directory):
                raise OutputError(f"{shown} holds the input {path}, so it cannot be replaced")
        if directory.is_mount():
            raise OutputError(f"{shown} is a mount point and cannot be renamed; name a directory below it")
        if self._is_export(directory) and self.only_new:
            raise replace_error(shown)

    def _is_export(self, folder: Path) -> bool:
        """Whether an earlier export is in the directory, False if nothing is; raises OutputError for anything else."""
        try:
            sizes_by_path = sizes(folder)
            size_bytes = sizes_by_path.get(MANIFEST, 0)
            manifest = (folder / MANIFEST).read_bytes() if 0 < size_bytes <= MAX_MANIFEST_BYTES else b""
            foreign_file = find_foreign_file(sizes_by_path, manifest, lambda name: folder / name)
        except OSError as error:
            raise OutputError(f"cannot look into {self._shown}: {error.strerror or error}") from error
        if foreign_file is not None:
            raise foreign_content_error(self._shown, foreign_file)
        return bool(sizes_by_path)

    def _publish(self) -> str | None:
        """Gives the new directory its name. The earlier directory is removed if it is an export, else renamed back.

        Returns the contents of an earlier export, in words.
        """
        building, directory = self._building, self.out
        if self.only_new or not os.path.lexists(directory):
            building.rename(directory)  # fails where something is
            return None
        exchanged = _exchange(building, directory)
        old = building if exchanged else building.with_name(building.name + _OLD)
        if not exchanged:
            directory.rename(old)
        try:
            if old.is_symlink() or not old.is_dir():
                raise OutputError(f"{self._shown} became something else than a directory")
            self._is_export(old)
            if not exchanged:
                building.rename(directory)
        except (OSError, OutputError):
            if not (exchanged and _exchange(old, directory)):
                old.rename(directory)
            raise
        replaced = _contents(old)
        remove(old)
        return replaced

    def _new_building(self) -> Path:
        parent = self.out.parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
            _remove_stale(parent, self.out)
            number = 0
            while True:
                building = parent / _building_name(self.out.name, number)
                try:
                    building.mkdir()
                    return building
                except FileExistsError:
                    number += 1
        except OSError as error:
            raise OutputError(f"cannot write in {parent}: {error.strerror or error}") from error

    def _root(self, table: str) -> Path:
        return self._building

    def _new_name(self, part: DayPart) -> str:
        while (self._building / (name := f"{part.table}/date={part.date}/part-{part.number:05d}.parquet")).exists():
            part.number += 1  # adopted
        return name


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise OutputError(f"cannot follow {path}: {error}") from error


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except (OSError, RuntimeError):
        return None


def find_foreign_file(
    sizes_by_path: Mapping[str, int],
    manifest: bytes,
    opened: "Callable[[str], Path | pa.NativeFile]",
    each: "Callable[[Callable[[str], bool], list[str]], Iterable[bool]]" = map,
) -> str | None:
    """The first file in a directory that no export wrote, None if there is none.

    found: every file with its size. Somebody else may have written a manifest, so a file it names must have a name that
    exports give, and its footer must say that it is ours.
    """
    named = _named(manifest)
    ours = [name for name, size in sizes_by_path.items() if named.get(name) == size and WRITTEN.fullmatch(name)]
    proven = {name for name, yes in zip(ours, each(lambda name: _is_own_file(opened(name)), ours), strict=True) if yes}
    if named:
        proven.add(MANIFEST)
    return min(sizes_by_path.keys() - proven, default=None)


def _contents(folder: Path) -> str | None:
    """The number of files and rows of an export, in words; None without an export."""
    if not (folder / MANIFEST).exists():
        return None
    rows: Counter[str] = Counter()
    for file in json.loads((folder / MANIFEST).read_bytes())["files"]:
        rows[file["path"].partition("/")[0]] += file["row_count"]
    return f"{plural(rows['captures'], 'file')} ({plural(rows.total(), 'row')})"


def _named(manifest: bytes) -> dict[str, int]:
    """Every file that a manifest names, itself too, with its size; nothing if it is none of ours."""
    try:
        content = json.loads(manifest)
        named: dict[str, int] = {file["path"]: file["size_bytes"] for file in content["files"]}
        return named | {MANIFEST: len(manifest)} if content["tool"] == "mqpcap" else {}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _is_own_file(file: "Path | pa.NativeFile") -> bool:
    try:
        return VERSION in (pq.read_metadata(file).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def foreign_content_error(shown: object, name: str) -> OutputError:
    """The error for a directory with files that no export wrote."""
    return OutputError(f"{shown} holds {name!r}, which no export wrote; name an empty or a new directory")


def replace_error(shown: object) -> OutputError:
    """The error for an earlier export that is not replaced."""
    return OutputError(f"{shown} stays as it was, as not all inputs can be read; --allow-missing replaces it")


def sizes(folder: Path) -> dict[str, int]:
    """Every file below the folder with its size; what is no plain file counts as -1 bytes, as does an empty folder.

    A day without files is none: one was left where a table was replaced file by file.
    """
    sizes_by_path: dict[str, int] = {}
    for root, folders, files in os.walk(folder, onerror=_raise):
        for name in files + [name for name in folders if (Path(root) / name).is_symlink()]:
            path = Path(root) / name
            plain = path.is_file() and not path.is_symlink()
            sizes_by_path[path.relative_to(folder).as_posix()] = path.stat().st_size if plain else -1
        below = Path(root).relative_to(folder).as_posix()
        if not (folders or files or below == "." or _DAY.fullmatch(below)):
            sizes_by_path[f"{below}/"] = -1
    return sizes_by_path


def _raise(error: OSError) -> None:
    raise error


def manifest(files: Sequence[TableFile]) -> bytes:
    """The manifest that names these files."""
    named = [{"path": file.path, "row_count": file.row_count, "size_bytes": file.size_bytes} for file in files]
    content = {"tool": "mqpcap", "version": __version__, "schema_version": SCHEMA_VERSION, "files": named}
    return json.dumps(content, indent=1).encode() + b"\n"


def table_summaries(files: Sequence[TableFile]) -> Iterator[TableSummary]:
    """Counts of each table."""
    for name in sorted({file.table for file in files}):
        table_files = [file for file in files if file.table == name]
        yield TableSummary(
            name,
            sum(file.row_count for file in table_files),
            len(table_files),
            sum(file.size_bytes for file in table_files),
        )


def _building_name(name: str, number: int) -> str:
    return f".{name}.mqpcap-{_host()}-{os.getpid()}-{number}"


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())


def _remove_stale(parent: Path, out: Path) -> None:
    """Removes what killed exports to the same name left, if their process ran here and is gone.

    If an export was killed between its two renames, the earlier export is renamed back to ``out``.
    """
    host = re.escape(_host())
    pattern = re.compile(rf"\.{re.escape(out.name)}\.mqpcap-{host}-([0-9]{{1,10}})-[0-9]+({_OLD})?")
    for path in parent.iterdir():
        match = pattern.fullmatch(path.name)
        if not match or path.is_symlink() or is_running(int(match[1])):
            continue
        if match[2] and not os.path.lexists(out) and _is_whole(path):
            path.rename(out)
        else:
            remove(path)


def _is_whole(folder: Path) -> bool:
    with suppress(OSError):
        return _named((folder / MANIFEST).read_bytes()) == sizes(folder)
    return False


def remove(folder: Path, ours: re.Pattern[str] = _UNFINISHED) -> None:
    """Removes the files below a folder whose whole names fit, by default those of exports, and the folders left empty.

    Through open folders, so that no link put in the place of one leads elsewhere.
    """
    with suppress(OSError):
        for root, folders, files, folder_fd in os.fwalk(folder, topdown=False):
            below = Path(root).relative_to(folder)
            for name in files:
                if ours.fullmatch((below / name).as_posix()):
                    os.unlink(name, dir_fd=folder_fd)
            for name in folders:
                with suppress(OSError):
                    os.rmdir(name, dir_fd=folder_fd)
        folder.rmdir()


def is_running(pid: int) -> bool:
    """Whether a process of this machine has that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _exchange(path: Path, other_path: Path) -> bool:
    """Whether the two names could be exchanged in one step."""
    at_working_directory, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE of linux/fs.h
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    failed = renameat2(at_working_directory, os.fsencode(path), at_working_directory, os.fsencode(other_path), exchange)
    if failed and ctypes.get_errno() not in {errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EPERM}:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other_path))
    return not failed
