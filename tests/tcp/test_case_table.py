"""The table of cases in README.md names its tests."""

import re

from case_table import PAGE, case_rows


def test_each_other_row_names_a_test() -> None:
    for *_, cell in case_rows("What is said of the rest"):
        path, name = cell.strip("`").split("::")

        assert re.search(rf"^def {name}\(", (PAGE.parent / path).read_text(), re.MULTILINE), cell
