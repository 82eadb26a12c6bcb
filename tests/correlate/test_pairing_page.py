"""The section Pairing of src/mqpcap/README.md: its examples come true, and so does what a reader predicts from it.

A conversation is written as on the page: ``start`` or ``late``, then requests ``q1`` and replies ``r1`` in the order in
which they were captured. What stands in brackets was not captured. ``pause`` is 0.3 s. ``end``: both sides close, and
each FIN is acknowledged.
"""

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from torture import Segment, packet

import mqpcap

PAGE = (Path(__file__).resolve().parents[2] / "src/mqpcap/README.md").read_text()
FIN, SYN, ACK = 1, 2, 16
CLIENT_SEQ, SERVER_SEQ = 1_000_000, 5_000_000


def _flymq(number: int, is_reply: bool) -> bytes:
    """LIST_TOPICS: 8 bytes, and a reply without topics, 12 bytes."""
    return bytes.fromhex("af01080100000004 00000000" if is_reply else "af01080100000000")


def _blipmq(number: int, is_reply: bool) -> bytes:
    """PING and PONG under an id: 13 bytes."""
    return struct.pack(">IBQ", 9, 8 if is_reply else 7, number)


def _kokaq(number: int, is_reply: bool) -> bytes:
    """Create and its refusal, with the number as ``opaque``."""
    words = "04200105 {:08x} 01131100" if is_reply else "04200106 {:08x} 01021102 0204200a 04040000 0000002a 00000007"
    return bytes.fromhex(words.format(number))


MAKERS: dict[str, tuple[int, Callable[[int, bool], bytes]]] = {
    "FlyMQ": (9092, _flymq), "BlipMQ": (5555, _blipmq), "kokaq": (9944, _kokaq),
}  # fmt: skip


def written(conversation: str) -> bytes:
    """A conversation as a pcap file, messages one millisecond apart."""
    system, _, words = conversation.rpartition(": ")
    port, message = MAKERS[system or "FlyMQ"]
    sent = {False: CLIENT_SEQ, True: SERVER_SEQ}
    time_us, records = 0, []

    def send(body: bytes, is_reply: bool, flags: int = ACK, captured: bool = True) -> None:
        nonlocal time_us
        time_us += 1000
        segment = Segment(body, sent[is_reply], sent[not is_reply], flags, is_reply)
        sent[is_reply] += len(body) + bool(flags & (SYN | FIN))
        if captured:
            frame, size = packet(segment, port)
            stamp = struct.pack("<II", 1_700_000_000 + time_us // 1_000_000, time_us % 1_000_000)
            records.append(stamp + struct.pack("<II", len(frame), size) + frame)

    begin, *rest = re.findall(r"\w+|\(\w+\)", words)
    for is_reply, flags in ((False, SYN), (True, SYN | ACK), (False, ACK)):
        send(b"", is_reply, flags, captured=begin == "start")
    for word in rest:
        name = word.strip("()")
        if name == "pause":
            time_us += 300_000
        elif name == "end":
            for is_reply, flags in ((False, FIN | ACK), (True, FIN | ACK), (False, ACK)):
                send(b"", is_reply, flags)
        else:
            send(message(int(name[1:]), name[0] == "r"), name[0] == "r", captured=name == word)
    return struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1) + b"".join(records)


def outcome(conversation: str, path: Path) -> str:
    """State and evidence of each captured message, as ``q1 answered order, r2 orphan``."""
    path.write_bytes(written(conversation))
    names = {side: re.findall(rf"(?<!\(){side}\d+", conversation.rpartition(": ")[2]) for side in "qr"}
    with_rows = mqpcap.open(path)
    messages = with_rows.messages.to_pylist()
    offsets = {
        side: sorted(row["stream_offset"] for row in messages if row["direction"] == direction)
        for side, direction in (("q", "c2s"), ("r", "s2c"))
    }
    words: dict[str, str] = {}
    for row in with_rows.exchanges.to_pylist():
        for side, end in (("q", "request"), ("r", "reply")):
            offset = row[f"{end}_offset"]
            if offset is not None and (side == "q" or row["request_offset"] is None):
                how = f" {row['how']}" if row["how"] else ""
                words[names[side][offsets[side].index(offset)]] = f"{row['state']}{how}"
    return ", ".join(f"{name} {words[name]}" for side in "qr" for name in names[side] if name in words)


EXAMPLES = re.findall(r"^\| `((?:\w+: )?(?:start|late),[^`]*)` \| `([^`]*)` \|", PAGE, re.MULTILINE)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize(("conversation", "expected"), EXAMPLES)
def test_an_example_of_the_page_comes_true(conversation: str, expected: str, tmp_path: Path) -> None:
    assert outcome(conversation, tmp_path / "a.pcap") == expected


PREDICTED = {
    # The hole is 12 bytes long: at most one message of 8, so it is the reply of q1 or q2. If it is that of q2, r2 would
    # have to answer q1 or q3, but it does not acknowledge q3 and pairs do not cross.
    "start, q1 q2 (r1) r2 q3 r3 end": "q1 lost, q2 answered order, q3 answered order",
    # One request fits into 8 bytes, and it is the only one that is open when r1 comes. q2 must be answered and the end
    # was captured, but r1 has no request that was captured.
    "start, (q1) r1 q2 end": "q2 unknown, r1 orphan",
    # Nothing is certain before the pause, and nobody closes: two requests may have been open all the time. After the
    # pause nothing is open, by assumption.
    "late, q1 r1 pause q2 q3 r2 r3": "q1 likely pause, q2 likely pause, q3 likely pause",
    # Three ids, none twice: the third reply is an anchor, and those before it count backward from it.
    "BlipMQ: late, q1 q2 r1 r2 q3 r3": "q1 answered id, q2 answered id, q3 answered id",
    # Names, in any order; two names are too few where requests may have been open before, but the client waited.
    "kokaq: late, q1 r1 q2 r2": "q1 likely alternation, q2 likely alternation",
    "kokaq: late, q1 q2 r2 r1": "q1 unknown, q2 unknown, r2 unknown, r1 unknown",
}
"""Six conversations, and what a reader of the page alone expects, with the reason."""


@pytest.mark.parametrize(("conversation", "expected"), PREDICTED.items())
def test_a_prediction_from_the_page_comes_true(conversation: str, expected: str, tmp_path: Path) -> None:
    assert outcome(conversation, tmp_path / "a.pcap") == expected
