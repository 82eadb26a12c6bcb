"""What every test shares: its markers, where captures and their truth lie, and Hypothesis without a clock."""

from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines are slow at odd times; the same examples every run.
settings.register_profile("mqpcap", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("mqpcap")

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
SLOW = frozenset(
    {
        "capture/test_windows.py",
        "cli/test_commands.py",
        "cli/test_diff.py",
        "cli/test_extract.py",
        "cli/test_filters.py",
        "cli/test_follow.py",
        "cli/test_kept_exports.py",
        "cli/test_outcomes.py",
        "cli/test_parallel.py",
        "cli/test_questions.py",
        "cli/test_readme.py",
        "cli/test_report.py",
        "cli/test_samples.py",
        "cli/test_secrets.py",
        "cli/test_stats.py",
        "correlate/test_exchanges.py",
        "decode/test_closed_connections.py",
        "decode/test_late_starts.py",
        "protocols/test_rich_protocol.py",
        "scapy/test_layers.py",
        "query/test_preselection.py",
        "query/test_selection.py",
        "schema/test_scapy_stub.py",
        "tcp/test_hostile_shapes.py",
        "test_conservation.py",
        "test_hostile.py",
        "test_notebooks.py",
        "test_packaging.py",
        "test_recording.py",
        "test_torture.py",
        "test_truth.py",
        "test_tshark.py",
    }
)
"""Files of more than six seconds of CPU together, but for reassembly; most start a process for each test."""


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
