"""Properties of ``Correlation.feed``: messages of sample captures, some changed, in batches of any sizes.

Each request has one row, each reply one at most, and batches do not change rows.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from batches import PRINTS, End, closing
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mqpcap.arrays import is_in
from mqpcap.capture import captures
from mqpcap.correlate import Batch, Correlation, Watermarks
from mqpcap.correlate.rules import request_groups
from mqpcap.hooks import StageHooks
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.protocols import protocols
from mqpcap.schema.requests import CorrelationRule, RequestKind
from mqpcap.tcp.flow_records import NO_OFFSET

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
CAPTURES = {
    f"{name}/{path.stem}": name
    for name, protocol in protocols().items() if protocol.rule is not None
    for path in sorted((PCAPS / name).glob("*.pcap"))
}  # fmt: skip
"""Captures and their protocols."""
ROWS = 50
"""Consecutive messages of a capture that are paired."""
NEVER = {RequestKind.NOT_A_REQUEST, RequestKind.CLOSES, RequestKind.TRUNCATED}
"""Kinds of messages that are no requests to pair."""


@cache
def messages_of(name: str) -> Batch:
    """The messages of a capture, as its `Correlation` got them."""
    batches: list[Batch] = []

    def record(protocol: str, correlation: Correlation) -> None:
        feed = correlation.feed

        def recorded(batch: Batch | None, watermarks: Watermarks) -> Iterator[tuple[str, pa.Table]]:
            batches.extend([] if batch is None or protocol != CAPTURES[name] else [batch])
            return feed(batch, watermarks)

        correlation.feed = recorded  # type: ignore[method-assign]

    (capture,) = captures([str(PCAPS / f"{name}.pcap")]).captures
    CapturePipeline(capture, Options(), lambda output: None, hooks=StageHooks(correlation=record)).run()
    assume(batches)  # some have strangers alone
    return Batch.joined(batches)


def changed(batch: Batch, dice: Random) -> Batch:
    """A stretch of the messages: some are missing or truncated, have no acknowledgement, or an old time.

    They are in order of capture, which is then not that of time.
    """
    start = dice.choice((0, dice.randrange(len(batch))))
    rows = range(start, min(start + ROWS, len(batch)))
    loss = dice.choice((0, 0.05, 0.3))
    batch = batch.taken(np.array([row for row in rows if row == start or dice.random() >= loss]))

    def mask(share: float) -> NDArray[np.bool_]:
        return np.array([dice.random() < share for _ in range(len(batch))], np.bool_)

    has_no_ack, is_early = mask(dice.choice((0, 0.1))), mask(dice.choice((0, 0.1)))
    return replace(
        batch,
        truncated=batch.truncated | mask(dice.choice((0, 0.05))),
        after_gap=batch.after_gap | mask(loss),
        start_seen=batch.start_seen & (dice.random() < 0.8),
        ts_ns=batch.ts_ns - 500_000 * (is_early & batch.from_client),
        first_ack=np.where(has_no_ack, NO_OFFSET, batch.first_ack),
        last_ack=np.where(has_no_ack, NO_OFFSET, batch.last_ack),
    )


def ends_of(batch: Batch, dice: Random) -> dict[int, End]:
    """How each connection ends, at random."""
    return {
        flow: End(
            dice.random() < 0.7, dice.random() < 0.7, dice.choice((-1, -1, 40)), dice.choice((-1, -1, 40)),
            orderly=dice.random() < 0.5, requests_extent=10_000, replies_extent=10_000,
        )
        for flow in sorted(set(batch.flow.tolist()))
    }  # fmt: skip


def in_time(batch: Batch) -> Batch:
    """The messages in order of time, as a batch has them."""
    return batch.taken(np.argsort(batch.ts_ns, kind="stable"))


def correlated(rule: CorrelationRule, batches: list[Batch], ends: dict[int, End]) -> dict[str, list[dict[str, Any]]]:
    """The rows of both tables."""
    correlation = Correlation("test", rule, PRINTS)
    rows: dict[str, list[dict[str, Any]]] = {"exchanges": [], "deliveries": []}
    newest_ns = 0
    for batch in batches:
        newest_ns = max(newest_ns, int(batch.ts_ns.max()))
        for table, new in correlation.feed(in_time(batch), Watermarks({}, newest_ns)):
            rows[table] += new.to_pylist()
    for table, new in [*correlation.close(closing(ends)), *correlation.finish()]:
        rows[table] += new.to_pylist()
    return rows


Place = tuple[int, bool, int]
"""Connection, whether the client sent the message, and its stream offset."""


def requests_of(rule: CorrelationRule, batch: Batch) -> tuple[set[Place], set[Place]]:
    """The messages that are requests of their side in every state, and those in some state."""
    always, sometimes = np.zeros((2, len(batch)), np.bool_)
    for name in rule.fingerprinted:
        prints = pa.array(PRINTS(batch.table[f"f.{name}"]))
        batch = replace(batch, table=batch.table.append_column(f"print.{name}", prints))
    for group in request_groups(rule):
        kinds = np.array([np.frombuffer(kind, np.int8)[group.codes(batch.table)] for kind in group.tables.kind])
        asks = ~np.isin(kinds, [int(kind) for kind in NEVER])
        is_cut = kinds == RequestKind.TRUNCATED  # its operation may be unknown
        is_side = batch.from_client == (group.side == "c2s")
        always |= asks.all(0) & is_side
        sometimes |= (asks | is_cut).any(0) & is_side
    columns = (x.tolist() for x in (batch.table["connection_id"].to_numpy(), batch.from_client, batch.offset))
    places = [*zip(*columns, strict=True)]
    always &= ~is_in(batch.table["flaw"], "unknown")  # its operation is unknown
    every, some = ({place for place, holds in zip(places, mask, strict=True) if holds} for mask in (always, sometimes))
    return every, some


@examples(24, shrink=False)
@given(st.sampled_from(sorted(CAPTURES)), st.integers(0, 1 << 32))
def test_each_message_has_its_rows_once_whatever_the_batches(name: str, seed: int) -> None:
    dice = Random(seed)
    rule = protocols()[CAPTURES[name]].rule
    assert rule is not None
    whole = changed(messages_of(name), dice)
    ends = ends_of(whole, dice)
    places = sorted({0, len(whole), *(dice.randrange(len(whole)) for _ in range(dice.choice((1, 5, 80))))})
    parts = [whole.taken(np.arange(start, end)) for start, end in pairwise(places)]

    rows = correlated(rule, [whole], ends)
    in_parts = correlated(rule, parts, ends)

    for table in rows:
        assert sorted(map(repr, rows[table])) == sorted(map(repr, in_parts[table]))
    requests, replies = (
        Counter(
            (row["connection_id"], (row["request_direction"] == "c2s") == is_request, row[f"{end}_offset"])
            for row in rows["exchanges"] if row[f"{end}_offset"] is not None
        )
        for end, is_request in (("request", True), ("reply", False))
    )  # fmt: skip
    every, some = requests_of(rule, whole)
    assert every <= requests.keys() <= some
    assert {*requests.values(), *replies.values()} <= {1}
    delivered = Counter((row["deliver_connection_id"], row["deliver_offset"], row["key"]) for row in rows["deliveries"])
    assert {*delivered.values()} <= {1}
