"""Counters are given the rows that they ask for, and no work is done for tables that none asks for."""

from pathlib import Path

import pyarrow as pa
from table_rows import rows_of
from torture import Segment, pcap, toy_layer, toy_message

from mqpcap.capture import captures
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.statistics.counters import Counters
from mqpcap.tables.output import of_messages
from mqpcap.tcp.headers import Segments


class Seen:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def end_of_capture(self) -> None:
        self.seen.append("end")


class OfMessages(Seen):
    reads = of_messages("op")

    def take_messages(self, rows: pa.Table) -> None:
        self.seen.append(f"{rows.num_rows} messages")


class OfBoth(OfMessages):
    reads = of_messages("ts_ns")

    def take_exchanges(self, rows: pa.Table) -> None:
        self.seen.append(f"{rows.num_rows} exchanges")


class OfAllColumns(Seen):
    def take_messages(self, rows: pa.Table) -> None:
        """Says nothing of the columns that it reads."""


def give(counters: Counters) -> None:
    for table, n in (("messages", 3), ("exchanges", 2), ("problems", 1)):
        counters.count(table, rows_of(table, *[{}] * n))
    counters.end_of_capture()


def test_each_is_given_the_tables_that_it_takes() -> None:
    one, both = OfMessages(), OfBoth()

    give(Counters(one, both))

    assert one.seen == ["3 messages", "end"]
    assert both.seen == ["3 messages", "2 exchanges", "end"]


def test_tables_may_be_left_out() -> None:
    both = OfBoth()
    counters = Counters(both, without=("exchanges",))

    give(counters)

    assert both.seen == ["3 messages", "end"]
    assert counters.optional_tables == frozenset()
    assert Counters(both).optional_tables == {"exchanges"}


def test_columns_are_those_of_all_or_not_known() -> None:
    assert Counters(OfMessages(), OfBoth()).reads == of_messages("op", "ts_ns")
    assert Counters(OfMessages(), OfAllColumns()).reads is None
    assert Counters(OfMessages(), object()).reads == of_messages("op")


def test_a_sum_of_counters_counts_in_both() -> None:
    one, both = OfMessages(), OfBoth()
    sum_ = Counters(one) + Counters(both)

    give(sum_)

    assert (one.seen, both.seen) == (["3 messages", "end"], ["3 messages", "2 exchanges", "end"])
    assert sum_.reads == of_messages("op", "ts_ns")
    assert sum_.optional_tables == {"exchanges"}
    assert (Counters(one) + Counters(OfAllColumns())).reads is None


def test_segments_are_counted_as_they_are_captured(tmp_path: Path) -> None:
    class OfSegments:
        lengths: list[int]

        def take_segments(self, segments: Segments) -> None:
            self.lengths = segments.length.tolist()

    sent = [toy_message(i) for i in range(3)]
    at = [sum(map(len, sent[:i])) for i in range(3)]
    path = tmp_path / "toy.pcap"
    path.write_bytes(pcap([Segment(body, 100 + seq) for body, seq in zip(sent, at, strict=True)], 5000))
    counter = OfSegments()
    with toy_layer():
        (capture,) = captures([str(path)]).captures
        CapturePipeline(capture, Options(), lambda _: None, hooks=Counters(counter).hooks()).run()

    assert counter.lengths == [len(body) for body in sent]


def test_packets_are_watched_only_where_a_counter_takes_segments() -> None:
    """A callback for packets keeps the small files of a recording apart, which costs ten times the CPU."""
    assert Counters().hooks().packets is None
