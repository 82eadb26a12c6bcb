"""Reports over time as bars."""

from running import lines_on_terminal


def test_bars_of_messages_alone_say_how_to_get_the_rest() -> None:
    lines = lines_on_terminal(80, "stats", "-u", "--interval", "1s", "pcaps/blipmq/qos1.pcap")
    chosen = lines_on_terminal(80, "stats", "-u", "--interval", "1s", "--metric", "errors", "pcaps/blipmq/qos1.pcap")

    assert "note: bars are of messages; --metric errors,p99 names others" in " ".join(lines)
    assert "note: bars are" not in " ".join(chosen)


def test_each_interval_has_its_numbers_and_a_bar() -> None:
    """Of 242 messages in 8 seconds, 53 came in the first and 135 in the seventh: 53 * 20 // 135 = 7 characters."""
    title, *lines = lines_on_terminal(160, "stats", "-q", "-u", "--interval", "1s", "pcaps/blipmq/qos1.pcap")

    assert title.endswith("most 135 messages")
    counts = [int(line.split()[2]) for line in lines]
    assert (len(counts), counts[0], counts[6], sum(counts)) == (8, 53, 135, 242)
    assert lines[0].endswith("  " + "█" * 7) and lines[6].endswith("  " + "█" * 20)


def test_groups_have_one_scale_and_its_largest_number() -> None:
    """The most of any operation in a second is the scale of all lines."""
    title, *lines = lines_on_terminal(
        160, "stats", "-q", "-u", "--interval", "1s", "--by", "op", "pcaps/blipmq/qos1.pcap"
    )

    assert " messages per 1s at most, 05:24:09 to 05:24:17" in title
    assert sum("█" in line for line in lines) == 1, "only the largest number has a whole bar"
