"""Every name that filters take, with what the schemas say of it."""

import pytest
from fields_page import PAGE, page

import mqpcap
from mqpcap.errors import QueryError
from mqpcap.protocols import protocols
from mqpcap.query import names, query
from mqpcap.query.field_catalogue import TABLES, fields


def test_each_listed_name_is_a_name_of_filters_and_the_reverse() -> None:
    listed = {name for field in fields() if field.in_filters for name in (field.name, *field.aliases)}
    computed_twice = {f"exchange.{field.name}" for field in fields("exchanges")}

    without_protocol = {name for name in names() if name.partition(".")[0] not in protocols()}
    assert set(names()) - listed - computed_twice <= without_protocol
    assert listed <= set(names())


def test_each_column_of_each_table_is_listed_with_a_meaning() -> None:
    assert {(f.table, f.name) for f in fields() if f.table in TABLES} == {
        (table, name) for table, schema in TABLES.items() for name in schema.names
    }
    assert not [field.name for field in fields() if not field.meaning]


def test_unit_and_values_are_apart_from_the_meaning() -> None:
    by_name = {(field.table, field.name): field for field in fields()}

    assert by_name["exchanges", "latency_ns"].unit == "ns"
    assert by_name["messages", "direction"].values == ("c2s", "s2c")
    assert by_name["messages", "first_packet"].aliases == ("packet", "frame.number")
    assert not by_name["connections", "bytes_c2s"].in_filters


def test_a_table_or_a_protocol_alone() -> None:
    assert {field.table for field in mqpcap.fields("FlyMQ")} == {"flymq"}
    with pytest.raises(QueryError, match="no table and no protocol; there are message, messages"):
        fields("nope")


def test_wiresharks_stream_counts_from_0() -> None:
    rows = list(mqpcap.show("pcaps/blipmq/qos1.pcap", "tcp.stream == 1 and frame.number < 1000"))

    assert {row.message["connection_number"] for row in rows} == {2}
    assert query("tcp.stream in (1, 2)").needs_endpoints_only


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tests/support/fields_page.py --write"
