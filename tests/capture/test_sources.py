"""Files, pipes and compressed files to plain bytes."""

import gzip
import io
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from capture_files import COMPRESSORS, T0, THREE, only, pcap, read, written
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.capture import sources, windows
from mqpcap.capture.sources import InputWait, PeekableStream, growing, open_path, plain_bytes

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


class Slow(io.BytesIO):
    """A file object that gives a few bytes a call, as a pipe may."""

    def readinto(self, buffer: Any) -> int:
        return super().readinto(memoryview(buffer)[:3])


@given(st.binary(max_size=60), st.lists(st.tuples(st.sampled_from(["peek", "read", "seek"]), st.integers(0, 25))))
def test_peeked_bytes_are_read_again(data: bytes, steps: list[tuple[str, int]]) -> None:
    source, at = PeekableStream(Slow(data), len(data), owned=False), 0
    for what, n in steps:
        if what == "seek":
            source.seek(n)
            at = n
        else:
            assert getattr(source, what)(n) == data[at : at + n]
            at += min(n, max(len(data) - at, 0)) if what == "read" else 0


def test_a_file_that_grows_ends_where_it_did_when_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    source = open_path(path)
    path.write_bytes(b"1234567890")

    assert (source.size_bytes, source.read(99)) == (5, b"12345")
    source.close()


def test_a_file_that_is_still_written_ends_when_another_took_over(tmp_path: Path) -> None:
    """What was written meanwhile is read; whoever waits is told each time nothing came."""
    path, idle = tmp_path / "x", list[int]()
    path.write_bytes(b"one")

    def write(body: bytes) -> None:
        with path.open("ab") as file:
            file.write(body)

    def has_successor(file: object) -> bool:
        if idle == [1]:
            idle.append(2)
            write(b"last")
        return bool(idle)

    def wait() -> None:
        idle.append(1)
        write(b"two")

    source = growing(path, InputWait(wait), has_successor)

    assert (source.read(99), idle, source.size_bytes) == (b"onetwolast", [1, 2], None)
    source.close()


def test_of_a_pipe_what_is_at_hand_is_read_until_nothing_more_is_wanted() -> None:
    ours, theirs = os.pipe()
    over, room = list[int](), memoryview(bytearray(9))
    with open(ours, "rb", buffering=0) as file:
        source, wait = PeekableStream(file, None, owned=False), InputWait(lambda: over.append(1), lambda: bool(over))
        os.write(theirs, b"abcde")
        head = source.peek(2)
        counts = [source.read_ready(room, wait) for _ in range(3)]
        os.close(theirs)

    assert (head, counts, over) == (b"ab", [2, 3, 0], [1])
    assert room[:3].tobytes() == b"cde"


def test_a_file_that_cannot_be_read_is_a_failure_and_no_exception(tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            raise OSError(5, "Input/output error")

    source = PeekableStream(Broken(), 9, owned=False)

    assert (source.read(5), source.failure) == (b"", "reading failed (Input/output error)")


@pytest.mark.parametrize("name", ["gzip", "bz2"])
def test_members_without_bytes_are_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_MEMBERS_WITHOUT_BYTES", 3)
    packed = COMPRESSORS[name](b"") * 4 + COMPRESSORS[name](b"x")
    source = plain_bytes(io.BytesIO(packed), len(packed))

    assert (source.read(9), source.failure) == (b"", f"more than 3 empty {name} members")
