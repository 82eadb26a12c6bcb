"""Likely pairs by the lengths of holes: conversations of a known truth that lose messages of both sides."""

import random
from collections import Counter

import pytest
from batches import End, correlated, placed
from examples import multiplied

from mqpcap.correlate import span_alignment
from mqpcap.schema.requests import CorrelationRule, RequestRule, ServerHabits

OPS = ("Get", "Put", "List", "Seek")
RULE = CorrelationRule(
    asks={op: RequestRule("always", frozenset({f"{op} reply"})) for op in OPS},
    habits=ServerHabits(shortest_bytes=8, all_count=True),
)
SIDES = "c2s", "s2c"


class Conversation:
    """A client that keeps a window of requests open; sizes, operations and losses as given.

    ``lost``: share of messages that are not captured. ``burst``: how many messages are lost together.
    """

    def __init__(self, dice: random.Random, count: int, ops: int, sizes: tuple[int, ...], lost: float, burst: int):
        self.rows: list[dict[str, object]] = []
        self.truth: dict[int, int] = {}
        self.sent = dict.fromkeys(SIDES, 0)
        self.now = self.left = 0
        waiting: list[tuple[int, str]] = []
        window, asked = dice.randrange(1, 9), 0
        self.missing = dict.fromkeys(SIDES, False)
        while asked < count or waiting:
            if asked < count and len(waiting) < window and (not waiting or dice.random() < 0.6):
                op = OPS[dice.randrange(ops)]
                waiting.append((self.add("c2s", op, dice.choice(sizes), dice, lost, burst), op))
                asked += 1
            else:
                request, op = waiting.pop(0)
                self.truth[self.add("s2c", f"{op} reply", dice.choice(sizes), dice, lost, burst)] = request

    def add(self, side: str, op: str, size: int, dice: random.Random, lost: float, burst: int) -> int:
        self.now += 10_000
        offset, ack = self.sent[side], self.sent[SIDES[side == "c2s"]]
        self.sent[side] += size
        if self.left == 0 and dice.random() < lost / burst:
            self.left = burst
        if self.left:
            self.left, self.missing[side] = self.left - 1, True
        else:
            row = {"direction": side, "op": op, "ts_ns": self.now, "stream_offset": offset, "frame_len": size}
            self.rows.append(row | {"first_ack": ack, "last_ack": ack, "broken": self.missing[side]})
            self.missing[side] = False
        return offset

    def counts(self) -> Counter[str]:
        """Pairs that are there, found and wrong ones by state."""
        here = {side: {row["stream_offset"] for row in self.rows if row["direction"] == side} for side in SIDES}
        missing = [self.sent[side] - 1 if self.missing[side] else -1 for side in SIDES]
        end = End(True, True, *missing, 0, False, self.sent["c2s"], self.sent["s2c"])
        found = Counter[str]()
        for row in correlated(RULE, [placed(self.rows)], {1: end}, {})["exchanges"]:
            asked, said = row["request_offset"], row["reply_offset"]
            if asked is not None and said is not None:
                is_right = self.truth[said] == asked
                found[row["state"] if is_right else f"wrong {row['state']}"] += 1
                found[f"how {row['how']}"] += 1
        found["there"] = sum(r in here["s2c"] and q in here["c2s"] for r, q in self.truth.items())
        return found


@pytest.mark.parametrize(("lost", "burst"), [(0.01, 1), (0.05, 1), (0.1, 1), (0.2, 20)])
def test_pairs_across_holes_of_both_sides_are_likely_and_right(lost: float, burst: int) -> None:
    """Two to four operations, sizes of any kind: 90 % of the pairs are found, no certain one is wrong, hardly a likely
    one is."""
    total = Counter[str]()
    for seed in range(multiplied(12)):
        dice = random.Random(f"{seed} {lost} {burst}")
        sizes = dice.choice(((20,), (20, 36), (20, 23, 31, 44, 57)))
        total += Conversation(dice, 400, dice.choice((2, 3, 4)), sizes, lost, burst).counts()

    assert total["wrong answered"] == 0
    assert total["wrong likely"] <= 0.005 * total["likely"]
    assert total["how length"] > 0
    assert total["answered"] + total["likely"] >= 0.9 * total["there"], total


def test_one_operation_gives_no_wrong_pair() -> None:
    """Nothing but lengths says which request a reply answers: most pairs stay unknown."""
    total = Counter[str]()
    for seed in range(multiplied(6)):
        total += Conversation(random.Random(seed), 400, 1, (20,), 0.05, 1).counts()

    assert total["there"] > 2000
    assert (total["wrong answered"], total["wrong likely"]) == (0, 0)


def test_places_of_a_span_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more places the span has no pairs by length, and all others."""
    talk = Conversation(random.Random(5), 800, 2, (20, 23, 31, 44, 57), 0.2, 20)
    usual = talk.counts()

    monkeypatch.setattr(span_alignment, "MAX_PLACES", 256)

    bounded = talk.counts()
    assert usual["how length"] > 50
    assert bounded["how length"] < usual["how length"] / 2
    assert bounded["answered"] == usual["answered"]
