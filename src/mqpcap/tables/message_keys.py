"""Keys that join rows of different tables: an int64 per message, hashed from connection, side and stream offset."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, is_in, true_mask

NO_KEY = -(1 << 63)
"""The key of a message that is missing."""
_FACTOR = 0x1E3779B97F4A7C15
"""Spreads stream offsets over 64 bits."""


def message_keys(rows: pa.Table) -> Int64Array:
    """The key of each message, equal to the key that `request_keys` or `reply_keys` has for it."""
    return stream_keys(rows["connection_id"], rows["stream_offset"], is_in(rows["direction"], "s2c"))


def message_key(connection_id: int, direction: str, offset: int) -> int:
    """The key of a single message.

    >>> rows = pa.table({"connection_id": [-7], "direction": ["s2c"], "stream_offset": [1 << 40]})
    >>> [message_key(-7, "s2c", 1 << 40)] == message_keys(rows).tolist()
    True
    """
    spread = (2 * offset + (direction == "s2c")) * _FACTOR & (1 << 64) - 1
    return connection_id ^ (spread - (spread >> 63 << 64))


def request_keys(rows: pa.Table) -> Int64Array:
    """The key of each exchange's request; NO_KEY without a request."""
    return _exchange_keys(rows, rows["request_offset"], is_in(rows["request_direction"], "s2c"))


def reply_keys(rows: pa.Table) -> Int64Array:
    """The key of each exchange's reply; NO_KEY without a reply."""
    return _exchange_keys(rows, rows["reply_offset"], ~is_in(rows["request_direction"], "s2c"))


def _exchange_keys(rows: pa.Table, offset: pa.ChunkedArray, from_server: NDArray[np.bool_]) -> Int64Array:
    keys = stream_keys(rows["connection_id"], pc.fill_null(offset, 0), from_server)
    return np.where(true_mask(offset.is_valid()), keys, NO_KEY)


def stream_keys(connection_id: pa.ChunkedArray, offset: pa.ChunkedArray, from_server: NDArray[np.bool_]) -> Int64Array:
    """A key for each stream offset: unique within a connection, equal by chance (1 in 2^64) between two of them."""
    with np.errstate(over="ignore"):
        spread: Int64Array = connection_id.to_numpy() ^ ((2 * offset.to_numpy() + from_server) * np.int64(_FACTOR))
    return spread
