"""The facts of ended connections: which ranges without messages count, and of which side."""

import numpy as np
import pytest

from mqpcap.correlate.closings import Closings
from mqpcap.decode.frames import Problem
from mqpcap.decode.framing import ConnectionState
from mqpcap.decode.side import Side
from mqpcap.protocols import protocols


def states(client: int) -> dict[int, ConnectionState]:
    return {7: ConnectionState(7, (Side(7, 0), Side(7, 1)), protocols()["flymq"], decided=True, client=client)}


def problem(side: int, offset: int, kind: str = "gap", reason: str = "lost", flow: int = 7) -> Problem:
    return Problem(flow, side, offset, 10, kind, reason, 0, 1)


@pytest.mark.parametrize(("client", "offsets"), [(0, [30, 5]), (1, [5, 30])])
def test_the_last_range_of_each_role_counts(client: int, offsets: list[int]) -> None:
    closings = Closings(states(client))

    closings.add_problems([problem(0, 30), problem(0, 20), problem(1, 5)])

    assert closings._missing_at == {7: offsets}


@pytest.mark.parametrize(
    ("kind", "reason", "flow"),
    [
        ("conflict", "retransmitted with other bytes", 7),
        ("undecoded", "bad_framing", 7),
        ("undecoded", "truncated", 7),
        ("undecoded", "proxy protocol", 7),
        ("gap", "lost", 8),  # not framed: the connection has no bytes
    ],
)
def test_ranges_that_hide_no_message_do_not_count(kind: str, reason: str, flow: int) -> None:
    closings = Closings(states(0))

    closings.add_problems([problem(0, 30, kind, reason, flow)])

    assert closings._missing_at == {}


def test_ended_connections_are_forgotten() -> None:
    closings = Closings(states(0))
    closings.add_problems([problem(0, 30)])

    closings.forget(np.array([7, 8]))

    assert closings._missing_at == {}
