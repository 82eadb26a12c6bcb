"""Rows of messages: what a protocol says that it derives is what it derives."""

from dataclasses import replace
from pathlib import Path

import pytest

from mqpcap.capture import captures
from mqpcap.pipeline import dissect
from mqpcap.protocols import protocols

ROOT = Path(__file__).resolve().parents[2]


def test_a_derived_column_that_is_not_declared_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fq = protocols()["fq"]
    short = replace(fq, envelope=replace(fq.envelope, derives=("status",)))
    monkeypatch.setattr("mqpcap.pipeline.protocols", lambda: {**protocols(), "fq": short})

    with pytest.raises(ValueError, match=r"fq: derive makes \['error_text', 'message_id', 'status'\]"):
        dissect(captures([str(ROOT / "pcaps" / "fq" / "session.pcap")]).captures[0])
