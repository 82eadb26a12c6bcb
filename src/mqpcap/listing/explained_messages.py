"""Messages explained: found in a capture by packet or stream offset, or given as bytes.

In: captures and the packet or offset, or the bytes of one message. Out: `ExplainedMessage`, which masks secrets and
writes itself as JSON and as lines for people. Called by: ``explain``.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from mqpcap.capture import Capture
from mqpcap.errors import MisuseError
from mqpcap.listing.connection_search import MOST_NAMED, connection_query
from mqpcap.listing.explanation import Explanation, body_spans, explanation, secret_spans
from mqpcap.listing.extra_columns import BYTES, LAYOUT, VARIANT
from mqpcap.listing.hex_dump import dump
from mqpcap.listing.message_lines import Paint, Style, line
from mqpcap.listing.message_row import MessageRow, exchange_object
from mqpcap.listing.message_search import PacketSearch, PlaceSearch
from mqpcap.listing.message_words import value_text
from mqpcap.listing.row_bytes import bytes_after_hole, explanation_of, row_secrets
from mqpcap.protocols import checked_protocol, protocols
from mqpcap.query import Query
from mqpcap.reading import Choices, Meter, Outcome
from mqpcap.schema.field_items import Attempt, FieldItem
from mqpcap.schema.protocol import Direction, MessageQueue
from mqpcap.schema.secrets import MASK, SecretSpans, holds_secrets
from mqpcap.tables.json_lines import Json, json_object, json_time
from mqpcap.tables.schemas import CONNECTION_NUMBER
from mqpcap.wording import plural, shown

HEX_BYTES = 12
"""Bytes of a field that lines show in hex; JSON has all."""
OTHER_READINGS = 8
"""Interpretations besides the best that lines name; JSON has all."""
READING = ("layout", "direction", "header", "message", "dialect", "fits")
"""Attributes of each interpretation in JSON, besides the reason why it does not fit."""


@dataclass(frozen=True, slots=True)
class PacketName:
    """A packet's number, and the file that it is in where that is named."""

    number: int
    file: str | None = None

    @classmethod
    def parsed(cls, word: str | int) -> "PacketName":
        """``12``, ``#12`` or ``broker.pcap1#12``, as lines write it. Raises ValueError."""
        file, _, digits = str(word).strip().rpartition("#")
        if not re.fullmatch(r"0*[1-9]\d{0,17}", digits, re.ASCII):
            raise ValueError(f"{word!r} is not a packet's number from 1 on, or FILE#NUMBER")
        return cls(int(digits), file or None)

    def with_path(self, files: Sequence[str]) -> "PacketName":
        """The packet with its file's path, if the file has a short name as lines write it: ``f3`` is the third."""
        match = re.fullmatch(r"f([1-9]\d{0,8})", self.file or "")
        is_short = match is not None and self.index_in(files) == -1 and int(match[1]) <= len(files)
        return PacketName(self.number, files[int(match[1]) - 1]) if match is not None and is_short else self

    def index_in(self, files: Sequence[str]) -> int | None:
        """Which of several files is named, None for all; -1 for another file."""
        if self.file is None:
            return None
        indices = [i for i, name in enumerate(files) if self.file in (name, os.path.basename(name))]
        return indices[0] if indices else -1


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """A byte of a stream: a connection by name, its direction, the offset."""

    connection: str
    direction: Direction
    offset: int


@dataclass(frozen=True, slots=True)
class GivenBytes:
    """The bytes of a message, and how they are read."""

    data: bytes
    protocol: MessageQueue
    direction: Direction | None
    dialect: str | None


@dataclass(frozen=True, slots=True)
class PairingName:
    """A connection whose pairing is replayed; packet: only around a message."""

    connection: Query
    packet: PacketName | None


def what_is_explained(
    has_capture: bool, packet: "PacketName | str | int | None", pairing: str | None, connection: str | None,
    direction: Direction | None, offset: int | None, hex: str | bytes | None, protocol: str | None,
    dialect: str | None,
) -> PacketName | StreamPlace | GivenBytes | PairingName:  # fmt: skip
    """The message, bytes or pairing that ``explain`` is asked for. Raises MisuseError, which names options."""
    if direction not in (None, *get_args(Direction)):
        raise MisuseError(f"--direction is c2s or s2c, not {direction!r}")
    if hex is not None:
        if has_capture or (packet, pairing, connection, offset) != (None, None, None, None):
            raise MisuseError("--hex stands for the capture; give it with --protocol, --direction and --dialect only")
        return _given_bytes(hex, protocol, direction, dialect)
    if protocol is not None or dialect is not None:
        raise MisuseError("--protocol and --dialect go with --hex; in a capture the connection tells")
    if not has_capture:
        raise MisuseError("give a CAPTURE with --at, or --hex with --protocol")
    name = packet if packet is None or isinstance(packet, PacketName) else PacketName.parsed(packet)
    place = connection, direction, offset
    if pairing is not None:
        if place != (None, None, None):
            raise MisuseError("--pairing names the connection; it goes with --at only")
        return PairingName(connection_query(pairing, "--pairing"), name)
    if name is not None and place == (None, None, None):
        return name
    if name is None and connection is not None and direction is not None and offset is not None:
        connection_query(connection, "--connection")
        return StreamPlace(connection, direction, offset)
    raise MisuseError("name the message by --at PACKET, or by --connection, --direction and --offset together")


def _given_bytes(hex: str | bytes, name: str | None, direction: Direction | None, dialect: str | None) -> GivenBytes:
    try:
        data = bytes.fromhex(re.sub(r"[\s:,_-]|0[xX]", "", hex)) if isinstance(hex, str) else hex
    except ValueError:
        raise MisuseError("--hex: it is no even number of hex digits") from None
    if not data:
        raise MisuseError("--hex: there are no bytes in it")
    if name is None:
        raise MisuseError(f"--hex needs --protocol; there are {', '.join(protocols())}")
    try:
        protocol = protocols()[checked_protocol(name)]
    except ValueError as error:
        raise MisuseError(str(error)) from None
    if dialect is not None and dialect not in protocol.dialects:
        dialects = ", ".join(protocol.dialects)
        raise MisuseError(f"--dialect: {dialect!r} is no dialect of {protocol.name}; there are {dialects}")
    return GivenBytes(data, protocol, direction, dialect)


@dataclass(frozen=True, slots=True)
class ExplainedMessage:
    """The explanation of a message, its row if it was captured, and what of it must not be shown."""

    result: Explanation
    row: MessageRow | None
    mask: SecretSpans | None
    choices: Choices

    def shown(self, item: FieldItem) -> tuple[str, str, object]:
        """The name of a field, its bytes in hex and its value, as far as they may be seen and are kept."""
        value = None if isinstance(item.value, list | tuple) else item.value
        if self.mask is not None and self.mask.covers(item):
            return MASK if item.named else item.name, MASK, None if value is None else MASK
        kept = self.choices.bodies if item.body else None
        if kept is not None and isinstance(value, bytes):
            value = value[:kept] if kept else None
        length = 0 if item.inflated or item.value is None else item.length if kept is None else min(item.length, kept)
        return item.name, self.result.data[item.offset : item.offset + length].hex(), value

    def why(self, attempt: Attempt) -> str | None:
        """Why an interpretation does not fit, without its secrets; None if it fits."""
        return attempt.why if self.mask is None else self.mask.why(attempt)

    def as_json(self) -> Mapping[str, Json]:
        """The object that ``explain --json`` writes."""
        result, best, row = self.result, self.result.best, self.row
        fields_by_name: dict[str, Json] = {}
        if row is not None:
            ours = (BYTES, LAYOUT, VARIANT, CONNECTION_NUMBER)
            fields_by_name = json_object({name: value for name, value in row.message.items() if name not in ours})
            fields_by_name["ts"] = json_time(row.message["ts_ns"])  # type: ignore[arg-type]  # of MESSAGES
            if row.exchange is not None:
                fields_by_name["exchange"] = exchange_object(row.exchange)
        fields_by_name["protocol"] = result.protocol
        if best is not None:
            length = best.frame_len if best.frame_len is not None else len(result.data)
            fields_by_name["direction"] = best.direction
            for name, value in (("dialect", best.dialect), ("op", best.operation), ("frame_len", length)):
                fields_by_name[name] = fields_by_name.get(name) or value
        fields: list[Json] = []
        for item in best.items if best is not None else ():
            name, digits, shown_value = self.shown(item)
            fields.append({
                "offset": item.offset, "length": item.length, "hex": digits, "depth": item.depth, "name": name,
                **json_object({"value": shown_value}),
                "meaning": item.meaning, "column": item.column, "inflated": item.inflated,
            })  # fmt: skip
        return {
            **fields_by_name,
            "fits": best is not None and best.fits,
            "why": self.why(best) if best is not None else "no header fits",
            "layout": best.layout if best is not None else None,
            "message": best.message if best is not None else None,
            "bytes_left": result.left,
            "fields": fields,
            "readings": [
                {**{name: getattr(x, name) for name in READING}, "why": self.why(x)} for x in result.attempts
            ],
        }  # fmt: skip

    def lines(self, style: Style | None = None, readings: bool = False) -> Iterator[str]:
        """The explanation for people: a line for each field. readings: interpretations that do not fit are named, too.

        >>> import mqpcap
        >>> [message] = mqpcap.explain("pcaps/blipmq/qos1.pcap", at=12)
        >>> [line.split()[-3:] for line in message.lines() if "correlation_id" in line]
        [['correlation_id', '=', '1']]
        """
        style, result, best = style or Style(utc=True, dated=True), self.result, self.result.best
        paint = style.paint
        yield from self._place_lines(style)
        if best is None:
            yield f"{len(result.data)} bytes fit no header of {result.protocol}"
        else:
            yield paint("bold", _title(best))
            yield paint("dim", "offset  length  bytes                     field")
            yield from (self._field_line(item, paint) for item in best.items)
            if any(item.inflated for item in best.items):
                yield "offsets with + are in the inflated body"
            if best.why is not None:
                yield paint("red", f"does not fit: {shown(str(self.why(best)))}")
                kept = self.choices.bodies
                bodies = () if kept is None else body_spans(protocols()[result.protocol], best, kept)
                yield from dump(result.data, () if self.mask is None else self.mask.spans, left_out=bodies)
            if result.left:
                yield f"{result.left} bytes follow the message"
        shows_all = readings or best is None or not best.fits
        other_readings = [x for x in result.attempts[1:] if shows_all or x.fits]
        for attempt in other_readings[:OTHER_READINGS]:
            why = f": {shown(str(self.why(attempt)))}" if attempt.why else ""
            yield f"{'also fits' if attempt.fits else 'not'}: {_title(attempt)}{why}"
        if len(other_readings) > OTHER_READINGS:
            yield f"and {len(other_readings) - OTHER_READINGS} more readings; --json lists all"
        after_hole = 0 if self.row is None else bytes_after_hole(self.row)
        if after_hole:
            yield f"a hole: {plural(after_hole, 'more byte')} of the message were captured after missing ones"

    def _place_lines(self, style: Style) -> Iterator[str]:
        """The line of the message, and its place in the stream, if it was captured."""
        if self.row is not None:
            message = self.row.message
            yield line(message, None, style, self.row.exchange)
            name = f"c{message[CONNECTION_NUMBER]} " if CONNECTION_NUMBER in message else ""
            place = f"{message['connection_id']} {message['direction']} offset {message['stream_offset']}"
            yield f"connection {name}{place}, {message['frame_len']} bytes"

    def _field_line(self, item: FieldItem, paint: Paint) -> str:
        name, digits, value = self.shown(item)
        value_words = "" if value is None else " = " + (MASK if value == MASK else value_text(value, 120))
        digits = digits if len(digits) <= 2 * HEX_BYTES else digits[: 2 * HEX_BYTES - 2] + ".."
        place = f"+{item.offset}" if item.inflated else str(item.offset)
        meaning = f"  ({item.meaning})" if item.meaning else ""
        name = "  " * item.depth + paint("cyan", shown(name))
        return (
            f"{place:>6}  {item.length:>6}  {paint('dim', f'{digits:<24}')}  "
            f"{name}{value_words}{paint('dim', shown(meaning))}"
        )


def _title(attempt: Attempt) -> str:
    names = " / ".join(name for name in (attempt.header, attempt.message) if name) or attempt.layout
    return f"{names} ({attempt.direction}, dialect {attempt.dialect or 'by the connection'}, layout {attempt.layout})"


def explain_bytes(given: GivenBytes, choices: Choices) -> ExplainedMessage:
    """The explanation of the bytes of one message."""
    protocol, data = given.protocol, given.data
    result = explanation(protocol, data, given.direction, given.dialect)
    shows_all = choices.show_secrets or not holds_secrets(protocol)
    return ExplainedMessage(result, None, None if shows_all else secret_spans(protocol, data, result.best), choices)


def explain_captured(
    captures: Sequence[Capture], place: PacketName | StreamPlace, outcome: Outcome, meter: Meter
) -> tuple[list[ExplainedMessage], list[str]]:
    """The messages with bytes at a place, in order; and for each capture why it may have none."""
    if isinstance(place, PacketName):
        place = place.with_path([name for capture in captures for name in capture.files])
    rows: list[MessageRow] = []
    misses: list[str] = []
    holders: list[str] = []
    """The files that have such a packet."""
    for number, capture in enumerate(captures):
        if isinstance(place, StreamPlace):
            search: PlaceSearch | PacketSearch = PlaceSearch(number, place.connection, place.direction, place.offset)
        else:
            file = place.index_in(capture.files)
            if file == -1:
                continue
            search = PacketSearch(number, place.number, capture.files, file)
        search.run(capture, outcome, meter)
        rows += search.rows()
        if isinstance(search, PacketSearch):
            holders += (capture.files[x.file] for x in search.places if search.is_searched(x))
        misses.insert(0 if search.places else len(misses), search.miss)
    misses = misses or ([f"there is no file {place.file}"] if isinstance(place, PacketName) else [])
    if isinstance(place, PacketName) and len(holders := list(dict.fromkeys(holders))) > 1:
        dots = ", ..." if len(holders) > MOST_NAMED else ""
        outcome.notes.append(
            f"{plural(len(holders), 'file')} have a packet {place.number}: {', '.join(holders[:MOST_NAMED])}{dots}; "
            f"--at {holders[0]}#{place.number} names one"
        )
    rows.sort(key=lambda row: row.order)
    outcome.flaws.update(str(row.message["flaw"]) for row in rows if row.message["flaw"] is not None)
    choices = outcome.choices
    return [ExplainedMessage(explanation_of(row), row, row_secrets(row, choices), choices) for row in rows], misses
