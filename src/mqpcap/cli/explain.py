"""``mqpcap explain``: one message, field by field."""

import sys
from typing import TYPE_CHECKING

import click

from mqpcap.cli.command import command
from mqpcap.cli.completion import dialects, protocols
from mqpcap.cli.console import line_style, put_lines, wrapped
from mqpcap.cli.options import PACKET, color_option, common, utc_option
from mqpcap.cli.reading import finish, reading
from mqpcap.reading import Choices, Outcome

if TYPE_CHECKING:
    from mqpcap.listing.explained_messages import PacketName
    from mqpcap.schema.protocol import Direction


@command(
    epilog="Examples: mqpcap explain pcaps/blipmq/qos1.pcap --at 12\n          mqpcap explain "
    "pcaps/faults/blipmq_lost.pcap --pairing c1"
)
@click.argument("capture", required=False, metavar="[CAPTURE]", type=click.Path(readable=False))
@click.option("--at", "packet", type=PACKET, metavar="PACKET",
    help="Read the messages with bytes in this packet, as 12, or broker.pcap1#12 of several files.")  # fmt: skip
@click.option("--pairing", metavar="NAME",
    help="Replay how the replies of a connection found their requests; with --at only around a message.")  # fmt: skip
@click.option("--connection", metavar="NAME", help="Read a message of this connection, as c7, with:")
@click.option("--direction", type=click.Choice(["c2s", "s2c"]),
              help="- its sender, the client (c2s) or the server (s2c),")  # fmt: skip
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
    capture: str | None, packet: "PacketName | None", pairing: str | None, connection: str | None,
    direction: "Direction | None", offset: int | None, hex_text: str | None, protocol: str | None, dialect: str | None,
    as_json: bool, readings: bool, utc: bool, color: str, choices: Choices,
) -> None:  # fmt: skip
    """Read one message field by field.

    Each field has its offset, bytes, value and meaning. Name the message by --at PACKET, or by --connection,
    --direction and --offset; or give its bytes with --hex. The output names the message's reply or request.
    --readings also lists the interpretations that do not fit, with the reason; by default they are listed only if
    none fits.

    With --pairing c7: the requests and replies of connection c7 as they were paired. Each reply has the first and the
    last request that it may answer, each decision its evidence. The section Pairing of the source's README has the
    rules.
    """
    from mqpcap.api.explanations import explain as explained
    from mqpcap.listing.explained_messages import ExplainedMessage
    from mqpcap.tables.json_lines import json_text

    outcome = Outcome(choices)
    words = {"connection": connection, "hex": hex_text, "protocol": protocol, "dialect": dialect, "pairing": pairing}
    try:
        with reading([] if capture is None else [capture], outcome) as inputs:
            answer = explained(inputs, packet, direction=direction, offset=offset, **words)  # type: ignore[call-overload]  # of either form
        results = answer if isinstance(answer, list) else [answer]
    except LookupError as error:
        outcome.unreadable.append((str(capture), str(error)))
        results = []
    if as_json:
        put_lines(json_text(result.as_json()) for result in results)
    else:
        style = line_style(color, None, utc=utc, dated=True, filed=outcome.file_count > 1)
        for result in results:
            lines = result.lines(style, readings) if isinstance(result, ExplainedMessage) else result.lines()
            put_lines(wrapped(line, sys.stdout) for line in lines)  # what is coloured is decided already
    finish(outcome)
