"""``mqpcap.export``, ``mqpcap.lake`` and ``mqpcap.ask``: tables of captures, and answers from them."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

import pyarrow as pa

from mqpcap.api.inputs import Source, selected
from mqpcap.delta import check_installed
from mqpcap.errors import CaptureError, MisuseError, MqpcapError, QueryError
from mqpcap.parallel_export import export_captures
from mqpcap.query import Query
from mqpcap.reading import CallOptions, FilterOptions, Inputs
from mqpcap.statistics.report_columns import table_columns
from mqpcap.statistics.row_lines import Answer
from mqpcap.tables.export import ExportSummary, check_export, check_local
from mqpcap.wording import extra_line, misuse_of, plural

if TYPE_CHECKING:
    from mqpcap.delta.contents import LakeContents


def lake(directory: str | os.PathLike[str]) -> "LakeContents":
    """Recordings and tables of a lake that ``export(..., append=directory)`` made. Raises OutputError for another."""
    from mqpcap.delta.contents import lake_contents

    return lake_contents(Path(directory))


@overload
def export(
    path: Source, out: str | os.PathLike[str], filter: str | Query | None = None, *, allow_missing: bool = False,
    prepare: Callable[[], None] | None = None, **options: Unpack[FilterOptions],
) -> ExportSummary: ...  # fmt: skip


@overload
def export(
    path: Source, *, append: str | os.PathLike[str], finish: bool = False, rebuild: bool = False,
    remove: Sequence[str] = (), **options: Unpack[CallOptions],
) -> "LakeContents": ...  # fmt: skip


def export(
    path: Source,
    out: str | os.PathLike[str] | None = None,
    filter: str | Query | None = None,
    *,
    append: str | os.PathLike[str] | None = None,
    finish: bool = False,
    rebuild: bool = False,
    remove: Sequence[str] = (),
    allow_missing: bool = False,
    prepare: Callable[[], None] | None = None,
    **options: Unpack[FilterOptions],
) -> "ExportSummary | LakeContents":
    """Write the tables of captures as Parquet below ``out``, which is new, empty, or holds an earlier export.

    append: a lake that grows instead. finish: its recordings end. rebuild: the recording of a late file is taken anew.
    remove: captures to take out. allow_missing: replace an export even if an input is unreadable. prepare: called
    first in each process that is started. jobs: processes and threads; a script that asks for several begins with
    ``if __name__ == "__main__":``.
    """
    options.setdefault("jobs", 1)
    inputs = selected(path, filter, options)
    is_selected = inputs.wanted is not None or allow_missing
    check_export(out is not None, append is not None, bool(finish or rebuild or remove), is_selected)
    check_local(os.fspath(out if out is not None else append or ""))
    if append is not None:
        return _append(inputs, Path(append), finish, rebuild, remove)
    assert out is not None
    inputs.outcome.choices = replace(inputs.outcome.choices, wanted=inputs.wanted)
    inputs.check(bool(inputs.captures))
    summary = export_captures(inputs.captures, Path(out), inputs.outcome, inputs.progress, allow_missing, prepare)
    inputs.finish()  # an unreadable input is an error after the readable inputs are published
    inputs.check(summary is not None)
    if summary is None:
        raise CaptureError(f"{inputs.captures[0].files[0]}: no packets to export")
    return inputs.outcome.described(summary)


def _append(inputs: Inputs, folder: Path, finish: bool, rebuild: bool, remove: Sequence[str]) -> "LakeContents":
    """Add captures to a lake, after those that are taken out of it."""
    check_installed()
    from mqpcap.delta import contents, growth

    names, outcome = inputs.names, inputs.outcome
    if not (names or finish or remove):
        raise MisuseError("name captures, --finish or --remove")
    for capture in remove:
        with growth.Lake(folder) as lake:
            count = lake.remove(capture)
        inputs.say(f"{folder}: removed {capture} ({plural(count, 'file')})")
    if names or finish:
        growth.append(folder, names, outcome, inputs.metered, finish=finish, rebuild=rebuild)
        counts = f"{plural(outcome.file_count, 'new file')}, {plural(outcome.messages.total(), 'message')}"
        inputs.say(f"{folder}: {counts}")
    inputs.finish()
    return contents.lake_contents(folder) if contents.is_lake(folder) else contents.LakeContents(0, (), ())


def ask(question: str, path: str | Path, *, notes: list[str] | None = None, **parameters: object) -> Answer:
    """The answer to a question of `mqpcap.queries`, from an export, a lake or a capture, by DuckDB.

    path: a directory of tables, else captures, which are exported to a temporary directory. notes: a list; reasons
    why a protocol has no answer are appended. Raises QueryError for an unknown question or parameter. DuckDB is
    in the extra ``lake``; Polars and Spark answer by `mqpcap.queries.run`.
    """
    from mqpcap import queries

    with misuse_of():
        queries.check(question, parameters)
    try:
        import duckdb
    except ImportError as error:
        raise QueryError(f"DuckDB is not installed: {extra_line('lake')}") from error
    with (
        tempfile.TemporaryDirectory(prefix="mqpcap-") as folder,
        duckdb.connect() as con,
        _in_one_line(f"{path}: ", duckdb.Error),
    ):
        if not queries.holds_tables(path):
            export(path, f"{folder}/tables", notes=notes)
            path = f"{folder}/tables"
        queries.tables(con, path)
        answer = queries.run(question, con, **parameters)
        if notes is not None:
            names = con.execute("SELECT DISTINCT protocol FROM messages ORDER BY protocol").fetchall()
            notes += queries.why_not(question, (name for (name,) in names))
        rows: pa.Table = answer.to_arrow_table() if hasattr(answer, "to_arrow_table") else answer.fetch_arrow_table()
        return Answer(table_columns(rows.schema), rows.to_pylist(), is_folded=True, arrow=rows)


@contextmanager
def _in_one_line(place: str, kind: type[Exception]) -> Iterator[None]:
    """An error of a library inside becomes an error of this package, with the first line of its text."""
    try:
        yield
    except kind as error:
        raise MqpcapError(place + (str(error).splitlines() or [kind.__name__])[0]) from error
