"""Steps of a matcher, recorded for one connection."""

from mqpcap.correlate import replay as module
from mqpcap.correlate.replay import Replay, Step


def test_steps_are_bounded() -> None:
    replay = Replay(False)
    for offset in range(module.MAX_STEPS + 5):
        replay.add("request", offset)

    assert (len(replay.steps), replay.left_out_count) == (module.MAX_STEPS, 5)


def test_of_a_long_connection_only_the_span_of_the_target_is_kept() -> None:
    replay = Replay(False)
    replay.keeps_span, replay.targets = True, {("c2s", 30)}
    for offset in range(0, 100, 10):
        replay.add("request", offset)
        replay.add("pair", offset, offset, offset, 1, 0)
        replay.settled(offset + 10)

    assert list(replay.steps) == [Step("request", 30), Step("pair", 30, 30, 30, 1, 0)]
