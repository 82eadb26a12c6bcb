"""The messages of BlipMQ connections as arrays, for ``blipmq_pairing``."""

from collections.abc import Mapping, Sequence
from enum import IntFlag
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.correlate.rows import Rows
from mqpcap.protocols.blipmq.queues import Answer

I64 = NDArray[np.int64]
HELLO, AUTH, PUBLISH, SUBSCRIBE, ACK, NACK, PING, PONG, POLL, DELIVER = range(1, 11)


class Says(IntFlag):
    """Contents of fixed answers, one bit each; a fixed frame has those that it may get."""

    ZERO = 1
    """ACK of HELLO or AUTH."""
    SUBSCRIBED = 2
    PONG = 4
    OTHER = 8
    PERFORMED = 16
    BAD_HELLO = 32
    NOT_PERFORMED = 64
    ALREADY = 128
    BAD_AUTH = 256
    BAD_PUBLISH = 512
    BAD_SUBSCRIBE = 1024
    BAD_ACK = 2048
    BAD_POLL = 4096
    EMPTY_TOPIC = 8192
    BAD_QOS = 1 << 14
    ZERO_ID = 1 << 15
    UNAUTHENTICATED = 1 << 16
    BAD_KEY = 1 << 17
    BAD_VERSION = 1 << 18
    TOPIC = 1 << 19
    GROUP = 1 << 20


TEXTS: Mapping[str, Says] = {
    "HELLO already performed": Says.PERFORMED,
    "invalid HELLO payload": Says.BAD_HELLO,
    "HELLO not performed": Says.NOT_PERFORMED,
    "already authenticated": Says.ALREADY,
    "invalid AUTH payload": Says.BAD_AUTH,
    "invalid PUBLISH payload": Says.BAD_PUBLISH,
    "invalid SUBSCRIBE payload": Says.BAD_SUBSCRIBE,
    "invalid ACK payload": Says.BAD_ACK,
    "invalid POLL payload": Says.BAD_POLL,
    "empty topic": Says.EMPTY_TOPIC,
    "invalid QoS value": Says.BAD_QOS,
    "subscription_id must be non-zero": Says.ZERO_ID,
    "unauthenticated": Says.UNAUTHENTICATED,
    "invalid API key": Says.BAD_KEY,
    "unsupported protocol version": Says.BAD_VERSION,
    "topic contains NUL byte": Says.TOPIC,
    "topic too long": Says.TOPIC,
    "empty consumer group name": Says.GROUP,
}
"""The texts of NACKs that answer fixed frames (versions 1 and 2)."""


class Frames:
    """The rows as arrays, as far as they say what kind of frame each is; u64 values are int64 with the same bits."""

    def __init__(self, rows: Rows) -> None:
        self.n = rows.num_rows
        side, sides = coded(rows.coded("direction"))
        self.client = any_of(side, [i for i, x in enumerate(sides) if x == "c2s"])
        self.connection = numbers(rows["connection_id"], -1)
        self.offset = numbers(rows["stream_offset"], 0)
        self.op = numbers(rows["op_code"], -1).astype(np.int16)  # a byte on the wire
        self.sub = rows.bits("f.subscription_id")
        self.has_sub = rows.known("f.subscription_id")
        self.qos = numbers(rows["f.qos"], -1)
        self.topic, self.topic_names = coded(rows.coded("destination"))
        flaw, flaws = coded(rows.coded("flaw"))
        self.cut = any_of(flaw, [i for i, x in enumerate(flaws) if x == "truncated"])
        self.bad = (flaw >= 0) & ~self.cut
        self.empty = any_of(self.topic, [i for i, x in enumerate(self.topic_names) if x == ""])
        self.nul = any_of(self.topic, [i for i, x in enumerate(self.topic_names) if "\0" in x])
        key = rows["f.partition_key"]
        self.no_key = (
            pc.fill_null(pc.equal(pc.binary_length(key), 0), False).to_numpy(zero_copy_only=False)
            if key.null_count < self.n else all_of(False, self.n)
        )  # fmt: skip
        refused = (self.qos > 1) | (self.has_sub & (self.sub == 0))
        self.odd = self.bad | self.cut | self.empty | self.nul | self.no_key | refused

    def publishes(self) -> NDArray[np.bool_]:
        """The publishes of clients with nothing to refuse."""
        return self.client & (self.op == PUBLISH) & ~self.odd

    def ordinary(self) -> NDArray[np.bool_]:
        """Frames of a client with nothing to refuse, and of a server that refuses nothing and no queue has a say in."""
        fine = ((self.op == ACK) & self.has_sub) | (self.op == PONG)
        return np.where(self.client, ~self.odd, fine & ~self.bad & ~self.cut)


class Columns(Frames):
    """All that is looked at of the rows."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.ts = numbers(rows["ts_ns"], 0)
        self.end = numbers(rows["end_ts_ns"], 0)
        self.id = rows.bits("f.correlation_id")
        self.version = numbers(rows["f.protocol_version"], -1)
        self.code = numbers(rows["error_code"], -1)
        self.body = numbers(rows["body_print"], 0)
        self.text, self.texts = coded(rows.coded("f.error_text"))
        self.answer, self.says = self._answers()

    def _answers(self) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
        """What each server frame is, and what a fixed answer says."""
        kind = np.full(self.n, Answer.ODD, np.int8)
        says = np.zeros(self.n, np.int32)
        rows = np.flatnonzero(~self.client)
        op, code = self.op[rows], self.code[rows]
        meaning = np.array([*(TEXTS.get(x, Says.OTHER) for x in self.texts), Says.OTHER], np.int32)
        nack, ack = op == NACK, (op == ACK) & self.has_sub[rows]
        one = np.full(len(rows), Answer.ODD, np.int8)
        one[nack | ack | (op == PONG)] = Answer.FIXED
        one[nack & (code == 404)] = Answer.NOT_FOUND
        one[nack & ((code == 500) | (code == 503))] = Answer.REFUSED
        one[op == PUBLISH] = Answer.DELIVERY
        one[self.cut[rows] | self.bad[rows]] = Answer.ODD
        one[op == DELIVER] = Answer.PUSH
        said = np.where(op == PONG, int(Says.PONG), 0)
        said[ack] = np.where(self.sub[rows][ack] == 0, int(Says.ZERO), int(Says.SUBSCRIBED))
        said[nack] = meaning[self.text[rows][nack]]
        kind[rows], says[rows] = one, said
        return kind, says


def all_of(value: object, n: int) -> NDArray[Any]:
    """An array of one value that takes no room."""
    return np.broadcast_to(np.array(value), n)


def any_of(codes: NDArray[Any], wanted: Sequence[int]) -> NDArray[np.bool_]:
    """Where a code is one of some."""
    if not wanted:
        return all_of(False, len(codes))
    return np.isin(codes, wanted)


def numbers(array: pa.Array, null: int) -> I64:
    """An integer column as an array."""
    if array.null_count == len(array):
        return all_of(np.int64(null), len(array))
    dtype = np.dtype(f"int{array.type.bit_width}")
    values = np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]
    if not array.null_count:
        return values
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), values, dtype.type(null))


def coded(column: pa.DictionaryArray) -> tuple[I64, list[str]]:
    """A number per row for its text, -1 for null, and the texts."""
    return numbers(column.indices, -1), column.dictionary.to_pylist()
