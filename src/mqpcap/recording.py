"""Captures in Python: pyarrow tables, and the message and packets of each row.

In: captures as files, bytes or file objects. Out: the tables of ``mqpcap export`` (same columns, same rows), and Scapy
packets. Called by: users, through ``mqpcap.read`` and ``mqpcap.open``.

One `Recording` may be used by several threads. Each pass over a capture has a `Capture` object of its own, and the
results of a pass are published together when it ends.
"""

import os
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self, TypeAlias, TypeGuard, Unpack, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import mqpcap
from mqpcap.arrays import DICTIONARY_TEXT, file_text
from mqpcap.background import Background
from mqpcap.call_options import names_options
from mqpcap.capture import Capture
from mqpcap.capture.inputs import InputFile
from mqpcap.continued_files import captures
from mqpcap.errors import CaptureError, let_go
from mqpcap.listing.extra_columns import LAYOUT, VARIANT
from mqpcap.listing.packet_locator import PacketLocator
from mqpcap.options import OPTIONAL_TABLES, Options
from mqpcap.protocols import checked_protocol, protocols
from mqpcap.query import MatchTally, Query, Selection, query
from mqpcap.reading import ReadingOptions, checked_choices, wired
from mqpcap.schema.protocol import Direction, other_direction
from mqpcap.spark.schemas import table_names, table_schema
from mqpcap.statistics.capture_quality import (
    CaptureQuality,  # what the command says is what Python says; only there is it counted
)
from mqpcap.tables.joining import Part
from mqpcap.tables.output import NamedTables, Output
from mqpcap.tables.schemas import TABLES
from mqpcap.tables.spilled_rows import SpilledRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from scapy.packet import Packet

    from mqpcap.scapy.session import Key, Pair
    from mqpcap.schema.message import Message

Input: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO
"""A capture: the path of a file, a directory or a glob; the bytes of a capture file; a file opened in binary mode."""
Paths: TypeAlias = Input | Sequence[Input]
Row: TypeAlias = Mapping[str, Any] | pa.Table | pa.RecordBatch
"""A row of any table: a mapping; a table, batch or DataFrame with one row; a pandas Series or a named tuple."""
COPY_BYTES = 1 << 20
"""Bytes copied at a time from a file object."""
KEY = ("connection_id", "direction", "stream_offset")


def read(
    path: Paths,
    table: str = "messages",
    filter: "pc.Expression | str | None" = None,
    columns: Sequence[str] | str | None = None,
    *,
    progress: Callable[[int], None] | None = None,
    notes: list[str] | None = None,
    **options: Unpack[ReadingOptions],
) -> pa.Table:
    """A table of a capture, or of several.

    table: ``messages``, ``exchanges``, ``deliveries``, ``connections``, ``problems``, ``captures`` or a protocol.
    filter: the rows to read. A text is a filter as in ``mqpcap export -Y``: it selects messages, and the rows of other
    tables that belong to them. A ``pyarrow.compute.Expression`` selects rows of this table.
    columns: the columns to read. Only these rows and columns are held in memory.
    notes: a list that gets notes on what could not be read, and on why no message matches. options: those of ``open``.
    Raises QueryError for a text that is not a filter.

    >>> import mqpcap
    >>> rows = mqpcap.read("pcaps/blipmq/qos1.pcap", filter='op == "PUBLISH"', columns=["op", "body_len"])
    >>> rows.to_pylist()[0]
    {'op': 'PUBLISH', 'body_len': 5}
    """
    schema, columns = table_schema(_checked_table(table)), [columns] if isinstance(columns, str) else columns
    choices = checked_choices(**options)
    opened, copies = open_inputs(path, choices.is_one)
    recording = Recording(opened, choices.dissection(), copies, progress)
    batches = list(recording.batches(table, filter, columns, notes))
    return pa.Table.from_batches(batches, schema if columns is None else pa.schema([schema.field(x) for x in columns]))


def open(
    path: Paths,
    *,
    decode_as: Mapping[int, str] | None = None,
    show_secrets: bool = False,
    bodies: int | Literal["full", "none"] | None = None,
    max_memory_bytes: int | None = None,
    keylog: str | os.PathLike[str] | None = None,
    one: bool = False,
    progress: Callable[[int], None] | None = None,
) -> "Recording":
    """A capture, or several: files, directories, globs, bytes, file objects. Packets are read when first needed.

    decode_as: protocols by server port, ``{9092: "flymq"}``, and tunnels by UDP port, ``{4799: "vxlan"}``.
    show_secrets: passwords and keys are not masked.
    bodies: bytes of each body to keep; None or ``"full"`` keeps all, ``"none"`` keeps none.
    max_memory_bytes: limit for reassembly, as ``--max-memory``. keylog: a file of TLS secrets, as ``--keylog``.
    one: the inputs are one recording, as ``--one``.
    progress: called with the number of bytes that were read, for example ``mqpcap.ProgressBar(path)``.
    Raises CaptureError for an input that is not a capture file, ValueError or TypeError for a wrong option.
    """
    choices = checked_choices(decode_as, show_secrets, bodies, max_memory_bytes, keylog=keylog, one=one)
    options = choices.dissection()
    opened, copies = open_inputs(path, one)
    return Recording(opened, options, copies, progress)


def listed(path: Paths) -> list[Input]:
    """The inputs, one or several."""
    is_one = isinstance(path, str | bytes | bytearray | memoryview) or not isinstance(path, Sequence)
    return [path] if is_one else list(path)  # type: ignore[list-item, arg-type]  # as asked


def open_inputs(path: Paths, is_one: bool = False) -> "tuple[list[Capture], list[_Copy]]":
    """The captures in some inputs, and temporary files that must live as long as the captures are read."""
    inputs = listed(path)
    if not inputs:
        raise ValueError("there is no input: name at least one capture")
    copies = [_Copy(x) for x in inputs if is_content(x)]
    names = _unique_names(copies)
    opened = _located([os.fspath(x) for x in inputs if not is_content(x)], {}, is_one)  # type: ignore[arg-type]  # a path
    for copy in copies:  # each by itself: names of temporary files do not say what belongs together
        opened += [_renamed(capture, names[copy.path]) for capture in _located([copy.path], names, False)]
    return opened, copies


def _located(paths: Sequence[str], names: Mapping[str, str], is_one: bool) -> list[Capture]:
    """The captures in some inputs; ``names`` by path are for messages."""
    inputs = captures(paths, is_one)
    for name, reason in inputs.unreadable:
        raise CaptureError(f"{names.get(name, name)}: {reason}")
    return inputs.captures


def is_content(given: Input) -> TypeGuard[bytes | bytearray | memoryview | BinaryIO]:
    """Whether an input is the capture itself, not its path."""
    return isinstance(given, bytes | bytearray | memoryview) or hasattr(given, "read")


class _Copy:
    """A temporary file with the bytes of a capture that has no path; it is deleted with this object."""

    def __init__(self, source: Any, name: str | None = None) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="mqpcap-")  # noqa: SIM115  # open as long as this object
        weakref.finalize(self, let_go, self._file)
        self.path: str = self._file.name
        name = getattr(source, "name", name)
        self.name = name if isinstance(name, str) else "<bytes>"
        if hasattr(source, "read"):
            while piece := source.read(COPY_BYTES):
                if not isinstance(piece, bytes):
                    raise TypeError(f"{self.name} gives text: open it in binary mode, open(name, 'rb')")
                self._file.write(piece)
        else:
            self._file.write(source)
        self._file.flush()


def _unique_names(copies: Iterable[_Copy]) -> dict[str, str]:
    """Names by path; copies with equal names are numbered."""
    names: dict[str, str] = {}
    for copy in copies:
        name, number = copy.name, 1
        while name in names.values():
            number += 1
            name = f"{copy.name} {number}"
        names[copy.path] = name
    return names


def _renamed(capture: Capture, name: str) -> Capture:
    """The capture in a copy, with the name of its original."""
    return Capture(tuple(InputFile(name, path) for path in capture.files))


def _checked_table(table: str) -> str:
    if table not in table_names():
        raise ValueError(f"{table!r} is no table; there are {', '.join(table_names())}")
    return table


@dataclass(frozen=True, slots=True)
class _Contents:
    """What one pass over a capture leaves: packet locations, message rows, and its ``info`` entry."""

    packets: PacketLocator
    messages: pa.Table
    info: dict[str, Any]

    def message(self, connection_id: int, direction: str, offset: int) -> dict[str, Any]:
        """The row of a message. Raises LookupError if there is no such message."""
        ids, offsets = (self.messages[name] for name in ("connection_id", "stream_offset"))
        candidates = self.messages.filter(pc.and_(pc.equal(ids, connection_id), pc.equal(offsets, offset)))
        for row in candidates.to_pylist():
            if row["direction"] == direction:
                return dict(row)
        raise LookupError(f"no message of connection {connection_id} begins at {direction} offset {offset}")


@dataclass(slots=True)
class _Index:
    """Index of one capture: `_Contents` after the first pass, all tables after the first table is needed."""

    capture: Capture
    options: Options
    progress: Callable[[int], None] | None = None
    _contents: _Contents | None = None
    _tables: dict[str, pa.Table] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while a thread reads contents or tables, so that they are read once."""

    def read_outputs(
        self, tables: Sequence[str] | None = None, only: Query | None = None, tally: MatchTally | None = None
    ) -> Iterator[Output]:
        """Reads the capture and yields its outputs; at the end the index has contents.

        tables: names of the tables to read, None for all. only: a filter, as in ``mqpcap export -Y``. tally: counts
        its matches.
        """
        options, names = self.options, _index_schema().names
        capture = replace(self.capture, notes=[], facts=[])  # another thread may read it at the same time
        if tables is not None:
            options = replace(
                options, optional_tables=OPTIONAL_TABLES & {*tables, "exchanges"}
            )  # ``info`` counts pairs
        report, messages = CaptureQuality(), SpilledRows(_index_schema())
        ready: deque[Output] = deque()

        def count_and_keep(output: Output) -> None:
            if tally is not None and output.table == "messages":
                tally.match_count += output.rows.num_rows
            ready.append(output)

        selection = None if only is None else Selection(only, count_and_keep)

        def take(output: Output, first_ns: int) -> None:
            report.take(output)
            if tally is not None:
                tally.look(output, first_ns)
            if output.table == "messages":
                messages.append(output.rows.select(names))
            if selection is None:
                ready.append(output)
            else:
                selection.add(output, first_ns)

        with ThreadPoolExecutor(1, "mqpcap-finish") as pool:
            locator = PacketLocator(capture, options.decode_as)
            pipeline = wired(capture, options, take, locator.hooks(), Background(pool))
            for _ in pipeline.steps(self.progress):
                while ready:
                    yield ready.popleft()
        if selection is not None:
            selection.finish()
            yield from ready
        report.end(capture, pipeline.stages.counts, pipeline.stages.server_notes())
        self._contents = _Contents(locator, messages.table(), dict(report.as_json()))

    def contents(self) -> _Contents:
        """The contents; the first call reads the capture, unless a table was read before."""
        with self._lock:
            if self._contents is None:
                for _ in self.read_outputs(tables=()):
                    pass
            assert self._contents is not None
            return self._contents

    def load_tables(self) -> Mapping[str, pa.Table]:
        """The tables by name; the first call reads them."""
        with self._lock:
            if self._tables is None:
                spilled = {name: SpilledRows(table_schema(name)) for name in table_names()}
                for output in self.read_outputs():
                    for name in {output.table, output.protocol or output.table}:
                        for rows in _rows(output, name):
                            spilled[name].append(rows)
                self._tables = {name: rows.table() for name, rows in spilled.items()}
            return self._tables


class Recording(NamedTables):
    """Opened captures: their tables, and from any row the message and its packets. Returned by ``mqpcap.open``.

    The first access to a table reads the captures once. All tables are then in mapped temporary files, together five
    times as large as a capture of small messages. ``batches`` reads the captures again and keeps no rows.
    Several threads may use one recording.

    >>> import mqpcap
    >>> capture = mqpcap.open("pcaps/blipmq/qos1.pcap")
    >>> capture.packet(capture.exchanges.slice(0, 1)).summary()
    '127.0.0.1:39290 > 127.0.0.1:5555 BlipMQ HELLO id=1'
    """

    def __init__(
        self,
        captures: Sequence[Capture],
        options: Options,
        copies: Sequence[_Copy] = (),
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._captures = list(captures)
        self._copies = copies  # temporary files that live as long as this object
        self._indexes = {file_text(capture.files[0]): _Index(capture, options, progress) for capture in captures}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled without its tables, which are read again when they are needed."""
        options = next(iter(self._indexes.values())).options
        contents = {copy.path: (copy.name, Path(copy.path).read_bytes()) for copy in self._copies}
        return _unpickled, (self._captures, options, contents)

    def close(self) -> None:
        """Frees the tables and their temporary files. They are read again if they are needed again."""
        self._indexes = {
            name: _Index(index.capture, index.options, index.progress) for name, index in self._indexes.items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<mqpcap.Recording of {', '.join(self.files)}>"

    @property
    def files(self) -> tuple[str, ...]:
        """The files, as they were given."""
        return tuple(name for capture in self._captures for name in capture.files)

    def __getitem__(self, name: str) -> pa.Table:
        """A table by its name, as `table`."""
        return self.table(name)

    if TYPE_CHECKING:  # so that editors and type checkers refuse other names
        blipmq: pa.Table
        flymq: pa.Table
        fq: pa.Table
        kokaq: pa.Table
        mqtt: pa.Table
        msgq: pa.Table
    else:

        def __getattr__(self, name: str) -> pa.Table:
            """The table of a protocol: ``capture.fq``."""
            if hasattr(type(self), name):  # the property is there, and failed: its own error says why
                return object.__getattribute__(self, name)
            if name not in protocols():
                raise AttributeError(_no_attribute(name))
            return self.protocol(name)

    # -- tables --------------------------------------------------------------------------------------------

    @names_options
    def protocol(self, name: str) -> pa.Table:
        """The messages of a protocol with all its fields. Raises ValueError for an unknown protocol."""
        return self.table(checked_protocol(name))

    @names_options
    def table(self, name: str) -> pa.Table:
        """A table by its name. Raises ValueError for an unknown name."""
        empty = table_schema(_checked_table(name)).empty_table()
        return pa.concat_tables([empty, *(index.load_tables()[name] for index in self._indexes.values())])

    @names_options
    def batches(
        self,
        table: str = "messages",
        filter: "pc.Expression | str | None" = None,
        columns: Sequence[str] | None = None,
        notes: list[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a table as they are read, for captures that are larger than memory; see ``mqpcap.read``."""
        schema = table_schema(_checked_table(table))
        missing = [name for name in columns or () if name not in schema.names]
        if missing:
            raise ValueError(f"{table} has no column {missing[0]!r}; there are {', '.join(schema.names)}")
        only = query(filter) if isinstance(filter, str) else None
        if only is not None:
            for index in self._indexes.values():
                only.check_bodies(index.options.policy.bodies)
        tally = None if only is None else MatchTally(only)
        for output in (x for index in self._indexes.values() for x in index.read_outputs([table], only, tally)):
            for rows in _rows(output, table):
                rows = rows if filter is None or only is not None else rows.filter(filter)
                yield from rows.select(schema.names if columns is None else list(columns)).combine_chunks().to_batches()
        if notes is not None:
            notes += [note for index in self._indexes.values() for note in index.contents().info["notes"]]
            notes += [tally.note] if tally is not None and tally.note is not None else []

    @property
    def info(self) -> list[dict[str, Any]]:
        """Facts and quality of each capture: the entries of ``mqpcap info --json``."""
        return [index.contents().info for index in self._indexes.values()]

    def plot(self) -> "Figure":
        """A figure of matplotlib: messages and errors over time, and latencies by operation.

        A notebook shows it; ``savefig`` writes it. Raises OutputError if matplotlib is not installed.
        """
        from mqpcap.statistics.capture_figure import capture_figure

        return capture_figure(self.messages, self.exchanges)

    # -- packets -------------------------------------------------------------------------------------------

    @names_options
    def packet(self, row: Row, part: Part | None = None) -> "Packet":
        """The Scapy packet of a row of any table.

        A row of ``messages`` or of a protocol's table gives the message as ``MqSession`` does: whole, with ``.mq``.
        A row of ``exchanges`` gives the request, or the reply with ``part="reply"``. A row of ``deliveries`` gives the
        publish, or the delivery with ``part="delivery"``. A row of another table gives its first packet.
        Raises LookupError for a row of another capture or without that part, ValueError for an unknown part.
        """
        columns = _as_mapping(row)
        contents, keys = self._index(columns).contents(), _keys(columns)
        if part is not None and part not in keys:
            if part not in get_args(Part):
                raise ValueError(f"{part!r} is no part of a row; there are {', '.join(get_args(Part))}")
            raise ValueError(f"the row has no part {part!r}{'; it has ' + ' and '.join(keys) if len(keys) > 1 else ''}")
        if not keys:
            return self.packets(columns)[0]
        key = next(filter(None, keys.values())) if part is None else keys[part]
        if key is None:
            raise LookupError(f"the row has no {part}")
        return self._message(self._index(columns), contents, key)

    @names_options
    def packets(self, row: Row) -> "list[Packet]":
        """The Scapy packets of a row of any table, in the order of capture.

        A message has the packets that carried it; an exchange or a delivery those of both messages; a connection all
        its packets. A problem has the packets with bytes of its range; a gap those on both sides of it.
        """
        from mqpcap.scapy.session import as_scapy

        columns = _as_mapping(row)
        contents, keys = self._index(columns).contents(), _keys(columns)
        indexes: set[int] = set()
        for key in filter(None, keys.values()):
            indexes.update(_gathered(contents.packets, contents.message(*key))[1].tolist())
        if not keys:
            indexes.update(_packet_indexes(contents.packets, columns))
        return [as_scapy(packet) for packet in contents.packets.packets(np.array(sorted(indexes), np.int64))]

    def _index(self, row: Mapping[str, Any]) -> _Index:
        """The index of the row's capture."""
        indexes = self._indexes
        name = row.get("capture", next(iter(indexes)) if len(indexes) == 1 else "some capture")
        if name not in indexes:
            raise LookupError(f"the row is of {name}, not of {', '.join(indexes)}")
        return indexes[name]

    def _message(self, index: _Index, contents: _Contents, key: "Key") -> "Message":
        from mqpcap.scapy.session import PairLookup, Seen, message

        row = contents.message(*key)
        raw, indexes = _gathered(contents.packets, row)
        layout, variant = row.pop(LAYOUT), row.pop(VARIANT)
        pair = PairLookup(lambda: _pair(index, key))
        mq = Seen(**row, packets_raw=tuple(contents.packets.packets(indexes)), pair=pair)
        return message(protocols()[row["protocol"]].layout(layout), raw, variant, mq)


def _unpickled(captures: Sequence[Capture], options: Options, contents: Mapping[str, tuple[str, bytes]]) -> Recording:
    """A recording as it was pickled; ``contents``: what was in each temporary file, by its path."""
    copies = {path: _Copy(content, name) for path, (name, content) in contents.items()}
    moved = [
        replace(x, inputs=tuple(replace(f, path=copies[f.path].path) if f.path in copies else f for f in x.inputs))
        for x in captures
    ]
    return Recording(moved, options, [*copies.values()])


def _pair(index: _Index, key: "Key") -> "Pair":
    """The pair of a message, from the table ``exchanges``."""
    from mqpcap.scapy.session import Pair, pairs_of

    connection_id, _, offset = key
    is_end = (pc.field("request_offset") == offset) | (pc.field("reply_offset") == offset)
    rows = index.load_tables()["exchanges"].filter((pc.field("connection_id") == connection_id) & is_end).to_pylist()
    return next((pair for row in rows for end, pair in pairs_of(row) if end == key), Pair())


@cache
def _index_schema() -> pa.Schema:
    """The columns of ``messages`` that Scapy's packets have, and the layout and variant of each message."""
    from mqpcap.scapy.session import COLUMNS

    return pa.schema([*map(TABLES["messages"].field, COLUMNS), (LAYOUT, DICTIONARY_TEXT), (VARIANT, DICTIONARY_TEXT)])


def _rows(output: Output, table: str) -> Iterator[pa.Table]:
    """The rows of a table in an output, dictionaries as text."""
    schema = table_schema(table)
    for name, rows in ((output.table, output.rows), (output.protocol, output.fields)):
        if name == table and rows is not None:
            yield rows.select(schema.names).cast(schema)


def _no_attribute(name: str) -> str:
    """The words for a name that a recording does not have: a call of the package, the nearest table, or examples."""
    if name in mqpcap.__all__:
        return f"a recording has no {name!r}: that is mqpcap.{name}, with the path of the capture"
    meant = "".join(f"; did you mean {near}?" for near in get_close_matches(name, table_names(), 1))
    return f"a recording has no {name!r}{meant or '; its tables have: .messages.to_pandas(), .fq, .exchanges'}"


def _as_mapping(row: Row) -> Mapping[str, Any]:
    if hasattr(row, "columns") and not isinstance(row, Mapping):  # a DataFrame of pandas or Polars, a table, a batch
        row = pa.table(row)
    if isinstance(row, pa.Table):
        if row.num_rows != 1:
            raise ValueError(f"one row is wanted, these are {row.num_rows}")
        return dict(row.to_pylist()[0])
    if isinstance(row, Mapping):
        return row
    to_mapping = getattr(row, "to_dict", None) or getattr(row, "_asdict", None)
    if to_mapping is None:
        raise TypeError(f"{type(row).__name__} is no row: a mapping, a table of one row or a Series is one")
    return dict(to_mapping())


def _keys(row: Mapping[str, Any]) -> "dict[str, Key | None]":
    """The keys of the row's messages by part: request and reply, publish and delivery, or one; none for other rows."""
    if "request_direction" in row:
        connection_id, asked = row["connection_id"], row["request_direction"]
        return {
            "request": _key(connection_id, asked, row["request_offset"]),
            "reply": _key(connection_id, other_direction(asked), row["reply_offset"]),
        }
    if "publish_offset" in row:
        return {
            "publish": _key(row["publish_connection_id"], "c2s", row["publish_offset"]),
            "delivery": _key(row["deliver_connection_id"], "s2c", row["deliver_offset"]),
        }
    if "kind" in row or "community_id" in row or "fingerprint" in row:
        return {}
    missing = [name for name in KEY if name not in row]
    if missing:
        raise LookupError(f"a row without {missing[0]} leads nowhere; keep {', '.join(KEY)}")
    return {"message": _key(row["connection_id"], row["direction"], row["stream_offset"])}


def _key(connection_id: Any, direction: Direction, offset: Any) -> "Key | None":
    is_null = offset is None or offset != offset  # pandas has NaN for null
    return None if is_null else (int(connection_id), direction, int(offset))


def _gathered(locator: PacketLocator, row: Mapping[str, Any]) -> tuple[bytes, Any]:
    """The bytes of a message, up to its first hole, and the indexes of its packets."""
    side = locator.side(row["connection_id"], row["direction"])
    first_index = locator.index_at(row["first_packet"], row["ts_ns"])
    last_index = max(first_index, locator.index_at(row["last_packet"], row["end_ts_ns"]))
    is_truncated = row["flaw"] == "truncated"
    return locator.gather(side, row["stream_offset"], row["frame_len"], first_index, last_index, is_truncated)


def _packet_indexes(locator: PacketLocator, row: Mapping[str, Any]) -> list[int]:
    """The indexes of the packets of a connection, a problem or a file."""
    if "fingerprint" in row:
        return [locator.first_index(row["path"])]
    if "community_id" in row:
        side = locator.side(int(row["connection_id"]), "c2s")
        return list(locator.connection_packets(side, int(row["first_ts_ns"]), int(row["last_ts_ns"])).tolist())
    side = locator.side(int(row["connection_id"]), row["direction"])
    offset, length = int(row["stream_offset"]), int(row["length"])
    if row["kind"] == "gap":
        offset, length = offset - 1, length + 2
    index = locator.index_at(int(row["first_packet"]), int(row["ts"].timestamp() * 1_000_000) * 1000)
    return list(locator.gather(side, offset, length, index, index)[1].tolist())
