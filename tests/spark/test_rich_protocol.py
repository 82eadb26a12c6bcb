"""One protocol, one place, in Spark: its tables from the source and the job, and what the query pack makes of it.

Spark's workers are processes of their own, so all of it runs in a program whose folder of protocols has the module.
"""

import json
import os
import subprocess
import sys
from typing import Any

import depot
import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

SCRIPT = """
import inspect, json, os
import pyarrow.dataset as ds
from mqpcap.cli import main
from mqpcap.spark import queries
from mqpcap.spark.session import session

TABLES = ("messages", "depot", "exchanges", "deliveries", "connections", "problems")
QUESTIONS = (
    "who_talks", "rates", "latency", "slowest", "where_the_time_goes", "transit", "backlog", "unanswered", "errors",
    "repeats", "acks", "churn", "polling", "what_did", "trust",
)
conf = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false", "spark.driver.memory": "1g"}
spark = session("local[1]", conf)
said = {}


def rows(tables):
    return sorted(str(sorted(row.items())) for row in tables.to_pylist())


main(["export", "-q", "depot.pcap", "--out", "local"], standalone_mode=False)
main(["spark", "export", "-q", "depot.pcap", "--out", "job"], standalone_mode=False)
read = lambda out, name: ds.dataset(f"{out}/{name}").to_table()
names = sorted(name for name in os.listdir("local") if os.path.isdir(f"local/{name}"))
said["job"] = {name: rows(read("job", name)) == rows(read("local", name)) for name in names}

source = {name: spark.read.format("mqpcap").option("table", name).load("depot.pcap").cache() for name in TABLES}
found = {name: frame.toArrow() for name, frame in source.items()}
said["source"] = {
    name: rows(found[name].cast(read("local", name).schema)) == rows(read("local", name))
    for name in TABLES if name in names
}
said["goods"] = [bytes(x).decode() for x in found["depot"]["goods"].to_pylist() if x is not None]
said["queries"] = {}
for name in QUESTIONS:
    ask = getattr(queries, name)
    wanted = {x: source[x] for x in inspect.signature(ask).parameters if x in source}
    if name == "what_did":
        wanted |= {"client": "10.0.0.1", "start": "2020-01-01", "end": "2040-01-01"}
    said["queries"][name] = [row.asDict() for row in ask(**wanted).collect()]
print(json.dumps(said, default=str))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("depot")
    path = os.pathsep.join([str(depot.program(folder / "src")), os.environ.get("PYTHONPATH", "")])
    depot.capture(folder)
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        text=True, check=False, timeout=600,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    read: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return read


def test_the_job_writes_the_rows_of_the_local_export(said: dict[str, Any]) -> None:
    assert said["job"] == dict.fromkeys(
        ("captures", "connections", "deliveries", "depot", "exchanges", "messages"), True
    )


def test_the_source_gives_the_rows_of_the_local_export(said: dict[str, Any]) -> None:
    assert said["source"] == dict.fromkeys(("messages", "depot", "exchanges", "deliveries", "connections"), True)


def test_the_body_column_has_its_bodies(said: dict[str, Any]) -> None:
    assert said["goods"] == ["hazel", "walnut", "hazel"]


def test_questions_about_requests_answer_for_it(said: dict[str, Any]) -> None:
    answers = said["queries"]

    assert [(x["op"], x["requests"], x["answered"], x["errors"]) for x in answers["latency"]] == [
        ("LOGIN", 2, 2, 0), ("STORE", 2, 2, 0), ("TAKE", 2, 2, 1),
    ]  # fmt: skip
    assert len(answers["slowest"]) == 6
    assert [(x["exchanges"], x["waiting_p50_us"]) for x in answers["where_the_time_goes"]] == [(6, 1000.0)]
    assert answers["unanswered"] == []


def test_questions_about_deliveries_and_errors_answer_for_it(said: dict[str, Any]) -> None:
    answers = said["queries"]

    assert [(x["destination"], x["deliveries"], x["p50_us"]) for x in answers["transit"]] == [("nuts", 1, 7000.0)]
    assert [(x["op"], x["client_name"], x["error_code"], x["error_text"]) for x in answers["errors"]] == [
        ("TAKE", "bea", 4, "nothing there")
    ]


def test_questions_about_connections_answer_for_it(said: dict[str, Any]) -> None:
    answers = said["queries"]

    assert [(x["protocol"], x["connections"], x["messages"], x["whole"]) for x in answers["trust"]] == [
        ("depot", 2, 12, True)
    ]
    assert [(x["protocol"], x["connections"], x["reconnects"], x["logins"]) for x in answers["churn"]] == [
        ("depot", 2, 0, 2)
    ]
    assert len(answers["what_did"]) == len(depot.DIALOGUE)


def test_questions_about_roles_answer_for_it(said: dict[str, Any]) -> None:
    answers = said["queries"]

    talks = [
        (x["role"], x["destination"], x["client_name"], x["requests"], x["messages"]) for x in answers["who_talks"]
    ]
    assert sorted(talks) == [
        ("consumer", "nuts", "bea", 1, 1), ("consumer", "void", "bea", 1, 0), ("producer", "nuts", "ann", 2, 2),
    ]  # fmt: skip
    assert [(x["destination"], x["flow"], x["messages"], x["body_bytes"]) for x in answers["rates"]] == [
        ("nuts", "in", 2, 11), ("nuts", "out", 1, 5),
    ]  # fmt: skip
