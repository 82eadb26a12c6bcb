"""Columns that rows are grouped by: as codes, and mixed to one number."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_rows import rows_of

from mqpcap.statistics import keys
from mqpcap.statistics.keys import OF_EXCHANGES, OF_MESSAGES, Coded, Value, columns_read, mixed

WORDS = "abcd"


@pytest.mark.parametrize("most", [keys.MAX_MIXED, 1])
@given(rows=st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=12))
def test_rows_have_one_number_exactly_where_they_are_equal(most: int, rows: list[tuple[int, ...]]) -> None:
    """Also of more combinations than a number has room for."""
    columns = [Coded(np.array([row[i] for row in rows], np.int64), WORDS) for i in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "MAX_MIXED", most)
        numbers = mixed(columns, len(rows)).tolist()

    assert [[x == y for y in numbers] for x in numbers] == [[x == y for y in rows] for x in rows]


def test_without_columns_all_rows_are_alike() -> None:
    assert mixed([], 3).tolist() == [0, 0, 0]


def values(columns: keys.Columns, name: str, table: str, *rows: Mapping[str, object]) -> list[Value]:
    coded = columns[name](rows_of(table, *rows))
    return [coded.values[code] for code in coded.code.tolist()]


def test_ends_of_a_message_are_client_and_server_whoever_sent_it() -> None:
    six = {"src_ip": "2001:db8::1", "src_port": 40001, "dst_ip": "2001:db8::2", "dst_port": 9092}
    rows = ({"direction": "c2s"}, {"direction": "s2c"}, six)

    assert values(OF_MESSAGES, "client_ip", "messages", *rows) == ["10.0.0.1", "10.0.0.1", "2001:db8::1"]
    assert values(OF_MESSAGES, "server", "messages", *rows) == ["10.0.0.2:5555"] * 2 + ["[2001:db8::2]:9092"]
    assert values(OF_MESSAGES, "connection", "messages", *rows) == ["10.0.0.1:40000"] * 2 + ["[2001:db8::1]:40001"]


def test_ends_of_an_exchange_are_those_of_its_columns() -> None:
    one = {"client_ip": "10.0.0.9", "client_port": 65535, "server_ip": "::1", "server_port": 80}
    two = {"client_ip": "10.0.0.8", "client_port": 0, "server_ip": "::1", "server_port": 80}

    assert values(OF_EXCHANGES, "client_ip", "exchanges", one, two) == ["10.0.0.9", "10.0.0.8"]
    assert values(OF_EXCHANGES, "connection", "exchanges", one, two) == ["10.0.0.9:65535", "10.0.0.8:0"]
    assert values(OF_EXCHANGES, "server", "exchanges", one, two) == ["[::1]:80"] * 2
    asks = ({"request_direction": "s2c"}, {"request_direction": "c2s"})
    assert values(OF_EXCHANGES, "direction", "exchanges", *asks) == ["s2c", "c2s"]


def test_text_that_is_not_there_is_a_value() -> None:
    rows = ({"destination": "orders"}, {"destination": None}, {"destination": "orders"})

    assert values(OF_MESSAGES, "topic", "messages", *rows) == ["orders", None, "orders"]
    assert values(OF_MESSAGES, "topic", "messages") == []


@pytest.mark.parametrize("name", OF_MESSAGES)
def test_the_columns_that_are_named_are_those_read(name: str) -> None:
    rows = rows_of("messages", {"op": "PRODUCE", "destination": "orders", "status": "ok", "client_name": "ann"})
    columns = sorted(column for _, column in columns_read([name]))
    whole, read = OF_MESSAGES[name](rows), OF_MESSAGES[name](rows.select(columns))

    assert read.values[read.code[0]] == whole.values[whole.code[0]] is not None
