"""What every test shares: where the captures and their truth lie, and Hypothesis without a clock."""

from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines are slow at odd times; the same examples every run.
settings.register_profile("mqpcap", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("mqpcap")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def pcaps() -> Path:
    """The folder of sample captures."""
    return ROOT / "pcaps"


@pytest.fixture(scope="session")
def truth() -> Path:
    """The folder of truth files: what clients sent and received."""
    return ROOT / "tests" / "truth"
