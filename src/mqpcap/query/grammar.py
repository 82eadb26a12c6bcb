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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, NoReturn, TypeAlias, TypeVar

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
class Logic(Generic[T]):
    """All of the parts (``and``), any of them (``or``), or the opposite of the only one (``not``)."""

    word: Literal["and", "or", "not"]
    parts: "tuple[TreeOf[T], ...]"


TreeOf: TypeAlias = T | Logic[T]
Tree: TypeAlias = TreeOf[Comparison]


def parsed(text: str) -> Tree:
    """The tree of a filter; raises QueryError, which says where it went wrong.

    >>> parsed("a or not topic in (b, c)")  # doctest: +NORMALIZE_WHITESPACE
    Logic(word='or', parts=(Comparison(name='a', relation='is', values=()),
        Logic(word='not', parts=(Comparison(name='topic', relation='in', values=('b', 'c')),))))
    """
    if len(text) > MAX_CHARACTERS:
        raise QueryError(f"a filter of {len(text):,} characters; the most are {MAX_CHARACTERS:,}")
    parser = _Parser(text)
    tree = parser.filter(0)
    if parser.kind:
        parser.fail("'and', 'or' or the end")
    return tree


class _Parser:
    """Goes through the tokens of a text, one of which is at hand: ``kind`` (empty at the end) and ``token``.

    ``word`` is the token in lower case, empty for what stands in quotes.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._token_end = 0
        self._next()

    def _next(self) -> None:
        self._token_start = self._token_end
        self.kind = self.token = self.word = ""
        match = _TOKEN.match(self._text, self._token_end)
        if match is None:
            remainder = self._text[self._token_end :].strip()
            if remainder:
                problem = "a quote that is not closed" if remainder[0] in "\"'" else f"{remainder[0]!r}"
                raise QueryError(f"{problem} at character {len(self._text) - len(remainder) + 1}")
            return
        self._token_end = match.end()
        self.kind, self.token = match.lastgroup or "", match[match.lastgroup or 0]
        if self.kind == "text":
            self.token = re.sub(r"\\([\"'\\])", r"\1", self.token[1:-1])
        else:
            self.word = _WORDS.get(self.token, self.token.lower())

    def fail(self, wanted: str) -> NoReturn:
        """Say what is wanted in place of the token at hand."""
        actual = f"not {self.token!r}" if self.kind else "but it ends"
        context = self._text[: self._token_start].rstrip()
        location = f" behind {context[-30:]!r}" if context else ""
        raise QueryError(f"{wanted} is wanted{location}, {actual}")

    def _accept(self, *words: str) -> str:
        """The word at hand if it is one of these, and go on; empty if it is none."""
        word = self.word if self.word in words else ""
        if word:
            self._next()
        return word

    def _expect(self, word: str, wanted: str = "") -> None:
        if not self._accept(word):
            self.fail(wanted or repr(word))

    def filter(self, depth: int) -> Tree:
        """The whole of a filter, or what stands in parentheses."""
        return self._operands("or", lambda: self._operands("and", lambda: self._term(depth)))

    def _operands(self, word: Literal["and", "or"], part: Callable[[], Tree]) -> Tree:
        parts = [part()]
        while self._accept(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Logic(word, tuple(parts))

    def _term(self, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            raise QueryError(f"more than {MAX_DEPTH} parentheses and 'not' inside each other")
        if self._accept("not"):
            return Logic("not", (self._term(depth + 1),))
        if not self._accept("("):
            return self._test()
        tree = self.filter(depth + 1)
        self._expect(")")
        return tree

    def _test(self) -> Tree:
        if self.kind != "word" or self.word in ("and", "or", "in", *RELATIONS):
            self.fail("a name")
        name = self.token
        self._next()
        if relation := self._accept(*RELATIONS):
            return Comparison(name, relation, (self._value(),))
        is_negated = self._accept("not")
        if is_negated or self.word == "in":
            self._expect("in")
            test = Comparison(name, "in", self._values())
        elif self._accept("is"):
            is_negated = "" if self._accept("not") else "not"
            self._expect("null", "'null' or 'not null'")
            test = Comparison(name, "exists")
        else:
            if self.word == "=":
                self.fail("'=='")
            test = Comparison(name, self._accept("exists") or "is")
        return Logic("not", (test,)) if is_negated else test

    def _values(self) -> tuple[str, ...]:
        if not self._accept("("):
            return (self._value(),)
        values = [self._value()]
        while self._accept(","):
            values.append(self._value())
        self._expect(")", "',' or ')'")
        return tuple(values)

    def _value(self) -> str:
        if self.kind not in ("word", "text"):
            self.fail("a value")
        value = self.token
        self._next()
        return value
