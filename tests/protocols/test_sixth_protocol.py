"""A protocol is one module in the folder of the protocols: nothing else is touched."""

import json
from pathlib import Path

import pyarrow.dataset as ds
from click.testing import CliRunner
from torture import Segment, pcap, toy_layer, toy_message

from mqpcap import protocols
from mqpcap.cli import main

STREAM = b"".join(toy_message(i) for i in range(3))


def capture(folder: Path) -> str:
    path = folder / "toy.pcap"
    path.write_bytes(pcap([Segment(STREAM, 100)], 5000))
    return str(path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_toy_is_listed() -> None:
    with toy_layer():
        listed = json.loads(run("protocols", "--json"))

    assert "toy" in json.dumps(listed)
    assert "toy" not in protocols.protocols()


def test_the_toy_is_shown(tmp_path: Path) -> None:
    with toy_layer():
        lines = [json.loads(line) for line in run("show", "--json", capture(tmp_path)).splitlines()]

    assert [line["protocol"] for line in lines] == ["toy"] * 3
    assert [line["body_len"] for line in lines] == [20] * 3
    assert [line["op"] for line in lines] == ["MESSAGE"] * 3


def test_the_toy_is_exported_as_a_table_of_its_own(tmp_path: Path) -> None:
    with toy_layer():
        run("export", "-q", capture(tmp_path), "--out", str(tmp_path / "out"))

    rows = ds.dataset(tmp_path / "out" / "toy", partitioning="hive").to_table().to_pylist()
    assert sorted(bytes(row["body"]) for row in rows) == [toy_message(i)[4:] for i in range(3)]
    messages = ds.dataset(tmp_path / "out" / "messages", partitioning="hive").to_table().to_pylist()
    assert {m["protocol"] for m in messages} == {"toy"}


def test_without_the_module_the_bytes_are_foreign(tmp_path: Path) -> None:
    assert run("show", "--json", capture(tmp_path)) == ""
