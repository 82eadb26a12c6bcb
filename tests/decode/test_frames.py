"""What framing found, until it is taken."""

import pickle

import numpy as np

from mqpcap.decode.frames import FoundMessages, Problem
from mqpcap.decode.message_buffer import NAMES

ROW = dict.fromkeys(NAMES, 0)


def test_messages_in_copies_lie_in_the_joined_copies() -> None:
    found = FoundMessages()
    window = np.arange(8, dtype=np.uint8)
    rows, shift = found.buffer_for("toy", memoryview(window))
    rows.add(ROW | {"start": shift + 2, "end": shift + 4})
    for copy in (b"abc", b"defg"):
        rows, shift = found.buffer_for("toy", copy)
        assert found.buffer_for("toy", copy)[1] == shift  # the same copy is kept once
        rows.add(ROW | {"start": shift + 1, "end": shift + 3})

    in_window, in_copies = found.take_all(window)

    assert in_window.buffer is window
    assert (in_window.start.tolist(), in_window.end.tolist()) == ([2], [4])
    spans = zip(in_copies.start.tolist(), in_copies.end.tolist(), strict=True)
    assert [in_copies.buffer[one:two].tobytes() for one, two in spans] == [b"bc", b"ef"]
    assert found.take_all(window) == []


def test_problems_survive_pickling() -> None:
    found = FoundMessages()
    found.problems.append(Problem(0, 1, 2, 3, "undecoded", "search", 4, 5))
    found.foreign.append(np.array([[6, 0, 2, 3, 4, 5, 1]]))

    copy = pickle.loads(pickle.dumps(found))

    assert copy.problem_count == 2
    problems, foreign = copy.take_problems()
    assert (problems, foreign.tolist()) == (found.problems, [[6, 0, 2, 3, 4, 5, 1]])
    assert copy.problem_count == 0
