"""What somebody wrote into a capture file: comments and names, of blocks made byte by byte."""

import io
import socket
import struct

import pytest
from capture_files import THREE, block, enhanced, interface, option, pcap, section

from mqpcap.capture import annotations as module
from mqpcap.capture.annotations import Annotations, annotations
from mqpcap.capture.sources import plain_bytes

V4, V6 = socket.inet_aton("10.0.0.1"), socket.inet_pton(socket.AF_INET6, "2001:db8::1")


def annotations_of(content: bytes) -> Annotations:
    return annotations(plain_bytes(io.BytesIO(content), len(content)))


def commented(text: bytes, order: str = "<") -> bytes:
    """An enhanced packet block of three bytes with a comment."""
    head = struct.pack(order + "IIIII", 0, 0, 5, 3, 3)
    return block(6, head + b"abc\0" + option(1, text, order) + bytes(4), order)


@pytest.mark.parametrize("order", ["<", ">"])
def test_comments_are_reported_with_their_place(order: str) -> None:
    head = struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + option(4, b"dumpcap", order) + option(1, b"all", order)
    content = block(0x0A0D0D0A, head, order) + interface(order=order, options=option(1, b"eth0 is broken", order))
    content += enhanced(0, 5, b"first", order) + commented(b"look: \xff", order)

    assert annotations_of(content).comments == [
        ("file", "all"),
        ("interface", "eth0 is broken"),
        ("packet 2", "look: \ufffd"),
    ]


def test_blocks_that_wireshark_counts_are_counted() -> None:
    others = block(3, struct.pack("<I", 3) + b"abc\0") + block(5, bytes(12)) + block(9, b"journal\0")

    assert annotations_of(section() + interface() + others + commented(b"x")).comments == [("packet 3", "x")]


@pytest.mark.parametrize("order", ["<", ">"])
def test_an_address_has_all_its_names(order: str) -> None:
    records = option(1, V4 + b"broker\0broker.lan\0", order) + option(2, V6 + b"six\0", order)
    more = option(1, V4 + b"again\0", order) + option(7, b"stranger", order) + option(1, V4, order)
    content = section(order) + block(4, records + bytes(4), order) + block(4, more + bytes(4), order)

    assert annotations_of(content).names == {"10.0.0.1": ["broker", "broker.lan", "again"], "2001:db8::1": ["six"]}


def test_a_pcap_and_an_empty_file_have_none() -> None:
    assert annotations_of(pcap(THREE)) == annotations_of(b"") == Annotations()


@pytest.mark.parametrize(
    "tail", [b"\x06", struct.pack("<II", 6, 8), struct.pack("<II", 6, 0xFFFFFFFF), commented(b"y")[:-1]]
)
def test_what_is_in_front_of_damage_is_kept(tail: bytes) -> None:
    assert annotations_of(section() + interface() + commented(b"x") + tail).comments == [("packet 1", "x")]


def test_a_packet_block_too_short_for_its_head_ends_the_search() -> None:
    content = section() + interface() + commented(b"x") + block(6, bytes(4)) + commented(b"y")

    assert annotations_of(content).comments[:1] == [("packet 1", "x")]


def test_comments_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANNOTATIONS", 2)
    monkeypatch.setattr(module, "MAX_TEXT_BYTES", 3)

    assert [text for _, text in annotations_of(section() + interface() + commented(b"abcdef") * 5).comments] == [
        "abc",
        "abc",
    ]
