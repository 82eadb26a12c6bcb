"""Where messages of connections end, and what clients sent unseen."""

from batches import End, batch, closing, placed

from mqpcap.correlate.ends import Ends

CLIENT = {"direction": "c2s", "op": "m"}
SERVER = {"direction": "s2c", "op": "m"}


def ranges(table: object) -> list[tuple[int, int]]:
    return [(r["since_ns"], r["until_ns"]) for r in table.to_pylist()]  # type: ignore[attr-defined]  # a table


def test_the_end_of_each_side_is_that_of_its_last_message() -> None:
    ends = Ends(None)
    rows = placed([CLIENT | {"ts_ns": 1}, SERVER | {"ts_ns": 2}, CLIENT | {"ts_ns": 3}])

    for row in rows:
        assert ends.feed(batch([row], {}, {})).num_rows == 0
    client, server, _ = ends.close(closing({1: End()}))

    assert (client.tolist(), server.tolist()) == ([40], [20])


def test_a_connection_without_messages_ended_at_its_start() -> None:
    client, server, _ = Ends(None).close(closing({7: End()}))

    assert (client.tolist(), server.tolist()) == ([0], [-1])


def test_bytes_between_two_messages_of_a_client_are_a_range_in_any_batches() -> None:
    rows = placed([CLIENT | {"ts_ns": 10}, CLIENT | {"ts_ns": 30, "stream_offset": 25, "broken": True}])
    together, apart = Ends(100), Ends(100)

    assert ranges(together.feed(batch(rows, {}, {}))) == [(10, 30)]
    assert ranges(apart.feed(batch(rows[:1], {}, {}))) == []
    assert ranges(apart.feed(batch(rows[1:], {}, {}))) == [(10, 30)]


def test_missing_bytes_were_sent_at_most_a_delay_before_they_showed() -> None:
    rows = placed([CLIENT | {"ts_ns": 10}, CLIENT | {"ts_ns": 900, "stream_offset": 25, "broken": True}])

    assert ranges(Ends(100).feed(batch([rows[0], rows[1] | {"missing_ns": 700}], {}, {}))) == [(600, 900)]
    assert ranges(Ends(100).feed(batch([rows[0], rows[1] | {"missing_ns": 90}], {}, {}))) == [(10, 900)]


def test_an_unfinished_message_at_the_end_of_a_stream_was_sent_at_most_a_delay_before_its_first_byte() -> None:
    """Without a gap nothing showed earlier that bytes are missing: deliveries decided before it stay as they are."""
    rows = placed([CLIENT | {"ts_ns": 10}, CLIENT | {"ts_ns": 900, "end_ts_ns": 950, "flaw": "truncated"}])

    assert ranges(Ends(100).feed(batch(rows, {}, {}))) == [(800, 950)]


def test_a_message_after_a_truncated_one_without_a_gap_is_no_sign_of_missing_bytes() -> None:
    rows = placed([CLIENT | {"ts_ns": 10, "flaw": "truncated"}, CLIENT | {"ts_ns": 900, "stream_offset": 35}])

    assert ranges(Ends(100).feed(batch(rows, {}, {}))) == [(10, 10)]


def test_bytes_before_a_late_start_and_after_the_last_message_are_missing() -> None:
    ends = Ends(100)

    early = ends.feed(batch(placed([CLIENT | {"ts_ns": 500}]), {}, {1: False}))
    *_, late = ends.close(closing({1: End(requests_missing_at=20, last_ns=700)}))

    assert ranges(early) == [(400, 500)]
    assert ranges(late) == [(500, 700)]
