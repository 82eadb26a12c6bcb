"""Parses the text of a filter into a tree of comparisons.

    filter      = conjunction {"or" conjunction}
    conjunction = term {"and" term}
    term        = "not" term | "(" filter ")" | test
    test        = name [relation value | ["not"] "in" values | "exists" | "is" ["not"] "null"]
    values      = "(" value {"," value} ")" | "{" value {[","] value} "}" | value
    value       = word | "text" | 'text'

``&&``, ``||`` and ``!`` stand for ``and``, ``or`` and ``not``, Wireshark's ``eq``, ``ne``, ``lt``, ``le``, ``gt``,
``ge`` and ``~`` for relations; keywords have no case. The parser does not check
names and values. Nesting and length are limited, because a filter may come from another program.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, NoReturn, TypeAlias, TypeVar

from mqpcap.errors import QueryError
from mqpcap.query.values import Moment

MAX_DEPTH = 32
"""Levels of nested parentheses and ``not``."""
MAX_CHARACTERS = 1 << 16
"""Characters in a filter."""
RELATIONS = ("==", "!=", "<=", ">=", "<", ">", "contains", "matches")
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<mark>==|!=|<=|>=|<|>|&&|\|\||!|=|\(|\)|,|\{|\})"""
    r"""|(?P<word>[^\s"'()<>=!,&|{}](?:[^\s"'()<>=!,&|{}]|\{[^\s{}]*\})*))""",
    re.DOTALL,
)
T = TypeVar("T")
_WORDS = {
    "&&": "and", "||": "or", "!": "not", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "~": "matches",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column, a relation and values as written. ``is``: a truth value is true, or any other value exists."""

    name: str
    relation: str
    values: tuple[str | Moment, ...] = ()


@dataclass(frozen=True, slots=True)
class Logic(Generic[T]):
    """All parts are true (``and``), any part is true (``or``), or the single part is false (``not``)."""

    word: Literal["and", "or", "not"]
    parts: "tuple[TreeOf[T], ...]"


TreeOf: TypeAlias = T | Logic[T]
Tree: TypeAlias = TreeOf[Comparison]


def parsed(text: str) -> Tree:
    """The tree of a filter; raises QueryError with the position of the error.

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
    """Recursive-descent parser. ``kind`` (empty at the end) and ``token`` describe the current token.

    ``word`` is the current token in lower case; it is empty for quoted text.
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
        """Raises QueryError with the expected syntax and the current token."""
        actual = f"not {self.token!r}" if self.kind else "but it ends"
        context = self._text[: self._token_start].rstrip()
        location = f" after {context[-30:]!r}" if context else ""
        raise QueryError(f"{wanted} is wanted{location}, {actual}")

    def _accept(self, *words: str) -> str:
        """If the current word is in ``words``, returns it and moves on; else returns an empty text."""
        word = self.word if self.word in words else ""
        if word:
            self._next()
        return word

    def _expect(self, word: str, wanted: str = "") -> None:
        if not self._accept(word):
            self.fail(wanted or repr(word))

    def filter(self, depth: int) -> Tree:
        """Parses a whole filter, or the part in parentheses."""
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
        opening = self._accept("(", "{")
        if not opening:
            return (self._value(),)
        closing = ")" if opening == "(" else "}"
        values = [self._value()]
        while self._accept(",") or (closing == "}" and self.kind in ("word", "text")):
            values.append(self._value())
        self._expect(closing, f"',' or '{closing}'")
        return tuple(values)

    def _value(self) -> str:
        if self.kind not in ("word", "text"):
            self.fail("a value")
        value = self.token
        self._next()
        return value
