"""Every command over every sample capture, as installed: nothing ends in a traceback or another exit code than 0."""

import json
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from examples import one_in
from running import ROOT, run, script

from mqpcap.protocols import protocols

FILES = one_in(2, sorted(str(path.relative_to(ROOT)) for path in (ROOT / "pcaps").rglob("*.pcap")))
SOME_FILES = one_in(2, FILES)


@cache
def messages() -> tuple[dict[str, object], ...]:
    """All messages of all files, as ``show`` has them."""
    said = run("show", "-q", "--bodies", "none", "--json", "--show-secrets", *FILES)
    assert (said.exit_code, said.stderr) == (0, "")
    return tuple(json.loads(line) for line in said.stdout.splitlines())


def test_show_of_files() -> None:
    said = run("show", "-q", "-v", "-x", *SOME_FILES)

    assert (said.exit_code, said.stderr) == (0, "")
    shown = [m for m in messages() if m["capture_file"] in SOME_FILES]
    assert said.stdout.count("\n    0000  ") == len(shown)


@pytest.mark.parametrize(("options", "files"), [("", FILES[::2]), ("--json", FILES[1::2])])
def test_info_of_every_file(options: str, files: list[str]) -> None:
    said = run("info", "-q", *options.split(), *files)

    assert (said.exit_code, said.stderr) == (0, "")
    assert all(name in said.stdout for name in files)


def test_export_of_every_file(tmp_path: Path) -> None:
    said = run("export", *FILES, "--out", tmp_path / "out")

    assert (said.exit_code, said.stdout) == (0, "")
    tables = (tmp_path / "out" / "messages").rglob("*.parquet")
    assert sum(pq.read_metadata(path).num_rows for path in tables) == len(messages())


@pytest.mark.parametrize("options", ["", "--json"])
def test_protocols(options: str) -> None:
    said = run("protocols", *options.split())

    assert (said.exit_code, said.stderr) == (0, "")


# -- explain ---------------------------------------------------------------------------------------------


def test_explain_of_one_message_of_each_protocol_and_side() -> None:
    one = {(m["protocol"], m["direction"]): m for m in reversed(messages()) if "op" in m}

    assert len(one) == 2 * len(protocols())
    for m in one.values():
        place = ["--connection", m["connection_id"], "--direction", "c2s", "--offset", m["stream_offset"]]
        said = run("explain", m["capture_file"], *(place if m["direction"] == "c2s" else ["--at", m["first_packet"]]))
        assert (said.exit_code, said.stderr) == (0, "")
        assert f"#{m['first_packet']} " in said.stdout


# What the command makes of the bytes of each message whose kind or size differs from those before.
EXPLAIN = """
import sys
{first}
from mqpcap.capture import captures
from mqpcap.cli import main
from mqpcap.listing.extra_columns import WITH_BYTES
from mqpcap.pipeline import CapturePipeline, Options

seen = set()

def look(output):
    for m in output.rows.to_pylist() if output.table == "messages" else []:
        data, protocol = m["bytes"], m["protocol"]
        key = (protocol, m["direction"], m["dialect"], m["op_code"], m["op"], m["flaw"], len(data) // 1024)
        if key not in seen:
            seen.add(key)
            words = ["explain", "--hex", data.hex(), "--protocol", protocol, "--direction", m["direction"]]
            main.main(words, standalone_mode=False)

for capture in captures(sys.argv[1:]).captures:
    CapturePipeline(capture, Options(), look, hooks=WITH_BYTES).run()
print(len(seen), "scapy" in sys.modules, file=sys.stderr)
"""


def test_explain_of_messages_of_every_kind_and_size_says_the_same_without_scapy() -> None:
    without = script(EXPLAIN.format(first="import mqpcap.schema.scapy_stub"), *SOME_FILES)

    with_scapy = script(EXPLAIN.format(first="import scapy.packet"), *SOME_FILES)

    assert (without.exit_code, with_scapy.exit_code) == (0, 0), without.stderr + with_scapy.stderr
    assert without.stdout == with_scapy.stdout != ""
    (count, is_loaded), with_it = without.stderr.split(), with_scapy.stderr.split()
    assert (int(count) > 250, is_loaded, with_it) == (True, "False", [count, "True"])
