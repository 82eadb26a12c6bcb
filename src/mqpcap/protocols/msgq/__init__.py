"""msgq, the command channel of BIND 10: flat, typed, split and json.

Source: doc/design/cc-protocol.txt of isc-projects/bind10 at c25fdf8de; the daemons and client libraries of
da2390e7e (flat), 83553f96f (typed), f28f0da30 (split), 3797c1639 (json). Port 9912, all integers big-endian; the
daemon of the first two takes at most 65536 bytes behind a length, the others have no limit, ours is 64 MiB.

The four number bytes of every message say how many follow. A stream never changes its layout; which one it is, the
first message shows. Flat and typed have the same bytes: a connection is typed if the first whole message of the
client (else of the daemon) holds an item of the types 5 to 8, as the libraries of that time write ``type`` as UTF8.
The C++ library of December 2009 wrote both numbers of a split message too short by two: its first message is a
malformed row and its stream is lost there, as it was for the daemon.

Choices. A split body is a message if it has the magic and decodes, else JSON, else bytes; a json body is JSON, else
bytes. A routing key whose item is NULL is null; a DATA item that holds a message is that message's object even where it
is four bytes long. BOOL bytes that are none of the four are ``{"hex": ...}``. An item of an unknown type makes the
message malformed. With --bodies, a ``msg`` that is cut is null inside ``document``.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import case_when, group_ids, is_in, sole_sources, true
from mqpcap.correlate.rows import Rows
from mqpcap.protocols.msgq import tree as typed
from mqpcap.schema.fields import U16, U32, Broken, Json, Kind, Length, Message, Nested, Tree
from mqpcap.schema.protocol import (
    ANY,
    Claim,
    Derived,
    Direction,
    Ends,
    Envelope,
    Layout,
    Matches,
    MessageQueue,
    Opening,
    Pairing,
    Raw,
    RequestRule,
    Rule,
    State,
    Verdict,
)

I64 = NDArray[np.int64]
MAX_MESSAGE_SIZE = 64 * 1024 * 1024
MAGIC = 0x536B616E  # "Skan"


class MsgQ(Message):
    """The length every message begins with; it does not count itself (cc.c:324-347, session.py:46-51)."""

    name = "msgq"
    fields_desc = [Length("length", at_most=MAX_MESSAGE_SIZE)]


class MsgQForm(Message):
    """What the forms share: the words of a message read by key, ``message.type``; None for one that is not there.

    ``words`` are the outer hash or the header, ``content`` is what ``msg`` or the body says; ``from_`` is ``from``.
    """

    @property
    def words(self) -> Mapping[str, object]:
        """The routing of the message; empty if it does not decode."""
        raise NotImplementedError

    @property
    def content(self) -> object:
        """The value of ``msg``, or the body; bytes where it is neither a message nor JSON, None where there is none."""
        return self.words.get("msg")

    def __getattr__(self, attr: str) -> Any:
        try:
            return super().__getattr__(attr)
        except AttributeError:
            if attr.removesuffix("_") not in _WORDS:
                raise
        content = self.content
        if attr == "msg":
            return content
        inner = content if isinstance(content, dict) else {}
        return self.words.get(attr.removesuffix("_"), inner.get(attr) if attr in _ANSWERS else None)


class MsgQFlat(MsgQForm):
    """The magic, then the pairs of the outer hash without a TyLen of their own (Message.py:39-40)."""

    name = "msgq flat"
    fields_desc = [U32("magic", equals=MAGIC, column=None), Tree("tree")]

    @property
    def words(self) -> Mapping[str, object]:
        """The outer hash."""
        return _object(typed.text(self.getfieldval("tree")))


class MsgQHeader(Message):
    """The header of a split message: a message of its own."""

    name = "msgq header"
    fields_desc = [U32("magic", equals=MAGIC, column=None), Tree("tree", with_types=True)]


class MsgQSplit(MsgQForm):
    """Header and body (msgq.py.in:258-270); the length of the body is what is left, none is no body."""

    name = "msgq split"
    fields_desc = [
        U16("header_len", at_least=4),
        Nested("header", MsgQHeader, length="header_len"),
        Tree("body", with_types=True, with_magic=True),
    ]

    @property
    def words(self) -> Mapping[str, object]:
        """The header."""
        return _object(typed.text(self.getfieldval("header").getfieldval("tree")))

    @property
    def content(self) -> object:
        """The body."""
        body: bytes = self.getfieldval("body")
        told = typed.text(body[len(typed.MAGIC) :]) if body.startswith(typed.MAGIC) else None
        return (body or None) if told is None else json.loads(told)


class MsgQJson(MsgQForm):
    """Header and body as JSON (message.py:26-38 at 3797c1639)."""

    name = "msgq json"
    fields_desc = [
        U16("header_len", at_least=2),
        Json("header", length="header_len", at_least=2),
        Json("body"),
    ]

    @property
    def words(self) -> Mapping[str, object]:
        """The header."""
        return _object((self.getfieldval("header") or b"").decode("utf-8", "replace"))

    @property
    def content(self) -> object:
        """The body."""
        body: bytes = self.getfieldval("body")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return body or None


def _object(text: str | None) -> Mapping[str, object]:
    """The object that a JSON text is, empty for any other."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class Word(Kind):
    """A word of a message: a value under its name; the form says how it is written."""

    def takes(self, pkt: Message, value: object) -> bytes:
        """Nothing by itself."""
        return b""

    def randval(self) -> None:
        """None: a word is what its sender says."""
        return None


FORMS: Mapping[str, type[MsgQForm]] = {"flat": MsgQFlat, "split": MsgQSplit, "json": MsgQJson}
_FORM = Word("form", "flat")


class MsgQMessage(Message):
    """A message of the document by its words, in one of the forms ``flat``, ``typed``, ``split`` and ``json``.

    ``MsgQ() / MsgQSend(from_="a", to="*", group="g", instance="*", seq=1, msg={"a": 1}, form="json")``. Words that are
    None are left out. ``msg`` of a flat message, given as a dict, is a message of its own, as the libraries wrote it.
    Read from the wire it is one of the forms, whose words have the same names.
    """

    name = "msgq message"
    fields_desc: list[Kind] = [_FORM, Word("type")]
    in_body: ClassVar[tuple[str, ...]] = ()
    """Words that stand in the body where there is one ..."""
    in_body_of: ClassVar[str] = ""
    """... and the type of the header in front of it."""

    def in_form(self) -> MsgQForm:
        """The same message as its form has it. Raises ValueError for a form that there is not."""
        form = self.getfieldval("form")
        said = {f.name.removesuffix("_"): self.getfieldval(f.name) for f in self.fields_desc if f is not _FORM}
        words = {name: value for name, value in said.items() if value is not None}
        if form in ("flat", "typed"):
            if isinstance(words.get("msg"), dict):
                words["msg"] = typed.message(words["msg"], form == "typed")
            return MsgQFlat(tree=typed.encode(words, form == "typed"))
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

    def _read(self, s: bytes) -> bytes:
        for form, cls in FORMS.items():
            with suppress(Broken):
                read, left = cls.begin(s)
                asked = self.default_fields["type"]
                if left or asked not in (None, read.type):
                    continue
                self.fields = {f.name: getattr(read, f.name) for f in self.fields_desc if f is not _FORM}
                self.fields["form"] = "typed" if typed.has_typed_items(s) and form == "flat" else form
                self.raw_packet_cache, self.raw_packet_cache_fields = s, deepcopy(self.fields)
                self.explicit = 1
                return b""
        raise Broken


class MsgQGetlname(MsgQMessage):
    """The first message of a client: it asks for its name."""

    name = "msgq getlname"
    fields_desc = [_FORM, Word("type", "getlname")]


class MsgQLname(MsgQMessage):
    """The daemon's answer; the document has the name alone, the C daemon wrote the type behind it (msgq.c:568-577)."""

    name = "msgq lname"
    in_body, in_body_of = ("lname",), "getlname"
    fields_desc = [_FORM, Word("lname"), Word("type")]


class MsgQSend(MsgQMessage):
    """A message to a group or a client; ``reply`` (in the document ``repl``) is the number of the one it answers."""

    name = "msgq send"
    fields_desc = [
        _FORM,
        Word("type", "send"),
        Word("from_"),
        Word("to"),
        Word("group"),
        Word("instance"),
        Word("seq"),
        Word("repl"),
        Word("reply"),
        Word("want_answer"),
        Word("msg"),
    ]


class MsgQSubscribe(MsgQMessage):
    """To be sent what goes to a group; libraries before A1 say a ``subtype``."""

    name = "msgq subscribe"
    fields_desc = [_FORM, Word("type", "subscribe"), Word("group"), Word("instance"), Word("subtype")]


class MsgQUnsubscribe(MsgQMessage):
    """To be sent it no more."""

    name = "msgq unsubscribe"
    fields_desc = [_FORM, Word("type", "unsubscribe"), Word("group"), Word("instance")]


class MsgQStats(MsgQMessage):
    """Asks for the daemon's statistics; no daemon answers."""

    name = "msgq stats"
    fields_desc = [_FORM, Word("type", "stats")]


class MsgQStatsReply(MsgQMessage):
    """The document's answer to it."""

    name = "msgq stats reply"
    in_body, in_body_of = ("stats",), "stats"
    fields_desc = [_FORM, Word("stats"), Word("type")]


class MsgQPing(MsgQMessage):
    """To the later Python daemon, which answers with a pong (2011 on, json)."""

    name = "msgq ping"
    fields_desc = [_FORM, Word("type", "ping"), Word("msg")]


class MsgQPong(MsgQMessage):
    """The answer to a ping, with the ping's body."""

    name = "msgq pong"
    fields_desc = [_FORM, Word("type", "pong"), Word("msg")]


class MsgQStop(MsgQMessage):
    """Ends the later Python daemon (2012 on, json)."""

    name = "msgq stop"
    fields_desc = [_FORM, Word("type", "stop")]


def _layouts(name: str, message: type[Message]) -> tuple[Layout, ...]:
    return tuple(
        Layout(f"{name}_{d}", d, {ANY: (message,)}, header=MsgQ, dialect=name, on_bad="search") for d in _DIRECTIONS
    )


_DIRECTIONS: tuple[Direction, Direction] = ("c2s", "s2c")
_ANSWERS = ("lname", "stats")
_ROUTING = ("type", "from", "to", "group", "instance", "seq", "repl", "reply", "lname", "subtype")
_WORDS = frozenset({*_ROUTING, "msg", "stats", "want_answer", "sybtype"})


def _text_array(texts: tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.bool_]]) -> pa.Array:
    """A string column; the texts are UTF-8 by construction."""
    offsets, data, there = texts
    valid = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(there), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def derive(raw: Raw) -> Mapping[str, pa.Array]:
    """The columns, from the pairs, JSON headers and bodies of the rows; a row that does not decode gets its flaw."""
    found = typed.documents(
        raw.buffer, raw.spans("tree"), raw.spans("header"), raw.spans("body"), raw.flaw, raw.keep_bodies
    )
    columns = {name: _text_array(found.field(name)) for name in (*_ROUTING, "msg")}
    columns["document"] = _text_array(found.documents())
    wire = found.msg_wire[: raw.n]
    columns["msg_len"] = pa.array(wire, mask=wire < 0)
    columns["has_stats"] = pa.array(found.field("stats")[2])
    columns["want_answer"] = _wanted(raw, columns["document"])
    return columns


def _wanted(raw: Raw, document: pa.Array) -> pa.Array:
    """True where a JSON header asks the daemon to answer if nobody else can (message.py, ``want_answer``)."""
    rows = np.flatnonzero(np.isin(raw.layout, [i for i, name in enumerate(raw.layout_names) if name == "json_c2s"]))
    out = np.zeros(raw.n, np.bool_)
    if len(rows):
        # A quote inside a text is written \\", so this can only be the key; behind the first } it may be the body's.
        said = pc.match_substring_regex(document.take(pa.array(rows)), r'^\{"header":\{[^}]*"want_answer":true[,}]')
        out[rows] = pc.fill_null(said, False).to_numpy(zero_copy_only=False)
    return pa.array(out, mask=~out)


def envelope(table: pa.Table) -> Mapping[str, pa.Array]:
    """op is the value of ``type``, else the word that a reply without one is known by; replies are ``ok``."""
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
        "status": case_when({"ok": true(is_reply) & is_in(table["direction"], "s2c")}),
    }


@dataclass(frozen=True, slots=True)
class _Side:
    """What one direction shows: a verdict, the generation and its first whole message with the length in front."""

    verdict: Verdict
    generation: str = ""
    first: bytes = b""


def _generation(data: bytes) -> str | None:
    """What section 2 of the protocol notes says of a message's first bytes; None for not msgq, "" for too few."""
    length, header_len = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:6], "big")
    if len(data) >= 4 and length > MAX_MESSAGE_SIZE:
        return None
    if len(data) < 10:
        # Ten bytes tell all generations apart; the smallest message of the first has eight.
        return "flat" if data[4:8] == typed.MAGIC and length == 4 else ""
    if data[4:8] == typed.MAGIC:
        return "flat" if length >= 4 else None
    if data[6:10] == typed.MAGIC:
        # The C++ library of December 2009 wrote header_len == length (session.cc:71-90 at 6383f1fda).
        return "split" if 4 <= header_len <= length - 2 or header_len == length else None
    return "json" if data[6:7] == b"{" and 2 <= header_len <= length - 2 else None


def _side(opening: Opening, direction: Direction) -> _Side:
    """What a direction shows, from its first byte or, where that was not captured, from two messages in a row."""
    data, start, ended = (
        (opening.c2s, opening.c2s_start, opening.c2s_ended)
        if direction == "c2s"
        else (opening.s2c, opening.s2c_start, opening.s2c_ended)
    )
    at: int | None = 0
    if not start:
        at = min(
            (x for g in _GENERATIONS if (x := opening.find_run(direction, f"{g}_{direction}", 2)) is not None),
            default=None,
        )
    generation = "" if at is None else _generation(data[at:])
    if generation is None:
        return _Side(Verdict.NO)
    if at is None or not generation:
        return _Side(Verdict.NO if ended else Verdict.WAIT)
    data = data[at:]
    end = 4 + int.from_bytes(data[:4], "big")
    header_end = 6 + int.from_bytes(data[4:6], "big")
    if len(data) < (header_end if generation == "json" else end) and not ended:
        return _Side(Verdict.WAIT)
    first = data[:end] if len(data) >= end else b""
    if generation == "json" and not (data[header_end - 1 : header_end] == b"}" and b'"type"' in data[:header_end]):
        return _Side(Verdict.LIKELY if opening.on_port else Verdict.NO, generation, first)
    return _Side(Verdict.YES, generation, first)


def _speaker(side: _Side) -> Direction | None:
    """Who says a message, where it can only be one of the two."""
    if not side.first:
        return None
    n = len(side.first)
    head = 6 + int.from_bytes(side.first[4:6], "big")
    none = _place(0, -1)
    parts = {
        "flat": (_place(8, n), none, none),
        "split": (_place(10, head), none, _place(head, n)),
        "json": (none, _place(6, head), _place(head, n)),
    }[side.generation]
    if side.generation != "flat" and head > n:
        return "c2s"  # the library with the wrong lengths was a client
    found = typed.documents(np.array(bytearray(side.first), np.uint8), *parts, np.zeros(1, np.uint8))
    op, lname = (_text_array(found.field(name))[0].as_py() for name in ("type", "lname"))
    if lname is not None or op == "pong":
        return "s2c"
    return "c2s" if op in _FROM_CLIENT else None


def _place(start: int, end: int) -> typed.Places:
    return np.full(1, start, np.int64), np.full(1, end - start, np.int64)


_GENERATIONS = ("flat", "split", "json")
_FROM_CLIENT = frozenset({"getlname", "subscribe", "unsubscribe", "stats", "ping", "stop"})


def claims(opening: Opening) -> Claim:
    """The magic at its place with plausible lengths, or a JSON header with a type (section 2 of the protocol notes)."""
    client, server = _side(opening, "c2s"), _side(opening, "s2c")
    sure = (Verdict.LIKELY, Verdict.YES)
    oriented = opening.c2s_start or opening.s2c_start
    if not oriented and (_speaker(client) == "s2c" or _speaker(server) == "c2s"):
        return Claim(Verdict.NO)
    if opening.c2s_start and client.verdict is Verdict.NO and opening.c2s and not opening.on_port:
        return Claim(Verdict.NO)
    # Where nothing says who is client, both readings must be ready at the same time: then the port decides.
    patient = oriented and len(opening.c2s) > 0
    if client.verdict is Verdict.WAIT and (patient or server.verdict not in sure):
        return Claim(Verdict.WAIT)
    told = client if client.verdict in sure else server
    if told.verdict not in sure:
        return Claim(Verdict.WAIT if server.verdict is Verdict.WAIT else Verdict.NO)

    def layout(side: _Side, direction: Direction) -> str:
        generation = side.generation if side.verdict in sure else told.generation
        is_typed = generation == "flat" and typed.has_typed_items(told.first[4:])
        return f"{'typed' if is_typed else generation}_{direction}"

    verdict = max(client.verdict, server.verdict)
    return Claim(
        verdict, layout(client, "c2s"), layout(server, "s2c"), f"a {told.generation} message begins the stream"
    )


def machine(rows: Rows, ends: Mapping[int, Ends]) -> Pairing:
    """The sends that are requests, each with the first reply that the daemon brought to the same connection.

    A reply names the request's sender and number (session.py:195-206). Where the number was used again before the
    reply, or bytes are missing in which the first of several replies may lie, it stays unknown.
    """
    asked, key, replies, reply_key = _asked_and_replied(rows)
    order = np.argsort(reply_key, kind="stable")
    at = np.searchsorted(reply_key[order], key)
    named = (key >= 0) & (at < len(order))
    named[named] = reply_key[order][at[named]] == key[named]
    reply = np.full(len(asked), -1, np.int64)
    reply[named] = replies[order][at[named]]
    first, following = _uses(asked, key)
    ts = rows["ts_ns"].to_numpy()
    reply[~first | (reply > following) | (ts[reply] < ts[asked])] = -1
    reply[_may_be_second(rows, ends, asked, reply)] = -1
    ended = np.array([c for c, e in ends.items() if e.complete], np.int64)
    alone = ~named & (key >= 0) & np.isin(rows["connection_id"].to_numpy()[asked], ended)
    state = np.full(len(asked), State.UNKNOWN, np.int8)
    state[alone & pc.fill_null(rows["f.want_answer"], False).to_numpy(zero_copy_only=False)[asked]] = State.UNANSWERED
    state[reply >= 0] = State.ANSWERED
    quiet = np.flatnonzero(_chosen(rows, "c2s", "subscribe", "unsubscribe"))
    return Pairing(
        np.concatenate([asked, quiet]), np.concatenate([reply, np.full(len(quiet), -1)]),
        np.concatenate([state, np.full(len(quiet), State.NOT_EXPECTED, np.int8)]),
    )  # fmt: skip


def _may_be_second(rows: Rows, ends: Mapping[int, Ends], asked: I64, reply: I64) -> NDArray[np.bool_]:
    """Whether an earlier reply to a request to all may lie in a hole."""
    doubt = np.zeros(len(asked), np.bool_)
    connection, offset = rows["connection_id"].to_numpy(), rows["stream_offset"].to_numpy()
    from_daemon = pc.equal(rows["direction"], "s2c").to_numpy(zero_copy_only=False)
    to = rows["f.to"]
    for one in [c for c, e in ends.items() if e.holes[1]]:
        brought = np.flatnonzero((connection == one) & from_daemon)
        holes = np.array(ends[one].holes[1])
        for k in np.flatnonzero((connection[asked] == one) & (reply >= 0)).tolist():
            before = brought[brought < asked[k]]
            since = offset[before].max(initial=-1)
            doubt[k] = to[int(asked[k])].as_py() == "*" and bool(((holes > since) & (holes < offset[reply[k]])).any())
    return doubt


def _chosen(rows: Rows, direction: Direction, *ops: str) -> NDArray[np.bool_]:
    """The rows of some operations in one direction that could be read."""
    chosen = pc.and_(pc.equal(rows["direction"], direction), pc.is_in(rows["op"], pa.array(ops)))
    chosen = pc.fill_null(pc.and_(chosen, pc.is_null(rows["flaw"])), False)
    read: NDArray[np.bool_] = chosen.to_numpy(zero_copy_only=False)
    return read


def _asked_and_replied(rows: Rows) -> tuple[I64, I64, I64, I64]:
    """Rows of requests and of replies, each with a number equal for those that name each other; -1 without a name."""
    answers = pc.coalesce(rows["f.reply"], rows["f.repl"])
    is_reply = pc.is_valid(answers).to_numpy(zero_copy_only=False)
    asked = np.flatnonzero(_chosen(rows, "c2s", "send") & ~is_reply)
    replies = np.flatnonzero(_chosen(rows, "s2c", "send") & is_reply)
    both = pa.array(np.concatenate([asked, replies]))
    split = np.arange(len(both)) < len(asked)

    def side(own: str | pa.Array, other: str | pa.Array) -> pa.Array:
        one, two = (rows[x] if isinstance(x, str) else x for x in (own, other))
        return pc.if_else(pa.array(split), one.take(both), two.take(both))

    names = [side("connection_id", "connection_id"), side("f.from", "f.to"), side("f.seq", answers)]
    key = group_ids(names, len(both))
    key[pc.or_(pc.is_null(names[1]), pc.is_null(names[2])).to_numpy(zero_copy_only=False)] = -1
    return asked, key[split], replies, key[~split]


def _uses(asked: I64, key: I64) -> tuple[NDArray[np.bool_], I64]:
    """Of requests in order of time: whether each is the first of its key, and the row of the next with that key."""
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    first, following = np.ones(len(key), np.bool_), np.full(len(key), np.iinfo(np.int64).max, np.int64)
    first[order[1:][same]] = False
    following[order[:-1][same]] = asked[order[1:][same]]
    return first, following


def deliveries(rows: Rows, ends: Mapping[int, Ends], pairs: Pairing) -> Matches:
    """A send comes out with its sender, number and message unchanged; numbers repeat where a client is restarted."""
    ids, place = np.unique(rows["connection_id"].to_numpy(), return_inverse=True)
    server = pa.array([ends[c].server for c in ids.tolist()], pa.string()).take(pa.array(place.reshape(-1)))
    sender, number = rows["f.from"], rows["f.seq"]
    key = group_ids([server, sender, number, rows["body_print"]], rows.num_rows)
    named = pc.and_(pc.is_valid(sender), pc.is_valid(number)).to_numpy(zero_copy_only=False)
    source, sink = (np.flatnonzero(_chosen(rows, d, "send") & named) for d in _DIRECTIONS)
    one, two, doubtful = sole_sources(key, source, sink, rows["ts_ns"].to_numpy())
    at = pa.array(one)
    text = pc.binary_join_element_wise(sender.take(at), number.take(at), ":")
    return Matches(one, two, ["from_seq"] * len(one), text.to_pylist(), doubtful)


def _queue(asked: str, ask: RequestRule) -> Rule:
    return Rule(asks={asked: ask}, unasked=frozenset({"send"}))


def _words(message: Message) -> Mapping[str, object]:
    """The routing of a message as Scapy has it: of a flat one its hash, else its header."""
    body = message.payload
    body = body.in_form() if isinstance(body, MsgQMessage) else body
    return body.words if isinstance(body, MsgQForm) else {}


def answers(reply: Message, request: Message) -> bool:
    """Whether a message may answer another: the daemon's own replies by their word, a send by names and number."""
    said, asked = _words(reply), _words(request)
    if said.get("type") == asked.get("type") == "send":
        number = said.get("reply", said.get("repl"))
        named = asked.get("from") is not None and asked.get("seq") is not None
        return named and (said.get("to"), number) == (asked["from"], asked["seq"])
    word = said.get("type") or ("lname" if "lname" in said else "stats" if "stats" in said else None)
    op = asked.get("type")
    return any(queue.fits(op, word) for queue in RULE.queues if isinstance(op, str) and isinstance(word, str))


RULE = Rule(
    asks={},
    columns=("from", "to", "seq", "reply", "repl", "want_answer"),
    body="msg",
    machine=machine,
    deliveries=deliveries,
    answers=answers,
    queues=(
        _queue("getlname", RequestRule("always", frozenset({"getlname", "lname"}))),
        _queue("stats", RequestRule("maybe", frozenset({"stats"}))),  # the document's answer; no daemon gives one
        _queue("ping", RequestRule("always", frozenset({"pong"}))),
    ),
)

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
    recognised="the magic Skan at byte 4 or 6 behind plausible lengths, or a JSON header with a type",
    envelope=Envelope(
        destination="group",
        client_name="from",
        correlation_id=("reply", "repl", "seq"),
        derive=envelope,
    ),
    derived=(
        *(Derived(name, pa.string()) for name in _ROUTING),
        Derived("msg", pa.string(), body=True),
        Derived("document", pa.string()),
        Derived("msg_len", pa.int64(), hidden=True),
        Derived("has_stats", pa.bool_(), hidden=True),
        Derived("want_answer", pa.bool_(), hidden=True),
    ),
    derive=derive,
    hidden=("tree", "header", "body"),
    rule=RULE,
)
