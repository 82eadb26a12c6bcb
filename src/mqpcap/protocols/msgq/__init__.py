"""msgq, the command channel of BIND 10: flat, typed, split and json.

Source: doc/design/cc-protocol.txt of isc-projects/bind10 at c25fdf8de; the daemons and client libraries of
da2390e7e (flat), 83553f96f (typed), f28f0da30 (split), 3797c1639 (json). Port 9912, all integers big-endian.
The daemon of flat and typed takes at most 65536 bytes after a length. The later daemons have no limit; ours is 64 MiB.

Every message begins with its length in four bytes. A stream never changes its layout; the first message shows which it
is. Flat and typed share the layout: a connection is typed if the first whole message of the client (else of the daemon)
has an item of the types 5 to 8. Libraries of that time write ``type`` as UTF8. The C++ library of December 2009 wrote
both lengths of a split message too short by two. Its first message is a malformed row, and its stream is lost there, as
it was for the daemon.

Choices. A split body is a message if it has the magic and decodes, else JSON, else bytes; a json body is JSON, else
bytes. A routing key whose item is NULL is null; a DATA item that is a message becomes its object, even if it is four
bytes long. BOOL bytes other than the four known values are ``{"hex": ...}``. An item of an unknown type makes the
message malformed. With --bodies, a truncated ``msg`` is null inside ``document``.
"""

import json
import random
import re
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, case_when, group_ids, is_in, true_mask
from mqpcap.protocols.msgq.kinds import MAGIC, ROUTING, Json, Tree, encode, message, with_word
from mqpcap.records import dataclass
from mqpcap.schema.fields import EDGE_VALUE_ODDS, U16, U32, Broken, Kind, Length, Nested, RandomValue
from mqpcap.schema.message import Message, Octets, message_class
from mqpcap.schema.protocol import (
    ANY,
    Claim,
    Derived,
    Direction,
    Envelope,
    FirstBytes,
    Layout,
    MessageQueue,
    Opening,
    Raw,
    Verdict,
)
from mqpcap.schema.requests import (
    CorrelationRule,
    DeliveryRule,
    Fingerprints,
    Keys,
    RequestGroup,
    RequestKind,
    RequestRule,
    RequestTables,
    Roles,
    ServerHabits,
    State,
)  # fmt: skip

MAX_MESSAGE_SIZE = 64 * 1024 * 1024


class MsgQ(Message):
    """The length every message begins with; it does not count itself (cc.c:324-347, session.py:46-51)."""

    name = "msgq"
    fields_desc = [Length("length", at_most=MAX_MESSAGE_SIZE)]

    def operation(self, direction: str) -> str | None:
        """The value of ``type``; for a reply without ``type``: ``lname`` or ``stats``."""
        words = _routing(self)
        named = words.get("type") or next((word for word in _ANSWERS if word in words), None)
        return named if isinstance(named, str) else None

    def column(self, name: str) -> Any:
        """A word of the routing."""
        return _routing(self).get(name, super().column(name))


class MsgQForm(Message):
    """Base of the forms: words of a message are attributes, for example ``message.type``; None for an absent word.

    ``from_`` is ``from``.
    """

    def parts(self) -> tuple[Mapping[str, object], object]:
        """The outer hash or the header, empty if it does not decode; and the content of ``msg`` or the body.

        The content is bytes if it is neither a message nor JSON, and None if it is absent.
        """
        raise NotImplementedError

    def __getattr__(self, attr: str) -> Any:
        try:
            return super().__getattr__(attr)
        except AttributeError:
            if attr.removesuffix("_") not in _WORDS:
                raise
        words, content = self.parts()
        if attr == "msg":
            return content
        inner = content if isinstance(content, dict) else {}
        return words.get(attr.removesuffix("_"), inner.get(attr) if attr in _ANSWERS else None)

    def __setattr__(self, attr: str, value: Any) -> None:
        """Set a field, or a word, which rewrites its bytes. None removes the word."""
        word = attr.removesuffix("_")
        if word not in _WORDS or attr in self.fieldtype:
            super().__setattr__(attr, value)
            return
        words, content = self.parts()
        if attr == "msg" and not isinstance(self, MsgQFlat):
            raise ValueError("msg is the body here: set the field body")
        if word in _ANSWERS and word not in words and isinstance(content, dict) and word in content:
            raise ValueError(f"{word} stands in the body here: set the field body")
        self.write(word, value)

    def haslayer(self, cls: Any, _subclass: bool | None = None) -> Any:
        """Scapy's ``haslayer``; ``MsgQSend in packet`` is true for a send in any form."""
        return self._is_message(cls) or super().haslayer(cls, _subclass)

    def getlayer(self, cls: Any, nb: int = 1, _track: Any = None, _subclass: Any = None, **flt: Any) -> Any:
        """Scapy's ``getlayer``; ``packet[MsgQSend]`` is a send in its form, whose words have the same names."""
        if self._is_message(cls) and all(getattr(self, name) == value for name, value in flt.items()):
            if nb == 1:
                return self
            nb -= 1
        return super().getlayer(cls, nb, _track, _subclass, **flt)

    def _is_message(self, cls: Any) -> bool:
        """Whether the words of this form are a message of a class like `MsgQSend`."""
        if not (isinstance(cls, type) and issubclass(cls, MsgQMessage)):
            return False
        words, content = self.parts()
        type_, inner = words.get("type"), content if isinstance(content, dict) else {}
        for reply in (MsgQLname, MsgQStatsReply):
            if type_ in (None, reply.in_body_of) and (reply.in_body[0] in words or reply.in_body[0] in inner):
                return issubclass(reply, cls)
        return cls is MsgQMessage or (bool(type_) and type_ == cls().getfieldval("type"))

    def write(self, word: str, value: Any) -> None:
        """Write one word anew. Raises ValueError if the message does not decode."""
        raise NotImplementedError


class MsgQFlat(MsgQForm):
    """The magic, then the pairs of the outer hash without a TyLen of their own (Message.py:39-40)."""

    name = "msgq flat"
    fields_desc = [U32("magic", equals=int.from_bytes(MAGIC), column=None), Tree("tree")]

    def parts(self) -> tuple[Mapping[str, object], object]:
        """The outer hash, and its ``msg``."""
        words = _object(_text(self.getfieldval("tree")))
        return words, words.get("msg")

    def write(self, word: str, value: Any) -> None:
        """A pair of the outer hash; ``msg`` given as a dict is a message of its own."""
        tree: bytes = self.getfieldval("tree")
        typed = _is_typed(MAGIC + tree)
        item = message(value, typed) if word == "msg" and isinstance(value, dict) else value
        self.setfieldval("tree", with_word(tree, word, item, typed))


class MsgQHeader(Message):
    """The header of a split message: a message of its own."""

    name = "msgq header"
    fields_desc = [U32("magic", equals=int.from_bytes(MAGIC), column=None), Tree("tree", with_types=True)]


class MsgQSplit(MsgQForm):
    """Header and body (msgq.py.in:258-270); the length of the body is what is left, none is no body."""

    name = "msgq split"
    fields_desc = [
        U16("header_len", at_least=4),
        Nested("header", MsgQHeader, length="header_len"),
        Tree("body", with_types=True, with_magic=True),
    ]

    def parts(self) -> tuple[Mapping[str, object], object]:
        """Header and body."""
        body: bytes = self.getfieldval("body")
        shown_side = _text(body[len(MAGIC) :]) if body.startswith(MAGIC) else None
        words = _object(_text(self.getfieldval("header").getfieldval("tree")))
        return words, (body or None) if shown_side is None else json.loads(shown_side)

    def write(self, word: str, value: Any) -> None:
        """A pair of the header."""
        header = self.getfieldval("header").copy()
        header.setfieldval("tree", with_word(header.getfieldval("tree"), word, value, True))
        self.setfieldval("header", header)
        self.setfieldval("header_len", None)


class MsgQJson(MsgQForm):
    """Header and body as JSON (message.py:26-38 at 3797c1639)."""

    name = "msgq json"
    fields_desc = [U16("header_len", at_least=2), Json("header", length="header_len", at_least=2), Json("body")]

    def parts(self) -> tuple[Mapping[str, object], object]:
        """Header and body."""
        body: bytes = self.getfieldval("body")
        words = _object((self.getfieldval("header") or b"").decode("utf-8", "replace"))
        try:
            return words, json.loads(body)
        except (ValueError, RecursionError):
            return words, body or None

    def write(self, word: str, value: Any) -> None:
        """A word of the header."""
        words = {**self.parts()[0], word: value}
        self.setfieldval(
            "header", json.dumps({name: x for name, x in words.items() if name != word or x is not None}).encode()
        )
        self.setfieldval("header_len", None)


def _text(pairs: bytes) -> str | None:
    """``tree.text``."""
    from mqpcap.protocols.msgq import tree  # late, see kinds

    return tree.text(pairs)


def _is_typed(message_bytes: bytes) -> bool:
    """``tree.has_typed_items``."""
    from mqpcap.protocols.msgq import tree

    return tree.has_typed_items(message_bytes)


def _object(text: str | None) -> Mapping[str, object]:
    """The object that a JSON text is, empty for any other."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class Word(Kind):
    """A word of a message: a value under its name; the form says how it is written. Empty by default it is absent."""

    def __init__(self, name: str, default: str = "") -> None:
        super().__init__(name, default)

    def takes(self, pkt: Message, value: object) -> bytes:
        """Nothing by itself."""
        return b""

    def randval(self) -> RandomValue | None:
        """A text; None for the word that names the operation."""
        return None if self.default else RandomValue(self)

    def draw(self) -> str:
        """A text, sometimes empty, long or not ASCII."""
        n = random.choice((0, 1, 12, 255)) if random.randrange(EDGE_VALUE_ODDS) == 0 else random.randint(1, 12)
        return "".join(random.choices('abcdefghij *@/_0123456789\u00fc"', k=n))


FORMS: Mapping[str, type[MsgQForm]] = {"flat": MsgQFlat, "split": MsgQSplit, "json": MsgQJson}
_FORM = Word("form", "flat")


class MsgQMessage(Message):
    """A message built from words, in the form ``flat``, ``typed``, ``split`` or ``json``.

    ``MsgQ() / MsgQSend(from_="a", to="*", group="g", instance="*", seq=1, msg={"a": 1}, form="json")``. Words that are
    None or not given are left out. ``msg`` of a flat message, given as a dict, is a message of its own, as the
    libraries wrote it. Messages read from the wire have the class of their form; the words have the same names.
    """

    name = "msgq message"
    fields_desc: list[Kind] = [_FORM, Word("type")]
    in_body: ClassVar[tuple[str, ...]] = ()
    """Words that go to the body, if the form has a body ..."""
    in_body_of: ClassVar[str] = ""
    """... and the type that the header then has."""

    def in_form(self) -> MsgQForm:
        """The message in its form. Raises ValueError for an unknown form."""
        form = self.getfieldval("form")
        values = {f.name: self.getfieldval(f.name) for f in self.fields_desc if f is not _FORM}
        words = {
            name.removesuffix("_"): value
            for name, value in values.items()
            if value is not None and (value != "" or name in self.fields)
        }
        if form in ("flat", "typed"):
            if isinstance(words.get("msg"), dict):
                words["msg"] = message(words["msg"], form == "typed")
            return MsgQFlat(tree=encode(words, form == "typed"))
        if form not in FORMS:
            raise ValueError(f"a msgq message has no form {form!r}, but flat, typed, split or json")
        inner = {name: words.pop(name) for name in self.in_body if name in words}
        if inner:
            words.setdefault("type", self.in_body_of)
        body = words.pop("msg", inner or b"")
        if form == "split":
            return MsgQSplit(header=MsgQHeader(tree=words), body=body)
        return MsgQJson(header=words, body=body if isinstance(body, bytes) else json.dumps(body))

    def self_build(self) -> bytes:
        """The bytes of the form; as they came, if no word was changed."""
        return self.raw_packet_cache if self.raw_packet_cache_fields == self.fields else bytes(self.in_form())

    def _read(self, s: Octets) -> Octets:
        data = bytes(s)
        for form, cls in FORMS.items():
            with suppress(Broken):
                read, left = cls.begin(data)
                asked = self.default_fields["type"]
                if left or asked not in ("", read.type):
                    continue
                self.fields = {f.name: getattr(read, f.name) for f in self.fields_desc if f is not _FORM}
                self.fields["form"] = "typed" if form == "flat" and _is_typed(data) else form
                self.raw_packet_cache, self.raw_packet_cache_fields = data, deepcopy(self.fields)
                self.explicit = 1
                return s[:0]
        raise Broken


def _words(title: str, about: str, *words: str, **options: Any) -> type[Message]:
    """A message with these words; ``type=getlname`` has a value where none is given."""
    fields = [Word(name, value) for name, _, value in (word.partition("=") for word in words)]
    name = "MsgQ" + title.title().replace(" ", "")
    return message_class(__name__, name, f"msgq {title}", about, _FORM, *fields, like=MsgQMessage, **options)


MsgQGetlname = _words("getlname", "The first message of a client: it asks for its name.", "type=getlname")
MsgQLname = _words(
    "lname",
    "The daemon's answer; the document has the name alone, the C daemon wrote the type behind it (msgq.c:568-577).",
    *("lname", "type"),
    in_body=("lname",),
    in_body_of="getlname",
)
MsgQSend = _words(
    "send",
    "A message to a group or a client; ``reply`` (in the document ``repl``) is the number of its request.",
    *("type=send", "from_", "to", "group", "instance", "seq", "repl", "reply", "want_answer", "msg"),
)
MsgQSubscribe = _words(
    "subscribe",
    "Asks for what goes to a group; libraries before A1 say a ``subtype``.",
    *("type=subscribe", "group", "instance", "subtype"),
)
MsgQUnsubscribe = _words("unsubscribe", "Asks for it no more.", "type=unsubscribe", "group", "instance")
MsgQStats = _words("stats", "Asks for the daemon's statistics; no daemon answers.", "type=stats")
MsgQStatsReply = _words(
    "stats reply", "The document's answer to it.", "stats", "type", in_body=("stats",), in_body_of="stats"
)
MsgQPing = _words("ping", "To the later Python daemon, which answers with a pong (2011 on, json).", "type=ping", "msg")
MsgQPong = _words("pong", "The answer to a ping, with the ping's body.", "type=pong", "msg")
MsgQStop = _words("stop", "Ends the later Python daemon (2012 on, json).", "type=stop")


def _layouts(name: str, message: type[Message]) -> tuple[Layout, ...]:
    return tuple(
        Layout(f"{name}_{d}", d, {ANY: (message,)}, header=MsgQ, dialect=name, on_bad="search") for d in _DIRECTIONS
    )


_DIRECTIONS: tuple[Direction, Direction] = ("c2s", "s2c")
_ANSWERS = ("lname", "stats")
_WORDS = frozenset({*ROUTING, "msg", "stats", "want_answer", "sybtype"})


def derive(raw: Raw) -> Mapping[str, pa.Array]:
    """The columns, from the pairs, JSON headers and bodies of the rows; a row that does not decode gets its flaw.

    A daemon brings a message to every subscriber as it came, so equal rows are read once.
    """
    from mqpcap.protocols.msgq.documents import columns

    parts = ("tree", "header", "body")
    groups = group_ids([*map(raw.array, parts), pa.array(raw.flaw)], raw.n)
    _, first_rows, place = np.unique(groups, return_index=True, return_inverse=True)
    flaw = raw.flaw[first_rows]
    trees, headers, bodies = ((start[first_rows], length[first_rows]) for start, length in map(raw.spans, parts))
    columns_by_name = columns(raw.buffer, trees, headers, bodies, flaw, raw.keep_bodies)
    raw.flaw[:] = flaw[place]
    return {name: column.take(pa.array(place)) for name, column in columns_by_name.items()}


def envelope(table: pa.Table) -> Mapping[str, pa.Array]:
    """op is the value of ``type``; for a reply without ``type`` it is ``lname`` or ``stats``. Replies are ``ok``."""
    type_, lname = table["type"], table["lname"]
    stats = pc.if_else(table["has_stats"], "stats", pa.scalar(None, pa.string()))
    word = pc.if_else(pc.is_valid(lname), "lname", stats)
    op = pc.coalesce(type_, word)
    answers = pc.coalesce(table["reply"], table["repl"])
    is_reply = pc.or_(
        pc.or_(pc.is_valid(lname), pc.and_(pc.fill_null(pc.equal(op, "send"), False), pc.is_valid(answers))),
        pc.fill_null(pc.is_in(op, pa.array(["stats", "pong"])), False),
    )
    return {
        "op": op,
        "body_len": table["msg_len"],
        "status": case_when({"ok": true_mask(is_reply) & is_in(table["direction"], "s2c")}),
    }


@dataclass(frozen=True, slots=True)
class _SideEvidence:
    """Evidence from one direction: a verdict, the generation, and its first whole message with its length."""

    verdict: Verdict
    generation: str = ""
    first_message: bytes = b""

    @property
    def is_client(self) -> bool:
        """Whether only clients send such a message; the reply to getlname repeats its header."""
        return not self.is_server and _FROM_CLIENT.search(self.first_message) is not None

    @property
    def is_server(self) -> bool:
        """Whether the message is the reply to getlname."""
        return _LNAME.search(self.first_message, 0, 64) is not None


def _generation(data: bytes) -> str | None:
    """The generation by a message's first bytes; "" for too few bytes, None if they are not msgq.

    The magic follows the length (flat, typed) or the header's length (split); json has ``{`` there.
    """
    length, header_len = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:6], "big")
    if len(data) >= 4 and length > MAX_MESSAGE_SIZE:
        return None
    if len(data) < 10:
        # Ten bytes distinguish all generations; the smallest flat message has eight.
        return "flat" if data[4:8] == MAGIC and length == 4 else ""
    if data[4:8] == MAGIC:
        return "flat" if length >= 4 else None
    if data[6:10] == MAGIC:
        # The C++ library of December 2009 wrote header_len == length (session.cc:71-90 at 6383f1fda).
        return "split" if 4 <= header_len <= length - 2 or header_len == length else None
    return "json" if data[6:7] == b"{" and 2 <= header_len <= length - 2 else None


def _side_evidence(opening: Opening, direction: Direction) -> _SideEvidence:
    """Evidence from the first byte of a direction or, mid-stream, from the first two consecutive messages."""
    data, start, ended = opening.side(direction)
    offsets = [0] if start else [opening.find_run(direction, f"{g}_{direction}", 2) for g in _GENERATIONS]
    offset = min((x for x in offsets if x is not None), default=None)
    generation = "" if offset is None else _generation(data[offset:])
    if generation is None:
        return _SideEvidence(Verdict.NO)
    if offset is None or not generation:
        return _SideEvidence(Verdict.NO if ended else Verdict.WAIT)
    data = data[offset:]
    end = 4 + int.from_bytes(data[:4], "big")
    header_end = 6 + int.from_bytes(data[4:6], "big")
    if len(data) < (header_end if generation == "json" else end) and not ended:
        return _SideEvidence(Verdict.WAIT)
    first_message = data[:end] if len(data) >= end else b""
    if generation == "json" and not (data[header_end - 1 : header_end] == b"}" and b'"type"' in data[:header_end]):
        return _SideEvidence(Verdict.LIKELY if opening.on_port else Verdict.NO, generation, first_message)
    return _SideEvidence(Verdict.YES, generation, first_message)


_GENERATIONS = ("flat", "split", "json")
_OPENINGS = (
    FirstBytes(bytes(4) + MAGIC, bytes(4) + b"\xff" * 4),
    FirstBytes(bytes(6) + MAGIC, bytes(6) + b"\xff" * 4),
    FirstBytes(bytes(6) + b"{" + bytes(3), bytes(6) + b"\xff" + bytes(3)),
)
_FROM_CLIENT = re.compile(rb"type.{1,6}(getlname|(un)?subscribe)", re.DOTALL)
_LNAME = re.compile(rb"(Skan\x05|\{\")lname")


def claims(opening: Opening) -> Claim:
    """The magic after plausible lengths, or a JSON header with a type."""
    client, server = _side_evidence(opening, "c2s"), _side_evidence(opening, "s2c")
    if not (opening.c2s_start or opening.s2c_start) and (
        server.is_client > client.is_client or client.is_server > server.is_server
    ):
        return Claim(Verdict.NO)  # whatever the ports are
    sure = (Verdict.LIKELY, Verdict.YES)
    oriented = opening.c2s_start or opening.s2c_start
    if opening.c2s_start and client.verdict is Verdict.NO and opening.c2s and not opening.on_port:
        return Claim(Verdict.NO)
    # Mid-stream, detection asks about either side as the client. If both fit, the port decides (``Detector``), so both
    # must answer at the same bytes: neither waits for its client's.
    patient = oriented and len(opening.c2s) > 0
    if client.verdict is Verdict.WAIT and (patient or server.verdict not in sure):
        return Claim(Verdict.WAIT)
    shown_side = client if client.verdict in sure else server
    if shown_side.verdict not in sure:
        return Claim(Verdict.WAIT if server.verdict is Verdict.WAIT else Verdict.NO)

    is_typed = _is_typed(shown_side.first_message[4:])

    def layout(side: _SideEvidence, direction: Direction) -> str:
        generation = side.generation if side.verdict in sure else shown_side.generation
        return f"{'typed' if generation == 'flat' and is_typed else generation}_{direction}"

    return Claim(max(client.verdict, server.verdict), layout(client, "c2s"), layout(server, "s2c"))


_REQUEST, _ASK, _REPLY, _QUIET = 1, 2, 3, 4
"""Codes of sends: may get a reply, asks for a reply, is a reply, gets none."""


def _codes(rows: pa.Table) -> Int64Array:
    """Sends that are requests as they enter the daemon, and replies as it brings them to a connection."""
    client = is_in(rows["direction"], "c2s")
    read = ~true_mask(pc.is_valid(rows["flaw"]))
    send = read & is_in(rows["op"], "send")
    is_reply = true_mask(pc.is_valid(pc.coalesce(rows["f.reply"], rows["f.repl"])))
    code = np.zeros(rows.num_rows, np.int64)
    code[client & send & ~is_reply] = _REQUEST
    code[client & send & ~is_reply & true_mask(rows["f.want_answer"])] = _ASK
    code[~client & send & is_reply] = _REPLY
    code[client & read & is_in(rows["op"], "subscribe", "unsubscribe")] = _QUIET
    return code


def _named(rows: pa.Table, prints: Fingerprints) -> Int64Array:
    """Sender and number of a request, which a reply repeats as its receiver and ``reply`` (session.py:195-206)."""
    answers = pc.coalesce(rows["f.reply"], rows["f.repl"])
    is_reply = pc.is_valid(answers)
    name = pc.if_else(is_reply, rows["f.to"], rows["f.from"])
    number = pc.if_else(is_reply, answers, rows["f.seq"])
    has_both = true_mask(pc.is_valid(name)) & true_mask(pc.is_valid(number))
    return np.where(has_both, (prints(name) * 1_000_003 + prints(number)) | 1, 0)


_HABITS = ServerHabits(shortest_bytes=9, pause_ns=200_000_000, answers_all="likely")


def _request_group() -> RequestGroup:
    kinds = [
        RequestKind.NOT_A_REQUEST,
        RequestKind.OPTIONAL_REPLY,
        RequestKind.ONE_REPLY,
        RequestKind.NOT_A_REQUEST,
        RequestKind.ONE_WAY,
    ]
    rules = RequestTables(
        kind=[bytes(kinds)], accepted_replies=[[1] * 5], reply_bits=[0, 0, 0, 1, 0], first_only=[False] * 5,
        echoes_nothing=[False] * 5, next_state={}, silence=[State.UNKNOWN] * 5, echoes=True, by_name=True,
        one_reply=True, habits=_HABITS,
    )  # fmt: skip
    return RequestGroup(rules, _codes, _named, _to_all)


def _to_all(rows: pa.Table) -> NDArray[np.bool_]:
    """Whether a message goes to every subscriber, so that several may answer it."""
    return is_in(rows["f.to"], "*")


def keys(rows: pa.Table, prints: Fingerprints) -> tuple[Keys, Keys]:
    """A send comes out with its sender, number and message unchanged; numbers repeat where a client is restarted."""
    sender, number = rows["f.from"], rows["f.seq"]
    read = is_in(rows["op"], "send") & ~true_mask(pc.is_valid(rows["flaw"]))
    read &= true_mask(pc.is_valid(sender)) & true_mask(pc.is_valid(number))
    client = is_in(rows["direction"], "c2s")
    key = (prints(sender) * 1_000_003 + prints(number)) * 1_000_003 + prints(rows["f.msg"])
    published, delivered = np.flatnonzero(read & client), np.flatnonzero(read & ~client)
    return Keys(published, key[published]), Keys(delivered, key[delivered])


def sender_and_number(rows: pa.Table, *_: Int64Array) -> pa.Array:
    """``from:seq``."""
    return pc.binary_join_element_wise(rows["f.from"].cast(pa.string()), rows["f.seq"].cast(pa.string()), ":")


def _queue(asked: str, ask: RequestRule) -> CorrelationRule:
    habits = replace(_HABITS, once=asked == "getlname")
    return CorrelationRule(asks={asked: ask}, unasked=frozenset({"send"}), habits=habits)


def _routing(message: Message) -> Mapping[str, object]:
    """The routing of a message as Scapy has it: of a flat one its hash, else its header."""
    body = message.payload
    body = body.in_form() if isinstance(body, MsgQMessage) else body
    return body.parts()[0] if isinstance(body, MsgQForm) else {}


def answers(reply: Message, request: Message) -> bool:
    """Whether a message may answer another: the daemon's own replies by their word, a send by names and number."""
    reply_words, request_words = _routing(reply), _routing(request)
    if reply_words.get("type") == request_words.get("type") == "send":
        number = reply_words.get("reply", reply_words.get("repl"))
        named = request_words.get("from") is not None and request_words.get("seq") is not None
        return named and (reply_words.get("to"), number) == (request_words["from"], request_words["seq"])
    word = reply_words.get("type") or (
        "lname" if "lname" in reply_words else "stats" if "stats" in reply_words else None
    )
    op = request_words.get("type")
    return any(queue.fits(op, word) for queue in RULE.queues if isinstance(op, str) and isinstance(word, str))


RULE = CorrelationRule(
    asks={},
    columns=("from", "to", "seq", "reply", "repl", "want_answer", "msg"),
    request_group=_request_group,
    deliveries=DeliveryRule("from_seq", keys, sender_and_number),
    answers=answers,
    queues=(
        _queue("getlname", RequestRule("always", frozenset({"getlname", "lname"}))),
        _queue("stats", RequestRule("maybe", frozenset({"stats"}))),  # the document's answer; no daemon gives one
        _queue("ping", RequestRule("always", frozenset({"pong"}))),
    ),
)

MEANINGS = {
    "type": "kind of the message",
    "from": "name of the sender",
    "to": "name of the receiver, or *",
    "group": "group of receivers",
    "instance": "instance of the group, or *",
    "seq": "number of the message, counted by its sender",
    "repl": "number of the request that this answers, as only the document spells it",
    "reply": "number of the request that this answers",
    "lname": "name that the daemon gives a client",
    "subtype": "kind of subscription",
    "msg": "user payload, as JSON text",
    "document": "whole message, as JSON text",
}
"""The content of each column of the table."""

PROTOCOL = MessageQueue(
    name="msgq",
    title="BIND 10 msgq",
    ports=(9912,),
    dialects=("flat", "typed", "split", "json"),
    layouts=(
        *_layouts("flat", MsgQFlat),
        *_layouts("typed", MsgQFlat),
        *_layouts("split", MsgQSplit),
        *_layouts("json", MsgQJson),
    ),
    claims=claims,
    openings=_OPENINGS,
    searches_on_port=True,
    recognised="the magic Skan at byte 4 or 6 behind plausible lengths, or a JSON header with a type",
    meanings=MEANINGS,
    words={
        "type": "getlname|lname|send|subscribe|unsubscribe|stats|ping|pong|stop",
        "instance": r"\*",
        **dict.fromkeys(("seq", "repl", "reply"), "-?[0-9]{1,20}|[a-z]{1,3}"),  # Ruby counts in letters
        **dict.fromkeys(("subtype", "sybtype"), "normal|meonly|promisc"),
    },
    keys=frozenset({*ROUTING, *_WORDS}),
    details={"identity": "\"from\" || ':' || seq"},
    envelope=Envelope(
        destination="group",
        client_name="from",
        correlation_id=("reply", "repl", "seq"),
        derive=envelope,
        derives=("op", "body_len", "status"),
        reads=("type", "lname", "reply", "repl", "has_stats", "msg_len"),
    ),
    derived=(
        *(Derived(name, pa.string()) for name in ROUTING),
        Derived("msg", pa.string(), body=True),
        Derived("document", pa.string()),
        Derived("msg_len", pa.int64(), hidden=True),
        Derived("has_stats", pa.bool_(), hidden=True),
        Derived("want_answer", pa.bool_(), hidden=True),
    ),
    derive=derive,
    hidden=("tree", "header", "body"),
    rule=RULE,
    roles=Roles(
        traits=frozenset({"transient"}),
        publish=frozenset({"send"}),
        deliver=frozenset({"send"}),
        subscribe=frozenset({"subscribe"}),
        login=frozenset({"getlname"}),
        heartbeat=frozenset({"ping"}),
    ),
)
