"""Runs of pieces that continue each other, as a loop finds them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.tcp.chunks import run_starts
from mqpcap.tcp.flow_records import PIECE

PIECES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 3)), max_size=15)


@given(PIECES)
def test_a_run_ends_where_the_next_piece_is_elsewhere(pieces: list[tuple[int, int, int]]) -> None:
    of = np.zeros(len(pieces), PIECE)
    for name, column in zip(("side", "offset", "length"), zip(*pieces, strict=True), strict=False):
        of[name] = column
    expected, end = [], (-1, -1)
    for k, (side, offset, length) in enumerate(pieces):
        if (side, offset) != end:
            expected.append(k)
        end = side, offset + length

    assert run_starts(of).tolist() == expected
