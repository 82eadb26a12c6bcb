"""Rows of ``exchanges`` laid beside the messages that they are of."""

import numpy as np
import pyarrow as pa

from mqpcap.tables.places import message_places, reply_places, request_places


def exchanges_of(messages: pa.Table, exchanges: pa.Table) -> pa.Table:
    """The exchange of each message, row for row: columns of ``exchanges`` and ``is_request``, nulls where it has none.

    Both tables are of one capture; where two rows are of one message, one of them is given.
    """
    theirs = np.concatenate([reply_places(exchanges), request_places(exchanges)])
    order = np.argsort(theirs, kind="stable")
    place, n = message_places(messages), exchanges.num_rows
    at = order[np.minimum(np.searchsorted(theirs, place, sorter=order), 2 * n - 1)] if n else np.zeros_like(place)
    hit = theirs[at] == place if n else np.zeros(len(place), np.bool_)
    found = exchanges.combine_chunks().take(pa.array(at % max(n, 1), mask=~hit))
    return found.append_column("is_request", pa.array(at >= n, mask=~hit))
