"""Rows to JSON, one object on one line, for people's tools; safe to show on a terminal."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


def json_object(values: Mapping[str, object]) -> dict[str, Json]:
    """Columns and their values as an object: without nulls, and bytes that are no UTF-8 as hex digits, ``NAME_hex``.

    A decimal is an integer; a time is ISO 8601 in UTC with ``Z``; an id of 64 bits is a string, as most readers of JSON
    would round it.

    >>> json_object({"op": "PING", "topic": None, "key": b"k", "body": b"\\xff", "connection_id": 7})
    {'op': 'PING', 'key': 'k', 'body_hex': 'ff', 'connection_id': '7'}
    """
    out: dict[str, Json] = {}
    for name, value in values.items():
        if value is None:
            continue
        if name == "connection_id":
            out[name] = str(value)
        elif _is_text(value):
            out[name] = json_value(value)
        else:
            out[f"{name}_hex"] = _hex(value)
    return out


def json_text(value: Json) -> str:
    """The value as JSON on one line, with every character escaped that a terminal would obey."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _OBEYED.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def json_value(value: object) -> Json:
    """A cell as JSON knows it: see `json_object`. Bytes in it are UTF-8."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.decode()
        case Decimal():
            return int(value)
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case Mapping():
            return json_object(value)
        case Sequence():
            return [json_value(inner) for inner in value]
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _is_text(value: object) -> bool:
    """Whether bytes are UTF-8, in a list all of them; anything else is."""
    if isinstance(value, list):
        return all(map(_is_text, value))
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
    return True


def _hex(value: object) -> Json:
    if isinstance(value, list):
        return [_hex(inner) for inner in value]
    return value.hex() if isinstance(value, bytes) else json_value(value)


# DEL, the C1 controls (0x9b begins an escape sequence), direction marks and line separators of Unicode.
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
