"""The text of a filter to a tree of tests.

    filter  = both {"or" both}              both = one {"and" one}
    one     = "not" one | "(" filter ")" | test
    test    = name [relation value | ["not"] "in" values | "exists" | "is" ["not"] "null"]
    values  = "(" value {"," value} ")" | value
    value   = word | "text" | 'text'

``&&``, ``||`` and ``!`` stand for the words, whose case does not matter. What a name or a value means is not known
here. Nesting and lengths are bounded, as a filter may come from another program.
"""

import re
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeAlias, TypeVar

from mqpcap.errors import QueryError
from mqpcap.query.values import Moment

MAX_DEPTH = 32
"""Parentheses and ``not`` inside each other."""
MAX_CHARACTERS = 1 << 16
"""Length of a filter."""
RELATIONS = ("==", "!=", "<=", ">=", "<", ">", "contains", "matches")
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<mark>==|!=|<=|>=|<|>|&&|\|\||!|=|\(|\)|,)"""
    r"""|(?P<word>[^\s"'()<>=!,&|]+))""",
    re.DOTALL,
)
T = TypeVar("T")
_WORDS = {"&&": "and", "||": "or", "!": "not"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with values as written; the relation ``is`` asks for its truth, or that it is there."""

    name: str
    relation: str
    values: tuple[str | Moment, ...] = ()


@dataclass(frozen=True, slots=True)
class Not(Generic[T]):
    """The opposite, as far as it is known."""

    part: "TreeOf[T]"


@dataclass(frozen=True, slots=True)
class And(Generic[T]):
    """All of them."""

    parts: "tuple[TreeOf[T], ...]"


@dataclass(frozen=True, slots=True)
class Or(Generic[T]):
    """Any of them."""

    parts: "tuple[TreeOf[T], ...]"


TreeOf: TypeAlias = T | Not[T] | And[T] | Or[T]
Tree: TypeAlias = TreeOf[Comparison]


def parsed(text: str) -> Tree:
    """The tree of a filter; raises QueryError, which says where it went wrong.

    >>> parsed('op == "PUBLISH" and not topic in (a, b)')  # doctest: +NORMALIZE_WHITESPACE
    And(parts=(Comparison(name='op', relation='==', values=('PUBLISH',)),
               Not(part=Comparison(name='topic', relation='in', values=('a', 'b')))))
    """
    if len(text) > MAX_CHARACTERS:
        raise QueryError(f"a filter of {len(text):,} characters; the most are {MAX_CHARACTERS:,}")
    parser = _Parser(text)
    tree = parser.filter(0)
    if parser.kind:
        parser.fail("'and', 'or' or the end")
    return tree


class _Parser:
    """Goes through the tokens of a text, one of which is at hand: ``kind`` (empty at the end) and ``token``."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._next()

    def _next(self) -> None:
        self._at = self._end
        found = _TOKEN.match(self._text, self._end)
        if found is None:
            rest = self._text[self._end :].strip()
            if rest:
                what = "a quote that is not closed" if rest[0] in "\"'" else f"{rest[0]!r}"
                raise QueryError(f"{what} at character {len(self._text) - len(rest) + 1}")
            self.kind = self.token = ""
            return
        self._end = found.end()
        self.kind, token = found.lastgroup or "", found[found.lastgroup or 0]
        self.token = re.sub(r"\\([\"'\\])", r"\1", token[1:-1]) if self.kind == "text" else token

    def fail(self, wanted: str) -> NoReturn:
        """Say what is wanted in place of the token at hand."""
        here = f"not {self.token!r}" if self.kind else "but it ends"
        before = self._text[: self._at].rstrip()
        place = f" behind {before[-30:]!r}" if before else ""
        raise QueryError(f"{wanted} is wanted{place}, {here}")

    def _is(self, *words: str) -> bool:
        token = self.token.lower()
        return self.kind in ("word", "mark") and _WORDS.get(token, token) in words

    def _take(self, *words: str) -> str | None:
        """The token at hand if it is one of the words, in lower case; then the next one is."""
        if not self._is(*words):
            return None
        token = self.token.lower()
        self._next()
        return _WORDS.get(token, token)

    def filter(self, depth: int) -> Tree:
        """``both {"or" both}``."""
        parts = [self._both(depth)]
        while self._take("or"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self, depth: int) -> Tree:
        parts = [self._one(depth)]
        while self._take("and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _one(self, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            raise QueryError(f"more than {MAX_DEPTH} parentheses and 'not' inside each other")
        if self._take("not"):
            return Not(self._one(depth + 1))
        if self._take("("):
            tree = self.filter(depth + 1)
            if not self._take(")"):
                self.fail("')'")
            return tree
        return self._test()

    def _test(self) -> Tree:
        if self.kind != "word" or self._is("and", "or", "in", *RELATIONS):
            self.fail("a name")
        name = self.token
        self._next()
        if relation := self._take(*RELATIONS):
            return Comparison(name, relation, (self._value(),))
        if self._take("in"):
            return Comparison(name, "in", self._values())
        if self._take("exists"):
            return Comparison(name, "exists")
        if self._take("is"):
            there = self._take("not") is not None
            if not self._take("null"):
                self.fail("'null' or 'not null'")
            return Comparison(name, "exists") if there else Not(Comparison(name, "exists"))
        if self._take("not"):
            if not self._take("in"):
                self.fail("'in'")
            return Not(Comparison(name, "in", self._values()))
        if self._is("="):
            self.fail("'=='")
        return Comparison(name, "is")

    def _values(self) -> tuple[str, ...]:
        if not self._take("("):
            return (self._value(),)
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        if not self._take(")"):
            self.fail("',' or ')'")
        return tuple(values)

    def _value(self) -> str:
        if self.kind not in ("word", "text"):
            self.fail("a value")
        value = self.token
        self._next()
        return value
