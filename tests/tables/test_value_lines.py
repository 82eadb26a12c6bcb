"""Rows of values as lines: tab-separated, CSV, JSON."""

import pytest

from mqpcap.tables.value_lines import LineForm, value_line

NAMES = "a", "b", "c", "d"


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("tsv", "x\\ty\t\ttrue\tk,ff\n"),
        ("csv", 'x\\ty,,true,"k,ff"\n'),
        ("json", '{"a":"x\\ty","c":true,"d_hex":["6b","ff"]}\n'),
    ],
)
def test_a_row_in_each_form(form: LineForm, line: str) -> None:
    """A tab in a text is no tab of the line; null is empty, or left out."""
    assert value_line(NAMES, ["x\ty", None, True, [b"k", b"\xff"]], form) == line


def test_text_stays_as_it_is_where_no_terminal_sees_it() -> None:
    assert value_line(NAMES[:2], ['say "hi"\n', {"k": 1}], "csv", str) == '"say ""hi""\n","{""k"":1}"\n'
