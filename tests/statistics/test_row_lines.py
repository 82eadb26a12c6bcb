"""Rows of answers as aligned text, CSV or JSON lines."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import lines_on_terminal

from mqpcap.cli.console import put_rows
from mqpcap.statistics.bars import sparkline
from mqpcap.statistics.report_columns import Cells, Column, cell, shown_columns, with_files
from mqpcap.statistics.row_lines import (
    LEAST_CELL,
    cell_width,
    fit_width,
    text_lines,
)


def test_one_long_name_does_not_pull_a_table_apart() -> None:
    said = lines_on_terminal(160, "stats", "-q", "--producers", "pcaps/fq/session.pcap")

    assert max(map(len, said)) < 126  # the client with its port


OP, COUNT = Column("op", "operation"), Column("count", "count", "number")
CLOCK = Column("at_ns", "at", "clock")
ROWS: list[Cells] = [
    {"op": "PUBLISH", "count": 1200, "at_ns": 1_700_000_000_000_001_000},
    {"op": "a b", "count": None, "at_ns": 0},
]


def test_columns_are_aligned_texts_left_and_numbers_right() -> None:
    assert list(text_lines([OP, COUNT], ROWS)) == [
        "operation  count",
        "PUBLISH    1,200",
        '"a b"          -',
    ]
    assert list(text_lines([OP, COUNT], [])) == []


def test_narrow_lines_drop_dates_then_equal_values_then_spare_columns() -> None:
    """A line takes 27 + 2 + 4 + 2 + 7 columns, without its date 11 less, without server 6, without the count 9."""
    columns = [CLOCK, Column("server", "at"), Column("x", "spare", "number", is_spare=True)]
    rows = [{"at_ns": 1_700_000_000_000_001_000, "server": "h:80", "x": 123456}] * 2

    def line(room: int) -> tuple[str, str]:
        first, *_, last = text_lines(columns, rows, utc=True, room=room)
        return first, last

    day, time = "2023-11-14 ", "22:13:20.000001Z"
    assert line(42)[1] == f"{day}{time}  h:80  123,456"
    assert line(41)[1] == line(31)[1] == f"{time}  h:80  123,456"
    assert line(30) == ("all: at h:80", f"{time}  123,456")
    assert [*text_lines(columns, rows, utc=True, room=24)][:2] == ["all: at h:80, spare", "  123,456"]
    different = [{**row, "x": k} for k, row in enumerate(rows, 123456)]
    *_, row, note, names = text_lines(columns, different, utc=True, room=24)
    assert (row, note, names) == (time, "left out at this width:", "  spare")


def test_long_titles_take_several_lines_before_columns_are_left_out() -> None:
    columns = [Column("a", "a", "plain"), Column("n", "server p50 ms", "number", is_spare=True)]
    rows = [{"a": "x", "n": 1}, {"a": "y", "n": 2}]

    assert list(text_lines(columns, rows, room=16)) == ["a  server p50 ms", "x              1", "y              2"]
    assert list(text_lines(columns, rows, room=15)) == [
        "   server", "      p50", "a      ms", "x       1", "y       2",
    ]  # fmt: skip


def test_columns_with_one_value_are_written_once_and_keys_are_left_out_first() -> None:
    columns = [
        Column("a", "a"), Column("k", "id", "key", is_spare=True), Column("n", "count", "number", is_spare=True),
        Column("z", "errors", "number", is_spare=True),
    ]  # fmt: skip
    rows = [{"a": "x", "k": 1234567, "n": 1, "z": 0}, {"a": "y", "k": 1234568, "n": 2, "z": 0}]

    assert list(text_lines(columns, rows, room=10)) == [
        "all:", "  errors 0", "a  count", "x      1", "y      2", "left out", "  at this", "  width:", "  id",
    ]  # fmt: skip


def test_keys_are_left_out_before_titles_are_broken() -> None:
    columns = [Column("a", "two words", "plain"), Column("k", "id", "key", is_spare=True)]
    rows = [{"a": "x", "k": 1234567}, {"a": "y", "k": 1234568}]

    assert list(text_lines(columns, rows, room=12))[:3] == ["two words", "x", "y"]


def test_values_without_room_are_on_lines_below_their_row() -> None:
    columns = [Column("a", "a"), Column("n", "count", "number", is_spare=True), Column("t", "text", is_spare=True)]
    rows = [{"a": "xxxxxxxxxxx", "n": 1, "t": "b"}, {"a": "y", "n": 2000}]

    assert list(text_lines(columns, rows, room=14, is_folded=True)) == [
        "a", "xxxxxxxxxxx", "    count 1", "    text b", "y", "    count 2,000",
    ]  # fmt: skip


def test_the_end_of_a_path_stays() -> None:
    columns = [Column("a", "a", "plain"), Column("f", "file", "file")]
    rows = [{"a": "x" * 10, "f": "pcaps/blipmq/qos1.pcap"}]

    assert list(text_lines(columns, rows, room=22))[1] == f"{'x' * 10}  …qos1.pcap"


@given(st.lists(st.tuples(st.sampled_from(["text", "number"]), st.integers(1, 60)), min_size=1), st.integers(10, 100))
def test_only_texts_are_made_narrower_and_never_below_the_least(some: list[tuple[str, int]], room: int) -> None:
    columns = [Column("n", "t", kind) for kind, _ in some]  # type: ignore[arg-type]
    widths = [width for _, width in some]

    made = fit_width(columns, widths, room)

    texts = [i for i, column in enumerate(columns) if column.kind == "text"]
    assert all(made[i] == widths[i] for i in range(len(some)) if i not in texts)
    assert all(min(widths[i], LEAST_CELL) <= made[i] <= widths[i] for i in texts)
    assert sum(made) + 2 * (len(made) - 1) <= room or all(made[i] <= LEAST_CELL for i in texts)


def test_a_cell_says_what_is_missing_empty_or_no_word() -> None:
    texts = (None, "", "-", "a b", "x" * 121, "\x1b")

    assert [cell(OP, text, utc=True) for text in texts] == ["-", '""', '"-"', '"a b"', "x" * 119 + "…", "\\x1b"]
    assert cell(Column("p", "p", "packet"), 7, utc=True) == "#7"
    assert cell(COUNT, 1234567, utc=True) == "1,234,567"


def test_a_percentile_of_a_histogram_has_a_sign_and_the_largest_is_exact() -> None:
    columns = [Column("latency_p50_ns", "p50", "ms"), Column("latency_max_ns", "max", "ms")]
    row = {"latency_p50_ns": 2_000_000, "latency_max_ns": 3_000_000}

    assert list(text_lines(columns, [{**row, "latency_exact": False}]))[1] == "~2.000  3.000"
    assert list(text_lines(columns, [row]))[1] == "2.000  3.000"


def test_flags_are_for_machines_and_files_are_named_if_several_were_read() -> None:
    file, flag = Column("file", "file", "file"), Column("exact", "", "flag")
    rows = [{"file": "a", "exact": True}]

    assert shown_columns(with_files([file, flag, OP], 1), rows) == [OP]
    assert shown_columns(with_files([file, flag, OP], 2), rows) == [file, OP]
    assert shown_columns(with_files([file, flag, OP], 2), [{"file": None, "exact": True}]) == [OP]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_machines_get_whole_values_and_nothing_for_none(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    long = 'x,"' * 100

    put_rows([OP, COUNT], [{"op": long, "count": None}, {"op": "a", "count": 2}], form)  # type: ignore[arg-type]

    said = capsys.readouterr().out
    if form == "json":
        assert [json.loads(line) for line in said.splitlines()] == [{"op": long}, {"op": "a", "count": 2}]
    else:
        assert list(csv.reader(io.StringIO(said))) == [["op", "count"], [long, ""], ["a", "2"]]


def test_wide_characters_take_two_columns() -> None:
    first, second = Column("a", "a"), Column("b", "b")

    assert (cell_width("日本"), cell_width("ab")) == (4, 2)
    assert list(text_lines([first, second], [{"a": "日本", "b": "x"}]))[:2] == ["a     b", "日本  x"]


@given(st.lists(st.integers(-5, 10**6)))
def test_a_bar_is_as_high_as_the_largest_allows(values: list[int]) -> None:
    bars = sparkline(values, is_ascii=True)

    heights = [" .:-=+*#@".index(bar) for bar in bars]
    assert len(heights) == len(values)
    assert all((height == 0) == (value <= 0) for height, value in zip(heights, values, strict=True))
    assert [height for _, height in sorted(zip(values, heights, strict=True))] == sorted(heights)
    assert max(values, default=0) <= 0 or max(heights) == 8
