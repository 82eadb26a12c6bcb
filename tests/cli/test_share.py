"""``mqpcap extract`` for others, as installed: anonymised, split, and to a pipe."""

import subprocess
from pathlib import Path

import pytest
from running import COMMAND, ROOT, environment, objects, run

import mqpcap

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_key_is_made_once_and_gives_the_same_file_again(tmp_path: Path) -> None:
    outs = [tmp_path / name for name in ("a.pcapng", "b.pcapng", "c.pcapng")]
    keys = [tmp_path / name for name in ("key", "key", "other")]
    for out, key in zip(outs, keys, strict=True):
        said = run("extract", QOS1, "--anonymise", "--key-file", key, "--out", out)
        assert said.exit_code == 0, said.stderr
        assert "note: addresses mapped prefix-preserving; bodies replaced" in said.stderr

    assert outs[0].read_bytes() == outs[1].read_bytes() != outs[2].read_bytes()
    assert keys[0].stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(keys[0].read_text())) == 32
    assert b"addresses mapped prefix-preserving" in outs[0].read_bytes()


def test_without_a_file_the_key_is_printed_once(tmp_path: Path) -> None:
    said = run("extract", QOS1, "--anonymise", "--out", tmp_path / "out.pcapng")

    assert "note: the key is " in said.stderr
    assert run("extract", "-q", QOS1, "--anonymise", "--out", tmp_path / "quiet.pcapng").stderr == ""


def test_call_writes_the_file_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(bytes(range(32)).hex())
    out = tmp_path / "command.pcapng"
    run("extract", "-q", QOS1, "--connections", "--anonymise", "--key-file", tmp_path / "key", "--out", out)
    mqpcap.extract(ROOT / QOS1, tmp_path / "call.pcapng", connections=True, anonymise=bytes(range(32)))

    assert (tmp_path / "call.pcapng").read_bytes() == out.read_bytes()


def test_foreign_key_file_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("by hand")
    said = run("extract", QOS1, "--anonymise", "--key-file", tmp_path / "notes.txt", "--out", tmp_path / "out.pcapng")

    assert (said.exit_code, len(said.stderr.splitlines())) == (1, 1)
    assert "is no key: 64 hexadecimal digits" in said.stderr
    assert (tmp_path / "notes.txt").read_text() == "by hand"
    assert not (tmp_path / "out.pcapng").exists()


def test_anonymised_packets_go_through_a_pipe() -> None:
    extract = subprocess.Popen(
        [*COMMAND, "extract", "-q", "--connections", "--anonymise", "--names-as", "keep", QOS1, "--out", "-"],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE,
    )  # fmt: skip
    show = subprocess.run(
        [*COMMAND, "stats", "-q", "--by", "op,topic", "--metric", "count", "--csv", "-"], cwd=ROOT, env=environment(),
        stdin=extract.stdout, capture_output=True, text=True, check=True,
    )  # fmt: skip
    extract.communicate()

    assert extract.returncode == 0
    assert show.stdout == run("stats", "-q", "--by", "op,topic", "--metric", "count", "--csv", QOS1).stdout


@pytest.mark.parametrize("options", [[], ["--connections"]])
def test_split_by_connection_has_each_packet_once(options: list[str], tmp_path: Path) -> None:
    out, whole = tmp_path / "parts", tmp_path / "whole.pcapng"
    assert run("extract", "-q", QOS1, *options, "--split", "connection", "--out", out).exit_code == 0
    assert run("extract", "-q", QOS1, *options, "--out", whole).exit_code == 0

    assert sorted(path.name for path in out.iterdir()) == sorted(f"c{n}.pcapng" for n in range(1, 16))
    counts = [report.packet_count for report in mqpcap.info(str(out))]
    assert sum(counts) == mqpcap.info(str(whole))[0].packet_count
    for row in mqpcap.read(str(out), "connections").to_pylist():
        ends = mqpcap.read(row["capture"], "connections").num_rows
        assert ends == 1


def test_split_by_topic_has_the_messages_of_each_topic(tmp_path: Path) -> None:
    out = tmp_path / "parts"
    assert (
        run("extract", "-q", "pcaps/fq/session.pcap", "--op", "message", "--split", "topic", "--out", out).exit_code
        == 0
    )

    assert sorted(path.name for path in out.iterdir())[:2] == ["001_events.pcapng", "002_metrics.pcapng"]
    wanted = mqpcap.read(str(ROOT / "pcaps/fq/session.pcap"), filter="op == message and topic == metrics")
    times = set(mqpcap.read(str(out / "002_metrics.pcapng"))["ts_ns"].to_pylist())
    assert set(wanted["ts_ns"].to_pylist()) <= times


def test_split_by_size_starts_a_file_when_one_is_full(tmp_path: Path) -> None:
    out = tmp_path / "parts"
    assert run("extract", "-q", QOS1, "--connections", "--split", "4kB", "--out", out).exit_code == 0

    sizes = [path.stat().st_size for path in sorted(out.iterdir())]
    assert [path.name for path in sorted(out.iterdir())][:2] == ["00001.pcapng", "00002.pcapng"]
    assert all(4000 < size < 12000 for size in sizes[:-1])
    assert objects(run("show", "-q", "--json", *sorted(out.iterdir()))) != []


def test_names_of_anonymised_files_say_no_topic(tmp_path: Path) -> None:
    out = tmp_path / "parts"
    run("extract", "-q", "pcaps/fq/session.pcap", "--anonymise", "--split", "topic", "--out", out)

    assert all(path.stem.isdigit() for path in out.iterdir())


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--key-file", "key"], 2, "go with --anonymise"),
        (["--bodies-as", "keep"], 2, "go with --anonymise"),
        (["--split", "lines"], 2, "is neither connection nor topic nor a size"),
        (["--split", "topic", "--out", "-"], 2, "writes a directory, not stdout"),
    ],
)
def test_misuse(options: list[str], code: int, words: str, tmp_path: Path) -> None:
    said = run("extract", ROOT / QOS1, "--out", "out", *options, cwd=tmp_path)

    assert (said.exit_code, said.stdout, list(tmp_path.iterdir())) == (code, "", [])
    assert words in said.stderr


def test_nothing_is_replaced_and_nothing_half_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("by hand")
    said = run("extract", QOS1, "--split", "topic", "--out", tmp_path / "mine")
    none = run("extract", QOS1, "--op", "NONE", "--split", "topic", "--out", tmp_path / "new")

    assert (said.exit_code, none.exit_code) == (1, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine" / "notes.txt").read_text() == "by hand"
