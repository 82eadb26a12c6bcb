"""Joins pairs and messages: pairs with the columns of their messages, and messages with their exchanges.

In: rows of ``exchanges`` or ``deliveries``, and rows of ``messages`` or of a protocol. Out: the pairs with the
columns of a message, as users have it by ``mqpcap.join``; or the exchange of each message, for filters and listings.
"""

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import Int64Array
from mqpcap.tables.message_keys import message_keys, reply_keys, request_keys, stream_keys
from mqpcap.tables.schemas import KEYS

Part = Literal["request", "reply", "publish", "delivery"]
PREFIXES: dict[Part, str] = {"request": "request_", "reply": "reply_", "publish": "publish_", "delivery": "deliver_"}
KEY = KEYS[:4]


def join(pairs: pa.Table, messages: pa.Table, part: Part | None = None) -> pa.Table:
    """The rows of ``pairs`` in their order, each with the columns of its ``part``.

    pairs: rows of ``exchanges`` or ``deliveries``. messages: rows of ``messages`` or of a protocol's table.
    part: which message, ``request`` or ``reply``, ``publish`` or ``delivery``; the first of them by default.
    The columns begin with ``request_``, ``reply_``, ``publish_`` or ``deliver_``, as those that ``pairs`` has already,
    and are null where no message is there. Raises ValueError for a wrong part or other tables.

    >>> import mqpcap
    >>> capture = mqpcap.open("pcaps/blipmq/qos1.pcap")
    >>> rows = mqpcap.join(capture.exchanges, capture.messages, "reply")
    >>> rows.select(["op", "reply_op", "reply_frame_len"]).to_pylist()[0]
    {'op': 'HELLO', 'reply_op': 'ACK', 'reply_frame_len': 21}
    """
    is_exchange = "request_direction" in pairs.column_names
    parts: tuple[Part, ...] = ("request", "reply") if is_exchange else ("publish", "delivery")
    part = parts[0] if part is None else part
    if part not in parts or not {f"{PREFIXES[part]}offset"} <= set(pairs.column_names):
        raise ValueError(f"these rows have no {part!r}; there are {' and '.join(parts)} of exchanges and deliveries")
    missing = [name for name in KEY if name not in messages.column_names]
    if missing:
        raise ValueError(f"rows without {missing[0]} are no messages; keep {', '.join(KEY)}")
    indexes = _message_indexes(pairs, _keys(pairs, part), messages)
    for name in messages.column_names:
        if name not in KEY and PREFIXES[part] + name not in pairs.column_names:
            pairs = pairs.append_column(PREFIXES[part] + name, messages[name].take(indexes))
    return pairs


def exchanges_of(messages: pa.Table, exchanges: pa.Table) -> pa.Table:
    """The exchange of each message, row for row: columns of ``exchanges`` and ``is_request``; null without an exchange.

    Both tables come from one capture. If a message is in two exchanges, either may be returned.
    """
    keys, n = np.concatenate([reply_keys(exchanges), request_keys(exchanges)]), exchanges.num_rows
    index = pc.index_in(pa.array(message_keys(messages)), pa.array(keys))
    is_request = pc.greater_equal(index, n)
    paired = exchanges.combine_chunks().take(pc.if_else(is_request, pc.subtract(index, n), index))
    return paired.append_column("is_request", is_request)


def _keys(pairs: pa.Table, part: Part) -> Int64Array:
    """The key of one message of each pair, as `message_keys` has it."""
    if part in ("request", "reply"):
        return request_keys(pairs) if part == "request" else reply_keys(pairs)
    connection_id, offset = (pairs[f"{PREFIXES[part]}{name}"] for name in ("connection_id", "offset"))
    return stream_keys(connection_id, offset, np.full(len(pairs), part == "delivery"))


def _message_indexes(pairs: pa.Table, keys: Int64Array, messages: pa.Table) -> pa.Array:
    """The index of the message of each key; null if there is none."""
    left, right = (
        # Arrow joins columns of equal types only.
        pa.table([_text(rows["capture"]), pa.array(row_keys), pa.array(np.arange(len(rows)))], ["capture", "key", name])
        for rows, row_keys, name in ((pairs, keys, "pair"), (messages, message_keys(messages), "message"))
    )
    return left.join(right, ["capture", "key"], join_type="left outer").sort_by("pair")["message"].combine_chunks()


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without dictionary."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
