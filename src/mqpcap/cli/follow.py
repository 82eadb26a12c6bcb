"""``mqpcap follow``: one connection as a conversation."""

import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import coloured, metered, width_of, wrapped
from mqpcap.cli.field_output import FieldWriter, field_options, write_heading
from mqpcap.cli.options import common, filter_options, misuse_of, packet_name, utc_option
from mqpcap.cli.reading import finish, found
from mqpcap.cli.times import TimeForm, is_utc, line_times, time_option
from mqpcap.reading import Choices, Meter, Outcome, first_packet_ns, size_bytes
from mqpcap.wording import plural, shown

if TYPE_CHECKING:
    from mqpcap.capture import Capture
    from mqpcap.listing.connection_search import SelectedConnection
    from mqpcap.listing.explained_messages import PacketName
    from mqpcap.listing.reorder_buffer import MessageRow
    from mqpcap.query import Query

MAX_WAITING = 1 << 12
"""Messages that wait until the reply of an earlier request can stand under it."""
PLAIN_WIDTH = 100
"""Columns where there is no terminal."""
BODY_BYTES = 4096
"""Bytes of a body that are shown; --json has all."""
BODY_ITEMS = 100
"""Bodies of a message that are shown."""


@command(
    epilog="Examples: mqpcap follow -u pcaps/blipmq/qos1.pcap c2\n          mqpcap follow pcaps/blipmq/qos1.pcap\n"
    "          mqpcap follow -u pcaps/blipmq/qos1.pcap --at '#12'"
)
@click.argument("capture", metavar="CAPTURE", type=click.Path(readable=False))
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--raw", type=click.Choice(["c2s", "s2c"]),
              help="Write the reassembled bytes of a side, secrets as *.")  # fmt: skip
@click.option("--message", metavar="ID",
              help="Trace this message to its deliveries and their acknowledgements.")  # fmt: skip
@click.option(
    "--at", "packet", callback=packet_name, metavar="PACKET", help="Trace the message in this packet, as 12 or '#12'."
)
@click.option("--json", "as_json", is_flag=True, help="Write an object per message, as show --json does.")
@field_options
@time_option
@utc_option
@filter_options
@common
def follow(
    capture: str,
    name: str | None,
    raw: str | None,
    message: str | None,
    packet: "PacketName | None",
    as_json: bool,
    field_names: tuple[str, ...],
    header: bool,
    as_csv: bool,
    time_form: TimeForm,
    utc: bool,
    wanted: "Query | None",
    choices: Choices,
) -> None:
    """Show one connection as a conversation of two sides.

    Replies stand under their requests. NAME is c7, IP:PORT of an end, or a connection_id; --connection and filters that
    select messages of a single connection name it as well. The capture is read twice. Without a name: lists the
    connections.

    --message and --at follow a published message instead: through its deliveries, and the acknowledgement of each, with
    the times between. ID is the message_id or correlation_id of a publish, or the key of a delivery. A delivery to the
    same subscription or connection is marked as again; to another one it is fan-out.
    """
    from mqpcap.listing.connection_search import find_connection
    from mqpcap.query import Comparison, of_tree

    if raw is not None and (as_json or as_csv or field_names):
        raise click.UsageError("--raw writes bytes; it goes with none of --json, --csv and --fields")
    if message is not None or packet is not None:
        if raw or field_names or as_csv or name or wanted is not None or (message is not None and packet):
            raise click.UsageError("--message or --at follows one message; it goes with --json, and with no selection")
        _trace(capture, message or packet, as_json, line_times(time_form, utc, None), is_utc(time_form, utc), choices)
    fields = FieldWriter(field_names, header, as_csv, as_json) if field_names or as_csv else None
    if name is not None:
        with misuse_of("NAME", "connection"):
            is_stream = re.fullmatch(r"\d{1,9}", name.strip())  # as tshark counts; a connection_id is longer
            by_name = of_tree(Comparison("tcp.stream" if is_stream else "connection", "==", (name.strip(),)))
        wanted = by_name if wanted is None else by_name & wanted
    outcome = Outcome(choices)
    captures = found((capture,), outcome)
    if wanted is None:
        if raw is not None or as_json or fields:
            raise click.UsageError("name the connection, as c7")
        _list_connections(captures, is_utc(time_form, utc), outcome)
        finish(outcome)
    with metered(size_bytes(captures), choices.quiet) as meter:
        match = find_connection(captures, wanted, outcome, meter)
    if match is None:
        finish(outcome)
    recording, connection = match
    outcome.notes.clear()  # those of the second reading are the same
    with metered(size_bytes([recording]), choices.quiet or sys.stdout.isatty()) as meter:
        if raw is not None:
            from mqpcap.cli.raw import write_raw

            write_raw(recording, connection, raw, outcome, meter)
        else:
            times = line_times(time_form, utc, first_packet_ns([recording]) if time_form == "r" else None)
            talk = Conversation(connection, is_utc(time_form, utc), outcome.file_count > 1, times)
            _converse(recording, talk, fields or as_json, outcome, meter)
    finish(outcome)


def _trace(
    path: str, name: "str | PacketName | None", as_json: bool, times: "Callable[[int], str] | None", utc: bool,
    choices: Choices,
) -> NoReturn:  # fmt: skip
    """Write the traces of a message, and end."""
    from mqpcap.cli.trace import write_traces
    from mqpcap.errors import MqpcapError
    from mqpcap.listing.tracing import trace_messages

    assert name is not None
    outcome = Outcome(choices)
    captures = found((path,), outcome)
    with metered(2 * size_bytes(captures), choices.quiet) as meter:
        try:
            traces = trace_messages(captures, name, outcome, meter)
        except LookupError as error:
            raise MqpcapError(str(error)) from None
    write_traces(traces, as_json, times, utc, outcome.file_count > 1)
    finish(outcome)


def _list_connections(captures: "Sequence[Capture]", utc: bool, outcome: Outcome) -> None:
    """A line for each connection."""
    from mqpcap.cli.rows import write
    from mqpcap.listing.connection_search import ConnectionSearch
    from mqpcap.query import EVERYTHING
    from mqpcap.statistics.report_columns import Column

    with metered(size_bytes(captures), outcome.choices.quiet) as meter:
        connections = [x for capture in captures for x in ConnectionSearch(capture, EVERYTHING).run(outcome, meter)]
    columns = (
        Column("connection", "connection", "plain"), Column("client", "client", "plain"),
        Column("server", "server", "plain"), Column("protocol", "protocol"),
        Column("messages", "messages", "number"), Column("first_ts_ns", "from", "clock", is_spare=True),
        Column("capture", "file", "file"),
    )  # fmt: skip
    rows = [
        {
            **x.row, "connection": f"c{x.number}", "client": x.end("client"), "server": x.end("server"),
            "messages": int(str(x.row["messages_c2s"])) + int(str(x.row["messages_s2c"])),
            "capture": x.row["capture"] if len(captures) > 1 else None,
        } for x in connections
    ]  # fmt: skip
    write(columns, rows, "text", utc)


def _converse(
    capture: "Capture", talk: "Conversation", form: "FieldWriter | bool", outcome: Outcome, meter: Meter
) -> None:
    """Write the messages: the values of fields, JSON (True), or a conversation (False)."""
    from mqpcap.listing.filters import Filter
    from mqpcap.listing.reorder_buffer import json_line
    from mqpcap.listing.time_merge import merge

    if form:
        text = json_line if form is True else form
        write_heading(form)
        only = Filter(talk.connection.query(), left_out=["ts"])
        merge([capture], only, outcome, lambda rows: sys.stdout.writelines(map(text, rows)), meter)
        return
    sys.stdout.writelines(f"{line}\n" for line in talk.head())
    merge([capture], Filter(talk.connection.query()), outcome, talk.take, meter)
    talk.print_due(0)


def _waits(turn: "Sequence[MessageRow]") -> bool:
    exchange = turn[0].exchange
    return len(turn) == 1 and exchange is not None and exchange.is_request and exchange.state in ("answered", "likely")


class Conversation:
    """Writes the messages of a connection in order of time, each reply below its request."""

    def __init__(
        self,
        connection: "SelectedConnection",
        utc: bool,
        filed: bool = False,
        times: "Callable[[int], str] | None" = None,
    ) -> None:
        from mqpcap.cli.lines import Paint

        self.connection, self._utc, self._filed, self._times = connection, utc, filed, times
        self._paint = Paint(coloured(sys.stdout))
        self._turns: deque[list[MessageRow]] = deque()
        self._asking: dict[tuple[object, object], list[MessageRow]] = {}
        self._width = width_of(sys.stdout) or PLAIN_WIDTH

    def head(self) -> Iterator[str]:
        """Heading: both ends, numbers of messages, times, missing bytes."""
        from mqpcap.wording import clock

        row = self.connection.row
        begin, end = (int(str(row[name])) for name in ("first_ts_ns", "last_ts_ns"))
        counts = [plural(int(str(row[f"messages_{d}"])), "message") for d in ("c2s", "s2c")]
        spoken = row["protocol"] or ("encrypted (TLS)" if row["tls"] is not None else "no protocol that is known here")
        yield self._paint("bold", f"{self.connection.end('client')} -> {self.connection.end('server')}  {spoken}")
        count_words = f"{counts[0]} from the client, {counts[1]} from the server"
        yield wrapped(f"c{self.connection.number}, connection {self.connection.id}; {count_words}", sys.stdout)
        yield f"{clock(begin, self._utc, True)} to {clock(end, self._utc, True)}, {_ENDS[str(row['end_state'])]}"
        missing = sum(int(str(row[f"missing_bytes_{d}"])) for d in ("c2s", "s2c"))
        if missing:
            yield self._paint("red", f"{plural(missing, 'byte')} of it were never captured")

    def take(self, rows: "Iterator[MessageRow]") -> None:
        """Take messages in order of time."""
        for row in rows:
            self._take(row)
            self.print_due(MAX_WAITING)

    def _take(self, row: "MessageRow") -> None:
        exchange, side = row.exchange, row.message["direction"]
        if exchange is not None and not exchange.is_request:
            turn = self._asking.pop(("s2c" if side == "c2s" else "c2s", exchange.offset), None)
            if turn is not None:
                turn.append(row)
                return
        self._turns.append([row])
        if _waits([row]):
            self._asking[(side, row.message["stream_offset"])] = self._turns[-1]

    def print_due(self, at_most: int) -> None:
        """Write turns that are complete, and the oldest beyond ``at_most`` turns."""
        while self._turns and (not _waits(self._turns[0]) or len(self._turns) > at_most):
            turn = self._turns.popleft()
            first_message = turn[0].message
            self._asking.pop((first_message["direction"], first_message["stream_offset"]), None)
            for i, row in enumerate(turn):
                sys.stdout.writelines(f"{line}\n" for line in self._lines(row, "    " * i, len(turn) > 1))

    def _lines(self, row: "MessageRow", indent: str, is_paired: bool) -> Iterator[str]:
        """``is_paired``: request and reply are printed together, without the packet of their partner."""
        from mqpcap.cli.lines import content_words
        from mqpcap.listing.message_words import latency
        from mqpcap.wording import clock

        message = row.message
        arrow = "->" if message["direction"] == "c2s" else "<-"
        ts_ns = int(str(message["ts_ns"]))
        when = self._paint("dim", clock(ts_ns, self._utc, False) if self._times is None else self._times(ts_ns))
        words = content_words(message, None, self._paint, None if is_paired else row.exchange)
        if is_paired and indent and row.exchange is not None and row.exchange.latency_ns is not None:
            words.append(self._paint("dim", f"in {latency(row.exchange.latency_ns)}"))
        packet = f"{shown(str(message['capture_file'])) if self._filed else ''}#{message['first_packet']}"
        yield "  ".join([f"{indent}{when}", f"{packet:<6}", f"{arrow} {words[0]}", *words[1:]])
        for line in body_lines(row, max(self._width - len(indent) - 8, 20)):
            yield f"{indent}        {line}"


_ENDS = {"reset": "ended by a reset", "closed": "closed", "open": "open at the end of the capture"}


def body_lines(row: "MessageRow", width: int) -> Iterator[str]:
    """The payload, wrapped: text as text, other bytes as a dump."""
    from mqpcap.query.filter_columns import bodies

    for path, _ in bodies(row.protocol):
        values = list(_inside(row.fields.get(path[0]), path[1:]))
        for value, label in values[:BODY_ITEMS]:
            for i, line in enumerate(_wrapped(value, width - len(label))):
                yield (" " * len(label) if i else label) + line
        if len(values) > BODY_ITEMS:
            yield f"and {len(values) - BODY_ITEMS:,} more"


def _inside(value: object, path: tuple[str, ...]) -> Iterator[tuple[bytes, str]]:
    """The bodies in a column, those in lists with their places."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from ((body, f"[{i}] {label}") for body, label in _inside(item, path))
    elif isinstance(value, dict):
        yield from _inside(value.get(path[0]), path[1:])
    elif isinstance(value, str | bytes) and value:
        yield value.encode() if isinstance(value, str) else value, ""


def _wrapped(value: bytes, width: int) -> Iterator[str]:
    from mqpcap.cli.dumps import dump

    part, more_bytes = value[:BODY_BYTES], len(value) - BODY_BYTES
    text = part.decode("utf-8", "ignore" if more_bytes > 0 else "replace")
    if all(c.isprintable() or c in "\n\r\t" for c in text) and "\ufffd" not in text:
        for line in text.splitlines():
            safe = shown(line.expandtabs(4))
            yield from (safe[offset : offset + width] for offset in range(0, max(len(safe), 1), width))
    else:
        yield from dump(part, indent=0)
    if more_bytes > 0:
        yield f"and {plural(more_bytes, 'more byte')}; --json has all"
