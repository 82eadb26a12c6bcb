"""The options of the format ``mqpcap``: their names, and their values from text.

In: the options that Spark passes on. Out: `Reading`. Called by: ``source``, ``streaming``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mqpcap.decode.detection import DecodeAs
from mqpcap.errors import CaptureError
from mqpcap.pipeline import Options
from mqpcap.protocols import protocols
from mqpcap.spark import partitions, schemas, share
from mqpcap.tables.messages import RowPolicy

COMMON_OPTIONS = ("table", "decodeAs", "bodies", "showSecrets", "columns", "maxMemory", "mode")
BATCH_OPTIONS = ("pushdown", "shares")
STREAM_OPTIONS = ("maxFilesPerTrigger", "stateDir", "idleSeconds", "ignoreMissingFiles")
OPTION_NAMES = {name.lower(): name for name in (*COMMON_OPTIONS, *BATCH_OPTIONS, *STREAM_OPTIONS)}
_OF_SPARK = frozenset({"path", "paths", "location", "owner", "provider", "comment"})
"""Options that Spark adds: paths, and properties of a catalog table (which repeat options with ``option.``)."""
_DECODE_AS = re.compile(r"tcp\.port\s*==\s*(\d{1,5})\s*,\s*(\w+)")


@dataclass(frozen=True, slots=True)
class Reading:
    """The options, parsed."""

    inputs: tuple[str, ...]
    table: str
    options: Options
    columns: tuple[str, ...] | None
    permissive: bool
    pushdown: bool
    share_count: int | None
    state_dir: str
    idle_s: float
    max_files: int | None
    ignores_missing: bool


def reading(given: Mapping[str, str], allowed: Sequence[str] = tuple(OPTION_NAMES.values())) -> Reading:
    """Parses the options; raises CaptureError that names the option that is wrong or not ``allowed``."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options, allowed)
    table = options.get("table", "messages").lower()
    if table not in schemas.table_names():
        raise CaptureError(f"there is no table {table!r}{partitions.nearest_name(table, schemas.table_names())}")
    columns = tuple(name.strip() for name in options["columns"].split(",")) if options.get("columns") else None
    check_columns(table, columns or ())
    mode, bodies = options.get("mode", "failfast").lower(), options.get("bodies", "full").lower()
    if mode not in ("failfast", "permissive"):
        raise CaptureError(f"option mode is failfast or permissive, not {options['mode']!r}")
    kept = None if bodies == "full" else 0 if bodies == "none" else int(_number(options, "bodies"))
    policy = RowPolicy(_flag(options, "showsecrets"), kept)
    memory_bytes = int(_number(options, "maxmemory", share.TASK_MEMORY_BYTES))
    return Reading(
        tuple(partitions.named_inputs(options)), table,
        Options(_decode_as(options.get("decodeas", "")), policy, memory_bytes), columns, mode == "permissive",
        _flag(options, "pushdown"), max(1, int(_number(options, "shares"))) if "shares" in options else None,
        options.get("statedir", ""), _number(options, "idleseconds", 60),
        max(1, int(_number(options, "maxfilespertrigger"))) if "maxfilespertrigger" in options else None,
        _flag(options, "ignoremissingfiles"),
    )  # fmt: skip


def _check_names(options: Mapping[str, str], allowed: Sequence[str]) -> None:
    for name in options:
        if name in _OF_SPARK or name.startswith("option."):
            continue
        if name not in OPTION_NAMES:
            raise CaptureError(
                f"there is no option {name!r}{partitions.nearest_name(name, tuple(OPTION_NAMES.values()))}"
            )
        if OPTION_NAMES[name] not in allowed:
            raise CaptureError(
                f"option {OPTION_NAMES[name]} is for spark.read{'Stream' * (OPTION_NAMES[name] in STREAM_OPTIONS)} only"
            )


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


def _number(options: Mapping[str, str], name: str, otherwise: float = 0) -> float:
    word = options.get(name, str(otherwise))
    if not re.fullmatch(r"\d+" + r"(\.\d+)?" * (name == "idleseconds"), word, re.ASCII):
        raise CaptureError(f"option {OPTION_NAMES[name]} is a number, not {word!r}")
    return float(word)


def _decode_as(rules: str) -> tuple[DecodeAs, ...]:
    rules_read = []
    for rule in filter(None, (part.strip() for part in rules.split(";"))):
        match = _DECODE_AS.fullmatch(rule)
        if match is None or match[2].lower() not in protocols():
            raise CaptureError(f"{rule!r} is not a rule like tcp.port==9092,flymq")
        rules_read.append(DecodeAs(int(match[1]), match[2].lower()))
    return tuple(rules_read)
