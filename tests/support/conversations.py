"""Connections of the sample captures as the bytes of both sides, cut into packets anew."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from segments import ACK, FIN, SYN, Packet

from mqpcap.capture import captures
from mqpcap.tcp.headers import Dissector
from mqpcap.tcp.reassembly import Reassembler

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
CLIENT = "10.0.0.1", 40000
STARTS = 1000, 5000
"""Sequence numbers of the first bytes of client and server."""
CONNECTIONS = {
    "blipmq": ("blipmq/qos1", 7, 5555),
    "flymq": ("flymq/core", 0, 9092),
    "fq": ("fq/session", 1, 8765),
    "kokaq document": ("kokaq/doc_session", 2, 9944),
    "kokaq go1": ("kokaq/go1_session", 4, 9944),
    "msgq flat": ("msgq/flat_session", 1, 9912),
    "msgq split": ("msgq/split_session", 1, 9912),
}
"""Capture, number of the connection, and server port."""
SIDE_BYTES = 300
"""Bytes of a side that are used."""


@dataclass(frozen=True)
class Conversation:
    """The first bytes of client and server, and the server's port."""

    sides: tuple[bytes, bytes]
    port: int


@cache
def conversation(name: str) -> Conversation:
    """A connection of `CONNECTIONS`."""
    path, number, port = CONNECTIONS[name]
    (capture,) = captures([str(PCAPS / f"{path}.pcap")]).captures
    dissector, reassembler = Dissector(), Reassembler()
    sides = [b"", b""]
    for chunks in [*(reassembler.feed(dissector.segments(w)) for w in capture.windows()), reassembler.finish()]:
        for k in range(len(chunks)):
            if chunks.flow[k] == number:
                sides[chunks.side[k]] += chunks.buffer[chunks.start[k] :][: chunks.length[k]].tobytes()
    return Conversation((sides[0][:SIDE_BYTES], sides[1][:SIDE_BYTES]), port)


def packets(said: Conversation, dice: Random, has_start: bool = True, size: int = 0) -> list[Packet]:
    """Segments of both sides in any order; each acknowledges the bytes captured before it.

    ``size``: bytes of a segment, 0: any.
    """
    ends = CLIENT, ("10.0.0.2", said.port)
    out: list[Packet] = []
    if has_start:
        out.append(Packet(*ends, STARTS[0] - 1, 0, SYN))
        out.append(Packet(*ends[::-1], STARTS[1] - 1, STARTS[0], SYN | ACK))
    offsets = [0, 0]
    largest = dice.choice((5, 40, 400))
    while any(offset < len(body) for offset, body in zip(offsets, said.sides, strict=True)):
        side = dice.choice([k for k in (0, 1) if offsets[k] < len(said.sides[k])])
        body = said.sides[side][offsets[side] :][: size or dice.randint(1, largest)]
        seq, ack = STARTS[side] + offsets[side], STARTS[1 - side] + offsets[1 - side]
        out.append(Packet(ends[side], ends[1 - side], seq, ack, ACK, body))
        offsets[side] += len(body)
    for side in (0, 1):
        seq, ack = STARTS[side] + offsets[side], STARTS[1 - side] + offsets[1 - side] + side
        out.append(Packet(ends[side], ends[1 - side], seq, ack, FIN | ACK))
    return out


def damaged(whole: list[Packet], dice: Random) -> list[Packet]:
    """The packets with some lost, twice, out of order, with other bytes, or truncated by the snap length."""
    out: list[Packet] = []
    for packet in whole:
        fault = dice.choice(("", "", "", "", "lost", "twice", "early", "bytes", "snapped"))
        if fault == "bytes" and packet.body:
            body = bytearray(packet.body)
            body[dice.randrange(len(body))] ^= dice.randrange(1, 256)
            packet = packet.but(body=bytes(body))
        elif fault == "snapped":
            packet = packet.but(body=packet.body[: dice.randint(0, len(packet.body))], wire_length=len(packet.body))
        if fault != "lost":
            out.insert(dice.randint(max(len(out) - 3, 0), len(out)) if fault == "early" else len(out), packet)
        if fault == "twice":
            out.append(packet)
    return out


def windows_of(whole: list[Packet], dice: Random) -> list[list[Packet]]:
    """The packets in windows of any sizes."""
    out = []
    while whole:
        count = dice.randint(1, dice.choice((1, 3, 30)))
        out.append(whole[:count])
        whole = whole[count:]
    return out
