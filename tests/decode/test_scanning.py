"""Messages of a layout in a run of bytes: one after the other, searched for, or their header alone."""

from mqpcap.decode import bytecode
from mqpcap.decode.scanning import LayoutScanner, Scanners
from mqpcap.protocols import protocols

# blipmq: a four-byte length, then type, correlation id and body; POLL is 17 bytes after the length.
POLL = bytes.fromhex("00000011 09 0000000000000009 00000000 00000003")


def scanner(protocol: str, layout: str) -> LayoutScanner:
    return Scanners().scanners_for(protocols()[protocol])[layout]


def test_whole_messages_are_found_and_the_end_of_the_next_is_known() -> None:
    view = memoryview(POLL * 2 + POLL[:14])

    n, code, at, known_end, _ = scanner("blipmq", "c2s").scan(view, 0, len(view), False)

    assert (n, code, at, known_end) == (2, bytecode.SCAN_MORE, 42, 63)


def test_bytes_that_are_no_message_stop_the_scan() -> None:
    view = memoryview(POLL + b"\xff" * 40)

    n, code, at, _, _ = scanner("blipmq", "c2s").scan(view, 0, len(view), False)

    assert (n, code, at) == (1, bytecode.SCAN_BAD, 21)


def test_search_skips_what_is_no_message() -> None:
    view = memoryview(b"\x09\0\0" + POLL * 2)

    assert scanner("blipmq", "c2s").search(view, 0, len(view), True, 2) == (3, True)


def test_last_message_of_a_search_may_be_truncated_after_its_length() -> None:
    """The gap after the second POLL begins in its header: its length was captured, its correlation id not wholly."""
    view = memoryview(b"\x09\0\0" + POLL + POLL[:12])

    assert scanner("blipmq", "c2s").search(view, 0, len(view), True, 2) == (3, True)
    assert scanner("blipmq", "c2s").search(view, 0, len(view), False, 2) == (3, False)
    assert scanner("blipmq", "c2s").search(view[:26], 0, 26, True, 2) == (26, False)


def test_header_of_a_cut_message() -> None:
    view = memoryview(POLL)

    assert scanner("blipmq", "c2s").header(view, 0, 13) == (True, 9)
    assert scanner("blipmq", "c2s").header(view, 0, 12)[0] is False
