"""Connections that are named, or found by a filter."""

from running import objects, run

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_a_connection_has_three_names() -> None:
    """qos1: the third connection by its first packet is that of port 39314."""
    by_short, by_end = (
        run("show", "-q", "-u", "--connection", name, QOS1).stdout for name in ("c3", "127.0.0.1:39314")
    )
    ids = {row["connection_id"] for row in objects(run("show", "-q", "--json", "--connection", "c3", QOS1))}
    both = run("show", "-q", "--connection", "c3", "--connection", "c1", QOS1).stdout
    by_id = run("show", "-q", "-u", "--connection", ids.pop(), QOS1).stdout

    assert by_short == by_end == by_id != ""
    assert all(" c3   127.0.0.1:39314 " in line for line in by_short.splitlines())
    assert both.count("\n") > by_id.count("\n")
    assert run("show", "--connection", "seven", QOS1).exit_code == 2
    place = ("--connection", "c1", "--direction", "c2s", "--offset", "3")
    assert "HELLO" in run("explain", QOS1, *place).stdout
