"""``mqpcap extract``: the packets of selected messages, or of their connections, as a capture of their own."""

import os
import signal
import sys
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

import click

from mqpcap.cli.command import command
from mqpcap.cli.live import EndOfInput, check_sources, input_options, listening
from mqpcap.cli.options import Parsed, byte_count, common_without_bodies, filter_options, utc_option
from mqpcap.cli.reading import finish, print_remark, print_summary, reading
from mqpcap.reading import Choices, Outcome
from mqpcap.wording import plural

if TYPE_CHECKING:
    from mqpcap.listing.anonymisation import BodyForm, NameForm
    from mqpcap.listing.extraction import Split
    from mqpcap.query import Query


def _split(word: str) -> str | int:
    """``connection``, ``topic`` or a number of bytes."""
    if word in ("connection", "topic"):
        return word
    size_bytes = byte_count(word)
    if not size_bytes:
        raise ValueError(f"{word!r} is neither connection nor topic nor a size like 100MB")
    return size_bytes


def _ring(word: str) -> tuple[int, int]:
    """``10x100MB``: the number of files, and the bytes of each."""
    count, _, size_word = word.lower().partition("x")
    size_bytes = byte_count(size_word)
    if not (count.isascii() and count.isdecimal() and int(count) and size_bytes):
        raise ValueError(f"{word!r} is no ring like 10x100MB")
    return int(count), size_bytes


@command(epilog="Example: mqpcap extract pcaps/blipmq/qos1.pcap --op PING --out ping.pcapng")
@input_options
@click.option("--ring", type=Parsed(_ring), metavar="NxSIZE", help="With -i: keep the newest, as 10x100MB.")
@click.option("--out", "out_path", required=True, metavar="FILE", type=click.Path(readable=False),
              help="Write the new capture here, as pcapng; - is stdout.")  # fmt: skip
@click.option("--connections", "whole_connections", is_flag=True,
              help="Copy all packets of each connection that has a selected message.")  # fmt: skip
@click.option("--split", type=Parsed(_split), metavar="connection|topic|SIZE",
              help="Write several files to FILE, a directory.")  # fmt: skip
@click.option("--anonymise", is_flag=True, help="Replace addresses, bodies, names and secrets.")
@click.option("--key-file", metavar="FILE", type=click.Path(readable=False),
              help="Anonymise by this key; it is made once.")  # fmt: skip
@click.option("--bodies-as", type=click.Choice(["hash", "mask", "keep"]), default="hash",
              help="Bodies: derived, x, kept.")  # fmt: skip
@click.option("--names-as", type=click.Choice(["hash", "keep"]), default="hash", help="Topics and other text.")
@utc_option
@filter_options
@common_without_bodies
def extract(
    inputs: tuple[str, ...], interface: str | None, bpf: str | None, ring: tuple[int, int] | None, out_path: str,
    whole_connections: bool, split: "Split | None", anonymise: bool, key_file: str | None, bodies_as: "BodyForm",
    names_as: "NameForm", utc: bool, wanted: "Query | None", choices: Choices,
) -> None:  # fmt: skip
    """Copy the packets of selected messages to a new capture.

    Wireshark opens it; the first packet of each message has a comment that describes it. With --connections it has
    their connections whole, and those that prove their protocol or carry their login. Packets stay as captured,
    passwords included; with --anonymise only ports, times, lengths, numbers and words of the protocol do. Inputs are
    read twice.
    """
    from mqpcap.api.packets import extract as extracted
    from mqpcap.listing.anonymisation import Anonymisation

    check_sources(inputs, interface, bpf)
    if (interface is None) != (ring is None):
        raise click.UsageError("-i and --ring go together")
    outcome = Outcome(choices)
    if interface is not None and ring is not None:
        if whole_connections or split is not None or anonymise or wanted is not None:
            raise click.UsageError("--ring keeps all packets; -f selects them")
        _listen(interface, bpf, out_path, ring, outcome)
    if not anonymise and (key_file is not None or (bodies_as, names_as) != ("hash", "hash")):
        raise click.UsageError("--key-file, --bodies-as and --names-as go with --anonymise")
    how = Anonymisation(_key(key_file, outcome), bodies_as, names_as) if anonymise else None
    target = sys.stdout.buffer if out_path == "-" else out_path
    with reading(inputs, outcome, wanted, passes=2) as opened:
        summary = extracted(opened, target, connections=whole_connections, anonymise=how, split=split)
    for line in summary.lines(out_path):
        print_summary(outcome, line)
    finish(outcome)


def _listen(interface: str, bpf: str | None, folder: str, ring: tuple[int, int], outcome: Outcome) -> NoReturn:
    """Write the packets of an interface to a ring of files until SIGINT or SIGTERM."""
    from mqpcap import __version__
    from mqpcap.capture import InputWait
    from mqpcap.capture.ring import Ring

    end = EndOfInput(signal.SIGINT, signal.SIGTERM)
    with end, listening(interface, bpf, end, outcome) as listener:
        files = Ring(folder, *ring, f"mqpcap {__version__}")
        capture = listener.capture()
        capture.wait = InputWait(lambda: None, end.is_over)
        with closing(files):
            for window in capture.windows():
                files.write(window)
    counts = f"{plural(files.packet_count, 'packet')} in {plural(files.file_count, 'file')}"
    print_summary(outcome, f"{folder}: {counts}; the newest {ring[0]} are kept")
    finish(outcome)


def _key(name: str | None, outcome: Outcome) -> bytes:
    """The key in a file; without a file a new key, which a note names."""
    from mqpcap.listing.anonymisation import KEY_BYTES, key_of_file

    if name is not None:
        return key_of_file(name)
    key = os.urandom(KEY_BYTES)
    print_remark(outcome, f"the key is {key.hex()}; in a --key-file it gives the same addresses again")
    return key
