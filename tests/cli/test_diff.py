"""``mqpcap diff``: captures that differ in what the test put into them."""

import json
from pathlib import Path
from typing import Any

import pytest
import running
from known import pings, truth
from running import ROOT, Ended

from mqpcap.statistics.changes import Comparison, changes

CORE, FETCH = "pcaps/flymq/core.pcap", "pcaps/flymq/fetch.pcap"
QOS1 = "pcaps/blipmq/qos1.pcap"


def run(*arguments: str | Path) -> Ended:
    return running.run("diff", *arguments)


def compared(*arguments: str | Path) -> dict[str, Any]:
    said = run("-q", "--json", *arguments)
    assert (said.exit_code, said.stderr) == (0, "")
    return json.loads(said.stdout)  # type: ignore[no-any-return]


def operations(*arguments: str | Path) -> dict[str, list[str]]:
    return {row["op"]: row["change"] for row in compared(*arguments)["operations"]}


def ping_captures(folder: Path, *delays_ms: list[int]) -> list[Path]:
    out = []
    for i, some in enumerate(delays_ms):
        out.append(folder / f"{i}.pcap")
        out[-1].write_bytes(pings(some))
    return out


def test_new_and_gone_operations_and_topics_are_reported() -> None:
    logged = []
    for name in ("flymq/core", "flymq/fetch"):
        events = [event for connection in truth(name)["connections"] for event in connection["events"]]
        logged.append({event["op_name"] for event in events if event["dir"] == "c2s"})
    before, after = logged

    found = operations(CORE, FETCH)

    assert {op for op, words in found.items() if "gone" in words} == before - after
    assert {op for op, words in found.items() if "new" in words} == after - before


def test_a_capture_is_like_itself() -> None:
    found = compared(CORE, CORE)

    assert (found["operations"], found["topics"], found["clients"]) == ([], [], [])
    assert found["a"]["messages"] == found["b"]["messages"] == truth("flymq/core")["counts"]["c2s_total"] * 2


@pytest.mark.parametrize(
    ("after_ms", "words"),
    [
        ([2] * 19 + [9], None),  # the 95th percentile of 20 is the 19th: as it was
        ([2] * 18 + [3, 3], ["slower"]),  # 3 ms: one and a half times, and 1 ms more
        ([4] * 20, ["slower"]),
        ([1] * 20, ["faster"]),
        ([4] * 19, None),  # 19 values are too few
    ],
)
def test_slower_is_what_the_help_says(after_ms: list[int], words: list[str] | None, tmp_path: Path) -> None:
    before, after = ping_captures(tmp_path, [2] * 20, after_ms)

    assert operations(before, after).get("PING") == words


def test_less_than_a_millisecond_more_is_not_slower(tmp_path: Path) -> None:
    """From 3 to 4 ms is less than half as much again."""
    before, after = ping_captures(tmp_path, [3] * 20, [4] * 20)

    assert operations(before, after) == {}


def test_a_capture_that_lost_bytes_is_not_to_be_trusted() -> None:
    """The second is the first with a snap length: 157 bytes are cut."""
    found = compared("--all", QOS1, "pcaps/faults/blipmq_snapped.pcap")

    judgements = {row["judgement"] for name in ("operations", "topics", "clients") for row in found[name]}
    assert judgements == {"not to be trusted"}
    assert "the snap length cut 157 B" in found["b"]["verdicts"][0]
    text = run("-q", QOS1, "pcaps/faults/blipmq_snapped.pcap").stdout
    assert "with care: the snap length cut 157 B" in text and "\nnot to be trusted: 6 operations, 14 topics" in text
    assert "\nfaster (not to be trusted): 1 operation\n" in text


def test_malformed_messages_take_no_trust_away() -> None:
    """All bytes were captured: more than 1 % of them are in malformed messages."""
    path = "pcaps/flymq/malformed.pcap"
    found = compared("--all", path, path)

    assert (found["a"]["missing_percent"], found["a"]["loss_percent"] > 1) == (0, True)
    assert "not to be trusted" not in {row["judgement"] for name in ("operations", "topics") for row in found[name]}


def test_latencies_of_clients_are_not_compared(tmp_path: Path) -> None:
    """Other operations take other times: 20 slow PINGs instead of quick ones."""
    before, after = ping_captures(tmp_path, [2] * 20, [4] * 20)

    found = compared("--all", before, after)

    assert [row["change"] for row in found["clients"] + found["topics"]] == [[], []]


def test_directories_are_compared_as_a_whole(tmp_path: Path) -> None:
    for name, some in (("a", [CORE]), ("b", [CORE, FETCH])):
        (tmp_path / name).mkdir()
        for capture in some:
            (tmp_path / name / Path(capture).name).write_bytes((ROOT / capture).read_bytes())

    found = compared(tmp_path / "a", tmp_path / "b")

    assert not any("gone" in row["change"] for row in found["operations"])
    assert found["b"]["messages"] > found["a"]["messages"]


def sections(text: str) -> dict[str, list[list[str]]]:
    """The rows below each title of a text, as words."""
    blocks = [block.splitlines() for block in text.split("\n\n")[1:]]
    return {title: [row.split() for row in rows[1:]] for title, *rows in blocks}


def test_text_has_a_section_for_each_kind_of_change() -> None:
    """Numbers are those of `show -Y` with wc -l; what is on one side only has no arrow."""
    found = sections(run("-q", CORE, FETCH).stdout)

    assert list(found) == [
        "new: 2 operations, 1 topic", "gone: 3 operations, 5 topics", "more: 1 operation",
        "too few to judge: 2 operations, 1 topic", "alike: 1 client",
    ]  # fmt: skip
    new, _, more, few, alike = found.values()
    assert [row[:5] for row in new] == [
        ["operation", "flymq", "FETCH", "38", "2"], ["operation", "flymq", "FETCH_BINARY", "6", "0"],
        ["topic", "flymq", "events", "96", "1"],
    ]  # fmt: skip
    assert [row[:6] for row in more] == [["operation", "flymq", "PRODUCE", "18", "->", "50"]]
    assert ["topic", "flymq", "no-such-topic", "4", "->", "2", "1", "-", "-", "-"] in few
    assert alike == []


def test_slower_faster_and_failing_operations_have_sections(tmp_path: Path) -> None:
    slow, quick = ping_captures(tmp_path, [9] * 20, [2] * 20)

    for pair, title, words in ((slow, quick), "faster", "9.000 -> 2.000"), ((quick, slow), "slower", "2.000 -> 9.000"):
        found = sections(run("-q", *pair).stdout)
        assert next(iter(found)) == f"{title}: 1 operation"
        ((what, _, name, *cells),) = found[f"{title}: 1 operation"]
        assert (what, name) == ("operation", "PING") and words in " ".join(cells)


def test_all_writes_alike_groups_too() -> None:
    found = sections(run("-q", "--all", CORE, CORE).stdout)

    assert len(found["alike: 1 operation, 6 topics, 1 client"]) == 8


@pytest.mark.parametrize("sides", [("nothing.pcap", CORE), (CORE, "nothing.pcap")])
def test_a_side_that_cannot_be_read_is_a_line_and_nothing_is_compared(sides: tuple[str, str]) -> None:
    said = run("-q", *sides)

    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr == "mqpcap: nothing.pcap: no such file\n"


@pytest.mark.parametrize("words", [(CORE,), (CORE, CORE, CORE), ("-", "-")])
def test_misuse_is_exit_2(words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2


def test_the_example_of_the_help_runs() -> None:
    words = run("--help").stdout.split("Example: mqpcap diff ")[1].split()

    assert run("-q", *words).exit_code == 0


def test_fail_on_makes_a_change_exit_1() -> None:
    """Operations and topics of the second capture are new."""
    assert run("-q", CORE, FETCH).exit_code == 0
    failed = run("-q", "--fail-on", "new", CORE, FETCH)
    assert failed.exit_code == 1
    assert "mqpcap: --fail-on: " in failed.stderr and " new: " in failed.stderr
    assert run("-q", "--fail-on", "new", "--fail-on", "slower:20%", CORE, CORE).exit_code == 0
    assert run("--fail-on", "worse", CORE, CORE).exit_code == 2
    assert run("--fail-on", "new:20%", CORE, CORE).exit_code == 2


def test_fail_on_slower_by_a_percentage() -> None:
    """The median grows by 10 %, the 95th percentile by 25 %; without a percentage that is not slower."""
    before = {"messages": 40, "errors": 0, "answered": 20, "latency_p50_ns": 10_000_000, "latency_p95_ns": 20_000_000}
    after = {**before, "latency_p50_ns": 11_000_000, "latency_p95_ns": 25_000_000}
    sides = [{"op": "POLL", **row} for row in (before, after)]
    operations = changes(("op",), [sides[0]], [sides[1]], compares_latencies=True, is_trusted=True)
    comparison = Comparison((), {"operations": operations})

    assert not comparison.failures("slower")
    assert [x.key for x in comparison.failures("slower", 20.0)] == [{"op": "POLL"}]
    assert not comparison.failures("slower", 30.0)
    assert not comparison.failures("faster", 1.0)


def test_only_selected_messages_are_compared() -> None:
    """PRODUCE: 18 messages in A and 50 in B, as `show --op PRODUCE` counts; nothing else is gone or new."""
    pair = ("pcaps/flymq/core.pcap", "pcaps/flymq/fetch.pcap")
    told = json.loads(run("-q", "--json", "--all", "--op", "PRODUCE", *pair).stdout)

    assert [(x["op"], x["a"]["messages"], x["b"]["messages"]) for x in told["operations"]] == [("PRODUCE", 18, 50)]
    assert (told["a"]["messages"], told["b"]["messages"]) == (18, 50)
    assert told["b"]["verdicts"] == json.loads(run("-q", "--json", *pair).stdout)["b"]["verdicts"]


def test_filter_that_selects_nothing_is_a_note() -> None:
    said = run("--op", "NONE", "pcaps/flymq/core.pcap", "pcaps/flymq/fetch.pcap")

    assert said.exit_code == 0
    assert "note: 0 of 158 messages match; operations here: CONSUME" in said.stderr
