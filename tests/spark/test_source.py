"""``spark.read.format("mqpcap")`` gives the rows of the local dissection."""

import json
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

from dissection import dissect
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from rows import of_dissections, rotated, texts

from mqpcap.capture import captures
from mqpcap.errors import CaptureError
from mqpcap.pipeline import Options
from mqpcap.spark import register, schemas
from mqpcap.spark.source import CaptureSource
from mqpcap.tables.messages import RowPolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # Spark's own: its Arrow reader is asked for pandas, and leaves sockets to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning",
                               "ignore::FutureWarning", "ignore::DeprecationWarning"),
]  # fmt: skip
PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
SAMPLES = [f"{x}.pcap" for x in ("fq/session", "flymq/fetch", "blipmq/qos1", "msgq/split_session", "kokaq/go1_session")]


def local(names: Sequence[str], options: Options | None = None) -> dict[str, list[str]]:
    return _local(tuple(names), options or Options(policy=RowPolicy()))


@cache
def _local(names: tuple[str, ...], options: Options) -> dict[str, list[str]]:
    return of_dissections([dissect(c, options) for c in captures(names).captures])


def rows(frame: "DataFrame", table: str) -> list[str]:
    """The rows as the local road writes them."""
    return texts([frame.toArrow().cast(schemas.table_schema(table))])


def by_source(names: Sequence[str], schema: StructType | None = None, **options: str) -> pa.Table:
    """What the source's methods give, called as Spark's workers call them."""
    source = CaptureSource({"paths": json.dumps(names), **options})
    schema = source.schema() if schema is None else schema
    reader = source.reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches, None if batches else to_arrow_schema(schema, timezone="UTC"))


TABLES = ("messages", "exchanges", "connections", "problems", "deliveries", "captures", "fq", "kokaq")


def test_every_table_of_a_directory_without_registration(spark: "SparkSession") -> None:
    """By Spark those of all kinds of types; by its methods all."""
    names = [str(PCAPS / name) for name in SAMPLES]
    expected = local(names)

    for table in ("messages", "captures", "fq", "kokaq"):
        frame = spark.read.format("mqpcap").option("table", table).load(names)

        assert rows(frame, table) == expected[table], table
    for table in TABLES:
        found = by_source(names, table=table).cast(schemas.table_schema(table))

        assert texts([found]) == expected.get(table, []), table


def test_messages_are_the_table_unless_named_and_shares_change_no_row(spark: "SparkSession", tmp_path: Path) -> None:
    rotated(PCAPS / "fq/session.pcap", tmp_path, 3)

    frame = spark.read.format("mqpcap").option("shares", "3").load(str(tmp_path))

    assert frame.rdd.getNumPartitions() == 3
    assert rows(frame, "messages") == local([str(tmp_path)])["messages"]


def test_schema_of_ones_own_prunes_and_orders_columns(spark: "SparkSession") -> None:
    frame = spark.read.format("mqpcap").schema("op string, ts_ns bigint").load(str(PCAPS / "flymq/core.pcap"))

    assert frame.columns == ["op", "ts_ns"]
    assert frame.count() == len(local([str(PCAPS / "flymq/core.pcap")])["messages"])


def test_secrets_bodies_and_decode_as_are_options(spark: "SparkSession") -> None:
    path = str(PCAPS / "flymq/login.pcap")
    options = Options(policy=RowPolicy(show_secrets=True, bodies=3))

    frame = (
        spark.read.format("mqpcap").option("table", "flymq").option("showSecrets", "true").option("bodies", "3")
        .option("decodeAs", "tcp.port==9092,flymq").load(path)
    )  # fmt: skip
    found = frame.toArrow()

    assert texts([found.cast(schemas.table_schema("flymq"))]) == local([path], options)["flymq"]
    hidden = spark.read.format("mqpcap").option("table", "flymq").load(path).toArrow()
    assert {*hidden["password"].to_pylist()} == {None, "***"}


@pytest.mark.parametrize("options", [
    {"bodies": "none"}, {"shares": "3"},
])  # fmt: skip
def test_options_change_nothing_that_is_found(options: dict[str, str]) -> None:
    """json_session tells some of its deliveries by their bodies alone, whether a row shows them or not."""
    names = [str(PCAPS / name) for name in (*SAMPLES, "msgq/json_session.pcap")]
    expected = local(names)

    for table in ("deliveries", "exchanges", "messages"):
        found = by_source(names, table=table, **options)

        assert texts([found.cast(schemas.table_schema(table))]) == expected[table], table


def test_columns_that_are_chosen_change_no_delivery() -> None:
    names = [str(PCAPS / "msgq/json_session.pcap")]

    one = by_source(names, table="deliveries", columns="key")
    two = by_source(names, StructType().add("how", "string"), table="deliveries")

    assert (one.column_names, two.column_names) == (["key"], ["how"])
    assert (one.num_rows, two.num_rows) == (37, 37)


@pytest.mark.parametrize("enabled", ["false", "true"])
def test_filters_of_one_half_leave_the_rows_of_the_other(spark: "SparkSession", enabled: str) -> None:
    """Whatever the setting of filter pushdown, by which Spark 4.3 keeps the filters of one half for the other."""
    names = [str(PCAPS / name) for name in SAMPLES]
    session = spark.newSession()
    register(session)
    session.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
    frame = session.read.format("mqpcap").option("columns", "direction").load(names)
    to_server, to_client = (frame.where(f"direction = '{way}'") for way in ("c2s", "s2c"))

    assert to_server.union(to_client).count() == frame.count() == len(local(names)["messages"])
    assert 0 < to_server.count() < frame.count()


def test_frame_keeps_the_files_of_its_first_action(spark: "SparkSession", tmp_path: Path) -> None:
    """As the page says, with the line that reads anew."""
    shutil.copy(PCAPS / "flymq/core.pcap", tmp_path)
    load = spark.read.format("mqpcap").option("columns", "capture_file").load
    frame = load(str(tmp_path))
    before = frame.count()
    shutil.copy(PCAPS / "blipmq/qos1.pcap", tmp_path)

    assert frame.count() == before == len(local([str(PCAPS / "flymq/core.pcap")])["messages"])
    assert load(str(tmp_path)).count() == before + 242


def test_stream_of_the_format_names_what_streams() -> None:
    """At the first call of a stream: Spark 4.3 loses what its reader's construction raises."""
    stream = CaptureSource({"path": str(PCAPS / "flymq/core.pcap")}).streamReader(StructType())

    with pytest.raises(CaptureError, match=r"has no streams: mqpcap\.spark\.stream_to_lake fills a lake"):
        stream.initialOffset()


def test_view_in_sql_and_glob(spark: "SparkSession") -> None:
    spark.sql(f"create or replace temp view captured using mqpcap options (path '{PCAPS}/flymq/[cf]*.pcap')")

    counted = spark.sql("select count(*) as n, count(distinct capture_file) as files from captured").collect()[0]

    names = sorted(str(path) for path in (PCAPS / "flymq").glob("[cf]*.pcap"))
    assert (counted.n, counted.files) == (len(local(names)["messages"]), len(names))


@pytest.mark.parametrize("table", ["messages", "flymq", "connections", "exchanges"])
def test_file_that_goes_away_while_it_is_read_is_no_silent_end(tmp_path: Path, table: str) -> None:
    """A scan has no place for a note: the task fails, and Spark tries it again."""
    files = rotated(PCAPS / "flymq/core.pcap", tmp_path, 3)
    source = CaptureSource({"path": str(tmp_path), "table": table})
    reader = source.reader(source.schema())
    (part,) = reader.partitions()
    files[2].unlink()

    with pytest.raises(CaptureError, match=r"part\.pcap2 cannot be read"):
        list(reader.read(part))


@pytest.mark.parametrize(("options", "words"), [
    ({"table": "mesages"}, "there is no table 'mesages'"), ({"bodies": "some"}, "option bodies is a number"),
    ({"path": "/nowhere/x.pcap"}, "/nowhere/x.pcap: no such file"),
    ({"table": "mesages"}, "did you mean messages"), ({"tabel": "exchanges"}, "no option 'tabel': did you mean table"),
    ({"header": "true"}, "no option 'header'; there are table, decodeAs,"), ({"mode": "loose"}, "not 'loose'"),
    ({"maxMemory": "much"}, "a size as 64MB"), ({"columns": "opp"}, "did you mean op"),
    ({"maxMemory": "9kB"}, "at least 1048576 bytes, not '9kB'"),
    ({"shares": "0"}, "option shares is a number of at least 1, not '0'"),
    ({"decodeAs": "tcp.port==99999,fq"}, "99999 is no TCP port"),
    ({"decodeAs": "tcp.port==0,fq"}, "0 is no TCP port"),
])  # fmt: skip
def test_wrong_options_are_reported(options: dict[str, str], words: str) -> None:
    with pytest.raises(Exception, match=words):
        source = CaptureSource({"path": str(PCAPS / "flymq/core.pcap"), **options})
        source.reader(source.schema()).partitions()


def test_spark_reports_a_wrong_option(spark: "SparkSession") -> None:
    with pytest.raises(Exception, match="no option 'tabel': did you mean table"):
        spark.read.format("mqpcap").option("tabel", "exchanges").load(str(PCAPS / "flymq/core.pcap"))


@pytest.mark.parametrize("mode", ["failfast", "PERMISSIVE"])
def test_missing_path_among_several_is_an_error(tmp_path: Path, mode: str) -> None:
    shutil.copy(PCAPS / "flymq/core.pcap", tmp_path)
    there, gone, none = (str(tmp_path / name) for name in ("core.pcap", "cores.pcap", "z*.pcap"))

    with pytest.raises(CaptureError, match=r"cores\.pcap: no such file: did you mean core\.pcap\? \(and 1 more\)"):
        by_source([there, gone, none], mode=mode)


def test_file_that_is_no_capture_is_an_error_unless_permissive(spark: "SparkSession", tmp_path: Path) -> None:
    """Named or matched by a glob, and also one that is cut short; a stranger in a directory is left out."""
    whole = (PCAPS / "flymq/core.pcap").read_bytes()
    (tmp_path / "short.pcap").write_bytes(whole[:-7])
    (tmp_path / "zeros.pcap").write_bytes(bytes(64))
    expected = local([str(tmp_path / "short.pcap")])["messages"]

    def messages(*names: object, mode: str = "failfast") -> list[str]:
        return texts([by_source([*map(str, names)], mode=mode).cast(schemas.table_schema("messages"))])

    with pytest.raises(Exception, match=r"zeros\.pcap: not a capture: .*mode=permissive reads what can be read"):
        spark.read.format("mqpcap").load(str(tmp_path / "*.pcap")).count()
    assert rows(spark.read.format("mqpcap").option("mode", "PERMISSIVE").load(str(tmp_path)), "messages") == expected
    for names in ([tmp_path / "short.pcap", tmp_path / "zeros.pcap"], [tmp_path / "*.pcap"]):
        with pytest.raises(CaptureError, match=r"zeros\.pcap: not a capture: .*mode=permissive reads what can be read"):
            messages(*names)
        assert messages(*names, mode="PERMISSIVE") == expected
    with pytest.raises(CaptureError, match=r"short\.pcap: at byte \d+, .*mode=permissive reads the packets before"):
        messages(tmp_path)
    with pytest.raises(CaptureError, match="none of the inputs can be read"):
        messages(tmp_path / "zeros.pcap", mode="permissive")


def test_braces_are_alternatives() -> None:
    found = by_source([f"{PCAPS}/flymq/{{core,fetch}}.pcap"]).cast(schemas.table_schema("messages"))

    assert texts([found]) == local([f"{PCAPS}/flymq/{name}.pcap" for name in ("core", "fetch")])["messages"]


def test_table_of_the_catalog_is_refused_with_what_would_do(spark: "SparkSession") -> None:
    """Spark 4.3 gives a Python source none of the table's options."""
    spark.sql(f"create table stored using mqpcap options (path '{PCAPS}/flymq/core.pcap', table 'exchanges')")
    try:
        with pytest.raises(Exception, match=r"no path: .*CREATE TEMPORARY VIEW name USING mqpcap OPTIONS"):
            spark.table("stored").count()
    finally:
        spark.sql("drop table stored")


def test_file_in_a_directory_that_cannot_be_opened_is_not_foreign(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(PCAPS / "flymq/core.pcap", tmp_path)
    (tmp_path / "loop.pcap").symlink_to("loop.pcap")

    def parts(**options: str) -> int:
        source = CaptureSource({"path": str(tmp_path), **options})
        return len(source.reader(source.schema()).partitions())

    with pytest.raises(CaptureError, match=r"loop\.pcap: Too many levels of symbolic links; option mode=permissive"):
        parts()
    assert parts(mode="permissive") == 1
    assert [record.getMessage().partition("loop")[0] for record in caplog.records] == [f"mqpcap: left out: {tmp_path}/"]


def test_what_the_catalog_adds_is_no_unknown_option() -> None:
    """As Spark 4.3 gives the options of ``create table t using mqpcap options (path '...', table 'flymq')``."""
    given = {"table": "flymq", "option.table": "flymq", "owner": "root", "provider": "mqpcap", "comment": "mine"}

    schema = CaptureSource({**given, "location": "file:/x", "path": "file:/x"}).schema()

    assert "correlation_id" not in schema.fieldNames() and "roles" in schema.fieldNames()


def test_columns_have_their_meanings_as_comments(spark: "SparkSession") -> None:
    frame = spark.read.format("mqpcap").option("table", "exchanges").load(f"{PCAPS}/fq/session.pcap")
    frame.createOrReplaceTempView("commented")

    comments = {row.col_name: row.comment for row in spark.sql("DESCRIBE commented").collect()}

    assert comments["latency_ns"] == "from the first byte of the request to that of the reply; in ns"
