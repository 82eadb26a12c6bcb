"""Who produces and who consumes, by what the protocols say their operations are for."""

import pytest
from table_rows import rows_of

from mqpcap.statistics import roles
from mqpcap.statistics.roles import Consumers, Producers

ANN = {"client_name": "ann", "destination": "orders"}
OF_ANN = ("flymq", "orders", "10.0.0.1", "ann")
FETCH = ANN | {"op": "FETCH"}
REPLY = {"op": "FETCH", "direction": "s2c", "body_len": 30}
ANSWERED = FETCH | {"request_offset": 0, "reply_offset": 0, "status": "ok"}
NOBODY = ("flymq", None, "10.0.0.1", None)


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
    made.take_messages(rows_of("messages", FETCH, REPLY, REPLY | {"body_len": None, "stream_offset": 50}))
    made.take_exchanges(rows_of("exchanges", ANSWERED))
    made.end_of_capture()

    sums = made.sums.sums()
    assert sums[OF_ANN] == {"asked": 1, "received": 1, "body_bytes": 30}
    assert sums.get(NOBODY, {"received": 0})["received"] == 0


def test_a_reply_without_a_request_is_its_own_once_the_capture_ends() -> None:
    made = Consumers()
    made.take_messages(rows_of("messages", REPLY))
    assert made.sums.sums()[NOBODY]["received"] == 0

    made.end_of_capture()

    assert made.sums.sums()[NOBODY] == {"asked": 0, "received": 1, "body_bytes": 30}


def test_a_reply_that_is_not_counted_counts_with_a_request_that_is() -> None:
    made = Consumers()
    made.take_unfiltered(rows_of("messages", REPLY, REPLY | {"stream_offset": 50}))
    made.take_exchanges(rows_of("exchanges", ANSWERED))
    made.end_of_capture()

    assert made.sums.sums() == {OF_ANN: {"asked": 0, "received": 1, "body_bytes": 30}}


def test_of_too_many_replies_the_oldest_are_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "MAX_PENDING_REPLIES", 2)
    made = Consumers()
    made.take_messages(rows_of("messages", *(REPLY | {"stream_offset": i} for i in range(3))))

    assert made.sums.sums()[NOBODY]["received"] == 1


def test_what_a_server_pushes_is_received_and_not_asked_for() -> None:
    """BlipMQ delivers under the name of the publish."""
    pushed = {"protocol": "blipmq", "op": "PUBLISH", "destination": "orders", "body_len": 8}
    made = Consumers(("topic",))
    made.take_messages(rows_of("messages", pushed | {"direction": "s2c"}, pushed))
    made.end_of_capture()

    assert made.sums.sums() == {("orders",): {"asked": 0, "received": 1, "body_bytes": 8}}


def test_without_rows_nothing_is_counted() -> None:
    made = Producers()
    made.take_messages(rows_of("messages"))
    made.take_exchanges(rows_of("exchanges"))

    assert made.sums.sums() == {}
