"""The parts of a report: text that a browser does not obey, tables that are bounded, verdicts by capture."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.capture import captures
from mqpcap.reading import Choices, Outcome
from mqpcap.statistics.report_columns import Cells, Column
from mqpcap.statistics.report_page import MARK, MOST_COLUMNS, MOST_ROWS, TEXT_LENGTH, Page, escaped, figure, table
from mqpcap.statistics.reports import DRAWN_LATENCIES, drawn_latencies
from mqpcap.wording import shown

PCAPS = Path(__file__).parents[2] / "pcaps"


class Read(HTMLParser):
    """What a browser takes a piece of a page for: its elements, their attributes' values, and its text."""

    def __init__(self, piece: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.values: list[str | None] = []
        self.text = ""
        self.feed(piece)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [value for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(st.sampled_from("<>&\"'/=#; ab\x1b\u202e"), max_size=TEXT_LENGTH))
def test_text_is_shown_and_nothing_else(text: str) -> None:
    inside, as_value = Read(f"<p>{escaped(text)}</p>"), Read(f'<p title="{escaped(text)}">')

    assert (inside.tags, inside.text) == (["p"], shown(text))
    assert (as_value.tags, as_value.text, as_value.values) == (["p"], "", [shown(text)])


def test_a_long_text_is_cut() -> None:
    assert escaped("x" * TEXT_LENGTH) == "x" * TEXT_LENGTH
    assert escaped("x" * (TEXT_LENGTH + 1)) == "x" * (TEXT_LENGTH - 1) + "…"


def test_columns_without_a_value_are_left_out_and_cells_without_one_are_marked() -> None:
    columns = [Column("topic", "topic"), Column("p50", "p50 ms", "ms"), Column("code", "code")]

    page = table(columns, [{"topic": "a", "p50": 1}, {"topic": "b"}])

    assert "code" not in page
    assert page.count('<td class="number none"') == 1


def test_wide_tables_are_stacked_in_windows_that_they_do_not_fit() -> None:
    columns = [Column(f"c{k}", f"c{k}") for k in range(MOST_COLUMNS + 1)]
    row = {column.name: "x" for column in columns}

    assert '<table class="many">' in table(columns, [row])
    assert "<table>" in table(columns[1:], [row])


def test_a_table_has_the_first_rows_and_counts_the_others() -> None:
    columns = [Column("topic", "topic"), Column("count", "count", "number"), Column("exact", "", "flag")]
    rows = [{"topic": f"<t{k}>", "count": k * 1000, "exact": True} for k in range(MOST_ROWS + 2)]

    whole, cut = Read(table(columns, rows[:MOST_ROWS])), Read(table(columns, rows))

    assert whole.tags.count("tr") == cut.tags.count("tr") == 1 + MOST_ROWS
    assert whole.tags.count("td") == 2 * MOST_ROWS  # a flag is for machines
    assert "more" not in whole.text and cut.text.endswith("and 2 more")
    assert "<t3>" in cut.text and "3,000" in cut.text
    assert table(columns, []) == ""


def test_an_empty_value_is_not_a_missing_one() -> None:
    assert Read(table([Column("topic", "t")], [{"topic": ""}, {"topic": None}])).text.split() == ["t", '""', "-"]


def test_a_caption_is_text() -> None:
    assert Read(figure("", "<b>")).text.strip() == "<b>"


def verdicts(*names: str) -> tuple[str, list[str]]:
    """A report of captures, and the texts of its verdicts."""
    page = Page("<all>", Outcome(Choices()))
    for capture in captures([str(PCAPS / name) for name in names]).captures:
        page.take(capture, lambda count: None)
    text = "".join(page.parts())
    return text, re.findall(r'<p class="verdict[^>]*>(.*?)</p>', text)


def test_a_verdict_names_its_capture_where_there_are_several() -> None:
    pytest.importorskip("matplotlib")
    one, (verdict,) = verdicts("flymq/core.pcap")
    _, both = verdicts("flymq/core.pcap", "faults/blipmq_lost.pcap")

    assert one.startswith(MARK) and one.endswith("</html>\n")
    assert "<h1>&lt;all&gt;</h1>" in one
    assert verdict.startswith("whole")
    assert [line.partition(": ")[2].split(":")[0] for line in both] == ["whole", "with care"]


def test_sections_without_rows_are_left_out() -> None:
    text, none = verdicts()

    assert none == []
    assert "<h2>" not in text and "None." not in text


def test_latencies_are_divided_by_topic() -> None:
    """qos1: SUBSCRIBE names a topic and is answered, PING names none."""
    pytest.importorskip("matplotlib")
    text, _ = verdicts("blipmq/qos1.pcap")

    by_topic = text.split("<h2>Latencies by topic</h2>")[1].split("<h2>")[0]
    assert ">SUBSCRIBE</td>" in by_topic and ">q1</td>" in by_topic and "PING" not in by_topic


def test_an_operation_without_a_name_is_called_unknown_in_the_drawing() -> None:
    row: Cells = {"protocol": "blipmq", "op": None, "answered": 1200, **dict.fromkeys(DRAWN_LATENCIES, 2_500_000)}
    other: Cells = {**row, "protocol": "fq", "op": "bind\x1b_request"}

    assert drawn_latencies([row]) == [("unknown operation (1,200)", [2.5] * 4)]
    names = [name for name, _ in drawn_latencies([row, other], name_length=15)]
    assert names == ["blipmq unknown… (1,200)", "fq bind\\x1b_re… (1,200)"]
