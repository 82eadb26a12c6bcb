"""Filters in words: ``op="PUBLISH"``, ``since="+30s"`` and so on, as the commands and calls take them.

In: values by word. Out: a `Query` for each word; all of them must match. Called by: the options of the commands,
``api``. Errors name the word as an option, for example ``--since``.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from mqpcap.errors import MisuseError
from mqpcap.query.filter import Query, of_tree
from mqpcap.query.grammar import Comparison
from mqpcap.query.values import Moment, moment
from mqpcap.wording import misuse_of

_ANY_OF = ("protocol", "op", "client", "server", "connection")
_TESTS: Mapping[str, Callable[[Any], list[tuple[Any, ...]]]] = {
    **{name: partial(lambda name, words: [_any_of(name, words)], name) for name in _ANY_OF},
    "status": lambda word: [("status", "==", (word,))],
    "topic": lambda globs: [any_glob("topic", globs)],
    "grep": lambda words: [("payload", "matches", ("|".join(map(re.escape, words)),))],
    "flawed": lambda _: [("flaw", "exists")],
    "unanswered": lambda _: [("is_request", "is"), ("state", "==", ("unanswered",))],
    "slower_than": lambda time: [("is_request", "is"), ("latency", ">", (time.strip(),))],
}
"""By word, the tests as `Comparison` takes them."""
WORDS = (*_TESTS, "since", "until")
_SEVERAL = (*_ANY_OF, "topic", "grep")
"""Words that take several values."""


def shortcut_queries(values: Mapping[str, Any], utc: bool = False) -> list[Query]:
    """A filter for each word; together they select the messages. ``utc``: times of day are in UTC. Raises MisuseError.

    >>> [query.needs_bodies for query in shortcut_queries({"op": "PUB*", "grep": "error"})]
    [False, True]
    """
    values = {name: x for name, x in values.items() if x not in (None, False, (), [])}
    given = {name: [x] if name in _SEVERAL and isinstance(x, str) else x for name, x in values.items()}
    if "unanswered" in given and "slower_than" in given:
        raise MisuseError("--unanswered and --slower-than exclude each other: no answer, no latency")
    tests = [(name, Comparison(*test)) for name in _TESTS if name in given for test in _TESTS[name](given[name])]
    queries = []
    for name, test in (*tests, *_times(given, utc)):
        with misuse_of(_option(name), test.name):
            queries.append(of_tree(test, utc))
    return queries


def _option(word: str) -> str:
    """The option of the commands for a word."""
    return f"--{word.replace('_', '-')}"


def _any_of(name: str, words: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    """A test for values with commas between; those of operations may be globs."""
    values = [value.strip() for word in words for value in word.split(",")]
    return any_glob(name, values) if name == "op" else (name, "in", values)


def any_glob(name: str, globs: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    """A test for texts with ``*`` and ``?`` as in a shell."""
    if not any(sign in glob for glob in globs for sign in "*?"):
        return name, "in", globs
    patterns = ("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in glob) for glob in globs)
    return name, "matches", (f"(?s)^(?:{'|'.join(patterns)})$",)


def _times(given: Mapping[str, Any], utc: bool) -> Iterator[tuple[str, Comparison]]:
    """The bounds of --since and --until; an --until of an earlier time of day is of the next day."""
    since: Moment | None = None
    for name, relation in (("since", ">="), ("until", "<")):
        if name in given:
            with misuse_of(_option(name)):
                when = moment(given[name].strip(), utc)
            if since is not None and when.origin == "begin":
                when = since.later(when.ns)
            elif since is not None and when.origin == since.origin == "day" and when.ns < since.ns:
                when = when.next_day()
            is_comparable = since is not None and (when.origin, when.utc) == (since.origin, since.utc)
            if since is not None and is_comparable and when.time_ns(0) <= since.time_ns(0):
                raise MisuseError("--until is not later than --since: nothing is between them")
            since = when
            yield name, Comparison("ts", relation, (when,))
