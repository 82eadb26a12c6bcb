"""What every test shares: its markers, where captures and their truth lie, and Hypothesis without a clock."""

from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines are slow at odd times; the same examples every run.
settings.register_profile("mqpcap", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("mqpcap")

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
SLOW = ()


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by folder and file: ``spark``, ``slow``, and ``quick`` for all others."""
    for item in items:
        path = item.path.relative_to(TESTS)
        if path.parts[0] == "spark":
            item.add_marker("spark")
        if path.as_posix() in SLOW:
            item.add_marker("slow")
        if item.get_closest_marker("slow") is None and item.get_closest_marker("spark") is None:
            item.add_marker("quick")


@pytest.fixture(scope="session")
def pcaps() -> Path:
    """The folder of sample captures."""
    return ROOT / "pcaps"


@pytest.fixture(scope="session")
def truth() -> Path:
    """The folder of truth files: what clients sent and received."""
    return TESTS / "truth"
