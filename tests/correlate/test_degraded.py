"""Sample captures that begin late, lose packets or have skewed clocks: no certain pair is wrong, and how many are left.

The pairs of the whole capture are the truth; those are checked against the truth files in `test_exchanges`.
"""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from degraded_captures import OTHER_WAYS, WAYS, measured, packets, pairs, pairs_of_truth, write
from examples import multiplied

import mqpcap
from mqpcap.protocols import protocols

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
PROTOCOLS = [name for name in protocols() if (PCAPS / name).is_dir()]
EVIDENCE = {"how alternation", "how pause", "how length", "how close"}
"""What a likely pair may rest on, as the tables promise."""
OTHERS = (*WAYS[1:], *OTHER_WAYS)
LEAST = {"late": 90, "lost 1%": 90, "no SYN": 99, "early": 99, "swapped": 99}
"""Pairs that are found, certain or likely, in percent."""


@cache
def counts_of(protocol: str) -> Counter[tuple[str, str]]:
    """How many pairs were found in the captures of a protocol, by way and state.

    Captures are degraded in half of the other ways, by turns.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for number, path in enumerate(sorted((PCAPS / protocol).glob("*.pcap"))):
        found = measured(path, multiplied(2), 1, ["late"])
        found += measured(path, multiplied(1), 1, OTHERS[number % 2 :: 2], number // 2)
        for (name, way, what), count in found.items():
            if name == protocol:
                counts[way, what] += count
    return counts


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_most_pairs_of_degraded_captures_are_found(protocol: str) -> None:
    counts = counts_of(protocol)

    assert counts["one side", "answered"] == counts["one side", "likely"] == 0
    shares = {
        way: 100 * (counts[way, "answered"] + counts[way, "likely"]) / max(counts[way, "there"], 1) for way in LEAST
    }
    assert {way: share for way, share in shares.items() if share < LEAST[way]} == {}


def test_pairs_of_degraded_captures_are_right() -> None:
    total = Counter[str]()
    for protocol in PROTOCOLS:
        for (_, what), count in counts_of(protocol).items():
            total[what] += count

    assert total["wrong answered"] == 0
    assert total["wrong likely"] <= 0.005 * total["likely"]
    assert {what for what in total if what.startswith("how ")} <= EVIDENCE


def test_the_truth_of_what_a_capture_leaves_unknown_is_what_clients_logged() -> None:
    """BlipMQ's clients logged which request each reply answers: all certain pairs agree, and one more is known."""
    path = PCAPS / "blipmq" / "midstream.pcap"
    found = {tuple((m["first_packet"], m["last_packet"]) for m in row["messages"]) for row in pairs(path)}
    logged = {(pair.request, pair.reply) for pair in pairs_of_truth(path)}

    assert found < logged
    assert len(logged - found) == 1


@pytest.mark.parametrize("lost_replies", [0, 1])
def test_the_first_message_of_fq_opens_a_connection_without_a_handshake(lost_replies: int, tmp_path: Path) -> None:
    """No client sends it later, so nothing is open before it. A lost reply is known by its acknowledgement."""
    whole = PCAPS / "fq" / "session.pcap"
    content = whole.read_bytes()
    kept = [p for p in packets(content) if not p.flags & 2]
    first_replies = [p.number for p in kept if p.ports[0] == 8765 and p.flags & 8][:lost_replies]
    write(tmp_path / "late.pcap", content[:24], [p for p in kept if p.number not in first_replies])

    times = {p.number: p.ts_ns for p in kept}
    expected = {
        (row["request_ts_ns"], row["reply_ts_ns"])
        for row in pairs(whole)
        if not {m["first_packet"] for m in row["messages"]} & {*first_replies}
        and row["messages"][0]["first_packet"] in times
    }
    found = {
        (row["request_ts_ns"], row["reply_ts_ns"])
        for row in pairs(tmp_path / "late.pcap")
        if row["state"] == "answered"
    }
    assert found == expected
    assert len(expected) >= 5


OPENINGS = {"blipmq": ("HELLO", "1"), "mqtt": ("CONNECT", None)}
"""Operation and id of a message that only opens a connection; a client of BlipMQ counts its ids from 1."""


@pytest.mark.parametrize("protocol", OPENINGS)
def test_packets_with_payload_are_enough_where_the_first_message_opens_the_connection(
    protocol: str, tmp_path: Path
) -> None:
    """What Wireshark saves after a display filter: no handshake, no pure acknowledgement, no end."""
    pair_count = 0
    for path in sorted((PCAPS / protocol).glob("*.pcap")):
        content = path.read_bytes()
        if content[:4] != b"\xd4\xc3\xb2\xa1":
            continue
        kept = [p for p in packets(content) if p.payload_bytes]
        write(tmp_path / path.name, content[:24], kept)
        opened: set[int] = set()
        columns = ["connection_id", "direction", "stream_offset", "flaw", "op", "correlation_id"]
        for row in mqpcap.open(path).messages.select(columns).to_pylist():
            if (row["direction"], row["stream_offset"], row["flaw"]) == ("c2s", 0, None):
                opened |= {row["connection_id"]} if (row["op"], row["correlation_id"]) == OPENINGS[protocol] else set()

        expected = {
            (row["request_ts_ns"], row["reply_ts_ns"])
            for row in pairs(path)
            if row["state"] == "answered" and row["connection_id"] in opened
        }
        found = {(row["request_ts_ns"], row["reply_ts_ns"]) for row in pairs(tmp_path / path.name)}
        assert expected - found == set(), path.name
        pair_count += len(expected)
    assert pair_count > 300
