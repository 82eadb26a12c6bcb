"""Which publish a delivery came from, one behaviour a test."""

import numpy as np
import pyarrow as pa
import pytest
from batches import PRINTS, Row, batch, placed

from mqpcap.correlate import deliveries as room
from mqpcap.correlate.deliveries import Deliveries
from mqpcap.schema.requests import DeliveryRule, Keys


def keys(rows: pa.Table, _: object) -> tuple[Keys, Keys]:
    number = rows["f.key"].to_numpy()
    client = np.array([d == "c2s" for d in rows["direction"].to_pylist()])
    out, back = np.flatnonzero(client), np.flatnonzero(~client)
    return Keys(out, number[out]), Keys(back, number[back])


def rule(across_servers: bool = False) -> DeliveryRule:
    text = lambda rows, *_: rows["f.key"].cast(pa.string())  # noqa: E731
    return DeliveryRule("key", keys, text, across_servers=across_servers)


def message(direction: str, key: int, ts_ns: int, **more: object) -> Row:
    return {"direction": direction, "op": "m", "ts_ns": ts_ns, "f.key": key} | more


def found(made: Deliveries, *rows: Row) -> list[tuple[int, int]]:
    """(publish, delivery) by time."""
    table = made.feed(batch(placed(rows), {"key": pa.int64()}, {}), None)
    return [] if table is None else [(r["publish_ts_ns"], r["deliver_ts_ns"]) for r in table.to_pylist()]


def test_the_only_earlier_publish_is_it() -> None:
    made = Deliveries("test", rule(), PRINTS)

    assert found(made, message("c2s", 1, 10), message("c2s", 2, 11), message("s2c", 1, 20)) == [(10, 20)]


def test_publishes_of_earlier_windows_count_and_later_ones_do_not() -> None:
    made = Deliveries("test", rule(), PRINTS)

    assert found(made, message("c2s", 1, 10)) == []
    assert found(made, message("s2c", 1, 20), message("c2s", 1, 30)) == [(10, 20)]
    assert found(made, message("s2c", 1, 40)) == []  # now there are two


def test_a_delivery_that_several_fit_is_counted_and_has_no_row() -> None:
    made = Deliveries("test", rule(), PRINTS)

    assert found(made, message("c2s", 1, 10), message("c2s", 1, 11), message("s2c", 1, 20)) == []
    assert made.doubtful_count == 1


def test_a_redelivery_has_a_row_of_its_own() -> None:
    made = Deliveries("test", rule(), PRINTS)

    assert found(made, message("c2s", 1, 10), message("s2c", 1, 20), message("s2c", 1, 30)) == [(10, 20), (10, 30)]


@pytest.mark.parametrize("across", [False, True])
def test_publishes_to_another_server_count_where_the_rule_says_so(across: bool) -> None:
    made = Deliveries("test", rule(across), PRINTS)
    rows = message("c2s", 1, 10, server_port=1), message("s2c", 1, 20, server_port=2)

    assert found(made, *rows) == [(10, 20)] * across


def test_keys_that_were_pushed_out_stay_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_PUBLISHES", 8)
    made = Deliveries("test", rule(), PRINTS)
    first = [message("c2s", 100 + k, k) for k in range(12)]  # 100 to 103 go
    assert found(made, *first) == []

    assert found(made, message("c2s", 100, 50), message("s2c", 100, 60), message("s2c", 111, 61)) == [(11, 61)]
    assert made.pushed_out_count >= 4
    assert made.doubtful_count == 1
