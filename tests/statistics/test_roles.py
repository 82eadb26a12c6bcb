"""Who produces and who consumes, by what the protocols say their operations are for."""

from pathlib import Path
from typing import Any

import made_flymq
import pyarrow as pa
from table_rows import rows_of

import mqpcap
from mqpcap.statistics.roles import ITEM_COUNT, Consumers, Producers

Row = dict[str, Any]
ANN = {"client_name": "ann", "destination": "orders"}
OF_ANN = ("flymq", "orders", "10.0.0.1:40000", "ann")
FETCH = ANN | {"op": "FETCH"}
REPLY = {"op": "FETCH", "direction": "s2c", "body_len": 30}
ANSWERED = FETCH | {"request_offset": 0, "reply_offset": 0, "status": "ok"} | {
    f"reply.messages.{name}": REPLY.get(name) for name in ("op", "destination", "client_name", "body_len")
} | {f"reply.messages.{ITEM_COUNT}": 1}  # fmt: skip
NOBODY = ("flymq", None, "10.0.0.1:40000", None)


def messages(*rows: Row) -> pa.Table:
    rows_without = rows_of("messages", *rows)
    return rows_without.append_column(ITEM_COUNT, pa.array([1] * len(rows), pa.int64()))


def test_a_producer_sends_what_publishes() -> None:
    made = Producers()
    produce = ANN | {"op": "PRODUCE"}
    made.take_messages(
        rows_of("messages", produce | {"body_len": 5}, produce | {"body_len": 7}, produce, FETCH,
                produce | {"direction": "s2c", "body_len": 9})
    )  # fmt: skip
    answered = produce | {"request_offset": 0, "reply_offset": 0}
    made.take_exchanges(
        rows_of("exchanges", answered | {"status": "error"}, answered | {"status": "ok"},
                answered | {"status": "error", "request_offset": None}, ANSWERED | {"status": "error"})
    )  # fmt: skip

    assert made.sums.sums() == {OF_ANN: {"messages": 3, "body_bytes": 12, "errors": 1}}


def test_a_consumer_gets_the_reply_to_its_request_which_says_the_topic() -> None:
    made = Consumers()
    made.take_messages(messages(FETCH, REPLY, REPLY | {"body_len": None, "stream_offset": 50}))
    made.take_exchanges(rows_of("exchanges", ANSWERED))
    made.end_of_capture()

    sums = made.sums.sums()
    assert sums[OF_ANN] == {"asked": 1, "received": 1, "body_bytes": 30}
    assert sums.get(NOBODY, {"received": 0})["received"] == 0


def test_a_reply_without_a_request_is_its_own() -> None:
    made = Consumers()
    made.take_messages(messages(REPLY))
    assert made.sums.sums()[NOBODY] == {"asked": 0, "received": 1, "body_bytes": 30}


def test_a_reply_that_is_not_counted_counts_with_a_request_that_is() -> None:
    made = Consumers()
    made.take_exchanges(rows_of("exchanges", ANSWERED).append_column("reply.selected", pa.array([False])))
    made.end_of_capture()

    assert made.sums.sums() == {OF_ANN: {"asked": 0, "received": 1, "body_bytes": 30}}


def test_what_a_server_pushes_is_received_and_not_asked_for() -> None:
    """BlipMQ delivers under the name of the publish."""
    pushed = {"protocol": "blipmq", "op": "PUBLISH", "destination": "orders", "body_len": 8}
    made = Consumers(("topic",))
    made.take_messages(messages(pushed | {"direction": "s2c"}, pushed))
    made.end_of_capture()

    assert made.sums.sums() == {("orders",): {"asked": 0, "received": 1, "body_bytes": 8}}


def test_without_rows_nothing_is_counted() -> None:
    made = Producers()
    made.take_messages(rows_of("messages"))
    made.take_exchanges(rows_of("exchanges"))

    assert made.sums.sums() == {}


def test_a_reply_with_several_messages_counts_them_at_the_consumer_that_asked(tmp_path: Path) -> None:
    """Two consumers of one host: three records in two replies, and none in one; a filter changes nothing."""
    first = [*made_flymq.fetch("orders", 0, b"xx", b"x"), *made_flymq.fetch("orders", 2, b"x")]
    path = made_flymq.capture(tmp_path / "made.pcap", first, made_flymq.fetch("orders", 9))

    for options in ({}, {"filter": "direction == c2s"}):
        rows = mqpcap.stats(path, "consumers", **options).to_pylist()

        assert [(row["client"], row["asked"], row["received"], row["body_bytes"]) for row in rows] == [
            ("192.0.2.10:40001", 2, 3, 4), ("192.0.2.10:40002", 1, 0, 0),
        ]  # fmt: skip
