"""``mqpcap extract``: the packets of selected messages, in a capture that other programs read."""

import re
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from running import ROOT, run

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_without_a_filter_connections_of_supported_protocols_are_taken(tmp_path: Path) -> None:
    # Four of its five connections are TLS.
    result = run("extract", "pcaps/flymq/tls.pcap", "--connections", "--out", tmp_path / "out.pcapng")

    assert result.exit_code == 0
    assert "of 1 message of 1 connection\n" in result.stderr


def test_a_file_that_exists_is_never_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    out.write_text("mine")
    link = tmp_path / "link.pcapng"
    link.symlink_to(tmp_path / "nowhere")

    for name in (out, link):
        result = run("extract", QOS1, "--out", name)
        assert result.exit_code == 1
        assert result.stderr == f"mqpcap: {name} exists; extract replaces no file\n"
    assert out.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((QOS1, "--op", "NO", "--out", "x.pcapng"), 1, "nothing to extract: 0 of 242 messages match; operations here"),
        (("pcaps/flymq/tls.pcap", "--connection", "c1", "--out", "x.pcapng"), 1, "nothing to extract: 0 of 1 message"),
        ((QOS1, "--out", "no/x.pcapng"), 1, "no/x.pcapng cannot be written: No such file or directory"),
        ((QOS1, "-Y", "oops == 1", "--out", "x.pcapng"), 2, "mqpcap: -Y: there is no column 'oops'"),
        (("-", "--out", "x.pcapng"), 1, "save it to a file"),
        (("missing.pcap", "--out", "x.pcapng"), 1, "missing.pcap: no such file"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_no_file(
    arguments: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "pcaps").symlink_to(ROOT / "pcaps")

    result = run("extract", "-q", *arguments, stdin=(ROOT / QOS1).read_bytes(), cwd=tmp_path)

    assert result.exit_code == code
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pcaps"]


def test_messages_without_a_topic_have_a_file_of_that_name(tmp_path: Path) -> None:
    assert (
        run("extract", "-q", "pcaps/blipmq/qos1.pcap", "--split", "topic", "--out", tmp_path / "split").exit_code == 0
    )

    names = sorted(path.name for path in (tmp_path / "split").iterdir())
    assert names[0] == "001_without_topic.pcapng" and not [name for name in names if "None" in name]


def test_captures_are_merged_in_order_of_time(tmp_path: Path) -> None:
    inputs = ["pcaps/flymq/core.pcap", QOS1]
    result = run("extract", "-q", *inputs, "--connections", "--out", tmp_path / "out.pcapng")

    assert result.exit_code == 0
    shown = run("show", "-q", "-u", *inputs).stdout
    again = run("show", "-q", "-u", tmp_path / "out.pcapng").stdout
    assert [line.split()[0] for line in again.splitlines()] == [line.split()[0] for line in shown.splitlines()]


def test_the_example_of_the_help_runs(tmp_path: Path) -> None:
    (tmp_path / "pcaps").symlink_to(ROOT / "pcaps")
    example = re.search(r"Example: mqpcap (.+)\s*\Z", run("extract", "--help").stdout)
    assert example is not None

    result = run(*shlex.split(example[1]), cwd=tmp_path)

    assert result.exit_code == 0
    assert (tmp_path / "ping.pcapng").stat().st_size > 1000


@pytest.mark.parametrize("command", ["extract", "export"])
def test_a_short_name_selects_what_the_end_of_the_connection_does(command: str, tmp_path: Path) -> None:
    said = []
    for name in ("c1", "127.0.0.1:43358"):
        out = tmp_path / f"{len(said)}.out"
        result = run(command, "-q", "pcaps/fq/session.pcap", "--connection", name, "--out", str(out))
        assert result.exit_code == 0
        files = [out] if out.is_file() else sorted(out.rglob("*.parquet"))
        said.append([path.read_bytes() if path == out else pq.ParquetFile(path).read() for path in files])

    assert said[0] == said[1] != []


def test_bodies_cannot_be_left_out_of_packets() -> None:
    said = run("extract", QOS1, "--bodies", "none", "--out", "-")

    assert (said.exit_code, said.stdout) == (2, "")
    assert "as they are, without --bodies" in said.stderr
    assert "--bodies " not in run("extract", "--help").stdout
