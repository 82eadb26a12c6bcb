"""Makes `pcaps/faults`: one real capture of each protocol, damaged in five ways.

    python pcaps/faults.py [FOLDER [TRUTH]]

Each variant is the whole capture with one thing done to it, on the side of a connection that sent most
segments. Times are moved on by an hour per fault, so that no two captures hold the same connection. What
was done, and to which bytes of which stream, is written to `tests/truth/faults.json`.

Checksums are left alone: on loopback the network card never filled them in.
"""

import json
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = {
    "blipmq": "qos1",
    "flymq": "core",
    "fq": "session",
    "kokaq": "doc_session",
    "msgq": "split_session",
}
FILE_HEADER = struct.Struct("<IHHiIII")
RECORD_HEADER = struct.Struct("<IIII")
MAGIC_US = 0xA1B2C3D4
ETHERNET_LEN = 14
SYN = 0x02
SHORT_SNAP_LEN = 128
HOUR_S = 3600


@dataclass(frozen=True)
class Packet:
    """A captured packet: time, bytes as far as captured, length on the wire."""

    time_s: int
    time_us: int
    frame: bytes
    wire_len: int

    @property
    def tcp_start(self) -> int:
        return ETHERNET_LEN + (self.frame[ETHERNET_LEN] & 15) * 4

    @property
    def side(self) -> tuple[int, int]:
        source, destination = struct.unpack_from(">HH", self.frame, self.tcp_start)
        return source, destination

    @property
    def sequence(self) -> int:
        return int(struct.unpack_from(">I", self.frame, self.tcp_start + 4)[0])

    @property
    def is_syn(self) -> bool:
        return bool(self.frame[self.tcp_start + 13] & SYN)

    @property
    def body_start(self) -> int:
        return self.tcp_start + (self.frame[self.tcp_start + 12] >> 4) * 4

    @property
    def body(self) -> bytes:
        ip_len = struct.unpack_from(">H", self.frame, ETHERNET_LEN + 2)[0]
        return self.frame[self.body_start : ETHERNET_LEN + ip_len]

    def at_time_of(self, other: "Packet") -> "Packet":
        return replace(self, time_s=other.time_s, time_us=other.time_us)


Truth = dict[str, Any]
Fault = Callable[[list[Packet]], tuple[list[Packet], Truth]]


def read(path: Path) -> list[Packet]:
    content = path.read_bytes()
    assert FILE_HEADER.unpack_from(content)[0] == MAGIC_US
    packets, at = [], FILE_HEADER.size
    while at < len(content):
        time_s, time_us, captured_len, wire_len = RECORD_HEADER.unpack_from(content, at)
        at += RECORD_HEADER.size
        packets.append(Packet(time_s, time_us, content[at : at + captured_len], wire_len))
        at += captured_len
    return packets


def pcap(packets: list[Packet], snap_len: int) -> bytes:
    parts = [FILE_HEADER.pack(MAGIC_US, 2, 4, 0, 0, snap_len, 1)]
    for packet in packets:
        parts.append(RECORD_HEADER.pack(packet.time_s, packet.time_us, len(packet.frame), packet.wire_len))
        parts.append(packet.frame)
    return b"".join(parts)


def busiest(packets: list[Packet]) -> list[int]:
    """The positions of all segments with a body on the side that sent most of them."""
    sides: dict[tuple[int, int], list[int]] = {}
    for position, packet in enumerate(packets):
        if packet.body:
            sides.setdefault(packet.side, []).append(position)
    return max(sides.values(), key=len)


def place(packets: list[Packet], position: int) -> Truth:
    """Where the bytes of a packet stand: number from 1, ports, stream offset, length."""
    packet = packets[position]
    (syn,) = [other for other in packets if other.side == packet.side and other.is_syn]
    return {
        "packet": position + 1,
        "source_port": packet.side[0],
        "destination_port": packet.side[1],
        "stream_offset": packet.sequence - syn.sequence - 1,
        "length": len(packet.body),
    }


def lost(packets: list[Packet]) -> tuple[list[Packet], Truth]:
    """A segment in the middle of the side was never captured."""
    segments = busiest(packets)
    position = segments[len(segments) // 2]
    return packets[:position] + packets[position + 1 :], place(packets, position)


def reordered(packets: list[Packet]) -> tuple[list[Packet], Truth]:
    """A segment comes after the next one of its side; nothing is missing.

    The pair nearest the middle is taken that the other side answers with no data in between.
    """
    segments = busiest(packets)
    side = packets[segments[0]].side
    pairs = [
        (first, second)
        for first, second in pairwise(segments)
        if not any(packet.body for packet in packets[first + 1 : second])
        and all(set(packet.side) == set(side) for packet in packets[first + 1 : second])
    ]
    first, second = min(pairs, key=lambda pair: abs(pair[0] - segments[len(segments) // 2]))
    moved = [packets[second], packets[first], *packets[first + 1 : second]]
    moved = [packet.at_time_of(packets[first + number]) for number, packet in enumerate(moved)]
    return packets[:first] + moved + packets[second + 1 :], place(packets, first)


def conflict(packets: list[Packet]) -> tuple[list[Packet], Truth]:
    """A segment of the middle third comes again, the second half of its bytes changed."""
    segments = busiest(packets)
    third = len(segments) // 3
    position = max(segments[third : 2 * third], key=lambda segment: len(packets[segment].body))
    packet = packets[position]
    half = len(packet.body) // 2
    changed = bytes(byte ^ 0x01 for byte in packet.body[half:])
    again = replace(packet, frame=packet.frame[: packet.body_start + half] + changed)
    truth = place(packets, position)
    truth |= {"stream_offset": truth["stream_offset"] + half, "length": len(changed)}
    return [*packets[: position + 1], again, *packets[position + 1 :]], truth


def snapped(packets: list[Packet]) -> tuple[list[Packet], Truth]:
    """Every packet was cut after 128 bytes."""
    cut = [replace(packet, frame=packet.frame[:SHORT_SNAP_LEN]) for packet in packets]
    missing = sum(len(packet.frame) - len(short.frame) for packet, short in zip(packets, cut, strict=True))
    count = sum(packet.frame != short.frame for packet, short in zip(packets, cut, strict=True))
    return cut, {"cut_packet_count": count, "missing_bytes": missing}


def no_syn(packets: list[Packet]) -> tuple[list[Packet], Truth]:
    """The capture begins after a third of the side's segments."""
    segments = busiest(packets)
    begin = segments[len(segments) // 3]
    return packets[begin:], place(packets, begin) | {"packets_before": begin}


FAULTS: dict[str, Fault] = {
    "lost": lost,
    "reordered": reordered,
    "conflict": conflict,
    "snapped": snapped,
    "no_syn": no_syn,
}


def main(folder: Path, truth_path: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    truth: dict[str, Truth] = {}
    for protocol, source in SOURCES.items():
        packets = read(HERE / protocol / f"{source}.pcap")
        for hours, (name, fault) in enumerate(FAULTS.items(), start=1):
            made, done = fault(packets)
            made = [replace(packet, time_s=packet.time_s + hours * HOUR_S) for packet in made]
            snap_len = SHORT_SNAP_LEN if fault is snapped else 262144
            (folder / f"{protocol}_{name}.pcap").write_bytes(pcap(made, snap_len))
            truth[f"{protocol}_{name}"] = {"source": f"{protocol}/{source}", "fault": name, **done}
    truth_path.parent.mkdir(parents=True, exist_ok=True)
    truth_path.write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    main(
        given[0] if given else HERE / "faults",
        given[1] if len(given) > 1 else HERE.parent / "tests" / "truth" / "faults.json",
    )
