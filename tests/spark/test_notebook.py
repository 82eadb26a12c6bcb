"""The notebook about Spark runs from top to bottom, in the session of all tests."""

import ast
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")
for _library in ("nbformat", "pandas", "matplotlib"):
    pytest.importorskip(_library, reason=f"{_library} is in the test extra")

import nbformat
from matplotlib import pyplot
from notebook_outputs import ROOT, Frame, calls_of, shown, text_of_html

from mqpcap import queries
from mqpcap.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRODUCES = {"PRODUCE", "PRODUCE_WITH_SCHEMA", "PRODUCE_DELAYED", "PRODUCE_WITH_TTL", "TXN_PRODUCE"}
CONSUMES = {"CONSUME", "CONSUME_ZERO_COPY", "FETCH", "FETCH_BINARY", "SUBSCRIBE", "COMMIT"}


def at_scale() -> list[str]:
    """Who talks, latencies and the slowest requests, all answered; percentiles are interpolated."""
    calls = calls_of("pipelining", "groups", "fetch")
    talks: dict[tuple[str, str], list[Frame]] = {}
    for asked, _ in calls:
        if asked.op in PRODUCES | CONSUMES:
            role = "producer" if asked.op in PRODUCES else "consumer"
            talks.setdefault((asked.fields["topic"], role), []).append(asked)
    groups = {
        key: min((f.fields["group_id"] for f in found if f.fields.get("group_id")), default=None)
        for key, found in talks.items()
    }
    latencies: dict[str | None, list[float]] = {}
    for asked, said in calls:
        latencies.setdefault(asked.op, []).append(said.ts_us - asked.ts_us)
    errors = Counter(asked.op for asked, said in calls if said.status == "error")
    by_op = [
        ("flymq", op, len(us), len(us), 0, 0, 0, 0, 0, 0, errors[op],
         *(round(float(np.percentile(us, share)), 6) for share in (50, 95, 99, 99.9)), float(max(us)))
        for op, us in sorted(latencies.items(), key=lambda x: (x[0] is None, x[0]))
    ]  # fmt: skip
    slow = [
        (a.op, a.fields.get("topic"), float(b.ts_us - a.ts_us), b.status, a.length, b.length, a.packet, b.packet)
        for a, b in sorted(calls, key=lambda pair: pair[0].ts_us - pair[1].ts_us)[:5]
    ]
    return [
        shown([(role, topic, groups[topic, role], len(talks[topic, role])) for topic, role in sorted(talks)[:8]],
              columns=["role", "destination", "group_name", "requests"]),
        shown(by_op[:8], columns=[
            "protocol", "op", "requests", "answered", "likely", "silent", "not_expected", "unanswered", "lost",
            "unknown", "errors", "p50_us", "p95_us", "p99_us", "p999_us", "max_us",
        ]),
        " ".join(queries.statement("slowest").split()),
        shown(slow, columns=[
            "op", "destination", "latency_us", "status", "request_len", "reply_len", "request_first_packet",
            "reply_first_packet",
        ]),
    ]  # fmt: skip


def test_notebook_runs(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cell by cell. The kernels of the other notebooks start no Java."""
    fresh = spark.newSession()
    monkeypatch.setattr(session, "session", lambda master: fresh)
    monkeypatch.setattr(type(fresh), "stop", lambda self: None)
    monkeypatch.chdir(ROOT / "notebooks")
    pyplot.switch_backend("agg")
    figures: list[int] = []

    def show() -> None:
        figures.extend(pyplot.get_fignums())
        pyplot.close("all")

    monkeypatch.setattr(pyplot, "show", show)
    names: dict[str, Any] = {}
    outputs = []
    for cell in nbformat.read("at_scale.ipynb", as_version=4).cells:
        if cell.cell_type != "code":
            continue
        *steps, last = ast.parse(cell.source).body
        exec(compile(ast.Module(steps, []), "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        else:
            value = exec(compile(ast.Module([last], []), "cell", "exec"), names)
        if printed := capsys.readouterr().out:
            outputs.append(" ".join(printed.split()))
        if value is not None:
            outputs.append(text_of_html(value._repr_html_()))

    assert figures
    assert outputs == at_scale()
