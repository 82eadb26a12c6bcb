"""Pairs that are only likely: their latencies count, it is said how many there are, and a filter leaves them out."""

from pathlib import Path

import pytest
from capture_files import cut
from running import objects, run

import mqpcap

GROUPS = "pcaps/flymq/groups.pcap"
NOTE = "13 of 13 latencies are of likely pairs; stats -Y 'state == answered' leaves them out"


@pytest.fixture
def late(tmp_path: Path) -> Path:
    """A client that waits for each of 13 replies, from the middle: its pauses show that it waits."""
    return cut(GROUPS, 30, 90, tmp_path / "late.pcap")


def test_stats_use_likely_latencies_and_say_how_many(late: Path) -> None:
    ended = run("stats", late)

    assert NOTE in ended.stderr
    assert "likely" in ended.stdout.splitlines()[0].split()
    assert sum(int(str(row["likely"])) for row in objects(run("stats", "--json", late))) == 13
    assert "likely" not in run("stats", GROUPS).stdout


def test_a_filter_leaves_them_out(late: Path) -> None:
    rows = objects(run("stats", "--json", late, "-Y", "state == answered"))

    assert not rows
    assert NOTE not in run("stats", late, "-Y", "state == answered").stderr


@pytest.mark.parametrize("words", [("stats", "--slowest", "3"), ("stats", "--delays"), ("report", "--out", "-")])
def test_each_face_with_latencies_says_so(words: tuple[str, ...], late: Path) -> None:
    ended = run(*words, late)

    assert "13 of 13 latencies are of likely pairs" in ended.stderr + ended.stdout


def test_the_slowest_have_their_state_and_evidence(late: Path) -> None:
    rows = objects(run("stats", "--slowest", "3", "--json", late))

    assert {(row["state"], row["how"]) for row in rows} == {("likely", "alternation")}


def test_diff_says_so_of_either_side_once(late: Path) -> None:
    notes = run("diff", GROUPS, late).stderr.splitlines()

    assert [line for line in notes if "likely" in line] == [f"note: B: {NOTE}"]


def test_a_reply_stamped_early_leaves_its_pair_and_a_note(tmp_path: Path) -> None:
    """The server's packets are stamped 3 ms early: no latency, the same pairs, and by how much the clocks differ."""
    path = cut("pcaps/flymq/core.pcap", 1, 131, tmp_path / "skewed.pcap", {9092: -3000})
    (report,) = mqpcap.info(path)
    notes = run("info", path).stdout

    assert report.pairs["flymq"]["certain"] == mqpcap.info("pcaps/flymq/core.pcap")[0].pairs["flymq"]["certain"]
    assert "are stamped before their requests, so these have no latency" in notes
    (difference,) = (line for line in notes.splitlines() if "the clocks of two interfaces differ by" in line)
    assert 2.0 < float(difference.split("differ by ")[1].split(" ms")[0]) < 3.0


def test_a_capture_with_open_requests_is_not_whole(tmp_path: Path) -> None:
    """The last packet is a request; the connection's start was captured, and nothing is missing."""
    path = cut("pcaps/flymq/core.pcap", 1, 10, tmp_path / "open.pcap")

    assert mqpcap.info(path)[0].verdict() == "with care: 1 request has no known outcome"
