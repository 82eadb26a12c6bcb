"""Flaws as the column of that name has them."""

from mqpcap.schema.flaws import Flaw


def test_the_words_are_those_of_the_contract() -> None:
    """Null is decoded to the last byte."""
    assert [flaw.text for flaw in Flaw] == [None, "truncated", "malformed", "too_long", "unknown"]
