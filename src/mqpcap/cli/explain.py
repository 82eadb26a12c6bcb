"""``mqpcap explain``: one message, field by field."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from mqpcap.cli.command import command
from mqpcap.cli.completion import dialects, protocols
from mqpcap.cli.console import coloured, metered, put, wrapped
from mqpcap.cli.options import color_option, common, misuse_of, packet_name, protocol_name, utc_option
from mqpcap.cli.reading import finish, found
from mqpcap.reading import Choices, Outcome, size_bytes
from mqpcap.wording import plural, shown

if TYPE_CHECKING:
    from mqpcap.cli.lines import Paint
    from mqpcap.listing.explained_messages import ExplainedMessage, PacketName, StreamPlace
    from mqpcap.listing.explanation import Attempt, FieldItem
    from mqpcap.schema.protocol import Direction


@dataclass(frozen=True, slots=True)
class ExplainStyle:
    """How an explanation is written: as JSON or text, with other interpretations, ``--color``, times in UTC."""

    as_json: bool
    readings: bool
    color: str
    utc: bool = True


HEX_BYTES = 12
"""Bytes of a field that are shown in hex; ``--json`` has all."""
OTHER_READINGS = 8


@command(
    epilog="Examples: mqpcap explain pcaps/blipmq/qos1.pcap --at 12\n          mqpcap explain "
    "pcaps/faults/blipmq_lost.pcap --pairing c1"
)
@click.argument("capture", required=False, metavar="[CAPTURE]", type=click.Path(readable=False))
@click.option(
    "--at",
    "packet",
    callback=packet_name,
    metavar="PACKET",
    help="Read the messages with bytes in this packet, as 12, or broker.pcap1#12 of several files.",
)
@click.option(
    "--pairing",
    metavar="NAME",
    help="Replay how the replies of a connection found their requests; with --at only around a message.",
)
@click.option(
    "--connection",
    metavar="NAME",
    help="Read a message of this connection, as c7, with:",
)
@click.option(
    "--direction", type=click.Choice(["c2s", "s2c"]), help="- its sender, the client (c2s) or the server (s2c),"
)
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="- and an offset of its bytes in the stream.")
@click.option("--hex", "hex_text", metavar="HEX", help="Read these bytes, with --protocol.")
@click.option("--protocol", metavar="NAME", shell_complete=protocols, help="Read the bytes of --hex in this protocol.")
@click.option("--dialect", metavar="NAME", shell_complete=dialects, help="Read them in this dialect only.")
@click.option("--json", "as_json", is_flag=True, help="Write an object per message, or one for a pairing.")
@click.option("--readings", is_flag=True, help="Add other readings, and why they do not fit.")
@utc_option
@color_option
@common
def explain(
    capture: str | None,
    packet: "PacketName | None",
    pairing: str | None,
    connection: str | None,
    direction: "Direction | None",
    offset: int | None,
    hex_text: str | None,
    protocol: str | None,
    dialect: str | None,
    as_json: bool,
    readings: bool,
    utc: bool,
    color: str,
    choices: Choices,
) -> None:
    """Read one message field by field.

    Each field has its offset, bytes, value and meaning. Name the message by --at PACKET, or by --connection,
    --direction and --offset; or give its bytes with --hex. The output names the message's reply or request.
    --readings also lists the interpretations that do not fit, with the reason; by default they are listed only if
    none fits.

    With --pairing c7: the requests and replies of connection c7 as they were paired. Each reply has the first and the
    last request that it may answer, each decision its evidence. The section Pairing of the source's README has the
    rules.
    """
    outcome, look = Outcome(choices), ExplainStyle(as_json, readings, color, utc)
    if hex_text is not None:
        if capture is not None or packet is not None or connection is not None or offset is not None:
            raise click.UsageError(
                "--hex stands for the capture; give it with --protocol, --direction and --dialect only"
            )
        _explain_bytes(_from_hex(hex_text), protocol, direction, dialect, look, outcome)
        finish(outcome)
    if protocol is not None or dialect is not None:
        raise click.UsageError("--protocol and --dialect go with --hex; in a capture the connection tells")
    if capture is None:
        raise click.UsageError("give a CAPTURE with --at, or --hex with --protocol")
    if pairing is not None:
        if (connection, direction, offset) != (None, None, None):
            raise click.UsageError("--pairing names the connection; it goes with --at only")
        _replay(capture, pairing.strip(), packet, look, outcome)
        finish(outcome)
    by_offset = connection is not None and direction is not None and offset is not None
    has_place = (connection, direction, offset) != (None, None, None)
    if (packet is None) == (not by_offset) or (packet is not None and has_place):
        raise click.UsageError("name the message by --at PACKET, or by --connection, --direction and --offset together")
    _explain_captured(capture, packet or _stream_place(connection, direction, offset), look, outcome)
    finish(outcome)


def _from_hex(text: str) -> bytes:
    digits = re.sub(r"[\s:,_-]|0[xX]", "", text)
    try:
        data = bytes.fromhex(digits)
    except ValueError:
        raise click.BadParameter("it is no even number of hex digits", param_hint="'--hex'") from None
    if not data:
        raise click.BadParameter("there are no bytes in it", param_hint="'--hex'")
    return data


def _explain_bytes(
    data: bytes,
    name: str | None,
    direction: "Direction | None",
    dialect: str | None,
    look: ExplainStyle,
    outcome: Outcome,
) -> None:
    from mqpcap.listing.explained_messages import explain_bytes
    from mqpcap.protocols import protocols

    if name is None:
        raise click.UsageError(f"--hex needs --protocol; there are {', '.join(protocols())}")
    protocol = protocols()[protocol_name(name)]
    if dialect is not None and dialect not in protocol.dialects:
        problem = f"{dialect!r} is no dialect of {protocol.name}; there are {', '.join(protocol.dialects)}"
        raise click.BadParameter(problem, param_hint="'--dialect'")
    message = explain_bytes(protocol, data, direction, dialect, outcome.choices)
    ExplanationWriter(message, look, outcome).write()
    if message.result.best is None or not message.result.best.fits:
        outcome.flaws["malformed"] += 1


def _stream_place(connection: str | None, direction: "Direction | None", offset: int | None) -> "StreamPlace":
    from mqpcap.listing.explained_messages import StreamPlace
    from mqpcap.query import Comparison, of_tree

    assert connection is not None and direction is not None and offset is not None
    with misuse_of("--connection", "connection"):
        of_tree(Comparison("connection", "==", (connection.strip(),)))
    return StreamPlace(connection, direction, offset)


def _replay(name: str, connection: str, packet: "PacketName | None", look: ExplainStyle, outcome: Outcome) -> None:
    from mqpcap.listing.pairing_replay import replay_pairing
    from mqpcap.query import Comparison, of_tree
    from mqpcap.tables.json_lines import json_text

    with misuse_of("--pairing", "connection"):
        wanted = of_tree(Comparison("connection", "==", (connection,)))
    captures = found((name,), outcome)
    try:
        with metered(size_bytes(captures), outcome.choices.quiet) as meter:
            replay = replay_pairing(captures, wanted, packet, outcome, meter)
    except LookupError as error:
        outcome.unreadable.append((name, str(error)))
        return
    if replay is None:
        return
    if look.as_json:
        put(json_text(replay.as_json()))
    else:
        for line in replay.lines():
            put(wrapped(line, sys.stdout))


def _explain_captured(name: str, place: "PacketName | StreamPlace", look: ExplainStyle, outcome: Outcome) -> None:
    from mqpcap.listing.explained_messages import explain_captured
    from mqpcap.listing.row_bytes import bytes_after_hole

    captures = found((name,), outcome)
    with metered(size_bytes(captures), outcome.choices.quiet) as meter:
        messages, misses = explain_captured(captures, place, outcome, meter)
    for message in messages:
        ExplanationWriter(message, look, outcome).write()
        after_hole = 0 if message.row is None else bytes_after_hole(message.row)
        if after_hole and not look.as_json:
            put(f"a hole: {plural(after_hole, 'more byte')} of the message were captured behind missing ones")
    if captures and not messages:
        outcome.unreadable.append((name, misses[0]))


@dataclass(frozen=True, slots=True)
class ExplanationWriter:
    """An explained message, and how it is written."""

    message: "ExplainedMessage"
    look: ExplainStyle
    outcome: Outcome

    def write(self) -> None:
        """Write it to stdout."""
        from mqpcap.tables.json_lines import json_text

        if self.look.as_json:
            put(json_text(self.message.as_json()))
        else:
            for line in self._as_text():
                put(wrapped(line, sys.stdout))  # what is coloured is decided already

    def _as_text(self) -> Iterator[str]:
        from mqpcap.cli.dumps import dump
        from mqpcap.cli.lines import Paint, Style, line
        from mqpcap.listing.explanation import body_spans
        from mqpcap.protocols import protocols
        from mqpcap.tables.schemas import NUMBER

        result, best, row = self.message.result, self.message.result.best, self.message.row
        paint = Paint(coloured(sys.stdout, self.look.color))
        if row is not None:
            connection_id, direction, offset = (row.message[x] for x in ("connection_id", "direction", "stream_offset"))
            yield line(
                row.message,
                None,
                Style(self.look.utc, dated=True, filed=self.outcome.file_count > 1, paint=paint),
                row.exchange,
            )
            name = f"c{row.message[NUMBER]} " if NUMBER in row.message else ""
            yield f"connection {name}{connection_id} {direction} offset {offset}, {row.message['frame_len']} bytes"
        if best is None:
            yield f"{len(result.data)} bytes fit no header of {result.protocol}"
        else:
            yield paint("bold", _title(best))
            yield paint("dim", "offset  length  bytes                     field")
            yield from (self._line(item, paint) for item in best.items)
            if any(item.inflated for item in best.items):
                yield "offsets with + are in the inflated body"
            if best.why is not None:
                yield paint("red", f"does not fit: {shown(str(self.message.why(best)))}")
                kept = self.outcome.choices.bodies
                bodies = () if kept is None else body_spans(protocols()[result.protocol], best, kept)
                yield from dump(
                    result.data, () if self.message.mask is None else self.message.mask.spans, left_out=bodies
                )
            if result.left:
                yield f"{result.left} bytes follow the message"
        shows_all = self.look.readings or best is None or not best.fits
        other_readings = [x for x in result.attempts[1:] if shows_all or x.fits]
        for attempt in other_readings[:OTHER_READINGS]:
            yield f"{'also fits' if attempt.fits else 'not'}: {_title(attempt)}" + (
                f": {shown(str(self.message.why(attempt)))}" if attempt.why else ""
            )
        if len(other_readings) > OTHER_READINGS:
            yield f"and {len(other_readings) - OTHER_READINGS} more readings; --json lists all"

    def _line(self, item: "FieldItem", paint: "Paint") -> str:
        from mqpcap.listing.message_words import value_text
        from mqpcap.tables.messages import SECRET

        name, digits, value = self.message.shown(item)
        value_words = "" if value is None else " = " + (SECRET if value == SECRET else value_text(value, 120))
        digits = digits if len(digits) <= 2 * HEX_BYTES else digits[: 2 * HEX_BYTES - 2] + ".."
        place = f"+{item.offset}" if item.inflated else str(item.offset)
        meaning = f"  ({item.meaning})" if item.meaning else ""
        name = "  " * item.depth + paint("cyan", shown(name))
        return (
            f"{place:>6}  {item.length:>6}  {paint('dim', f'{digits:<24}')}  "
            f"{name}{value_words}{paint('dim', shown(meaning))}"
        )


def _title(attempt: "Attempt") -> str:
    names = " / ".join(name for name in (attempt.header, attempt.message) if name) or attempt.layout
    return f"{names} ({attempt.direction}, dialect {attempt.dialect or 'by the connection'}, layout {attempt.layout})"
