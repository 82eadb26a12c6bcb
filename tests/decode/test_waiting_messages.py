"""Messages that wait are columns of many connections: they take little, and each is taken once."""

import random
from dataclasses import replace

import numpy as np

from mqpcap.decode.frames import Frames
from mqpcap.decode.message_buffer import NAMES, TYPES
from mqpcap.decode.waiting_messages import WaitingMessages


def messages(flows: list[int], first: int) -> Frames:
    """A message of a byte for each connection, numbered from ``first``; the number is its time and its byte."""
    n = len(flows)
    columns = {name: np.zeros(n, TYPES.get(name, np.int64)) for name in NAMES}
    columns |= {"flow": np.array(flows, np.int64), "start": np.arange(n), "end": np.arange(n) + 1}
    columns |= {"ts_ns": np.arange(first, first + n), "end_ts_ns": np.arange(first, first + n)}
    return Frames("fq", np.arange(first, first + n).astype(np.uint8), **columns)


def numbers(frames: Frames) -> list[int]:
    """The numbers of messages, as their times and as their bytes."""
    assert frames.buffer[frames.start].tolist() == [ts_ns % 256 for ts_ns in frames.ts_ns.tolist()]
    return frames.ts_ns.tolist()


def test_each_message_is_taken_once_in_order_of_time() -> None:
    dice = random.Random(28)
    waiting, expected = WaitingMessages(), dict[int, list[int]]()
    number = taken = 0
    for _ in range(300):
        flows = [dice.randrange(20) for _ in range(dice.randrange(1, 30))]
        waiting.add(messages(flows, number))
        for flow in flows:
            expected.setdefault(flow, []).append(number)
            number += 1
        wanted = dice.sample(sorted(expected), dice.randrange(1, len(expected)) if len(expected) > 1 else 1)
        assert {flow: x.count for flow, x in waiting.flows.items()} == {f: len(x) for f, x in expected.items()}
        assert {flow: x.first_ns for flow, x in waiting.flows.items()} == {f: x[0] for f, x in expected.items()}
        if dice.random() < 0.3:
            parts = list(waiting.take_in_parts([*wanted, 99], 500))
            assert sorted(n for part in parts for n in numbers(part)) == sorted(
                n for flow in wanted for n in expected[flow]
            )
            assert all(numbers(part) == sorted(numbers(part)) for part in parts)
            taken += sum(len(expected.pop(flow)) for flow in wanted)

    assert sorted(numbers(waiting.take([*waiting.flows]))) == sorted(n for x in expected.values() for n in x)
    assert taken > 1000
    assert waiting.memory_bytes == 0


def test_a_connection_with_one_message_takes_few_bytes() -> None:
    """A row of 18 numbers, and its connection: not an array for each number."""
    waiting = WaitingMessages()
    for first in range(0, 10_000, 100):
        waiting.add(messages([*range(first, first + 100)], first))

    assert waiting.memory_bytes < 500 * 10_000
    assert len(waiting._blocks) < 20


def test_taken_messages_do_not_stay_in_memory() -> None:
    waiting = WaitingMessages()
    for first in range(0, 1000, 100):
        waiting.add(messages([*range(first, first + 100)], first))
        waiting.take([flow for flow in waiting.flows if flow % 100])

    assert [*waiting.flows] == [*range(0, 1000, 100)]
    assert waiting.memory_bytes < 10 * 1000 + 3000


def test_messages_that_were_added_are_not_changed() -> None:
    waiting, frames = WaitingMessages(), messages([1, 2, 3, 4], 0)
    waiting.add(frames)

    assert numbers(waiting.take([2])) == [1]
    assert frames.flow.tolist() == [1, 2, 3, 4]
    waiting.add(replace(frames, flow=np.array([2, 2, 2, 2])))
    assert numbers(waiting.take([2])) == [0, 1, 2, 3]
