"""Captures to units of work: every capture once, cut where it is large, its connections spread by their size."""

import logging
import os
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from dissection import dissect
from hypothesis import given
from hypothesis import strategies as st
from rows import records

from mqpcap.capture import Capture, captures
from mqpcap.errors import CaptureError
from mqpcap.pipeline import Options
from mqpcap.spark import partitions
from mqpcap.spark.partitions import MAX_SHARES, SharePlan
from mqpcap.spark.share import Share

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
KEYS = st.integers(-(2**63), 2**63 - 1)


def only(path: Path) -> Capture:
    (capture,) = captures([str(path)]).captures
    return capture


def of_sizes(folder: Path, *sizes_bytes: int) -> list[Capture]:
    """Captures of these sizes; what is behind their packets are holes of the file."""
    for number, size_bytes in enumerate(sizes_bytes):
        path = folder / f"{chr(97 + number) * 3}.pcap"
        shutil.copy(PCAPS / "flymq/core.pcap", path)
        os.truncate(path, size_bytes)
    return captures([str(folder)]).captures


@given(st.lists(KEYS), st.integers(1, 64), st.dictionaries(KEYS, st.integers(0, 63)), st.data())
def test_share_of_a_key_is_its_pin_else_its_hash(
    keys: list[int], share_count: int, pinned: dict[int, int], data: st.DataObject
) -> None:
    keys += data.draw(st.lists(st.sampled_from(sorted(pinned)))) if pinned else []

    shares = SharePlan(share_count, tuple(pinned.items())).shares(np.array(keys, np.int64))

    assert shares.tolist() == [pinned.get(key, key % 2**64 % share_count) for key in keys]


@given(st.lists(st.integers(0, 12)), st.integers(1, 12))
def test_packs_are_as_full_as_their_order_lets_them(sizes: list[int], limit: int) -> None:
    packs = [*partitions.pack(enumerate(sizes), lambda item: item[1], limit)]

    assert [item for pack in packs for item in pack] == [*enumerate(sizes)]
    loads = [[size for _, size in pack] for pack in packs]
    assert all(sum(load) <= limit or len(load) == 1 for load in loads)
    assert all(sum(one) + two[0] > limit for one, two in pairwise(loads))


def test_small_captures_are_packed_and_large_ones_cut(tmp_path: Path) -> None:
    """The large one first, its shares as many as Spark has slots."""
    units = partitions.plan_units(of_sizes(tmp_path, 10 << 10, 20 << 10, 400 << 20), 4)

    assert [(len(unit.captures), unit.number, unit.plan.share_count) for unit in units] == [
        (1, 0, 4), (1, 1, 4), (1, 2, 4), (1, 3, 4), (2, 0, 1),
    ]  # fmt: skip


def test_shares_are_neither_too_many_nor_too_small(tmp_path: Path) -> None:
    """With a thousand slots: 100 MB are two shares of 64 MB or nearly, 70 MB one, and 5 GB no more than the limit."""
    units = partitions.plan_units(of_sizes(tmp_path, 5 << 30, 100 << 20, 70 << 20), 1000)

    counted = [sum(unit.captures[0][0] == number for unit in units) for number in range(3)]
    assert counted == [MAX_SHARES, 2, 1]


@pytest.mark.parametrize("slot_count", [0, 1, 3])
def test_every_capture_is_in_one_unit_or_in_all_its_shares(tmp_path: Path, slot_count: int) -> None:
    found = of_sizes(tmp_path, *[700 << 10] * 9)

    whole = partitions.plan_units(found, slot_count)
    cut = partitions.plan_units(found, slot_count, share_count=2)

    assert sorted(number for unit in whole for number, _ in unit.captures) == [*range(9)]
    assert len(whole) == max(1, slot_count)  # 6.3 MB are 3 times 2.1 MB
    assert sorted((unit.captures[0][0], unit.number) for unit in cut) == [(i, k) for i in range(9) for k in (0, 1)]
    assert all(unit.captures[0][1] is found[unit.captures[0][0]] for unit in cut)


def test_no_capture_is_no_unit() -> None:
    assert partitions.plan_units([], 4) == []


def test_large_connections_are_dealt_out_evenly() -> None:
    """Seven connections, three shares: by their hash one share would get none."""
    path = PCAPS / "blipmq/errors.pcap"
    found, packets = only(path), records(path)[1]
    whole = dissect(found).connections.to_pylist()

    cut = partitions.make_plan(found, 3)
    shares = [
        pa.concat_tables(Share(found, Options(), print, share=k, plan=cut).rows("connections")).to_pylist()
        for k in range(3)
    ]

    assert sorted(map(repr, (row for share in shares for row in share))) == sorted(map(repr, whole))
    assert all(0.8 < 3 * sum(r["packets_c2s"] + r["packets_s2c"] for r in s) / len(packets) < 1.2 for s in shares)


@pytest.mark.parametrize(("share_count", "shares"), [(1, []), (2, [0, 1]), (5, [0, 1, 2, 3, 4])])
def test_largest_connections_alone_are_pinned(
    monkeypatch: pytest.MonkeyPatch, share_count: int, shares: list[int]
) -> None:
    """Here one for each share, each to another; a whole capture needs none."""
    monkeypatch.setattr(partitions, "PINNED_PER_SHARE", 1)

    cut = partitions.make_plan(only(PCAPS / "fq/session.pcap"), share_count)

    assert cut.share_count == share_count
    assert sorted(share for _, share in cut.pinned) == shares


def test_capture_that_is_gone_is_cut_by_hashes(tmp_path: Path) -> None:
    """Its tasks will say that it is gone."""
    shutil.copy(PCAPS / "fq/session.pcap", tmp_path / "x.pcap")
    capture = only(tmp_path / "x.pcap")
    (tmp_path / "x.pcap").unlink()

    assert partitions.make_plan(capture, 3) == SharePlan(3)
    assert partitions.size_of(capture) == 0


def test_size_of_files_is_asked_where_they_are(tmp_path: Path) -> None:
    shutil.copy(PCAPS / "fq/session.pcap", tmp_path / "x.pcap")
    local, behind_uri = (captures([uri]).captures[0] for uri in (f"{tmp_path}/x.pcap", f"file://{tmp_path}"))

    size_bytes = (PCAPS / "fq/session.pcap").stat().st_size
    assert partitions.size_of(local) == partitions.size_of(behind_uri) == size_bytes


@pytest.mark.parametrize(("options", "names"), [
    ({"path": "a.pcap"}, ["a.pcap"]), ({"paths": "[]", "path": "a"}, []), ({"paths": '["a", 1]'}, ["a", "1"]),
    ({"paths": "nonsense", "path": "a"}, ["a"]), ({"paths": '{"a": 1}', "path": "a"}, ["a"]),
])  # fmt: skip
def test_paths_are_a_list_or_one(options: dict[str, str], names: list[str]) -> None:
    assert partitions.named_inputs(options) == names


def test_no_path_is_an_error_that_says_what_would_do() -> None:
    with pytest.raises(CaptureError, match=r'no path: load\("captures"\)'):
        partitions.named_inputs({"path": "", "paths": '"a.pcap"'})


def test_only_permissive_leaves_out_what_is_unreadable(caplog: pytest.LogCaptureFixture) -> None:
    unreadable = [("a.pcap", "Permission denied"), ("b.pcap", "not a capture")]

    with pytest.raises(CaptureError, match=r"^a\.pcap: Permission denied \(and 1 more\); option mode=permissive"):
        partitions.check_readable(unreadable, permissive=False)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        partitions.check_readable(unreadable, permissive=True)
    assert [record.getMessage() for record in caplog.records] == [
        "mqpcap: left out: a.pcap: Permission denied", "mqpcap: left out: b.pcap: not a capture",
    ]  # fmt: skip


@pytest.mark.parametrize("permissive", [False, True])
def test_missing_path_is_reported_first(tmp_path: Path, permissive: bool) -> None:
    (tmp_path / "monday.pcap").touch()
    unreadable = [("a.pcap", "Permission denied"), (f"{tmp_path}/mondy.pcap", "no such file")]

    with pytest.raises(CaptureError, match=r"/mondy\.pcap: no such file: did you mean monday\.pcap\?$"):
        partitions.check_readable(unreadable, permissive)


def test_name_is_near_whatever_its_case() -> None:
    assert partitions.nearest_name("DECODEAZ", ["table", "decodeAs"]) == ": did you mean decodeAs?"
