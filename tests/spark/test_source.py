"""``spark.read.format("mqpcap")`` gives the rows of the local dissection."""

import contextlib
import io
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

from rows import of_dissections, rotated, texts

from mqpcap.capture import captures
from mqpcap.errors import CaptureError
from mqpcap.pipeline import Options, dissect
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


def test_every_table_of_a_directory_without_registration(spark: "SparkSession") -> None:
    expected = local([str(PCAPS / name) for name in SAMPLES])

    for table in ("messages", "exchanges", "connections", "problems", "deliveries", "captures", "fq", "kokaq"):
        frame = spark.read.format("mqpcap").option("table", table).load([str(PCAPS / name) for name in SAMPLES])

        assert rows(frame, table) == expected.get(table, []), table


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
def test_options_change_nothing_that_is_found(spark: "SparkSession", options: dict[str, str]) -> None:
    """json_session tells some of its deliveries by their bodies alone, whether a row shows them or not."""
    names = [str(PCAPS / name) for name in (*SAMPLES, "msgq/json_session.pcap")]
    expected = local(names)

    for table in ("deliveries", "exchanges", "messages"):
        frame = spark.read.format("mqpcap").option("table", table).options(**options).load(names)

        assert rows(frame, table) == expected[table], table


def test_columns_that_are_chosen_change_no_delivery(spark: "SparkSession") -> None:
    path = str(PCAPS / "msgq/json_session.pcap")
    source = spark.read.format("mqpcap").option("table", "deliveries")

    one = source.option("columns", "key").load(path)
    two = spark.read.format("mqpcap").option("table", "deliveries").schema("how string").load(path)

    assert (one.count(), two.count()) == (37, 37)


@pytest.fixture(scope="module")
def plain(spark: "SparkSession") -> "DataFrame":
    """Messages read without conditions, once for all that are asked of them."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")  # as Spark has it
    frame = spark.read.format("mqpcap").load([str(PCAPS / name) for name in SAMPLES])
    assert "PushedFilters" not in explained(frame.where("op = 'message'"))
    return frame.cache()


def explained(frame: "DataFrame") -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain("formatted")
    return shown.getvalue()


@pytest.mark.parametrize("condition", [
    "ts_ns >= {mid}", "ts < timestamp'{mid_text}'", "dst_port = 8765 and op = 'message'", "protocol in ('fq', 'msgq')",
    "src_ip = '127.0.0.1' and protocol = 'flymq'", "status is not null and frame_len <= 60",
    "op > 'm' and ts_ns < {mid}", "flaw is null and not (dst_port = 8765)",
])  # fmt: skip
def test_filters_that_are_taken_change_no_row(spark: "SparkSession", plain: "DataFrame", condition: str) -> None:
    register(spark)
    names = [str(PCAPS / name) for name in SAMPLES]
    times: list[Any] = sorted(row.ts_ns for row in plain.select("ts_ns").collect())
    middle = times[len(times) // 2]
    text = datetime.fromtimestamp(middle // 1000 / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")
    where = condition.format(mid=middle, mid_text=text)

    frame = spark.read.format("mqpcap").load(names).where(where)
    pushed = rows(frame, "messages")

    assert "PushedFilters: [" in explained(frame)
    assert pushed == rows(plain.where(where), "messages")
    assert 0 < len(pushed) < len(times)


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
])  # fmt: skip
def test_wrong_options_are_reported(options: dict[str, str], words: str) -> None:
    with pytest.raises(Exception, match=words):
        source = CaptureSource({"path": str(PCAPS / "flymq/core.pcap"), **options})
        source.reader(source.schema()).partitions()


def test_spark_reports_a_wrong_option(spark: "SparkSession") -> None:
    with pytest.raises(Exception, match="no option 'tabel': did you mean table"):
        spark.read.format("mqpcap").option("tabel", "exchanges").load(str(PCAPS / "flymq/core.pcap"))


@pytest.mark.parametrize("mode", ["failfast", "PERMISSIVE"])
def test_missing_path_among_several_is_an_error(spark: "SparkSession", tmp_path: Path, mode: str) -> None:
    shutil.copy(PCAPS / "flymq/core.pcap", tmp_path)
    there, gone, none = (str(tmp_path / name) for name in ("core.pcap", "cores.pcap", "z*.pcap"))
    source = spark.read.format("mqpcap").option("mode", mode)

    with pytest.raises(Exception, match=r"cores\.pcap: no such file: did you mean core\.pcap\? \(and 1 more\)"):
        source.load([there, gone, none]).count()


def test_file_that_is_no_capture_is_an_error_unless_permissive(spark: "SparkSession", tmp_path: Path) -> None:
    """Named or matched by a glob, and also one that is cut short; a stranger in a directory is left out."""
    whole = (PCAPS / "flymq/core.pcap").read_bytes()
    (tmp_path / "short.pcap").write_bytes(whole[:-7])
    (tmp_path / "zeros.pcap").write_bytes(bytes(64))
    source, expected = spark.read.format("mqpcap"), local([str(tmp_path / "short.pcap")])["messages"]

    for names in ([str(tmp_path / "short.pcap"), str(tmp_path / "zeros.pcap")], [str(tmp_path / "*.pcap")]):
        with pytest.raises(Exception, match=r"zeros\.pcap: not a capture: .*mode=permissive reads what can be read"):
            source.load(names).count()
        assert rows(spark.read.format("mqpcap").option("mode", "PERMISSIVE").load(names), "messages") == expected
    with pytest.raises(Exception, match=r"short\.pcap: at byte \d+, .*mode=permissive reads the packets before"):
        spark.read.format("mqpcap").load(str(tmp_path)).count()
    assert rows(spark.read.format("mqpcap").option("mode", "permissive").load(str(tmp_path)), "messages") == expected
    with pytest.raises(Exception, match="none of the inputs can be read"):
        spark.read.format("mqpcap").option("mode", "permissive").load(str(tmp_path / "zeros.pcap")).count()


def test_braces_are_alternatives(spark: "SparkSession") -> None:
    frame = spark.read.format("mqpcap").load(f"{PCAPS}/flymq/{{core,fetch}}.pcap")

    assert rows(frame, "messages") == local([f"{PCAPS}/flymq/{name}.pcap" for name in ("core", "fetch")])["messages"]


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
