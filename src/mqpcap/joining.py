"""Joins pairs with their messages, whose columns have other names.

In: rows of ``exchanges`` or ``deliveries``, and rows of ``messages`` or of a protocol. Out: the pairs, each with the
columns of one of its messages. Called by: users, as ``mqpcap.join``.
"""

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Part = Literal["request", "reply", "publish", "delivery"]
PREFIXES: dict[Part, str] = {"request": "request_", "reply": "reply_", "publish": "publish_", "delivery": "deliver_"}
KEY = ("capture", "connection_id", "direction", "stream_offset")


def join(pairs: pa.Table, messages: pa.Table, part: Part | None = None) -> pa.Table:
    """The rows of ``pairs`` in their order, each with the columns of one of its messages.

    pairs: rows of ``exchanges`` or ``deliveries``. messages: rows of ``messages`` or of a protocol's table.
    part: which message, ``request`` or ``reply``, ``publish`` or ``delivery``; the first of them by default.
    The columns begin with ``request_``, ``reply_``, ``publish_`` or ``deliver_``, as those that ``pairs`` has already,
    and are null where no message is there. Raises ValueError for a wrong part or other tables.

    >>> import mqpcap
    >>> capture = mqpcap.open("pcaps/blipmq/qos1.pcap")
    >>> rows = mqpcap.join(capture.exchanges, capture.messages, "reply")
    >>> rows.select(["op", "reply_op", "reply_frame_len"]).to_pylist()[0]
    {'op': 'HELLO', 'reply_op': 'ACK', 'reply_frame_len': 19}
    """
    is_exchange = "request_direction" in pairs.column_names
    parts: tuple[Part, ...] = ("request", "reply") if is_exchange else ("publish", "delivery")
    part = parts[0] if part is None else part
    if part not in parts or not {f"{PREFIXES[part]}offset"} <= set(pairs.column_names):
        raise ValueError(f"these rows have no {part!r}; there are {' and '.join(parts)} of exchanges and deliveries")
    missing = [name for name in KEY if name not in messages.column_names]
    if missing:
        raise ValueError(f"rows without {missing[0]} are no messages; keep {', '.join(KEY)}")
    indexes = _message_indexes(_key(pairs, part), messages.select(KEY))
    for name in messages.column_names:
        if name not in KEY and PREFIXES[part] + name not in pairs.column_names:
            pairs = pairs.append_column(PREFIXES[part] + name, messages[name].take(indexes))
    return pairs


def _key(pairs: pa.Table, part: Part) -> pa.Table:
    """The key of one message of each pair; null where it has none."""
    prefix = PREFIXES[part]
    if "request_direction" in pairs.column_names:
        connection_id, direction = pairs["connection_id"], pairs["request_direction"]
        if part == "reply":
            direction = pc.if_else(pc.equal(direction, "c2s"), "s2c", "c2s")
    else:
        connection_id = pairs[f"{prefix}connection_id"]
        direction = pa.array(["c2s" if part == "publish" else "s2c"] * len(pairs))
    columns = [pairs["capture"], connection_id, direction, pairs[f"{prefix}offset"]]
    return pa.table([_text(column) for column in columns], names=list(KEY))


def _message_indexes(keys: pa.Table, messages: pa.Table) -> pa.Array:
    """The index of the message of each key; null if there is none."""
    messages = pa.table([_text(messages[name]) for name in KEY], names=list(KEY))
    left = keys.append_column("pair", pa.array(np.arange(len(keys))))
    right = messages.append_column("message", pa.array(np.arange(len(messages))))
    return left.join(right, list(KEY), join_type="left outer").sort_by("pair")["message"].combine_chunks()


def _text(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """A column without dictionary; Arrow joins columns of equal types only."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
