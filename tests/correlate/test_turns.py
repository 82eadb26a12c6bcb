"""Connections in step are paired a window at once, to the same pairs as one by one."""

import random

import numpy as np
import pyarrow as pa
import pytest
from batches import End, Row, correlated, placed

from mqpcap.correlate import turns
from mqpcap.correlate.rules import lanes
from mqpcap.protocols import protocols
from mqpcap.schema.requests import RequestRule, Rule

RULE = Rule(
    asks={"Get": RequestRule("always", frozenset({"Got"})), "Put": RequestRule("ignored")},
    otherwise=RequestRule("always"),
    errors=frozenset({"Error"}),
    tie=("number",),
    one_way=("way", 3),
)
ENDS = {connection: End() for connection in range(1, 7)}
TYPES = dict.fromkeys(RULE.needed, pa.int64())


def conversation(seed: int) -> list[Row]:
    """Requests of six clients, each answered in order; now and then one asks one way, or loses bytes."""
    dice, rows = random.Random(seed), []
    for connection in ENDS:
        at, waiting = dice.randrange(1000), []
        for number in range(dice.randrange(1, 12)):
            ask = {"op": dice.choice(["Get", "Get", "Get", "Put", "Odd"]), "f.way": dice.choice([1] * 20 + [3])}
            ask |= {"direction": "c2s", "connection": connection, "f.number": number, "ts_ns": at}
            ask["broken"] = dice.random() < 0.02
            rows.append(ask)
            at += dice.randrange(1, 50)
            if ask["op"] != "Put" and ask["f.way"] != 3:
                waiting.append(number)
            while waiting and dice.random() < 0.6:
                said = {"direction": "s2c", "connection": connection, "f.number": waiting.pop(0), "ts_ns": at}
                rows.append(said | {"op": dice.choice(["Got", "Got", "Error"])})
                at += dice.randrange(1, 50)
    return placed(rows)


def pairs(rows: list[Row], windows: int) -> list[str]:
    in_time = sorted(rows, key=lambda row: row["ts_ns"])
    size = -(-len(in_time) // windows)
    parts = [in_time[at : at + size] for at in range(0, len(in_time), size)]
    found = correlated(RULE, parts, ENDS, TYPES)["exchanges"]
    names = ("connection_id", "op", "request_offset", "reply_offset", "state", "latency_ns", "status")
    return sorted(repr([row[name] for name in names]) for row in found)


@pytest.mark.parametrize("seed", range(40))
def test_the_pairs_are_those_that_the_dialogues_find(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = conversation(seed)
    at_once = [pairs(rows, windows) for windows in (1, 4)]

    monkeypatch.setattr(turns, "in_step", lambda lane: None)

    assert at_once == [pairs(rows, 1)] * 2


def test_a_lane_whose_replies_change_its_state_is_not_paired_at_once() -> None:

    rules = {name: protocol.rule for name, protocol in protocols().items() if protocol.rule is not None}
    plain = {name for name, rule in rules.items() if turns.in_step(lanes(rule)[0]) is not None}

    assert plain == {"fq", "kokaq", "flymq"}


def test_runs_of_requests_keep_no_window_in_memory() -> None:
    columns = [np.arange(100)] * 7
    flags = [np.zeros(100, np.bool_)] * 4
    made = turns.Turns(None, *columns, *flags, np.ones(100, np.int64), [np.arange(100)], np.array([0]))  # type: ignore[arg-type]  # no lane is asked

    assert all(x.base is None for x in made._requests(slice(10, 20), 0)[:7])
