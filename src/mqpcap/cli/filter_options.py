"""The options that say which messages are wanted, made one filter: ``-Y`` and the shortcuts for the common ones."""

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from mqpcap.cli.completion import fields, operations, protocols
from mqpcap.cli.console import shown
from mqpcap.cli.options import duration_ns, protocol_names
from mqpcap.errors import QueryError

if TYPE_CHECKING:
    from mqpcap.query import Comparison, Moment, Query

P = ParamSpec("P")
R = TypeVar("R")


class Misuse(click.ClickException):
    """What was asked for cannot be understood: one line, exit code 2."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        """Say so on stderr."""
        click.echo(f"mqpcap: {shown(self.format_message())}", err=True)


_OPTIONS = (
    click.option("-Y", "--filter", "filter_text", metavar="FILTER", shell_complete=fields,
                 help="Only messages of which this is true, as 'op == PUBLISH and latency > 50ms'."),
    click.option("--protocol", "only_protocol", callback=protocol_names, multiple=True, metavar="NAME",
                 shell_complete=protocols, help="Only this protocol (repeatable)."),
    click.option("--op", "only_op", multiple=True, metavar="OP", shell_complete=operations,
                 help="Only this operation, as PUBLISH (repeatable)."),
    click.option("--topic", "only_topic", multiple=True, metavar="GLOB",
                 help="Only this topic, queue or exchange, as 'orders.*' (repeatable)."),
    click.option("--client", "only_client", multiple=True, metavar="IP[:PORT]",
                 help="Only connections of this client; 10.0.0.0/8 is many (repeatable)."),
    click.option("--server", "only_server", multiple=True, metavar="IP[:PORT]",
                 help="Only connections to this server (repeatable)."),
    click.option("--connection", "only_connection", multiple=True, metavar="NAME",
                 help="Only this connection: c7, IP:PORT of an end, or a connection_id (repeatable)."),
    click.option("--status", "only_status", type=click.Choice(["ok", "error"]), help="Only replies that say so."),
    click.option("--grep", "grep", multiple=True, metavar="TEXT", help="Only bodies with this text (repeatable)."),
    click.option("--since", metavar="TIME",
                 help="Only from then on: 05:24:10 of the capture's first day, +30s from its start, or ISO 8601."),
    click.option("--until", metavar="TIME", help="Only before then; +30s counts from --since."),
    click.option("--flawed", "only_flawed", is_flag=True, help="Only messages with a flaw."),
    click.option("--unanswered", "only_unanswered", is_flag=True,
                 help="Only requests whose answer was due and never came, not where it may lie in a gap."),
    click.option("--slower-than", "slower_than_ns", callback=duration_ns, metavar="TIME",
                 help="Only requests answered later than that, as 50ms; units ns, us, ms, s."),
)  # fmt: skip
_NAMES = (
    "filter_text", "only_protocol", "only_op", "only_topic", "only_client", "only_server", "only_connection",
    "only_status", "grep", "since", "until", "only_flawed", "only_unanswered", "slower_than_ns",
)  # fmt: skip


def filter_options(command: Callable[P, R]) -> Callable[..., R]:
    """The command with the options, given to it as ``wanted``: a Query, or None for all messages.

    Stands between ``utc_option`` and ``common``, which say how times and bodies are meant.
    """

    @functools.wraps(command)
    def with_wanted(*args: Any, **kwargs: Any) -> R:
        given = {name: kwargs.pop(name) for name in _NAMES}
        bodies = kwargs.get("bodies")  # None: all of them
        return command(*args, wanted=_query(given, bool(kwargs.get("utc")), bodies is None), **kwargs)  # type: ignore[arg-type]  # wanted is the command's own

    made: Callable[..., R] = with_wanted
    for option in reversed(_OPTIONS):
        made = option(made)
    return made


def _query(given: dict[str, Any], utc: bool, bodies_are_whole: bool) -> "Query | None":
    if given["only_unanswered"] and given["slower_than_ns"] is not None:
        raise click.UsageError("--unanswered and --slower-than exclude each other: no answer, no latency")
    if all(value is None or value is False or value == () for value in given.values()):
        return None
    from mqpcap.query import of_tree, query

    made: Query | None = None
    for option, test in _tests(given, utc):
        with misuse_of(option):
            one = query(test, utc) if isinstance(test, str) else of_tree(test, utc)
        made = one if made is None else made & one
    assert made is not None
    if made.asks_bodies and not bodies_are_whole:
        raise click.UsageError("--grep and filters on bodies need whole bodies: leave --bodies out")
    return made


@contextmanager
def misuse_of(option: str) -> Iterator[None]:
    """A QueryError inside is misuse of the option."""
    try:
        yield
    except QueryError as error:
        raise Misuse(f"{option}: {str(error).removeprefix(f'{option[2:]}: ')}") from None


def _tests(given: dict[str, Any], utc: bool) -> "Iterator[tuple[str, Comparison | str]]":
    """What each option asks for."""
    from mqpcap.query import Comparison

    for name, option, column in (
        ("only_protocol", "--protocol", "protocol"),
        ("only_op", "--op", "op"),
        ("only_client", "--client", "client"),
        ("only_server", "--server", "server"),
        ("only_connection", "--connection", "connection"),
    ):
        if given[name]:
            yield option, Comparison(column, "in", given[name])
    if given["only_status"]:
        yield "--status", Comparison("status", "==", (given["only_status"],))
    if given["only_topic"]:
        yield "--topic", _any_glob("topic", given["only_topic"])
    if given["grep"]:
        yield "--grep", Comparison("payload", "matches", ("|".join(map(re.escape, given["grep"])),))
    for option, relation, moment in _times(given, utc):
        yield option, Comparison("ts", relation, (moment,))
    if given["only_flawed"]:
        yield "--flawed", Comparison("flaw", "exists")
    if given["only_unanswered"] or given["slower_than_ns"] is not None:
        yield "--slower-than", Comparison("is_request", "is")
    if given["only_unanswered"]:
        yield "--unanswered", Comparison("state", "==", ("unanswered",))
    if given["slower_than_ns"] is not None:
        yield "--slower-than", Comparison("latency", ">", (f"{given['slower_than_ns']}ns",))
    if given["filter_text"] is not None:
        yield "-Y", given["filter_text"]


def _any_glob(column: str, globs: tuple[str, ...]) -> "Comparison":
    from mqpcap.query import Comparison

    if not any(sign in glob for glob in globs for sign in "*?"):
        return Comparison(column, "in", globs)
    patterns = ("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in glob) for glob in globs)
    return Comparison(column, "matches", (f"(?s)^(?:{'|'.join(patterns)})$",))


def _times(given: dict[str, Any], utc: bool) -> "Iterator[tuple[str, str, Moment]]":
    """The bounds of --since and --until; an --until of an earlier time of day is of the next day."""
    from mqpcap.query.values import DAY_NS, moment

    since = until = None
    if given["since"] is not None:
        with misuse_of("--since"):
            since = moment(given["since"].strip(), utc)
        yield "--since", ">=", since
    if given["until"] is not None:
        with misuse_of("--until"):
            until = moment(given["until"].strip(), utc)
        if since is not None and until.origin == "begin":
            until = since.later(until.ns)
        elif since is not None and until.origin == since.origin == "day" and until.ns < since.ns:
            until = until.later(DAY_NS)
        yield "--until", "<", until
