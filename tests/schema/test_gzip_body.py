"""Gzip bodies against Python's own reader, in bounded memory."""

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.schema.gzip_body import deflate, inflate

BODY = b"hazel and walnut, " * 40


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.integers(0, 800))
def test_members_are_joined_up_to_the_bound(members: list[bytes], at_most: int) -> None:
    stream, whole = b"".join(map(gzip.compress, members)), b"".join(members)

    assert inflate(stream) == (whole, False)
    assert inflate(stream, at_most) == ((whole, False) if len(whole) <= at_most else (None, True))


@given(st.integers(0, len(gzip.compress(BODY)) - 1), st.integers(1, 255))
def test_a_cut_or_damaged_stream_is_no_body(at: int, change: int) -> None:
    stream = bytearray(gzip.compress(BODY, mtime=0))

    assert inflate(bytes(stream[:at])) == (None, False)
    stream[at] ^= change
    try:
        wanted = gzip.decompress(stream)
    except (EOFError, OSError, zlib.error):
        wanted = None
    assert inflate(bytes(stream)) == (wanted, False)


@pytest.mark.parametrize("stream", [b"", b"plain", zlib.compress(BODY), gzip.compress(BODY, mtime=0) + b"\0"])
def test_what_is_no_gzip_to_its_end_is_no_body(stream: bytes) -> None:
    assert inflate(stream) == (None, False)


def test_memory_of_a_bomb_is_bounded() -> None:
    """A hundred million zeros in a hundred kilobytes."""
    bomb = deflate(bytes(100 << 20))
    tracemalloc.start()
    try:
        assert inflate(bomb, 1 << 20) == (None, True)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=300))
def test_what_is_deflated_is_one_member_that_says_no_time(data: bytes) -> None:
    """RFC 1952, 2.3: bytes 4 to 8 are the time, 0 for none."""
    assert gzip.decompress(deflate(data)) == data
    assert deflate(data)[4:8] == bytes(4)
