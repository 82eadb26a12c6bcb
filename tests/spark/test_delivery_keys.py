"""Publishes and deliveries of several shares are brought together, however connections are dealt out."""

import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from dissection import dissect
from examples import multiplied
from in_process_spark import InProcessSpark
from rows import fragmented, merged, moved, of_dissections, of_export

from mqpcap.capture import Capture, captures
from mqpcap.pipeline import Options
from mqpcap.spark import delivery_keys, job, partitions
from mqpcap.spark.partitions import SharePlan
from mqpcap.tcp.headers import Dissector

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import traffic

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
JOINING = {"flymq/pipelining": 9092, "msgq/split_session": 9912, "blipmq/synthetic_v2_plain": 5555}
"""Captures of one server each, and its port, whose deliveries join connections."""


def only(path: Path) -> Capture:
    (capture,) = captures([str(path)]).captures
    return capture


def servers(folder: Path, count: int) -> Path:
    """A capture of so many servers of each protocol."""
    paths = []
    for name, port in JOINING.items():
        paths += [moved(PCAPS / f"{name}.pcap", folder / f"{port + k}", port, port + 100 * k) for k in range(count)]
    return merged(paths, folder / "whole.pcap")


def keys(capture: Capture) -> list[int]:
    """The keys of all connections."""
    return np.unique(np.concatenate([Dissector().segments(window).key for window in capture.windows()])).tolist()


def joins(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the parts of keys that come together, by protocol."""
    found: Counter[str] = Counter()
    pair = delivery_keys.deliveries
    monkeypatch.setattr(
        delivery_keys, "deliveries", lambda protocol, parts: (found.update([protocol]), pair(protocol, parts))[1]
    )
    return found


@pytest.mark.parametrize(("share_count", "in_fragments"), [(2, True), (5, False)])
def test_any_connections_dealt_out_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_count: int, in_fragments: bool
) -> None:
    path = servers(tmp_path, 2)
    capture = only(fragmented(path, tmp_path / "fragmented.pcap") if in_fragments else path)
    expected = of_dissections([dissect(capture)])
    done = joins(monkeypatch)

    for seed in range(multiplied(2)):
        dice = random.Random(seed)
        pinned = [
            (key, dice.randrange(share_count)) for key in keys(only(path)) if dice.random() < 0.3 + 0.4 * (seed % 2)
        ]
        cut = SharePlan(share_count, tuple(pinned))
        monkeypatch.setattr(partitions, "make_plan", lambda capture, n, rules, cut=cut: cut)

        job.export(InProcessSpark(), [capture], str(tmp_path / "tables"), Options(), share_count=share_count)

        assert of_export(tmp_path / "tables") == expected, seed
    assert done


def test_publishes_without_a_delivery_need_no_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traffic.publishes(tmp_path / "x.pcap", 4000, 6)
    capture = only(tmp_path / "x.pcap")
    done = joins(monkeypatch)
    monkeypatch.setattr(partitions, "make_plan", lambda capture, n, rules: SharePlan(n))

    job.export(InProcessSpark(), [capture], str(tmp_path / "tables"), Options(), share_count=3)

    assert not done
    assert of_export(tmp_path / "tables") == of_dissections([dissect(capture)])


def test_delivery_in_one_share_joins_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = only(PCAPS / "blipmq/synthetic_v2_plain.pcap")
    done = joins(monkeypatch)
    monkeypatch.setattr(partitions, "make_plan", lambda capture, n, rules: SharePlan(n))

    job.export(InProcessSpark(), [capture], str(tmp_path / "tables"), Options(), share_count=2)

    assert done == {"blipmq": 2}  # the keys go to two tasks
    assert of_export(tmp_path / "tables") == of_dissections([dissect(capture)])


@pytest.mark.parametrize("row_count", [4, 9])
def test_batches_of_keys_may_be_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_count: int) -> None:
    """They are merged in order of time, whatever is in them; few packets come in a window."""
    capture = only(servers(tmp_path, 2))
    expected = of_dissections([dissect(capture)])
    monkeypatch.setattr(delivery_keys, "MAX_ROWS", row_count)
    monkeypatch.setattr(partitions, "make_plan", lambda capture, n, rules: SharePlan(n))

    job.export(InProcessSpark(), [capture], str(tmp_path / "tables"), Options(), share_count=3)

    assert of_export(tmp_path / "tables") == expected
