"""Freed memory goes back to the system."""

import ctypes
import sys

import numpy as np
import pytest

from mqpcap.spark.memory import trim


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_between_pieces_in_use_is_returned() -> None:
    pieces = [np.ones(10_000, np.int64) for _ in range(1000)]  # 80 kB each: from the heap, not of their own
    del pieces[:-1]
    before = resident_bytes()
    trim()

    assert len(pieces) == 1
    assert resident_bytes() <= before


def test_where_the_library_has_no_such_call_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: object) -> object:
        raise OSError("no library")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    trim()
