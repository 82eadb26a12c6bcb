"""Real captures with lost packets: the whole capture contradicts no `answered` pair and no `unanswered` request."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest
from dissection import dissect
from mutated_captures import Record, capture_bytes, records

from mqpcap.capture import captures

TESTS = Path(__file__).parent.parent
PATHS = {
    path.stem: path for path in (*TESTS.glob("tcp/captures/*.pcap"), TESTS / "decode/captures/text2pcap_sides.pcap")
}
NAMES = sorted(PATHS)
COPY_NS = 20_000
"""The other side of NAT has a packet that much later, and may be the only one that has it."""
Answers = dict[int, set[int]]


def answers(folder: Path, head: bytes, packets: Sequence[Record]) -> tuple[Answers, dict[int, set[str]]]:
    """By time of a request: the times of its replies, and its states. A packet may hold several requests."""
    (folder / "capture.pcap").write_bytes(capture_bytes(head, packets))
    (capture,) = captures([str(folder / "capture.pcap")]).captures
    replies: Answers = defaultdict(set)
    states: dict[int, set[str]] = defaultdict(set)
    for row in dissect(capture).exchanges.to_pylist():
        if row["request_ts_ns"] is not None:
            states[row["request_ts_ns"]].add(row["state"])
            if row["state"] == "answered":
                replies[row["request_ts_ns"]].add(row["reply_ts_ns"])
    return replies, states


def nearest(ts_ns: int, known: Iterable[int]) -> int:
    """The time of the same packet in the whole capture; the time itself if there is none."""
    return min(
        (time_ns for time_ns in known if abs(time_ns - ts_ns) <= COPY_NS),
        default=ts_ns,
        key=lambda time_ns: abs(time_ns - ts_ns),
    )


@pytest.mark.parametrize("percent", [1, 5])
@pytest.mark.parametrize("name", NAMES)
def test_lost_packets_contradict_no_pair(name: str, percent: int, tmp_path: Path) -> None:
    data = PATHS[name].read_bytes()
    packets = records(data)
    plain_replies, plain_states = answers(tmp_path, data[:24], packets)
    for seed in range(12):
        dice = Random(f"{name} {percent} {seed}")
        kept = [packet for packet in packets if dice.random() * 100 >= percent]
        replies, states = answers(tmp_path, data[:24], kept)

        for ts_ns, times in replies.items():
            known = plain_replies.get(nearest(ts_ns, plain_replies), times)
            assert {nearest(reply_ns, known) for reply_ns in times} <= known, seed
        for ts_ns in (ts_ns for ts_ns, of_request in states.items() if "unanswered" in of_request):
            assert plain_states.get(nearest(ts_ns, plain_states)) != {"answered"}, seed


def test_there_are_pairs_to_contradict(tmp_path: Path) -> None:
    counts = {}
    for name in NAMES:
        data = PATHS[name].read_bytes()
        counts[name] = sum(map(len, answers(tmp_path, data[:24], records(data))[0].values()))

    assert len([name for name, count in counts.items() if count]) >= 5, counts
