"""Values of messages in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.listing.message_words import latency, readable, value_text


def test_bytes_are_text_or_hex_and_what_is_cut_is_counted() -> None:
    assert value_text(b"two\nlines") == '"two\\nlines"'
    assert value_text(b"\x1b]0;title\x07") == "hex " + b"\x1b]0;title\x07".hex()
    assert value_text(b"abcdefghij", 4) == '"abcd" and 6 more'
    assert value_text(b"\xff" * 10, 4) == "hex ffff and 8 more"  # two digits a byte
    assert (value_text(True), value_text(7), value_text("")) == ("true", "7", '""')


@given(st.text("a\n\r\t\x1b\0é\u202e\ud800"))
def test_bytes_are_readable_where_a_terminal_shows_them_as_they_are(text: str) -> None:
    plain = all(c.isprintable() or c in "\n\r\t" for c in text)

    assert readable(text.encode("utf-8", "surrogatepass")) == (text if plain else None)


@pytest.mark.parametrize(
    ("time_ns", "said"),
    [
        (0, "0.000 ms"),
        (54_000, "0.054 ms"),
        (54_001, "0.054001 ms"),
        (2_004_120_000, "2004.120 ms"),
        (-1_000, "-0.001 ms"),
    ],
)
def test_latency_is_exact(time_ns: int, said: str) -> None:
    assert latency(time_ns) == said
