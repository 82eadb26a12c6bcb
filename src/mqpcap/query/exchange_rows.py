"""Rows of ``exchanges`` laid beside the messages that they are of."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import I64, factorize, whole


def exchanges_of(messages: pa.Table, exchanges: pa.Table) -> pa.Table:
    """The exchange of each message, row for row: columns of ``exchanges`` and ``is_request``, nulls where it has none.

    Both tables are of one capture; where two rows are of one message, one of them is given.
    """
    from_server = _from_server(exchanges["request_direction"])
    ids, n, m = whole(exchanges["connection_id"]).to_numpy(), messages.num_rows, exchanges.num_rows
    offsets = [whole(exchanges[name]) for name in ("reply_offset", "request_offset")]
    keys = _keys(
        np.concatenate([messages["connection_id"].to_numpy(), ids, ids]),
        np.concatenate([messages["stream_offset"].to_numpy(), *(pc.fill_null(x, 0).to_numpy() for x in offsets)]),
        np.concatenate([_from_server(messages["direction"]), ~from_server, from_server]),
    )
    there = np.flatnonzero(np.concatenate([x.is_valid().to_numpy(zero_copy_only=False) for x in offsets]))
    theirs = keys[n:][there]
    order = np.argsort(theirs, kind="stable")
    theirs, there = theirs[order], there[order]
    if not len(theirs):
        return _taken(exchanges, np.full(n, -1)).append_column("is_request", pa.nulls(n, pa.bool_()))
    place = np.minimum(np.searchsorted(theirs, keys[:n]), len(theirs) - 1)
    hit = theirs[place] == keys[:n]
    at = np.where(hit, there[place], 0)
    is_request = pa.array(at >= m, mask=~hit)
    return _taken(exchanges, np.where(hit, at % max(m, 1), -1)).append_column("is_request", is_request)


def _taken(table: pa.Table, at: I64) -> pa.Table:
    return table.combine_chunks().take(pa.array(at, mask=at < 0))


def _from_server(direction: pa.ChunkedArray) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.equal(whole(direction.cast(pa.string())), "s2c").to_numpy(zero_copy_only=False)
    return found


def _keys(connection_id: I64, offset: I64, from_server: NDArray[np.bool_]) -> I64:
    """A number for each place in a direction of a connection, different for different ones."""
    _, connection = factorize(connection_id)
    places, place = factorize(2 * offset + from_server)
    return connection * len(places) + place
