"""Packets to a pcapng file, as our reader and Scapy's read it."""

import io
from pathlib import Path

import pytest
from capture_files import T0, only, packets, written
from scapy.utils import RawPcapNgReader

from mqpcap.capture.annotations import annotations
from mqpcap.capture.pcapng import MAX_COMMENT_BYTES, PacketFile
from mqpcap.capture.sources import plain_bytes

PACKETS = [(1, T0 + 7, b"abc", 3), (101, 0, b"", 60), (1, 2**63 - 1, bytes(range(250)), 1500)]


def written_packets(comments: tuple[str, ...] = ()) -> bytes:
    """PACKETS as a file, the last one with comments."""
    out = io.BytesIO()
    file = PacketFile(out, "test")
    for link_type, ts_ns, data, wire_len in PACKETS:
        file.write(link_type, ts_ns, data, wire_len, comments if ts_ns == 2**63 - 1 else ())
    return out.getvalue()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    capture = only(written(tmp_path, "x", written_packets(("one", "two"))))
    found = packets(list(capture.windows()))

    assert [(link_type, ts_ns, data, wire_len) for ts_ns, data, wire_len, link_type in found] == PACKETS
    assert capture.notes == []
    assert (capture.facts[0].format, capture.facts[0].tick_ns) == ("pcapng", 1)


def test_scapy_reads_the_same() -> None:
    with RawPcapNgReader(io.BytesIO(written_packets(("one",)))) as reader:
        found = list(reader)

    assert [(said.linktype, data, said.wirelen) for data, said in found] == [(x[0], x[2], x[3]) for x in PACKETS]
    assert [said.tshigh << 32 | said.tslow for _, said in found] == [ts_ns for _, ts_ns, *_ in PACKETS]


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, MAX_COMMENT_BYTES, MAX_COMMENT_BYTES + 1])
def test_comments_of_any_length_are_kept_as_far_as_an_option_holds(length: int) -> None:
    content = written_packets(("x" * length, "behind it"))

    found = annotations(plain_bytes(io.BytesIO(content), len(content))).comments
    assert found == [("packet 3", "x" * min(length, MAX_COMMENT_BYTES)), ("packet 3", "behind it")]
