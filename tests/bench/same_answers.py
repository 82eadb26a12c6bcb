"""The answers of two versions of the package on all sample captures: each line that differs is printed.

    python tests/bench/same_answers.py OTHER_PYTHON

Without OTHER_PYTHON the answers of this version are printed: a question each line, its rows as JSON.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import mqpcap
from mqpcap.query import query
from mqpcap.reading import Outcome, checked_choices
from mqpcap.recording import open_inputs
from mqpcap.statistics.counters import Counters, count_captures
from mqpcap.statistics.reports import stats_report

PCAPS = Path(__file__).parents[2] / "pcaps"
KEYS = (
    "protocol", "op", "topic", "client", "server", "status", "name", "connection", "direction", "state", "how",
    "error_code", "error_text", "dialect", "partition_id", "group_name", "message_id", "correlation_id", "frame_len",
    "body_len", "op_code", "flaw", "resynced", "client_ip", "server_port", "connection_id", "tcp.stream", "is_reply",
    "flymq.topic", "fq.route", "msgq.to", "kokaq.namespace", "latency_ns", "request_packet", "reply_packet",
    "op,topic", "op,state", "topic,name", "status,error_code,topic", "flymq.topic,state", "fq.route,topic",
)  # fmt: skip
FILTERS = (
    "direction == c2s", "direction == s2c", "status == error", "state == answered", "is_reply and latency > 1ms",
    "not state == silent", "topic exists", "exchange.how == order or status == ok", "frame_len > 40",
)  # fmt: skip
REPORTS = (
    "producers", "consumers", "slowest", "errors", "deliveries", "delays", "delivery_list", "talkers", "connections",
)  # fmt: skip
"""The first four take a filter."""


ALONE: tuple[Mapping[str, Any], ...] = (
    {"by": "op,topic"}, {"by": "topic", "metric": "count"}, {"by": "state"}, {"by": "fq.route", "interval": "1s"},
    {"by": "op", "filter": "status == error"}, {"report": "errors"}, {"report": "consumers"}, {"report": "deliveries"},
    {"report": "consumers", "filter": "direction == c2s"}, {"report": "slowest", "filter": "latency > 1ms"},
)  # fmt: skip


def _counted(captures: list[str], words: str | None) -> dict[str, Any]:
    """The rows of all reports, counted together while the captures are read once."""
    reports = {f"by {key}": stats_report(None, key.split(","), (), None, 10) for key in KEYS}
    reports |= {f"by {key}, 1s": stats_report(None, key.split(","), (), 10**9, 10) for key in KEYS[-7:]}
    reports |= {name: stats_report(name, None, (), None, 10) for name in (REPORTS if words is None else REPORTS[:4])}
    counters = sum((report.counters for report in reports.values()), Counters())
    opened, _ = open_inputs(captures)
    wanted = None if words is None else query(words)
    count_captures(opened, Outcome(checked_choices()), counters, lambda _: None, wanted)
    return {name: report.rows() for name, report in reports.items()}


def _exported(captures: list[str], words: str) -> dict[str, list[str]]:
    """The rows of the tables of selected messages."""
    with tempfile.TemporaryDirectory() as folder:
        mqpcap.export(captures, f"{folder}/out", filter=words)
        tables: dict[str, list[str]] = {}
        for file in sorted(Path(folder, "out").rglob("*.parquet")):
            rows = pq.read_table(file).to_pylist()
            tables.setdefault(file.relative_to(folder).parts[1], []).extend(map(repr, rows))
        return {name: sorted(rows) for name, rows in tables.items()}


def answers() -> Iterator[tuple[str, Any]]:
    """Each question with its answer."""
    for folder in sorted({file.parent for file in PCAPS.rglob("*.pcap*")}):
        captures = sorted(str(file) for file in folder.glob("*.pcap*"))
        for words in (None, *FILTERS):
            for name, rows in _counted(captures, words).items():
                yield f"{folder.name} {name} where {words}", rows
        for options in ALONE:
            yield f"{folder.name} {options}", mqpcap.stats(captures, **options).to_pylist()
        for words in FILTERS[2:6]:
            rows = [(row.message, row.fields, row.exchange) for row in mqpcap.show(captures, words)]
            yield f"{folder.name} shown where {words}", rows
            yield f"{folder.name} exported where {words}", _exported(captures, words)
        for packet in range(1, 60, 7):
            with contextlib.suppress(LookupError):
                traces = mqpcap.trace(captures[0], at=packet)
                yield f"{folder.name} traced from {packet}", [list(trace.as_json()) for trace in traces]


def main() -> int:
    """Print the answers, or the differences."""
    if len(sys.argv) == 1:
        for question, answer in answers():
            print(question, json.dumps(answer, default=str), sep="\t", flush=True)
        return 0
    pythons = sys.executable, sys.argv[1]
    ran = [subprocess.Popen([python, __file__], stdout=subprocess.PIPE, text=True) for python in pythons]
    count = differing = 0
    for lines in zip_longest(*(process.stdout for process in ran if process.stdout is not None)):
        count += 1
        if lines[0] != lines[1]:
            differing += 1
            print(*("" if line is None else line[:400].rstrip() for line in lines), sep="\n  ")
    print(f"{differing} of {count} answers differ")
    return differing > 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
