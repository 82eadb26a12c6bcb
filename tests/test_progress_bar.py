"""How much was read: a bar in a notebook, in the colours of the notebook."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import mqpcap

QOS1 = Path(__file__).resolve().parents[1] / "pcaps/blipmq/qos1.pcap"


def test_all_bytes_are_counted() -> None:
    bar = mqpcap.ProgressBar(QOS1)

    assert mqpcap.open(QOS1, progress=bar).messages.num_rows

    assert bar.total_bytes == QOS1.stat().st_size
    assert 0 <= bar.total_bytes - bar.read_bytes <= 24  # the header of the file


def test_a_notebook_shows_a_bar_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[Any] = []

    def display(bar: Any, display_id: bool) -> SimpleNamespace:
        updates.append(bar)
        return SimpleNamespace(update=updates.append)

    shell = SimpleNamespace(kernel=object())
    notebook, displays = ModuleType("IPython"), ModuleType("IPython.display")
    notebook.get_ipython, displays.display = lambda: shell, display  # type: ignore[attr-defined]  # of a stand-in
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)

    bar = mqpcap.ProgressBar([QOS1, QOS1.with_name("errors.pcap")])
    bar(1000)
    bar(bar.total_bytes - 1000)

    html = bar._repr_html_()
    assert updates == [bar, bar]
    assert f'<progress max="{bar.total_bytes}" value="{bar.total_bytes}"' in html
    assert "color" not in html and "background" not in html


def test_elsewhere_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert mqpcap.open(QOS1, progress=mqpcap.ProgressBar(QOS1)).messages.num_rows

    assert capsys.readouterr() == ("", "")
