"""Pairs the messages of a capture, and makes rows of pairs and deliveries.

In: batches of messages by protocol, and ended connections. Out: rows of ``exchanges`` and ``deliveries``. Called by:
``pipeline``, step by step.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from mqpcap.correlate import Batch, ConnectionEnds, Correlation, Watermarks
from mqpcap.decode.frames import TimeKey
from mqpcap.decode.proxy_header import Proxied
from mqpcap.schema.protocol import MessageQueue
from mqpcap.tables.messages import RowPolicy, fingerprints
from mqpcap.tables.output import CarriedByDeliveries, Output, with_capture

SetUp = Callable[[str, Correlation], None]


class Pairing:
    """The `Correlation` of each protocol of a capture.

    ``tables``: the names of the tables to make. ``set_up`` gets each new `Correlation` before its first messages.
    ``carried``: see `Options.carried_by_deliveries`.
    """

    def __init__(
        self,
        capture: str,
        protocols: Mapping[str, MessageQueue],
        policy: RowPolicy,
        tables: frozenset[str],
        proxied: Proxied,
        set_up: SetUp | None,
        carried: Iterable[CarriedByDeliveries] = (),
    ) -> None:
        self._proxied, self._carried = proxied, tuple(sorted(".".join(names) for names in carried))
        self._capture, self._protocols, self._tables, self._set_up = capture, protocols, tables, set_up
        self._seeds = policy.seeds
        self.correlations: dict[str, Correlation] = {}

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_set_up": None}

    def feed(
        self,
        batches: Mapping[str, list[Batch]],
        watermarks: Watermarks,
        next_key: tuple[str, TimeKey],
        later: dict[str, list[Batch]],
    ) -> Iterator[Output]:
        """Pair the messages of a step, all together: a message with a hole is decoded after its successors.

        ``next_key``: a protocol, and where its messages that are not decoded yet begin. Its messages from there on are
        added to ``later``, for the next step.
        """
        for name in {**self.correlations, **batches}:
            batch = Batch.joined(batches[name]) if name in batches else None
            if batch is not None and name == next_key[0]:
                batch, undecided = batch.split(*next_key[1])
                if len(undecided):
                    later[name] = [undecided]
            yield from self._outputs(self._correlation(name).feed(batch, watermarks))

    def close(self, closings: Iterable[tuple[str, ConnectionEnds]]) -> Iterator[Output]:
        """Decide the messages of ended connections, by protocol."""
        for name, connection_ends in closings:
            yield from self._outputs(self._correlation(name).close(connection_ends))

    def finish(self) -> Iterator[Output]:
        """Decide all deliveries at the end of the capture."""
        for correlation in self.correlations.values():
            yield from self._outputs(correlation.finish())

    def _correlation(self, name: str) -> Correlation:
        if name not in self.correlations:
            rule = self._protocols[name].rule
            assert rule is not None
            delivers = "deliveries" in self._tables
            correlation = Correlation(name, rule, fingerprints(self._seeds), delivers)
            if self._set_up is not None:
                self._set_up(name, correlation)
            if correlation.deliveries is not None:
                correlation.deliveries.proxied, correlation.deliveries.carried = self._proxied, self._carried
            self.correlations[name] = correlation
        return self.correlations[name]

    def _outputs(self, tables: Iterator[tuple[str, pa.Table]]) -> Iterator[Output]:
        for name, rows in tables:
            if name in self._tables:
                yield Output(name, with_capture(name, rows, self._capture))
