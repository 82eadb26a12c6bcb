"""Sequence numbers wrap, stream offsets do not; numbers and arrays alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.tcp.sequence_numbers import MAX_WINDOW, ahead, unwrapped, wrapped

TOP = 1 << 32


@pytest.mark.parametrize(
    ("seq", "expected", "far"),
    [
        (5, 5, 0),
        (5, TOP - 1, 6),
        (TOP - 1, 5, -6),
        (0, MAX_WINDOW, -MAX_WINDOW),
        (0, MAX_WINDOW + 1, TOP - MAX_WINDOW - 1),
    ],
)
def test_how_far_a_number_is_ahead(seq: int, expected: int, far: int) -> None:
    """One window back is old, everything else of the circle is new."""
    assert ahead(seq, expected) == far
    assert ahead(np.array([seq]), np.array([expected])).tolist() == [far]


@given(st.integers(0, TOP - 1), st.integers(0, 1 << 40), st.integers(-MAX_WINDOW, 3 * MAX_WINDOW - 1))
def test_an_offset_near_another_is_found_again(base: int, near: int, far: int) -> None:
    seq = wrapped(base + near + far)

    assert unwrapped(seq, base, near) == near + far
