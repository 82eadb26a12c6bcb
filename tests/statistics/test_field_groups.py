"""Groups by any field: nothing is lost, and what ordinary groups count is counted alike."""

from collections import Counter
from pathlib import Path

import made_flymq
import pytest

import mqpcap
from mqpcap.errors import QueryError
from mqpcap.statistics.groups import Groups

CAPTURES = ("pcaps/fq/session.pcap", "pcaps/flymq/core.pcap", "pcaps/blipmq/qos1.pcap", "pcaps/kokaq/doc_session.pcap",
            "pcaps/msgq/split_session.pcap", "pcaps/faults/flymq_lost.pcap")  # fmt: skip
TOTALS = ("messages", "messages_c2s", "bytes", "errors", "answered", "likely")


def _totals(path: str, *names: str) -> dict[str, int]:
    rows = mqpcap.stats(path, by=names).to_pylist()
    return {name: sum(row[name] for row in rows) for name in TOTALS}


@pytest.mark.parametrize("path", CAPTURES)
@pytest.mark.parametrize("names", [("state",), ("partition_id", "how"), ("flymq.topic", "fq.route"), ("dialect",)])
def test_totals_are_those_of_ordinary_groups(path: str, names: tuple[str, ...]) -> None:
    assert _totals(path, *names) == _totals(path, "protocol", "op")


def test_messages_by_a_field_of_a_protocol() -> None:
    """Counted again from the rows of the protocol's table."""
    rows = mqpcap.stats("pcaps/fq/session.pcap", by=["fq.route"]).to_pylist()
    with mqpcap.open("pcaps/fq/session.pcap") as recording:
        routes = Counter(route and route.decode("utf-8", "replace")[:1024] if isinstance(route, bytes) else route
                         for route in recording.table("fq")["route"].to_pylist())  # fmt: skip

    assert {row["fq.route"]: row["messages"] for row in rows} == routes


def test_messages_by_state_are_requests_and_their_replies() -> None:
    """8 requests are answered: CREATE_TOPIC 4, DELETE_TOPIC 2, LIST_TOPICS 2 of the first 3."""
    rows = {row["state"]: row for row in mqpcap.stats("pcaps/flymq/core.pcap", by=["state"]).to_pylist()}

    assert {state: row["messages"] for state, row in rows.items()} == {"answered": 60}
    assert rows["answered"]["messages_c2s"] == rows["answered"]["answered"] == 30


def test_a_name_of_both_tables_is_the_replys_for_errors_and_latencies() -> None:
    rows = {row["error_code"]: row for row in mqpcap.stats("pcaps/blipmq/qos1.pcap", by=["error_code"]).to_pylist()}

    assert (rows[404]["messages"], rows[404]["errors"], rows[404]["answered"]) == (7, 7, 7)
    assert rows[None]["errors"] == 0


def test_a_filter_and_an_interval_go_with_it() -> None:
    rows = mqpcap.stats(
        "pcaps/flymq/core.pcap", by=["flymq.topic"], interval="20ms", filter="op == PRODUCE"
    ).to_pylist()

    assert sum(row["messages"] for row in rows) == 18
    assert {row["start_ns"] % 20_000_000 for row in rows} == {0}


def test_wiresharks_stream_is_a_group() -> None:
    rows = mqpcap.stats("pcaps/blipmq/qos1.pcap", by=["tcp.stream"], filter="connection == c2").to_pylist()

    assert [(row["tcp.stream"], row["messages"]) for row in rows] == [(1, 11)]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(QueryError):
        Groups(["nope.nope"])


def test_a_reply_counts_in_the_topic_of_its_request(tmp_path: Path) -> None:
    """FlyMQ's replies to FETCH name no topic; ``-Y`` and intervals count them there, too."""
    calls = [*made_flymq.produce("orders", b"x" * 500, 0), *made_flymq.fetch("orders", 0, b"x" * 500)]
    path = made_flymq.capture(tmp_path / "made.pcap", [*calls, *made_flymq.fetch("other", 0)])
    sizes = [len(data) for _, data in calls]

    for options in ({}, {"interval": "1h"}, {"filter": "protocol == flymq"}, {"by": ["topic", "flymq.success"]}):
        rows = mqpcap.stats(path, **{"by": ["topic"], **options}).to_pylist()

        found = {row["topic"]: (row["messages"], row["messages_s2c"], row["bytes"]) for row in rows}
        assert found["orders"] == (4, 2, sum(sizes)), options
        assert set(found) == {"orders", "other"}, options
