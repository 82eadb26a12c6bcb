"""Options that choose fields, and messages written as the values of these fields: tab-separated, CSV or JSON."""

import csv
import io
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from mqpcap.cli.completion import fields as field_names
from mqpcap.cli.options import misuse_of
from mqpcap.wording import shown

if TYPE_CHECKING:
    from mqpcap.listing.reorder_buffer import MessageRow

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_FIELDS = (
    "ts", "packet", "connection", "client", "server", "protocol", "direction", "op", "destination", "body_len",
    "status", "error_code", "error_text", "flaw", "state", "latency_ns",
)  # fmt: skip
"""Fields of ``--csv`` without ``--fields``."""


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


class FieldWriter:
    """Writes messages as the values of fields; ``heading`` is the line of names, empty without one."""

    def __init__(self, names: Sequence[str], header: bool, as_csv: bool, as_json: bool = False) -> None:
        from mqpcap.listing.field_values import FieldReader

        with misuse_of("--fields"):
            self.reader = FieldReader(names or DEFAULT_FIELDS)
        self._as_json = as_json
        self._joined = _csv_line if as_csv else "\t".join
        has_heading = as_csv or (header and not as_json)
        self.heading = self._joined(self.reader.names) + "\n" if has_heading else ""

    def __call__(self, row: "MessageRow") -> str:
        """The line of a message."""
        values = self.reader.values(row)
        if self._as_json:
            from mqpcap.tables.json_lines import json_object, json_text

            return json_text(json_object(dict(zip(self.reader.names, values, strict=True)))) + "\n"
        return self._joined([value_text(value) for value in values]) + "\n"


def value_text(value: object) -> str:
    """A value on one line: empty for null, text of bytes if they are UTF-8, else hex; lists with commas.

    >>> value_text(None), value_text(True), value_text([b"a", b"\\xff"]), value_text("a\\tb")
    ('', 'true', 'a,ff', 'a\\\\tb')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return shown(value.decode())
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, list):
        return ",".join(map(value_text, value))
    if isinstance(value, dict):
        from mqpcap.tables.json_lines import json_object, json_text

        return json_text(json_object(value))
    return shown(str(value))


def _csv_line(values: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def write_heading(text: object) -> None:
    """Write the line of names, if there is one."""
    if isinstance(text, FieldWriter) and text.heading:
        sys.stdout.write(text.heading)
