"""A capture in shares of its connections gives the rows of the whole one: the pipeline under Spark, without Spark."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from dissection import Dissection, dissect
from examples import one_in
from rows import merged, moved, of_dissections, texts

from mqpcap.capture import Capture, captures, windows
from mqpcap.decode.shared_facts import SharedFacts
from mqpcap.pipeline import Options
from mqpcap.protocols import protocols
from mqpcap.schema.protocol import Evidence
from mqpcap.spark import share
from mqpcap.spark.partitions import SharePlan
from mqpcap.spark.share import Share, SharedKnowledge
from mqpcap.tables.captures import CaptureRows

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
SAMPLES = one_in(3, sorted(path.relative_to(PCAPS).as_posix() for path in PCAPS.rglob("*.pcap")), 1)
"""Others than those that `test_job.test_samples_in_shares_are_the_local_export` reads in shares."""
OF_ONE_CONNECTION = ("messages", "exchanges", "connections", "problems", *protocols())


def only(*names: str) -> Capture:
    (capture,) = captures([str(PCAPS / name) for name in names]).captures
    return capture


def read(
    capture: Capture, share: int, share_count: int, heard: SharedKnowledge | None = None
) -> tuple[Share, Dissection]:
    made = Dissection(capture)
    one = Share(capture, Options(), made.add, heard, share=share, plan=SharePlan(share_count))
    one.pipeline.run()
    return one, made


@pytest.mark.parametrize("name", SAMPLES)
def test_shares_together_are_the_capture(name: str) -> None:
    capture = only(name)
    whole = of_dissections([dissect(capture)])
    heard = share.collect_knowledge(capture, Options())

    shares = of_dissections([read(capture, k, 3, heard)[1] for k in range(3)])

    for table in OF_ONE_CONNECTION:
        assert shares.get(table) == whole.get(table), table


@pytest.mark.parametrize("table", ["messages", "exchanges", "deliveries", "connections", "problems", "captures", "fq"])
def test_each_table_by_itself_is_that_of_the_whole(table: str) -> None:
    capture = only("fq/session.pcap")

    rows = list(Share(capture, Options(), print).rows(table))

    assert texts(rows) == of_dissections([dissect(capture)]).get(table, [])


def test_a_connection_recognised_by_another_share_counts() -> None:
    """The servers that other shares told are as good as those of this one."""
    capture = only("fq/session.pcap")
    everything = share.collect_knowledge(capture, Options())

    alone, _ = read(capture, 0, 2, everything)

    assert {name for (name, _, _), _ in everything.servers} == {"fq"}
    assert not alone.missing_servers


def test_share_without_the_login_asks_for_it_and_hears_it(tmp_path: Path) -> None:
    """Two servers: a key of the other one is none of this share's business."""
    path = PCAPS / "fq/session.pcap"
    (capture,) = captures([str(merged([path, moved(path, tmp_path / "b", 8765, 8766)], tmp_path / "x.pcap"))]).captures
    shares = [read(capture, k, 7)[0] for k in range(7)]
    told = [share.knowledge_of(one.pipeline.stages) for one in shares]
    everything = share.collect_knowledge(capture, Options())

    asking = [
        one for one, mine in zip(shares, told, strict=True) if everything.minus(mine).is_relevant([], one.lookup_keys)
    ]

    assert 0 < len(asking) < 7
    assert sorted(f[:4] for one in told for f in one.facts.get("fq", ())) == sorted(
        f[:4] for f in everything.facts["fq"]
    )
    assert not SharedKnowledge().is_relevant(shares[0].missing_servers, shares[0].lookup_keys)


def test_a_fact_of_its_own_server_comes_first_and_never_one_from_later() -> None:
    def of(port: int) -> Evidence:
        return Evidence(port, "10.0.0.1", port, 0)

    shared = SharedFacts()
    shared.add_fact(b"key", of(1), 100, "one")
    shared.add_fact(b"key", of(2), 200, "two")
    shared.add_fact(b"key", of(1), 300, "three")

    def value(port: int, ts_ns: int, key: bytes = b"key") -> object:
        fact = shared.lookup_fact(key, of(port), ts_ns)
        return None if fact is None else fact[4]

    assert [value(1, ts_ns) for ts_ns in (99, 100, 250, 300)] == [None, "one", "one", "three"]
    assert [value(3, ts_ns) for ts_ns in (150, 250, 350)] == ["one", "two", "three"]
    assert value(1, 400, b"other") is None


def test_fingerprint_does_not_depend_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = only("fq/session.pcap")
    tables = []
    for size_bytes in (4096, 8192):
        monkeypatch.setattr(windows, "WINDOW_BYTES", size_bytes)
        made: list[pa.Table] = []
        rows = CaptureRows(capture)
        for window in capture.windows():
            rows.take(window, Counter())
        made.append(rows.table(None))
        tables.append(made[0].to_pylist())

    assert tables[0] == tables[1]
