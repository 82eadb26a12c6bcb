"""Which reply answers which request, and which publish a delivery came from.

:class:`Correlation` runs along with the messages of one protocol: it is fed with rows as they are decoded and gives
rows of ``exchanges`` and ``deliveries`` as soon as they are certain. ``matcher`` decides connection by connection,
``exchanges`` makes the rows and keeps those that wait, ``deliveries`` looks publishes up.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from mqpcap.correlate.batch import Batch, Behind, Closing
from mqpcap.correlate.deliveries import LOOKAHEAD_NS, Deliveries
from mqpcap.correlate.ends import Ends
from mqpcap.correlate.exchanges import Exchanges, Pairs
from mqpcap.correlate.replay import Replay
from mqpcap.schema.requests import CorrelationRule, Fingerprints

__all__ = ["Batch", "Behind", "Closing", "Correlation"]


class Correlation:
    """The exchanges and, where they are wanted, the deliveries of one protocol in the making."""

    def __init__(self, protocol: str, rule: CorrelationRule, prints: Fingerprints, delivers: bool = True) -> None:
        may_be_unseen = rule.deliveries is not None and rule.deliveries.lifetime_ns is not None
        self._rule, self._prints = rule, prints
        self._ends = Ends(LOOKAHEAD_NS if delivers and may_be_unseen else None)
        self._exchanges = Exchanges(protocol, rule, prints)
        self._behind = Behind(now_ns=0)
        self.deliveries = None
        if delivers and rule.deliveries is not None:
            self.deliveries = Deliveries(protocol, rule.deliveries, prints)

    @property
    def counts(self) -> dict[str, int]:
        """What was left out: deliveries that several publishes fit, publishes that were pushed out of the table and the
        deliveries that fit one of them, and deliveries that were too many to wait for publishes that were read later.
        """
        clocks = {
            "clock_contradictions": self._exchanges.contradiction_count,
            "clock_difference_ns": self._exchanges.clock_difference_ns,
        }
        made = self.deliveries
        if made is None:
            return clocks
        return clocks | {
            "doubtful_deliveries": made.doubtful_count,
            "pushed_out": made.pushed_out_count,
            "missed_deliveries": made.missed_count,
            "hurried_deliveries": made.hurried_count,
        }

    def watch(self, connection_id: int) -> list[Replay]:
        """Record how the messages of one connection are paired; returns the replays, which grow."""
        return self._exchanges.watch(connection_id)

    def feed(self, batch: Batch | None, behind: Behind) -> Iterator[tuple[str, pa.Table]]:
        """Take rows in; gives the name of a table and rows of it that are certain now."""
        tables: Iterator[pa.Table] = iter(())
        pairs, stretches = None, None
        self._behind = behind
        if batch is not None:
            for name in self._rule.fingerprinted:
                made = pa.array(self._prints(batch.table[f"f.{name}"]))
                batch = replace(batch, table=batch.table.append_column(f"print.{name}", made))
            stretches = self._ends.feed(batch)
            tables, pairs = self._exchanges.feed(batch)
        yield from (("exchanges", table) for table in tables)
        yield from self._delivered(batch, pairs, stretches)

    def close(self, closing: Closing) -> Iterator[tuple[str, pa.Table]]:
        """The same for what is left of connections that are over."""
        *ends, stretches = self._ends.close(closing)
        tables, pairs = self._exchanges.close(closing, *ends)
        yield from (("exchanges", table) for table in tables)
        yield from self._delivered(None, pairs, stretches)

    def _delivered(
        self, batch: Batch | None, pairs: Pairs | None, stretches: pa.Table | None
    ) -> Iterator[tuple[str, pa.Table]]:
        """Rows of ``deliveries`` that are certain with these messages and pairs, some of which an end made certain."""
        if self.deliveries is not None:
            self.deliveries.feed(batch, pairs, stretches)
            if (found := self.deliveries.ready(self._behind)) is not None:
                yield "deliveries", found

    def finish(self) -> Iterator[tuple[str, pa.Table]]:
        """The same at the end of the input, behind the last connection."""
        if self.deliveries is not None and (found := self.deliveries.ready(Behind())) is not None:
            yield "deliveries", found
