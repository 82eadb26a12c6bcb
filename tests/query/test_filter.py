"""Rows that filters select, of tables a person can check, and of the samples."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from dissection import Dissection, dissect
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.capture import captures
from mqpcap.errors import QueryError, one_line
from mqpcap.query import FilterInput, exchanges_of, names, query
from mqpcap.tables.schemas import EXCHANGES, TABLES

ROWS: list[dict[str, object]] = [
    {"op": "PRODUCE", "destination": "orders.eu", "body_len": 10_000, "status": None, "src_ip": "10.0.0.7",
     "src_port": 4000, "dst_ip": "10.1.0.1", "dst_port": 9092, "direction": "c2s", "ts_ns": 1_000, "resynced": False},
    {"op": "PRODUCE", "destination": None, "body_len": None, "status": "ok", "src_ip": "10.1.0.1",
     "src_port": 9092, "dst_ip": "10.0.0.7", "dst_port": 4000, "direction": "s2c", "ts_ns": 2_000, "resynced": True},
    {"op": "ERROR", "destination": "orders.us", "body_len": 3, "status": "error", "src_ip": "fd00::1",
     "src_port": 9092, "dst_ip": "fd00::7", "dst_port": 4001, "direction": "s2c", "ts_ns": 3_000, "resynced": False},
]  # fmt: skip
FIELDS: dict[str, pa.Array] = {
    "key": pa.array([b"k1", None, b"\xff\0"], pa.binary()),
    "roles": pa.array([["admin", "guest"], None, []], pa.list_(pa.string())),
    "offset": pa.array([18_446_744_073_709_551_615, None, 3], pa.decimal128(20, 0)),
    "records": pa.array(
        [[{"value": b"abc"}, {"value": None}], None, [{"value": b"xyz"}]], pa.list_(pa.struct([("value", pa.binary())]))
    ),
    "success": pa.array([None, True, False]),
}


def flymq() -> FilterInput:
    columns = {}
    for field in TABLES["messages"]:
        values = [row.get(field.name) for row in ROWS]
        coded = pa.types.is_dictionary(field.type)
        columns[field.name] = (
            pa.array(values, pa.string()).dictionary_encode() if coded else pa.array(values, field.type)
        )
    return FilterInput("flymq", pa.table(columns), pa.table(FIELDS))


def selected(text: str, first_ns: int = 0, rows: FilterInput | None = None) -> list[int]:
    return np.flatnonzero(query(text, utc=True).selects(rows or flymq(), first_ns)).tolist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('op == "PRODUCE"', [0, 1]),
        ("op == produce", [0, 1]),
        ("op in (error, x)", [2]),
        ('topic matches "^orders"', [0, 2]),
        ('topic matches "s$"', [2]),
        ("topic == Orders.eu", []),
        ("destination contains 'rs.e'", [0]),
        ("topic exists", [0, 2]),
        ("topic", [0, 2]),
        ("topic is null", [1]),
        ("body_len >= 10kB", [0]),
        ("body_len < 10kB", [2]),
        ("body_len in (3, 4)", [2]),
        ("body_len < 99999999999999999999", [0, 2]),
        ("src_ip == 10.0.0.7", [0]),
        ("src_ip in (10.0.0.0/8)", [0, 1]),
        ("src_ip != 10.0.0.0/8", [2]),
        ("dst_ip == fd00:0::7", [2]),
        ("client == 10.0.0.7", [0, 1]),
        ("client == 10.0.0.7:4000", [0, 1]),
        ("client == :4001", [2]),
        ("server == [fd00::1]:9092", [2]),
        ("server_ip in fd00::/8 or client_port == 4000", [0, 1, 2]),
        ("connection == 10.1.0.1:9092", [0, 1]),
        ("resynced", [1]),
        ("not resynced", [0, 2]),
        ("resynced == true", [1]),
        ("ts > +1us", [1, 2]),
        ("ts_ns <= 0.000002", [0, 1]),
        ("flymq.key == k1", [0]),
        ("key == 0xff00", [2]),
        ("key contains '1'", [0]),
        ("roles contains admin", [0]),
        ("roles == guest", [0]),
        ("roles exists", [0, 2]),
        ("records.value matches '^x'", [2]),
        ("offset == 18446744073709551615", [0]),
        ("offset in (3, 4)", [2]),
        ("success", [1]),
        ("success is not null and not success", [2]),
        ("payload contains bc", [0]),
        ("fq.user == x", []),
        ("not fq.user == x", []),
        ("fq.user exists or op == error", [2]),
    ],
)
def test_rows(text: str, rows: list[int]) -> None:
    assert selected(text) == rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("status == error", [2]),
        ("status != error", [1]),
        ("not status == error", [1]),
        ("not status != error", [2]),
        ("not status in (error)", [1]),
        ("not status exists", [0]),
        ("status is null or status != error", [0, 1]),
        ("status == error or op == produce", [0, 1, 2]),
        ("not (status == error and op == produce)", [1, 2]),
        ("not (status == ok or op == error)", []),
        ("not topic matches eu", [2]),
        ("not roles contains admin", [2]),
    ],
)
def test_null_is_neither_equal_nor_unequal(text: str, rows: list[int]) -> None:
    """Of row 0 the status is null: only ``exists`` and another condition can select it."""
    assert selected(text) == rows


def test_a_slice_is_read_as_the_rows_that_it_is() -> None:
    whole = flymq()
    part = FilterInput("flymq", whole.messages.slice(1), whole.fields.slice(1))

    assert selected("records.value == xyz and roles exists", rows=part) == [1]
    assert selected("op == error", rows=part) == [1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topci == x", "there is no column 'topci'; did you mean topic or topics?"),
        ("latency > 50days", "latency: 'days' is no unit; the units are ns, us, ms, s, min and h, as in 50ms"),
        ("src_ip < 10.0.0.1", "src_ip cannot be asked with '<'; it can with !=, ==, in"),
        ("body_len matches x", "body_len cannot be asked with 'matches'; it can with !=, <, <=, ==, >, >=, in"),
        ("topic matches '('", "topic: '(' is no regular expression: missing ): ("),
        ("flymq.kye == x", "there is no column 'flymq.kye'; did you mean flymq.key?"),
    ],
)
def test_what_cannot_be_understood_says_what_can(text: str, said: str) -> None:
    with pytest.raises(QueryError) as error:
        query(text)

    assert str(error.value) == said


def test_a_regular_expression_does_not_hang() -> None:
    rows = flymq()
    long = rows.messages.set_column(
        rows.messages.column_names.index("destination"), "destination", pa.array(["a" * 10_000 + "!"] * 3)
    )

    assert selected("topic matches '^(a+)+$'", rows=FilterInput("flymq", long, rows.fields)) == []


NAMES = [
    "op",
    "topic",
    "latency",
    "client",
    "server_ip",
    "src_port",
    "connection",
    "key",
    "records.value",
    "ts",
    "resynced",
]
NAMES += ["body_len", "offset", "roles", "success", "payload", "state", "not op", "(status", "is_reply"]
RELATIONS = [
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "contains",
    "matches",
    "in",
    "not in",
    "exists",
    "is null",
    "",
    "=",
    "is",
]
VALUES = [
    '"a b"',
    "'",
    "50ms",
    "10kB",
    "05:24:10",
    "+30s",
    "10.0.0.0/8",
    "::1",
    "[::1]:80",
    ":5555",
    "c7",
    "0xff",
    "true",
]
VALUES += [
    "99999999999999999999",
    "-1",
    "\x1b",
    "\N{SNOWMAN}",
    "\udc80",
    "\0",
    "(?i)x",
    "[",
    "(a, 1, 10.0.0.1)",
    "",
    ")",
]
TESTS = st.tuples(*map(st.sampled_from, (NAMES, RELATIONS, VALUES))).map(" ".join)


@given(st.lists(TESTS | st.text(max_size=8), max_size=4), st.sampled_from([" and ", " or ", " ", " && not "]))
@examples(300)
def test_any_text_is_a_filter_or_an_error_in_one_line(parts: list[str], joint: str) -> None:
    try:
        asked = query(joint.join(parts))
    except QueryError as error:
        assert "\n" not in one_line(error)
    else:
        assert len(asked.selects(flymq(), 1_000)) == 3


def test_needs_are_the_columns_that_are_looked_at() -> None:
    asked = query("op == x and (client == 10.0.0.1 or key exists) and ts > +1s")

    assert asked.fields("flymq") == {"key"}
    assert asked.fields("kokaq") == frozenset()
    assert not asked.needs_exchanges
    assert query("not state == answered").needs_exchanges


def test_protocols_are_those_of_which_it_can_be_true() -> None:
    assert query("protocol == FQ and op == x").protocols == {"fq"}
    assert query("fq.user == x or blipmq.qos == 1").protocols == {"fq", "blipmq"}
    assert query("op == x or fq.user == x").protocols is None
    assert query("not fq.user == x").protocols is None


def test_what_looks_at_bodies() -> None:
    assert query("payload contains x").needs_bodies
    assert query("op == x or records.value == y").needs_bodies
    assert not query("records.key == y and body_len > 3").needs_bodies


def test_every_name_can_be_asked() -> None:
    rows = flymq()

    assert len(names()) > 300
    for name in names():
        assert len(query(f"{name} exists").selects(rows)) == 3


# -- exchanges -------------------------------------------------------------------------------------------


def exchange(**values: object) -> dict[str, object]:
    return {name: values.get(name) for name in EXCHANGES.names}


def test_an_exchange_is_of_its_request_and_its_reply() -> None:
    messages = pa.table(
        {
            "connection_id": pa.array([1, 1, 2, 1]), "direction": pa.array(["c2s", "s2c", "c2s", "c2s"]),
            "stream_offset": pa.array([0, 0, 0, 30]),
        }
    )  # fmt: skip
    rows = [
        exchange(connection_id=1, request_direction="c2s", request_offset=0, reply_offset=0, latency_ns=5),
        exchange(connection_id=2, request_direction="s2c", request_offset=70, reply_offset=0, latency_ns=7),
        exchange(connection_id=2, request_direction="c2s", request_offset=None, reply_offset=9, latency_ns=9),
    ]

    found = exchanges_of(messages, pa.Table.from_pylist(rows, EXCHANGES))

    assert found["latency_ns"].to_pylist() == [5, 5, 7, None]
    assert found["is_request"].to_pylist() == [True, False, False, None]
    assert exchanges_of(messages, EXCHANGES.empty_table())["is_request"].to_pylist() == [None] * 4


def test_exchanges_of_a_capture_are_beside_their_messages(pcaps: Path) -> None:
    made = dissected(pcaps / "blipmq" / "qos1.pcap")
    (chunk,) = made.chunks
    beside = exchanges_of(chunk.messages, made.exchanges)
    packets = {row["request_packet"] for row in made.exchanges.to_pylist() if row["state"] == "unanswered"}
    rows = FilterInput(chunk.protocol, chunk.messages, chunk.fields, beside)

    found = chunk.messages.filter(pa.array(query("is_request and latency > 40ms").selects(rows)))
    slow = [
        row for row in made.exchanges.to_pylist() if row["latency_ns"] is not None and row["latency_ns"] > 40_000_000
    ]

    assert sorted(found["first_packet"].to_pylist()) == sorted(row["request_packet"] for row in slow)
    unanswered = chunk.messages.filter(pa.array(query("state == unanswered").selects(rows)))
    assert set(unanswered["first_packet"].to_pylist()) == packets


def dissected(path: Path) -> Dissection:
    (capture,) = captures([str(path)]).captures
    return dissect(capture)
