"""All questions on DuckDB, Polars and Spark, on sessions of 40,000 messages: ``python tests/bench/questions.py``.

Not a test: run it by hand. Wall seconds of each question on each engine; an engine that takes longer than ``--limit``
seconds for one is stopped there, and answers that differ in a row or in the order of rows are named. ``--tables`` asks
an export instead.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

import traffic  # noqa: E402

import mqpcap  # noqa: E402
from mqpcap import queries  # noqa: E402

SAMPLES = HERE.parents[1] / "pcaps"
GIVEN: dict[str, dict[str, Any]] = {"what_did": {"client": "10.0.0.5"}, "slowest": {"n": 500}}
SESSIONS = ("blipmq/qos1", "flymq/groups", "fq/session", "kokaq/go1_session", "msgq/json_session")
MESSAGE_BYTES = 45
"""Bytes of a capture for each message of the session in it, about."""
Row = tuple[Any, ...]


def duckdb() -> tuple[Any, Callable[[Any], list[Row]]]:
    """A connection, and what makes rows of its answers."""
    import duckdb as engine

    return engine.connect(), lambda answer: list(answer.fetchall())


def polars() -> tuple[Any, Callable[[Any], list[Row]]]:
    """A context, and what makes rows of its answers."""
    import polars as engine

    return engine.SQLContext(), lambda answer: list(answer.rows())


def spark() -> tuple[Any, Callable[[Any], list[Row]]]:
    """A session, and what makes rows of its answers."""
    from mqpcap.spark.session import session

    return session(), lambda answer: [tuple(row) for row in answer.collect()]


def comparable(row: Row) -> Row:
    """Numbers to nine digits: sums of floats depend on their order."""
    return tuple(
        float(f"{float(x):.9g}") if isinstance(x, float | Decimal | bool) or (isinstance(x, int) and x < 1 << 50) else x
        for x in row
    )


def answer_all(engine: str, folder: str, results: Any) -> None:
    """Puts the name, the seconds and the rows of each question into a pipe, one after the other."""
    con, rows_of = {"duckdb": duckdb, "polars": polars, "spark": spark}[engine]()
    queries.tables(con, folder)
    for question in queries.questions():
        begin = time.perf_counter()
        try:
            rows = rows_of(queries.run(question, con, **GIVEN.get(question, {})))
        except Exception as error:  # every engine has errors of its own
            rows = [("error", str(error).splitlines()[0])]
        results.send((question, time.perf_counter() - begin, [comparable(row) for row in rows]))


def answers(engine: str, folder: Path, limit_s: float) -> dict[str, tuple[float, list[Row]]]:
    """By question: its seconds and rows; an engine that takes too long for one is not asked further."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=answer_all, args=(engine, str(folder), sender))
    process.start()
    sender.close()
    found = {}
    try:
        while len(found) < len(queries.questions()) and receiver.poll(limit_s):
            question, seconds, rows = receiver.recv()
            found[question] = seconds, rows
    except EOFError:
        pass
    process.kill()
    process.join()
    return found


def export(folder: Path, count: int) -> Path:
    """Tables of sessions with about so many messages together."""
    for name in SESSIONS:
        path = folder / f"{name.replace('/', '_')}.pcap"
        traffic.sessions(path, SAMPLES / f"{name}.pcap", MESSAGE_BYTES * count)
    mqpcap.export(folder, out=folder / "tables")
    return folder / "tables"


def difference(rows: list[Row], expected: list[Row]) -> str:
    """How rows differ from those expected, as words behind a time."""
    if rows == expected:
        return ""
    if rows and rows[0][0] == "error":
        return f" {rows[0][1]}"
    same_rows = sorted(map(repr, rows)) == sorted(map(repr, expected))
    return " differs in order" if same_rows else " differs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--engines", default="duckdb,polars,spark")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a question may take")
    parser.add_argument("--tables", type=Path, help="an export that is asked")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        folder = options.tables or export(Path(base), options.messages)
        found = {engine: answers(engine, folder, options.limit) for engine in options.engines.split(",")}
    expected = next(iter(found.values()))
    for question in queries.questions():
        line = f"{question:20}"
        for engine, by_question in found.items():
            if question not in by_question:
                line += f"  {engine} none"
                continue
            seconds, rows = by_question[question]
            line += f"  {engine} {seconds:6.2f} s{difference(rows, expected[question][1])}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
