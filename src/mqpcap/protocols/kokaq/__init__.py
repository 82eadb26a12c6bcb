"""kokaq: the document's layout (``doc``), the first Go codec's (``go1``), the second's (``lean``).

Source: docs/tcp-wireprotocol.md of kokaq/protocol at 95fc78e; pkg/tcp at 5c046dd (go1); tcp/ at dd5fc43 (lean).
Ports 9944 and 4242. Big-endian, but for go1, which is little-endian; the magic 0x0420 says which.
At most 4096 metadata entries in 1 MiB, 64 KiB of payload (lean: 16 MiB).

No frame says how long it is. One rule (``RULE_OF_ENDS``) finds the end and names the layout that reads the frame: the
first variant that ends at a header or at the end of the stream.

The document contradicts itself and the codec. Evidence from the big-endian frames of a connection decides what the
opcodes 5, 7 and 8 mean, and every client and status; ``derive`` names the numbers by it. Only the order of the bits in
byte 3 has layouts of its own, as its Scapy classes differ. ``ambiguities`` names what rests on an open choice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import case_when, factorize, true_mask, with_list_values
from mqpcap.protocols.kokaq import splitter
from mqpcap.protocols.kokaq.splitter import (
    END_CONDITIONS,
    END_RULES,
    FORMS,
    HEADER_BYTES,
    MAX_LEAN_PAYLOAD_BYTES,
    MAX_METADATA_BYTES,
    MAX_METADATA_ENTRIES,
    METADATA,
    OTHER,
    PAYLOAD,
    TRAILER_BYTES,
    VERSION,
    SplitFrames,
    legal,
)
from mqpcap.schema.fields import U8, U16, U16LE, U32, U32LE, Array, Bits, Bytes, GreedyBytes, If, Kind, Nested, Number
from mqpcap.schema.message import Message, message_class, read_direction
from mqpcap.schema.protocol import (
    ANY,
    DIRECTIONS,
    Claim,
    ConnectionFacts,
    Derived,
    Direction,
    Envelope,
    Evidence,
    EvidenceRule,
    FirstBytes,
    Layout,
    MessageQueue,
    Observation,
    Opening,
    Raw,
    Verdict,
)
from mqpcap.schema.requests import ANY_OPERATION, CorrelationRule, RequestRule, Roles, ServerHabits

MAGIC = 0x0420
BIG, LITTLE = b"\x04\x20", b"\x20\x04"

# Names. The document's words, then the codec's (const.go).
DOC_OPS = {0: "Nop", 1: "Create", 2: "Delete", 3: "Get", 4: "Peek", 5: "Pop", 7: "Push", 8: "AcquirePeekLock"}
CODEC_OPS = {
    0: "NoOp", 1: "Create", 2: "Delete", 3: "Get", 4: "Peek", 5: "Pop", 6: "Push", 7: "AcquirePeekLock",
    8: "ReleasePeekLock",
}  # fmt: skip
CLIENTS = ("ProxyHttp", "ProxyAmqp", "QueueService", "StorageService", "HealthService")
DOC_NAMED, CODEC_NAMED = ({(d, i): name for d in DIRECTIONS for i, name in x.items()} for x in (DOC_OPS, CODEC_OPS))
DOC_CLIENTS = dict(enumerate(CLIENTS))
CODEC_CLIENTS = dict(enumerate(CLIENTS, 1))
STATUSES = ("Success", "Fail", "PartialSucess", "Unknown")
DOC_STATUSES = dict(enumerate(STATUSES))
CODEC_STATUSES = dict(enumerate(STATUSES, 1))
CODEC_REASONS = {1: "Ok", 2: "Bad", 3: "Exists", 4: "NotAllowed", 5: "Infra"}
# The document gives 3 to three reasons; 4 and 5 are in conflict with nothing.
DOC_REASONS = CODEC_REASONS | {3: "Exists, NotAllowed or Infra"}
DOC_METADATA = {
    1: "TimeToLive", 2: "Version", 3: "Creation Time", 4: "Expiration Time", 5: "UUID", 6: "Source Info",
    7: "Last Modification time", 8: "Originator RequestID", 9: "Correlation ID", 10: "Request Handling Time",
}  # fmt: skip
CODEC_METADATA = {
    1: "TTL", 2: "Version", 3: "CreationTime", 4: "ExpTime", 5: "UUID", 6: "LastModificationTime",
    7: "OriginatorRequestId", 8: "CorrelationId", 9: "RequestTime",
}  # fmt: skip


def _either(document: Mapping[int, str], codec: Mapping[int, str]) -> dict[int, str]:
    """The names of numbers by the document or the codec, for Scapy: which holds only a connection shows."""
    both = {i: list(dict.fromkeys(x[i] for x in (document, codec) if i in x)) for i in sorted({*document, *codec})}
    return {i: " or ".join(names) if i in document else f"{names[0]} (codec)" for i, names in both.items()}


_TYPES = {1: "Operational", 2: "Admin", 3: "Control"}
_RQS = {1: "Response", 2: "TwoWay", 3: "OneWay"}
_TAGS = {METADATA: "Metadata", PAYLOAD: "Payload"}

# -- the messages ----------------------------------------------------------------------------------------

_BEGINS = [U16("magic", equals=MAGIC, column=None), U8("version", VERSION)]
_BEGINS_LE = [U16LE("magic", equals=MAGIC, column=None), U8("version", VERSION)]
# The document's rulers count bits from the left, as the codec does (wire.go:80) ...
_TYPE = [
    U8("type_rq", 0x06, column=None),
    Bits("message_type", of="type_rq", shift=2, mask=0x3F, names=_TYPES),
    Bits("rq", of="type_rq", mask=0x03, words=_RQS),
]
# ... and its table "bit 0-5" can be read from the right.
_TYPE_LSB = [
    U8("type_rq", 0x81, column=None),
    Bits("message_type", of="type_rq", mask=0x3F, names=_TYPES),
    Bits("rq", of="type_rq", shift=6, mask=0x03, words=_RQS),
]
_OPCODE = U8("opcode", words=_either(DOC_OPS, CODEC_OPS))
_CLIENT = U8("client", words=_either(DOC_CLIENTS, CODEC_CLIENTS))
_REQUEST = [_OPCODE, _CLIENT]
_ANSWER = [
    _OPCODE,
    U8("status_reason", column=None),
    Bits("status", of="status_reason", shift=4, mask=0x0F, words=_either(DOC_STATUSES, CODEC_STATUSES)),
    Bits("reason", of="status_reason", mask=0x0F, words=DOC_REASONS | {3: "Exists or NotAllowed or Infra"}),
]
_TAGGED = [U8("op_opaque"), U8("tag", names=_TAGS)]
# "Simple Request" draws one opaque of 16 bits and no tag.
_WIDE = [U16("op_opaque")]
_WIDE_LE = [U16LE("op_opaque")]


class Kokaq(Message):
    """What every kokaq frame begins with. Made from bytes it becomes the class that reads them; built it is a request.

    Bytes alone are an answer if RQ (big-endian) or a status and reason in byte 9 say so, else a request.
    """

    name = "Kokaq"
    fields_desc = [*_BEGINS, *_TYPE, U32("opaque"), *_REQUEST, *_TAGGED]

    def is_cut(self, may_wait: bool) -> bool:
        """The first codec ends every component with its tail; 12 bytes with four zeros may begin a lean frame."""
        is_little, body = self.fields_desc[0] is _BEGINS_LE[0], self.payload
        if not is_little and isinstance(body, KokaqSimple):
            return may_wait and not any((self.raw_packet_cache or b"\1")[8:])
        if not is_little or not isinstance(body, Message) or isinstance(body, KokaqSimple):
            return False
        return len(body.fields.get("trailer") or b"") < TRAILER_BYTES

    def column(self, name: str) -> Any:
        """As the tables have it; for a summary the names of namespace and queue, and both opaques, too."""
        if name == "correlation_id":
            return f"{super().column('opaque')}:{super().column('op_opaque')}"
        if name != "destination":
            return super().column(name)
        little = self.fields_desc[0] is _BEGINS_LE[0]
        parts = [super(Kokaq, self).column(x) for x in ("namespace", "queue")]
        texts = [readable(x, little) if isinstance(x, bytes) else str(x) for x in parts if x is not None]
        return "/".join(texts) or None

    @classmethod
    def dispatch_hook(cls, _pkt: bytes = b"", *args: Any, **fields: Any) -> type[Message]:
        """The header class of the bytes."""
        if len(_pkt) < HEADER_BYTES:
            return _HEADERS[0]
        answers = _pkt[3] & 0x03 == 1 if _pkt[:2] == MAGIC.to_bytes(2, "big") else _pkt[9] >= 0x11
        direction_read = read_direction()
        direction: Direction = "s2c" if direction_read == "s2c" or (direction_read is None and answers) else "c2s"
        form = split_frames(_pkt, len(_pkt), True).one(0)[3]
        header = PROTOCOL.layout(SPLITS[direction][form]).header if form >= 0 else None
        return _HEADERS[0] if header is None else header

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        """The frame's own bytes and what follows it. No field says how long a frame is: the splitter finds its end."""
        if read_direction() is not None or not self.fields or not self.layouts:
            return s, None
        data = self.raw_packet_cache + s
        end = split_frames(data, len(data), True).one(0)[1] - len(self.raw_packet_cache)
        return (s[:end], s[end:] or None) if end >= 0 else (s, None)


class _Begin(NamedTuple):
    """Fields before the operation; byte 3 of requests and of answers; other names of numbers."""

    fields: tuple[Kind, ...]
    byte_3: tuple[int, int] = (0x06, 0x05)
    named: Mapping[str, Mapping[int, str]] = {}


# const.go:20-22: two-way is 1, as response is. Frames of the codecs have the codec's numbers, also in Scapy.
_CODEC_WORDS = {
    "opcode": CODEC_OPS, "client": CODEC_CLIENTS, "status": CODEC_STATUSES, "reason": CODEC_REASONS,
    "rq": {1: "Response or TwoWay", 3: "OneWay"},
}  # fmt: skip
_MSB = _Begin((*_BEGINS, *_TYPE, U32("opaque")))
_LSB = _Begin((*_BEGINS, *_TYPE_LSB, U32("opaque")), (0x81, 0x41))
_LITTLE = _Begin((*_BEGINS_LE, *_TYPE, U32LE("opaque")), (0x05, 0x05), _CODEC_WORDS)
_SIZED = _Begin((*_BEGINS, *_TYPE, U32("size"), U32("opaque")))


def _headers(name: str, title: str, about: str, begin: _Begin, ends: Sequence[Kind] = _TAGGED) -> list[type[Message]]:
    """The headers of requests and of answers in one form."""
    return [
        message_class(
            __name__, f"Kokaq{name.format(side.title())}", f"Kokaq {title.format(side)}",
            f"What {side}s begin with: {about}.", *begin.fields, *operation, *ends,
            like=Kokaq, type_rq=byte_3, named=begin.named,
        )
        for side, operation, byte_3 in zip(("request", "answer"), (_REQUEST, _ANSWER), begin.byte_3, strict=True)
    ]  # fmt: skip


_HEADERS = _headers("{}", "{}", "12 bytes, as pictures and codecs have them", _MSB)
_HEADERS_LSB = _headers("{}Lsb", "{}, lsb", "the bits of byte 3 are counted from the right", _LSB)
_HEADERS_16 = _headers("{}16", "{}, 16-bit opaque", 'one opaque, as "Simple Request" draws it', _MSB, _WIDE)
_HEADERS_16_LSB = _headers("{}16Lsb", "{}, 16-bit opaque, lsb", "the same, bits counted from the right", _LSB, _WIDE)
_HEADERS_LE = _headers("LE{}", "go1 {}", "the first codec's 12 bytes, little-endian", _LITTLE)
_HEADERS_LE_16 = _headers("LE{}16", "go1 {}, 16-bit opaque", "the same with one opaque", _LITTLE, _WIDE_LE)
_HEADERS_SIZED = _headers("Sized{}", "sized {}", "with a size, as the older draft has it; never seen sent", _SIZED)


def _component(name: str, title: str, about: str, tag: int, *fields: Kind, magic: type[Number] = U16) -> type[Message]:
    """A component: it repeats tag and magic of the header."""
    begins = U8("component_tag", equals=tag, column=None), magic("component_magic", equals=MAGIC, column=None)
    fields = (*begins, U8("component_opaque"), *fields)
    return message_class(__name__, f"Kokaq{name}", f"Kokaq {title}", about, *fields, binding_values={"tag": tag})


_NAME_LENGTHS = (U8("namespace_len"), U8("queue_len"))
_BODY = Bytes("body", length="payload_len", body=True)
_NAMES = (
    Bytes("namespace", length="namespace_len", column="namespace_raw"),
    Bytes("queue", length="queue_len", column="queue_raw"),
)
# Zeros taken as padding or tail; the splitter has looked at them.
_TRAILER = If(GreedyBytes("trailer"), left=1)
_TRAILER_LE = If(GreedyBytes("trailer", bytes(TRAILER_BYTES)), left=1)  # request.go:130,158: the codec always writes it
_PAYLOAD = (*_NAME_LENGTHS, U16("payload_len"), *_NAMES, _BODY, _TRAILER)

KokaqSimple = message_class(__name__, "KokaqSimple", "Kokaq simple", "No component.")
KokaqPayload = _component(
    "Payload", "payload", "A namespace, a queue and data; lengths count bytes.", PAYLOAD, *_PAYLOAD
)
# Under the other tag, as the captions of the document's component pictures have it.
KokaqPayloadSwapped = _component("PayloadSwapped", "payload, tag 1", "A payload under tag 1.", METADATA, *_PAYLOAD)
KokaqLEPayload = _component(
    "LEPayload", "go1 payload", "A name is a 32-bit number wherever its length is not 0 (request.go:139-146).", PAYLOAD,
    U8("namespace_len", 4), U8("queue_len", 4), U16LE("payload_len"),
    If(U32LE("namespace", column="namespace_id"), when="namespace_len"),
    If(U32LE("queue", column="queue_id"), when="queue_len"), _BODY, _TRAILER_LE, magic=U16LE,
)  # fmt: skip
KokaqLEPlainPayload = _component(
    "LEPlainPayload", "little-endian payload", "Without the codec's tail, so not its writing: lengths count bytes.",
    PAYLOAD, *_NAME_LENGTHS, U16LE("payload_len"), *_NAMES, _BODY, magic=U16LE,
)  # fmt: skip

_ENTRY_TAG = U8("tag", words=_either(DOC_METADATA, CODEC_METADATA))
_ENTRY_FIELDS = (_ENTRY_TAG, U8("size"), Bytes("value", length="size"))
KokaqEntry = message_class(__name__, "KokaqEntry", "Kokaq metadata entry", "One metadata field.", *_ENTRY_FIELDS)
_ENTRIES = Array("metadata", KokaqEntry, count="field_count", column="entries")
_COUNTED = (U32("field_count", at_most=MAX_METADATA_ENTRIES), _ENTRIES, _TRAILER)
KokaqMetadata = _component("Metadata", "metadata", "So many metadata entries.", METADATA, *_COUNTED)
KokaqMetadataSwapped = _component("MetadataSwapped", "metadata, tag 2", "Metadata under tag 2.", PAYLOAD, *_COUNTED)
_FILLING = Array("metadata", KokaqEntry, column="entries")
KokaqEntries = message_class(__name__, "KokaqEntries", "Kokaq metadata entries", "They fill their block.", _FILLING)
KokaqMetadataBytes = _component(
    "MetadataBytes", "metadata, length in bytes", '"fieldcount len" is the length of the block in bytes.', METADATA,
    U32("field_count", column=None), Nested("block", KokaqEntries, length="field_count", at_most=MAX_METADATA_BYTES),
)  # fmt: skip
KokaqLEMetadata = _component(
    "LEMetadata", "go1 metadata", "A value may be longer than its size says and run on into the tail.", METADATA,
    U32LE("field_count", at_most=MAX_METADATA_ENTRIES), _ENTRIES, _TRAILER_LE, magic=U16LE,
)  # fmt: skip


class KokaqLean(Kokaq):
    """The second codec's header: 12 bytes for 8 bytes of fields (tcp/header.go:19-26), then the operation."""

    name = "Kokaq lean"
    type_rq = 0x05
    named = _CODEC_WORDS
    fields_desc = [*_BEGINS, *_TYPE, U32("opaque"), U32("zeros", equals=0, column=None), U8("opcode")]


_LEAN = [
    U16("op_opaque"),
    U32("namespace", column="namespace_id"),
    U32("queue", column="queue_id"),
    U32("payload_len", at_most=MAX_LEAN_PAYLOAD_BYTES),
    Bytes("body", length="payload_len", body=True),
]


# tcp/request.go:94-109; tcp/reponse.go:83-97: the status is the whole byte, there is no reason.
KokaqLeanRequest = message_class(
    __name__, "KokaqLeanRequest", "Kokaq lean request", "The rest of a lean request.", U8("client"), *_LEAN,
    named=_CODEC_WORDS,
)  # fmt: skip
KokaqLeanAnswer = message_class(
    __name__, "KokaqLeanAnswer", "Kokaq lean answer", "The rest of a lean answer.", U8("status"), *_LEAN
)


# -- where a frame ends ----------------------------------------------------------------------------------

# Variants by magic and tag, in this order: the form, how its end is computed, what must follow. The first that fits is
# taken, the last without a condition. The document reads a component's tags in two ways.
RULE_OF_ENDS: Mapping[tuple[str, int], tuple[tuple[str, str, str], ...]] = {
    ("big", 0): (("lean", "lean", "anything"), ("doc", "header", "anything")),
    ("big", METADATA): (
        ("doc_simple16", "header", "three bytes"),
        ("doc", "entries", "padding"),
        ("doc_bytes", "block", "boundary"),
        ("doc_swapped", "payload", "boundary, uncut"),
        ("doc", "entries", "anything"),
    ),
    ("big", PAYLOAD): (
        ("doc_simple16", "header", "three bytes"),
        ("doc", "payload", "padding"),
        ("doc_swapped", "entries", "boundary, uncut"),
        ("doc", "payload", "anything"),
    ),
    ("big", OTHER): (("doc", "next header", "anything"), ("doc_simple16", "header", "anything")),
    ("little", 0): (("go1", "header", "anything"),),
    ("little", METADATA): (
        ("go1_simple16", "header", "three bytes"),
        ("go1", "entries", "tail"),
        ("go1", "entries", "anything"),
    ),
    ("little", PAYLOAD): (
        ("go1_simple16", "header", "three bytes"),
        ("go1_plain", "odd payload", "boundary"),
        ("go1", "numbered", "tail"),
        ("go1_plain", "payload", "anything"),
    ),
    ("little", OTHER): (("go1", "next header", "anything"), ("go1_simple16", "header", "anything")),
}


_WORDS = np.full((len(RULE_OF_ENDS), max(map(len, RULE_OF_ENDS.values())), 3), -1, np.int32)
for _i, _variants in enumerate(RULE_OF_ENDS.values()):
    for _k, (_form, _end, _follower) in enumerate(_variants):
        _WORDS[_i, _k] = FORMS.index(_form), END_RULES.index(_end), END_CONDITIONS.index(_follower)
_RULE = memoryview(_WORDS)


SPLITS: Mapping[Direction, tuple[str, ...]] = {d: tuple(f"{d}_{form}" for form in FORMS) for d in DIRECTIONS}
"""By direction, the layouts that read frames of each form."""


def split_frames(buf: memoryview | bytes, limit: int, ended: bool) -> SplitFrames:
    """The splitter of ``buf[:limit]``; ``ended``: no byte can follow ``limit``."""
    return SplitFrames(_RULE, buf, limit, ended)


# -- whose connection it is ------------------------------------------------------------------------------


MAX_VOTES = 32
_HEADS = frozenset(magic + bytes([VERSION]) for magic in (BIG, LITTLE))
_BEGINNINGS = {head[:n] for head in _HEADS for n in range(4)}
Echo = tuple[bytes, bytes, int]
"""The values that an answer repeats: magic, opaque, opcode."""


class _FirstFrames(NamedTuple):
    """Evidence from the first frames of a direction, MAX_VOTES at most.

    echoes         the values of them that answers repeat
    server_votes   mid-stream: frames that only a server sends, minus frames that only a client sends
    """

    verdict: Verdict
    echoes: Sequence[Echo] = ()
    server_votes: int = 0


def _first_frames(opening: Opening, direction: Direction) -> _FirstFrames:
    """Evidence from the first frames of a direction."""
    data, started, ended = opening.side(direction)
    offset = 0 if started else opening.find_run(direction, f"{direction}_doc", 2)
    if offset is not None and data[offset : offset + 3] not in _BEGINNINGS:
        return _FirstFrames(Verdict.NO)
    if offset is None or len(data) - offset < HEADER_BYTES:
        return _FirstFrames(Verdict.NO if ended else Verdict.WAIT)
    frames = split_frames(data, len(data), ended)
    echoes: list[Echo] = []
    votes, is_plausible, is_proven, first_end = 0, False, False, -1
    while len(echoes) < MAX_VOTES:
        _, end, _, form, op, _ = frames.one(offset)
        if form < 0:
            break
        head, is_lean = data[offset : offset + HEADER_BYTES], FORMS[form] == "lean"
        fits = _fits(head, op)
        if not echoes:
            is_plausible, first_end = fits, end
        echoes.append((head[:2], head[4:8], op))
        is_proven = is_proven or (fits and not is_lean and _repeats(data, offset))
        if end < 0 or (started and is_plausible and is_proven):
            break
        # A lean reply copies byte 3, and its status has a client's numbers.
        votes += 0 if started or is_lean else _server_vote(head)
        offset = end
    if not echoes:
        return _FirstFrames(Verdict.NO)
    follows = frames.follows(first_end) if first_end >= 0 else splitter.WAIT
    # A frame found by a search needs a second frame after it.
    if is_plausible and (is_proven or (not started and follows == splitter.YES and first_end < len(data))):
        judged = Verdict.YES
    elif follows == splitter.YES and (is_plausible or opening.on_port):
        # On the port magic and version are enough: the codec sends any opcode and type it is given.
        judged = Verdict.LIKELY
    else:
        judged = Verdict.WAIT if follows == splitter.WAIT and not ended else Verdict.NO
    return _FirstFrames(judged, echoes, votes)


def _fits(head: bytes, op: int) -> bool:
    """Whether the operation and byte 3 of a header are legal."""
    return op <= 8 and legal(head[3], head[0] == LITTLE[0])


def _repeats(data: bytes, offset: int) -> bool:
    """Whether a component follows the header: it repeats tag and magic, so about 60 bits are known."""
    tag, magic = data[offset + 11], data[offset : offset + 2]
    return data[offset + 12 : offset + 15] == bytes([tag]) + magic and (magic == LITTLE or tag in (METADATA, PAYLOAD))


def _server_vote(head: bytes) -> int:
    """1 for an answer, -1 for a request, 0 if these bytes do not decide.

    RQ 0 is a response in the document's table, 2 and 3 are requests. RQ 1 is a response in its legend, a request in its
    table and the codec (const.go:20-22); there byte 9 decides: a status and a reason, or a client.
    """
    little = head[:2] == LITTLE
    rq = head[3] & 3 if little or head[3] <= 0x0F else head[3] >> 6
    byte = head[9]
    if rq == 0:
        return 0 if little else 1
    if rq > 1:
        return -1
    if byte >= 0x11 and 1 <= byte >> 4 <= 5 and 1 <= byte & 15 <= 5:
        return 1
    return -1 if 2 <= byte <= 5 or (byte == 0 and not little) else 0


_CLAIM = Claim(Verdict.YES, "c2s_doc", "s2c_doc")


def first_claim(client: bytes) -> Claim | None:
    """A header, and a component that repeats its magic and tag."""
    if len(client) < HEADER_BYTES or client[:3] not in _HEADS or not _repeats(client, 0):
        return None
    _, _, _, form, op, _ = split_frames(client, len(client), False).one(0)
    return _CLAIM if form >= 0 and _fits(client, op) and FORMS[form] != "lean" else None


def claims(opening: Opening) -> Claim:
    """A header, and a component that repeats its magic and tag; or an answer that repeats its opaque and opcode."""
    if opening.c2s.startswith(b"PRI * HTTP/2.0"):
        return Claim(Verdict.NO)
    client = _first_frames(opening, "c2s")
    if opening.c2s_start and opening.c2s and client.verdict is Verdict.NO:
        return Claim(Verdict.NO)
    oriented = opening.c2s_start or opening.s2c_start
    if oriented and client.verdict is Verdict.YES:
        return _CLAIM
    server = _first_frames(opening, "s2c")
    # A lone frame without a component may look as if the other side sent it; the port or a known server outweighs that.
    lone = (
        max(client.verdict, server.verdict) is Verdict.LIKELY
        and abs(client.server_votes) + abs(server.server_votes) == 1
    )
    if not oriented and not lone and (client.server_votes > 0 or server.server_votes < 0):
        return Claim(Verdict.NO)
    proven = oriented or client.server_votes < 0 or server.server_votes > 0
    answered = oriented and any(echo in client.echoes for echo in server.echoes[:1])
    best = max(client.verdict, server.verdict)
    if best is Verdict.YES or (answered and Verdict.NO not in (client.verdict, server.verdict)):
        return Claim(Verdict.YES if proven or opening.on_port else Verdict.LIKELY, "c2s_doc", "s2c_doc")
    if best is Verdict.LIKELY and Verdict.WAIT not in (client.verdict, server.verdict):
        return Claim(Verdict.LIKELY, "c2s_doc", "s2c_doc")
    if best is Verdict.NO:
        return Claim(Verdict.NO)
    return Claim(Verdict.WAIT)


# -- evidence --------------------------------------------------------------------------------------------

Numbering = Literal["open", "doc", "codec"]
Order = Literal["open", "msb", "lsb"]


def _set_of(holds: Callable[[int], bool]) -> int:
    """A bit for each value of a byte that fulfils a condition."""
    return sum(1 << byte for byte in range(256) if holds(byte))


_MSB_ONLY = _set_of(lambda byte: 0x04 <= byte <= 0x0F)
_LSB_ONLY = _set_of(lambda byte: byte >= 0x40 and byte & 0x3C == 0)
_TYPE_0_MSB, _TYPE_0_LSB = _set_of(lambda byte: byte >> 2 == 0), _set_of(lambda byte: byte & 0x3F == 0)


def observe(observation: Observation) -> None:
    """Collects proofs from big-endian frames that are not lean. All other frames have the codec's numbers."""
    raw, rows = observation.raw, observation.rows
    numbers = {name: raw.numbers(name) for name in ("message_type", "rq", "client", "status", "reason")}
    bytes_3 = (numbers["message_type"][0] << 2 | numbers["rq"][0])[rows]
    for key in factorize(observation.connection_index << 8 | bytes_3)[0].tolist():
        state = observation.evidence[key >> 8].state
        state["bytes_3"] = state.get("bytes_3", 0) | 1 << (key & 0xFF)

    def says(name: str, value: int) -> NDArray[np.bool_]:
        is_so: NDArray[np.bool_] = ((numbers[name][0] == value) & numbers[name][1])[rows]
        return is_so

    item_row, tag = raw.items("entries", "tag")
    handled = np.zeros(raw.n, np.bool_)
    handled[item_row[tag == 10]] = True  # Request Handling Time
    carries = observation.from_client & (observation.op == 7) & (raw.spans("body")[1][rows] > 0)
    proofs = {
        "codec opcode": observation.op == 6,
        "doc": says("client", 0) | says("status", 0) | carries | handled[rows],
        "codec": says("client", 5) | says("status", 4),
        "codec answer": says("status", 1) & says("reason", 1),
    }
    for name, proven in proofs.items():
        for place in factorize(observation.connection_index[proven])[0].tolist():
            observation.evidence[place].state[name] = True
    for evidence in observation.evidence:
        evidence.is_final = "codec opcode" in evidence.state and bit_order(evidence) == "msb"


def numbering(evidence: Evidence) -> Numbering:
    """Whose numbers a connection's big-endian frames have; ``open`` is read as the document's."""
    state = evidence.state
    if "codec opcode" in state:
        return "codec"
    if "doc" in state:
        return "open" if "codec" in state else "doc"
    # The document's 0x11 would be a Fail that is Ok.
    return "codec" if "codec" in state or "codec answer" in state else "open"


def bit_order(evidence: Evidence) -> Order:
    """How the fourth byte of a connection's big-endian frames is split; ``open`` is read as msb."""
    bytes_3 = evidence.state.get("bytes_3", 0)
    return "msb" if bytes_3 & _MSB_ONLY else "lsb" if bytes_3 & _LSB_ONLY else "open"


def types(evidence: Evidence) -> str:
    """Which reading of the message types is in force: a 0 proves the table."""
    zeros = _TYPE_0_LSB if bit_order(evidence) == "lsb" else _TYPE_0_MSB
    return "table" if evidence.state.get("bytes_3", 0) & zeros else "legend"


class Meaning(NamedTuple):
    """The meaning of numbers in a connection's big-endian frames, by its evidence."""

    numbering: Numbering = "open"
    order: Order = "open"


def select_layout(evidence: Evidence, layout: str) -> str:
    """The layout with the order of bits that the evidence asks for."""
    return f"{layout}_lsb" if "_doc" in layout and bit_order(evidence) == "lsb" else layout


def resolve(evidence: Evidence) -> ConnectionFacts:
    """Names of operations, the reading of the types, and of what `derive` names."""
    if "bytes_3" not in evidence.state:
        return ConnectionFacts()
    return _facts(Meaning(numbering(evidence), bit_order(evidence)), types(evidence))


@cache
def _facts(meaning: Meaning, type_reading: str) -> ConnectionFacts:
    names = CODEC_NAMED if meaning.numbering == "codec" else DOC_NAMED
    return ConnectionFacts(op_names=names, own=meaning, columns={"type_reading": type_reading})


# -- columns that fields do not say ----------------------------------------------------------------------


def derive(raw: Raw) -> dict[str, pa.Array]:
    """Names by the numbering in force, names of queues as text, and what rests on an open choice."""
    forms = [name.split("_", 1)[1] for name in raw.layout_names]
    meanings = [facts.own or Meaning() for facts in raw.facts]
    is_doc = _each(forms, raw.layout, lambda form: form.startswith("doc"))
    codec = _each(forms, raw.layout, lambda form: form.startswith(("go1", "lean")))
    codec |= is_doc & _each(meanings, raw.connection_index, lambda meaning: meaning.numbering == "codec")
    little = _each(forms, raw.layout, lambda form: form.startswith("go1"))
    lsb = _each(forms, raw.layout, lambda form: form.endswith("lsb"))
    client, status, reason = raw.numbers("client"), raw.numbers("status"), raw.numbers("reason")
    return {
        "byte_order": pc.if_else(pa.array(little), "little", "big"),
        "numbering": pc.if_else(pa.array(codec), "codec", "doc"),
        "type_reading": pa.repeat("legend", raw.n),  # else as the evidence says
        "bit_order": pc.if_else(pa.array(lsb), "lsb", "msb"),
        "rq_name": _named(raw.numbers("rq"), codec, _RQS, _CODEC_WORDS["rq"]),
        "client_name": _named(client, codec, DOC_CLIENTS, CODEC_CLIENTS),
        "status_name": _named(status, codec, DOC_STATUSES, CODEC_STATUSES),
        "reason_name": _named(reason, codec, DOC_REASONS, CODEC_REASONS),
        "namespace": _name(raw, "namespace", little),
        "queue": _name(raw, "queue", little),
        "metadata": _metadata(raw.array("entries"), codec),
        "ambiguities": _ambiguities(raw, forms, meanings, is_doc),
    }


def _each(values: Sequence[Any], place: NDArray[Any], holds: Callable[[Any], bool]) -> NDArray[np.bool_]:
    """For each row whether a condition holds for the value at its index."""
    mask: NDArray[np.bool_] = np.array([holds(value) for value in values], np.bool_)[place]
    return mask


def _named(
    numbers: tuple[NDArray[np.int64], NDArray[np.bool_]],
    codec: NDArray[np.bool_],
    doc_names: Mapping[int, str],
    codec_names: Mapping[int, str],
) -> pa.Array:
    """Names of one-byte numbers in the numbering of each row."""
    value, present = numbers
    names = pa.array([t.get(i) for t in (doc_names, codec_names) for i in range(256)], pa.string())
    return names.take(pa.array(value + 256 * codec, mask=~present))


def _name(raw: Raw, name: str, little: NDArray[np.bool_]) -> pa.Array:
    """A namespace or queue as text: its number, or its bytes as text if they are printable."""
    value, present = raw.numbers(f"{name}_id")
    number = pa.array(value, mask=~present).cast(pa.string())
    encoded = raw.array(f"{name}_raw").dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if not names:
        return number
    texts = pa.array([readable(x, order) for order in (False, True) for x in names], pa.string())
    index = pc.fill_null(encoded.indices, 0).to_numpy() + len(names) * little
    return pc.coalesce(number, texts.take(pa.array(index, mask=pc.is_null(encoded).to_numpy(zero_copy_only=False))))


def readable(name: bytes, little: bool = False) -> str:
    """A name as text; unprintable ones as a number if they have four bytes, else in hexadecimal.

    >>> readable(b"orders"), readable(b"\\0\\0\\0\\x2a"), readable(b"\\xff\\0")
    ('orders', '42', 'ff00')
    """
    try:
        text = name.decode()
    except UnicodeDecodeError:
        text = "\0"
    if text.isprintable():
        return text
    return str(int.from_bytes(name, "little" if little else "big")) if len(name) == 4 else name.hex()


def _metadata(entries: pa.Array, codec: NDArray[np.bool_]) -> pa.Array:
    """The entries with their names."""
    items = entries.flatten()
    tags = items.field("tag")
    values, row = tags.to_numpy().astype(np.int64), pc.list_parent_indices(entries).to_numpy()
    names = _named((values, np.ones(len(values), np.bool_)), codec[row], DOC_METADATA, CODEC_METADATA)
    named = pa.StructArray.from_arrays([tags, names, items.field("value")], names=["tag", "name", "value"])
    return with_list_values(entries, named)


# Numbers that the document and the codec read differently, and among them those the document itself gives twice.
_AMBIGUOUS = {"opcode": (5, 7, 8), "client": (1, 2, 3, 4), "status": (1, 2, 3), "reason": (3,)}
_AMBIGUOUS_TAGS = (6, 7, 8, 9)
_GIVEN_TWICE = {("opcode", 5), ("reason", 3)}


def _ambiguities(raw: Raw, forms: Sequence[str], meanings: Sequence[Meaning], is_doc: NDArray[np.bool_]) -> pa.Array:
    """``field:number`` for every number of a big-endian frame whose meaning rests on an unproven choice."""
    if not is_doc.any():
        return pa.repeat(pa.scalar([], pa.list_(pa.string())), raw.n)
    is_open = is_doc & _each(meanings, raw.connection_index, lambda x: x.numbering == "open")
    no_codec = is_doc & _each(meanings, raw.connection_index, lambda x: x.numbering != "codec")
    words = [f"metadata:{number}" for number in range(max(_AMBIGUOUS_TAGS) + 1)]
    rows_and_words: list[tuple[NDArray[np.int64], Any]] = []  # rows, and the index of the word of all or of each

    def say(word: str, where: NDArray[np.bool_]) -> None:
        rows_and_words.append((np.flatnonzero(where), len(words)))
        words.append(word)

    for name, numbers in _AMBIGUOUS.items():
        value, present = raw.numbers(name)
        for number in numbers:
            doubtful = no_codec if (name, number) in _GIVEN_TWICE else is_open
            say(f"{name}:{number}", doubtful & present & (value == number))
    row, tag = raw.items("entries", "tag")
    first_items = np.flatnonzero(np.isin(tag, _AMBIGUOUS_TAGS) & is_open[row])
    first_items = first_items[
        np.sort(np.unique(row[first_items] << 8 | tag[first_items], return_index=True)[1])
    ]  # each tag once, where it is first
    rows_and_words.append((row[first_items], tag[first_items]))
    # Bytes 1 to 3 read the other way round: type 1 to 3, rq 0.
    (message_type, has_type), (rq, _) = raw.numbers("message_type"), raw.numbers("rq")
    either = (
        is_doc & _each(meanings, raw.connection_index, lambda x: x.order == "open") & has_type & (message_type == 0)
    )
    say("message_type:0", either & (rq > 0))
    for number in (1, 2, 3):
        say(f"rq:{number}", either & (rq == number))
    say("tag", _each(forms, raw.layout, lambda form: form.startswith("doc_swapped")))
    say("field_count", _each(forms, raw.layout, lambda form: form.startswith("doc_bytes")))
    word_rows = np.concatenate([rows for rows, _ in rows_and_words])
    word = np.concatenate([np.broadcast_to(code, rows.shape) for rows, code in rows_and_words])[
        np.argsort(word_rows, kind="stable")
    ]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(word_rows, minlength=raw.n))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(words).take(pa.array(word)))


def envelope(table: pa.Table) -> dict[str, pa.Array]:
    """Destination, correlation, status and, for a failure, its reason."""
    status, failed = table["status"], pc.equal(table["status_name"], "Fail")
    named = pc.is_valid(table["namespace"]), pc.is_valid(table["queue"])
    destination = pc.binary_join_element_wise(
        pc.fill_null(table["namespace"], ""), pc.fill_null(table["queue"], ""), "/"
    )
    # Zero without a name is the codec's "not set".
    unset = pc.and_(pc.equal(status, 0), pc.is_null(table["status_name"]))
    has_status = true_mask(pc.is_valid(status)) & ~true_mask(unset)
    nothing = pa.scalar(None, pa.string())
    opaques = (pc.cast(table[name], pa.string()) for name in ("opaque", "op_opaque"))
    failed = pc.fill_null(failed, False)
    return {
        "destination": pc.if_else(pc.or_(*named), destination, nothing),
        "correlation_id": pc.binary_join_element_wise(*opaques, ":"),
        "status": case_when({"ok": has_status, "error": has_status & true_mask(failed)}),
        "error_code": pc.if_else(failed, pc.cast(table["reason"], pa.int64()), pa.scalar(None, pa.int64())),
        "error_text": pc.if_else(failed, table["reason_name"], nothing),
    }


# -- the protocol ----------------------------------------------------------------------------------------

_BODIES = (KokaqSimple, KokaqPayload, KokaqMetadata)
_SWAPPED_BODIES = (KokaqPayloadSwapped, KokaqMetadataSwapped)


def _layouts() -> Iterator[Layout]:
    """By direction and form; a connection begins in those that have the splitter."""
    for i, d in enumerate(DIRECTIONS):
        for dialect, form, header, *bodies in (
            ("doc", "doc", _HEADERS, *_BODIES),
            ("doc", "doc_lsb", _HEADERS_LSB, *_BODIES),
            ("doc", "doc_swapped", _HEADERS, *_SWAPPED_BODIES),
            ("doc", "doc_swapped_lsb", _HEADERS_LSB, *_SWAPPED_BODIES),
            ("doc", "doc_bytes", _HEADERS, KokaqMetadataBytes),
            ("doc", "doc_bytes_lsb", _HEADERS_LSB, KokaqMetadataBytes),
            ("doc", "doc_simple16", _HEADERS_16, KokaqSimple),
            ("doc", "doc_simple16_lsb", _HEADERS_16_LSB, KokaqSimple),
            ("go1", "go1", _HEADERS_LE, KokaqSimple, KokaqLEPayload, KokaqLEMetadata),
            ("go1", "go1_plain", _HEADERS_LE, KokaqLEPlainPayload),
            ("go1", "go1_simple16", _HEADERS_LE_16, KokaqSimple),
            ("lean", "lean", (KokaqLean, KokaqLean), (KokaqLeanRequest, KokaqLeanAnswer)[i]),
            ("sized", "sized", _HEADERS_SIZED, *_BODIES),
        ):
            yield Layout(
                f"{d}_{form}", d, {ANY: bodies}, header=header[i], op="opcode", dialect=dialect,
                names=DOC_OPS if dialect in ("doc", "sized") else CODEC_OPS,
                splitter=split_frames if form == "doc" else None,  # type: ignore[arg-type]  # a compiled class
                splits=SPLITS[d] if form == "doc" else (),
            )  # fmt: skip


_LAYOUTS = tuple(_layouts())

# An answer repeats both opaques and the opcode; the Go1 server answers one-way requests like any other.
RULE = CorrelationRule(
    asks={},
    otherwise=RequestRule("always"),
    tie=("opaque", "op_opaque", "op_code"),
    one_way=("rq", 3),
    by_name=True,
    # The Go1 server answers what its first read brought.
    habits=ServerHabits(shortest_bytes=12, all_count=True, early=frozenset({ANY_OPERATION})),
)

MEANINGS = {
    "version": "version in the header",
    "message_type": "message type, as on the wire",
    "rq": "request bits: answered or one-way, as on the wire",
    "opaque": "request number of the connection; its answer repeats it",
    "opcode": "operation as a number",
    "client": "kind of client in a request, as a number",
    "op_opaque": "number of the operation; its answer repeats it",
    "tag": "kind of the component that follows, as a number",
    "component_opaque": "opaque of the component",
    "namespace_raw": "namespace as bytes",
    "queue_raw": "queue as bytes",
    "body": "user payload",
    "trailer": "bytes after the component that belong to the frame",
    "namespace_len": "length of the namespace",
    "queue_len": "length of the queue's name",
    "namespace_id": "namespace as a number",
    "queue_id": "queue as a number",
    "size": "length of the frame after its header",
    "status": "status of an answer, as a number",
    "reason": "reason in an answer, as a number",
    "namespace": "namespace as text",
    "queue": "queue as text",
    "metadata": "metadata fields with their numbers and names",
    "rq_name": "name of rq",
    "client_name": "name of the kind of client",
    "status_name": "name of the status",
    "reason_name": "name of the reason",
    "byte_order": "byte order of the connection",
    "numbering": "numbering of operations in force",
    "type_reading": "reading of byte 3 in force",
    "bit_order": "bit order of byte 3 in force",
    "ambiguities": "numbers whose meaning rests on an unproven choice",
}
"""The content of each column of the table."""

PROTOCOL = MessageQueue(
    name="kokaq",
    title="kokaq",
    ports=(9944, 4242),
    dialects=("doc", "go1", "lean", "sized"),
    layouts=_LAYOUTS,
    claims=claims,
    first_claim=first_claim,
    openings=(FirstBytes(BIG + bytes([VERSION])), FirstBytes(LITTLE + bytes([VERSION]))),
    recognised="magic 0x0420 in either byte order, version 1, and a component that repeats it or an echoing answer",
    meanings=MEANINGS,
    envelope=Envelope(
        client_name="client_name",
        body="body",
        derive=envelope,
        derives=("destination", "correlation_id", "status", "error_code", "error_text"),
        reads=("status", "status_name", "namespace", "queue", "opaque", "op_opaque", "reason", "reason_name"),
    ),
    rule=RULE,
    roles=Roles(
        traits=frozenset({"lasting"}),
        publish=frozenset({"Push"}),
        poll=frozenset({"Peek", "Pop"}),
        peek=frozenset({"Peek"}),
        lock=frozenset({"AcquirePeekLock"}),
        unlock=frozenset({"ReleasePeekLock"}),
        heartbeat=frozenset({"Nop", "NoOp"}),
    ),
    evidence=EvidenceRule(
        None, observe, resolve, select_layout, layouts=frozenset(x.name for x in _LAYOUTS if x.dialect == "doc")
    ),
    derived=(
        *(Derived(name, pa.string()) for name in ("namespace", "queue")),
        Derived("metadata", pa.list_(pa.struct([("tag", pa.int32()), ("name", pa.string()), ("value", pa.binary())]))),
        *(Derived(name, pa.string()) for name in ("rq_name", "client_name", "status_name", "reason_name")),
        *(Derived(name, pa.string()) for name in ("byte_order", "numbering", "type_reading", "bit_order")),
        Derived("ambiguities", pa.list_(pa.string())),
    ),
    derive=derive,
    hidden=("entries",),
)
