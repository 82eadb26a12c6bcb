"""Rows of several captures in order of time."""

from running import objects, run

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_rows_come_in_order_of_time_over_all_captures() -> None:
    times = [row["ts_ns"] for row in objects(run("show", "--json", "-q", "pcaps/flymq/core.pcap", QOS1, "pcaps/fq"))]

    assert times == sorted(times)  # type: ignore[type-var]
