"""Spans are copied one after the other; fingerprints are equal for equal bytes and hardly ever for others."""

import itertools
import random

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.decode import kernels

KEYS = np.random.default_rng(7).integers(0, 1 << 64, 2 * (kernels.PRINT_WORDS + 1), np.uint64)


def prints(values: list[bytes]) -> list[int]:
    array = pa.array(values, pa.binary())
    _, offsets, data = array.buffers()
    out = np.zeros(len(values), np.int64)
    kernels.fingerprints(
        memoryview(np.frombuffer(data, np.uint8)) if data is not None and data.size else b"\0",
        memoryview(np.frombuffer(offsets, np.int32)[: len(values) + 1]),
        memoryview(KEYS), 600_000_001, 700_000_001, memoryview(out),
    )  # fmt: skip
    return out.tolist()


def test_equal_bytes_have_equal_fingerprints_wherever_they_stand() -> None:
    dice = random.Random(1)
    some = [dice.randbytes(n) for n in (0, 1, 3, 4, 5, 1023, 1024, 1025, 4096, 5001)]

    assert prints(some) == prints(some[::-1])[::-1]


def test_bytes_that_differ_in_one_bit_a_zero_or_their_order_differ() -> None:
    base = [b"", b"\0", b"\0\0", b"\0\0\0\0", b"\1", b"\1\0", b"\0\1", bytes(1024), bytes(1025), bytes(2048)]
    long = random.Random(2).randbytes(3000)
    flipped = [
        long[:at] + bytes([long[at] ^ 1 << bit]) + long[at + 1 :] for at in range(0, 3000, 97) for bit in (0, 3, 7)
    ]
    swapped = [long[1024:2048] + long[:1024] + long[2048:], long[4:8] + long[:4] + long[8:]]
    found = prints([*base, long, *flipped, *swapped])

    assert len(set(found)) == len(found)


def test_all_short_values_differ() -> None:
    values = [bytes(v) for n in range(3) for v in itertools.product(range(0, 256, 3), repeat=n)]

    assert len(set(prints(values))) == len(values)


def test_a_fingerprint_is_never_negative() -> None:
    dice = random.Random(3)

    assert min(prints([dice.randbytes(dice.randrange(2000)) for _ in range(200)])) >= 0


@given(st.lists(st.none() | st.binary(max_size=3)))
def test_values_are_gathered_without_space_between_them(values: list[bytes | None]) -> None:
    """They stand in the source with a byte between them; a row without a value is empty."""
    there = [k for k, value in enumerate(values) if value is not None]
    found = [value for value in values if value is not None]
    start = np.cumsum([0, *(len(value) + 1 for value in found)])[: len(found)]
    target, offsets = np.zeros(sum(map(len, found)) + 1, np.uint8), np.zeros(len(values) + 1, np.int32)

    kernels.gather(
        memoryview(b"".join(value + b"?" for value in found)), memoryview(np.array(there, np.int32)), memoryview(start),
        memoryview(np.array([len(value) for value in found], np.int64)), memoryview(target), memoryview(offsets),
    )  # fmt: skip

    assert target.tobytes() == b"".join(found) + b"\0"
    assert offsets.tolist() == np.cumsum([0, *(len(value or b"") for value in values)]).tolist()
