"""Likely pairs by the lengths of holes: conversations of a known truth that lose messages of both sides."""

import random
from collections import Counter

import pytest
from examples import multiplied
from simulated_exchanges import LOSSES, MANY, SHAPES, Conversation, Loss, mixed

from mqpcap.correlate import span_alignment


def counted(shape: str, way: str, conversations: int) -> Counter[str]:
    """Counts of conversations of a shape with losses, or a late start."""
    total = Counter[str]()
    for seed in range(multiplied(conversations)):
        total += Conversation(random.Random(f"{shape} {way} {seed}"), 400, SHAPES[shape], LOSSES[way]).counts()
    return total


@pytest.mark.parametrize("way", LOSSES)
@pytest.mark.parametrize("shape", ["mixed", "two sizes", "one size", "values"])
def test_pairs_across_holes_of_both_sides_are_likely_and_right(shape: str, way: str) -> None:
    """Several operations, or values that replies repeat: 90 % of the pairs are found, and hardly a likely one is
    wrong."""
    total = counted(shape, way, 5)

    assert total["wrong answered"] == 0
    assert total["wrong likely"] <= 0.005 * total["likely"]
    assert total["how length"] > 0 or total["answered"] >= 0.99 * total["there"]
    assert total["answered"] + total["likely"] >= 0.9 * total["there"], total


@pytest.mark.parametrize("way", LOSSES)
@pytest.mark.parametrize("shape", ["periods", "phases", "polling"])
def test_conversations_that_repeat_give_no_wrong_pair(shape: str, way: str) -> None:
    """What repeats says little of where a hole was: many pairs stay unknown."""
    total = counted(shape, way, 4)

    assert total["there"] > 800
    assert total["wrong answered"] == 0
    assert total["wrong likely"] <= 0.005 * total["likely"]


def test_one_operation_gives_no_wrong_pair() -> None:
    """Nothing but lengths says which request a reply answers: most pairs stay unknown."""
    total = Counter[str]()
    for seed in range(multiplied(6)):
        total += Conversation(random.Random(seed), 400, mixed(1, (20,)), Loss(0.05)).counts()

    assert total["there"] > 2000
    assert (total["wrong answered"], total["wrong likely"]) == (0, 0)


def test_places_of_a_span_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more places the span has no pairs by length, and all others."""
    talk = Conversation(random.Random(5), 800, mixed(2, MANY), Loss(0.2, 20))
    usual = talk.counts()

    monkeypatch.setattr(span_alignment, "MAX_PLACES", 256)

    bounded = talk.counts()
    assert usual["how length"] > 50
    assert bounded["how length"] < usual["how length"] / 2
    assert bounded["answered"] == usual["answered"]
