"""``mqpcap ask``: sixteen ready questions in SQL, answered from the tables of an export."""

import sys
from typing import TYPE_CHECKING

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import print_note, put, put_rows, wrapped
from mqpcap.cli.options import Parsed, form_options, utc_option
from mqpcap.wording import misuse_of

if TYPE_CHECKING:
    from mqpcap.statistics.row_lines import Form


def _parameter(word: str) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    if not sign:
        raise ValueError(f"{word!r} is not NAME=VALUE")
    return name, value


@command(epilog="Example: mqpcap ask slowest tables --set n=3")
@click.argument("question", required=False, metavar="[QUESTION")
@click.argument("directory", required=False, metavar="DIR]")
@click.option("--set", "settings", type=Parsed(_parameter), multiple=True, metavar="NAME=VALUE",
              help="Set a parameter of the question, as n=3 or client=10.0.0.1 (repeatable).")  # fmt: skip
@click.option("--sql", is_flag=True, help="Print the question's statement, with an explanation of its columns.")
@form_options
@utc_option
def ask(
    question: str | None,
    directory: str | None,
    settings: tuple[tuple[str, str], ...],
    sql: bool,
    form: "Form | None",
    utc: bool,
) -> None:
    """Answer a question about the tables of an export.

    The question comes first; without one, all are listed. DIR may also be a capture or a directory of captures: its
    tables are made in a temporary directory. Each question is a file of standard SQL: DuckDB answers it here, Spark and
    Polars give the same rows.
    """
    from mqpcap import queries

    if question is None:
        for name, text in queries.questions().items():
            put(wrapped(f"{name:<20} {text}", sys.stdout, 21))
        return
    with misuse_of():
        text = queries.statement(question)
        if sql:
            put(text.rstrip())
            return
    if directory is None:
        raise click.UsageError("name the directory of an export, or a capture, too")
    from mqpcap.api.tables import ask as asked

    notes: list[str] = []
    answer = asked(question, directory, notes=notes, **dict(settings))
    put_rows(answer.columns, answer.rows, form or "text", utc, is_folded=True)
    sys.stdout.flush()
    for note in notes:
        print_note(f"note: {note}")
