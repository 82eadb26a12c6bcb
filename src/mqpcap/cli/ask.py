"""``mqpcap ask``: fifteen ready questions in SQL, answered from the tables of an export."""

import sys
from typing import TYPE_CHECKING

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import print_note, put, wrapped
from mqpcap.cli.options import form_options, utc_option
from mqpcap.cli.rows import Form, write

if TYPE_CHECKING:
    import pyarrow as pa

    from mqpcap.statistics.report_columns import Column


def _parameters(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> dict[str, int | str]:
    values: dict[str, int | str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise click.BadParameter(f"{word!r} is not NAME=VALUE", ctx, param)
        values[name] = int(value) if value.isdecimal() and value.isascii() else value
    return values


@command(epilog="Example: mqpcap ask slowest tables --set n=3")
@click.argument("question", required=False, metavar="[QUESTION")
@click.argument("directory", required=False, metavar="DIR]")
@click.option("--set", "parameters", multiple=True, callback=_parameters, metavar="NAME=VALUE",
              help="Set a parameter of the question, as n=3 or client=10.0.0.1 (repeatable).")  # fmt: skip
@click.option("--sql", is_flag=True, help="Print the question's statement, with an explanation of its columns.")
@form_options
@utc_option
def ask(
    question: str | None,
    directory: str | None,
    parameters: dict[str, int | str],
    sql: bool,
    form: Form | None,
    utc: bool,
) -> None:
    """Answer a question about the tables of an export.

    Without a question: lists them. DIR may also be a capture or a directory of captures: its tables are made in a
    temporary directory. Each question is a file of standard SQL: DuckDB answers it here, Spark and Polars give the same
    rows.
    """
    from mqpcap import queries
    from mqpcap.errors import QueryError

    if question is None:
        for name, text in queries.questions().items():
            put(wrapped(f"{name:<20} {text}", sys.stdout, 21))
        return
    try:
        text = queries.statement(question)
        if sql:
            put(text.rstrip())
            return
        if directory is None:
            raise click.UsageError("name the directory of an export, or a capture, too")
        queries.check(question, parameters)
    except QueryError as error:
        raise click.UsageError(str(error)) from None
    from mqpcap.api import ask as asked

    notes: list[str] = []
    answer = asked(question, directory, notes=notes, **parameters)
    columns = [_column(field, i) for i, field in enumerate(answer.schema)]
    write(columns, answer.to_pylist(), form or "text", utc, is_folded=True)
    sys.stdout.flush()
    for note in notes:
        print_note(f"note: {note}")


KEYS = ("capture", "capture_file", "connection_id", "_offset", "_last_packet", "request_ts_ns", "reply_ts_ns")
"""Ends of the names of columns that identify a row for programs, or say less than a column beside them."""


def _column(field: "pa.Field", index: int) -> "Column":
    """A column as people read it: times as clock times, counts with separators, ids and ports as they are.

    Columns beyond the first are left out, keys first, then the last one first, where a terminal has no room for all.
    """
    import pyarrow as pa

    from mqpcap.statistics.report_columns import Column

    name, is_spare = field.name, index > 0
    title = name.removesuffix("_ns").replace("first_packet", "packet").replace("_", " ")
    if name.endswith(KEYS):
        return Column(name, title, "key", is_spare)
    if name.endswith("ts_ns") or name == "window_start_ns":
        return Column(name, title, "clock", is_spare)
    if name.endswith("_packet"):
        return Column(name, title, "packet", is_spare)
    if name.endswith(("_id", "_port", "_code")):
        return Column(name, title, "plain", is_spare)
    is_number = any(test(field.type) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))
    return Column(name, title, "us" if name.endswith("_us") else "number" if is_number else "text", is_spare)
