"""IP fragments to datagrams, against a dictionary of bytes; what is held is bounded."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6

from mqpcap.tcp import fragments
from mqpcap.tcp.fragments import FRAGMENT_TIMEOUT_NS, MAX_DATAGRAM_BYTES, Fragment, Fragments, plain_packet

KEY = (4, 0, 1, 0, 2, 9, 6)
PIECES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(0, 255)), max_size=14)


def piece(offset: int, body: bytes, more: bool = True) -> Fragment:
    return Fragment(offset, offset + len(body), more, body)


@given(PIECES, st.integers(0, 14))
def test_a_datagram_is_whole_with_its_last_byte_and_the_first_copy_of_each_wins(
    pieces: list[tuple[int, int, int]], last_at: int
) -> None:
    """Pieces of eight bytes, of a datagram of 48."""
    of = [piece(8 * low, bytes([byte]) * (8 * (min(low + n, 5) - low))) for low, n, byte in pieces if low < 5]
    of.insert(min(last_at, len(of)), piece(40, b"thelast!", more=False))
    held, first = Fragments(), dict[int, int]()
    for one in of:
        for at, byte in enumerate(one.captured, one.offset):
            first.setdefault(at, byte)
        found = held.add(KEY, 0, one)
        if len(first) == 48:
            assert found == bytes(first[at] for at in range(48))
            assert (len(held), held._bytes) == (0, 0)
            return
        assert found is None

    assert (len(held), held.malformed) == (1, 0)


@pytest.mark.parametrize(
    "bad",
    [
        Fragment(0, 0, False, b""),
        piece(0, bytes(7)),
        piece(MAX_DATAGRAM_BYTES - 7, bytes(8), more=False),
        piece(0, bytes(8), more=False),
        piece(24, bytes(16)),
        piece(24, bytes(7), more=False),
    ],
    ids=["empty", "not in eights", "too long", "a last one in front", "behind the last one", "another last one"],
)
def test_a_fragment_that_fits_no_datagram_is_malformed_and_changes_nothing(bad: Fragment) -> None:
    held = Fragments()
    held.add(KEY, 0, piece(8, bytes(16)))
    held.add(KEY, 0, piece(24, bytes(8), more=False))

    assert (held.add(KEY, 0, bad), held.malformed) == (None, 1)
    assert held.add(KEY, 0, piece(0, b"thefirst")) == b"thefirst" + bytes(24)


def test_the_first_fragments_of_a_datagram_are_checked_too() -> None:
    held = Fragments()
    held.add(KEY, 0, piece(MAX_DATAGRAM_BYTES - 7, bytes(8), more=False))
    assert (held.malformed, len(held)) == (1, 0)

    held.add(KEY, 0, piece(16, bytes(8)))
    held.add(KEY, 0, piece(0, bytes(16), more=False))
    assert held.malformed == 2


@pytest.mark.parametrize(("later_ns", "whole"), [(FRAGMENT_TIMEOUT_NS, True), (FRAGMENT_TIMEOUT_NS + 1, False)])
def test_an_identification_is_used_anew_after_a_while(later_ns: int, whole: bool) -> None:
    held = Fragments()
    held.add(KEY, 5, piece(0, bytes(8)))

    assert (held.add(KEY, 5 + later_ns, piece(8, b"x", more=False)) is not None) == whole
    assert (held.dropped, len(held)) == ((0, 0) if whole else (1, 1))


def test_the_oldest_datagrams_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "MAX_FRAGMENT_DATAGRAMS", 2)
    held = Fragments()
    for k in range(3):
        held.add((*KEY[:5], k, 6), 0, piece(0, bytes(8)))

    assert (len(held), held.dropped) == (2, 1)
    assert [held.add((*KEY[:5], k, 6), 0, piece(8, b"x", more=False)) is None for k in (1, 2, 0)] == [
        False,
        False,
        True,
    ]


def test_bytes_of_buffered_fragments_are_bounded_with_their_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "MAX_FRAGMENT_BYTES", 2 * (8 + fragments.FRAGMENT_COST_BYTES))
    held = Fragments()
    for k in range(3):
        held.add(KEY, 0, piece(16 * k, bytes(8)))

    assert (len(held), held.dropped, held._bytes) == (0, 1, 0)


def test_pieces_of_one_datagram_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "MAX_FRAGMENTS_PER_DATAGRAM", 2)
    held = Fragments()
    for k in range(5):
        held.add(KEY, 0, piece(16 * k, bytes(8)))

    assert held._bytes == 2 * (8 + fragments.FRAGMENT_COST_BYTES)


def test_a_whole_datagram_is_a_packet_of_raw_ip() -> None:
    """As Scapy reads it."""
    four = IP(plain_packet((4, 0, 0x01020304, 0, 0x05060708, 77, 6), b"payload"))
    halves = socket.inet_pton(socket.AF_INET6, "2001:db8::1"), socket.inet_pton(socket.AF_INET6, "fe80::2")
    numbers = [int.from_bytes(x[i : i + 8], "big", signed=True) for x in halves for i in (0, 8)]
    six = IPv6(plain_packet((6, *numbers, 77, 17), b"payload"))

    assert (four.src, four.dst, four.proto, four.len, four.frag) == ("1.2.3.4", "5.6.7.8", 6, 27, 0)
    assert (six.src, six.dst, six.nh, six.plen) == ("2001:db8::1", "fe80::2", 17, 7)
    assert bytes(four)[20:] == bytes(six)[40:] == b"payload"
