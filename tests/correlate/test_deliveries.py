"""Which publish a delivery came from, one behaviour a test."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from batches import LENGTH, PRINTS, SERVER, End, Row, batch, closing, placed

from mqpcap.correlate import Watermarks
from mqpcap.correlate import deliveries as module
from mqpcap.correlate.deliveries import MAX_DELAY_NS
from mqpcap.correlate.ends import Ends
from mqpcap.correlate.exchanges import Pairs
from mqpcap.schema.requests import DeliveryRule, Fingerprints, Keys


class Deliveries(module.Deliveries):
    """With what is known of ends, as in a `Correlation`."""

    def __init__(self, protocol: str, rule: DeliveryRule, prints: Fingerprints) -> None:
        super().__init__(protocol, rule, prints)
        self.ends = Ends(MAX_DELAY_NS if rule.lifetime_ns is not None else None)


def keys(rows: pa.Table, _: object) -> tuple[Keys, Keys]:
    number = rows["f.key"].to_numpy()
    client = np.array([d == "c2s" for d in rows["direction"].to_pylist()])
    out, back = np.flatnonzero(client), np.flatnonzero(~client)
    return Keys(out, number[out]), Keys(back, number[back])


def rule(across_servers: bool = False, lifetime_ns: int | None = None) -> DeliveryRule:
    text = lambda rows, *_: rows["f.key"].cast(pa.string())  # noqa: E731
    return DeliveryRule("key", keys, text, across_servers=across_servers, lifetime_ns=lifetime_ns)


def message(direction: str, key: int, ts_ns: int, **more: object) -> Row:
    return {"direction": direction, "op": "m", "ts_ns": ts_ns, "f.key": key} | more


WHOLE = Watermarks()


def deliveries_by_time(
    made: Deliveries, *rows: Row, behind: Watermarks = WHOLE, late: bool = False
) -> list[tuple[int, int]]:
    """(publish, delivery) by time."""
    if rows:
        fed = batch(placed(rows), {"key": pa.int64()}, {1: not late})
        made.feed(fed, None, made.ends.feed(fed))
    table = made.ready(behind)
    return [] if table is None else [(r["publish_ts_ns"], r["deliver_ts_ns"]) for r in table.to_pylist()]


def test_the_only_earlier_publish_is_it() -> None:
    made = Deliveries("test", rule(), PRINTS)

    assert deliveries_by_time(made, message("c2s", 1, 10), message("c2s", 2, 11), message("s2c", 1, 20)) == [(10, 20)]


def test_publishes_of_earlier_windows_count_and_later_ones_do_not() -> None:
    made = Deliveries("test", rule(), PRINTS)

    assert deliveries_by_time(made, message("c2s", 1, 10)) == []
    assert deliveries_by_time(made, message("s2c", 1, 20), message("c2s", 1, 30)) == [(10, 20)]
    assert deliveries_by_time(made, message("s2c", 1, 40)) == []  # now there are two


def test_a_delivery_that_several_fit_has_no_row() -> None:
    made = Deliveries("test", rule(), PRINTS)

    assert deliveries_by_time(made, message("c2s", 1, 10), message("c2s", 1, 11), message("s2c", 1, 20)) == []


def test_a_redelivery_has_a_row_of_its_own() -> None:
    made = Deliveries("test", rule(), PRINTS)

    assert deliveries_by_time(made, message("c2s", 1, 10), message("s2c", 1, 20), message("s2c", 1, 30)) == [
        (10, 20),
        (10, 30),
    ]


@pytest.mark.parametrize("across", [False, True])
def test_publishes_to_another_server_count_where_the_rule_says_so(across: bool) -> None:
    made = Deliveries("test", rule(across), PRINTS)
    rows = message("c2s", 1, 10, server_port=1), message("s2c", 1, 20, server_port=2)

    assert deliveries_by_time(made, *rows) == [(10, 20)] * across


def test_keys_that_were_pushed_out_stay_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PUBLISHES", 8)
    made = Deliveries("test", rule(), PRINTS)
    first = [message("c2s", 100 + k, k) for k in range(12)]  # 100 to 103 go
    assert deliveries_by_time(made, *first) == []

    assert deliveries_by_time(made, message("c2s", 100, 50), message("s2c", 100, 60), message("s2c", 111, 61)) == [
        (11, 61)
    ]
    assert made.missed_count == 1


def test_publishes_of_one_time_are_no_more_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PUBLISHES", 8)
    made = Deliveries("test", rule(), PRINTS)

    assert deliveries_by_time(made, *(message("c2s", k, 5) for k in range(12)), message("s2c", 3, 6)) == []
    assert made.missed_count == 1


def test_a_publish_that_is_read_late_is_waited_for() -> None:
    """Its connection waits for its dialect, or for bytes in front."""
    made = Deliveries("test", rule(), PRINTS)

    assert deliveries_by_time(made, message("s2c", 1, 20), behind=Watermarks(lagging_since_ns={SERVER: 10})) == []
    assert deliveries_by_time(made, message("c2s", 1, 10)) == [(10, 20)]


def test_a_delivery_waits_for_a_client_whose_missing_bytes_show_later() -> None:
    """They were sent before the packet that shows that they are missing."""
    made = Deliveries("test", rule(), PRINTS)

    assert deliveries_by_time(made, message("c2s", 1, 10), message("s2c", 1, 20), behind=Watermarks({SERVER: 25})) == []
    assert deliveries_by_time(made) == [(10, 20)]


def test_only_the_server_of_a_late_publisher_waits() -> None:
    made = Deliveries("test", rule(), PRINTS)
    late = Watermarks(lagging_since_ns={("10.0.0.7", 9): 10})

    assert deliveries_by_time(made, message("c2s", 1, 10), message("s2c", 1, 20), behind=late) == [(10, 20)]


def test_a_delivery_is_looked_up_a_little_later() -> None:
    made = Deliveries("test", rule(), PRINTS)
    now = 20 + MAX_DELAY_NS

    assert (
        deliveries_by_time(made, message("c2s", 1, 10), message("s2c", 1, 20), behind=Watermarks(newest_ns=now)) == []
    )
    assert deliveries_by_time(made, behind=Watermarks(newest_ns=now + 1)) == [(10, 20)]


@pytest.mark.parametrize("bound", ["MAX_WAITING_DELIVERIES", "MAX_WAITING_BYTES"])
def test_deliveries_that_are_too_many_to_wait_are_looked_up_and_counted(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, bound, 3)
    made = Deliveries("test", rule(), PRINTS)
    rows = [message("c2s", 1, 10), *(message("s2c", 1, 20 + k) for k in range(4))]

    assert deliveries_by_time(made, *rows, behind=Watermarks(lagging_since_ns={SERVER: 5})) == [(10, 20), (10, 21)]
    assert made.early_count == 2


def test_a_publish_that_was_not_whole_when_the_delivery_began_is_not_its() -> None:
    made = Deliveries("test", rule(), PRINTS)

    assert deliveries_by_time(made, message("c2s", 1, 10, end_ts_ns=30), message("s2c", 1, 20)) == []


# Keys that say nothing of which message it is: publishes may have equal ones


def gap(start: int, length: int, ts_ns: int) -> list[Row]:
    """Messages of a client before and after bytes that were not captured, and a delivery of the first one."""
    behind = message("c2s", 2, ts_ns, broken=True, stream_offset=start + length)
    return [message("c2s", 1, 10, stream_offset=start - LENGTH), behind]


@pytest.mark.parametrize("length", [1, LENGTH])
def test_an_equal_publish_may_be_in_a_gap_of_any_length(length: int) -> None:
    made = Deliveries("test", rule(lifetime_ns=100), PRINTS)

    assert deliveries_by_time(made, *gap(LENGTH, length, 40), message("s2c", 1, 50)) == []


@pytest.mark.parametrize(("ts_ns", "pairs"), [(10, [(10, 10)]), (20, []), (140, []), (141, [(10, 141)])])
def test_a_gap_counts_for_as_long_as_a_message_lives(ts_ns: int, pairs: list[tuple[int, int]]) -> None:
    """From the message in front of it on; it may be known only later."""
    made = Deliveries("test", rule(lifetime_ns=100), PRINTS)
    first, second = gap(20, LENGTH, 40)

    assert deliveries_by_time(made, first, second, message("s2c", 1, ts_ns)) == pairs


def test_a_client_that_began_before_the_capture_may_have_published_the_same() -> None:
    made = Deliveries("test", rule(lifetime_ns=100), PRINTS)

    assert deliveries_by_time(made, message("c2s", 1, 10), message("s2c", 1, 20), late=True) == []
    assert deliveries_by_time(made, message("s2c", 1, 200)) == [(10, 200)]


def test_gaps_of_clients_of_other_servers_do_not_count() -> None:
    made = Deliveries("test", rule(lifetime_ns=100), PRINTS)
    elsewhere = [row | {"server_port": 8, "connection": 2} for row in gap(LENGTH, LENGTH, 40)]

    assert deliveries_by_time(made, *elsewhere, message("c2s", 1, 45), message("s2c", 1, 50)) == [(45, 50)]


def test_bytes_that_are_missing_at_the_end_of_a_connection_count() -> None:
    made = Deliveries("test", rule(lifetime_ns=100), PRINTS)
    late = Watermarks(lagging_since_ns={SERVER: 11})
    assert deliveries_by_time(made, message("c2s", 1, 10), message("s2c", 1, 50), behind=late) == []

    made.feed(None, None, made.ends.close(closing({1: End(requests_missing_at=LENGTH, last_ns=60)}))[2])

    assert deliveries_by_time(made) == []


def test_a_server_has_one_doubtful_time_from_its_first_missing_byte_until_the_last_has_expired() -> None:
    made = Deliveries("test", rule(lifetime_ns=100), PRINTS)
    rows = [message("c2s", k, 100 * k, stream_offset=200 * k, broken=k > 0) for k in range(9)]
    times = (50, 850, 900, 901)

    assert deliveries_by_time(made, *rows, *(message("s2c", 0, ns) for ns in times)) == [(0, 901)]
    assert list(made._doubtful.values()) == [[(0, 800)]]


def test_a_delivery_between_two_doubtful_times_is_certain() -> None:
    made = Deliveries("test", rule(lifetime_ns=100), PRINTS)
    rows = [message("c2s", 1, 0), message("c2s", 2, 10, stream_offset=200, broken=True), message("c2s", 3, 5000)]
    rows += [message("c2s", 4, 6000, stream_offset=900, broken=True), message("s2c", 3, 5500), message("s2c", 1, 4000)]
    rows.append(message("s2c", 1, 50))

    assert deliveries_by_time(made, *sorted(rows, key=lambda row: row["ts_ns"])) == [(0, 4000)]


def test_many_doubtful_times_become_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DOUBTFUL_TIMES", 2)
    made = Deliveries("test", rule(lifetime_ns=1), PRINTS)
    rows = [message("c2s", k, 100 * k, stream_offset=200 * (k // 2) + 20 * k, broken=k % 2 == 0) for k in range(1, 9)]

    assert deliveries_by_time(made, *rows, message("s2c", 3, 350)) == []
    assert [len(times) for times in made._doubtful.values()] == [2]


def test_servers_beyond_the_bound_share_a_doubtful_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SERVERS", 2)
    made = Deliveries("test", rule(lifetime_ns=100), PRINTS)
    for port in range(1, 6):
        rows = [row | {"server_port": port, "connection": port} for row in gap(LENGTH, LENGTH, 40)]
        assert deliveries_by_time(made, *rows, message("s2c", 1, 50, server_port=port, connection=port)) == []
    others = [message("c2s", 1, 60), message("s2c", 1, 70)]

    assert len(made._doubtful) <= 3
    assert deliveries_by_time(made, *(row | {"server_port": 9, "connection": 9} for row in others)) == []


class Counted(np.ndarray):  # type: ignore[type-arg]
    """An array that counts the elements of itself that are read."""

    elements = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **more: object) -> object:
        Counted.elements += self.size
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        return getattr(ufunc, method)(*plain, **more)


def compared_elements(server_count: int, lifetime_ns: int | None, lagging: bool) -> int:
    """The elements compared for a delivery of each server, where each has a lagging client or a gap."""
    deliveries = Deliveries("test", rule(lifetime_ns=lifetime_ns), PRINTS)
    ports = range(1, server_count + 1)
    for port in ports:
        rows = gap(LENGTH, LENGTH, 40) if lifetime_ns is not None else []
        rows = [row | {"server_port": port, "connection": port} for row in rows]
        deliveries_by_time(
            deliveries, *rows, message("s2c", 1, 50, server_port=port, connection=port), behind=Watermarks(newest_ns=0)
        )
    held = module.Delivered.joined(deliveries._waiting)
    counted = {name: getattr(held, name).view(Counted) for name in ("server", "ts_ns")}
    deliveries._waiting = [dataclasses.replace(held, **counted)]
    Counted.elements = 0
    deliveries_by_time(
        deliveries, behind=Watermarks(lagging_since_ns={(SERVER[0], port): 0 for port in ports} if lagging else {})
    )
    return Counted.elements


@pytest.mark.parametrize(("lifetime_ns", "lagging"), [(None, True), (100, False)])
def test_many_servers_cost_no_look_at_all_deliveries_each(lifetime_ns: int | None, lagging: bool) -> None:
    few, many = (compared_elements(n, lifetime_ns, lagging) for n in (100, 200))

    assert many <= 2.2 * few


def test_a_delivery_of_many_records_does_not_carry_all_of_them() -> None:
    """A FETCH reply is a delivery a record: with the list of all records each, memory would grow with its square."""
    columns: set[str] = set()

    def text(rows: pa.Table, _: object) -> pa.Array:
        columns.update(rows.column_names)
        return rows["f.key"].cast(pa.string())

    made = Deliveries("test", DeliveryRule("key", keys, text), PRINTS)
    rows = placed([message("c2s", 1, 10), message("s2c", 1, 20)])
    made.feed(batch(rows, {"key": pa.int64(), "offsets": pa.list_(pa.int64())}, {}), None, None)

    assert "f.key" in columns
    assert "f.offsets" not in columns


def test_deliveries_carry_columns_of_both_messages() -> None:
    made = Deliveries("test", rule(), PRINTS)
    made.carried = ("deliver.messages.first_packet", "publish.messages.first_packet", "publish.other.first_packet")
    sent = [message("c2s", 1, 10), message("c2s", 2, 11), message("s2c", 2, 20), message("s2c", 1, 21)]
    fed = batch(placed(sent), {"key": pa.int64()}, {1: True})
    packets = pa.array([5, 6, 7, 8])
    made.feed(dataclasses.replace(fed, table=fed.table.append_column("messages.first_packet", packets)), None)

    table = made.ready(WHOLE)

    assert table is not None
    names = "publish.messages.first_packet", "deliver.messages.first_packet"
    assert [tuple(row[name] for name in names) for row in table.to_pylist()] == [(6, 7), (5, 8)]
    assert "publish.other.first_packet" not in table.column_names


def test_a_delivery_carries_columns_of_the_request_that_it_answers() -> None:
    """Row 3 answers the request of row 1; row 2 answers none that is known."""
    made = Deliveries("test", rule(), PRINTS)
    made.carried = ("request.test.scope",)
    sent = [message("c2s", 1, 10), message("c2s", 9, 11), message("s2c", 1, 20), message("s2c", 1, 21)]
    fed = batch(placed(sent), {"key": pa.int64()}, {1: True})
    table = fed.table.append_column("test.scope", pa.array(["p", "q", None, None]).dictionary_encode())
    fed = dataclasses.replace(fed, table=table)
    columns = {"offset": fed.offset, "ts_ns": fed.ts_ns, "end_ns": fed.end_ns}
    for name, column in columns.items():
        table = table.append_column(name, pa.array(column))
    answered = Pairs(table.slice(1, 1), table.slice(3, 1), np.zeros(1, np.int8), np.zeros(1, np.bool_))
    made.feed(fed, answered)

    ready = made.ready(WHOLE)

    assert ready is not None
    assert ready["request.test.scope"].to_pylist() == [None, "q"]
