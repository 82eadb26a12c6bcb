"""Captures as they really are, begun late or with losses, and how many of their pairs are still found.

Each way leaves some packets of a capture, or changes their order or times. The pairs of the degraded capture are
compared with those of the whole one, as far as both messages of a pair are still there. Pairs that the whole capture
leaves unknown are taken from the clients' log.

late        the capture begins at a random packet
window      it also ends at a random packet
lost N%     packets are missing at random
burst N%    as many packets are missing, 10 to 200 in a row
no SYN      the first SYN or the first SYN-ACK of each connection is missing
early       packets of one direction are stamped 3 ms early, in order of time; by turns the clients' and the servers'
one side    packets of one direction are missing, by turns the clients' and the servers'
swapped     one packet in ten comes before the one in front of it, at the same time
"""

import json
import random
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dissection import dissect

from mqpcap.capture import captures
from mqpcap.pipeline import Options
from mqpcap.schema.protocol import DIRECTIONS

WAYS = ("late", "window", "lost 1%", "lost 5%", "no SYN", "early")
HEAVY_WAYS = ("lost 10%", "burst 5%", "burst 20%")
OTHER_WAYS = ("lost 0.1%", "one side", "swapped")
KEYS = ["connection_id", "direction", "stream_offset", "first_packet", "last_packet"]
LINK_HEADERS = {0: 4, 1: 14, 101: 0, 113: 16}
TRUTH = Path(__file__).resolve().parents[1] / "truth"
EARLY_NS = 3_000_000
ENDPOINT = {"c2s": "src_port", "s2c": "dst_port"}
"""By direction, the column with the client's port."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet record: its number in the whole capture, time, bytes, ports of sender and receiver, and flags.

    ``payload_bytes``: captured bytes of TCP's payload.
    """

    number: int
    ts_ns: int
    record: bytes
    ports: tuple[int, int]
    flags: int
    payload_bytes: int = 0


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
        ports, flags, payload = (0, 0), 0, 0
        ip = LINK_HEADERS.get(link, 14)
        if len(data) > ip and data[ip] >> 4 in (4, 6):
            tcp = ip + (40 if data[ip] >> 4 == 6 else 4 * (data[ip] & 15))
            if len(data) >= tcp + 14:
                ports, flags = struct.unpack_from(">HH", data, tcp), data[tcp + 13]
                length = struct.unpack_from(">H", data, ip + (4 if data[ip] >> 4 == 6 else 2))[0]
                payload = ip + 40 * (data[ip] >> 4 == 6) + length - tcp - 4 * (data[tcp + 12] >> 4)
        found.append(Packet(len(found) + 1, seconds * 10**9 + micros * 1000, data, ports, flags, payload))
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
                directions = DIRECTIONS if row["request_direction"] == "c2s" else DIRECTIONS[::-1]
                sides = zip(directions, (row["request_offset"], row["reply_offset"]), strict=True)
                yield row | {"messages": [messages[row["connection_id"], *side] for side in sides]}


def pairs_of_truth(path: Path) -> Iterator[Pair]:
    """The pairs that clients logged, where the log says which request a reply answers.

    The log is NAME.truth.json beside the capture or in ``tests/truth``. If a side has as many messages as events, the
    n-th event is the n-th message.
    """
    name = path.with_suffix(".truth.json").name
    log = next((x for x in (path.parent / name, TRUTH / path.parent.name / name) if x.exists()), None)
    logged = json.loads(log.read_text()) if log is not None else {}
    connections = [c for c in logged.get("connections", []) if "events" in c] if "connections" in logged else []
    rows = (
        [] if not connections else dissect(captures([str(path)]).captures[0], Options()).table("messages").to_pylist()
    )
    for connection in connections:
        indexes = {side: [i for i, e in enumerate(connection["events"]) if e["dir"] == side] for side in ENDPOINT}
        place: dict[int, tuple[int, int]] = {}
        for side, of_side in indexes.items():
            port = connection.get("client_port")
            sent = [r for r in rows if r["direction"] == side and r[ENDPOINT[side]] == port]
            sent.sort(key=lambda row: row["stream_offset"])
            if len(sent) == len(of_side):
                place |= {i: (r["first_packet"], r["last_packet"]) for i, r in zip(of_side, sent, strict=True)}
        for i, event in enumerate(connection["events"]):
            if event.get("answers") in place and i in place:
                yield Pair(logged["protocol"].lower(), place[event["answers"]], place[i])


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
    if way.startswith("burst"):
        return bursts(whole, float(way[6:-1]) / 100, chance)
    if way == "no SYN":
        flags = 2 if turn % 2 else 18
        return [p for p in whole if p.flags & 18 != flags]
    if way == "one side":
        return [p for p in whole if (p.ports[0] < p.ports[1]) == bool(turn % 2)]  # servers have the lower ports
    if way == "swapped":
        kept = list(whole)
        for i in range(1, n):
            if chance.random() < 0.1:
                kept[i - 1], kept[i] = replace(kept[i], ts_ns=kept[i - 1].ts_ns), kept[i - 1]
        return kept
    shifted = [replace(p, ts_ns=p.ts_ns - EARLY_NS * ((p.ports[0] in servers) == bool(turn % 2))) for p in whole]
    return sorted(shifted, key=lambda p: p.ts_ns)


def bursts(whole: Sequence[Packet], share: float, chance: random.Random) -> list[Packet]:
    """The packets without runs of 10 to 200, which are a share of all; a short capture loses shorter runs."""
    kept, at, longest = list[Packet](), 0, max(min(200, len(whole) // 5), 1)
    while at < len(whole):
        lost = chance.randrange(min(10, longest), longest + 1)
        left = max(round(chance.expovariate(share / (lost * (1 - share)))), 1)
        kept += whole[at : at + left]
        at += left + lost
    return kept


def measured(
    path: Path, tries: int, seed: int, ways: Sequence[str] = WAYS, first_turn: int = 0
) -> Counter[tuple[str, str, str]]:
    """Counts by protocol, way and what was found; and of likely pairs by evidence, as ``how ...``."""
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
        asked, answered = {pair.request for pair in known}, {pair.reply for pair in known}
        known += (x for x in pairs_of_truth(path) if x.request not in asked and x.reply not in answered)
        for way in ways:
            for turn in range(first_turn, first_turn + tries):
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
        if row["state"] == "likely":
            counts[row["protocol"], way, f"how {row['how']}"] += 1
        key = row["protocol"], row["request_ts_ns"], row["reply_ts_ns"]
        if right[key]:
            right[key] -= 1
            if there[key]:
                there[key] -= 1
                counts[key[0], way, row["state"]] += 1
        elif key[:2] in asked and (key[0], key[2]) in answers:
            counts[key[0], way, f"wrong {row['state']}"] += 1
