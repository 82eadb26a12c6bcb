"""The interpreter, with programs written by hand: integers and text as Python reads them, lists, regions, variants."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqpcap.decode.bytecode import (
    BY_FIXED,
    BY_PREFIX,
    BY_REGISTER,
    BY_REST,
    BY_UNTIL,
    BY_ZERO,
    CHECKED,
    COMPLETE,
    IF_EQUALS,
    IF_FOLLOWS,
    IF_HAS,
    IF_LEFT,
    IF_TEXT,
    LITTLE,
    MALFORMED,
    MAX_LIST_ITEMS,
    OP_BITS,
    OP_END,
    OP_IF,
    OP_INT,
    OP_LIST,
    OP_NESTED,
    OP_SPAN,
    OP_WORDS,
    PRINTABLE,
    SIGNED,
    TOO_LONG,
    TRUTH,
    UTF8,
    Decoder,
)  # fmt: skip

TOO_MANY = (MAX_LIST_ITEMS + 1).to_bytes(4, "big")
Entry = tuple[int, int, int, int]


def op(code: int, col: int = -1, x: int = 0, y: int = 0, z: int = 0, reg: int = -1, jump: int = 0, flags: int = 0):  # type: ignore[no-untyped-def]
    """A row of a program; ``jump`` is the number of a row."""
    return [code, col, reg, x, y, z, jump * OP_WORDS, flags]


END = op(OP_END)


def decoded(
    rows: Sequence[list[int]],
    data: bytes,
    consts: Sequence[int] = (0,),
    variants: Sequence[tuple[int, int]] = ((0, -1),),
    count: int = 1,
    room: int = 100,
) -> tuple[list[int], list[int], list[Entry]]:
    """Flaws, variants and the tape of messages that all have the same bytes. ``variants``: first row, extra column."""
    words = np.array(rows, np.int32).reshape(-1)
    first, extra = (np.array(column, np.int32) for column in zip(*variants, strict=True))
    own = [np.array(consts, np.int64), np.zeros(10, np.int64), np.zeros(4, np.int64), first * OP_WORDS, extra]
    decoder = Decoder(*map(memoryview, (words, *own)))
    spans = np.array([[0], [len(data)], [0], [len(data)]], np.int64).repeat(count, axis=1)
    of = np.array([[-1], [0], [len(variants)]], np.int32).repeat(count, axis=1)
    chosen, flaw = np.zeros(count, np.int32), np.zeros(count, np.uint8)
    tape: list[Entry] = []
    row = 0
    while row < count:
        filled = [
            np.zeros(room, np.int32),
            np.zeros(room, np.int32),
            np.zeros(room, np.int64),
            np.zeros(room, np.int64),
        ]
        decoder.tape(*map(memoryview, filled), 0)
        views = memoryview(spans), memoryview(of), memoryview(chosen), memoryview(flaw)
        row = decoder.decode(memoryview(data or b"\0")[: len(data)], *views, row)
        tape += zip(*(x[: decoder.filled()].tolist() for x in filled), strict=True)
    return flaw.tolist(), chosen.tolist(), tape


def tape_of(rows: Sequence[list[int]], data: bytes, consts: Sequence[int] = (0,)) -> list[Entry] | int:
    """The tape of one message, or its flaw."""
    (flaw,), _, tape = decoded(rows, data, consts)
    assert flaw == COMPLETE or tape == []  # wholly or not at all
    return flaw or tape


@given(st.integers(1, 8), st.booleans(), st.booleans(), st.binary(min_size=8, max_size=8))
def test_integers_are_those_of_python(size: int, is_little: bool, is_signed: bool, data: bytes) -> None:
    """Eight bytes keep their bits in a signed number."""
    data = data[:size]
    flags = LITTLE * is_little | SIGNED * is_signed
    value = int.from_bytes(data, "little" if is_little else "big", signed=is_signed or size == 8)

    assert tape_of([op(OP_INT, 3, x=size, flags=flags), END], data) == [(3, 0, value, 0)]


@given(st.binary(max_size=6) | st.text(max_size=4).map(str.encode))
@example(b"\xc0\x80")  # overlong
@example(b"\xe0\x9f\xbf")
@example(b"\xf0\x8f\xbf\xbf")
@example(b"\xed\xa0\x80")  # a surrogate
@example(b"\xf4\x90\x80\x80")  # after the last
@example("\U0010ffff\ud7ff\ue000".encode())
@example(b"\xe2\x82")
def test_text_is_what_python_reads_as_text(data: bytes) -> None:
    try:
        data.decode()
        expected: list[Entry] | int = [(0, 0, 0, len(data))]
    except UnicodeDecodeError:
        expected = MALFORMED

    assert tape_of([op(OP_SPAN, 0, x=BY_REST, flags=UTF8), END], data) == expected


@pytest.mark.parametrize(
    ("data", "flaw"), [(b" ~\x80", COMPLETE), (b"a\x1f", MALFORMED), (b"\x7f", MALFORMED), (b"", COMPLETE)]
)
def test_control_characters_are_not_printable(data: bytes, flaw: int) -> None:
    assert decoded([op(OP_SPAN, 0, x=BY_REST, flags=PRINTABLE), END], data)[0] == [flaw]


@pytest.mark.parametrize(("value", "flaw"), [(1, MALFORMED), (2, COMPLETE), (5, COMPLETE), (6, MALFORMED)])
def test_numbers_and_lengths_stay_within_their_bounds(value: int, flaw: int) -> None:
    number = op(OP_INT, 0, x=1, z=1, flags=CHECKED)
    span = op(OP_SPAN, 0, x=BY_PREFIX, y=1, z=1, flags=CHECKED)

    assert decoded([number, END], bytes([value]), [9, 2, 5])[0] == [flaw]
    assert decoded([span, END], bytes([value]) + bytes(value), [9, 2, 5])[0] == [flaw]


@pytest.mark.parametrize(
    ("by", "data", "expected"),
    [
        (op(OP_SPAN, 0, x=BY_FIXED, y=2), b"abc", [(0, 0, 0, 2), (1, 0, 2, 1)]),
        (op(OP_SPAN, 0, x=BY_PREFIX, y=1), b"\x02abc", [(0, 0, 1, 2), (1, 0, 3, 1)]),
        (op(OP_SPAN, 0, x=BY_UNTIL, y=ord(",")), b"ab,c", [(0, 0, 0, 2), (1, 0, 3, 1)]),
        (op(OP_SPAN, 0, x=BY_UNTIL, y=ord(",")), b"abc", [(0, 0, 0, 3)]),
        (op(OP_SPAN, 0, x=BY_REST), b"abc", [(0, 0, 0, 3), (1, 0, 3, 0)]),
        (op(OP_SPAN, 0, x=BY_FIXED, y=4), b"abc", MALFORMED),
        (op(OP_SPAN, 0, x=BY_PREFIX, y=2), b"\x00", MALFORMED),
        (op(OP_SPAN, 0, x=BY_PREFIX, y=8), b"\xff" * 8, MALFORMED),
        (op(OP_SPAN, 0, x=BY_PREFIX, y=8), b"\xff" * 7 + b"\xf0", MALFORMED),
    ],
)
def test_lengths_are_learned_in_five_ways(by: list[int], data: bytes, expected: list[Entry] | int) -> None:
    assert tape_of([by, op(OP_SPAN, 1, x=BY_REST), END], data) == expected


def test_bits_truths_and_lengths_come_from_registers() -> None:
    rows = [op(OP_INT, 0, x=1, reg=2), op(OP_BITS, 1, x=2, y=4, z=0b111, reg=3), op(OP_INT, 2, x=1, flags=TRUTH)]
    rows += [op(OP_SPAN, 3, x=BY_REGISTER, y=3), END]

    assert tape_of(rows, b"\xb5\x02abc") == [(0, 0, 0xB5, 0), (1, 0, 3, 0), (2, 0, 0, 0), (3, 0, 2, 3)]
    negative = [op(OP_INT, x=1, reg=2, flags=SIGNED), op(OP_SPAN, 3, x=BY_REGISTER, y=2), END]
    assert tape_of(negative, b"\xffabc") == MALFORMED


def listed(by: list[int]) -> list[list[int]]:
    """A list of two-byte items, then the rest."""
    return [by, op(OP_INT, 1, x=2), END, op(OP_SPAN, 2, x=BY_REST), END]


def list_by(x: int, y: int = 1, flags: int = 0) -> list[int]:
    return op(OP_LIST, 0, x=x, y=y, z=2, reg=0, jump=3, flags=flags)


@pytest.mark.parametrize(
    ("by", "data", "items", "rest"),
    [
        (list_by(BY_FIXED, 2), b"\0\1\0\2z", [1, 2], (4, 1)),
        (list_by(BY_PREFIX), b"\2\0\1\0\2", [1, 2], (5, 0)),
        (list_by(BY_PREFIX), b"\0", [], (1, 0)),
        (list_by(BY_REST), b"\0\1\0\2\0\3", [1, 2, 3], (6, 0)),
        (list_by(BY_ZERO, 2), b"\0\1\0\2\0\0z", [1, 2], (6, 1)),
    ],
)
def test_lists_have_items_in_the_order_of_the_wire(
    by: list[int], data: bytes, items: list[int], rest: tuple[int, int]
) -> None:
    wanted = [(1, k, item, 0) for k, item in enumerate(items)]

    assert tape_of(listed(by), data) == [*wanted, (0, 0, 0, len(items)), (2, 0, *rest)]


@pytest.mark.parametrize(
    ("by", "data", "flaw"),
    [
        (list_by(BY_PREFIX), b"\3\0\1\0\2", MALFORMED),
        (list_by(BY_REST), b"\0\1\0", MALFORMED),
        (list_by(BY_ZERO, 2), b"\0\1", MALFORMED),
        (list_by(BY_PREFIX, flags=CHECKED), b"\0", MALFORMED),
        (
            op(OP_LIST, 0, x=BY_PREFIX, y=4, z=0, reg=0, jump=3),
            (MAX_LIST_ITEMS + 1).to_bytes(4, "big") + bytes(9),
            TOO_LONG,
        ),
        (op(OP_LIST, 0, x=BY_PREFIX, y=4, z=2, reg=0, jump=3), (MAX_LIST_ITEMS + 1).to_bytes(4, "big"), MALFORMED),
    ],
    ids=["more than the bytes left", "half an item", "no zero", "none where one must be", "our limit", "the wire's"],
)
def test_lists_that_do_not_fit_are_flaws(by: list[int], data: bytes, flaw: int) -> None:
    assert tape_of(listed(by), data) == flaw


def test_items_of_later_messages_are_counted_on() -> None:
    *_, tape = decoded(listed(list_by(BY_REST)), b"\0\1\0\2", count=2)

    assert [entry for entry in tape if entry[0] < 2] == [
        (1, 0, 1, 0), (1, 1, 2, 0), (0, 0, 0, 2), (1, 2, 1, 0), (1, 3, 2, 0), (0, 1, 2, 2)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "expected"), [(b"\2\0\7", [(0, 0, 7, 0)]), (b"\3\0\7x", MALFORMED), (b"\1\0", MALFORMED)]
)
def test_a_region_is_read_to_its_last_byte(data: bytes, expected: list[Entry] | int) -> None:
    assert tape_of([op(OP_NESTED, x=BY_PREFIX, y=1, jump=3), op(OP_INT, 0, x=2), END, END], data) == expected


@pytest.mark.parametrize(
    ("test", "yes", "no"),
    [
        (op(OP_IF, x=IF_EQUALS, y=1, z=0, jump=3), b"\5x", b"\4x"),
        (op(OP_IF, x=IF_HAS, y=1, z=0, jump=3), b"\4x", b"\2x"),
        (op(OP_IF, x=IF_LEFT, z=0, jump=3), b"\0xxxxx", b"\0xxxx"),
        (op(OP_IF, x=IF_FOLLOWS, y=2, z=0, jump=3), b"\0\0\5", b"\0\5\0"),
        (op(OP_IF, x=IF_FOLLOWS, y=2, z=0, jump=3), b"\0\0\5", b"\0\5"),
    ],
)
def test_what_is_there_only_sometimes(test: list[int], yes: bytes, no: bytes) -> None:
    rows = [op(OP_INT, x=1, reg=1), test, op(OP_SPAN, 1, x=BY_FIXED, y=0), op(OP_SPAN, 2, x=BY_REST), END]

    found = [[entry[0] for entry in decoded(rows, data, [5])[2]] for data in (yes, no)]
    assert found == [[1, 2], [2]]


def test_text_decides_what_follows() -> None:
    test = op(OP_IF, x=IF_TEXT, y=1, z=1, jump=3)
    rows = [op(OP_SPAN, x=BY_PREFIX, y=1, reg=1), test, op(OP_INT, 0, x=1), op(OP_SPAN, 1, x=BY_REST), END]

    found = [decoded(rows, data, [9, 2, ord("o"), ord("k")])[2] for data in (b"\2ok\7", b"\2on\7", b"\3okk", b"\1o\7")]
    assert [tape[0][0] for tape in found] == [0, 1, 1, 1]


def test_the_first_variant_that_ends_at_the_end_is_chosen_and_one_that_leaves_bytes_last() -> None:
    rows = [op(OP_INT, 0, x=2), END, op(OP_INT, 1, x=1), END, op(OP_INT, 2, x=1), END]
    variants = [(0, -1), (2, 9), (4, 8)]

    assert decoded(rows, b"\0\1", variants=variants) == ([COMPLETE], [0], [(0, 0, 1, 0)])
    assert decoded(rows, b"\7", variants=variants) == ([COMPLETE], [1], [(1, 0, 7, 0)])
    assert decoded(rows, b"\0\1\2", variants=variants) == ([COMPLETE], [1], [(1, 0, 0, 0), (9, 0, 1, 2)])
    assert decoded(rows, b"", variants=variants) == ([MALFORMED], [-1], [])


@given(st.integers(3, 12), st.integers(1, 9))
def test_a_full_tape_changes_nothing(room: int, count: int) -> None:
    """Each message takes three entries, and goes whole onto the next tape."""
    rows = listed(list_by(BY_FIXED, 1))

    assert decoded(rows, b"\0\1z", count=count, room=room) == decoded(rows, b"\0\1z", count=count)


def test_a_program_that_says_nonsense_is_wrong_and_no_exception() -> None:
    assert decoded([op(99)], b"x")[0] == [MALFORMED]
