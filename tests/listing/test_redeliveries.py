"""Deliveries of a message to a consumer that has got it before."""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_rows import rows_of

import mqpcap
from mqpcap.listing import redeliveries
from mqpcap.listing.redeliveries import Redeliveries, receipts

receipt_rows = st.lists(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8), max_size=4)


@given(receipt_rows)
def test_each_counts_those_before_it(batches: Sequence[Sequence[tuple[int, bool]]]) -> None:
    made, before = Redeliveries(), Counter[int]()
    for rows in batches:
        wanted = []
        for number, may_be_again in rows:
            wanted.append(before[number] if may_be_again else 0)
            before[number] += 1
        numbers, marks = [x for x, _ in rows], [x for _, x in rows]
        columns = {"receipt": pa.array(numbers, pa.int64()), "may_be_again": pa.array(marks, pa.bool_())}

        assert made.counts(columns).tolist() == wanted


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redeliveries, "MAX_TRACKED", 2)
    made = Redeliveries()

    def counts(*numbers: int) -> list[int]:
        return made.counts({"receipt": pa.array(numbers), "may_be_again": pa.array([True] * len(numbers))}).tolist()

    assert (counts(1, 2), counts(3), counts(2), counts(1)) == ([0, 0], [0], [1], [0])


def deliveries(protocol: str, *connection_ids: int) -> pa.Table:
    """Deliveries of one publish to connections."""
    publish = {"protocol": protocol, "publish_connection_id": 9, "publish_offset": 0}
    return rows_of("deliveries", *(publish | {"deliver_connection_id": x} for x in connection_ids))


def test_a_subscription_is_a_consumer_on_any_connection() -> None:
    """Rows 0 and 1 are of one subscription, row 2 of another one, and row 3 of a connection without."""
    rows = deliveries("blipmq", 1, 2, 2, 2)
    rows = rows.append_column("request.blipmq.subscription_id", pa.array(["a", "a", "b", None]))

    assert Redeliveries().counts(receipts(rows)).tolist() == [0, 1, 0, 0]


def test_with_a_mark_a_client_is_a_consumer_and_no_delivery_without_the_mark_is_again() -> None:
    rows = deliveries("mqtt", 1, 2, 2, 3)
    of_messages = {"client_name": ["a", "a", "a", "b"], "correlation_id": ["7", "7", "7", "7"]}
    for name, values in of_messages.items():
        rows = rows.append_column(f"deliver.messages.{name}", pa.array(values))
    rows = rows.append_column("deliver.mqtt.dup", pa.array([0, 1, 0, 1]))

    assert Redeliveries().counts(receipts(rows)).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("capture", ["mqtt/v311_offline_dup", "blipmq/qos1", "blipmq/wal500"])
def test_statistics_and_traces_say_the_same(capture: str) -> None:
    path = f"pcaps/{capture}.pcap"
    listed = mqpcap.stats(path, "delivery_list").to_pylist()
    publishes = dict.fromkeys(row["publish_packet"] for row in listed)
    traced = {
        delivery.row.message["first_packet"]: bool(delivery.again)
        for packet in [*publishes][:3]
        for trace in mqpcap.trace(path, at=packet)
        for delivery in trace.deliveries
    }

    assert traced and traced.items() <= {row["deliver_packet"]: bool(row["again"]) for row in listed}.items()
