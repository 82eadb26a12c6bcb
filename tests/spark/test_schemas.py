"""The tables' columns as the contract has them, and batches of a size that Spark takes."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

from dissection import dissect
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from mqpcap.capture import captures
from mqpcap.spark import schemas

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
KEYS = ["capture", "connection_id", "direction", "stream_offset", "ts", "ts_ns", "op", "flaw"]
REQUIRED = {
    "blipmq": "correlation_id qos topic body api_key protocol_version subscription_id error_code error_text",
    "flymq": "flags topic key value partition offset timestamp_ms group_id mode max_messages next_offset success "
    "message username password roles records",
    "fq": "connection_kind user queue queue_type queue_params password client_key exchange route message_id sender "
    "hops body program bind_flags binding_id interval_ms status_values error_text",
    "kokaq": "message_type rq opaque op_opaque client status reason tag namespace queue body metadata",
    "msgq": "type from to group instance seq repl reply lname subtype msg document",
    "mqtt": "packet_id qos dup retain topic body client_id username password protocol_level bridge keep_alive "
    "will_topic reason_code subscription_identifier subscriptions properties",
}
"""The contract's words for the columns of protocols' tables."""
NUMBERS = pa.schema([("number", pa.int64()), ("body", pa.binary()), ("text", pa.string())])


def leaves(type_: pa.DataType) -> list[pa.DataType]:
    """The types that a column is made of."""
    inner = [type_.field(i).type for i in range(type_.num_fields)]
    return [leaf for one in inner for leaf in leaves(one)] if inner else [type_]


def rows(*sizes_bytes: int) -> pa.Table:
    """Rows with bodies of these sizes, their texts a dictionary as they travel."""
    texts = pa.array([str(i % 3) for i in range(len(sizes_bytes))], pa.string()).dictionary_encode()
    return pa.table({"text": texts, "number": [*range(len(sizes_bytes))], "body": [bytes(n) for n in sizes_bytes]})


def test_tables_are_those_of_the_contract() -> None:
    names = schemas.table_names()

    assert names[:6] == ("messages", "exchanges", "deliveries", "connections", "problems", "captures")
    assert {*names[6:]} == {*REQUIRED}
    assert len({*names}) == len(names)


@pytest.mark.parametrize("table", sorted(REQUIRED))
def test_protocol_table_has_the_keys_and_the_required_columns(table: str) -> None:
    names = schemas.table_schema(table).names

    assert names[: len(KEYS)] == KEYS
    assert {*REQUIRED[table].split()} <= {*names[len(KEYS) :]}
    assert len({*names}) == len(names)


def test_types_are_those_that_all_readers_know() -> None:
    """Signed integers only; numbers with 64 bits and no sign are decimals."""
    allowed = [pa.string(), pa.binary(), pa.bool_(), pa.int32(), pa.int64(), pa.decimal128(20, 0)]
    allowed.append(pa.timestamp("us", "UTC"))

    for table in schemas.table_names():
        for column in schemas.table_schema(table):
            assert all(leaf in allowed for leaf in leaves(column.type)), (table, column)


def test_spark_takes_the_types_of_any_table() -> None:
    for table in schemas.table_names():
        schema = schemas.table_schema(table)
        there_and_back = to_arrow_schema(from_arrow_schema(schema), timezone="UTC")

        assert schema.empty_table().cast(there_and_back).cast(schema).schema.equals(schema), table


@pytest.mark.parametrize("name", ["fq/peers", "flymq/fetch", "blipmq/qos1", "msgq/split_session", "kokaq/go1_session"])
def test_schema_is_that_of_the_rows(name: str) -> None:
    made = dissect(captures([f"{PCAPS}/{name}.pcap"]).captures[0])

    for chunk in made.chunks:
        for table, found in (("messages", chunk.messages), (chunk.protocol, chunk.fields)):
            schema = schemas.table_schema(table)
            assert found.schema.names == schema.names
            assert found.cast(schema).to_pylist() == found.to_pylist()


def test_table_that_there_is_none_of_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        schemas.table_schema("mesages")


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 12), st.integers(1, 400))
def test_batches_hold_all_rows_in_order_and_no_more_than_their_count(
    sizes_bytes: list[int], row_count: int, batch_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schemas, "BATCH_ROW_COUNT", row_count)
        patch.setattr(schemas, "BATCH_BYTES", batch_bytes)
        made = [*schemas.batches(rows(*sizes_bytes), NUMBERS)]

    assert [(row["number"], len(row["body"])) for one in made for row in one.to_pylist()] == [*enumerate(sizes_bytes)]
    assert all(one.schema == NUMBERS and 0 < one.num_rows <= row_count for one in made)


def test_batch_ends_at_bytes_too() -> None:
    """Rows of 4 MB: no more than four fit into 16 MB, and with their other columns three."""
    made = [*schemas.batches(rows(*[4 << 20] * 7), NUMBERS)]

    assert [one.num_rows for one in made] == [3, 3, 1]


def test_row_larger_than_a_batch_is_alone() -> None:
    assert [one.num_rows for one in schemas.batches(rows(20 << 20, 20 << 20), NUMBERS)] == [1, 1]
