"""``mqpcap follow``: one connection as a conversation."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, NoReturn

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import line_style, put_lines, put_rows, width_of, wrapped
from mqpcap.cli.options import PACKET, common, field_lines, field_options, filter_options, time_options
from mqpcap.cli.reading import finish, reading
from mqpcap.errors import MisuseError
from mqpcap.reading import Choices, Outcome, first_packet_ns

if TYPE_CHECKING:
    from mqpcap.listing.explained_messages import PacketName
    from mqpcap.listing.line_times import TimeForm
    from mqpcap.query import Query
    from mqpcap.schema.protocol import Direction


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
@click.option("--at", "packet", type=PACKET, metavar="PACKET",
              help="Trace the message in this packet, as 12 or '#12'.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write an object per message, as show --json does.")
@field_options
@time_options
@filter_options
@common
def follow(
    capture: str, name: str | None, raw: "Direction | None", message: str | None, packet: "PacketName | None",
    as_json: bool, field_names: tuple[str, ...], header: bool, as_csv: bool, time_form: "TimeForm", utc: bool,
    wanted: "Query | None", choices: Choices,
) -> None:  # fmt: skip
    """Show one connection as a conversation of two sides.

    Replies stand under their requests. NAME is c7, IP:PORT of an end, or a connection_id; --connection and filters that
    select messages of a single connection name it as well. The capture is read twice. Without a name: lists the
    connections.

    --message and --at follow a published message instead: through its deliveries, and the acknowledgement of each, with
    the times between. ID is the message_id or correlation_id of a publish, or the key of a delivery. A delivery to the
    same subscription or connection is marked as again; to another one it is fan-out.
    """
    from mqpcap.api.conversations import follow as followed
    from mqpcap.listing.connection_search import connection_query
    from mqpcap.listing.field_lines import json_line
    from mqpcap.listing.line_times import is_utc, line_times
    from mqpcap.listing.tracing import ONE_MESSAGE

    if raw is not None and (as_json or as_csv or field_names):
        raise click.UsageError("--raw writes bytes; it goes with none of --json, --csv and --fields")
    utc = is_utc(time_form, utc)
    outcome = Outcome(choices)
    if message is not None or packet is not None:
        if raw or field_names or as_csv or name or wanted is not None:
            raise MisuseError(ONE_MESSAGE)
        _trace(capture, message, packet, as_json, line_times(time_form, utc, None), utc, outcome)
    fields = field_lines(field_names, header, as_csv, as_json)
    if name is not None:
        by_name = connection_query(name, "NAME")
        wanted = by_name if wanted is None else by_name & wanted
    if wanted is None:
        if raw is not None or as_json or fields:
            raise click.UsageError("name the connection, as c7")
        _list_connections(capture, utc, outcome)
        finish(outcome)
    with reading((capture,), outcome, wanted, passes=2) as inputs:
        talk = followed(inputs)
        with inputs.meter.paused() if sys.stdout.isatty() else nullcontext():
            if raw is not None:
                sys.stdout.buffer.writelines(talk.raw(raw))
                sys.stdout.buffer.flush()
            elif fields or as_json:
                sys.stdout.write(fields.heading if fields else "")
                sys.stdout.writelines(map(fields or json_line, talk.messages))
            else:
                times = line_times(time_form, utc, first_packet_ns([talk.capture]) if time_form == "r" else None)
                filed = outcome.file_count > 1
                style = line_style("auto", width_of(sys.stdout), utc=utc, filed=filed, times=times)
                put_lines(wrapped(line, sys.stdout) for line in talk.lines(style))
    finish(outcome)


def _trace(
    path: str, message: str | None, packet: "PacketName | None", as_json: bool, times: "Callable[[int], str] | None",
    utc: bool, outcome: Outcome,
) -> NoReturn:  # fmt: skip
    """Write the traces of a message, and end."""
    from mqpcap.api.conversations import trace as traced
    from mqpcap.errors import MqpcapError
    from mqpcap.tables.json_lines import json_text

    try:
        with reading((path,), outcome, passes=2) as inputs:
            traces = traced(inputs, message, at=packet)
    except LookupError as error:
        raise MqpcapError(str(error)) from None
    style = line_style("auto", width_of(sys.stdout), utc=utc, filed=outcome.file_count > 1, times=times)
    for number, trace in enumerate(traces):
        if as_json:
            put_lines(map(json_text, trace.as_json()))
        else:
            put_lines([""] if number else [])
            put_lines(trace.lines(style))
    finish(outcome)


def _list_connections(path: str, utc: bool, outcome: Outcome) -> None:
    """A line for each connection."""
    from mqpcap.listing.connection_search import ConnectionSearch
    from mqpcap.query import EVERYTHING
    from mqpcap.statistics.report_columns import Column

    with reading((path,), outcome) as inputs:
        captures = inputs.captures
        searches = [ConnectionSearch(capture, EVERYTHING) for capture in captures]
        connections = [x for search in searches for x in search.run(outcome, inputs.progress)]
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
    put_rows(columns, rows, "text", utc)
