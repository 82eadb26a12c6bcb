"""One frame, read by the interpreter and by Scapy, for tests.

``row`` and ``scapy_row`` give what each road says of one whole frame; ``by_program`` and ``by_classes`` the same for
any bytes and without what a layer derives from late columns, so that the two can be compared with ``==``.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scapy.config import conf
from scapy.packet import Raw

from mqpcap.decode import bytecode
from mqpcap.decode.columns import ColumnReader, Records, Spans
from mqpcap.decode.shared_facts import SharedFacts
from mqpcap.schema import fields
from mqpcap.schema.compiler import Program, compiled
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.gzip_body import inflate
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import ANY, ConnectionFacts, Evidence, Layout, MessageQueue, Observation

Said = tuple[dict[str, Any], Flaw]


def row(
    protocol: MessageQueue, layout: str, frame: bytes, facts: ConnectionFacts | None = None
) -> tuple[dict[str, Any], Flaw, str | None]:
    """The columns of one whole frame (without nulls), its flaw and the dialect of its reading.

    ``facts`` is what its connection says.
    """
    program, records = _records(protocol, layout, [frame], [facts or ConnectionFacts()])
    variant = int(records.variant[0])
    dialect = program.variant_dialect[variant] if variant >= 0 else None
    columns = {k: v for k, v in records.table.to_pylist()[0].items() if v is not None}
    return columns, Flaw(int(records.flaw[0])), dialect or protocol.layout(layout).dialect


def flaws(protocol: MessageQueue, layout: str, frames: list[bytes]) -> list[Flaw]:
    """The flaws of whole frames."""
    return [Flaw(flaw) for flaw in _records(protocol, layout, frames, [ConnectionFacts()])[1].flaw.tolist()]


def _records(
    protocol: MessageQueue, layout: str, frames: list[bytes], facts: list[ConnectionFacts]
) -> tuple[Program, Records]:
    reader = ColumnReader(protocol)
    program = reader.program
    index = [x.name for x in program.layouts].index(layout)
    ops = [ANY] * len(frames)
    if program.layouts[index].op_reg >= 0:
        headers = [program.scanner(layout).header(memoryview(frame), 0, len(frame)) for frame in frames]
        assert all(result == bytecode.COMPLETE for result, _ in headers), f"no header: {headers}"
        ops = [op for _, op in headers]
    buffer, sizes = np.frombuffer(b"".join(frames), np.uint8), np.array([len(frame) for frame in frames])
    n, end = np.zeros(len(frames), np.int64), np.cumsum(sizes)
    spans = Spans(
        buffer, end - sizes, end, np.full(len(frames), index, np.int32), np.array(ops, np.int64),
        np.zeros(len(frames), np.uint8), n, facts,
    )  # fmt: skip
    return program, reader.records(spans)


def observe(
    protocol: MessageQueue,
    connection: Evidence,
    direction: str,
    layout: str,
    frame: bytes,
    op: int,
    ts_ns: int = 0,
    shared: SharedFacts | None = None,
) -> None:
    """Show a frame to the protocol's evidence."""
    assert protocol.evidence is not None
    index = [x.name for x in compiled(protocol).layouts].index(layout)
    n, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    spans = Spans(
        np.frombuffer(frame, np.uint8), n, n + len(frame), np.full(1, index, np.int32), one * op, np.zeros(1, np.uint8)
    )
    (raw,) = ColumnReader(protocol).raw(spans)
    assert not raw.flaw.any()
    shared = shared or SharedFacts()
    client = np.full(1, direction == "c2s")

    def fits(suffix: str) -> NDArray[np.bool_]:
        return np.array([flaws(protocol, f"{layout}{suffix}", [frame])[0] is Flaw.NONE])

    about = one * op, one * ts_ns, shared.add_fact, fits
    protocol.evidence.observe(Observation(raw, n, [connection], n, client, *about))


def end_of(protocol: MessageQueue, layout: str, stream: bytes, ended: bool = True) -> list[tuple[int, int]]:
    """Where the messages of a stream begin and end, by the interpreter's scan."""
    program = ColumnReader(protocol).program
    hits = np.zeros((5, 1000), np.int64)
    n, *_ = program.scanner(layout, hits).scan(memoryview(stream), 0, len(stream), ended)
    return list(zip(*hits[:2, :n].tolist(), strict=True))


def scapy_row(
    cls: type[Message], frame: bytes, direction: str, layout: str | None = None
) -> tuple[dict[str, Any], Flaw]:
    """The same by the Scapy classes: every field of every layer that is a column, by column name."""
    packet = cls.read(frame, direction, layout)
    found: dict[str, Any] = {}
    flaw = Flaw.NONE
    layer: Any = packet
    while isinstance(layer, Message):
        _columns(layer, found)
        layer = layer.payload
    if isinstance(layer, Raw):
        extra = _extra(packet, direction, layout)
        if extra is None or layer.underlayer is packet:
            flaw = Flaw.MALFORMED
        else:
            found[extra] = layer.load
    return found, flaw


def _extra(packet: Message, direction: str, layout: str | None) -> str | None:
    """The column that takes what a body leaves over."""
    names = {x.extra_column for x in packet.layouts if x.direction == direction and layout in (None, x.name)}
    return names.pop() if len(names) == 1 else None


def _columns(message: Message, found: dict[str, Any]) -> None:
    for field in message.fields_desc:
        kind = fields.bare(field)
        value = message.fields.get(field.name)
        if value is None:
            continue
        if isinstance(kind, fields.Nested):
            _columns(value, found)
        elif field.column is not None:
            found[field.column] = _plain(kind, value)


def _plain(kind: Any, value: Any) -> Any:
    if isinstance(kind, fields.Array):
        if isinstance(kind.item, fields.Kind):
            return [_plain(kind.item, x) for x in value]
        items = []
        for x in value:
            inner: dict[str, Any] = {}
            _columns(x, inner)
            items.append(inner)
        return items
    if isinstance(kind, fields.Span) and kind.is_text:
        return value.decode("utf-8", "replace")
    return bool(value) if isinstance(kind, fields.Bool) else value


# -- the two roads, bare -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bare:
    """A protocol without what its layer derives; hidden columns show."""

    name: str
    layouts: tuple[Layout, ...]
    derive: None = None
    derived: tuple[()] = ()
    remembered: tuple[()] = ()


@cache
def _reader(protocol: MessageQueue) -> ColumnReader:
    program = compiled(protocol)
    shown = replace(program, columns=tuple(replace(c, hidden=False) for c in program.columns))
    reader = ColumnReader(protocol)
    reader.protocol = _Bare(protocol.name, protocol.layouts)  # type: ignore[assignment]  # all a Reader asks of one
    reader.program = shown
    return reader


def by_program(protocol: MessageQueue, name: str, frame: bytes) -> Said:
    """What the interpreter says of bytes taken for one message of a layout.

    Names of numbers are left out: Scapy's fields say them themselves. Fields of the header are there if it could be
    read. A flaw is TRUNCATED where the header says more bytes than there are, MALFORMED where it says fewer or cannot
    be read; MALFORMED stands for TOO_LONG too.
    """
    reader = _reader(protocol)
    program = reader.program
    index = [x.name for x in program.layouts].index(name)
    words = program.layouts[index]
    op, known = ANY, Flaw.NONE
    if words.header_pc >= 0:
        result, op = program.scanner(name).header(memoryview(frame), 0, len(frame))
        if result != bytecode.COMPLETE:
            return {}, Flaw.MALFORMED
        if any(isinstance(f, fields.Length) for f in protocol.layout(name).header.fields_desc):
            ends = end_of(protocol, name, frame)
            if not ends or ends[0][1] != len(frame):
                known = Flaw.MALFORMED if ends else Flaw.TRUNCATED
    n = np.zeros(1, np.int64)
    records = reader.records(
        Spans(
            np.frombuffer(frame, np.uint8), n, n + len(frame), np.full(1, index, np.int32), np.full(1, op, np.int64),
            np.full(1, known, np.uint8),
        )
    )  # fmt: skip
    flaw = Flaw(int(records.flaw[0]))
    columns = records.table.drop_columns([c.name_column for c in program.columns if c.name_column])
    return without_nulls(columns.to_pylist()[0]), Flaw.MALFORMED if flaw is Flaw.TOO_LONG else flaw


def by_classes(protocol: MessageQueue, name: str, frame: bytes) -> Said:
    """What the Scapy classes say of the same bytes."""
    layout = protocol.layout(name)
    if layout.header is None:
        return _by_bodies(layout, frame)
    header = layout.header
    try:
        head, behind = header.begin(frame)
    except fields.Broken:
        return {}, Flaw.MALFORMED
    columns, flaw = scapy_row(header, frame, layout.direction, name)
    if flaw is Flaw.NONE and conf.padding_layer in header.read(frame, layout.direction, name):
        flaw = Flaw.MALFORMED
    if flaw is Flaw.NONE:
        return without_nulls(columns), flaw
    length = head._length()
    if length is not None and head.fields[length.name] - length.less > len(behind):
        flaw = Flaw.TRUNCATED
    elif length is None or head.fields[length.name] - length.less == len(behind):
        op = head.fields[layout.op] if layout.op else ANY
        packed = layout.packed is not None and head.fields[layout.packed[0]] & layout.packed[1]
        unpacks = not packed or inflate(behind)[0] is not None
        known = op in layout.bodies or ANY in layout.bodies
        flaw = Flaw.MALFORMED if known or not unpacks else Flaw.UNKNOWN
    only_head: dict[str, Any] = {}
    _columns(head, only_head)
    return without_nulls(only_head), flaw


def _by_bodies(layout: Layout, frame: bytes) -> Said:
    """A message without a header: the first class that reads it to its end."""
    for reading in layout.bodies[ANY]:
        cls = reading if isinstance(reading, type) else reading.message
        try:
            message, left = cls.begin(frame)
        except fields.Broken:
            continue
        if not left:
            columns: dict[str, Any] = {}
            _columns(message, columns)
            return without_nulls(columns), Flaw.NONE
    return {}, Flaw.MALFORMED


def without_nulls(value: Any) -> Any:
    """A row as both roads can say it: what is null is not there."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(x) for x in value] if isinstance(value, list) else value
