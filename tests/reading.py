"""One frame, read by the interpreter and by Scapy, for tests."""

from typing import Any

import numpy as np
from scapy.packet import Raw

from mqpcap import interpreter as ip
from mqpcap import wire
from mqpcap.flaws import Flaw
from mqpcap.protocol import ANY, MessageQueue
from mqpcap.records import Reader, Spans


def row(protocol: MessageQueue, layout: str, frame: bytes) -> tuple[dict[str, Any], Flaw, str | None]:
    """The columns of one whole frame (without nulls), its flaw and the dialect of its reading."""
    reader = Reader(protocol)
    program = reader.program
    index = [x.name for x in program.layouts].index(layout)
    compiled = program.layouts[index]
    op = ANY
    if compiled.op_reg >= 0:
        machine = program.interpreter()
        result = machine.header(memoryview(frame), 0, len(frame), compiled.header_pc)
        assert result == ip.DONE, f"no header: {result}"
        op = machine.register(compiled.op_reg)
    n = np.zeros(1, np.int64)
    records = reader.records(
        Spans(
            np.frombuffer(frame, np.uint8), n, n + len(frame), np.full(1, index, np.int32), np.full(1, op, np.int64),
            np.zeros(1, np.uint8),
        )
    )  # fmt: skip
    reading = int(records.reading[0])
    dialect = program.alt_dialect[reading] if reading >= 0 else None
    columns = {k: v for k, v in records.table.to_pylist()[0].items() if v is not None}
    return columns, Flaw(int(records.flaw[0])), dialect or protocol.layout(layout).dialect


def end_of(protocol: MessageQueue, layout: str, stream: bytes, ended: bool = True) -> list[tuple[int, int]]:
    """Where the messages of a stream begin and end, by the interpreter's scan."""
    program = Reader(protocol).program
    compiled = program.layouts[[x.name for x in program.layouts].index(layout)]
    starts, ends, ops = (np.zeros(1000, np.int64) for _ in range(3))
    n, *_ = program.interpreter().scan(
        memoryview(stream), 0, len(stream), compiled.header_pc, compiled.op_reg, memoryview(compiled.table),
        memoryview(program.alt_pc), ended, False, memoryview(starts), memoryview(ends), memoryview(ops),
    )  # fmt: skip
    return list(zip(starts[:n].tolist(), ends[:n].tolist(), strict=True))


def scapy_row(cls: type[wire.Message], frame: bytes, direction: str, layout: str | None = None) -> tuple[dict[str, Any], Flaw]:
    """The same by the Scapy classes: every field of every layer that is a column, by column name."""
    packet = cls.read(frame, direction, layout)
    found: dict[str, Any] = {}
    flaw = Flaw.NONE
    layer: Any = packet
    while isinstance(layer, wire.Message):
        _columns(layer, found)
        layer = layer.payload
    if isinstance(layer, Raw):
        extra = _extra(packet, direction, layout)
        if extra is None or layer.underlayer is packet:
            flaw = Flaw.MALFORMED
        else:
            found[extra] = layer.load
    return found, flaw


def _extra(packet: wire.Message, direction: str, layout: str | None) -> str | None:
    """The column that takes what a body leaves over."""
    names = {x.extra_column for x in packet.layouts if x.direction == direction and layout in (None, x.name)}
    return names.pop() if len(names) == 1 else None


def _columns(message: wire.Message, found: dict[str, Any]) -> None:
    for field in message.fields_desc:
        kind = field.kind if isinstance(field, wire.Only) else field
        value = message.fields.get(field.name)
        if value is None:
            continue
        if isinstance(kind, wire.Part):
            _columns(value, found)
        elif field.column is not None:
            found[field.column] = _plain(kind, value)


def _plain(kind: Any, value: Any) -> Any:
    if isinstance(kind, wire.Many):
        if isinstance(kind.item, wire.Kind):
            return [_plain(kind.item, x) for x in value]
        items = []
        for x in value:
            fields: dict[str, Any] = {}
            _columns(x, fields)
            items.append(fields)
        return items
    if isinstance(kind, wire.Span) and kind.is_text:
        return value.decode("utf-8", "replace")
    return value
