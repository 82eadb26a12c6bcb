"""Conversations of a known truth that begin late or lose messages of both sides, as the room ``correlate`` takes them.

A client keeps a window of requests open, and the server answers them in order.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from batches import End, Row, correlated, placed

from mqpcap.schema.requests import CorrelationRule, RequestRule, ServerHabits

OPS = ("Get", "Put", "List", "Seek")
RULE = CorrelationRule(
    asks={op: RequestRule("always", frozenset({f"{op} reply"})) for op in OPS},
    repeats={frozenset({"Put"}): {"value": "value_copy"}},
    habits=ServerHabits(shortest_bytes=8, all_count=True),
)
TYPES = {"f.value": pa.int64(), "f.value_copy": pa.int64()}
SIDES = "c2s", "s2c"
FEW, MANY = (20, 36), (20, 23, 31, 44, 57)


@dataclass(frozen=True)
class Exchange:
    """A request and its reply: the operation, both sizes, and a value that the reply of a Put repeats."""

    op: str
    asked: int
    said: int
    value: int | None = None


Exchanges = Callable[[random.Random], Iterator[Exchange]]


def mixed(ops: int, sizes: tuple[int, ...]) -> Exchanges:
    """Operations and sizes at random."""

    def exchanges(dice: random.Random) -> Iterator[Exchange]:
        while True:
            yield Exchange(OPS[dice.randrange(ops)], dice.choice(sizes), dice.choice(sizes))

    return exchanges


def periodic(dice: random.Random) -> Iterator[Exchange]:
    """The same two to seven exchanges again and again."""
    period = [Exchange(dice.choice(OPS[:3]), dice.choice(MANY), dice.choice(MANY)) for _ in range(dice.randrange(2, 8))]
    while True:
        yield from period


def phases(dice: random.Random) -> Iterator[Exchange]:
    """Many of one operation, then many of another."""
    while True:
        op, asked = dice.choice(OPS), dice.choice(MANY)
        for _ in range(dice.randrange(20, 100)):
            yield Exchange(op, asked, dice.choice(MANY))


def polling(dice: random.Random) -> Iterator[Exchange]:
    """Requests of one operation and size, replies of any size."""
    while True:
        yield Exchange("Get", 32, dice.choice(MANY))


def valued(dice: random.Random) -> Iterator[Exchange]:
    """One operation, whose replies repeat a value of their requests."""
    while True:
        yield Exchange("Put", dice.choice(MANY), 40, dice.randrange(12))


SHAPES: Mapping[str, Exchanges] = {
    "mixed": mixed(4, MANY),
    "two sizes": mixed(3, FEW),
    "one size": mixed(2, FEW[:1]),
    "values": valued,
    "periods": periodic,
    "phases": phases,
    "polling": polling,
}


@dataclass(frozen=True)
class Loss:
    """The share of messages that are not captured, how many in a row, and whether the capture begins late."""

    share: float = 0.0
    burst: int = 1
    late: bool = False


LOSSES = {
    "lost 1%": Loss(0.01),
    "lost 5%": Loss(0.05),
    "lost 10%": Loss(0.1),
    "burst 20%": Loss(0.2, 20),
    "late": Loss(late=True),
}


class Conversation:
    """The captured messages of a conversation of ``count`` requests, and the true request of each reply."""

    def __init__(self, dice: random.Random, count: int, exchanges: Exchanges, loss: Loss):
        self.truth: dict[int, int] = {}
        self._rows: list[Row] = []
        self._sent = dict.fromkeys(SIDES, 0)
        self._missing = dict.fromkeys(SIDES, False)
        self._dice, self._loss = dice, loss
        self._now = self._burst_left = 0
        waiting: list[tuple[int, Exchange]] = []
        window, asked, coming = dice.randrange(1, 9), 0, exchanges(dice)
        self._late = dice.randrange(count // 10, count) if loss.late else 0
        while asked < count or waiting:
            if asked < count and len(waiting) < window and (not waiting or dice.random() < 0.6):
                exchange = next(coming)
                fields = {"op": exchange.op, "f.value": exchange.value}
                waiting.append((self._add("c2s", exchange.asked, fields), exchange))
                asked += 1
            else:
                request, exchange = waiting.pop(0)
                fields = {"op": f"{exchange.op} reply", "f.value_copy": exchange.value}
                self.truth[self._add("s2c", exchange.said, fields)] = request

    def _add(self, side: str, size: int, fields: Row) -> int:
        self._now += 10_000
        offset, ack = self._sent[side], self._sent[SIDES[side == "c2s"]]
        self._sent[side] += size
        if self._burst_left == 0 and self._dice.random() < self._loss.share / self._loss.burst:
            self._burst_left = self._loss.burst
        if self._burst_left:
            self._burst_left, self._missing[side] = self._burst_left - 1, True
        elif self._late:
            self._late -= 1
        else:
            place = {"direction": side, "ts_ns": self._now, "stream_offset": offset, "frame_len": size}
            self._rows.append(fields | place | {"first_ack": ack, "last_ack": ack, "broken": self._missing[side]})
            self._missing[side] = False
        return offset

    def counts(self) -> Counter[str]:
        """Pairs that are there, found and wrong ones by state."""
        first: dict[str, Row] = {}
        for row in self._rows:
            first.setdefault(row["direction"], row)
        late = self._loss.late
        base = {side: first[side]["stream_offset"] if late and side in first else 0 for side in SIDES}
        rows = [dict(row) for row in self._rows]
        for row in rows:
            other = SIDES[row["direction"] == "c2s"]
            row["stream_offset"] -= base[row["direction"]]
            row["first_ack"] = row["last_ack"] = row["first_ack"] - base[other]
            if late and other in first:
                row["acked_from"] = first[other]["first_ack"] - base[row["direction"]]
        here = {side: {row["stream_offset"] for row in self._rows if row["direction"] == side} for side in SIDES}
        ends = [self._sent[side] - base[side] for side in SIDES]
        missing = [end - 1 if self._missing[side] else -1 for side, end in zip(SIDES, ends, strict=True)]
        end = End(True, True, *missing, 0, False, *ends)
        types = {name.removeprefix("f."): type_ for name, type_ in TYPES.items()}
        found = Counter[str]()
        for row in correlated(RULE, [placed(rows)], {1: end}, types, {1: not late})["exchanges"]:
            asked, said = row["request_offset"], row["reply_offset"]
            if asked is not None and said is not None:
                is_right = self.truth[said + base["s2c"]] == asked + base["c2s"]
                found[row["state"] if is_right else f"wrong {row['state']}"] += 1
                found[f"how {row['how']}"] += 1
        found["there"] = sum(r in here["s2c"] and q in here["c2s"] for r, q in self.truth.items())
        return found
