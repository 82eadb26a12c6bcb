"""Spark, DuckDB and Polars give equal answers to each of the sixteen questions."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="pyspark is not installed (extra spark)")
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra lake)")
pl = pytest.importorskip("polars", reason="polars is not installed")

from mqpcap import queries
from mqpcap.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
NAMES = (
    "blipmq/qos1", "blipmq/errors", "blipmq/midstream", "flymq/groups", "flymq/fetch", "flymq/login", "fq/session",
    "fq/errors", "kokaq/go1_session", "msgq/split_session", "msgq/flat_errors", "faults/fq_lost", "faults/flymq_no_syn",
    "faults/msgq_conflict",
)  # fmt: skip
GIVEN: dict[str, dict[str, Any]] = {
    "what_did": {"client": "127.0.0.1"}, "rates": {"window_ns": 250_000_000, "top": 30}, "slowest": {"n": 500},
}  # fmt: skip


@pytest.fixture(scope="module")
def engines(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple["SparkSession", Any, Any]]:
    """A session, a connection and a context with the tables of some captures, in which each question has an answer."""
    out = tmp_path_factory.mktemp("all") / "tables [1]"  # no glob
    done = CliRunner().invoke(main, ["export", "-q", *(f"{PCAPS}/{name}.pcap" for name in NAMES), "--out", str(out)])
    assert done.exit_code == 0, done.output
    session, con, context = spark.newSession(), duckdb.connect(), pl.SQLContext()
    for engine in (session, con, context):
        queries.tables(engine, out)
    queries.register(session)
    for table in session.sql("SHOW TABLES").collect():
        session.catalog.cacheTable(table.tableName)  # questions read it again and again
    yield session, con, context
    con.close()


def comparable(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows in an order of their own, numbers to nine digits: sums of floats depend on their order."""

    def cell(value: Any) -> tuple[int, Any]:
        if value is None:
            return 0, ""
        is_number = isinstance(value, bool | float | Decimal) or (isinstance(value, int) and abs(value) < 1 << 50)
        return (1, float(f"{float(value):.9g}")) if is_number else (2, str(value))

    return sorted(tuple(map(cell, row)) for row in rows)


@pytest.mark.parametrize("question", queries.questions())
def test_answers_of_three_engines_are_equal(engines: tuple["SparkSession", Any, Any], question: str) -> None:
    spark, duck, polars = (queries.run(question, engine, **GIVEN.get(question, {})) for engine in engines)

    assert spark.columns == duck.columns == polars.columns
    expected = comparable(duck.fetchall())
    assert expected
    assert comparable(polars.rows()) == expected
    assert comparable([tuple(row) for row in spark.collect()]) == expected


def test_an_earlier_answer_is_not_changed_by_a_later_question(engines: tuple["SparkSession", Any, Any]) -> None:
    first = queries.run("slowest", engines[0], n=3)
    queries.run("slowest", engines[0], n=5)

    assert first.count() == 3
