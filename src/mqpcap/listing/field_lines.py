"""Messages as the values of fields, one line each: tab-separated, CSV or JSON.

In: names that filters use, and rows of messages. Out: lines. Called by: ``--fields`` and ``--csv`` of the commands.
"""

import csv
import io
from collections.abc import Sequence

from mqpcap.listing.field_values import FieldReader
from mqpcap.listing.reorder_buffer import MessageRow
from mqpcap.tables.json_lines import json_object, json_text
from mqpcap.wording import shown

DEFAULT_FIELDS = (
    "ts", "packet", "connection", "client", "server", "protocol", "direction", "op", "destination", "body_len",
    "status", "error_code", "error_text", "flaw", "state", "latency_ns",
)  # fmt: skip
"""Fields of ``--csv`` without ``--fields``."""


class FieldLines:
    """Makes the line of a message; ``heading`` is the line of names, empty without one. Raises QueryError."""

    def __init__(self, names: Sequence[str], header: bool, as_csv: bool, as_json: bool = False) -> None:
        self.reader = FieldReader(names or DEFAULT_FIELDS)
        self._as_json = as_json
        self._joined = _csv_line if as_csv else "\t".join
        has_heading = as_csv or (header and not as_json)
        self.heading = self._joined(self.reader.names) + "\n" if has_heading else ""

    def __call__(self, row: MessageRow) -> str:
        """The line of a message."""
        values = self.reader.values(row)
        if self._as_json:
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
        return json_text(json_object(value))
    return shown(str(value))


def _csv_line(values: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()
