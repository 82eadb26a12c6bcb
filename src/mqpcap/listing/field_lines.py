"""Messages as the values of fields, one line each: tab-separated, CSV or JSON.

In: names that filters use, and rows of messages. Out: lines. Called by: ``show`` and ``follow``.
"""

from collections.abc import Sequence
from functools import cache

from mqpcap.listing.field_values import FieldReader
from mqpcap.listing.message_row import MessageRow, exchange_object
from mqpcap.tables.json_lines import Json, is_exact, json_object, json_text, json_time
from mqpcap.tables.schemas import CONNECTION_NUMBER, MESSAGES
from mqpcap.tables.value_lines import LineForm, value_line
from mqpcap.wording import endpoint

DEFAULT_FIELDS = (
    "ts", "packet", "connection", "client", "server", "protocol", "direction", "op", "destination", "body_len",
    "status", "error_code", "error_text", "flaw", "state", "latency_ns",
)  # fmt: skip
"""Fields of ``--csv`` without ``--fields``."""

EXACT = tuple(field.name for field in MESSAGES if is_exact(field.name))
"""Columns of ``messages`` whose numbers are strings in JSON."""


@cache
def _other_names() -> FieldReader:
    """Names of filters for values that have no column of ``messages`` with this name.

    Made for the first line in JSON: it reads the descriptions of all protocols, 0.1 s of CPU.
    """
    return FieldReader(("topic", "packet", "state", "latency_ns", "body", "payload"))


def json_line(row: MessageRow) -> str:
    """The message as one JSON object on a line."""
    return json_text(message_object(row)) + "\n"


def message_object(row: MessageRow) -> dict[str, Json]:
    """The message as JSON: its columns, its ends by name, the fields that no column has, and its exchange.

    Values that filters and ``--fields`` know by another name have that name, too.
    """
    columns: dict[str, Json] = {
        name: value  # type: ignore[misc]  # numbers and text
        for name, value in row.message.items()
        if value is not None and name != "ts"
    }
    for name in EXACT:
        columns[name] = str(columns[name])
    columns["ts"] = json_time(row.message["ts_ns"])  # type: ignore[arg-type]  # of MESSAGES
    if CONNECTION_NUMBER in columns:
        columns["connection"] = f"c{columns.pop(CONNECTION_NUMBER)}"
    ends = [endpoint(columns[f"{end}_ip"], columns[f"{end}_port"]) for end in ("src", "dst")]
    columns["client"], columns["server"] = ends if columns["direction"] == "c2s" else ends[::-1]
    fields = json_object(row.fields).items()
    columns["fields"] = {
        name: value for name, value in fields if name not in columns or str(value) != str(columns[name])
    }
    if row.exchange is not None:
        columns["exchange"] = exchange_object(row.exchange)
    others = _other_names()
    return columns | json_object(dict(zip(others.names, others.values(row), strict=True)))


class FieldLines:
    """Makes the line of a message; ``heading`` is the line of names, empty without one. Raises QueryError."""

    def __init__(self, names: Sequence[str], header: bool, as_csv: bool, as_json: bool = False) -> None:
        self.reader = FieldReader(names or DEFAULT_FIELDS)
        self._form: LineForm = "json" if as_json else "csv" if as_csv else "tsv"
        has_heading = as_csv or (header and not as_json)
        self.heading = value_line((), self.reader.names, "csv" if as_csv else "tsv") if has_heading else ""

    def __call__(self, row: MessageRow) -> str:
        """The line of a message."""
        return value_line(self.reader.names, self.reader.values(row), self._form)
