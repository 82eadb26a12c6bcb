"""One protocol, one place, in Spark: its tables from the source and the job, and what the query pack makes of it.

Spark's workers are processes of their own: while the job runs they import a program whose folder of protocols has
the module. The source's methods are called here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import depot
import pyarrow as pa
import pytest
from click.testing import CliRunner
from running import run

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra lake)")

from pyspark.sql.pandas.types import to_arrow_schema
from rows import of_export, texts

import mqpcap.protocols
from mqpcap import queries
from mqpcap.cli import main
from mqpcap.spark import schemas
from mqpcap.spark.source import CaptureSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("messages", "depot", "exchanges", "deliveries", "connections", "problems")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a capture of the protocol, the local export of it, and the program, whose protocols are ours."""
    path = tmp_path_factory.mktemp("depot")
    program = depot.program(path / "src")
    made = run("export", "-q", depot.capture(path), "--out", path / "local", PYTHONPATH=str(program))
    assert made.exit_code == 0, made.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mqpcap.protocols, "__path__", [str(program / "mqpcap/protocols")])
        yield path


@pytest.fixture(scope="module")
def read(folder: Path) -> dict[str, pa.Table]:
    """The tables that the source gives."""
    tables = {}
    for name in TABLES:
        source = CaptureSource({"path": str(folder / "depot.pcap"), "table": name})
        schema = source.schema()
        reader = source.reader(schema)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        tables[name] = pa.Table.from_batches(batches, to_arrow_schema(schema, timezone="UTC"))
    return tables


@pytest.fixture(scope="module")
def answers(read: dict[str, pa.Table]) -> dict[str, Any]:
    """The answers from these tables, by DuckDB: the engines answer alike (test_questions.py)."""
    con = duckdb.connect()
    for name, table in read.items():
        con.register(name, table)
    given = {"what_did": {"client": "10.0.0.1"}}
    asked = {name: queries.run(name, con, **given.get(name, {})) for name in queries.questions()}
    return {name: [dict(zip(x.columns, row, strict=True)) for row in x.fetchall()] for name, x in asked.items()}


def test_the_job_writes_the_rows_of_the_local_export(spark: "SparkSession", folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(folder / "src"))  # of its workers
        done = CliRunner().invoke(
            main, ["spark", "export", "-q", str(folder / "depot.pcap"), "--out", str(folder / "job")]
        )

    assert done.exit_code == 0, done.output
    made = of_export(folder / "job")
    assert made == of_export(folder / "local")
    assert [*made] == ["captures", "connections", "deliveries", "depot", "exchanges", "messages"]


def test_the_source_gives_the_rows_of_the_local_export(folder: Path, read: dict[str, pa.Table]) -> None:
    local = of_export(folder / "local")

    for name in ("messages", "depot", "exchanges", "deliveries", "connections"):
        assert texts([read[name].cast(schemas.table_schema(name))]) == local[name], name
    assert read["problems"].num_rows == 0


def test_the_body_column_has_its_bodies(read: dict[str, pa.Table]) -> None:
    goods = [bytes(x).decode() for x in read["depot"]["goods"].to_pylist() if x is not None]

    assert goods == ["hazel", "walnut", "hazel"]


def test_questions_about_requests_answer_for_it(answers: dict[str, Any]) -> None:
    assert [(x["op"], x["requests"], x["answered"], x["errors"]) for x in answers["latency"]] == [
        ("LOGIN", 2, 2, 0), ("STORE", 2, 2, 0), ("TAKE", 2, 2, 1),
    ]  # fmt: skip
    assert len(answers["slowest"]) == 6
    assert [(x["exchanges"], x["waiting_p50_us"]) for x in answers["where_the_time_goes"]] == [(6, 1000.0)]
    assert answers["unanswered"] == []


def test_questions_about_deliveries_and_errors_answer_for_it(answers: dict[str, Any]) -> None:
    assert [(x["destination"], x["deliveries"], x["p50_us"]) for x in answers["transit"]] == [("nuts", 1, 7000.0)]
    assert [(x["op"], x["client_name"], x["error_code"], x["error_text"]) for x in answers["errors"]] == [
        ("TAKE", "bea", 4, "nothing there")
    ]


def test_questions_about_connections_answer_for_it(answers: dict[str, Any]) -> None:
    assert [(x["protocol"], x["connections"], x["messages"], x["is_whole"]) for x in answers["trust"]] == [
        ("depot", 2, 12, True)
    ]
    assert [(x["protocol"], x["connections"], x["reconnects"], x["logins"]) for x in answers["churn"]] == [
        ("depot", 2, 0, 2)
    ]
    assert len(answers["what_did"]) == len(depot.DIALOGUE)


def test_questions_about_roles_answer_for_it(answers: dict[str, Any]) -> None:
    talks = [
        (x["role"], x["destination"], x["client_name"], x["requests"], x["messages"]) for x in answers["who_talks"]
    ]
    assert sorted(talks) == [
        ("consumer", "nuts", "bea", 1, 1), ("consumer", "void", "bea", 1, 0), ("producer", "nuts", "ann", 2, 2),
    ]  # fmt: skip
    assert [(x["destination"], x["flow"], x["messages"], x["body_bytes"]) for x in answers["rates"]] == [
        ("nuts", "in", 2, 11), ("nuts", "out", 1, 5),
    ]  # fmt: skip
