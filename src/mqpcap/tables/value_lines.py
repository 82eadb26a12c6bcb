"""Rows of values as lines for people's tools: tab-separated, CSV or JSON."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from mqpcap.tables.json_lines import json_object, json_text
from mqpcap.wording import shown

LineForm = Literal["tsv", "csv", "json"]


def value_text(value: object, escaped: Callable[[str], str] = shown) -> str:
    """A value as text: empty for null, text of bytes if they are UTF-8, else hex; lists with commas, objects as JSON.

    ``escaped``: makes text safe to show.

    >>> value_text(None), value_text(True), value_text([b"a", b"\\xff"]), value_text("a\\tb")
    ('', 'true', 'a,ff', 'a\\\\tb')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return escaped(value.decode())
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, list):
        return ",".join([value_text(item, escaped) for item in value])
    if isinstance(value, Mapping):
        return json_text(json_object(value))
    return escaped(str(value))


def value_line(
    names: Sequence[str], values: Sequence[object], form: LineForm, escaped: Callable[[str], str] = shown
) -> str:
    """The line of a row; its names are in the line only as JSON."""
    if form == "json":
        return json_text(json_object(dict(zip(names, values, strict=True)))) + "\n"
    texts = [value_text(value, escaped) for value in values]
    if form == "tsv":
        return "\t".join(texts) + "\n"
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(texts)
    return line.getvalue()
