"""The options that commands share, from the words of the command line to values.

Options that select messages, ``-Y`` and its shortcuts, become a single filter.
"""

import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from mqpcap.cli.completion import fields, one_of, operations, protocols, rules
from mqpcap.errors import CaptureError, QueryError, one_line
from mqpcap.reading import SMALLEST_MEMORY_BYTES, Choices, decode_as_rule
from mqpcap.wording import misuse_of

if TYPE_CHECKING:
    from mqpcap.listing.explained_messages import PacketName
    from mqpcap.listing.field_lines import FieldLines
    from mqpcap.query import Query
    from mqpcap.tls import KeyLog

P = ParamSpec("P")
R = TypeVar("R")


class Parsed(click.ParamType):  # type: ignore[type-arg]  # only new versions of click have one
    """The value of an option, which a function makes from its word or refuses with a ValueError."""

    name = "text"

    def __init__(self, parse: Callable[[str], object]) -> None:
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """The value; exits 2 with what would do."""
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def flattened(ctx: click.Context, param: click.Parameter, parts: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The words of a repeatable option that takes several with commas between."""
    return tuple(chain.from_iterable(parts))


def comma_words(text: str) -> list[str]:
    """The words between commas."""
    return [word for part in text.split(",") if (word := part.strip())]


def _body_bytes(word: str) -> int | None:
    """``full``, ``none`` or a number: how many bytes to keep, None for all."""
    word = word.strip().lower()
    if word in ("full", "none"):
        return None if word == "full" else 0
    if not (word.isascii() and word.isdecimal()):
        raise ValueError(f"{word!r} is neither full nor none nor a number of bytes")
    return min(int(word), (1 << 31) - 1)


def byte_count(word: str) -> int | None:
    """``512MB``, ``2GiB`` or a number of bytes; None if it is no size."""
    from mqpcap.query.values import integer

    try:
        return integer(word.strip().removesuffix("b").removesuffix("B") + "B")
    except QueryError:
        return None


def _memory_bytes(word: str) -> int:
    """``512MB``, ``2GiB`` or a number of bytes."""
    size_bytes = byte_count(word)
    if size_bytes is None:
        raise ValueError(f"{word!r} is no size like 512MB or 2GiB")
    if size_bytes < SMALLEST_MEMORY_BYTES:
        raise ValueError(f"{word} is too little; the least is {SMALLEST_MEMORY_BYTES} bytes")
    return size_bytes


def _key_log(path: str) -> "KeyLog":
    """The secrets in a key log of TLS."""
    from mqpcap.reading import key_log

    try:
        return key_log(path)
    except CaptureError as error:
        raise ValueError(one_line(error)) from None


def period_s(word: str) -> int:
    """``90s``, ``15m``, ``1h``: seconds."""
    match = re.fullmatch(r"(\d{1,9})\s*([smhd])", word.strip().lower(), re.ASCII)
    if match is None or not int(match[1]):
        raise ValueError(f"{word!r} is no period like 1h; the units are s, m, h and d")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _protocol_names(text: str) -> list[str]:
    from mqpcap.protocols import checked_protocol

    return [checked_protocol(word.strip()) for word in text.split(",")]


def _packet_name(word: str) -> "PacketName":
    """``12``, ``#12`` or ``broker.pcap1#12``, as lines write it."""
    from mqpcap.listing.explained_messages import PacketName

    return PacketName.parsed(word)


PERIOD, PACKET = Parsed(period_s), Parsed(_packet_name)
allow_missing = click.option("--allow-missing", is_flag=True, help="Replace an export even if an input is unreadable.")


def form_options(command: Callable[P, R]) -> Callable[P, R]:
    """The command with ``--json`` and ``--csv``, given to it as ``form``, for rows of a report."""
    csv = click.option("--csv", "form", flag_value="csv", help="Write comma-separated values, with their names.")
    json = click.option("--json", "form", flag_value="json", help="Write an object per row, with times in nanoseconds.")
    return json(csv(command))


utc_option = click.option("-u", "--utc", is_flag=True, help="Write times in UTC, marked Z, not in local time.")
"""Every command that prints times for people has it."""
time_option = click.option(
    "-t", "time_form", type=click.Choice(["a", "ad", "r", "d", "e", "u", "ud"]), default="a", metavar="FORM",
    help="Write times as tshark's -t: a of day, ad with date, r relative, d delta, e epoch, u and ud in UTC.",
)  # fmt: skip


def time_options(command: Callable[P, R]) -> Callable[P, R]:
    """The command with ``-t`` and ``-u``, for commands that print a line per message."""
    return time_option(utc_option(command))


exit_option = click.option("-e", "--exit-status", "must_match", is_flag=True, help="Exit 1 if no message matches.")
color_option = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
    help="Use colours; auto is on a terminal, unless NO_COLOR is set.",
)  # fmt: skip


_bodies_option = click.option(
    "--bodies", type=Parsed(_body_bytes), default="full", show_default=True, metavar="full|none|N",
    shell_complete=one_of(("full", "none")), help="Keep all of each body, nothing, or its first N bytes.",
)  # fmt: skip


def common(command: Callable[P, R]) -> Callable[..., R]:
    """The command with the common options in front, given to it as ``choices``."""
    return _bodies_option(common_without_bodies(command))


def common_without_bodies(command: Callable[P, R]) -> Callable[..., R]:
    """The command with the common options but ``--bodies``, which a command that copies packets cannot honour."""

    @click.option("-d", "--decode-as", "decode_as", type=Parsed(decode_as_rule), multiple=True, metavar="RULE",
                  shell_complete=rules,
                  help="Read a port as a protocol or tunnel: tcp.port==9092,flymq; udp.port==4799,vxlan.")  # fmt: skip
    @click.option("--show-secrets", is_flag=True, help="Show passwords and keys instead of ***.")
    @click.option("--jobs", type=click.IntRange(min=1), metavar="N",
                  help="Use N cores; captures are read side by side.  [default: all]")  # fmt: skip
    @click.option("--max-memory", type=Parsed(_memory_bytes), metavar="SIZE",
                  help="Use this memory for out-of-order data and open connections, for example 512MB.")  # fmt: skip
    @click.option("--keylog", type=Parsed(_key_log), metavar="FILE",
                  help="Open TLS with the secrets of this key log, as clients write it to SSLKEYLOGFILE.")  # fmt: skip
    @click.option("--one", "is_one", is_flag=True, help="Read all inputs as one recording, in order of time.")
    @click.option("--strict", is_flag=True, help="Exit 1 if a message has a flaw or a file was skipped.")
    @click.option("-q", "--quiet", is_flag=True, help="Write no progress, notes or summary on stderr; errors stay.")
    @functools.wraps(command)
    def with_choices(  # type: ignore[no-untyped-def]  # click passes what the command declares
        *args, decode_as, show_secrets, jobs, max_memory, keylog, is_one, strict, quiet, bodies=None, **kwargs
    ):
        choices = Choices(decode_as, show_secrets, bodies, jobs, max_memory, strict, quiet, keys=keylog, is_one=is_one)
        return command(*args, choices=choices, **kwargs)  # type: ignore[arg-type]  # choices is the command's own

    return with_choices


_OPTIONS = (
    click.option("-Y", "--filter", "filter_text", metavar="FILTER", shell_complete=fields,
                 help="Select messages that match this filter, for example 'op == PUBLISH and latency > 50ms'."),
    click.option("--protocol", type=Parsed(_protocol_names), callback=flattened, multiple=True, metavar="NAME",
                 shell_complete=protocols, help="Select this protocol (repeatable)."),
    click.option("--op", multiple=True, metavar="OP", shell_complete=operations,
                 help="Select this operation, as PUBLISH or 'PUB*'; several with commas between (repeatable)."),
    click.option("--topic", multiple=True, metavar="GLOB",
                 help="Select this topic, queue or exchange, as 'orders.*' (repeatable)."),
    click.option("--client", multiple=True, metavar="IP[:PORT]",
                 help="Select connections of this client; 10.0.0.0/8 is many, 39304 a port (repeatable)."),
    click.option("--server", multiple=True, metavar="IP[:PORT]",
                 help="Select connections to this server, or this port (repeatable)."),
    click.option("--connection", multiple=True, metavar="NAME",
                 help="Select this connection: c7, IP:PORT of an end, or a connection_id (repeatable)."),
    click.option("--status", type=click.Choice(["ok", "error"]), help="Select replies with this status."),
    click.option("--grep", multiple=True, metavar="TEXT", help="Select bodies with this text (repeatable)."),
    click.option("--since", metavar="TIME",
                 help="Select messages from this time on: 05:24:10 (first day of the capture), +30s (after its start), "
                      "-5m (before its end), ISO 8601 or seconds since 1970."),
    click.option("--until", metavar="TIME", help="Select messages before this time; +30s counts from --since."),
    click.option("--flawed", is_flag=True, help="Select messages with a flaw."),
    click.option("--unanswered", is_flag=True,
                 help="Select requests that certainly got no answer, although one was due."),
    click.option("--slower-than", metavar="TIME",
                 help="Select requests that were answered later, for example after 50ms; units ns, us, ms, "
                      "s (default)."),
)  # fmt: skip


def filter_options(command: Callable[P, R]) -> Callable[..., R]:
    """The command with the options, given to it as ``wanted``: a Query, or None for all messages.

    Stands between ``utc_option`` and ``common``, which say how times and bodies are meant.
    """

    @functools.wraps(command)
    def with_wanted(*args: Any, **kwargs: Any) -> R:
        given = {name: value for name in names if (value := kwargs.pop(name)) not in (None, False, ())}
        wanted = _query(given, bool(kwargs.get("utc")))
        if wanted is not None:
            wanted.check_bodies(kwargs.get("bodies"))
        if wanted is not None and wanted.needs_end and "before_path" not in kwargs:  # each side of `diff` has its end
            from mqpcap.capture import captures
            from mqpcap.reading import with_end

            inputs = kwargs.get("inputs") or [name for name in (kwargs.get("capture"),) if name]
            with misuse_of("--since"):
                wanted = with_end(wanted, captures(inputs).captures if inputs else [])
        return command(*args, wanted=wanted, **kwargs)  # type: ignore[arg-type]  # wanted is the command's own

    decorated: Any = with_wanted
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    names = [param.name for param in decorated.__click_params__[-len(_OPTIONS) :]]
    return decorated  # type: ignore[no-any-return]  # what click gives back is the function


def _query(given: Mapping[str, Any], utc: bool) -> "Query | None":
    if not given:
        return None
    from mqpcap.query import query, shortcut_queries

    with misuse_of():
        all_of = shortcut_queries(given, utc)
    if "filter_text" in given:
        with misuse_of("-Y"):
            all_of.append(query(given["filter_text"], utc))
    return functools.reduce(operator.and_, all_of)


def field_options(command: Callable[P, R]) -> Callable[P, R]:
    """The command with ``--fields``, ``--header`` and ``--csv``."""
    options = (
        click.option("--fields", "field_names", type=Parsed(comma_words), callback=flattened, multiple=True,
                     metavar="NAMES", shell_complete=fields,
                     help="Write these fields with tabs between, for example ts,op,topic; mqpcap fields lists them."),
        click.option("--header", is_flag=True, help="Begin --fields with a line of their names."),
        click.option("--csv", "as_csv", is_flag=True, help="Write comma-separated values, with their names."),
    )  # fmt: skip
    decorated: Callable[P, R] = command
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def field_lines(names: Sequence[str], header: bool, as_csv: bool, as_json: bool) -> "FieldLines | None":
    """Makes the lines of messages as values of fields; None if neither ``--fields`` nor ``--csv`` is given."""
    if not names and not as_csv:
        return None
    from mqpcap.listing.field_lines import FieldLines

    with misuse_of("--fields"):
        return FieldLines(names, header, as_csv, as_json)
