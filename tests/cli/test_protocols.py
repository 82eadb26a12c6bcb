"""``mqpcap protocols``: what is listed."""

import json

import pytest
from running import run

import mqpcap
from mqpcap.protocols import operations
from mqpcap.protocols import protocols as known


def test_protocols_are_listed() -> None:
    said = json.loads(run("protocols", "--json").stdout)

    assert mqpcap.protocols() == said  # type: ignore[operator]  # a package that can be called
    assert {p["name"]: p["ports"] for p in said}["flymq"] == [9092]
    assert "5555" in run("protocols").stdout
    assert {"PUBLISH", "NACK"} <= set(next(p for p in said if p["name"] == "blipmq")["operations"])


@pytest.mark.parametrize("name", sorted(known()))
def test_operations_are_in_order_of_their_numbers_each_once(name: str) -> None:
    protocol = known()[name]
    numbers: dict[str, list[int]] = {}
    for layout in protocol.layouts:
        for op in layout.bodies:
            if op in layout.names:
                numbers.setdefault(layout.names[op], []).append(op)

    said = operations(protocol)

    assert sorted(said) == sorted(numbers)
    assert [min(numbers[word]) for word in said] == sorted(min(ops) for ops in numbers.values())
