"""Rows of answers as aligned text, CSV or JSON lines."""

from running import lines_on_terminal


def test_one_long_name_does_not_pull_a_table_apart() -> None:
    said = lines_on_terminal(160, "stats", "-q", "--producers", "pcaps/fq/session.pcap")

    assert max(map(len, said)) < 120
