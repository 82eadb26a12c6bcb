"""Sample captures that begin late, lose packets or have skewed clocks: no certain pair is wrong, and how many are left.

The pairs of the whole capture are the truth; those are checked against the truth files in `test_exchanges`.
"""

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from degraded_captures import KEYS, OTHER_WAYS, WAYS, degraded, measured, packets, pairs, pairs_of_truth, write
from examples import multiplied, one_in

import mqpcap
from mqpcap.protocols import protocols
from mqpcap.schema.protocol import DIRECTIONS

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

    Every second capture is degraded in half of the other ways, by turns.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for number, path in enumerate(one_in(2, sorted((PCAPS / protocol).glob("*.pcap")))):
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


def states(path: Path, numbers: Sequence[int]) -> dict[tuple[int, int], tuple[str, set[int]]]:
    """By request, its state, and the packets from the first to the last of its reply.

    A request is its last packet, and how many messages end in that packet after it.

    ``numbers``: those that the packets of the capture have in the whole one.
    """
    recording, by_packet = mqpcap.open(path), Counter[int]()
    messages = sorted(recording.messages.select([*KEYS, "flaw"]).to_pylist(), key=lambda row: -row["stream_offset"])
    of_place: dict[tuple[int, str, int], tuple[tuple[int, int], set[int]]] = {}
    for row in messages:
        first, last = (numbers[row[name] - 1] for name in ("first_packet", "last_packet"))
        if row["flaw"] is None:
            place = row["connection_id"], row["direction"], row["stream_offset"]
            of_place[place] = (last, by_packet[last]), set(range(first, last + 1))
        by_packet[last] += 1
    found = dict[tuple[int, int], tuple[str, set[int]]]()
    for row in recording.exchanges.to_pylist():
        sides = DIRECTIONS if row["request_direction"] == "c2s" else DIRECTIONS[::-1]
        request, reply = (
            of_place.get((row["connection_id"], side, row[offset]))
            for side, offset in zip(sides, ("request_offset", "reply_offset"), strict=True)
        )
        if request is not None:
            found[request[0]] = row["state"], reply[1] if reply else set()
    return found


LOST_BEFORE_A_RESET = {
    "mqtt/v311_offline_dup.pcap": {9, 15, 19, 20, 35, 52, 62, 90, 105, 126, 127, 135},
    "kokaq/go1_session.pcap": {356, 357},
}
"""Packets with the last replies of a connection. The first is reset by the side that asked: its RST says nothing of
bytes that were on their way. The RST of the second is behind bytes that nothing else shows."""


@pytest.mark.parametrize("name", LOST_BEFORE_A_RESET)
def test_a_reply_that_was_lost_before_a_reset_is_not_said_to_be_missing(name: str, tmp_path: Path) -> None:
    content = (PCAPS / name).read_bytes()
    kept = [p for p in packets(content) if p.number not in LOST_BEFORE_A_RESET[name]]
    write(tmp_path / "lost.pcap", content[:24], kept)

    whole = states(PCAPS / name, range(1, len(packets(content)) + 1))
    found = states(tmp_path / "lost.pcap", [p.number for p in kept])
    lost = {key for key, (state, reply) in whole.items() if state == "answered" and reply & LOST_BEFORE_A_RESET[name]}
    assert {found[key][0] for key in lost & found.keys()} == {"unknown"}
    unanswered = {key for key, (state, _) in found.items() if state == "unanswered"}
    assert unanswered
    assert {whole[key][0] for key in unanswered} == {"unanswered"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_request_without_a_reply_is_contradicted_by_the_whole_capture(protocol: str, tmp_path: Path) -> None:
    """The whole capture has no reply to an `unanswered` or `silent` one, and the packets of a `lost` reply are gone."""
    false, count = [], 0
    for number, path in enumerate(one_in(2, sorted((PCAPS / protocol).glob("*.pcap")))):
        content = path.read_bytes()
        if content[:4] != b"\xd4\xc3\xb2\xa1":
            continue
        whole = states(path, range(1, len(packets(content)) + 1))
        for turn in range(number, number + multiplied(1)):
            way = ("lost 5%", "late")[turn % 2]
            kept = degraded(way, packets(content), random.Random(f"{path.name} {turn}"), turn)
            write(tmp_path / "degraded.pcap", content[:24], kept)
            numbers = [p.number for p in kept]
            for key, (state, _) in states(tmp_path / "degraded.pcap", numbers).items():
                true_state, reply = whole.get(key, (state, {0}))
                is_false = state in ("unanswered", "silent", "not_expected") and true_state == "answered"
                is_false |= state == "lost" and (true_state not in ("answered", "lost") or reply <= {*numbers})
                false += [(path.name, way, turn, key, state, true_state)] if is_false else []
                count += state in ("unanswered", "silent", "not_expected", "lost")

    assert false == []
    assert count


def test_a_refusal_of_version_2_only_answers_its_publish_where_the_version_is_not_known(tmp_path: Path) -> None:
    """The capture begins at packet 52; packet 74 refuses the topic with NUL of packet 72, which version 1 takes."""
    path = PCAPS / "blipmq/synthetic_v2_plain.pcap"
    content = path.read_bytes()
    write(tmp_path / "late.pcap", content[:24], packets(content)[51:])

    assert states(tmp_path / "late.pcap", range(52, 1000))[72, 0] == ("answered", {74})


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
