"""A capture in shares of its connections gives the rows of the whole one: the engine under Spark, without Spark."""

from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
from rows import of_dissections

from mqpcap.capture import captures
from mqpcap.pipeline import Options, dissect
from mqpcap.spark import engine
from mqpcap.spark.engine import Wanted

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
SAMPLES = sorted(path.relative_to(PCAPS).as_posix() for path in PCAPS.rglob("*.pcap"))
NARROW = ("messages", "connections", "problems", "fq", "kokaq", "flymq", "blipmq", "msgq")


@pytest.mark.parametrize("name", SAMPLES)
def test_shares_together_are_the_capture(name: str) -> None:
    capture = captures([str(PCAPS / name)]).captures[0]
    whole = of_dissections([dissect(capture)])

    for share_count in (2, 7):
        made = [engine.dissection(capture, Options(share=(k, share_count))) for k in range(share_count)]
        shares = of_dissections([one for one in made if one is not None])

        for table in NARROW:
            assert shares.get(table) == whole.get(table), (share_count, table)


def test_wanted_rows_are_those_of_the_whole_capture() -> None:
    """Filters spare work; what is left of a row says the same."""
    capture = captures([str(PCAPS / "fq/session.pcap")]).captures[0]
    messages = [chunk.messages for chunk in dissect(capture).chunks()]
    rows = sorted((row["ts_ns"], row["src_port"], row["dst_port"]) for m in messages for row in m.to_pylist())
    low, high = rows[len(rows) // 3][0], rows[len(rows) // 2][0]
    client = max(rows[len(rows) * 2 // 5][1:])

    made = engine.dissection(capture, Options(), Wanted(from_ns=low, until_ns=high, ports=(frozenset({client}),)))

    assert made is not None
    found = [row for chunk in made.chunks() for row in chunk.messages.to_pylist()]
    expected = [
        row for m in messages
        for row in m.filter(pc.and_(pc.greater_equal(m["ts_ns"], low), pc.less_equal(m["ts_ns"], high))).to_pylist()
        if client in (row["src_port"], row["dst_port"])
    ]  # fmt: skip
    assert expected
    assert found == expected


def test_nothing_is_dissected_outside_the_time_asked_for() -> None:
    capture = captures([str(PCAPS / "flymq/core.pcap")]).captures[0]

    assert engine.dissection(capture, Options(), Wanted(until_ns=1)) is None


def test_connection_recognised_by_another_share_is_heard_of() -> None:
    """The servers that other shares told are as good as those of this one."""
    capture = captures([str(PCAPS / "fq/session.pcap")]).captures[0]
    everything = engine.heard(capture, Options())

    alone = engine.Share(capture, replace(Options(), share=(0, 2)), everything)
    alone.run(None)

    assert {name for (name, _, _), _ in everything.servers} == {"fq"}
    assert not alone.framer.doubted
