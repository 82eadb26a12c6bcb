"""The options of the format ``mqpcap``: their names, and their values from text.

In: the options that Spark passes on. Out: `Reading`. Called by: ``source``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mqpcap.decode.detection import DecodeAs
from mqpcap.errors import CaptureError, QueryError
from mqpcap.options import Options
from mqpcap.query.values import integer
from mqpcap.reading import SMALLEST_MEMORY_BYTES, decode_as_rule
from mqpcap.spark import partitions, schemas, share
from mqpcap.tables.messages import RowPolicy
from mqpcap.tls import KeyLog

OPTIONS = ("table", "decodeAs", "bodies", "showSecrets", "columns", "maxMemory", "mode", "shares", "keylog", "one")
OPTION_NAMES = {name.lower(): name for name in OPTIONS}
_OF_SPARK = frozenset({"path", "paths", "location", "owner", "provider", "comment"})
"""Options that Spark adds: paths, and properties of a catalog table (which repeat options with ``option.``)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The options, parsed."""

    inputs: tuple[str, ...]
    table: str
    options: Options
    columns: tuple[str, ...] | None
    permissive: bool
    share_count: int | None
    is_one: bool


def reading(given: Mapping[str, str]) -> Reading:
    """Parses the options; raises CaptureError that names the wrong option."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options)
    table = options.get("table", "messages").lower()
    if table not in schemas.table_names():
        raise CaptureError(f"there is no table {table!r}{partitions.nearest_name(table, schemas.table_names())}")
    columns = tuple(name.strip() for name in options["columns"].split(",")) if options.get("columns") else None
    check_columns(table, columns or ())
    mode, bodies = options.get("mode", "failfast").lower(), options.get("bodies", "full").lower()
    if mode not in ("failfast", "permissive"):
        raise CaptureError(f"option mode is failfast or permissive, not {options['mode']!r}")
    kept = None if bodies == "full" else 0 if bodies == "none" else _number(options, "bodies")
    policy = RowPolicy(_flag(options, "showsecrets"), kept)
    memory_bytes = _size_bytes(options.get("maxmemory", str(share.TASK_MEMORY_BYTES)))
    return Reading(
        tuple(partitions.named_inputs(options)), table,
        Options(_decode_as(options.get("decodeas", "")), policy, memory_bytes, _keys(options)), columns,
        mode == "permissive",
        _number(options, "shares", at_least=1) if "shares" in options else None,
        _flag(options, "one"),
    )  # fmt: skip


def _keys(options: Mapping[str, str]) -> KeyLog | None:
    """The key log of TLS. Tasks get its path and read it themselves: no secret is in a plan or an event log."""
    return KeyLog.opened(options["keylog"]) if "keylog" in options else None


def _check_names(options: Mapping[str, str]) -> None:
    for name in options:
        if not (name in _OF_SPARK or name.startswith("option.") or name in OPTION_NAMES):
            raise CaptureError(f"there is no option {name!r}{partitions.nearest_name(name, OPTIONS)}")


def check_columns(table: str, names: Sequence[str]) -> None:
    """Raises CaptureError for a column that the table does not have."""
    column_names = schemas.table_schema(table).names
    for name in names:
        if name not in column_names:
            raise CaptureError(f"table {table} has no column {name!r}{partitions.nearest_name(name, column_names)}")


def _flag(options: Mapping[str, str], name: str) -> bool:
    word = options.get(name, "false").lower()
    if word not in ("true", "false"):
        raise CaptureError(f"option {OPTION_NAMES[name]} is true or false, not {word!r}")
    return word == "true"


def _number(options: Mapping[str, str], name: str, at_least: int = 0) -> int:
    word = options[name]
    if not re.fullmatch(r"\d+", word, re.ASCII) or int(word) < at_least:
        minimum = f" of at least {at_least}" if at_least else ""
        raise CaptureError(f"option {OPTION_NAMES[name]} is a number{minimum}, not {word!r}")
    return int(word)


def _size_bytes(word: str) -> int:
    """``64MB``, ``2GiB`` or a number of bytes."""
    try:
        size_bytes = integer(re.sub("[bB]?$", "B", word.strip(), count=1))
    except QueryError:
        raise CaptureError(f"option maxMemory is a size as 64MB or 2GiB, not {word!r}") from None
    if size_bytes < SMALLEST_MEMORY_BYTES:
        raise CaptureError(f"option maxMemory is at least {SMALLEST_MEMORY_BYTES} bytes, not {word!r}")
    return size_bytes


def _decode_as(rules: str) -> tuple[DecodeAs, ...]:
    try:
        return tuple(map(decode_as_rule, filter(None, (part.strip() for part in rules.split(";")))))
    except ValueError as error:
        raise CaptureError(str(error)) from None
