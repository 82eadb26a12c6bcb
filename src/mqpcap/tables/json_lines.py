"""Rows to JSON lines, for people's tools.

``tables`` feeds record batches in, ``cli`` single rows. What is made here is safe to show on a terminal.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


def json_lines(batch: pa.RecordBatch | pa.Table, fields: pa.RecordBatch | pa.Table | None = None) -> Iterator[str]:
    """One JSON object a row, without the line's end; ``fields``, of as many rows, becomes an object in it.

    Bytes that are printable UTF-8 are a string, others ``{"hex": ...}``; a decimal is an integer; a time is
    ISO 8601 in UTC with ``Z``. Control characters are escaped, so a line is safe to show on a terminal.

    >>> import pyarrow as pa
    >>> list(json_lines(pa.RecordBatch.from_pydict({"op": ["PING"], "body": [b"\\xff"]})))
    ['{"op":"PING","body":{"hex":"ff"}}']
    """
    inner = fields.to_pylist() if fields is not None else [None] * batch.num_rows
    for row, values in zip(batch.to_pylist(), inner, strict=True):
        shown = {name: json_value(value) for name, value in row.items()}
        if values is not None:
            shown["fields"] = {name: json_value(value) for name, value in values.items()}
        yield json_text(shown)


def json_text(value: Json) -> str:
    """The value as JSON on one line, with every character escaped that a terminal would obey."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _OBEYED.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def json_value(value: object) -> Json:
    """A cell as JSON knows it: see `json_lines`."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return _json_bytes(value)
        case Decimal():
            return int(value)
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case Mapping():
            return {str(name): json_value(inner) for name, inner in value.items()}
        case Sequence():
            return [json_value(inner) for inner in value]
    raise TypeError(f"no JSON form for {type(value).__name__}")


# DEL, the C1 controls (0x9b begins an escape sequence), direction marks and line separators of Unicode.
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def _json_bytes(value: bytes) -> Json:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}
    return {"hex": value.hex()} if _NOT_TEXT.search(text) else text
