"""Recognises deliveries of a message to a consumer that has got it before.

In: rows of ``deliveries`` with `receipt_columns`. Out: how often each was delivered to its consumer before. Called
by: ``statistics`` and ``tracing``.

The consumer is the subscription, if the request that a delivery answers names one, else the connection. If a protocol
marks what is redelivered, the consumer is the client's name and the correlation id; a delivery without the mark is a
first delivery.
"""

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import Int64Array, is_in, single_array, true_mask
from mqpcap.protocols import protocols
from mqpcap.tables.message_keys import stream_keys
from mqpcap.tables.output import CarriedByDeliveries

MAX_TRACKED = 1 << 18
"""The newest pairs of publish and consumer, which make a second delivery known."""


@cache
def receipt_columns() -> frozenset[CarriedByDeliveries]:
    """The columns that rows of ``deliveries`` carry: of marks and their clients, of subscriptions."""
    columns: set[CarriedByDeliveries] = {("deliver", "messages", name) for name in ("client_name", "correlation_id")}
    for name, protocol in protocols().items():
        if protocol.redelivered is not None:
            columns.add(("deliver", name, protocol.redelivered[0]))
        if protocol.acknowledgement is not None and protocol.acknowledgement.scope is not None:
            columns.add(("request", name, protocol.acknowledgement.scope))
    return frozenset(columns)


RECEIPT = pa.schema([("scope", pa.string()), ("receipt", pa.int64()), ("may_be_again", pa.bool_())])
"""The subscription of a delivery, a number for its publish and its consumer, and whether the protocol lets it be a
further delivery."""


def receipts(rows: pa.Table) -> dict[str, pa.Array]:
    """The columns of RECEIPT of deliveries of one protocol."""
    name, n = rows["protocol"][0].as_py() if rows.num_rows else None, rows.num_rows
    mark = protocols()[name].redelivered if name else None
    rule = protocols()[name].acknowledgement if name else None
    consumers, may_be_again, scope = (
        rows["deliver_connection_id"].to_numpy(),
        np.ones(n, np.bool_),
        pa.nulls(n, pa.string()),
    )
    if rule is not None and rule.scope is not None:
        scope = single_array(rows[f"request.{name}.{rule.scope}"].cast(pa.string()))
    keys: tuple[pa.Array | pa.ChunkedArray, ...] = (scope,)
    if mark is not None:
        columns = rows["deliver.messages.client_name"], rows["deliver_connection_id"]
        keys = pc.coalesce(*(x.cast(pa.string()) for x in columns)), rows["deliver.messages.correlation_id"]
        may_be_again = is_in(rows[f"deliver.{name}.{mark[0]}"], mark[1])
    named = enumerate(zip(*(x.to_pylist() for x in keys), strict=True))
    if hashes := {i: hash(values) for i, values in named if values[0] is not None}:
        consumers = consumers.copy()
        consumers[list(hashes)] = list(hashes.values())
    published = stream_keys(rows["publish_connection_id"], rows["publish_offset"], np.zeros(n, np.bool_))
    with np.errstate(over="ignore"):
        receipt = published * 3 + consumers
    return dict(zip(RECEIPT.names, (scope, pa.array(receipt), pa.array(may_be_again)), strict=True))


class Redeliveries:
    """The newest MAX_TRACKED deliveries."""

    def __init__(self) -> None:
        self._known = np.empty(0, np.int64)

    def counts(self, receipt: pa.Table | dict[str, pa.Array]) -> Int64Array:
        """How many earlier deliveries of its publish its consumer got, by RECEIPT of each; 0 for a first delivery."""
        numbers = receipt["receipt"].to_numpy()
        order, sorted_numbers = np.argsort(numbers, kind="stable"), np.sort(self._known)
        begins = np.flatnonzero(np.append(True, np.diff(numbers[order]) != 0)[: len(numbers)])
        earlier = np.empty(len(numbers), np.int64)
        earlier[order] = np.arange(len(numbers)) - np.repeat(begins, np.diff(np.append(begins, len(numbers))))
        earlier += np.searchsorted(sorted_numbers, numbers, "right") - np.searchsorted(sorted_numbers, numbers)
        self._known = np.concatenate([self._known, numbers])[-MAX_TRACKED:]
        return np.where(true_mask(receipt["may_be_again"]), earlier, 0)
