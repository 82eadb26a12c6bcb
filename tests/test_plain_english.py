"""Docstrings, comments and names stay as plain as they are: figures of each package may only fall."""

from pathlib import Path

import pytest
from plain_english import figures

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "mqpcap"
MOST = {
    ".": (1.1, 0.4),
    "api": (3.4, 5.0),  # names: the words of the commands, `by`, `at`, `out`
    "capture": (1.2, 0.4),
    "cli": (1.0, 0.1),
    "correlate": (2.3, 0.1),
    "decode": (1.2, 0.3),
    "delta": (1.0, 0.3),
    "listing": (1.0, 0.2),
    "protocols": (1.1, 0.1),
    "queries": (1.0, 0.3),
    "query": (0.6, 0.0),
    "scapy": (0.0, 0.0),
    "dissectors": (1.0, 1.0),
    "sample_captures": (0.0, 0.0),
    "schema": (1.0, 0.7),
    "spark": (1.0, 0.1),
    "statistics": (1.0, 0.4),
    "tables": (0.5, 0.7),
    "tcp": (0.8, 0.2),
    "tls": (4.0, 4.0),
}
"""By package: the largest shares of flagged sentences and names, in percent. Lower a figure when it has fallen."""


def test_every_package_has_figures() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {"."}

    assert packages == set(MOST)


@pytest.mark.parametrize("package", MOST)
def test_no_figure_rises(package: str) -> None:
    sentences, names = MOST[package]
    counted = [figures(path) for path in (PACKAGE.glob("*.py") if package == "." else [PACKAGE / package])]
    flagged_sentences = [place for part in counted for place in part.flagged_sentences]
    flagged_names = [place for part in counted for place in part.flagged_names]

    assert 100 * len(flagged_sentences) <= sentences * sum(part.sentences for part in counted), flagged_sentences
    assert 100 * len(flagged_names) <= names * sum(part.names for part in counted), flagged_names
