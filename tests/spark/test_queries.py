"""Each of the fifteen questions, answered from a truth file: what the clients did, never what we decoded."""

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

from mqpcap.capture import captures
from mqpcap.dissection import dissect
from mqpcap.spark import queries, schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning",
                               "ignore::FutureWarning", "ignore::DeprecationWarning"),
]  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
Event = dict[str, Any]


class Case:
    """A capture's tables as DataFrames, and its truth."""

    def __init__(self, spark: "SparkSession", name: str) -> None:
        self.truth = json.loads((ROOT / f"tests/truth/{name}.truth.json").read_text())
        made = dissect(captures([str(ROOT / f"pcaps/{name}.pcap")]).captures[0])
        chunks = list(made.chunks())
        ledgers = list(made.ledgers().values())
        arrow = {
            "messages": pa.concat_tables([chunk.messages for chunk in chunks]),
            "exchanges": pa.concat_tables([one.exchanges for one in ledgers]),
            "deliveries": pa.concat_tables([one.deliveries for one in ledgers]),
            "connections": made.connections,
            "problems": made.problems,
        }
        safe = {table: rows.cast(schemas.spark_safe(rows.schema)) for table, rows in arrow.items()}
        self.tables: dict[str, DataFrame] = {table: spark.createDataFrame(rows).cache() for table, rows in safe.items()}
        self._messages = arrow["messages"].to_pylist()

    def events(self, direction: str) -> list[Event]:
        return [e for c in self.truth["connections"] for e in c["events"] if e["dir"] == direction]

    def pairs(self) -> list[tuple[Event, Event, Event, Event]]:
        """(request, reply, row of the request, row of the reply): the truth's order, the capture's times."""
        found = []
        for connection in self.truth["connections"]:
            port = connection["client_port"]
            sides = []
            for direction, end in (("c2s", "src_port"), ("s2c", "dst_port")):
                rows = [r for r in self._messages if r["direction"] == direction and r[end] == port]
                events = [e for e in connection["events"] if e["dir"] == direction]
                rows.sort(key=lambda row: row["stream_offset"])
                assert len(rows) == len(events)
                sides.append(list(zip(events, rows, strict=True)))
            found += [(q, r, row, reply) for (q, row), (r, reply) in zip(*sides, strict=True)]
        return found

    def ask(self, name: str, **values: object) -> list[Any]:
        """The question's rows."""
        question = queries.QUESTIONS[name]
        wanted = question.__annotations__
        return question(**{t: f for t, f in self.tables.items() if t in wanted}, **values).collect()


@pytest.fixture(scope="module")
def groups(spark: "SparkSession") -> Case:
    """Eight messages produced to one topic, fetched in two calls; a few errors."""
    return Case(spark, "flymq/groups")


@pytest.fixture(scope="module")
def fetch(spark: "SparkSession") -> Case:
    return Case(spark, "flymq/fetch")


def test_who_talks(groups: Case) -> None:
    expected = Counter((e["fields"]["topic"], e["op_name"]) for e in groups.events("c2s") if "topic" in e.get("fields", {}))

    found: Counter[tuple[str, str]] = Counter()
    for row in groups.ask("who_talks"):
        if row.direction == "c2s":
            found[row.destination, row.op] += row.messages

    assert found == expected


def test_busiest(groups: Case) -> None:
    values = [e["fields"]["value"]["len"] for e in groups.events("c2s") if e["op_name"] == "PRODUCE"]

    first = groups.ask("busiest", seconds=86_400, top=1)

    assert [(r.destination, r.body_bytes) for r in first] == [("jobs", sum(values))]


def test_acknowledgement_latency(groups: Case) -> None:
    latencies: dict[str, list[int]] = {}
    for request, _, row, reply in groups.pairs():
        latencies.setdefault(request["op_name"], []).append(reply["ts_ns"] - row["ts_ns"])

    rows = groups.ask("acknowledgement_latency")

    assert {op: len(found) for op, found in latencies.items()} == {
        op: sum(r.answered for r in rows if r.op == op) for op in latencies
    }
    assert max(r.max_ns for r in rows) == max(max(found) for found in latencies.values())
    produce = next(r for r in rows if r.op == "PRODUCE")
    assert produce.p50_ns == statistics.median(latencies["PRODUCE"])


def test_slowest(groups: Case) -> None:
    expected = sorted((row["ts_ns"] - reply["ts_ns"], row["first_packet"], reply["first_packet"])
                      for _, _, row, reply in groups.pairs())[:5]  # fmt: skip

    found = [(-r.latency_ns, r.request_packet, r.reply_packet) for r in groups.ask("slowest", top=5)]

    assert found == expected


def test_where_time_goes(groups: Case) -> None:
    server = [reply["ts_ns"] - row["end_ts_ns"] for q, _, row, reply in groups.pairs() if q["op_name"] == "PRODUCE"]

    row = next(r for r in groups.ask("where_time_goes") if r.op == "PRODUCE")

    assert (row.answered, row.server_ns) == (len(server), statistics.median(server))


def fetched(case: Case) -> Counter[tuple[str, int, int]]:
    """How often each place was fetched, of places produced in the capture."""
    produced = set()
    places: Counter[tuple[str, int, int]] = Counter()
    for request, reply, _, _ in case.pairs():
        if request["op_name"] == "PRODUCE" and reply["op_name"] == "PRODUCE":
            fields = reply["fields"]
            produced.add((fields["topic"], fields["partition"], fields["offset"]))
    for request, reply, _, _ in case.pairs():
        asked, got = request.get("fields", {}), reply.get("fields", {})
        if request["op_name"] == reply["op_name"] and request["op_name"].startswith("FETCH"):
            places.update((asked["topic"], asked["partition"], m["offset"]) for m in got["messages"])
        elif request["op_name"] == reply["op_name"] and request["op_name"].startswith("CONSUME"):
            places[asked["topic"], asked["partition"], asked["offset"]] += 1
    return Counter({place: n for place, n in places.items() if place in produced})


def test_transit(groups: Case) -> None:
    places = fetched(groups)

    found = {(r.destination, r.how): (r.deliveries, r.publishes) for r in groups.ask("transit")}

    assert found == {("jobs", "offset"): (sum(places.values()), len(places))}


def test_backlog(groups: Case) -> None:
    published = sum(e["op_name"] == "PRODUCE" for e in groups.events("c2s"))

    rows = [(r.destination, r.published, r.behind) for r in groups.ask("backlog")]

    assert rows == [("jobs", published, published - len(fetched(groups)))]


def test_unanswered(groups: Case) -> None:
    """Every call of the client came back."""
    assert groups.ask("unanswered") == []


def test_errors(groups: Case) -> None:
    expected = Counter(e["fields"]["message"] for e in groups.events("s2c") if e["op_name"] == "ERROR")

    found: Counter[str] = Counter()
    for row in groups.ask("errors"):
        found[row.error_text] += row.errors

    assert found == expected


def test_delivered_again(fetch: Case) -> None:
    expected = {(topic, f"{at}:{offset}"): n for (topic, at, offset), n in fetched(fetch).items() if n > 1}

    found = {(row.destination, row.key): row.deliveries for row in fetch.ask("delivered_again")}

    assert found == expected


def test_outstanding(groups: Case) -> None:
    """The client waits for each answer."""
    rows = groups.ask("outstanding")

    assert sum(r.answered for r in rows) == len(groups.events("c2s"))
    assert {r.most_outstanding for r in rows} == {1}


def test_churn(groups: Case) -> None:
    found = groups.ask("churn")

    assert [(r.connections, r.opened, r.server_port) for r in found] == [(len(groups.truth["connections"]),) * 2 + (9092,)]


def test_polling(groups: Case) -> None:
    taken = [sum(m["value"]["len"] for m in e["fields"]["messages"]) for e in groups.events("s2c") if e["op_name"] == "FETCH"]

    rows = [(r.op, r.destination, r.requests, r.empty, r.body_max) for r in groups.ask("polling")]

    assert rows == [("FETCH", "jobs", len(taken), taken.count(0), max(taken))]


def test_story(groups: Case) -> None:
    whole = groups.ask("story", client="127.0.0.1")
    late = groups.ask("story", client="127.0.0.1", from_ns=whole[10].ts_ns, until_ns=whole[-1].ts_ns)

    assert Counter(r.op for r in whole) == Counter(e["op_name"] for d in ("c2s", "s2c") for e in groups.events(d))
    assert [r.ts_ns for r in late] == [r.ts_ns for r in whole if r.ts_ns >= whole[10].ts_ns]


def test_trust(groups: Case) -> None:
    size = sum(c["c2s_bytes"] + c["s2c_bytes"] for c in groups.truth["connections"])

    [row] = groups.ask("trust")

    assert (row.bytes, row.missing_bytes, row.undecoded_bytes, row.decoded) == (size, 0, 0, 1.0)
    assert (row.messages, row.flawed) == (len(groups.events("c2s")) + len(groups.events("s2c")), 0)


def test_sql_of_every_question_runs_over_views(groups: Case) -> None:
    for table, frame in groups.tables.items():
        frame.createOrReplaceTempView(table)
    values = {"seconds": 1, "top": 3, "client": "127.0.0.1", "from_ns": 0, "until_ns": 1 << 62}

    session = groups.tables["messages"].sparkSession
    for name in queries.QUESTIONS:
        session.sql(queries.sql(name), args=values).schema  # noqa: B018 - planned, so every name is known

    assert len(queries.QUESTIONS) == 15
