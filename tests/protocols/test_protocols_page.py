"""The examples of `src/mqpcap/protocols/README.md` are modules that read what they say."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import ROOT
from torture import ACK, SYN, Segment, broken_laws, pcap, read_bytes

import mqpcap
from mqpcap import protocols

PAGE = (ROOT / "src/mqpcap/protocols/README.md").read_text(encoding="utf-8")
MODULES = {
    re.search(r'name="([a-z]+)", title', text)[1]: text for text in re.findall(r"```python\n(.*?)```", PAGE, re.S)
}  # type: ignore[index]
"""The modules of the page, by the name of the protocol."""
MOST_LINES = 48


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[None]:
    """A folder of protocols with the examples of the page."""
    for name, text in MODULES.items():
        (tmp_path / f"of_the_page_{name}.py").write_text(text)
    protocols.__path__.append(str(tmp_path))
    yield
    protocols.__path__.remove(str(tmp_path))


def rows(port: int, *parts: tuple[bool, bytes]) -> list[dict[str, Any]]:
    """The messages of a connection: (from the server, bytes) in order."""
    seqs, segments = [1, 1], [Segment(flags=SYN), Segment(b"", 0, 1, SYN | ACK, from_server=True)]
    for side, data in parts:
        segments.append(Segment(data, seqs[side], seqs[1 - side], from_server=side))
        seqs[side] += len(data)
    result = read_bytes(pcap(segments, port))
    assert broken_laws(result) == []
    return result.messages


def test_the_page_has_an_example_for_each_row_and_they_are_short() -> None:
    assert sorted(MODULES) == ["forms", "jobs", "lines", "width"]
    assert max(text.count("\n") for text in MODULES.values()) <= MOST_LINES
    assert set(MODULES) <= {entry["name"] for entry in mqpcap.protocols()}  # type: ignore[operator]


def test_lines_end_where_the_splitter_says() -> None:
    found = rows(5401, (False, b"LINE one\nLINE t"), (False, b"wo\n"), (True, b"ok\n"))

    assert [(m["direction"], m["fields"]["body"]) for m in found] == [
        ("c2s", b"LINE one\n"), ("c2s", b"LINE two\n"), ("s2c", b"ok\n"),
    ]  # fmt: skip


def test_what_is_derived_of_late_bytes_is_a_column() -> None:
    texts = b"queue=orders&n=1", b"n=2", b"queue=x&&"
    found = rows(5402, *((False, struct.pack(">I", len(x)) + x) for x in texts))

    assert [(m["destination"], m["flaw"]) for m in found] == [("orders", None), (None, None), (None, "malformed")]


@pytest.mark.parametrize(("size", "number"), [(2, 7), (4, 70_000)])
def test_the_layout_is_what_the_connection_agreed_on(size: int, number: int) -> None:
    frames = bytes([0xB1, 1, 1, size]), bytes([0xB1, 2, size]) + number.to_bytes(size)
    found = rows(5403, *((False, x) for x in frames))

    assert [m["correlation_id"] for m in found] == [None, str(number)]
    assert {m["dialect"] for m in found} == {"wide" if size == 4 else "narrow"}


def test_groups_are_paired_by_their_own_rules(tmp_path: Path) -> None:
    def frame(kind: int, body: bytes) -> bytes:
        return bytes([0xB2, kind, len(body)]) + body

    parts = [
        (False, frame(1, b"me")), (True, frame(5, b"news")), (False, frame(3, b"\0\7a")), (False, frame(3, b"\0\x08b")),
        (True, frame(2, b"hello")), (True, frame(4, b"\0\x08B")), (True, frame(4, b"\0\7A")),
    ]  # fmt: skip
    seqs, segments = [1, 1], [Segment(flags=SYN), Segment(b"", 0, 1, SYN | ACK, from_server=True)]
    for side, data in parts:
        segments.append(Segment(data, seqs[side], seqs[1 - side], from_server=side))
        seqs[side] += len(data)
    path = tmp_path / "jobs.pcap"
    path.write_bytes(pcap(segments, 5404))
    recording = mqpcap.open(path)

    assert recording.table("messages")["op"].to_pylist().count("NEWS") == 1
    exchanges = recording.table("exchanges").to_pylist()
    assert sorted((x["op"], x["request_packet"], x["reply_packet"], x["state"]) for x in exchanges) == [
        ("LOGIN", 3, 7, "answered"), ("RUN", 5, 9, "answered"), ("RUN", 6, 8, "answered"),
    ]  # fmt: skip
