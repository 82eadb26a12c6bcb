"""Tokens planted in every field of every message that the protocols describe: none is left after anonymising."""

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import cast

import pytest
from examples import one_in

import mqpcap.protocols
from mqpcap.listing.anonymisation import Anonymisation, MessageMasker
from mqpcap.listing.explanation import explanation, reading
from mqpcap.listing.extra_columns import BYTES, LAYOUT, VARIANT
from mqpcap.listing.reorder_buffer import MessageRow
from mqpcap.protocols import protocols
from mqpcap.protocols.msgq.kinds import MAGIC, ROUTING, Json, Tree, Value, encode
from mqpcap.schema import fields
from mqpcap.schema.gzip_body import inflate
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import ANY, Layout, MessageQueue, Variant

SUPPORT = Path(__file__).parents[1] / "support"
KEY = bytes(range(32))
WORD = "sekret{}q"
STYLES: dict[str, Callable[[int], bytes]] = {
    "word": lambda i: f"sekret{i:04}q".encode(),
    "blanks, signs and an address": lambda i: f"Frau Mayer#{i:04}&Co (at 192.0.2.77:9092, 192.0.2.78.".encode(),
    "not ASCII": lambda i: f"Grüße{i:04}größer".encode(),
    "JSON": lambda i: json.dumps([{f"sekret{i:04}q": [f"ümläute{i:04}x", 18005551234]}]).encode(),
    "UTF-16": lambda i: f"sekret{i:04}q".encode("utf-16-le"),
    "bytes": lambda i: sha256(b"%d" % i).digest()[:13],
    "zeros after": lambda i: b"sekret%04dq\0\0\0\0" % i,
    "hex": lambda i: f"sekret{i:04}q".encode().hex().encode(),
    "base64": lambda i: base64.b64encode(f"sekret{i:04}q".encode()),
    "escapes": lambda i: "".join(f"\\u{ord(c):04x}" for c in f"sekret{i:04}q").encode(),
}
NUMBERS = b"18005551234", b"27005551234"
"""Numbers in JSON and in trees that are no numbers of the protocol."""


@dataclass
class Planter:
    """Fills messages with tokens of a style, each another; ``in_form``: how trees are written."""

    style: str
    in_form: str = "plain"
    condition: bool = True
    tokens: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def token(self, is_body: bool = False) -> bytes:
        token = STYLES[self.style](len(self.tokens))
        self.tokens.append(token)
        if is_body:
            self.bodies.append(token)
        return token

    def message(self, cls: type[Message]) -> Message:
        values: dict[str, object] = {}
        limited = {x.name for x in fields.wire_fields(cls) if getattr(x, "among", None) is not None}
        for kind in fields.wire_fields(cls):
            if isinstance(kind, fields.If) and isinstance(kind.equals, bytes):
                if not self.condition:
                    continue
                values[str(kind.when)] = kind.equals
            elif isinstance(kind, fields.If) and isinstance(kind.equals, int) and kind.when in limited:
                values[kind.when] = kind.equals  # the last of the cases
            value = self.value(fields.bare(kind), kind)
            if value is not None:
                values[kind.name] = value
        return cls(**values)

    def value(self, kind: fields.Kind, shell: fields.Kind) -> object:
        if isinstance(shell, fields.If) and shell.follows is not None:
            return shell.follows
        if isinstance(kind, fields.Nested):
            return self.message(kind.message)
        if isinstance(kind, fields.Array):
            return [self.item(kind.item) for _ in range(2)]
        if isinstance(kind, Tree):
            return self.tree(kind)
        if isinstance(kind, Json):
            return self.json_text()
        if isinstance(kind, fields.Address):
            self.tokens.append(sha256(b"address %d" % len(self.tokens)).digest()[:4])
            return self.tokens[-1]
        if isinstance(kind, fields.Span):
            return self.span(kind)
        return 1 if isinstance(shell, fields.If) and isinstance(kind, fields.Number) else None

    def item(self, item: fields.Kind | type[Message]) -> object:
        if isinstance(item, type):
            return self.message(item)
        kind = cast(fields.Kind, item)
        return self.value(kind, kind)

    def span(self, kind: fields.Span) -> bytes:
        """A token as long as the field may be, and of its characters."""
        if kind.at_most == 0:
            return b""
        if kind.among is not None:
            return next(iter(kind.among))
        token = self.token(kind.body)
        is_allowed = not kind.is_text or (token.decode("utf-8", "ignore").encode() == token and b"\0" not in token)
        if not is_allowed or (kind.until is not None and bytes([kind.until]) in token):
            del self.tokens[-1:], self.bodies[len(self.bodies) - kind.body :]
            token = WORD.format(len(self.tokens)).encode()
            self.tokens.append(token)
        length = kind.size or max(min(len(token), kind.at_most or len(token)), kind.at_least or 0)
        self.tokens[-1] = token[:length]
        return token[:length].ljust(length, b"q")

    def pairs(self, with_types: bool) -> bytes:
        """A hash with each word, known and not, of each type."""
        words: dict[str, Value] = {name: self.text() for name in ROUTING}
        inner: dict[str, Value] = {
            "type": "send",
            self.key(): self.token(True),
            "more": [self.token(True), {self.key(): self.token(True)}],
        }
        more: dict[str, Value] = {"stats": [self.text()], self.key(): self.token()}
        numbers: dict[str, Value] = (
            {"n": int(NUMBERS[1]), "many": [1.5, True, None, int(NUMBERS[1])]} if with_types else {}
        )
        msg = MAGIC + self.written(encode(inner, with_types))
        return encode({**words, **more, **numbers, "hash": {self.key(): {"a": self.token()}}, "msg": msg}, with_types)

    def key(self) -> str:
        self.tokens.append(WORD.format(len(self.tokens)).encode())
        return self.tokens[-1].decode()

    def text(self) -> str:
        return self.token().decode("utf-8", "replace")

    def written(self, pairs: bytes) -> bytes:
        """Pairs as programs write them, or as the document may be read."""
        if self.in_form == "explicit":
            return b"\x12" + len(pairs).to_bytes(2, "big") + pairs
        return pairs + b"\4null\x24\0" if self.in_form == "long null" else pairs

    def tree(self, kind: Tree) -> bytes:
        with_types = kind.with_types or self.in_form == "typed"
        return kind.magic + self.written(self.pairs(with_types))

    def json_text(self) -> bytes:
        words = {name: self.text() for name in ("type", "from", "group", "lname", self.key())}
        lists = {"to": [self.text(), {"deep": self.text()}], "number": int(NUMBERS[0]), "seq": 4, "want_answer": True}
        return json.dumps({**words, **lists}, ensure_ascii=self.condition).encode()


def variants() -> Iterator[tuple[MessageQueue, Layout, int, Variant]]:
    for protocol in protocols().values():
        for layout in protocol.layouts:
            for op, variants_of_op in layout.variants.items():
                for variant in variants_of_op:
                    yield protocol, layout, op, variant


def built(layout: Layout, op: int, body: Message, extra: bytes = b"", packed: bool = False) -> bytes:
    """A message with its header, and bytes after its last field, maybe compressed."""
    inner = bytes(body) + extra
    if layout.header is None:
        return inner
    inner = gzip.compress(inner) if packed else inner
    values: dict[str, object] = {} if op == ANY else {str(layout.op): op}
    names = {kind.name for kind in fields.wire_fields(layout.header)}
    values |= {name: value for name, value in body.binding_values.items() if name in names and name not in values}
    for kind in fields.wire_fields(layout.header):
        if isinstance(kind, fields.Length):
            values[kind.name] = len(inner) + kind.less
    if packed and layout.packed is not None:
        values[layout.packed[0]] = layout.packed[1]
    return bytes(layout.header(**values)) + inner


def row_of(protocol: MessageQueue, layout: Layout, op: int, variant: Variant, data: bytes) -> MessageRow:
    message = {
        "flaw": None, "frame_len": len(data), LAYOUT: layout.name, VARIANT: variant.message.__name__, BYTES: data,
        "dialect": variant.dialect or layout.dialect or protocol.dialects[0], "direction": layout.direction,
        "op_code": None if op == ANY else op,
    }  # fmt: skip
    return MessageRow(0, protocol.name, message, {})


@cache
def needles(token: bytes) -> frozenset[bytes]:
    """A token as itself, and in the codes that people and programs write texts in."""
    found = {token, token.hex().encode(), token.hex().upper().encode()}
    found |= {base64.b64encode(bytes(lead) + token)[2 * lead : -4] for lead in (0, 1, 2)}
    text = token.decode("utf-8", "ignore")
    if text.encode() == token:
        found |= {text.encode("utf-16-le"), text.encode("utf-16-be"), json.dumps(text)[1:-1].encode()}
        found.add("".join(f"\\u{ord(c):04x}" for c in text).encode())
        found |= {word.encode() for word in text.split() if len(word) >= 8}
    return frozenset(x for x in found if len(x) >= 4)


def left_in(data: bytes, tokens: list[bytes]) -> list[bytes]:
    """The tokens in some bytes, or compressed in them."""
    start = data.find(b"\x1f\x8b\x08")
    inflated = b"" if start < 0 else (inflate(data[start:])[0] or b"")
    return [token for token in tokens if any(x in data or x in inflated for x in needles(token))]


FORMS = ("plain", "explicit", "long null", "typed")


@dataclass(frozen=True)
class Planted:
    """A message full of tokens."""

    row: MessageRow
    planter: Planter
    is_packed: bool

    @property
    def where(self) -> tuple[object, ...]:
        names = self.row.message[LAYOUT], self.row.message[VARIANT]
        return self.row.protocol, *names, self.planter.style, self.planter.in_form, self.is_packed


def planted(style: str) -> tuple[Planted, ...]:
    """Messages of the protocols that there are; see `_planted`."""
    return _planted(style, tuple(protocols()))


@cache
def _planted(style: str, names: tuple[str, ...]) -> tuple[Planted, ...]:
    """Messages in every form, with and without optional parts; all of them decode.

    With words every message, with tokens of other styles one in four of those of many protocols.
    """
    found = []
    step = 1 if style == "word" or len(names) == 1 else 4
    for protocol, layout, op, variant in one_in(step, [*variants()], [*STYLES].index(style)):
        for form in FORMS if protocol.name == "msgq" else FORMS[:1]:
            for condition in (True, False):
                planter = Planter(style, form, condition)
                body = planter.message(variant.message)
                extra = planter.token() if layout.may_leave(variant) and not condition else b""
                for packed in sorted({False, layout.packed is not None}):
                    data = built(layout, op, body, extra, packed)
                    row = row_of(protocol, layout, op, variant, data)
                    assert is_read(row, data), (protocol.name, layout.name, variant)
                    found.append(Planted(row, planter, packed))
    return tuple(found)


def is_read(row: MessageRow, data: bytes) -> bool:
    """Whether bytes decode in the layout and the class of a row, whole trees included."""
    names = str(row.message[LAYOUT]), str(row.message[VARIANT])
    protocol, dialect = protocols()[row.protocol], str(row.message["dialect"])
    if reading(protocol, data, dialect, names) is None:
        return False
    if protocol.name != "msgq":
        return True
    best = explanation(protocol, data, protocol.layout(names[0]).direction, dialect, names).best
    return best is not None and best.fits and best.variant == names[1]


@pytest.mark.parametrize("style", STYLES)
def test_no_planted_token_is_left(style: str) -> None:
    check_masks(style)


@pytest.mark.parametrize("folder", ["protocols_toy", "protocols_rich"])
def test_no_planted_token_is_left_of_the_protocol_of_a_plugin(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqpcap.protocols, "__path__", [str(SUPPORT / folder)])
    for style in STYLES:
        assert check_masks(style)


def check_masks(style: str) -> int:
    """Check all messages of a style; returns their number."""
    cases = [*planted(style)]
    for case in cases:
        masker = MessageMasker(Anonymisation(KEY))
        masked = masker.masked(case.row)

        assert len(masked) == len(case.row.data), case.where
        assert left_in(masked, [*case.planter.tokens, *NUMBERS]) == [], case.where
        if masker.unreadable_count:
            assert case.is_packed, case.where  # its stand-ins do not get as short
        else:
            assert is_read(case.row, masked), case.where
    return len(cases)


@pytest.mark.parametrize("style", ["word", "blanks, signs and an address", "UTF-16"])
def test_no_body_and_no_address_is_left_where_names_are_kept(style: str) -> None:
    for case in planted(style):
        masked = MessageMasker(Anonymisation(KEY, names="keep")).masked(case.row)

        assert left_in(masked, [*case.planter.bodies, b"192.0.2.77", b"192.0.2.78"]) == [], case.where


@pytest.mark.parametrize("flaw", ["truncated", "malformed"])
def test_nothing_is_left_of_a_message_that_does_not_decode(flaw: str) -> None:
    for case in planted("word"):
        data = case.row.data[: -len(case.row.data) // 4] if flaw == "truncated" else case.row.data
        row = case.row._replace(message={**case.row.message, "flaw": flaw, BYTES: data})
        masked = MessageMasker(Anonymisation(KEY)).masked(row)

        assert len(masked) == len(data), case.where
        assert left_in(masked, [*case.planter.tokens, *NUMBERS]) == [], case.where
