"""kokaq's splitter: where frames end, however much of them is there, and which variant reads them."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kokaq_frames import (
    CREATE,
    EXAMPLES,
    GET,
    GO1_ANSWER,
    GO1_PUSH,
    LEAN_ANSWER,
    LEAN_CREATE,
    LONG_NAME,
    LONG_THEN_UUID,
    LONG_VALUE,
    NOP,
    PUSH,
    SHORT_NAME,
    UNKNOWN,
    columns,
    h,
    lengths,
    split_at,
)

from mqpcap.decode import bytecode
from mqpcap.protocols.kokaq import PROTOCOL, SPLITS, split_frames
from mqpcap.schema.flaws import Flaw


@pytest.mark.parametrize(("direction", "layout", "frame"), EXAMPLES)
def test_example_is_one_frame(direction: str, layout: str, frame: bytes) -> None:
    found = split_at(frame, direction=direction)

    assert (found.verdict, found.end, found.layout, found.flaw) == ("message", len(frame), layout, 0)


def test_pipelined_examples_split_as_the_page_says() -> None:
    assert lengths(NOP + CREATE + GET + PUSH) == [12, 28, 44, 35]


def test_go1_frames_in_a_row_keep_their_tails() -> None:
    assert lengths(GO1_PUSH + GO1_PUSH + LONG_VALUE + LONG_THEN_UUID + GO1_PUSH) == [45, 45, 38, 96, 45]


def test_lean_frames_in_a_row() -> None:
    assert lengths(LEAN_CREATE + LEAN_ANSWER + LEAN_CREATE) == [28, 32, 28]


@pytest.mark.parametrize(("direction", "layout", "frame"), EXAMPLES)
def test_frame_cut_anywhere_waits_and_is_then_truncated(direction: str, layout: str, frame: bytes) -> None:
    tail = len(frame) - 12 if layout.endswith("go1") and len(frame) > 12 else len(frame)
    tail += 3 * (frame is SHORT_NAME) - 2 * (frame is LONG_NAME)
    for cut in range(1, tail):
        if frame is SHORT_NAME and cut == 30:
            continue  # there a namespace of one byte would end the frame
        found = split_at(frame[:cut], ended=False, direction=direction)
        assert found.verdict == "more"
        assert bool(found.layout) == (cut >= 12)
        if layout.endswith("lean") and 12 <= cut < 14:
            continue  # so far it is a Nop
        assert split_at(frame[:cut], direction=direction).verdict == "more"


@pytest.mark.parametrize("missing", range(1, 13))
def test_go1_tail_cut_by_a_reset_is_no_flaw(missing: int) -> None:
    frame = GO1_PUSH[: len(GO1_PUSH) - missing]

    assert split_at(frame, ended=False).verdict == "more"
    assert split_at(frame).end == len(frame)
    assert columns(frame)["namespace"] == "42"
    assert columns(frame).get("trailer", b"") == bytes(12 - missing)


def test_answer_cut_by_a_reset_says_where_it_would_end() -> None:
    found = split_at(GO1_PUSH[:30])

    assert (found.verdict, found.known_end, found.layout, found.op) == ("more", 45, "c2s_go1", 6)


def test_a_simple_frame_does_not_wait() -> None:
    assert split_at(NOP, ended=False).end == 12
    assert split_at(GO1_ANSWER, ended=False, direction="s2c").end == 12


def test_missing_tail_means_lengths_count_bytes() -> None:
    """2.11: a little-endian frame without a tail is not the codec's writing."""
    frame = h("20040105 03000000 06030002 02200400 06040500") + b"ordersfasthello"

    assert lengths(frame + GO1_ANSWER) == [35, 12]
    assert split_at(frame + GO1_ANSWER).layout == "c2s_go1_plain"
    assert columns(frame) | {"namespace": "orders", "queue": "fast", "body": b"hello"} == columns(frame)


def test_payload_that_is_a_frame_stays_payload() -> None:
    inner = GO1_PUSH
    frame = h("20040105 03000000 06030002 02200400 0404") + len(inner).to_bytes(2, "little") + h("2a00000007000000")
    frame += inner + bytes(12)

    assert lengths(frame + GO1_ANSWER) == [len(frame), 12]


def test_oversize_go1_payload_leaves_bytes_unaccounted() -> None:
    """2.11: 70 000 bytes give a length of 4464."""
    frame = h("20040105 03000000 06030002 02200400 04047011 2a00000007000000") + b"x" * 70000 + bytes(12)

    assert split_at(frame).end == 28 + 4464
    assert split_at(frame, 28 + 4464).verdict == "bad"


@pytest.mark.parametrize("behind", [b"", NOP])
def test_zeros_after_a_big_endian_component(behind: bytes) -> None:
    """2.11: 1 to 3 zeros up to a multiple of four; 2.15: exactly twelve."""
    assert lengths(PUSH + b"\0" + behind)[0] == 36
    assert lengths(PUSH + bytes(12) + behind)[0] == 47
    assert columns(PUSH + b"\0")["trailer"] == b"\0"
    assert split_at(PUSH + bytes(2) + behind).end == 35
    assert split_at(PUSH + bytes(5) + behind).end == 35
    assert "trailer" not in columns(PUSH)


def test_simple16_where_no_component_follows() -> None:
    """2.7: byte 11 is none of 0, 1, 2 and nothing repeats it; or a head stands at 12."""
    odd = h("04200106 00000001 00020709")
    two = h("04200106 00000001 00020702")

    assert split_at(odd + NOP).layout == "c2s_doc_simple16"
    assert lengths(odd + NOP + odd) == [12, 12, 12]
    assert (split_at(two + NOP).end, split_at(two + NOP).layout) == (12, "c2s_doc_simple16")
    assert split_at(two).verdict == "more"
    assert split_at(two + b"\x07\x07\x07\x07").verdict == "bad"
    assert columns(odd)["op_opaque"] == 0x0709
    assert "tag" not in columns(odd)
    little = h("20040105 01000000 03030738")
    assert columns(little) | {"op_opaque": 0x3807} == columns(little)


def test_unknown_component_goes_to_the_next_head() -> None:
    for behind, end in ((b"", 20), (GO1_ANSWER, 20), (b"abc" + GO1_ANSWER, 23), (b"abc", 23)):
        found = split_at(UNKNOWN + behind)
        assert (found.verdict, found.end, found.flaw) == ("message", end, Flaw.UNKNOWN)
    assert split_at(UNKNOWN, ended=False).verdict == "more"
    assert split_at(UNKNOWN[:19]).verdict == "more"


def test_admin_message_of_another_shape_goes_to_the_next_head() -> None:
    admin = h("0420010a 00000001 00020701") + b"anything"

    assert (split_at(admin + NOP).end, split_at(admin + NOP).flaw) == (20, Flaw.UNKNOWN)


def test_swapped_component_tags_are_read_where_the_legend_fails() -> None:
    """2.8: payload under tag 1, as the component pictures say; metadata under tag 2."""
    payload = PUSH[:11] + b"\x01\x01" + PUSH[13:]
    metadata = GET[:11] + b"\x02\x02" + GET[13:]
    for behind in (b"", NOP):
        assert (split_at(payload + behind).end, split_at(payload + behind).layout) == (35, "c2s_doc_swapped")
        assert (split_at(metadata + behind).end, split_at(metadata + behind).layout) == (44, "c2s_doc_swapped")
    assert columns(payload)["body"] == b"hello"
    assert [e["tag"] for e in columns(metadata)["metadata"]] == [1, 5]


def test_count_may_be_a_length_in_bytes() -> None:
    """2.12, big-endian only."""
    frame = GET[:16] + h("00000018") + GET[20:]
    for behind in (b"", NOP):
        assert (split_at(frame + behind).end, split_at(frame + behind).layout) == (44, "c2s_doc_bytes")
    assert columns(frame)["metadata"] == columns(GET)["metadata"]
    assert "field_count" in columns(frame)["ambiguities"]


def test_more_entries_than_the_cap_are_not_waited_for() -> None:
    assert split_at(GET[:16] + h("00001001") + GET[20:] + b"\xff", ended=False).verdict == "more"  # may be swapped
    assert split_at(GET[:16] + h("ffffffff") + bytes(8)).verdict == "bad"
    little = h("20040105 03000000 03030001 01200400 ffffffff")
    assert split_at(little, ended=False).verdict == "bad"


def test_lean_needs_its_zeros_a_low_opcode_and_a_length_that_fits() -> None:
    quiet = h("04200106 00000001 00000000")

    assert lengths(quiet + quiet) == [12, 12]
    assert split_at(quiet).layout == "c2s_doc"
    assert split_at(quiet, ended=False).verdict == "more"
    assert split_at(quiet + h("04"), ended=False).verdict == "more"
    assert split_at(quiet + h("0909") + bytes(20)).layout == "c2s_doc"
    assert split_at(LEAN_CREATE[:24] + h("01000001")).layout == "c2s_doc"
    assert split_at(LEAN_CREATE[:24] + h("01000000")).known_end == 28 + (1 << 24)


BEGINNINGS = ["", "0420", "2004", "042001060000000100020702", "20040105"]


@given(st.binary(max_size=80), st.sampled_from(BEGINNINGS), st.booleans())
def test_splitter_advances_or_stops(tail: bytes, begins: str, ended: bool) -> None:
    data = h(begins) + tail
    found = split_at(data, ended=ended)

    assert found.verdict != "message" or 0 < found.end <= len(data)
    if found.verdict == "message":
        assert found.layout in {x.name for x in PROTOCOL.layouts}


@given(st.lists(st.sampled_from(range(len(EXAMPLES))), max_size=5), st.data())
def test_ends_do_not_depend_on_how_the_stream_arrives(picked: list[int], data: st.DataObject) -> None:
    """What is decided before the end stays decided."""
    stream = b"".join(EXAMPLES[i][2] for i in picked) + data.draw(st.binary(max_size=30))
    where = 0
    while where < len(stream):
        whole = split_at(stream, where)
        for limit in sorted({data.draw(st.integers(where, len(stream))) for _ in range(4)}):
            early = split_at(stream, where, ended=False, limit=limit)
            if early.verdict == "message":
                assert (early.end, early.layout, early.flaw) == (whole.end, whole.layout, whole.flaw)
            elif early.verdict == "bad":
                assert whole.verdict == "bad"
        if whole.verdict != "message":
            break
        where = whole.end


@given(st.lists(st.sampled_from(range(len(EXAMPLES))), max_size=9), st.binary(max_size=20), st.booleans())
def test_many_frames_are_those_found_one_by_one(picked: list[int], tail: bytes, ended: bool) -> None:
    """However small the room for them is."""
    stream = b"".join(EXAMPLES[i][2] for i in picked) + tail
    layouts = ("", *SPLITS["c2s"])
    found: list[tuple[int, ...]] = []
    where, code, stopped = 0, bytecode.SCAN_FULL, None
    while where < len(stream) and code == bytecode.SCAN_FULL:
        rows = np.zeros((5, 2), np.int64)
        views = tuple(memoryview(row) for row in rows)
        n, code, where, known_end, form = split_frames(stream, len(stream), ended).scan(where, *views)
        found += map(tuple, rows[:, :n].T.tolist())
        stopped = code, known_end, layouts[form + 1]
    alone, place = [], 0
    while place < len(stream):
        split = split_at(stream, place, ended)
        if split.verdict != "message":
            code = bytecode.SCAN_MORE if split.verdict == "more" else bytecode.SCAN_BAD
            assert stopped == (code, split.known_end, split.layout)
            break
        alone.append((place, split.end, SPLITS["c2s"].index(split.layout), split.op, split.flaw))
        place = split.end

    assert (found, where) == (alone, place)


def test_a_search_wants_two_frames_in_a_row_or_one_at_the_end() -> None:
    junk = h("0420 02 0f")

    def found(data: bytes, ended: bool) -> tuple[int, bool]:
        return split_frames(data, len(data), ended).search(0, 2)

    assert found(junk + NOP + NOP, False) == (4, True)
    assert found(junk + PUSH, False) == (4, False)
    assert found(junk + NOP + PUSH, True) == (4, True)
    assert found(junk[:2] + NOP, True) == (2, True)
    assert found(junk[:2] + NOP, False) == (2, False)
    assert found(bytes(50), False) == (48, False)
    assert found(bytes(50), True) == (50, False)


NO_HEADER = h("20 04 01 ff 00000000 00 00 00 03 03 20 04 00 00000000")
"""A little-endian frame of unknown length with an illegal byte 3: the next header is searched for, and this is none."""
BLOCK = h("04 20 01 ff 00000000 00 00 00 01 01 04 20 00 00100000")
"""A metadata component of 1 MB, which the bytes behind it do not fill with whole entries."""


def search_seconds(data: bytes) -> float:
    """CPU time of one search."""
    began = time.process_time()
    assert split_frames(data, len(data), False).search(0, 2)[1] is False
    return time.process_time() - began


@pytest.mark.parametrize(
    ("repeated", "behind"),
    [(NO_HEADER, b"U" * (3 << 19)), (BLOCK, bytes(1 << 21))],
    ids=["a frame of unknown length", "a block"],
)
def test_twice_the_bytes_take_twice_the_time_to_search(repeated: bytes, behind: bytes) -> None:
    """Bytes searched for one frame are not read again for the next: 6,500 searches of 1 MB took five seconds."""
    divisor = 1 if bytecode.COMPILED else 16
    small, large = (repeated * (size // divisor // len(repeated)) for size in (1 << 17, 1 << 18))

    seconds = [min(search_seconds(data + behind[::divisor]) for _ in range(3)) for data in (small, large)]

    assert seconds[1] < 3 * seconds[0] + 0.5


def test_a_frame_of_unknown_length_ends_at_the_header_that_an_earlier_search_found() -> None:
    """Two such frames in a row, the second inside what the first was searched in: both end at the same header."""
    data = NO_HEADER + NO_HEADER + b"U" * 1000 + NOP
    frames = split_frames(data, len(data), True)

    assert [frames.one(offset)[1] for offset in (0, 20, 0)] == [1040] * 3
