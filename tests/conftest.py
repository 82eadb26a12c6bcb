"""What every test shares: its markers, where captures and their truth lie, and Hypothesis without a clock."""

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import settings

# Hundreds of processes load the same modules: each is compiled once, whatever the environment says.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Shared machines are slow at odd times; the same examples every run.
settings.register_profile("mqpcap", examples(40), deadline=None, derandomize=True)
settings.load_profile("mqpcap")

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
SLOW = frozenset(
    {
        "capture/test_boundaries.py",
        "capture/test_windows.py",
        "cli/test_ask.py",
        "cli/test_bodies.py",
        "cli/test_commands.py",
        "cli/test_completion.py",
        "cli/test_console.py",
        "cli/test_diff.py",
        "cli/test_endings.py",
        "cli/test_explain.py",
        "cli/test_export.py",
        "cli/test_extract.py",
        "cli/test_follow.py",
        "cli/test_habits.py",
        "cli/test_info.py",
        "cli/test_kept_exports.py",
        "cli/test_lake.py",
        "cli/test_likely_pairs.py",
        "cli/test_live.py",
        "cli/test_live_mqtt.py",
        "cli/test_many_files.py",
        "cli/test_names_and_encodings.py",
        "cli/test_options.py",
        "cli/test_process.py",
        "cli/test_raw.py",
        "cli/test_reading.py",
        "cli/test_readme.py",
        "cli/test_report.py",
        "cli/test_samples.py",
        "cli/test_secrets.py",
        "cli/test_selectors.py",
        "cli/test_share.py",
        "cli/test_show.py",
        "cli/test_stats.py",
        "cli/test_trace.py",
        "correlate/test_degraded.py",
        "correlate/test_exchanges.py",
        "correlate/test_polls.py",
        "decode/test_evidence.py",
        "decode/test_foreign_traffic.py",
        "decode/test_late_starts.py",
        "delta/test_growth.py",
        "delta/test_tables.py",
        "dissectors/test_wireshark.py",
        "listing/test_anonymisation.py",
        "listing/test_extraction.py",
        "listing/test_hex_dump.py",
        "listing/test_line_times.py",
        "listing/test_message_lines.py",
        "listing/test_message_search.py",
        "listing/test_planted_tokens.py",
        "listing/test_reorder_buffer.py",
        "protocols/blipmq/test_correlation.py",
        "protocols/test_plugins.py",
        "protocols/test_rich_protocol.py",
        "queries/test_questions.py",
        "query/test_match_tally.py",
        "query/test_prefilter.py",
        "query/test_selection.py",
        "scapy/test_layers.py",
        "scapy/test_live_session.py",
        "scapy/test_stubs.py",
        "schema/test_scapy_stub.py",
        "statistics/test_charts.py",
        "statistics/test_groups.py",
        "statistics/test_report_page.py",
        "statistics/test_reports.py",
        "tcp/test_hostile_shapes.py",
        "tcp/test_one_judgement.py",
        "test_conservation.py",
        "test_eviction.py",
        "test_faces.py",
        "test_habits_in_python.py",
        "test_hostile.py",
        "test_mutated_captures.py",
        "test_notebooks.py",
        "test_packaging.py",
        "test_parallel_export.py",
        "test_pipeline.py",
        "test_recording.py",
        "test_small_captures.py",
        "test_truth.py",
        "test_tshark.py",
        "test_uncompiled.py",
        "test_variations.py",
        "test_websocket.py",
        "tls/test_losses.py",
        "tls/test_openssl.py",
        "tls/test_windows.py",
    }
)
"""Files of more than six seconds together, but for reassembly; most start a process for each test."""
SESSION = "spark session"
IN_SESSION = frozenset(
    f"spark/test_{name}.py"
    for name in ("job", "notebook", "questions", "readers", "readme", "rich_protocol", "source", "storage", "streaming")
)
"""Files whose tests ask for the Spark session: one worker runs them all, so that there is one session to start."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Never search what is collected for garbage: all of it lives to the end, and a search takes half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by folder and file: ``spark``, ``slow``, and ``quick`` for all others, which come last.

    Workers get files in this order, so that the last ones are short and all workers end together.
    """
    for item in items:
        path = item.path.relative_to(TESTS)
        if path.parts[0] == "spark":
            item.add_marker("spark")
        if path.as_posix() in SLOW:
            item.add_marker("slow")
        if item.get_closest_marker("slow") is None and item.get_closest_marker("spark") is None:
            item.add_marker("quick")
    items.sort(
        key=lambda item: (_unit(item.nodeid) != SESSION, *(mark not in item.keywords for mark in ("spark", "slow")))
    )


def _unit(nodeid: str) -> str:
    """What one worker runs: a file, or all that share the Spark session."""
    file = nodeid.partition("::")[0]
    return SESSION if file.removeprefix("tests/") in IN_SESSION else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than cores: tests wait for Spark, for interfaces, and for commands that they end."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By file, as ``--dist=loadfile``, but for those of the Spark session."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _unit(nodeid)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def pcaps() -> Path:
    """The folder of sample captures."""
    return ROOT / "pcaps"


@pytest.fixture(scope="session")
def truth() -> Path:
    """The folder of truth files: what clients sent and received."""
    return TESTS / "truth"
