"""Pairs of captures as they really are: ``python tests/bench/degraded.py CAPTURE... [--tries N] [--seed N]``.

Not a test: run it by hand. Each capture is degraded TRIES times in each of the ways below. The pairs of the degraded
capture are compared with those of the whole one, as far as both messages of a pair are still there. A row a protocol
and way: pairs that are there, certain and likely ones that were found, and wrong ones of each.

late     the capture begins at a random packet
window   it also ends at a random packet
lost 1%, lost 5%   packets are missing at random
no SYN   the first SYN or the first SYN-ACK of each connection is missing
early    packets of one direction are stamped 3 ms early, in order of time; by turns the clients' and the servers'
"""

import argparse
import random
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mqpcap.capture import captures
from mqpcap.pipeline import Options, dissect

WAYS = ("late", "window", "lost 1%", "lost 5%", "no SYN", "early")
KEYS = ["connection_id", "direction", "stream_offset", "first_packet", "last_packet"]
LINK_HEADERS = {0: 4, 1: 14, 101: 0, 113: 16}
EARLY_NS = 3_000_000


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet record: its number in the whole capture, time, bytes, ports of sender and receiver, and flags."""

    number: int
    ts_ns: int
    record: bytes
    ports: tuple[int, int]
    flags: int


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair of the whole capture, by the packets that its messages begin and end in."""

    protocol: str
    request: tuple[int, int]
    reply: tuple[int, int]


def packets(content: bytes) -> list[Packet]:
    """The packets of a pcap file in microseconds, little endian."""
    link, at, found = struct.unpack_from("<I", content, 20)[0], 24, []
    while at + 16 <= len(content):
        seconds, micros, size, _ = struct.unpack_from("<IIII", content, at)
        data = content[at + 16 : at + 16 + size]
        ports, flags = (0, 0), 0
        ip = LINK_HEADERS.get(link, 14)
        if len(data) > ip and data[ip] >> 4 in (4, 6):
            tcp = ip + (40 if data[ip] >> 4 == 6 else 4 * (data[ip] & 15))
            if len(data) >= tcp + 14:
                ports, flags = struct.unpack_from(">HH", data, tcp), data[tcp + 13]
        found.append(Packet(len(found) + 1, seconds * 10**9 + micros * 1000, data, ports, flags))
        at += 16 + size
    return found


def write(path: Path, head: bytes, kept: Sequence[Packet]) -> None:
    """Write packets to a file."""
    with path.open("wb") as out:
        out.write(head)
        for p in kept:
            out.write(struct.pack("<IIII", p.ts_ns // 10**9, p.ts_ns % 10**9 // 1000, len(p.record), len(p.record)))
            out.write(p.record)


def pairs(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of ``exchanges`` with a pair, and both messages."""
    for capture in captures([str(path)]).captures:
        result = dissect(capture, Options())
        rows = result.table("messages").select(KEYS).to_pylist()
        messages = {(m["connection_id"], m["direction"], m["stream_offset"]): m for m in rows}
        for row in result.table("exchanges").to_pylist():
            if row["state"] in ("answered", "likely"):
                sides = ("c2s", row["request_offset"]), ("s2c", row["reply_offset"])
                yield row | {"messages": [messages[row["connection_id"], *side] for side in sides]}


def degraded(way: str, whole: Sequence[Packet], chance: random.Random, turn: int) -> list[Packet]:
    """The packets that are left, or their times changed."""
    n, servers = len(whole), {p.ports[0] for p in whole if p.flags & 18 == 18}
    if way in ("late", "window"):
        first = chance.randrange(n // 10, max(n * 2 // 3, n // 10 + 1))
        last = n if way == "late" else chance.randrange(first + (n - first) // 2, n + 1)
        return list(whole[first:last])
    if way.startswith("lost"):
        share = float(way[5:-1]) / 100
        return [p for p in whole if chance.random() >= share]
    if way == "no SYN":
        flags = 2 if turn % 2 else 18
        return [p for p in whole if p.flags & 18 != flags]
    shifted = [
        Packet(p.number, p.ts_ns - EARLY_NS * ((p.ports[0] in servers) == bool(turn % 2)), p.record, p.ports, p.flags)
        for p in whole
    ]
    return sorted(shifted, key=lambda p: p.ts_ns)


def measured(path: Path, tries: int, seed: int) -> Counter[tuple[str, str, str]]:
    """Counts by protocol, way and what was found."""
    content, counts = path.read_bytes(), Counter[tuple[str, str, str]]()
    if content[:4] != b"\xd4\xc3\xb2\xa1":
        return counts
    whole, chance = packets(content), random.Random(f"{path.name} {seed}")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "degraded.pcap"
        known: list[Pair] = []
        for row in pairs(path):
            request, reply = ((m["first_packet"], m["last_packet"]) for m in row["messages"])
            known.append(Pair(row["protocol"], request, reply))
        for way in WAYS:
            for turn in range(tries):
                kept = degraded(way, whole, chance, turn)
                if not kept:
                    continue
                write(target, content[:24], kept)
                count(way, known, {p.number: p.ts_ns for p in kept}, list(pairs(target)), counts)
    return counts


def count(
    way: str, known: Sequence[Pair], times: dict[int, int], found: Sequence[dict[str, Any]],
    counts: Counter[tuple[str, str, str]],
) -> None:  # fmt: skip
    """Compare the pairs of a degraded capture with those of the whole one."""
    there, right = Counter[tuple[str, int, int]](), Counter[tuple[str, int, int]]()
    for pair in known:
        if pair.request[0] in times and pair.reply[0] in times:
            key = pair.protocol, times[pair.request[0]], times[pair.reply[0]]
            right[key] += 1
            there[key] += pair.request[1] in times and pair.reply[1] in times
    asked, answers = {key[:2] for key in right}, {(key[0], key[2]) for key in right}
    for key, n in there.items():
        counts[key[0], way, "there"] += n
    for row in found:
        key = row["protocol"], row["request_ts_ns"], row["reply_ts_ns"]
        if right[key]:
            right[key] -= 1
            if there[key]:
                there[key] -= 1
                counts[key[0], way, row["state"]] += 1
        elif key[:2] in asked and (key[0], key[2]) in answers:
            counts[key[0], way, f"wrong {row['state']}"] += 1


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", nargs="+", type=Path)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    paths = [p for c in options.captures for p in (sorted(c.glob("**/*.pcap")) if c.is_dir() else [c])]
    total = Counter[tuple[str, str, str]]()
    with ProcessPoolExecutor(options.jobs) as pool:
        for counts in pool.map(partial(measured, tries=options.tries, seed=options.seed), paths):
            total.update(counts)
    print(f"{'':10}{'':10}{'there':>8}{'certain':>10}{'likely':>10}{'wrong':>8}{'likely, wrong':>15}")
    for protocol in sorted({key[0] for key in total}):
        for way in WAYS:
            n = total[protocol, way, "there"]
            shares = [f"{100 * total[protocol, way, state] / max(n, 1):.1f}%" for state in ("answered", "likely")]
            wrong = [total[protocol, way, f"wrong {state}"] for state in ("answered", "likely")]
            print(f"{protocol:10}{way:10}{n:8}{shares[0]:>10}{shares[1]:>10}{wrong[0]:8}{wrong[1]:15}")


if __name__ == "__main__":
    main()
