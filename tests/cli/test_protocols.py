"""``mqpcap protocols``: what is listed."""

import json

from running import run


def test_protocols_are_listed() -> None:
    said = json.loads(run("protocols", "--json").stdout)

    assert {p["name"]: p["ports"] for p in said}["flymq"] == [9092]
    assert "5555" in run("protocols").stdout
    assert {"PUBLISH", "NACK"} <= set(next(p for p in said if p["name"] == "blipmq")["operations"])
