"""Reports over time as bars."""

from running import lines_on_terminal


def test_a_terminal_shows_a_bar_for_each_interval() -> None:
    """Of 242 messages in 8 seconds, 53 came in the first and 135 in the seventh: 53 * 8 // 135 = 3 eighths."""
    title, line = lines_on_terminal(160, "stats", "-q", "-u", "--interval", "1s", "pcaps/blipmq/qos1.pcap")

    assert title.endswith("messages per 1s, 05:24:09.000000Z to 05:24:17.000000Z")
    assert line.split()[0] == "242"
    bars = line[title.index("messages per") :]
    assert (len(bars), bars[0], bars[6]) == (8, "▃", "█")
