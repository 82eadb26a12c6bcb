"""Keys that join rows of different tables: an int64 per message, hashed from connection, side and stream offset."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, is_in, true_mask

NONE = -(1 << 63)
"""The place of no message."""


def message_places(rows: pa.Table) -> Int64Array:
    """A number for each message, the same as `request_places` or `reply_places` has for it."""
    return places(rows["connection_id"], rows["stream_offset"], is_in(rows["direction"], "s2c"))


def request_places(rows: pa.Table) -> Int64Array:
    """A number for the request of each exchange; NONE where it has none."""
    return _end_places(rows, rows["request_offset"], is_in(rows["request_direction"], "s2c"))


def reply_places(rows: pa.Table) -> Int64Array:
    """A number for the reply of each exchange; NONE where it has none."""
    return _end_places(rows, rows["reply_offset"], ~is_in(rows["request_direction"], "s2c"))


def _end_places(rows: pa.Table, offset: pa.ChunkedArray, from_server: NDArray[np.bool_]) -> Int64Array:
    keys = places(rows["connection_id"], pc.fill_null(offset, 0), from_server)
    return np.where(true_mask(offset.is_valid()), keys, NONE)


def places(connection_id: pa.ChunkedArray, offset: pa.ChunkedArray, from_server: NDArray[np.bool_]) -> Int64Array:
    """A number for each place in a direction of a connection: different within one, as good as so among them."""
    with np.errstate(over="ignore"):
        spread: Int64Array = connection_id.to_numpy() ^ (
            (2 * offset.to_numpy() + from_server) * np.int64(0x1E3779B97F4A7C15)
        )
    return spread
