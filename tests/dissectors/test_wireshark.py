"""The generated dissectors, loaded into tshark: operations, ids, topics and body lengths equal the rows of samples."""

import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from running import run

import mqpcap
from mqpcap.dissectors import FILE_NAME, NotExpressible, wireshark
from mqpcap.errors import OutputError

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
EXPRESSIBLE: dict[str, tuple[str, ...]] = {"blipmq": ("blipmq.correlation_id",), "flymq": ()}
"""By protocol the fields that are ids."""
SAMPLES = [path for name in EXPRESSIBLE for path in sorted(PCAPS.glob(f"{name}/*.pcap"))]
COLUMNS = ("mqpcap.op", "mqpcap.destination", "mqpcap.body_len")
Values = tuple[list[str], ...]


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("tshark") is None:
        pytest.skip("no tshark")
    path = tmp_path_factory.mktemp("lua") / FILE_NAME
    path.write_text(wireshark(), "utf-8")
    return path


def dissected(lua: Path, capture: Path, protocol: str, ports: set[int], fields: tuple[str, ...]) -> dict[int, Values]:
    """By packet: the values of each field, sorted; packets without an operation are left out."""
    words = [
        "tshark",
        "-X",
        f"lua_script:{lua}",
        "-r",
        str(capture),
        "-Y",
        protocol,
        "-T",
        "fields",
        "-e",
        "frame.number",
    ]
    words += [word for field in fields for word in ("-e", field)] + ["-E", "aggregator=\x01"]
    words += [word for port in ports for word in ("-d", f"tcp.port=={port},{protocol}")]
    home = {**os.environ, "HOME": str(lua.parent)}  # without what a user installed
    ended = subprocess.run(words, capture_output=True, text=True, errors="replace", check=True, env=home)
    assert "Lua" not in ended.stderr
    found = {}
    for line in ended.stdout.splitlines():
        number, *values = line.split("\t")
        lists = tuple(sorted(filter(None, value.split("\x01"))) for value in values)
        if lists[0]:
            found[int(number)] = lists
    return found


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_messages_of_samples_are_those_of_the_tables(lua: Path, path: Path) -> None:
    """But for what the file names as not expressible.

    Left out are packets with compressed bodies, with operations that the version of the connection does not have, and
    those where undecoded bytes begin; a text ends at a NUL.
    """
    protocol = path.parent.name
    recording = mqpcap.open(path)
    rows = [row for row in recording.messages.to_pylist() if row["protocol"] == protocol]
    flags = mqpcap.read(path, table=protocol)["flags"].to_pylist() if protocol == "flymq" else [0] * len(rows)
    left_out = {row["first_packet"] for row in recording.problems.to_pylist() if row["kind"] == "undecoded"}
    is_odd = ((flag or 0) & 2 or row["flaw"] == "unknown" for row, flag in zip(rows, flags, strict=True))
    left_out.update(row["last_packet"] for row, odd in zip(rows, is_odd, strict=True) if odd)
    expected: dict[int, list[list[str]]] = defaultdict(lambda: [[] for _ in (*COLUMNS, *EXPRESSIBLE[protocol])])
    for row in rows:
        if row["flaw"] != "truncated":
            body = None if row["body_len"] is None else str(row["body_len"])
            values = row["op"], (row["destination"] or "").partition("\0")[0], body, row["correlation_id"]
            for column, value in zip(expected[row["last_packet"]], values, strict=False):
                column += [value] if value else []
    ports = {port for row in rows for port in (row["dst_port" if row["direction"] == "c2s" else "src_port"],)}

    found = dissected(lua, path, protocol, ports, (*COLUMNS, *EXPRESSIBLE[protocol]))

    wanted = {k: tuple(map(sorted, values)) for k, values in expected.items() if values[0] and k not in left_out}
    assert wanted
    assert {number: values for number, values in found.items() if number not in left_out} == wanted


def test_what_cannot_be_expressed_is_refused_with_the_reason() -> None:
    with pytest.raises(NotExpressible, match=r"kokaq has no dissector: .* a splitter finds it"):
        wireshark("kokaq")
    with pytest.raises(NotExpressible, match="fq has no dissector: the form of its messages depends on earlier"):
        wireshark("fq")
    with pytest.raises(ValueError, match="'nats' is no protocol; there are blipmq"):
        wireshark("nats")

    everything = wireshark()
    assert "-- kokaq has no dissector" in everything
    assert "blipmq: not expressible here" in everything


def test_installed_file_replaces_only_one_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    path = tmp_path / ".local" / "lib" / "wireshark" / "plugins" / FILE_NAME

    assert wireshark("BlipMQ", install=True) == str(path)
    assert wireshark("flymq", install=True) == str(path)
    assert 'name = "flymq"' in path.read_text("utf-8")

    path.write_text("-- mine")
    with pytest.raises(OutputError, match="is not a file of mqpcap"):
        wireshark("blipmq", install=True)


def test_command_writes_what_the_call_returns() -> None:
    assert run("wireshark", "blipmq").stdout == f"{wireshark('blipmq')}\n"
    refused = run("wireshark", "kokaq")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("mqpcap: kokaq has no dissector")
