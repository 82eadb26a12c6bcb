"""Files, pipes and compressed files to plain bytes."""

import gzip
import struct

import pytest
from capture_files import COMPRESSORS, T0, THREE, only, pcap, read, written

from mqpcap.capture import windows

MANY = [(T0 + n * 1000, struct.pack(">I", n * 2654435761 % 2**32) * 20) for n in range(5000)]


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compression_is_known_by_content(tmp_path, name):
    rows, capture = read(tmp_path, COMPRESSORS[name](pcap(MANY)))

    assert [row[:2] for row in rows] == MANY
    assert capture.facts[0].compression == name
    assert capture.notes == []


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressed_members_one_after_the_other(tmp_path, name):
    content, compress = pcap(MANY), COMPRESSORS[name]
    rows, capture = read(tmp_path, compress(content[:1000]) + compress(content[1000:]))

    assert [row[:2] for row in rows] == MANY
    assert capture.notes == []


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressed_stream_cut_off_gives_what_is_before(tmp_path, name):
    # A first member that is whole, then one that is not: what the first holds must be there.
    content, compress = pcap(MANY), COMPRESSORS[name]
    cut = 24 + 96 * 4000
    second = compress(content[cut:])
    rows, capture = read(tmp_path, compress(content[:cut]) + second[: len(second) // 2])

    assert len(rows) >= 3950
    assert [row[:2] for row in rows] == MANY[: len(rows)]
    assert [note.kind for note in capture.notes] == ["cut_short"]


def test_damaged_gzip_gives_what_is_before(tmp_path):
    content = bytearray(gzip.compress(pcap(MANY)))
    content[len(content) // 2] ^= 0xFF
    rows, capture = read(tmp_path, bytes(content))

    assert len(rows) > 1000
    assert capture.notes


def test_what_follows_a_gzip_stream_is_noted_unless_it_is_padding(tmp_path):
    padded = read(tmp_path, gzip.compress(pcap(THREE)) + bytes(512))
    followed = read(tmp_path, gzip.compress(pcap(THREE)) + b"stranger")

    assert len(padded[0]) == len(followed[0]) == 3
    assert [len(padded[1].notes), len(followed[1].notes)] == [0, 1]


def test_small_gzip_of_much_does_not_fill_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_BYTES", 1 << 16)
    capture = only(written(tmp_path, "x", gzip.compress(pcap([(T0, bytes(60_000))] * 500))))

    assert max(len(window.buffer) for window in capture.windows()) == 1 << 16
