"""Pairs replies with requests, and deliveries with publishes.

In: messages of one protocol, as they are decoded. Out: rows of ``exchanges`` and ``deliveries``, as soon as they are
final. Called by: ``pipeline``, through `Correlation`.

``tcp_order`` gives the messages of a connection to its matcher: ``matcher`` pairs by order, ``named_matcher`` by name.
``exchanges`` makes the rows and keeps those that wait; ``deliveries`` looks publishes up.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from mqpcap.correlate.batch import Batch, ConnectionEnds, Watermarks
from mqpcap.correlate.deliveries import MAX_DELAY_NS, Deliveries
from mqpcap.correlate.ends import Ends
from mqpcap.correlate.exchanges import Exchanges, Pairs
from mqpcap.correlate.replay import Replay
from mqpcap.schema.requests import CorrelationRule, Fingerprints

__all__ = ["Batch", "ConnectionEnds", "Correlation", "Watermarks"]


class Correlation:
    """The exchanges of one protocol, and its deliveries if they are wanted."""

    def __init__(self, protocol: str, rule: CorrelationRule, prints: Fingerprints, delivers: bool = True) -> None:
        may_be_unseen = rule.deliveries is not None and rule.deliveries.lifetime_ns is not None
        self._rule, self._prints = rule, prints
        self._ends = Ends(MAX_DELAY_NS if delivers and may_be_unseen else None)
        self._exchanges = Exchanges(protocol, rule, prints)
        self._watermarks = Watermarks(newest_ns=0)
        self.deliveries = None
        if delivers and rule.deliveries is not None:
            self.deliveries = Deliveries(protocol, rule.deliveries, prints)

    @property
    def counts(self) -> dict[str, int]:
        """Counts for notes: skewed clocks, and deliveries without a row."""
        clocks = {
            "clock_contradictions": self._exchanges.contradiction_count,
            "clock_difference_ns": self._exchanges.clock_difference_ns,
        }
        deliveries = self.deliveries
        if deliveries is None:
            return clocks
        clocks["clock_difference_ns"] = max(clocks["clock_difference_ns"], deliveries.clock_difference_ns)
        return clocks | {
            "stamped_before_publish": deliveries.contradiction_count,
            "ambiguous_deliveries": deliveries.ambiguous_count,
            "missed_deliveries": deliveries.missed_count,
            "early_deliveries": deliveries.early_count,
        }

    def watch(self, connection_id: int) -> list[Replay]:
        """Record how the messages of one connection are paired; returns the replays, which grow."""
        return self._exchanges.watch(connection_id)

    def feed(self, batch: Batch | None, watermarks: Watermarks) -> Iterator[tuple[str, pa.Table]]:
        """Add messages; yields the name of a table, and rows of it that are final."""
        tables: Iterator[pa.Table] = iter(())
        pairs, missing = None, None
        self._watermarks = watermarks
        if batch is not None:
            for name in self._rule.fingerprinted:
                prints = pa.array(self._prints(batch.table[f"f.{name}"]))
                batch = replace(batch, table=batch.table.append_column(f"print.{name}", prints))
            missing = self._ends.feed(batch)
            tables, pairs = self._exchanges.feed(batch)
        yield from (("exchanges", table) for table in tables)
        yield from self._delivered(batch, pairs, missing)

    def close(self, connection_ends: ConnectionEnds) -> Iterator[tuple[str, pa.Table]]:
        """Decide the messages of ended connections; yields what `feed` does."""
        *ends, missing = self._ends.close(connection_ends)
        tables, pairs = self._exchanges.close(connection_ends, *ends)
        yield from (("exchanges", table) for table in tables)
        yield from self._delivered(None, pairs, missing)

    def _delivered(
        self, batch: Batch | None, pairs: Pairs | None, missing: pa.Table | None
    ) -> Iterator[tuple[str, pa.Table]]:
        """Rows of ``deliveries`` that are final with these messages and pairs."""
        if self.deliveries is not None:
            self.deliveries.feed(batch, pairs, missing)
            if (rows := self.deliveries.ready(self._watermarks)) is not None:
                yield "deliveries", rows

    def finish(self) -> Iterator[tuple[str, pa.Table]]:
        """Decide all deliveries at the end of the input, after the last connection; yields what `feed` does."""
        if self.deliveries is not None and (rows := self.deliveries.ready(Watermarks())) is not None:
            yield "deliveries", rows
