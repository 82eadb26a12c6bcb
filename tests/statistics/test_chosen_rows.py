"""--having, --sort and --reverse."""

import pytest
from running import objects, run

from mqpcap.errors import QueryError
from mqpcap.statistics.chosen_rows import checked, chosen
from mqpcap.statistics.report_columns import Column

COLUMNS = (
    Column("op", "operation"),
    Column("messages", "messages", "number"),
    Column("latency_p95_ns", "p95 ms", "ms"),
)
ROWS = [
    {"op": "A", "messages": 3, "latency_p95_ns": 60_000_000}, {"op": "B", "messages": 9, "latency_p95_ns": None},
    {"op": "C", "messages": 5, "latency_p95_ns": 70_000_000},
]  # fmt: skip


def _ops(having: str | None = None, sort: str | None = None, reverse: bool = False) -> str:
    return "".join(str(row["op"]) for row in chosen(COLUMNS, ROWS, having, sort, reverse))


def test_sort_puts_the_largest_first_and_missing_values_last() -> None:
    assert _ops(sort="p95") == "CAB"
    assert _ops(sort="p95", reverse=True) == "ACB"
    assert _ops(sort="messages") == "BCA"
    assert _ops(sort="op") == "ABC"
    assert _ops(reverse=True) == "CBA"


def test_having_tests_columns_with_units() -> None:
    assert _ops("p95 > 65ms") == "C"
    assert _ops("messages > 4 and not op == B") == "C"
    assert _ops("op in (A, B) or messages == 5") == "ABC"
    assert _ops("latency_p95_ns exists") == "AC"


def test_unknown_columns_and_relations_are_refused_before_reading() -> None:
    for having, sort in (("nope > 1", None), (None, "nope"), ("op matches A", None), ("p95 > many", None)):
        with pytest.raises(QueryError):
            checked(COLUMNS, having, sort)


def test_the_command_has_them() -> None:
    words = ("--having", "errors > 0 or p95 > 1ms", "--sort", "p95", "--reverse", "--by", "op,partition_id")
    rows = objects(run("stats", "-q", "--json", *words, "pcaps/flymq/core.pcap"))
    times = [int(str(row["latency_p95_ns"])) for row in rows if "latency_p95_ns" in row]

    assert times == sorted(times) and times
    assert run("stats", "--by", "op,topic,client,server,status", "pcaps/flymq/core.pcap").exit_code == 2
    assert run("stats", "--having", "nope > 1", "pcaps/flymq/core.pcap").exit_code == 2
