"""``spark.read.format("mqpcap")``: the tables of captures as DataFrames.

One partition is a capture (small ones together, a large one in shares of its connections), read by the same pipeline as
``mqpcap export`` and given to Spark as Arrow batches. Rows are those of the export, whatever the partitions.

Options are those of README.md beside this file, case-insensitive; any other is an error, and so is a path that is not
there. A file cannot be read if it cannot be opened, or is named and no capture. A stranger in a directory is left out,
and a capture cut short has its rows, in every mode; a file that goes away while it is read is an error in every mode.

A schema of your own picks columns by name, in its order. ``pushdown`` needs
``spark.sql.python.filterPushdown.enabled``, which `mqpcap.spark.register` sets: Spark refuses readers that take filters
while it is off.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from itertools import chain
from tempfile import TemporaryFile
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
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
from pyspark.sql.types import StructType

from mqpcap.decode.detection import DecodeAs
from mqpcap.errors import CaptureError
from mqpcap.pipeline import Options, Output
from mqpcap.protocols import protocols
from mqpcap.spark import partitions, schemas, share
from mqpcap.spark.share import Share, Wanted
from mqpcap.tables.messages import Policy

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
    pushdown: bool
    share_count: int | None
    permissive: bool


def reading(given: Mapping[str, str], known: Sequence[str] = tuple(_ALL.values())) -> Reading:
    """The options as values; raises CaptureError naming the one that is wrong, or none of the ``known``."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options, known)
    table = options.get("table", "messages").lower()
    if table not in schemas.table_names():
        raise CaptureError(f"there is no table {table!r}{partitions.near(table, schemas.table_names())}")
    columns = tuple(name.strip() for name in options["columns"].split(",")) if options.get("columns") else None
    _check_columns(table, columns or ())
    shares = options.get("shares")
    policy = Policy(_flag(options, "showsecrets"), _bodies(options.get("bodies", "full")))
    memory_bytes = _number(options, "maxmemory", share.TASK_MEMORY_BYTES)
    return Reading(
        tuple(partitions.named_inputs(options)), table,
        Options(_decode_as(options.get("decodeas", "")), policy, memory_bytes), columns,
        _flag(options, "pushdown"), None if shares is None else max(1, _number(options, "shares", 1)),
        _permissive(options.get("mode", "failfast")),
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


def _permissive(mode: str) -> bool:
    if mode.lower() not in ("failfast", "permissive"):
        raise CaptureError(f"option mode is failfast or permissive, not {mode!r}")
    return mode.lower() == "permissive"


def _flag(options: Mapping[str, str], name: str) -> bool:
    word = options.get(name, "false").lower()
    if word not in ("true", "false"):
        raise CaptureError(f"option {name} is true or false, not {word!r}")
    return word == "true"


def _number(options: Mapping[str, str], name: str, otherwise: int) -> int:
    word = options.get(name)
    if word is None:
        return otherwise
    if not (word.isascii() and word.isdecimal()):
        raise CaptureError(f"option {name} is a number, not {word!r}")
    return int(word)


def _bodies(word: str) -> int | None:
    word = word.lower()
    if word in ("full", "none"):
        return None if word == "full" else 0
    return _number({"bodies": word}, "bodies", 0)


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
        return schemas.spark_schema(schema)

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
        options = {name.lower(): value for name, value in self.options.items()}
        return CaptureStream(asked.inputs, asked.table, asked.options, schema, options, asked.permissive)


@dataclass
class CapturePartition(InputPartition):
    """A unit of work as Spark carries it."""

    unit: partitions.WorkUnit


class CaptureReader(DataSourceReader):
    """Reads one table of captures."""

    def __init__(self, asked: Reading, schema: StructType) -> None:
        self.asked = asked
        self.schema = schema
        self.wanted = share.wanted_of(asked.table)
        self.row_filters: tuple[tuple[str, frozenset[str]], ...] = ()

    def partitions(self) -> Sequence[InputPartition]:
        """One per unit of work; raises CaptureError as `partitions.check_readable` before any is done."""
        found = partitions.found(self.asked.inputs)
        partitions.check_readable(found.unreadable, self.asked.permissive)
        if not found.captures:
            raise CaptureError("none of the inputs can be read")
        share_count = self.asked.share_count
        if self.asked.table in ("deliveries", "captures"):
            share_count = 1  # of all connections together
        return [CapturePartition(unit) for unit in partitions.units(found.captures, DEFAULT_SLOTS, share_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one unit, in batches."""
        assert isinstance(partition, CapturePartition)
        unit = partition.unit
        options = replace(
            self.asked.options,
            share=unit.share,
            policy=self._policy(),
            optional_tables=share.optional(self.asked.table),
        )
        for _, capture in unit.captures:
            keys = None
            if self.wanted.by_connection:
                keys = share.connection_keys(capture, self.wanted)
                if not len(keys):
                    continue
            made = Share(capture, options, _nobody, None, self.wanted, keys, unit.cut)
            if made.is_whole:
                yield from self._batches(made)
                continue
            with TemporaryFile(prefix="mqpcap-share-") as file:
                _write(file, self._batches(made))
                heard = share.heard(capture, options) if made.doubted or made.asked else share.Heard()
                if heard.without(made.told).answers(made.doubted, made.asked):
                    yield from self._batches(Share(capture, options, _nobody, heard, self.wanted, keys, unit.cut))
                else:
                    yield from _read(file)

    def _batches(self, made: Share) -> Iterator[pa.RecordBatch]:
        schema = schemas.arrow_schema(self.schema)
        for rows in made.rows(self.asked.table):
            yield from schemas.batches(self._filtered(rows), schema)

    def _policy(self) -> Policy:
        """As asked; without bodies where no column holds one."""
        policy = self.asked.options.policy
        carries = not schemas.body_columns(self.asked.table).isdisjoint(self.schema.fieldNames())
        return policy if carries else replace(policy, bodies=0)

    def _filtered(self, rows: pa.Table) -> pa.Table:
        masks = [
            pc.is_in(rows[name].cast(pa.string()), pa.array(sorted(values), pa.string()))
            for name, values in self.row_filters
        ]
        return rows.filter(reduce(pc.and_, masks)) if masks else rows


def _nobody(output: Output) -> None:
    """Rows are asked for table by table."""


def _write(file: IO[bytes], batches: Iterator[pa.RecordBatch]) -> None:
    """Rows that wait until a share knows that nothing in others changes them."""
    first = next(batches, None)
    if first is not None:
        with pa.ipc.new_stream(file, first.schema) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)


def _read(file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    if file.tell():
        file.seek(0)
        yield from pa.ipc.open_stream(file)


class FilteringReader(CaptureReader):
    """A reader that takes filters down to the packets.

    All filters are given back to Spark too, so a row is never wrong: here they only spare work. Addresses and ports
    choose connections, times choose connections and messages, protocols choose what is read of them. Connections
    that share an endpoint with a chosen one are followed, because they may tell who it is.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Every filter; those understood are also used here."""
        chosen = self.wanted
        if self.asked.table in ("messages", *protocols()):
            for one in filters:
                chosen = _narrowed(chosen, one)
                name, values = _values(one)
                if name in ("op", "protocol") and values is not None and name in self._text_columns():
                    self.row_filters += ((name, frozenset(map(str, values))),)
        elif self.asked.table == "connections":
            for one in filters:
                if _values(one)[0] in _IPS | _PORTS:
                    chosen = _narrowed(chosen, one)
        self.wanted = chosen
        yield from filters

    def _text_columns(self) -> set[str]:
        return set(schemas.table_schema(self.asked.table).names)


_IPS = {"src_ip", "dst_ip", "client_ip", "server_ip"}
_PORTS = {"src_port", "dst_port", "client_port", "server_port"}


def _values(one: Filter) -> tuple[str, list[Any] | None]:
    """The column of a filter, and the values it allows, None where it allows more than a few."""
    path = getattr(one, "attribute", ("",))
    name = path[0] if len(path) == 1 else ""
    if isinstance(one, EqualTo):
        return name, [one.value]
    if isinstance(one, In):
        return name, list(one.value)
    return name, None


def _narrowed(wanted: Wanted, one: Filter) -> Wanted:
    name, values = _values(one)
    if values is not None and name in _IPS:
        return replace(wanted, ips=(*wanted.ips, frozenset(map(str, values))))
    if values is not None and name in _PORTS:
        return replace(wanted, ports=(*wanted.ports, frozenset(map(int, values))))
    if values is not None and name == "protocol":
        only = frozenset(map(str, values))
        return replace(wanted, protocols=only if wanted.protocols is None else wanted.protocols & only)
    if name in ("ts", "ts_ns"):
        return _in_time(wanted, name, one)
    return wanted


def _in_time(wanted: Wanted, name: str, one: Filter) -> Wanted:
    value = getattr(one, "value", None)
    if isinstance(value, datetime):
        at = value if value.tzinfo else value.replace(tzinfo=UTC)
        low = _ns(at)
        high = low + 999  # ts says microseconds: nanoseconds below it belong to it
    elif isinstance(value, int) and name == "ts_ns":
        low = high = value
    else:
        return wanted
    if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
        wanted = replace(wanted, from_ns=max(low, wanted.from_ns if wanted.from_ns is not None else low))
    if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
        wanted = replace(wanted, until_ns=min(high, wanted.until_ns if wanted.until_ns is not None else high))
    return wanted


def _ns(at: datetime) -> int:
    """Nanoseconds since 1970, exactly."""
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
