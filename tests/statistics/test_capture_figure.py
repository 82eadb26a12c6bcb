"""The figure of a capture: bars of messages and errors, and latencies by operation."""

import json
from pathlib import Path

import pytest

import mqpcap
from mqpcap.recording import Recording

pytest.importorskip("matplotlib", reason="matplotlib is in the report extra")
ROOT = Path(__file__).resolve().parents[2]
COUNTS = json.loads((ROOT / "tests/truth/blipmq/qos1.truth.json").read_text())["counts"]


@pytest.fixture(scope="module")
def capture() -> Recording:
    return mqpcap.open(ROOT / "pcaps/blipmq/qos1.pcap")


def test_bars_are_the_messages_and_errors(capture: Recording) -> None:
    messages, errors, _ = capture.plot().axes

    assert sum(bar.get_height() for bar in messages.patches) == sum(sum(side.values()) for side in COUNTS.values())
    assert sum(bar.get_height() for bar in errors.patches) == COUNTS["s2c"]["NACK"]


def test_operations_have_their_number_of_answers(capture: Recording) -> None:
    names = [label.get_text() for label in capture.plot().axes[2].get_yticklabels()]

    assert {"HELLO (15)", "AUTH (15)", "PING (15)"} <= set(names)


def test_a_notebook_shows_it_on_white_paper(capture: Recording) -> None:
    """A PNG; white, so that black words are read in a dark notebook as well."""
    figure = capture.plot()

    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]  # what a notebook asks for
    assert figure.get_facecolor() == (1, 1, 1, 1)


def test_a_capture_without_messages_has_empty_axes() -> None:
    assert len(mqpcap.open(ROOT / "pcaps/strangers/http_5555.pcap").plot().axes) == 2
