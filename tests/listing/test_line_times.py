"""Times of lines: ``-t``, and the date on a terminal."""

import pytest
from running import lines_on_terminal, run

from mqpcap.listing.line_times import line_times, seconds

QOS1 = "pcaps/blipmq/qos1.pcap"
FORMS = {
    "a": "05:24:09.419682Z", "ad": "2026-11-21 05:24:09.419682Z", "r": "0.001045", "d": "0.000308",
    "e": "1795238649.419682", "u": "05:24:09.419682Z", "ud": "2026-11-21 05:24:09.419682Z",
}  # fmt: skip


@pytest.mark.parametrize(("form", "expected"), FORMS.items())
def test_show_writes_times_as_asked(form: str, expected: str) -> None:
    """Packet 8 comes 1.045 ms after packet 1, and 0.308 ms after packet 6, the line before."""
    lines = run("show", "-q", "-c", "3", "-t", form, QOS1, TZ="UTC").stdout.replace("+00", "Z").splitlines()

    assert lines[2].split("  #8")[0].strip() == expected


def test_follow_has_the_same_times() -> None:
    lines = run("follow", "-q", "-t", "r", QOS1, "c2").stdout.splitlines()

    assert lines[3].startswith("    0.003275  #32     -> HELLO")


def test_relative_times_begin_with_the_first_line_where_the_first_packet_is_not_known() -> None:
    times = line_times("r", False, None)

    assert times is not None
    assert [times(ns).strip() for ns in (5_000_000, 6_500_000)] == ["0.000000", "0.001500"]


def test_a_time_before_the_last_line_is_negative() -> None:
    assert seconds(-1_500_000) == "-0.001500"


def test_on_a_terminal_the_date_stands_above_the_lines_of_a_day() -> None:
    lines = lines_on_terminal(100, "show", "-q", "-u", "-c", "2", QOS1)

    assert lines[0] == "2026-11-21  blipmq/v1 at 127.0.0.1:5555, where a line says no other"
    assert all(line.startswith("05:24:09") for line in lines[1:])


def test_since_counts_back_from_the_end() -> None:
    """The last packet is of 05:24:16.038896: one second before it are the messages from 05:24:15.038896 on."""
    back, absolute = (
        run("show", "-q", "-u", "--since", since, QOS1).stdout for since in ("-1s", "2026-11-21T05:24:15.038896Z")
    )

    assert back == absolute != ""
    assert run("show", "-q", "-u", "--since", "-1m", QOS1).stdout == run("show", "-q", "-u", QOS1).stdout


def test_the_end_of_a_pipe_is_not_known() -> None:
    with open(QOS1, "rb") as file:
        ended = run("show", "--since", "-5m", "-", stdin=file.read())

    assert ended.exit_code == 2
    assert "needs a file" in ended.stderr
