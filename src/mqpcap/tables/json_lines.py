"""Rows to JSON, one object on one line, for people's tools; safe to show on a terminal."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

import msgspec

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


def json_object(values: Mapping[str, object]) -> dict[str, Json]:
    """Columns and their values as an object: without nulls, and bytes that are no UTF-8 as hex digits, ``NAME_hex``.

    A decimal is an integer; a time is ISO 8601 in UTC with ``Z``. Ids of 64 bits and absolute times in nanoseconds are
    strings: see `is_exact`.

    >>> json_object({"op": "PING", "topic": None, "key": b"k", "body": b"\\xff", "connection_id": 7})
    {'op': 'PING', 'key': 'k', 'body_hex': 'ff', 'connection_id': '7'}
    """
    fields: dict[str, Json] = {}
    for name, value in values.items():
        kind = type(value)
        if value is None:
            continue
        if is_exact(name):
            fields[name] = str(value)
        elif kind is str or kind is int or kind is bool:
            fields[name] = value  # type: ignore[assignment]  # as asked
        elif kind is bytes:
            _put_bytes(fields, name, value)  # type: ignore[arg-type]  # as asked
        elif _is_text(value):
            fields[name] = json_value(value)
        else:
            fields[f"{name}_hex"] = _hex(value)
    return fields


@lru_cache
def is_exact(name: str) -> bool:
    """Whether numbers of this name are strings in JSON: most readers round integers above 2**53.

    These are ids of connections and nanoseconds since 1970, not latencies and other durations.

    >>> [name for name in ("connection_id", "reply_ts_ns", "start_ns", "latency_ns") if is_exact(name)]
    ['connection_id', 'reply_ts_ns', 'start_ns']
    """
    return name.endswith(("connection_id", "ts_ns")) or name == "start_ns"


def with_exact_numbers(value: Json) -> Json:
    """The value with strings for all numbers whose names are exact, at any depth."""
    if isinstance(value, Mapping):
        return {
            name: str(x) if is_exact(name) and isinstance(x, int) else with_exact_numbers(x)
            for name, x in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [with_exact_numbers(x) for x in value]
    return value


def _put_bytes(fields: dict[str, Json], name: str, value: bytes) -> None:
    try:
        fields[name] = value.decode()
    except UnicodeDecodeError:
        fields[f"{name}_hex"] = value.hex()


def json_text(value: Json) -> str:
    """The value as JSON on one line, with every character escaped that a terminal would obey.

    A file name whose bytes are not UTF-8 is written as in the tables.
    """
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        text = msgspec.json.encode(_with_file_texts(value)).decode()
    if text.isascii() and "\x7f" not in text:
        return text
    return _OBEYED.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _with_file_texts(value: Json) -> Json:
    from mqpcap.arrays import file_text

    if isinstance(value, str):
        return value if value.isascii() else file_text(value)
    if isinstance(value, Mapping):
        return {name: _with_file_texts(inner) for name, inner in value.items()}
    return [_with_file_texts(inner) for inner in value] if isinstance(value, Sequence) else value


def json_time(ts_ns: int) -> str:
    """A time as ISO 8601 in UTC: to the microsecond, to the nanosecond where it has any.

    >>> json_time(1_700_000_000_000_001_000), json_time(1_700_000_000_000_001_999)
    ('2023-11-14T22:13:20.000001Z', '2023-11-14T22:13:20.000001999Z')
    """
    seconds, ns = divmod(ts_ns, 1_000_000_000)
    digits = f"{ns:09d}" if ns % 1000 else f"{ns // 1000:06d}"
    return f"{_second(seconds)}.{digits}Z"


@lru_cache
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def json_value(value: object) -> Json:
    """A cell as JSON knows it: see `json_object`. Bytes in it are UTF-8."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)  # also a byte of a truth that is neither 0 nor 1
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
