"""Bytes of messages as hex, and what of them must not be seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_rows import merged
from running import run

from mqpcap.listing.hex_dump import dump
from mqpcap.listing.message_lines import body_columns
from mqpcap.listing.row_bytes import left_out
from mqpcap.reading import Choices

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_hex_shows_the_bytes_of_the_message() -> None:
    said = run("show", "-q", "-x", "-c", "1", QOS1).stdout.splitlines()

    assert said[1] == "    0000  00 00 00 0b 01 00 00 00  00 00 00 00 01 00 01     ..............."


@given(st.binary(max_size=70), st.lists(st.tuples(st.integers(-3, 80), st.integers(-3, 80)), max_size=4))
def test_a_dump_has_every_byte_but_those_that_are_hidden(data: bytes, spans: list[tuple[int, int]]) -> None:
    said = list(dump(data, spans, indent=2))

    cells = [cell for line in said for cell in line[8:56].split()]
    texts = "".join(line[58:] for line in said)
    for at, byte in enumerate(data):
        is_hidden = any(begin <= at < end for begin, end in spans)
        assert cells[at] == ("**" if is_hidden else f"{byte:02x}")
        assert texts[at] == ("*" if is_hidden else chr(byte) if 32 <= byte < 127 else ".")
    assert len(cells) == len(texts) == len(data)
    assert [line[:6] for line in said] == [f"  {at:04x}" for at in range(0, len(data), 16)]


@pytest.mark.parametrize("name", ["blipmq/qos1", "flymq/core", "fq/session", "kokaq/go1_session"])
@pytest.mark.parametrize("kept", [0, 2])
def test_a_dump_leaves_out_the_bodies_that_are_not_kept(name: str, kept: int) -> None:
    """All other bytes stand as they are."""
    count = 0
    for row in merged(name, with_bytes=True):
        bodies = [x for column in body_columns(row.protocol) if isinstance(x := row.fields.get(column), bytes)]
        if not bodies or row.message["flaw"] is not None:
            continue
        spans = left_out(row, Choices(bodies=kept))
        count += 1
        assert b"".join(row.data[begin:end] for begin, end in spans) == bodies[0][kept:]
        assert left_out(row, Choices()) == ()
    assert count


def test_the_command_leaves_bodies_out_of_dumps() -> None:
    """FlyMQ's first PRODUCE of this capture: topic ``test``, no key, the value in front of the partition."""
    said = run("show", "-q", "-x", "--bodies", "none", "--op", "PRODUCE", "-c", "1", "pcaps/flymq/core.pcap").stdout

    assert "    0010  00 00 00 00 00 05 -- --  -- -- -- ff ff ff ff     ......-----...." in said


def test_bodies_inside_of_a_tree_are_left_out_with_it() -> None:
    (row, *_) = [row for row in merged("msgq/flat_session", with_bytes=True) if row.message["op"] == "send"]
    begin, end = left_out(row, Choices(bodies=0))[0]

    assert row.data[begin - 4 : begin] == b"Skan"
    assert end == len(row.data)
