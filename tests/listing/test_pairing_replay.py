"""The replay of a connection's pairing: steps of the matcher, in the words of ``explain --pairing``."""

import random
import re
from pathlib import Path

import made_flymq
from capture_files import cut
from degraded_captures import degraded, packets, write
from running import objects, run

import mqpcap
from mqpcap.correlate.span_alignment import MIN_MARGIN

CORE = "pcaps/flymq/core.pcap"
LOST = "pcaps/faults/blipmq_lost.pcap"


def test_a_late_start_is_decided_backward_from_the_end(tmp_path: Path) -> None:
    """Packets 1 to 19 are missing; the client closes in order, and FlyMQ answers all requests before it does."""
    path = cut(CORE, 20, 131, tmp_path / "late.pcap")
    lines = run("explain", path, "--pairing", "c1").stdout.splitlines()

    assert lines[0].endswith("flymq")
    assert lines[2] == "  the capture begins inside: any number of requests may be open"
    assert lines[3:5] == [
        "  request #3 LIST_TOPICS: answered (order); ring 2",
        "  reply #4 LIST_TOPICS may answer requests that were not captured up to #3 LIST_TOPICS (2 places)",
    ]
    (decided,) = (i for i, line in enumerate(lines) if line == "  decided: the connection ends in order")
    assert len(lines[decided + 1 :]) == 26, "packets 22 to 131 have 26 requests with their replies"
    assert lines[decided + 1] == "  => #4 LIST_TOPICS answers #3 LIST_TOPICS: certain (order)"


def test_a_pair_by_lengths_says_its_margin(tmp_path: Path) -> None:
    """Of likely pairs by the lengths of holes it is said how far the next best alignment is behind."""
    whole = Path(CORE).read_bytes()
    path = tmp_path / "lossy.pcap"
    write(path, whole[:24], degraded("lost 10%", packets(whole), random.Random(3), 0))
    said = re.findall(r"=> .* answers .*: likely \(length, (.*)\)", run("explain", path, "--pairing", "c1").stdout)

    margins = [int(words.split()[0]) for words in said if words != "no other fits"]
    assert "no other fits" in said
    assert margins and min(margins) >= MIN_MARGIN
    assert {words.split(maxsplit=1)[1] for words in said if words != "no other fits"} == {"nats before the next best"}


def test_without_its_end_a_late_start_says_what_evidence_there_is(tmp_path: Path) -> None:
    """The client waits for each reply, with equal times: nothing tells it from one with two open requests."""
    path = cut(CORE, 20, 40, tmp_path / "window.pcap")
    ended = run("explain", path, "--pairing", "c1")

    assert "  decided: the capture of the connection ends" in ended.stdout
    assert "assumption alternation: " in ended.stdout
    (replay,) = objects(run("explain", "--json", path, "--pairing", "c1"))
    (group,) = replay["groups"]  # type: ignore[misc]  # JSON
    assert {step["step"] for step in group["steps"]} >= {"start", "request", "reply", "decision", "assumption"}  # type: ignore[index]


def test_at_shows_the_span_of_one_message() -> None:
    """POLL 13 and the ACK in front of it are of another span than PUBLISH 12, which POLL 13 settles."""
    lines = run("explain", LOST, "--pairing", "c1", "--at", "17").stdout.splitlines()

    assert lines[2:] == [
        "  request #16 ACK: silent; ring 1", "  request #17 PING: answered (echo); ring 2",
        "  => #19 PONG answers #17 PING: certain (echo)",
    ]  # fmt: skip
    assert run("explain", LOST, "--pairing", "c1", "--at", "9999").exit_code == 1


def test_named_replies_are_replayed_by_name() -> None:
    lines = run("explain", "pcaps/kokaq/" + sorted(x.name for x in Path("pcaps/kokaq").glob("*.pcap"))[0], "--pairing",
                "c1").stdout.splitlines()  # fmt: skip

    assert lines[1] == "replies repeat a name of their request"


def test_a_connection_without_requests_says_so() -> None:
    strangers = sorted(Path("pcaps/strangers").glob("*.pcap"))[0]

    assert "no request that may get a reply" in run("explain", strangers, "--pairing", "c1").stdout


def test_misuse_is_one_line_and_2() -> None:
    for words in (("--pairing", "zz"), ("--pairing", "c1", "--direction", "c2s")):
        ended = run("explain", LOST, *words)
        assert (ended.exit_code, ended.stderr.count("\n")) == (2, 1), words


def test_lines_of_a_message_hold_its_decision_however_many_requests_are_open(tmp_path: Path) -> None:
    """300 requests before 300 replies; packets 4, 6, ... are requests, 604, 606, ... replies, with ACKs between."""
    requests, replies = zip(*(made_flymq.commit("orders", "g", k) for k in range(300)), strict=True)
    path = made_flymq.capture(tmp_path / "made.pcap", [*requests, *replies])

    lines = list(mqpcap.explain(path, pairing="c1", at=304).lines())

    assert "  => #904 COMMIT answers #304 COMMIT orders: certain (order)" in lines
    assert len(lines) < 100
