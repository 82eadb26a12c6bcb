"""The module map of ``src/mqpcap/README.md`` is that of today's modules."""

from pathlib import Path

from module_map import PACKAGE, REGENERATE, first_line, module_map, shown

TESTS = Path(__file__).parent


def test_the_map_is_up_to_date() -> None:
    assert shown() == module_map(), f"the module map is stale; renew it: {REGENERATE}"


def test_every_module_says_what_it_is_in_a_line() -> None:
    lines = {path.relative_to(PACKAGE): first_line(path) for path in PACKAGE.rglob("*.py")}

    assert [str(path) for path, line in lines.items() if not line.endswith((".", "?"))] == []


NO_BEHAVIOUR = {"statistics/report_columns.py"}
"""Modules of names and constants alone."""


def test_every_module_has_a_test_of_its_name() -> None:
    modules = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if not path.name.startswith("__")}
    missing = {path.as_posix() for path in modules if not (TESTS / path.parent / f"test_{path.name}").exists()}

    assert missing == NO_BEHAVIOUR
