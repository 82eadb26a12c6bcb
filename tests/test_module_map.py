"""The module map of ``src/mqpcap/README.md`` is that of today's modules."""

from module_map import PACKAGE, REGENERATE, first_line, module_map, shown


def test_the_map_is_up_to_date() -> None:
    assert shown() == module_map(), f"the module map is stale; renew it: {REGENERATE}"


def test_every_module_says_what_it_is_in_a_line() -> None:
    lines = {path.relative_to(PACKAGE): first_line(path) for path in PACKAGE.rglob("*.py")}

    assert [str(path) for path, line in lines.items() if not line.endswith((".", "?"))] == []
