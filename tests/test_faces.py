"""A matrix: the command and the call of the same name, with the same words, give the same rows or the same refusal.

Each case is a call; the words of the command are made of it. What is refused is refused on both faces by one sentence.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import pytest
from running import ROOT, objects, run

import mqpcap
from mqpcap.cli import main
from mqpcap.listing.field_lines import json_line
from mqpcap.tables.json_lines import json_object, json_text, with_exact_numbers

QOS1 = "pcaps/blipmq/qos1.pcap"
ERRORS = "pcaps/blipmq/errors.pcap"
SESSION = "pcaps/fq/session.pcap"
CORE = "pcaps/flymq/core.pcap"
LOST = "pcaps/faults/blipmq_lost.pcap"
HELLO = "00 00 00 05 01 00 00 00 07"
SELECTIONS: tuple[dict[str, Any], ...] = (
    {"op": "PUB*"}, {"op": ["poll", "PING"]}, {"topic": "q*"}, {"client": "127.0.0.1:39290"}, {"server": ":5555"},
    {"connection": "c2"}, {"connection": ["c2", "c3"]}, {"protocol": "BlipMQ"}, {"status": "error"},
    {"grep": "first"}, {"since": "+1s"}, {"since": "-1s"}, {"until": "+1s"}, {"since": "+1s", "until": "+1s"},
    {"flawed": True}, {"unanswered": True}, {"slower_than": "40ms"}, {"slower_than": "0.04"},
    {"filter": "latency > 40ms"}, {"filter": 'body contains "first"'}, {"filter": "topic == q1", "op": "POLL"},
    {"filter": "frame.time_relative > 1"}, {"filter": "tcp.stream == 1"},
    # refused
    {"filter": "op = = x"}, {"filter": "nothing == 1"}, {"since": "noon"}, {"slower_than": "soon"},
    {"unanswered": True, "slower_than": "1s"}, {"client": "nobody"}, {"connection": "z9"},
    {"grep": "first", "bodies": "none"}, {"filter": 'body contains "x"', "bodies": "none"},
)  # fmt: skip
"""The words that commands and calls with a filter take."""
SELECTED: tuple[dict[str, Any], ...] = (
    {"protocol": "BlipMQ", "op": "PUB*", "topic": "q*", "client": "127.0.0.1", "server": ":5555", "connection": "c1",
     "since": "+0s", "until": "+60s", "filter": "packet > 1", "grep": "first"},
    {"connection": "c2", "status": "ok"}, {"connection": "c2", "slower_than": "1ns"}, {"flawed": True},
    {"unanswered": True}, {"op": ["poll", "PING"], "since": "-1s"},
)  # fmt: skip
"""All of these words in few cases."""
COMMON: tuple[dict[str, Any], ...] = (
    {"decode_as": {5555: "BlipMQ"}, "show_secrets": True, "jobs": 1, "max_memory_bytes": 1 << 21, "one": True},
    {"keylog": "tests/truth/flymq/tls.keylog"},
)
FORMS = {
    "--json", "--csv", "--fields", "--header", "-u", "-t", "--color", "-v", "-x", "--raw-body", "--bodies-to",
    "--body-encoding", "--readings", "--all", "--markdown", "-c", "--raw", "--sql",
}  # fmt: skip
"""How a command writes its rows; a call gives them."""
ENDINGS = {"-q", "--strict", "-e", "--max-loss", "--fail-on"}
"""What a command says beside its rows, and when it fails."""
LIVE = {"-i", "-f", "--follow", "--every", "--rotate", "--ring"}
"""Input that has no end; `mqpcap.live_stats` is its call."""
ELSEWHERE = {
    ("export", "--append"), ("export", "--finish"), ("export", "--rebuild"), ("export", "--remove"),
    ("lake", "--optimize"), ("lake", "--vacuum"), ("lake", "--keep"), ("wireshark", "--install"),
    ("extract", "--anonymise"), ("extract", "--key-file"), ("extract", "--bodies-as"), ("extract", "--names-as"),
}  # fmt: skip
"""Upkeep of a lake (``cli/test_lake.py``), Wireshark's folder (``dissectors``), new keys (``cli/test_share.py``)."""
CASES: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    *(("show", (QOS1,), words) for words in SELECTIONS),
    *(("stats", (QOS1,), words) for words in SELECTIONS),
    *(("diff", (QOS1, ERRORS), words) for words in SELECTIONS[::7]),
    *(("show", (CORE,), words) for words in ({"bodies": "none"}, {"bodies": 3}, {"bodies": "full"}, {"bodies": 0},
                                             {"show_secrets": True})),
    *(("stats", (QOS1,), words) for words in (
        {}, {"by": "op"}, {"by": "OP,topic"}, {"by": ["op", "blipmq.qos"]}, {"by": "connection"}, {"by": "state"},
        {"metric": "count"}, {"metric": ["latency", "errors"]}, {"metric": "p99"}, {"metric": "P50,max"},
        {"interval": "1s"}, {"interval": "500ms", "by": "op"}, {"sort": "p95"}, {"sort": "messages", "reverse": True},
        {"having": "messages > 20"}, {"top": 2}, {"by": "op", "sort": "op", "top": 3}, {"reverse": True},
        {"decode_as": {5555: "BlipMQ"}}, {"decode_as": {5555: "fq"}}, {"max_memory_bytes": 1 << 21}, {"jobs": 2},
        # refused
        {"by": "colour"}, {"by": "host"}, {"by": "op,topic,client,server,name"}, {"metric": "speed"},
        {"interval": "0s"}, {"interval": "soon"}, {"sort": "colour"}, {"having": "colour > 1"}, {"having": "> 1"},
        {"top": 0}, {"top": -1},
    )),
    *(("stats", (ERRORS, report), words) for report in (
        "producers", "consumers", "errors", "talkers", "connections", "deliveries", "delivery_list", "delays",
        "slowest",
    ) for words in ({}, {"op": "PUBLISH"}, {"by": "op"}, {"metric": "count"}, {"interval": "1s"}, {"top": 1})),
    *(("stats", (QOS1, "talkers"), {"by": by}) for by in ("host", "port", "host,port")),
    *(("follow", (QOS1, name), {}) for name in ("c2", "2", "127.0.0.1:39290", "c99", "99")),
    *(("follow", (QOS1,), words) for words in ({"connection": "c2"}, {"filter": "connection == c2"}, {"op": "AUTH"})),
    *(("trace", (QOS1,), words) for words in ({"at": 12}, {"at": "#12"}, {"message": "1"}, {"at": 4}, {"at": 99_999},
                                              {"message": "none"}, {"message": "1", "at": 12})),
    *(("explain", (QOS1,), words) for words in (
        {"at": 12}, {"at": "#12"}, {"at": "qos1.pcap#12"}, {"connection": "c1", "direction": "c2s", "offset": 55},
        {"connection": "127.0.0.1:39290", "direction": "s2c", "offset": 0}, {"pairing": "c1"},
        {"pairing": "c1", "at": 12}, {"at": 12, "bodies": "none"}, {"at": 8, "show_secrets": True},
        # refused
        {}, {"at": 9999}, {"at": 1}, {"connection": "c1"}, {"connection": "c1", "at": 12}, {"pairing": "c99"},
        {"pairing": "c1", "connection": "c1"}, {"pairing": "z"}, {"hex": HELLO, "protocol": "blipmq"},
        {"at": 12, "protocol": "blipmq"}, {"at": 12, "dialect": "v1"}, {"pairing": "c1", "at": 9999},
    )),
    *(("explain", (), words) for words in (
        {"hex": HELLO, "protocol": "BlipMQ"}, {"hex": HELLO.replace(" ", ":"), "protocol": "blipmq"},
        {"hex": HELLO, "protocol": "blipmq", "direction": "c2s"}, {"hex": HELLO, "protocol": "blipmq", "dialect": "v1"},
        # refused
        {}, {"at": 12}, {"hex": HELLO}, {"hex": HELLO, "protocol": "nats"}, {"hex": "0", "protocol": "blipmq"},
        {"hex": "", "protocol": "blipmq"}, {"hex": HELLO, "protocol": "blipmq", "dialect": "zz"},
    )),
    ("show", ([QOS1, SESSION],), {"filter": "body_len > 0"}),
    ("export", ([QOS1, SESSION],), {"out": True, "filter": "body_len > 0"}),
    *(("info", (path,), words) for path in ([QOS1, SESSION], LOST) for words in ({}, {"decode_as": {5555: "blipmq"}})),
    *(("export", (QOS1,), words) for words in (
        {"out": True}, {"out": True, "op": "POLL"}, {"out": True, "grep": "first"}, {"out": True, "bodies": "none"},
        # refused
        {}, {"out": True, "grep": "first", "bodies": "none"}, {"append": True, "filter": "op == POLL"},
        {"append": True, "op": "POLL"}, {"out": True, "append": True}, {"out": True, "finish": True},
        {"out": True, "rebuild": True}, {"out": True, "remove": ["a"]}, {"out": True, "filter": "x y"},
    )),
    *(("extract", (QOS1,), words) for words in (
        {"op": "PING"}, {"op": "PING", "connections": True}, {"filter": "packet == 12"}, {"topic": "nothing"},
        {"connection": "c99"}, {"filter": "x y"}, {"bodies": "none"}, {"op": "PING", "split": "connection"},
    )),
    *(("extract", (QOS1,), {"op": "PING", "out": True} | words) for words in COMMON),
    *((command, (QOS1,), words) for command in ("follow", "extract") for words in SELECTED),
    *(("export", (QOS1,), {"out": True} | words) for words in (*SELECTED, *COMMON, {"allow_missing": True})),
    *(("diff", (QOS1, ERRORS), words) for words in (*SELECTED, *COMMON, {"bodies": 3})),
    *((command, (QOS1,), words) for command in ("show", "stats", "info") for words in (*COMMON, {"bodies": 3})),
    *(("follow", (QOS1, "c2"), words) for words in (*COMMON, {"bodies": 3})),
    *(("explain", (QOS1,), {"at": 12} | words) for words in COMMON),
    *(("report", (QOS1,), {"out": True} | words) for words in (COMMON[0] | COMMON[1] | {"bodies": 3},)),
    *(("ask", given, words) for given, words in (
        (("slowest", QOS1), {}), (("slowest", QOS1), {"n": 3}),
        # refused
        (("slowest", QOS1), {"m": 3}), (("slowest", QOS1), {"n": "x"}), (("quickest", QOS1), {}),
        (("slowest", "nothing.pcap"), {}), (("what_did", QOS1), {}),
    )),
    *((command, given, {}) for command in ("fields", "protocols") for given in ((), ("FlyMQ",), ("messages",), ("x",))),
    *(("wireshark", given, {}) for given in (("blipmq",), ("kokaq",), ("x",))),
    ("samples", (), {"folder": True}),
)  # fmt: skip
OPTIONS = {"filter": "-Y", "max_memory_bytes": "--max-memory", "pairing": "--pairing", "message": "--message"}


def words_of(command: str, given: tuple[Any, ...], words: Mapping[str, Any]) -> list[str]:
    """The words of a command line for a call."""
    line: list[str] = []
    if command == "stats" and len(given) > 1:
        report = given[1]
        line += {"delivery_list": ["--deliveries", "--list"], "slowest": ["--slowest", "10"]}.get(
            report, [f"--{report}"]
        )
        given = given[:1]
    for name, value in words.items():
        if command in ("ask", "samples"):
            line += ["--set", f"{name}={value}"] if command == "ask" else [value]
            continue
        option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
        if name == "decode_as":
            line += [word for port, protocol in value.items() for word in ("-d", f"tcp.port=={port},{protocol}")]
        elif name in ("by", "metric") and isinstance(value, list):
            line += [option, ",".join(value)]
        elif isinstance(value, list):
            line += [word for item in value for word in (option, item)]
        else:
            line += [option] if value is True else [option, str(value)]
    given = (*given[0], *given[1:]) if given and isinstance(given[0], list) else given
    return [{"trace": "follow"}.get(command, command), *given, *line]


def as_json(value: Any) -> Any:
    return json.loads(json_text(value))


def message_rows(rows: Iterator[Any]) -> list[Any]:
    return [json.loads(json_line(row)) for row in rows]


VALUES: Mapping[str, Callable[[Any], list[Any]]] = {
    "show": message_rows,
    "stats": lambda table: [as_json(json_object(row)) for row in table.to_pylist()],
    "diff": lambda comparison: [as_json(comparison.as_json())],
    "follow": lambda followed: message_rows(followed.messages),
    "trace": lambda traces: [as_json(part) for trace in traces for part in trace.as_json()],
    "explain": lambda value: [as_json(x.as_json()) for x in (value if isinstance(value, list) else [value])],
    "info": lambda reports: [as_json(with_exact_numbers(x.as_json())) for x in reports],
    "ask": lambda answer: [as_json(json_object(row)) for row in answer.rows],
    "fields": lambda rows: [as_json([json_object(row.as_json()) for row in rows])],
    "protocols": lambda facts: [as_json(facts)],
}
"""The objects of ``--json``, of a call's value."""


@pytest.fixture(autouse=True)
def in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def refusal(call: Callable[[], Any]) -> tuple[str | None, Any]:
    """Why a call is refused, or its value."""
    try:
        return None, call()
    except (mqpcap.MqpcapError, LookupError, ValueError, TypeError) as error:
        return str(error), None


@pytest.mark.parametrize(("command", "given", "words"), CASES, ids=[f"{x[0]} {x[1][1:]} {x[2]}"[:90] for x in CASES])
def test_both_faces_are_one(command: str, given: tuple[Any, ...], words: dict[str, Any], tmp_path: Path) -> None:
    if command == "report":
        pytest.importorskip("matplotlib")
    ours, theirs = ({**words} for _ in range(2))
    for name in ("out", "append", "folder"):
        if words.get(name) or (name == "out" and command == "extract"):
            ours[name], theirs[name] = str(tmp_path / f"call-{name}"), str(tmp_path / f"command-{name}")
    line = words_of(command, given, theirs)
    line += ["--json"] if command in VALUES else []

    refused, values = refusal(
        lambda: VALUES.get(command, lambda value: value)(getattr(mqpcap, command)(*given, **ours))
    )
    ended = run(*line, *(["-q"] if "-q" in options_of(command) else []))

    if refused is not None:
        last = ended.stderr.splitlines()[-1].removeprefix("mqpcap: ")
        assert (ended.exit_code > 0, last) == (True, refused) or (ended.exit_code, last) == (
            1,
            f"{given[0]}: {refused}",
        )
        assert not list(tmp_path.iterdir())
        return
    assert ended.exit_code == 0, ended.stderr
    if command == "export":
        assert tables_of(ours) == tables_of(theirs)
    elif "out" in ours or "folder" in ours:
        assert files_of(ours) == files_of(theirs)
    elif command == "wireshark":
        assert values == ended.stdout.removesuffix("\n")
    else:
        printed: Any = objects(ended)
        assert values == (printed[0]["captures"] if command == "info" else printed)


def options_of(command: str) -> set[str]:
    """The names of a command's options, the first of each."""
    found = main.commands[{"trace": "follow"}.get(command, command)]
    return {param.opts[0] for param in found.params if isinstance(param, click.Option)}


@pytest.mark.parametrize("command", [name for name in main.commands if name not in ("spark", "help")])
def test_every_option_has_a_case(command: str) -> None:
    lines = [words_of(name, given, words) for name, given, words in CASES]
    tried = {word for line in lines if line[0] == command for word in line}
    tried |= {param.opts[0] for param in main.commands[command].params if tried & {*param.opts}}
    elsewhere = {option for name, option in ELSEWHERE if name == command}

    assert options_of(command) - FORMS - ENDINGS - LIVE - elsewhere - tried == set()


@pytest.mark.parametrize("command", ["show", "stats", "follow", "diff", "info", "report"])
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({"jobs": 0}, ["--jobs", "0"]), ({"max_memory_bytes": 1}, ["--max-memory", "1"]),
        ({"bodies": -1}, ["--bodies", "-1"]), ({"bodies": "some"}, ["--bodies", "some"]),
        ({"decode_as": {5555: "nats"}}, ["-d", "tcp.port==5555,nats"]),
        ({"decode_as": {0: "fq"}}, ["-d", "tcp.port==0,fq"]), ({"keylog": "nothing"}, ["--keylog", "nothing"]),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused_by_both(command: str, words: Any, line: list[str], tmp_path: Path) -> None:
    given = [QOS1] * 2 if command == "diff" else [QOS1, str(tmp_path / "x")] if command == "report" else [QOS1]
    called = [QOS1, "--out", str(tmp_path / "x")] if command == "report" else given

    refused, _ = refusal(lambda: [*VALUES.get(command, id)(getattr(mqpcap, command)(*given, **words))])

    assert refused is not None
    assert run(command, *called, *line).exit_code == 2
    assert not list(tmp_path.iterdir())


LINES: tuple[tuple[Callable[[], Any], list[str]], ...] = (
    (lambda: mqpcap.stats(QOS1), ["stats", "-u", QOS1]),
    (lambda: mqpcap.stats(QOS1, interval="1s", top=2), ["stats", "-u", QOS1, "--interval", "1s", "--top", "2"]),
    (lambda: mqpcap.stats(ERRORS, "slowest"), ["stats", "-u", "--slowest", "10", ERRORS]),
    (lambda: mqpcap.stats(ERRORS, "connections"), ["stats", "-u", "--connections", ERRORS]),
    (lambda: mqpcap.diff(QOS1, ERRORS), ["diff", "-u", QOS1, ERRORS]),
    (lambda: mqpcap.ask("slowest", QOS1), ["ask", "-u", "slowest", QOS1]),
    (lambda: mqpcap.fields("flymq"), ["fields", "flymq"]),
    (lambda: mqpcap.fields(), ["fields"]),
    (lambda: mqpcap.info(LOST)[0], ["info", "-u", LOST]),
    (lambda: mqpcap.follow(QOS1, "c2"), ["follow", "-u", QOS1, "c2"]),
    (lambda: mqpcap.explain(QOS1, at=12)[0], ["explain", "-u", QOS1, "--at", "12"]),
    (lambda: mqpcap.trace(QOS1, at=12)[0], ["follow", "-u", QOS1, "--at", "12"]),
    (lambda: mqpcap.explain(QOS1, pairing="c1"), ["explain", QOS1, "--pairing", "c1"]),
)  # fmt: skip


@pytest.mark.parametrize(("call", "line"), LINES, ids=[" ".join(line) for _, line in LINES])
def test_lines_are_what_the_command_prints(call: Callable[[], Any], line: list[str]) -> None:
    assert "".join(f"{text}\n" for text in call().lines()) == run(*line).stdout


def said_of(*words: str) -> list[str]:
    """What the command says beside its output, but that nothing is compiled: a call leaves that to the program."""
    return [line for line in run(*words).stderr.splitlines() if "not compiled" not in line]


def test_the_lines_of_an_export_are_its_summary(tmp_path: Path) -> None:
    summary = mqpcap.export(QOS1, tmp_path / "call")

    said = said_of("export", QOS1, "--out", str(tmp_path / "command"))[: len(summary.tables) + 2]
    # Row groups depend on which thread was first, and so do some bytes of the sizes.
    without_sizes = [[re.sub(r"[\d.]+ k?B", "SIZE", line) for line in lines] for lines in (summary.lines("x"), said)]
    assert without_sizes[0] == [line.replace(str(tmp_path / "command"), "x") for line in without_sizes[1]]
    assert any("SIZE" in line for line in without_sizes[0])


NOTED: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("stats", (QOS1,), {"top": 1}), ("stats", (LOST,), {"top": 1}), ("stats", (QOS1,), {"topic": "nothing"}),
    ("show", (QOS1,), {"topic": "nothing"}), ("show", (QOS1,), {"decode_as": {9: "fq"}}), ("show", (LOST,), {}),
    ("follow", (LOST, "c1"), {}), ("diff", (QOS1, LOST), {"topic": "nothing"}), ("explain", (LOST,), {"at": 12}),
)  # fmt: skip


@pytest.mark.parametrize(("command", "given", "words"), NOTED, ids=str)
def test_notes_of_a_call_are_the_commands(command: str, given: tuple[Any, ...], words: dict[str, Any]) -> None:
    notes: list[str] = []

    (VALUES[command])(getattr(mqpcap, command)(*given, **words, notes=notes))

    assert notes == [line.removeprefix("note: ") for line in said_of(*words_of(command, given, words))]


def files_of(words: Mapping[str, Any]) -> dict[str, bytes]:
    out = Path(words.get("out", words.get("folder")))
    paths = [path for path in out.rglob("*") if path.is_file()] if out.is_dir() else [out]
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(paths)}


def tables_of(words: Mapping[str, Any]) -> dict[str, list[Any]]:
    folder = Path(words["out"])
    return {x.name: pq.read_table(x).to_pylist() for x in sorted(folder.iterdir()) if x.is_dir()}
