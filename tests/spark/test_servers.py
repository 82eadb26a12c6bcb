"""Shares with all connections of a server make its exchanges and deliveries; whoever makes them, they are the same."""

import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from rows import fragmented, merged, moved, of_dissections, of_export

from mqpcap.capture import Capture, captures
from mqpcap.pipeline import Options, dissect
from mqpcap.spark import delivery_keys, job, partitions, tasks
from mqpcap.spark.partitions import Cut
from mqpcap.tcp.headers import Dissector, ends_of

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


def ends(capture: Capture) -> list[int]:
    """The endpoints of all connections, clients and servers."""
    return np.unique(np.concatenate([e for w in capture.windows() for e in ends_of(Dissector().segments(w))])).tolist()


def joins(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the tasks of the second stage, by protocol."""
    found: Counter[str] = Counter()
    run = tasks.run

    def counted(task: tasks.Task, *others: object) -> tasks.Result:
        if isinstance(task, tasks.Join):
            found[task.files[0].protocol] += 1
        return run(task, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(tasks, "run", counted)
    return found


@pytest.mark.parametrize("share_count", [2, 4])
def test_whole_servers_need_no_second_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_count: int) -> None:
    capture = only(servers(tmp_path, 4))
    done = joins(monkeypatch)

    job.export(None, [capture], str(tmp_path / "tables"), Options(), share_count=share_count)

    assert not done
    assert of_export(tmp_path / "tables") == of_dissections([dissect(capture)])


@pytest.mark.parametrize("share_count", [2, 3, 7])
@pytest.mark.parametrize("in_fragments", [False, True])
def test_any_endpoints_taken_for_servers_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_count: int, in_fragments: bool
) -> None:
    """Clients among them, so that connections are between two servers of different shares, and servers of nothing."""
    path = servers(tmp_path, 2)
    capture = only(fragmented(path, tmp_path / "fragmented.pcap") if in_fragments else path)
    expected = of_dissections([dissect(capture)])
    done = joins(monkeypatch)
    torn_count = 0

    for seed in range(6):
        dice = random.Random(seed)
        taken = [one for one in ends(only(path)) if dice.random() < 0.2 + 0.1 * seed]
        cut = Cut(share_count, servers=tuple((one, dice.randrange(share_count)) for one in taken))
        monkeypatch.setattr(partitions, "cut", lambda capture, n, cut=cut: cut)
        torn_count += sum(int(cut.shares(ends_of(Dissector().segments(w)))[1].sum()) for w in only(path).windows())

        job.export(None, [capture], str(tmp_path / "tables"), Options(), share_count=share_count)

        assert of_export(tmp_path / "tables") == expected, seed
    assert torn_count
    assert done


def test_server_whose_connection_is_elsewhere_is_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share had meant to make its rows alone."""
    capture = only(PCAPS / "msgq/split_session.pcap")
    (window,) = capture.windows()
    segments = Dissector().segments(window)
    source, _ = ends_of(segments)
    server = int(source[segments.sport == 9912][0])
    client = int(source[segments.sport != 9912][-1])
    done = joins(monkeypatch)
    made = []

    for cut in (Cut(2, servers=((server, 0),)), Cut(2, servers=((server, 0), (client, 1)))):
        monkeypatch.setattr(partitions, "cut", lambda capture, n, cut=cut: cut)
        job.export(None, [capture], str(tmp_path / "tables"), Options(), share_count=2)
        made.append((done.total(), of_export(tmp_path / "tables")))

    expected = of_dissections([dissect(capture)])
    assert expected["deliveries"]
    assert made == [(0, expected), (1, expected)]


def test_publishes_that_nobody_gets_need_no_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traffic.publishes(tmp_path / "x.pcap", 4000, 6)
    capture = only(tmp_path / "x.pcap")
    done = joins(monkeypatch)
    monkeypatch.setattr(partitions, "cut", lambda capture, n: Cut(n))

    job.export(None, [capture], str(tmp_path / "tables"), Options(), share_count=3)

    assert not done
    assert of_export(tmp_path / "tables") == of_dissections([dissect(capture)])


def test_delivery_in_one_share_joins_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = only(PCAPS / "blipmq/synthetic_v2_plain.pcap")
    done = joins(monkeypatch)
    monkeypatch.setattr(partitions, "cut", lambda capture, n: Cut(n))

    job.export(None, [capture], str(tmp_path / "tables"), Options(), share_count=2)

    assert done == {"blipmq": 1}
    assert of_export(tmp_path / "tables") == of_dissections([dissect(capture)])


@pytest.mark.parametrize("row_count", [1, 7])
def test_batches_of_keys_may_be_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_count: int) -> None:
    """They are merged in order of time, whatever is in them; few packets come in a window."""
    capture = only(servers(tmp_path, 2))
    expected = of_dissections([dissect(capture)])
    monkeypatch.setattr(delivery_keys, "BATCH_ROW_COUNT", row_count)
    monkeypatch.setattr(partitions, "cut", lambda capture, n: Cut(n))

    job.export(None, [capture], str(tmp_path / "tables"), Options(), share_count=3)

    assert of_export(tmp_path / "tables") == expected


def test_even_servers_are_dealt_out_as_a_whole(tmp_path: Path) -> None:
    capture = only(servers(tmp_path, 4))

    cut = partitions.cut(capture, 2)

    assert not cut.pinned
    assert len(cut.servers) == 12
    assert {share for _, share in cut.servers} == {0, 1}


def test_connections_of_the_only_server_are_dealt_out() -> None:
    cut = partitions.cut(only(PCAPS / "flymq/pipelining.pcap"), 2)

    assert not cut.servers
    assert len(cut.pinned) > 2


def test_large_server_is_dealt_out_and_the_small_ones_are_not(tmp_path: Path) -> None:
    """One that is most of a capture would keep its share busy while the other waits."""
    path = PCAPS / "flymq/pipelining.pcap"
    small = PCAPS / "msgq/split_session.pcap"
    capture = only(merged([path, *(moved(small, tmp_path / f"{k}", 9912, 9912 + k) for k in (1, 2))], tmp_path / "x"))

    cut = partitions.cut(capture, 4)

    assert len(cut.servers) == 2
    assert cut.pinned


def test_a_cut_is_the_same_for_both_directions() -> None:
    ends_ = np.array([1, 2, 3, 4], np.int64), np.array([2, 9, 1, 9], np.int64)
    cut = Cut(5, servers=((1, 3), (2, 4)))

    there, torn = cut.shares(ends_)
    back, torn_back = cut.shares(ends_[::-1])

    assert there.tolist()[:3] == back.tolist()[:3] == [4, 4, 3]
    assert there.tolist() == back.tolist()
    assert torn.tolist() == torn_back.tolist() == [True, False, False, False]
