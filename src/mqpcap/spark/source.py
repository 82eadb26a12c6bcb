"""``spark.read.format("mqpcap")``: the tables of captures as DataFrames.

One partition is a capture (small ones together, a large one in shares of its connections), read by the same pipeline as
``mqpcap export`` and given to Spark as Arrow batches. Rows are those of the export, whatever the partitions.

Options are those of README.md beside this file. A file that goes away while it is read is an error in every mode.
A schema of your own picks columns by name, in its order. ``pushdown`` needs
``spark.sql.python.filterPushdown.enabled``, which `mqpcap.spark.register` sets.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from mqpcap.capture import Capture
from mqpcap.decode.detection import DecodeAs
from mqpcap.errors import CaptureError, QueryError
from mqpcap.pipeline import OPTIONAL_TABLES, Options
from mqpcap.protocols import protocols
from mqpcap.query import Comparison, Moment, Query, Rows, of_tree
from mqpcap.query.columns import bodies
from mqpcap.spark import partitions, schemas, share, storage
from mqpcap.spark.partitions import WorkUnit
from mqpcap.spark.share import NS, Heard, Share
from mqpcap.spilled_rows import SpilledRows
from mqpcap.tables.messages import Policy
from mqpcap.tables.schemas import KEYS

DEFAULT_SLOTS = 8
"""Partitions wanted of a large capture: a source cannot see the session."""
_OPTIONS = ("table", "decodeAs", "bodies", "showSecrets", "columns", "maxMemory", "mode")
_OF_BATCHES = ("pushdown", "shares")
_OF_STREAMS = ("maxFilesPerTrigger", "stateDir", "idleSeconds", "ignoreMissingFiles")
_ALL = {name.lower(): name for name in (*_OPTIONS, *_OF_BATCHES, *_OF_STREAMS)}
_OF_SPARK = frozenset({"path", "paths", "location", "owner", "provider", "comment"})
"""What Spark adds: paths, and what its catalog knows of a table (options once more with ``option.`` in front)."""
_DECODE_AS = re.compile(r"tcp\.port\s*==\s*(\d{1,5})\s*,\s*(\w+)")


@dataclass(frozen=True, slots=True)
class Reading:
    """What the options ask for."""

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


def reading(given: Mapping[str, str], known: Sequence[str] = tuple(_ALL.values())) -> Reading:
    """The options as values; raises CaptureError naming the one that is wrong, or none of the ``known``."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options, known)
    table = options.get("table", "messages").lower()
    if table not in schemas.table_names():
        raise CaptureError(f"there is no table {table!r}{partitions.near(table, schemas.table_names())}")
    columns = tuple(name.strip() for name in options["columns"].split(",")) if options.get("columns") else None
    _check_columns(table, columns or ())
    mode, bodies = options.get("mode", "failfast").lower(), options.get("bodies", "full").lower()
    if mode not in ("failfast", "permissive"):
        raise CaptureError(f"option mode is failfast or permissive, not {options['mode']!r}")
    kept = None if bodies == "full" else 0 if bodies == "none" else int(_number(options, "bodies"))
    policy = Policy(_flag(options, "showsecrets"), kept)
    memory_bytes = int(_number(options, "maxmemory", share.TASK_MEMORY_BYTES))
    return Reading(
        tuple(partitions.named_inputs(options)), table,
        Options(_decode_as(options.get("decodeas", "")), policy, memory_bytes), columns, mode == "permissive",
        _flag(options, "pushdown"), max(1, int(_number(options, "shares"))) if "shares" in options else None,
        options.get("statedir", ""), _number(options, "idleseconds", 60),
        max(1, int(_number(options, "maxfilespertrigger"))) if "maxfilespertrigger" in options else None,
        _flag(options, "ignoremissingfiles"),
    )  # fmt: skip


def _check_names(options: Mapping[str, str], known: Sequence[str]) -> None:
    for name in options:
        if name in _OF_SPARK or name.startswith("option."):
            continue
        if name not in _ALL:
            raise CaptureError(f"there is no option {name!r}{partitions.near(name, tuple(_ALL.values()))}")
        if _ALL[name] not in known:
            raise CaptureError(f"option {_ALL[name]} is for spark.read{'Stream' * (_ALL[name] in _OF_STREAMS)} only")


def _check_columns(table: str, names: Sequence[str]) -> None:
    known = schemas.table_schema(table).names
    for name in names:
        if name not in known:
            raise CaptureError(f"table {table} has no column {name!r}{partitions.near(name, known)}")


def _flag(options: Mapping[str, str], name: str) -> bool:
    word = options.get(name, "false").lower()
    if word not in ("true", "false"):
        raise CaptureError(f"option {_ALL[name]} is true or false, not {word!r}")
    return word == "true"


def _number(options: Mapping[str, str], name: str, otherwise: float = 0) -> float:
    word = options.get(name, str(otherwise))
    if not re.fullmatch(r"\d+" + r"(\.\d+)?" * (name == "idleseconds"), word, re.ASCII):
        raise CaptureError(f"option {_ALL[name]} is a number, not {word!r}")
    return float(word)


def _decode_as(rules: str) -> tuple[DecodeAs, ...]:
    made = []
    for rule in filter(None, (part.strip() for part in rules.split(";"))):
        found = _DECODE_AS.fullmatch(rule)
        if found is None or found[2].lower() not in protocols():
            raise CaptureError(f"{rule!r} is no rule like tcp.port==9092,flymq")
        made.append(DecodeAs(int(found[1]), found[2].lower()))
    return tuple(made)


class CaptureSource(DataSource):
    """The format ``mqpcap``."""

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return "mqpcap"

    def schema(self) -> StructType:
        """The table's columns, or those that option ``columns`` names."""
        asked = reading(self.options)
        schema = schemas.table_schema(asked.table)
        if asked.columns is not None:
            schema = pa.schema([schema.field(name) for name in asked.columns])
        return from_arrow_schema(schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of captures; one that takes filters only where they were asked for."""
        asked = reading(self.options, (*_OPTIONS, *_OF_BATCHES))
        _check_columns(asked.table, schema.fieldNames())
        return (FilteringReader if asked.pushdown else CaptureReader)(asked, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of the files that a capture process leaves behind."""
        from mqpcap.spark.streaming import CaptureStream

        asked = reading(self.options, (*_OPTIONS, *_OF_STREAMS))
        _check_columns(asked.table, schema.fieldNames())
        return CaptureStream(asked, schema)


class CaptureReader(DataSourceReader):
    """Reads one table of captures."""

    def __init__(self, asked: Reading, schema: StructType) -> None:
        self.asked = asked
        self.schema = schema
        self.wanted = share.wanted_of(asked.table)
        self.query: Query | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """One per unit of work; raises CaptureError as `partitions.check_readable` before any is done."""
        found = storage.captures(self.asked.inputs)
        partitions.check_readable(found.unreadable, self.asked.permissive)
        if not found.captures:
            raise CaptureError("none of the inputs can be read")
        share_count = self.asked.share_count
        if self.asked.table in ("deliveries", "captures"):
            share_count = 1  # of all connections together
        return [InputPartition(unit) for unit in partitions.units(found.captures, DEFAULT_SLOTS, share_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one unit, in batches."""
        unit: WorkUnit = partition.value
        tables = OPTIONAL_TABLES & {self.asked.table}
        options = replace(self.asked.options, policy=self._policy(), optional_tables=tables)
        if self.query is not None:
            options = replace(options, connections=self.query.connections, until=self.query.until)
        schema = to_arrow_schema(self.schema, timezone="UTC")
        for _, capture in unit.captures:
            made = self._share(unit, capture, options)
            found = self._rows(made)
            if not made.is_whole:
                # Rows wait until it is known that nothing in other shares changes them.
                waiting = SpilledRows(schema)
                for rows in found:
                    waiting.append(rows.select(schema.names).cast(schema))
                found = iter([waiting.table()])
                heard = share.heard(capture, self.asked.options) if made.doubted or made.asked else Heard()
                if heard.without(share.told(made)).answers(made.doubted, made.asked):
                    found = self._rows(self._share(unit, capture, options, heard))
            for rows in found:
                yield from schemas.batches(rows, schema)

    def _share(self, unit: WorkUnit, capture: Capture, options: Options, heard: Heard | None = None) -> Share:
        return Share(capture, options, lambda output: None, heard, self.wanted, unit.number, unit.cut)

    def _rows(self, made: Share) -> Iterator[pa.Table]:
        for rows in made.rows(self.asked.table):
            if self.query is None or self.asked.table == "connections":
                yield rows
            else:
                yield rows.filter(self.query.mask(Rows(self.asked.table, rows, rows)))

    def _policy(self) -> Policy:
        """As asked; without bodies where no column holds one."""
        table, policy = self.asked.table, self.asked.options.policy
        held = {path[0] for path, _ in bodies(table)} if table in protocols() else set()
        return replace(policy, bodies=0) if held.isdisjoint(self.schema.fieldNames()) else policy


class FilteringReader(CaptureReader):
    """A reader that takes filters down to the packets.

    All filters are given back to Spark too, so a row is never wrong: here they only spare work.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Every filter; those understood are also used here."""
        names = _ENDS if self.asked.table == "connections" else _ENDS | {"ts", "ts_ns", "op", "protocol"}
        if self.asked.table in ("messages", "connections", *protocols()):
            columns = KEYS if self.asked.table in protocols() else schemas.table_schema(self.asked.table).names
            for test in (test for one in filters for test in _tests(one, names.intersection(columns))):
                with suppress(QueryError):
                    self._select(test)
        yield from filters

    def _select(self, test: Comparison) -> None:
        self.query = of_tree(test) if self.query is None else self.query & of_tree(test)
        if self.query.protocols is not None and self.asked.table == "messages":
            self.wanted = replace(self.wanted, protocols=self.query.protocols)
        if isinstance(moment := test.values[0], Moment):
            at = max(NS.min, min(moment.ns, NS.max))
            if test.relation == ">=":
                self.wanted = replace(self.wanted, from_ns=max(at, self.wanted.from_ns))
            else:
                self.wanted = replace(self.wanted, until_ns=min(at, self.wanted.until_ns))


_ENDS = frozenset(f"{end}_{part}" for end in ("src", "dst", "client", "server") for part in ("ip", "port"))
_RELATIONS: dict[type, str] = {
    EqualTo: "==", In: "in", GreaterThan: ">=", GreaterThanOrEqual: ">=", LessThan: "<=", LessThanOrEqual: "<=",
}  # fmt: skip
"""What is true wherever a filter is."""


def _tests(one: Filter, names: Collection[str]) -> Iterator[Comparison]:
    """What is true wherever a filter of one of these columns is."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    relation, value = _RELATIONS.get(type(one)), getattr(one, "value", None)
    values: tuple[Any, ...] = tuple(one.value) if isinstance(one, In) else (value,)
    if relation is None or len(path) != 1 or path[0] not in names or None in values or not values:
        return
    if path[0] not in ("ts", "ts_ns"):
        if relation in ("==", "in"):
            yield Comparison(path[0], relation, tuple(map(str, values)))
        return
    # ts says microseconds: nanoseconds below it belong to it.
    times = [(_ns(x), _ns(x) + 999) if isinstance(x, datetime) else (int(x), int(x)) for x in values]
    if relation != "<=":
        yield Comparison("ts_ns", ">=", (Moment("epoch", min(low for low, _ in times)),))
    if relation != ">=":
        yield Comparison("ts_ns", "<=", (Moment("epoch", max(high for _, high in times)),))


def _ns(at: datetime) -> int:
    """Nanoseconds since 1970, exactly."""
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
