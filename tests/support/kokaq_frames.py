"""kokaq's worked examples, and where the splitter finds that frames end."""

from typing import Any, NamedTuple

from reading import row

from mqpcap.protocols import kokaq
from mqpcap.protocols.kokaq import PROTOCOL, SPLITS, split_frames
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import ConnectionFacts


def h(text: str) -> bytes:
    return bytes.fromhex(text)


# One frame of each kind, typed from the pictures of the document and the Go codec.
NOP = h("04200106 00000001 00020700")
CREATE = h("04200106 00000010 01021102 0204200a 04040000 0000002a 00000007")
PUSH = h("04200106 cafe0003 07000002 02042000 06040005 6f7264657273 66617374 68656c6c6f")
POPPED = h("04200105 00000020 05012102 02042000 06040005 6f7264657273 66617374 68656c6c6f")
GET = h("04200106 00000030 03020001 01042000 00000002 01040000ea60 0510a0a1a2a3a4a5a6a7a8a9aaabacadaeaf")
FAILED = h("04200105 00000010 01131100")
GO1_PUSH = h("20040105 03000000 06030002 02200400 04040500 2a000000 07000000 68656c6c6f") + bytes(12)
GO1_ANSWER = h("20040105 03000000 06110000")
LEAN_CREATE = h("04200105 00000009 00000000 01030055 0000002a 00000007 00000000")
LEAN_ANSWER = h("04200105 00000009 00000000 01010055 0000002a 00000007 00000004 34322d37")
TABLE = h("04200101 00000001 00020700")
# A component that the codec does not know; names of other lengths, whose values have four bytes anyway
# (request.go:139-146); a value over 255 bytes, which runs on into the tail (request.go:130,158).
UNKNOWN = h("20040105 38100000 03033877 77200400 00000000")
LONG_NAME = h("20040105 03000000 06030002 02200400 06040500 2a000000 07000000 68656c6c6f") + bytes(14)
SHORT_NAME = h("20040105 03000000 06030002 02200400 01040500 2a000000 07000000 68656c6c6f") + bytes(9)
LONG_VALUE = h("20040105 03000000 03030001 01200400 01000000 0604 00010203 0405060708090a0b0c0d0e0f")
UNSET = h("20040105 16100000 03001600")
LONG_THEN_UUID = (
    h("20040105 03000000 03030001 01200400 02000000 072c") + bytes(range(44)) + h("0510") + bytes(range(44, 60))
    + bytes(range(62, 74))
)  # fmt: skip

DOC = {"c2s": (NOP, CREATE, GET, PUSH), "s2c": (POPPED, FAILED)}
EXAMPLES = [
    ("c2s", "c2s_doc", NOP),
    ("c2s", "c2s_doc", CREATE),
    ("c2s", "c2s_doc", PUSH),
    ("s2c", "s2c_doc", POPPED),
    ("c2s", "c2s_doc", GET),
    ("s2c", "s2c_doc", FAILED),
    ("c2s", "c2s_go1", GO1_PUSH),
    ("s2c", "s2c_go1", GO1_ANSWER),
    ("c2s", "c2s_lean", LEAN_CREATE),
    ("s2c", "s2c_lean", LEAN_ANSWER),
    ("c2s", "c2s_doc", TABLE),
    ("c2s", "c2s_go1", LONG_NAME),
    ("c2s", "c2s_go1", SHORT_NAME),
    ("c2s", "c2s_go1", LONG_VALUE),
    ("c2s", "c2s_go1", LONG_THEN_UUID),
    ("s2c", "s2c_go1", UNSET),
]


class Split(NamedTuple):
    """A frame at a place, as the splitter tells it."""

    verdict: str
    end: int
    known_end: int
    layout: str
    op: int
    flaw: int


def split_at(
    data: bytes, where: int = 0, ended: bool = True, direction: str = "c2s", limit: int | None = None
) -> Split:
    frames = split_frames(data, len(data) if limit is None else limit, ended)
    verdict, end, known_end, form, *more = frames.one(where)
    layout = SPLITS[direction][form] if form >= 0 else ""  # type: ignore[index]
    return Split(("more", "message", "bad")[verdict], end, known_end, layout, *more)


def lengths(data: bytes, direction: str = "c2s") -> list[int]:
    found, where = [], 0
    while where < len(data):
        one = split_at(data, where, direction=direction)
        assert one.verdict == "message", one
        found.append(one.end - where)
        where = one.end
    return found


def columns(frame: bytes, direction: str = "c2s", numbering: Any = "open", order: Any = "open") -> dict[str, Any]:
    """The columns of a frame; what its connection's evidence says, the bits' order too."""
    found = split_at(frame, direction=direction)
    assert (found.verdict, found.end) == ("message", len(frame))
    facts = ConnectionFacts(own=kokaq.Meaning(numbering, order))
    values, flaw, _ = row(PROTOCOL, found.layout + "_lsb" * (order == "lsb"), frame, facts)
    assert flaw is Flaw.NONE
    return values
