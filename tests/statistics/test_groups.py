"""Rows counted by group: what a counter says that it reads is enough for it."""

from pathlib import Path

import pyarrow as pa
import pytest
from examples import one_in
from table_rows import rows_of

import mqpcap
from mqpcap.capture import captures
from mqpcap.pipeline import OPTIONAL_TABLES, CapturePipeline, Options
from mqpcap.statistics import groups
from mqpcap.statistics.counters import Counters
from mqpcap.statistics.groups import GroupRow, Groups
from mqpcap.statistics.keys import OF_MESSAGES
from mqpcap.statistics.timeline import Total
from mqpcap.tables.messages import RowPolicy
from mqpcap.tables.output import Carried

PCAPS = Path(__file__).parents[2] / "pcaps"
SAMPLES = (
    "blipmq/qos1.pcap", "flymq/core.pcap", "flymq/groups.pcap", "fq/session.pcap",
    "kokaq/go1_session.pcap", "msgq/split_session.pcap",
)  # fmt: skip


def policy(reads: frozenset[Carried] | None) -> RowPolicy:
    """A policy with these columns only, None for all."""
    return RowPolicy() if reads is None else RowPolicy(columns=frozenset(x for _, x in reads), fields=reads)


def counted(name: str, by: str, errors: bool, reads: frozenset[Carried] | None) -> list[GroupRow]:
    counter = Groups((by,), pairs=errors)
    tables = OPTIONAL_TABLES if errors else frozenset()
    counters = Counters(counter, without=() if errors else ("exchanges",))
    (capture,) = captures([str(PCAPS / name)]).captures
    options = Options(policy=policy(reads), optional_tables=tables, carried=counters.carried)
    CapturePipeline(capture, options, counters.take, hooks=counters.hooks()).run()
    counters.end_of_capture()
    return counter.rows()


@pytest.mark.parametrize("errors", [True, False], ids=["errors", "count"])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_columns_that_are_read_are_enough(name: str, errors: bool) -> None:
    """Columns of messages, of exchanges, of both ends, and all fields of the protocol: one in three for each sample."""
    fields = (x.name for x in mqpcap.fields(name.partition("/")[0]) if x.in_filters and x.name.count(".") == 1)
    keys = (*OF_MESSAGES, "state", "error_code", "tcp.stream", "client_port", "server_ip", "dialect", *fields)
    for by in one_in(3, keys, SAMPLES.index(name) + errors):
        whole = counted(name, by, errors, None)

        assert whole and counted(name, by, errors, Groups((by,), pairs=errors).reads) == whole, by


@pytest.mark.parametrize("name", SAMPLES)
def test_the_columns_of_several_counters_are_enough(name: str) -> None:
    def made() -> tuple[Total, Groups, Groups]:
        return Total(), Groups(("protocol", "op")), Groups(("protocol", "client", "name"))

    def told(reads: frozenset[Carried] | None) -> list[object]:
        total, *groups = made()
        counters = Counters(total, *groups)
        (capture,) = captures([str(PCAPS / name)]).captures
        options = Options(policy=policy(reads), carried=counters.carried)
        CapturePipeline(capture, options, counters.take).run()
        return [total.messages, total.first_ns, total.last_ns, *(x.rows() for x in groups)]

    read = Counters(*made()).reads
    whole = told(None)

    assert read is not None and whole[0]
    assert told(read) == whole


def test_texts_of_keys_are_bounded_as_their_number_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics of 600, 300 and 300 characters where 1,000 may be kept: the third one is not distinguished."""
    monkeypatch.setattr(groups, "MAX_KEY_CHARS", 1000)
    sums = groups.Sums(("topic",), ("messages",))

    numbers = [sums.number((letter * length,)) for letter, length in (("a", 600), ("b", 300), ("c", 300), ("a", 600))]

    assert numbers == [0, 1, 2, 0]
    assert list(sums.sums()) == [("a" * 600,), ("b" * 300,), groups.OTHER]


def test_server_times_have_percentiles_of_their_own() -> None:
    rows = rows_of("exchanges", *({"latency_ns": 43_000_000, "request_ts_ns": 0} for _ in range(3)))
    if "server_ns" in rows.column_names:
        rows = rows.drop_columns(["server_ns"])
    counter = Groups(("op",))
    counter.take_exchanges(rows.append_column("server_ns", pa.array([100, 300, None], pa.int64())))

    (row,) = counter.rows()
    assert (row.latency.count, row.latency.percentiles[50]) == (3, 43_000_000)
    assert (row.server_time.count, row.server_time.percentiles[50], row.server_time.percentiles[99]) == (2, 100, 300)
