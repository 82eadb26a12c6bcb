"""Captures changed at random, and what must hold of their rows, whatever the bytes are.

A stretch of packets of a sample capture has packets dropped, duplicated, swapped, truncated, or bytes flipped. The rows
of what comes out must obey the law of conservation, and be the same if each packet is a window of its own.
"""

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

from dissection import Dissection, dissect
from torture import broken_laws, result_of

from mqpcap.capture import captures, windows

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
STRETCH = 60
"""Packets of a capture that is changed."""
START_US = 1_795_238_649 * 1_000_000
"""The time at which captures side by side begin."""
Record = tuple[bytes, int, bytes]
"""Time as the file has it, length on the wire, bytes."""


def records(data: bytes) -> list[Record]:
    """The packets of a classic little-endian capture."""
    out, at = [], 24
    while at + 16 <= len(data):
        size, wire = struct.unpack_from("<II", data, at + 8)
        out.append((data[at : at + 8], wire, data[at + 16 : at + 16 + size]))
        at += 16 + size
    return out


def capture_bytes(head: bytes, packets: list[Record]) -> bytes:
    """A capture with a file header and these packets."""
    return head + b"".join(ts + struct.pack("<II", len(body), wire) + body for ts, wire, body in packets)


def stretch(data: bytes, rnd: random.Random, loss: float = 0.0) -> list[Record]:
    """Consecutive packets of a capture, every other time from its begin, with some lost."""
    packets = records(data)
    first = 0 if rnd.random() < 0.5 else rnd.randrange(max(1, len(packets) - STRETCH))
    return [packet for packet in packets[first : first + STRETCH] if rnd.random() >= loss]


def _flip(packets: list[Record], k: int, rnd: random.Random) -> None:
    ts, wire, body = packets[k]
    changed = bytearray(body)
    # Behind the addresses: which connection a packet belongs to stays.
    at = rnd.randrange(min(38, len(body) - 1), len(body))
    changed[at] ^= 1 << rnd.randrange(8)
    packets[k] = ts, wire, bytes(changed)


def _drop(packets: list[Record], k: int, rnd: random.Random) -> None:
    del packets[k]


def _duplicate(packets: list[Record], k: int, rnd: random.Random) -> None:
    packets.insert(min(len(packets), k + rnd.choice((1, 1, 5, 40))), packets[k])


def _swap(packets: list[Record], k: int, rnd: random.Random) -> None:
    other = min(len(packets) - 1, k + rnd.choice((1, 1, 2, 5, 20)))
    packets[k], packets[other] = packets[other], packets[k]


def _truncate(packets: list[Record], k: int, rnd: random.Random) -> None:
    ts, wire, body = packets[k]
    packets[k] = ts, wire, body[: rnd.randrange(len(body) + 1)]


def _overwrite(packets: list[Record], k: int, rnd: random.Random) -> None:
    ts, wire, body = packets[k]
    start = rnd.randrange(min(54, len(body)), len(body) + 1)
    packets[k] = ts, wire, body[:start] + rnd.randbytes(len(body) - start)


Change = Callable[[list[Record], int, random.Random], None]
CHANGES: tuple[Change, ...] = _flip, _drop, _duplicate, _swap, _truncate
ALL_CHANGES: tuple[Change, ...] = *CHANGES, _overwrite
"""With random bytes from somewhere in a packet on. Seeds of earlier findings go by CHANGES."""


def mutant(data: bytes, rnd: random.Random, loss: float = 0.0, changes: Sequence[Change] = CHANGES) -> bytes:
    """A stretch of a capture with one to eight changes, and some packets lost."""
    packets = stretch(data, rnd, loss)
    for _ in range(rnd.randint(1, 8)):
        if len(packets) > 1:
            k = rnd.randrange(len(packets))
            if packets[k][2]:
                rnd.choice(changes)(packets, k, rnd)
    return capture_bytes(data[:24], packets)


def side_by_side(mutants: Sequence[bytes]) -> bytes:
    """One capture of several, which begin at one time: of each a packet in turn, at addresses of its own.

    Each sequence of as many packets as there are captures has at most one packet of each.
    """
    lanes = [_moved(records(data), lane) for lane, data in enumerate(mutants)]
    times = [packet[0] for lane in lanes for packet in lane[:1]] or [bytes(8)]
    rounds = zip_longest(*lanes, fillvalue=(times[0], 0, b""))
    return capture_bytes(mutants[0][:24], [packet for packets in rounds for packet in packets])


def _moved(packets: list[Record], lane: int) -> list[Record]:
    """The packets with other addresses, from START_US on; a TCP checksum is right if it was right."""
    first_us = _time_us(packets[0]) if packets else 0
    moved = []
    for packet in packets:
        seconds, microseconds = divmod(START_US + _time_us(packet) - first_us, 1_000_000)
        _, wire, body = packet
        moved.append((struct.pack("<II", seconds, microseconds), wire, _readdressed(body, lane)))
    return moved


def _time_us(packet: Record) -> int:
    seconds, microseconds = struct.unpack("<II", packet[0])
    return int(seconds * 1_000_000 + microseconds)


def _readdressed(body: bytes, lane: int) -> bytes:
    """A packet of Ethernet and IPv4 with the second byte of both addresses changed; packets without them stay."""
    if len(body) < 34 or body[12:15] != b"\x08\0\x45":
        return body
    changed = bytearray(body)
    changed[27] ^= lane
    changed[31] ^= lane
    if len(body) >= 52:
        (checksum,) = struct.unpack_from(">H", body, 50)
        total = (checksum ^ 0xFFFF) + sum(changed[at] + 255 - body[at] for at in (27, 31)) + 2 * 0xFF00
        while total > 0xFFFF:
            total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into(">H", changed, 50, total ^ 0xFFFF)
    return bytes(changed)


@contextmanager
def one_packet_windows(packets: int = 1) -> Iterator[None]:
    """Every packet, or this number of packets, is a window of its own."""
    before, windows.MAX_WINDOW_PACKETS = windows.MAX_WINDOW_PACKETS, packets
    try:
        yield
    finally:
        windows.MAX_WINDOW_PACKETS = before


def _dissected(path: Path) -> Dissection:
    (capture,) = captures([str(path)]).captures
    return dissect(capture)


def tables(dissection: Dissection) -> dict[str, Counter[str]]:
    """The rows of all tables as text, how often each."""
    names = ("exchanges", "deliveries", "connections", "problems")
    rows: dict[str, list[Any]] = {name: dissection.table(name).to_pylist() for name in names}
    rows["messages"] = [
        (message, fields)
        for chunk in dissection.chunks
        for message, fields in zip(chunk.messages.to_pylist(), chunk.fields.to_pylist(), strict=True)
    ]
    return {name: Counter(map(repr, some)) for name, some in rows.items()}


def differences(path: Path, packets: int = 1) -> dict[str, list[str]]:
    """Errors in a capture's rows: broken laws; rows of large windows only (-), of windows of few packets only (+)."""
    whole = _dissected(path)
    with one_packet_windows(packets):
        packet_by_packet = _dissected(path)
    wrong = {"laws": broken_laws(result_of(whole)) + broken_laws(result_of(packet_by_packet))}
    one, two = tables(whole), tables(packet_by_packet)
    for name in one:
        wrong[name] = [f"- {row}" for row in one[name] - two[name]] + [f"+ {row}" for row in two[name] - one[name]]
    return {name: rows for name, rows in wrong.items() if rows}
