"""The options that choose fields."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from mqpcap.cli.completion import fields as field_names
from mqpcap.cli.options import P, R, misuse_of

if TYPE_CHECKING:
    from mqpcap.listing.field_lines import FieldLines


def split_names(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """Names with commas between, of a repeatable option."""
    return tuple(name for word in words for name in (part.strip() for part in word.split(",")) if name)


def field_options(command: Callable[P, R]) -> Callable[P, R]:
    """The command with ``--fields``, ``--header`` and ``--csv``."""
    options = (
        click.option("--fields", "field_names", callback=split_names, multiple=True, metavar="NAMES",
                     shell_complete=field_names,
                     help="Write these fields with tabs between, for example ts,op,topic; mqpcap fields lists them."),
        click.option("--header", is_flag=True, help="Begin --fields with a line of their names."),
        click.option("--csv", "as_csv", is_flag=True, help="Write comma-separated values, with their names."),
    )  # fmt: skip
    decorated: Callable[P, R] = command
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def field_lines(names: Sequence[str], header: bool, as_csv: bool, as_json: bool) -> "FieldLines | None":
    """Makes the lines of messages as values of fields; None if neither ``--fields`` nor ``--csv`` is given."""
    if not names and not as_csv:
        return None
    from mqpcap.listing.field_lines import FieldLines

    with misuse_of("--fields"):
        return FieldLines(names, header, as_csv, as_json)
