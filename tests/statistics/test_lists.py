"""The slowest requests, errors by what they say, deliveries by topic, and who talks to whom."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_rows import rows_of

import mqpcap
from mqpcap.statistics import groups, lists
from mqpcap.statistics.groups import OTHER
from mqpcap.statistics.lists import ERROR_TEXT_LENGTH, DeliveriesByTopic, Errors, Slowest, Talkers


@given(st.lists(st.lists(st.none() | st.integers(0, 6), max_size=6), max_size=5), st.integers(0, 5))
def test_the_slowest_are_the_first_of_all_in_order(batches: list[list[int | None]], most: int) -> None:
    """Equal ones in the order of their requests, of which earlier ones come later here."""
    made = Slowest(most)
    every = []
    number = 100
    files = {"request.messages.capture_file": "a.pcap", "reply.messages.capture_file": "b.pcap"}
    for batch in batches:
        rows = []
        for latency in batch:
            number -= 1
            rows.append({"latency_ns": latency, "request_ts_ns": number, "request_packet": 100 - number, **files})
            every += [] if latency is None else [(-latency, number)]
        made.take_exchanges(rows_of("exchanges", *rows))

    assert [(-row["latency_ns"], row["request_ts_ns"]) for row in made.rows()] == sorted(every)[:most]
    assert {(row["request_file"], row["reply_file"]) for row in made.rows()} <= {("a.pcap", "b.pcap")}


ERROR = {"status": "error", "direction": "s2c", "op": "ERROR", "error_code": 3, "error_text": "no such topic"}


def error(offset: int, **more: object) -> dict[str, object]:
    return ERROR | {"stream_offset": offset, "ts_ns": 10 + offset, "first_packet": 1 + offset} | more


def answered(offset: int, topic: str = "orders") -> dict[str, object]:
    of = {"op": "PRODUCE", "destination": topic, "request_offset": 0, "reply_offset": offset}
    place = {"reply_ts_ns": 10 + offset, "reply_packet": 1 + offset, "reply.messages.capture_file": "a.pcap"}
    return of | place | {"status": "error", "error_code": 3, "reply.messages.error_text": "no such topic"}


def test_texts_of_errors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_KEY_CHARS", 1000)
    errors = Errors()
    errors.take_messages(rows_of("messages", *(error(n, destination=str(n) * 600) for n in range(4))))
    errors.end_of_capture()

    assert [(row["errors"], row["protocol"]) for row in errors.rows()] == [(1, "flymq"), (3, *OTHER)]


def test_an_error_counts_for_its_request_with_its_first_place() -> None:
    made = Errors()
    made.take_messages(rows_of("messages", {"status": "ok"}, error(40), error(20)))
    made.take_exchanges(rows_of("exchanges", answered(40), answered(20)))
    made.end_of_capture()

    (row,) = made.rows()
    assert [row[name] for name in made.key_names] == ["flymq", "PRODUCE", "orders", "10.0.0.1", 3, "no such topic"]
    assert (row["errors"], row["first_ts_ns"], row["first_packet"]) == (2, 30, 21)


def test_an_error_without_a_request_is_its_own_once_the_capture_ends() -> None:
    made = Errors()
    made.take_messages(rows_of("messages", error(0)))
    assert made.rows() == []

    made.end_of_capture()

    (row,) = made.rows()
    assert [row[name] for name in made.key_names] == ["flymq", "ERROR", None, "10.0.0.1", 3, "no such topic"]


def test_an_error_that_is_not_counted_counts_with_a_request_that_is() -> None:
    made = Errors()
    made.take_exchanges(rows_of("exchanges", answered(0)))
    made.end_of_capture()

    assert [(row["op"], row["errors"]) for row in made.rows()] == [("PRODUCE", 1)]


def test_of_too_many_that_wait_the_oldest_find_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_PENDING_ERRORS", 2)
    made = Errors()
    made.take_messages(rows_of("messages", error(0), error(1), error(2)))

    assert [row["first_packet"] for row in made.rows()] == [1]


def test_errors_beyond_the_bound_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_ERRORS", 2)
    made = Errors()
    made.take_messages(rows_of("messages", *(error(i, error_text=f"{i % 4}") for i in range(8))))
    made.end_of_capture()

    assert [(row["errors"], row["protocol"]) for row in made.rows()] == [(2, "flymq"), (2, "flymq"), (4, *OTHER)]


def test_texts_are_distinguished_by_their_beginning() -> None:
    made = Errors()
    text = "x" * ERROR_TEXT_LENGTH
    made.take_messages(rows_of("messages", *(error(i, error_text=text + str(i)) for i in range(3))))
    made.end_of_capture()

    assert [(row["error_text"], row["errors"]) for row in made.rows()] == [(text, 3)]


ways = st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(1, 2))


@given(st.lists(st.lists(ways, max_size=6), max_size=4))
def test_a_publish_delivered_again_to_a_connection_is_counted(batches: Sequence[Sequence[tuple[int, ...]]]) -> None:
    made = DeliveriesByTopic()
    for batch in batches:
        names = ("publish_connection_id", "publish_offset", "deliver_connection_id")
        rows = (dict(zip(names, way, strict=True)) | {"destination": "orders", "latency_ns": 5} for way in batch)
        made.take_deliveries(rows_of("deliveries", *rows))
    every = [way for batch in batches for way in batch]

    wanted = {"delivered": len(every), "again": len(every) - len(set(every))}
    assert made.sums.sums() == ({("flymq", "orders", "offset"): wanted} if every else {})
    assert [row["latency_max_ns"] for row in made.rows()] == ([5] if every else [])


def test_talkers_are_counted_over_their_connections() -> None:
    sums = {"messages_c2s": 1, "messages_s2c": 2, "bytes_c2s": 30, "bytes_s2c": 40}
    made = Talkers()
    made.take_connections(rows_of("connections", sums, sums | {"client_port": 9}, sums | {"protocol": None}))

    assert made.sums.sums() == {
        ("flymq", "10.0.0.1", "10.0.0.2:5555"): {"connections": 2} | {name: 2 * n for name, n in sums.items()},
        (None, "10.0.0.1", "10.0.0.2:5555"): {"connections": 1} | sums,
    }


def test_connections_are_listed_with_rates_and_their_names() -> None:
    """538 and 162 bytes in 457.092 ms: 1,177 and 354 bytes a second."""
    rows = mqpcap.stats("pcaps/blipmq/qos1.pcap", "connections").to_pylist()

    first = rows[0]
    assert (len(rows), first["connection"], first["client"]) == (15, "c15", "127.0.0.1:39432")
    assert (first["bytes_c2s"], first["rate_c2s"], first["rate_s2c"]) == (538, 1177, 354)
    filtered = mqpcap.stats("pcaps/blipmq/qos1.pcap", "connections", filter="client == 39432").to_pylist()
    assert filtered == rows[:1]


def test_connections_beyond_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_CONVERSATIONS", 4)
    notes: list[str] = []

    assert len(mqpcap.stats("pcaps/blipmq/qos1.pcap", "connections", notes=notes)) == 4
    assert notes == ["11 more connections of the inputs"]
