"""``mqpcap ask``: questions to the tables of an export."""

import csv
import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from running import lines_on_terminal

import mqpcap
from mqpcap.cli import main

pytest.importorskip("duckdb", reason="duckdb is not installed (extra lake)")
PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ask") / "tables"
    assert run("export", "-q", PCAPS / "flymq" / "core.pcap", "--out", out).exit_code == 0
    return out


def test_without_a_question_all_are_listed() -> None:
    lines = run("ask").stdout.splitlines()

    assert len(lines) == 16
    assert "slowest              Which single requests took longest, and which packets prove it?" in lines


def test_answer_is_text_json_or_csv_with_equal_values(tables: Path) -> None:
    text, objects, table = (
        run("ask", "slowest", tables, "--set", "n=2", *form) for form in ((), ["--json"], ["--csv"])
    )

    rows = [json.loads(line) for line in objects.stdout.splitlines()]
    assert len(rows) == 2 == len(text.stdout.splitlines()) - 1
    assert rows[0]["latency_us"] >= rows[1]["latency_us"]
    assert [row["op"] for row in csv.DictReader(table.stdout.splitlines())] == [row["op"] for row in rows]


def test_statement_is_printed_with_its_explanation() -> None:
    statement = run("ask", "trust", "--sql").stdout

    assert statement.startswith("-- How far can the capture be trusted?")
    assert "FROM connections" in statement


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["slowst", "DIR"], 2, "mqpcap: there is no question 'slowst'; there are acks, "),
        (["DIR", "slowest"], 2, ": the question comes first, then the directory; there are acks, "),
        (["slowest"], 2, "mqpcap: name the directory of an export, or a capture, too"),
        (["slowest", "DIR", "--set", "n"], 2, "'n' is not NAME=VALUE"),
        (["slowest", "DIR", "--set", "top=3"], 2, "mqpcap: slowest has no parameter top; it has n"),
        (["slowest", "DIR", "--set", "n=0"], 2, "mqpcap: n is a number above 0, not '0'"),
        (["what_did", "DIR"], 2, "mqpcap: what_did needs the parameter client"),
        (["what_did", "DIR", "--set", "client=a", "--set", "start=noon"], 2, "'noon' is not a time"),
        (["rates", "DIR", "--set", "top=1.5"], 2, "mqpcap: top is a number above 0, not '1.5'"),
        (["slowest", "NOWHERE"], 1, "NOWHERE: no such file"),
    ],
)
def test_wrong_words_are_one_line(tables: Path, words: list[str], code: int, line: str) -> None:
    result = run("ask", *(str(tables) if word == "DIR" else word for word in words))

    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (code, "", 1)
    assert line in result.stderr


def test_digits_are_a_name_or_a_day_where_the_parameter_is_one(tables: Path) -> None:
    """core.pcap is of 2026-11-21, its client 127.0.0.1:40730."""
    asked = ("ask", "what_did", tables, "--csv", "--set")

    assert len(run(*asked, "client=1001").stdout.splitlines()) == 1  # the heading
    days = {day: run(*asked, "client=127.0.0.1:40730", "--set", f"start={day}").stdout for day in (20261121, 20261122)}
    assert days[20261121] == run(*asked, "client=127.0.0.1:40730").stdout != ""
    assert len(days[20261122].splitlines()) == 1


def test_a_table_that_cannot_be_read_is_one_line(tables: Path, tmp_path: Path) -> None:
    shutil.copytree(tables, tmp_path / "t")
    (file, *_) = (tmp_path / "t/messages").rglob("*.parquet")
    file.write_bytes(b"PAR1" + bytes(100))

    result = run("ask", "slowest", tmp_path / "t")

    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert str(tmp_path / "t") in result.stderr


def test_without_duckdb_the_line_says_what_to_install(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)

    result = run("ask", "trust", tables)

    assert (result.exit_code, result.stderr) == (
        1,
        "mqpcap: DuckDB is not installed: pip install '.[lake]' in the source of mqpcap\n",
    )


def test_capture_is_asked_like_its_tables(tables: Path) -> None:
    core = PCAPS / "flymq" / "core.pcap"

    assert run("ask", "backlog", core, "--csv").stdout == run("ask", "backlog", tables, "--csv").stdout != ""


def test_protocol_without_an_answer_is_named() -> None:
    notes: list[str] = []

    assert mqpcap.ask("backlog", PCAPS / "msgq" / "flat_session.pcap", notes=notes).num_rows == 0
    assert notes == ["msgq keeps no messages, so it has no backlog"]
    assert "note: fq has no acknowledgements of messages" in run("ask", "acks", PCAPS / "fq" / "session.pcap").stderr


@pytest.mark.parametrize("words", [["ask"], ["ask", "slowest", "pcaps/blipmq/qos1.pcap"]], ids=" ".join)
def test_answers_fit_a_terminal(words: list[str]) -> None:
    lines = lines_on_terminal(80, *words)

    assert len(lines) > 10
    assert max(map(len, lines)) <= 80
