"""Which reply answers which request, and which publish a delivery came from.

:class:`Correlation` runs along with the messages of one protocol: it is fed with rows as they are decoded and gives
rows of ``exchanges`` and ``deliveries`` as soon as they are certain. ``dialogue`` decides on one connection,
``exchanges`` keeps what waits, ``deliveries`` looks publishes up.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from mqpcap.correlate.deliveries import Deliveries
from mqpcap.correlate.exchanges import Batch, Closing, Exchanges, Pairs
from mqpcap.schema.requests import Prints, Rule

__all__ = ["Batch", "Closing", "Correlation"]


class Correlation:
    """The exchanges and, where they are wanted, the deliveries of one protocol in the making."""

    def __init__(self, protocol: str, rule: Rule, prints: Prints, delivers: bool = True) -> None:
        self._exchanges = Exchanges(protocol, rule, prints)
        self.deliveries = None
        if delivers and rule.deliveries is not None:
            self.deliveries = Deliveries(protocol, rule.deliveries, prints)

    @property
    def counts(self) -> dict[str, int]:
        """What was left out: deliveries that several publishes fit, publishes that were pushed out of the table."""
        made = self.deliveries
        if made is None:
            return {}
        return {"doubtful_deliveries": made.doubtful_count, "pushed_out": made.pushed_out_count}

    def feed(self, batch: Batch, behind: Mapping[int, int]) -> Iterator[tuple[str, pa.Table]]:
        """Take rows in; gives the name of a table and rows of it that are certain now.

        ``behind``: flows a side of which waits for missing bytes, and since when (ns): from then on the other is ahead.
        """
        yield from self._given(*self._exchanges.feed(batch, behind), batch)

    def close(self, closing: Closing) -> Iterator[tuple[str, pa.Table]]:
        """The same for what is left of connections that are over."""
        yield from self._given(*self._exchanges.close(closing), None)

    def _given(
        self, tables: list[pa.Table], pairs: Pairs | None, batch: Batch | None
    ) -> Iterator[tuple[str, pa.Table]]:
        yield from (("exchanges", table) for table in tables)
        if self.deliveries is not None:
            found = self.deliveries.feed(batch, pairs)
            if found is not None:
                yield "deliveries", found
