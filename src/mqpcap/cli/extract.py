"""``mqpcap extract``: the packets of selected messages, or of their connections, as a capture of their own."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import metered, print_note
from mqpcap.cli.options import common_without_bodies, filter_options, utc_option
from mqpcap.cli.reading import finish, found
from mqpcap.errors import OutputError
from mqpcap.reading import Choices, Outcome, size_bytes
from mqpcap.wording import plural, size

if TYPE_CHECKING:
    from mqpcap.query import Query


@command(epilog="Example: mqpcap extract pcaps/blipmq/qos1.pcap --op PING --out ping.pcapng")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...", type=click.Path(readable=False))
@click.option(
    "--out",
    "out_path",
    required=True,
    metavar="FILE",
    type=click.Path(readable=False),
    help="Write the new capture here, as pcapng; - is stdout.",
)
@click.option(
    "--connections",
    "whole_connections",
    is_flag=True,
    help="Copy all packets of each connection that has a selected message.",
)
@utc_option
@filter_options
@common_without_bodies
def extract(
    inputs: tuple[str, ...], out_path: str, whole_connections: bool, utc: bool, wanted: "Query | None", choices: Choices
) -> None:
    """Copy the packets of selected messages to a new capture.

    Wireshark opens it; the first packet of each message has a comment that describes it. With --connections the new
    capture has all packets of these connections; an export of it has the same rows but for packet numbers and file
    names. Other connections that prove its protocol or carry its login are added. Packets stay as they were
    captured, passwords included. FILE must not exist. Inputs are read twice.
    """
    from mqpcap.listing.connection_search import read_again
    from mqpcap.listing.extraction import find_packets, write_packets

    outcome = Outcome(choices)
    captures = found(inputs, outcome)
    read_again(captures)
    if out_path != "-" and os.path.lexists(out_path):
        raise OutputError(f"{out_path} exists; extract replaces no file")
    with metered(2 * size_bytes(captures), choices.quiet) as meter:
        parts = find_packets(captures, wanted, whole_connections, outcome, meter)
        if parts is None:
            finish(outcome)
        with new_file(out_path) as file:
            summary = write_packets(parts, file, meter)
    if not choices.quiet:
        connections = plural(summary.connection_count, "connection")
        print_note(f"{out_path}: {plural(summary.packet_count, 'packet')}, {size(summary.size_bytes)}, of "
            f"{plural(summary.message_count, 'message')} of {connections}")  # fmt: skip
        if summary.context_count:
            added = plural(summary.context_count, "other connection")
            print_note(f"note: {added} added, by which these are recognised or named")
    finish(outcome)


@contextmanager
def new_file(name: str) -> Iterator[BinaryIO]:
    """A file that did not exist; it goes away where writing fails."""
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from mqpcap.listing.extraction import created_file

    with created_file(name) as file:
        yield file
