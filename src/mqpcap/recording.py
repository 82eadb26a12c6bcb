"""Captures in Python: tables as pyarrow has them, and from a row back to its message and packets.

What ``mqpcap.read`` and ``mqpcap.open`` are. The tables are those of ``mqpcap export``: same columns, same rows.
"""

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import CODED, file_text
from mqpcap.background import Background
from mqpcap.capture import Capture, captures
from mqpcap.cli.info import Report  # what the command says is what Python says; only there is it counted
from mqpcap.decode.detection import DecodeAs
from mqpcap.errors import CaptureError
from mqpcap.numbered_pipeline import LAYOUT, VARIANT
from mqpcap.packet_places import IndexingPipeline, PacketPlaces
from mqpcap.pipeline import OPTIONAL_TABLES, NamedTables, Options, Output
from mqpcap.protocols import protocols
from mqpcap.query import Query, Selection, query
from mqpcap.schema.protocol import Direction
from mqpcap.spark.schemas import table_names, table_schema
from mqpcap.spilled_rows import SpilledRows
from mqpcap.tables.messages import Policy
from mqpcap.tables.schemas import TABLES

if TYPE_CHECKING:
    from scapy.packet import Packet

    from mqpcap.scapy.session import Key
    from mqpcap.schema.message import Message

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Row: TypeAlias = Mapping[str, Any] | pa.Table | pa.RecordBatch
"""A row of any table: a mapping, a table or batch of one row; a pandas Series or named tuple does, too."""
Part = Literal["request", "reply", "publish", "delivery"]
KEY = ("connection_id", "direction", "stream_offset")


def read(
    path: Paths,
    table: str = "messages",
    filter: "pc.Expression | str | None" = None,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> pa.Table:
    """A table of a capture, or of several.

    table: ``messages``, ``exchanges``, ``deliveries``, ``connections``, ``problems``, ``captures`` or a protocol.
    filter: rows that are wanted, a text as ``mqpcap export -Y`` takes it, which selects messages and what belongs to
    them, or a ``pyarrow.compute.Expression``; columns: those that are wanted. Only what is wanted is held in memory.
    ``options`` are those of ``open``. Raises QueryError for a text that is no filter.

    >>> import mqpcap
    >>> rows = mqpcap.read("pcaps/blipmq/qos1.pcap", filter='op == "PUBLISH"', columns=["op", "body_len"])
    >>> rows.to_pylist()[0]
    {'op': 'PUBLISH', 'body_len': 5}
    """
    batches = list(open(path, **options).batches(table, filter, columns))
    schema = table_schema(_known(table))
    return pa.Table.from_batches(batches, schema if columns is None else pa.schema([schema.field(x) for x in columns]))


def open(
    path: Paths,
    *,
    decode_as: Mapping[int, str] | None = None,
    show_secrets: bool = False,
    bodies: int | None = None,
    max_memory_bytes: int | None = None,
) -> "Recording":
    """A capture, or several: files, directories, globs. Nothing is read before it is asked for.

    decode_as: protocols by port, ``{9092: "flymq"}``. show_secrets: passwords and keys as they are, not ``***``.
    bodies: so many bytes of each body are kept, None for all. Raises CaptureError for what is no capture.
    """
    rules = tuple(DecodeAs(port, _protocol(name)) for port, name in (decode_as or {}).items())
    options = Options(rules, Policy(show_secrets, bodies))
    if max_memory_bytes is not None:
        options = replace(options, max_memory_bytes=max_memory_bytes)
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    found = captures([os.fspath(one) for one in paths])
    for name, reason in found.unreadable:
        raise CaptureError(f"{name}: {reason}")
    return Recording(found.captures, options)


def _protocol(name: str) -> str:
    if name not in protocols():
        raise ValueError(f"{name!r} is no protocol; there are {', '.join(protocols())}")
    return name


def _known(table: str) -> str:
    if table not in table_names():
        raise ValueError(f"{table!r} is no table; there are {', '.join(table_names())}")
    return table


class _Index:
    """What is known of one capture that was read: where packets are, its messages, its entry in ``info``."""

    def __init__(self, capture: Capture, options: Options) -> None:
        self._capture, self._options = capture, options
        self.places: PacketPlaces
        self.messages: pa.Table
        self.info: dict[str, Any] = {}
        self.tables: dict[str, pa.Table] = {}
        """All tables by name; none until one is asked for."""

    def outputs(self, tables: Sequence[str] | None = None, only: Query | None = None) -> Iterator[Output]:
        """What reading the capture gives, and then its index is there.

        tables: those that are wanted, None for all. only: of the tables what ``mqpcap export`` writes with this filter.
        """
        options, names = self._options, _index_schema().names
        if tables is not None:
            asked = {"exchanges"} if only is not None and only.asks_exchanges else set()
            options = replace(options, optional_tables=OPTIONAL_TABLES & {*tables, *asked})
        report, messages = Report(), SpilledRows(_index_schema())
        ready: deque[Output] = deque()
        selection = None if only is None else Selection(only, ready.append)

        def take(output: Output) -> None:
            report.take(output)
            if output.table == "messages":
                messages.append(output.rows.select(names))
            if selection is None:
                ready.append(output)
            else:
                selection.take(output, pipeline.first_ns or 0)

        with ThreadPoolExecutor(1, "mqpcap-finish") as pool:
            pipeline = IndexingPipeline(self._capture, options, take, Background(pool))
            for _ in pipeline.steps():
                while ready:
                    yield ready.popleft()
        if selection is not None:
            selection.finish()
            yield from ready
        paired = {name for each in pipeline.correlations.values() for name in each.counts}
        report.end(self._capture, {name: n for name, n in pipeline.counts.items() if name not in paired})
        self.places, self.messages, self.info = pipeline.places, messages.table(), dict(report.as_json())

    def read(self) -> "_Index":
        """Itself, when the capture was read."""
        for _ in () if self.info else self.outputs(tables=()):
            pass
        return self

    def load(self) -> Mapping[str, pa.Table]:
        """The tables, which are read once."""
        if not self.tables:
            spilled = {name: SpilledRows(table_schema(name)) for name in table_names()}
            for output in self.outputs():
                for name in {output.table, output.protocol or output.table}:
                    for rows in _rows(output, name):
                        spilled[name].append(rows)
            self.tables = {name: rows.table() for name, rows in spilled.items()}
        return self.tables

    def message(self, connection_id: int, direction: str, offset: int) -> dict[str, Any]:
        """The row of a message. Raises LookupError for one there is none of."""
        ids, offsets = (self.messages[name] for name in ("connection_id", "stream_offset"))
        here = self.messages.filter(pc.and_(pc.equal(ids, connection_id), pc.equal(offsets, offset)))
        for row in here.to_pylist():
            if row["direction"] == direction:
                return dict(row)
        raise LookupError(f"no message of connection {connection_id} begins at {direction} offset {offset}")


class Recording(NamedTables):
    """Captures that were opened: their tables, and the way from any row back to the message and its packets.

    The first table asked for reads the captures once. All tables are then in mapped temporary files, together five
    times as large as a capture of small messages. ``batches`` reads again and keeps none. ``mqpcap.open`` makes one.

    >>> import mqpcap
    >>> capture = mqpcap.open("pcaps/blipmq/qos1.pcap")
    >>> capture.packet(capture.exchanges.slice(0, 1)).summary()
    '127.0.0.1:39290 > 127.0.0.1:5555 BlipMQ HELLO id=1'
    """

    def __init__(self, found: Sequence[Capture], options: Options) -> None:
        self._captures = list(found)
        self._indexes = {file_text(capture.files[0]): _Index(capture, options) for capture in found}

    def __repr__(self) -> str:
        return f"<mqpcap.Recording of {', '.join(self.files)}>"

    @property
    def files(self) -> tuple[str, ...]:
        """The files, as they were given."""
        return tuple(name for capture in self._captures for name in capture.files)

    # -- tables --------------------------------------------------------------------------------------------

    def protocol(self, name: str) -> pa.Table:
        """The messages of a protocol with all its fields. Raises ValueError for a protocol there is none of."""
        return self.table(_protocol(name))

    def table(self, name: str) -> pa.Table:
        """A table by its name. Raises ValueError for one there is none of."""
        empty = table_schema(_known(name)).empty_table()
        return pa.concat_tables([empty, *(index.load()[name] for index in self._indexes.values())])

    def batches(
        self, table: str = "messages", filter: "pc.Expression | str | None" = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a table as they are read, for captures that are larger than memory; see ``mqpcap.read``."""
        schema = table_schema(_known(table))
        missing = [name for name in columns or () if name not in schema.names]
        if missing:
            raise ValueError(f"{table} has no column {missing[0]!r}; there are {', '.join(schema.names)}")
        only = query(filter) if isinstance(filter, str) else None
        for output in (x for index in self._indexes.values() for x in index.outputs([table], only)):
            for rows in _rows(output, table):
                rows = rows if filter is None or only is not None else rows.filter(filter)
                yield from rows.select(schema.names if columns is None else list(columns)).combine_chunks().to_batches()

    @property
    def info(self) -> list[dict[str, Any]]:
        """What each capture is and how far it can be trusted: an entry per capture as ``mqpcap info --json`` has it."""
        return [index.read().info for index in self._indexes.values()]

    # -- packets -------------------------------------------------------------------------------------------

    def packet(self, row: Row, part: Part | None = None) -> "Packet":
        """The Scapy packet that a row of any table is of.

        Of ``messages`` and a protocol's table it is the message, as ``MqSession`` gives it: whole, with ``.mq``. Of
        ``exchanges`` it is the request, of ``deliveries`` the publish; ``part`` asks for the ``reply`` or the
        ``delivery``. Of other tables it is the first packet. Raises LookupError for a row that is not of this capture.
        """
        said = _as_mapping(row)
        index, keys = self._index(said), _keys(said)
        if not keys:
            return self.packets(said)[0]
        key = next(filter(None, keys)) if part is None else keys[-1 if part in ("reply", "delivery") else 0]
        if key is None:
            raise LookupError(f"the row has no {part}")
        return self._message(index, key)

    def packets(self, row: Row) -> "list[Packet]":
        """The Scapy packets that a row of any table is of, in order of capture.

        Of a message those that carried it, of an exchange or a delivery those of both messages, of a connection all.
        Of a problem those that have bytes of the stretch; of a gap those on both sides of it.
        """
        from mqpcap.scapy.session import as_scapy

        said = _as_mapping(row)
        index, keys = self._index(said), _keys(said)
        places: set[int] = set()
        for key in keys:
            places.update([] if key is None else _gathered(index, index.message(*key))[1].tolist())
        if not keys:
            places.update(_places(index.places, said))
        return [as_scapy(packet) for packet in index.places.packets(np.array(sorted(places), np.int64))]

    def _index(self, row: Mapping[str, Any]) -> _Index:
        """The index of the capture that a row is of."""
        known = self._indexes
        name = row.get("capture", next(iter(known)) if len(known) == 1 else "some capture")
        if name not in known:
            raise LookupError(f"the row is of {name}, not of {', '.join(known)}")
        return known[name].read()

    def _message(self, index: _Index, key: "Key") -> "Message":
        from mqpcap.scapy.session import Pair, Seen, message

        row = index.message(*key)
        raw, places = _gathered(index, row)
        layout, variant = row.pop(LAYOUT), row.pop(VARIANT)
        pair = Pair(lambda: self._reply(index, key))
        seen = Seen(**row, carriers=tuple(index.places.packets(places)), pair=pair)
        return message(protocols()[row["protocol"]].layout(layout), raw, variant, seen)

    def _reply(self, index: _Index, key: "Key") -> "Key | None":
        """The key of the message that answers another, by the table of exchanges."""
        connection_id, direction, offset = key
        is_it = pc.field("connection_id") == connection_id
        is_it &= (pc.field("request_direction") == direction) & (pc.field("request_offset") == offset)
        return next((_keys(row)[1] for row in index.load()["exchanges"].filter(is_it).to_pylist()), None)


@cache
def _index_schema() -> pa.Schema:
    """Of each message what its Scapy packet says of itself, and how it was read."""
    from mqpcap.scapy.session import COLUMNS

    return pa.schema([*map(TABLES["messages"].field, COLUMNS), (LAYOUT, CODED), (VARIANT, CODED)])


def _rows(output: Output, table: str) -> Iterator[pa.Table]:
    """The rows of a table, its text as text, if the output has any."""
    schema = table_schema(table)
    for name, rows in ((output.table, output.rows), (output.protocol, output.fields)):
        if name == table and rows is not None:
            yield rows.select(schema.names).cast(schema)


def _as_mapping(row: Row) -> Mapping[str, Any]:
    if isinstance(row, pa.Table | pa.RecordBatch):
        if row.num_rows != 1:
            raise ValueError(f"one row is wanted, these are {row.num_rows}")
        return dict(row.to_pylist()[0])
    if isinstance(row, Mapping):
        return row
    made = getattr(row, "to_dict", None) or getattr(row, "_asdict", None)
    if made is None:
        raise TypeError(f"{type(row).__name__} is no row: a mapping, a table of one row or a Series is one")
    return dict(made())


def _keys(row: Mapping[str, Any]) -> "list[Key | None]":
    """The keys of the messages that a row is of: one, or request and reply, or publish and delivery; else none."""
    if "request_direction" in row:
        connection_id, asked = row["connection_id"], row["request_direction"]
        answered: Direction = "c2s" if asked == "s2c" else "s2c"
        return [_key(connection_id, asked, row["request_offset"]), _key(connection_id, answered, row["reply_offset"])]
    if "publish_offset" in row:
        one = _key(row["publish_connection_id"], "c2s", row["publish_offset"])
        return [one, _key(row["deliver_connection_id"], "s2c", row["deliver_offset"])]
    if "kind" in row or "community_id" in row or "fingerprint" in row:
        return []
    missing = [name for name in KEY if name not in row]
    if missing:
        raise LookupError(f"a row without {missing[0]} leads nowhere; keep {', '.join(KEY)}")
    return [_key(row["connection_id"], row["direction"], row["stream_offset"])]


def _key(connection_id: Any, direction: Direction, offset: Any) -> "Key | None":
    is_null = offset is None or offset != offset  # pandas has NaN for null
    return None if is_null else (int(connection_id), direction, int(offset))


def _gathered(index: _Index, row: Mapping[str, Any]) -> tuple[bytes, Any]:
    """The bytes of a message and the places of its packets; of one with a hole those in front of it."""
    places = index.places
    side = places.side(row["connection_id"], row["direction"])
    first = places.at_time(row["first_packet"], row["ts_ns"])
    last = max(first, places.at_time(row["last_packet"], row["end_ts_ns"]))
    return places.gather(side, row["stream_offset"], row["frame_len"], first, last, row["flaw"] == "truncated")


def _places(places: PacketPlaces, row: Mapping[str, Any]) -> list[int]:
    """The places of the packets of a connection, a problem or a file."""
    if "fingerprint" in row:
        return [places.first_of(row["path"])]
    if "community_id" in row:
        side = places.side(int(row["connection_id"]), "c2s")
        return list(places.of_connection(side, int(row["first_ts_ns"]), int(row["last_ts_ns"])).tolist())
    side = places.side(int(row["connection_id"]), row["direction"])
    offset, length = int(row["stream_offset"]), int(row["length"])
    if row["kind"] == "gap":
        offset, length = offset - 1, length + 2
    first = places.at_time(int(row["first_packet"]), int(row["ts"].timestamp() * 1_000_000) * 1000)
    return list(places.gather(side, offset, length, first, first)[1].tolist())
