"""Each column of each table has its meaning, unit and values in its metadata, and in the files."""

import inspect
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from mqpcap.cli import main
from mqpcap.protocols import protocols
from mqpcap.tables.schemas import TABLES, protocol_schema

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = TABLES | {name: protocol_schema(protocol) for name, protocol in protocols().items()}


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_column_has_a_comment_that_begins_with_its_meaning(table: str) -> None:
    for field in SCHEMAS[table]:
        assert field.metadata[b"comment"].strip()[:1] not in (b"", b";"), field.name


@pytest.mark.parametrize("name", protocols())
def test_no_meaning_belongs_to_a_column_that_there_is_not(name: str) -> None:
    assert not protocols()[name].meanings.keys() - set(protocol_schema(protocols()[name]).names)


def test_units_come_from_the_description_or_the_name() -> None:
    assert SCHEMAS["messages"].field("ts_ns").metadata[b"unit"] == b"ns"
    assert SCHEMAS["messages"].field("body_len").metadata[b"unit"] == b"bytes"
    assert SCHEMAS["connections"].field("missing_bytes_c2s").metadata[b"unit"] == b"bytes"
    assert SCHEMAS["flymq"].field("delay_ms").metadata[b"comment"].endswith(b"; in ms")
    assert b"unit" not in SCHEMAS["messages"].field("protocol").metadata


def test_values_are_those_of_the_contract_and_of_the_descriptions() -> None:
    states = SCHEMAS["exchanges"].field("state").metadata[b"values"].decode().split(", ")
    assert {"answered", "likely", "silent", "not_expected", "unanswered", "lost", "orphan", "unknown"} == set(states)
    assert SCHEMAS["blipmq"].field("qos").metadata[b"values"] == b"0 AtMostOnce, 1 AtLeastOnce"


def test_files_have_the_comments_for_arrow_and_for_spark_and_the_order_of_their_rows(tmp_path: Path) -> None:
    capture = str(ROOT / "pcaps" / "fq" / "session.pcap")
    assert not CliRunner().invoke(main, ["export", capture, "--out", str(tmp_path / "tables"), "-q"]).exit_code

    for table in ("messages", "fq", "exchanges", "captures"):
        path = next((tmp_path / "tables" / table).glob("*/*.parquet"))
        schema, footer = pq.read_schema(path), pq.read_metadata(path)
        assert [f.metadata for f in schema] == [f.metadata for f in SCHEMAS[table]]
        spark = json.loads(footer.metadata[b"org.apache.spark.sql.parquet.row.metadata"])
        assert [f["metadata"]["comment"].encode() for f in spark["fields"]] == [f.metadata[b"comment"] for f in schema]
    messages = pq.read_metadata(next((tmp_path / "tables" / "messages").glob("*/*.parquet")))
    assert messages.row_group(0).sorting_columns == (pq.SortingColumn(SCHEMAS["messages"].get_field_index("ts_ns")),)


def test_id_column_with_values_has_a_bloom_filter(tmp_path: Path) -> None:
    if "bloom_filter_options" not in inspect.signature(pq.ParquetWriter).parameters:
        pytest.skip("this pyarrow writes no Bloom filters")
    for name in ("fq/session", "blipmq/qos1"):
        capture = str(ROOT / "pcaps" / f"{name}.pcap")
        assert not CliRunner().invoke(main, ["export", capture, "--out", str(tmp_path / name[:2]), "-q"]).exit_code

    def filters(table: str) -> set[str]:
        group = pq.read_metadata(next((tmp_path / table).glob("messages/*/*.parquet"))).row_group(0)
        columns = [group.column(i).to_dict() for i in range(group.num_columns)]
        return {column["path_in_schema"] for column in columns if column.get("bloom_filter_offset")}

    assert filters("fq") == {"message_id"}
    assert filters("bl") == set()  # BlipMQ's messages have no message_id


def test_dictionaries_keep_the_comments() -> None:
    assert pa.types.is_dictionary(SCHEMAS["messages"].field("op").type)
    assert SCHEMAS["messages"].field("op").metadata[b"comment"]
