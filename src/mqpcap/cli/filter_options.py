"""The options that say which messages are wanted, made one filter: ``-Y`` and the shortcuts for the common ones."""

import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from mqpcap.cli.completion import fields, operations, protocols
from mqpcap.cli.console import shown
from mqpcap.cli.options import protocol_names
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


_ANY_OF = ("protocol", "op", "client", "server", "connection")
_OPTIONS = (
    click.option("-Y", "--filter", "filter_text", metavar="FILTER", shell_complete=fields,
                 help="Only messages of which this is true, as 'op == PUBLISH and latency > 50ms'."),
    click.option("--protocol", callback=protocol_names, multiple=True, metavar="NAME",
                 shell_complete=protocols, help="Only this protocol (repeatable)."),
    click.option("--op", multiple=True, metavar="OP", shell_complete=operations,
                 help="Only this operation, as PUBLISH (repeatable)."),
    click.option("--topic", multiple=True, metavar="GLOB",
                 help="Only this topic, queue or exchange, as 'orders.*' (repeatable)."),
    click.option("--client", multiple=True, metavar="IP[:PORT]",
                 help="Only connections of this client; 10.0.0.0/8 is many (repeatable)."),
    click.option("--server", multiple=True, metavar="IP[:PORT]",
                 help="Only connections to this server (repeatable)."),
    click.option("--connection", multiple=True, metavar="NAME",
                 help="Only this connection: c7, IP:PORT of an end, or a connection_id (repeatable)."),
    click.option("--status", type=click.Choice(["ok", "error"]), help="Only replies that say so."),
    click.option("--grep", multiple=True, metavar="TEXT", help="Only bodies with this text (repeatable)."),
    click.option("--since", metavar="TIME",
                 help="Only from then on: 05:24:10 of the capture's first day, +30s from its start, or ISO 8601."),
    click.option("--until", metavar="TIME", help="Only before then; +30s counts from --since."),
    click.option("--flawed", is_flag=True, help="Only messages with a flaw."),
    click.option("--unanswered", is_flag=True,
                 help="Only requests whose answer was due and never came, not where it may lie in a gap."),
    click.option("--slower-than", metavar="TIME",
                 help="Only requests answered later than that, as 50ms; units ns, us, ms, s."),
)  # fmt: skip
_TESTS: Mapping[str, Callable[[Any], list[tuple[Any, ...]]]] = {
    **{name: functools.partial(lambda name, words: [(name, "in", words)], name) for name in _ANY_OF},
    "status": lambda word: [("status", "==", (word,))],
    "topic": lambda globs: [_any_glob(globs)],
    "grep": lambda words: [("payload", "matches", ("|".join(map(re.escape, words)),))],
    "flawed": lambda _: [("flaw", "exists")],
    "unanswered": lambda _: [("is_request", "is"), ("state", "==", ("unanswered",))],
    "slower_than": lambda time: [("is_request", "is"), ("latency", ">", (time.strip(),))],
}
"""By option what is asked for, as a Comparison is made of it."""


def filter_options(command: Callable[P, R]) -> Callable[..., R]:
    """The command with the options, given to it as ``wanted``: a Query, or None for all messages.

    Stands between ``utc_option`` and ``common``, which say how times and bodies are meant.
    """

    @functools.wraps(command)
    def with_wanted(*args: Any, **kwargs: Any) -> R:
        options = {name: kwargs.pop(name) for name in (*_TESTS, "since", "until", "filter_text")}
        given = {name: value for name, value in options.items() if value not in (None, False, ())}
        bodies = kwargs.get("bodies")  # None: all of them
        return command(*args, wanted=_query(given, bool(kwargs.get("utc")), bodies is None), **kwargs)  # type: ignore[arg-type]  # wanted is the command's own

    made: Callable[..., R] = with_wanted
    for option in reversed(_OPTIONS):
        made = option(made)
    return made


def _query(given: Mapping[str, Any], utc: bool, bodies_are_whole: bool) -> "Query | None":
    if "unanswered" in given and "slower_than" in given:
        raise click.UsageError("--unanswered and --slower-than exclude each other: no answer, no latency")
    if not given:
        return None
    from mqpcap.query import Comparison, of_tree, query

    tests = [(name, Comparison(*test)) for name in _TESTS if name in given for test in _TESTS[name](given[name])]
    all_of: list[Query] = []
    for name, test in (*tests, *_times(given, utc)):
        with misuse_of(f"--{name}".replace("_", "-"), test.name):
            all_of.append(of_tree(test, utc))
    if "filter_text" in given:
        with misuse_of("-Y"):
            all_of.append(query(given["filter_text"], utc))
    made = functools.reduce(operator.and_, all_of)
    if made.asks_bodies and not bodies_are_whole:
        raise click.UsageError("--grep and filters on bodies need whole bodies: leave --bodies out")
    return made


@contextmanager
def misuse_of(option: str, column: str = "") -> Iterator[None]:
    """A QueryError inside, which may say the column first, is misuse of the option."""
    try:
        yield
    except QueryError as error:
        raise Misuse(f"{option}: {str(error).removeprefix(f'{column}: ')}") from None


def _any_glob(globs: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    if not any(sign in glob for glob in globs for sign in "*?"):
        return "topic", "in", globs
    patterns = ("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in glob) for glob in globs)
    return "topic", "matches", (f"(?s)^(?:{'|'.join(patterns)})$",)


def _times(given: Mapping[str, Any], utc: bool) -> "Iterator[tuple[str, Comparison]]":
    """The bounds of --since and --until; an --until of an earlier time of day is of the next day."""
    from mqpcap.query import Comparison
    from mqpcap.query.values import DAY_NS, moment

    since: Moment | None = None
    for name, relation in (("since", ">="), ("until", "<")):
        if name in given:
            with misuse_of(f"--{name}"):
                when = moment(given[name].strip(), utc)
            if since is not None and when.origin == "begin":
                when = since.later(when.ns)
            elif since is not None and when.origin == since.origin == "day" and when.ns < since.ns:
                when = when.later(DAY_NS)
            since = when
            yield name, Comparison("ts", relation, (when,))
