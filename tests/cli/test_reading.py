"""Inputs that cannot be read, or only in part: exit codes and notes."""

import gzip
import json
import os
import struct
from collections import Counter
from pathlib import Path

import pytest
from running import ROOT, run, run_bytes, script

from mqpcap.cli.reading import MAX_NOTES, exit_code
from mqpcap.reading import Choices, Outcome

QOS1 = "pcaps/blipmq/qos1.pcap"


def bad_inputs(folder: Path) -> dict[str, Path]:
    (folder / "empty.pcap").write_bytes(b"")
    (folder / "text.pcap").write_text("this is no capture")
    (folder / "nothing").mkdir()
    (folder / "nothing" / "notes.txt").write_text("no capture here")
    return {
        "empty": folder / "empty.pcap",
        "text": folder / "text.pcap",
        "directory": folder / "nothing",
        "missing": folder / "missing.pcap",
        "pattern": folder / "*.nothing",
    }


@pytest.mark.parametrize("kind", ["empty", "text", "directory", "missing", "pattern"])
def test_a_named_input_that_is_no_capture_is_one_line_and_exit_1_after_the_others(kind: str, tmp_path: Path) -> None:
    name = bad_inputs(tmp_path)[kind]

    result = run("show", "-q", name, QOS1)

    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 242
    assert len(result.stderr.splitlines()) == 1
    assert str(name) in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_one_line_and_exit_1(tmp_path: Path) -> None:
    closed = tmp_path / "closed.pcap"
    closed.write_bytes((ROOT / QOS1).read_bytes())
    closed.chmod(0)

    result = run("show", "-q", closed)

    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)


def test_strangers_in_a_directory_are_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "capture").write_bytes((ROOT / QOS1).read_bytes())
    (tmp_path / "notes.txt").write_text("no capture")

    result = run("show", tmp_path)
    strict = run("show", "--strict", tmp_path)

    assert result.exit_code == 0
    assert "skipped 1 file" in result.stderr
    assert len(result.stdout.splitlines()) == 242
    assert strict.exit_code == 1
    assert "1 skipped file" in strict.stderr


def test_a_flaw_is_exit_1_only_when_strict() -> None:
    flawed = "pcaps/blipmq/errors.pcap"

    assert run("show", "-q", flawed).exit_code == 0
    assert run("info", "-q", flawed).exit_code == 0
    strict = run("show", "-q", "--strict", flawed)
    assert strict.exit_code == 1
    assert "with a flaw" in strict.stderr
    assert run("show", "-q", "--strict", QOS1).exit_code == 0


def test_a_capture_cut_short_is_a_note_and_exit_0(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes((ROOT / QOS1).read_bytes()[:5000])

    result = run("show", cut)

    assert result.exit_code == 0
    assert f"note: {cut}" in result.stderr
    assert result.stdout


def test_a_record_that_claims_four_gigabytes_ends_the_file_with_a_note(tmp_path: Path) -> None:
    whole = (ROOT / QOS1).read_bytes()
    claiming = tmp_path / "claim.pcap"
    claiming.write_bytes(whole + struct.pack("<IIII", 1, 1, 0xFFFFFFFF, 0xFFFFFFFF) + b"x" * 100)

    result = run("show", claiming)

    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 242
    assert "note: " in result.stderr


def test_a_gzip_cut_short_gives_what_is_in_it(tmp_path: Path) -> None:
    packed = gzip.compress((ROOT / QOS1).read_bytes())
    cut = tmp_path / "cut.pcap.gz"
    cut.write_bytes(packed[: len(packed) // 2])

    result = run("show", cut)

    assert result.exit_code == 0
    assert "note: " in result.stderr
    assert 0 < len(result.stdout.splitlines()) < 242


def test_a_name_that_is_no_text_is_read_and_shown(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9.pcap")
    odd.write_bytes((ROOT / QOS1).read_bytes())

    said = run_bytes("show", "-q", "--json", "-c", "1", odd)

    assert (said.returncode, said.stderr) == (0, b"")
    assert json.loads(said.stdout)["capture_file"].endswith(".pcap")


def test_uncompiled_loops_are_said_once() -> None:
    from mqpcap.decode.bytecode import COMPILED

    said = run("show", "-c", "0", QOS1, "pcaps/fq").stderr

    assert said.count("not compiled") == (0 if COMPILED else 1)


REFUSED = """
import errno, os, sys
from mqpcap.cli import main

def refused(path):
    raise PermissionError(errno.EACCES, "Permission denied", str(path))

os.scandir = refused
main(sys.argv[1:])
"""


def test_a_directory_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    """Root may read every directory, so here none can be."""
    result = script(REFUSED, "show", "-q", tmp_path)

    assert (result.exit_code, result.stderr) == (1, f"mqpcap: {tmp_path}: Permission denied\n")


@pytest.mark.parametrize("name", ["tls_9092", "kafka_9092", "http_5555", "grpc_9944"])
def test_a_capture_of_strangers_says_so(name: str) -> None:
    said = run("show", f"pcaps/strangers/{name}.pcap")

    assert (said.exit_code, said.stdout, said.stderr) == (0, "", "note: nothing of ours; see info\n")
    assert run("show", "-q", f"pcaps/strangers/{name}.pcap").stderr == ""


def test_decode_as_the_wrong_protocol_says_so() -> None:
    wrong = run("show", "-d", "tcp.port==5555,flymq", QOS1)
    nowhere = run("show", "-d", "tcp.port==5556,flymq", QOS1)

    note = "note: -d tcp.port==5555,flymq: nothing of 15 connections decodes so; is it flymq?\n"
    assert (wrong.exit_code, wrong.stderr) == (0, note)
    assert nowhere.stderr == "note: -d tcp.port==5556,flymq: no connection of that server port\n"
    assert run("show", "-d", "tcp.port==5555,blipmq", QOS1).stderr == ""


@pytest.mark.parametrize(
    ("choices", "flaws", "unreadable", "code"),
    [
        (Choices(), 0, 0, 0), (Choices(), 3, 0, 0), (Choices(), 0, 1, 1),
        (Choices(strict=True), 0, 0, 0), (Choices(strict=True), 3, 0, 1), (Choices(strict=True, quiet=True), 3, 0, 1),
    ],
)  # fmt: skip
def test_the_exit_code_is_of_what_happened(choices: Choices, flaws: int, unreadable: int, code: int) -> None:
    outcome = Outcome(choices, flaws=Counter(truncated=flaws) if flaws else Counter())
    outcome.unreadable = [("a", "gone")] * unreadable

    assert exit_code(outcome) == code


def test_many_notes_are_counted_and_quiet_says_none(capsys: pytest.CaptureFixture[str]) -> None:
    notes = [f"n{k}" for k in range(MAX_NOTES + 2)]

    exit_code(Outcome(Choices(), notes=list(notes)))
    exit_code(Outcome(Choices(quiet=True), notes=list(notes)))

    said = capsys.readouterr().err.splitlines()
    assert said == [*(f"note: n{k}" for k in range(MAX_NOTES)), "note: 2 more notes"]
