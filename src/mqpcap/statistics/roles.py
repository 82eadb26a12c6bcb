"""Counts messages and exchanges of producers and consumers, by topic and client.

Protocols declare which operations publish, deliver and request messages (``schema.requests.Roles``). A producer sends
publishes. A consumer requests messages, or receives them: pushed by the server, or in the reply to its request, whose
topic then counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import is_in, single_array, true_mask
from mqpcap.decode.columns import Records
from mqpcap.decode.frames import Frames
from mqpcap.protocols import protocols
from mqpcap.schema.compiler import Program
from mqpcap.statistics.groups import SumCounter, Sums
from mqpcap.statistics.keys import OF_EXCHANGES, OF_MESSAGES, Columns, columns_read
from mqpcap.statistics.report_columns import Cells
from mqpcap.tables.output import Output, end_rows, has_end, of_messages

ASKS = ("poll", "lock", "subscribe")
"""Roles of operations that request messages."""
BY = ("protocol", "topic", "client", "name")


ITEM_COUNT = "item_count"
"""The column with the number of messages that a message carries."""
SEVERAL = "\0"
"""Stands for the topic of a connection with several topics; no protocol has such a topic."""
MAX_POLLING = 1 << 16
"""Connections that are tracked; beyond it the requests of the longest idle connection count without a topic."""


@dataclass(slots=True)
class _Polls:
    """Requests of a connection that name no topic, counted by group, and the topic of the connection."""

    counts: dict[int, int]
    topic: str | None = None


class _Role(SumCounter):
    """What clients do; ``names`` are its sums."""

    names: tuple[str, ...]

    def rows(self) -> list[Cells]:
        """The rows of those who do anything."""
        return [row for row in super().rows() if any(row[name] for name in self.names)]


class Producers(_Role):
    """Messages that clients publish."""

    names = ("messages", "body_bytes", "errors")

    def __init__(self, key_names: Sequence[str] = BY) -> None:
        self.reads = columns_read(key_names) | of_messages("op", "direction", "body_len")
        self.sums = Sums(key_names, self.names)

    def take_messages(self, rows: pa.Table) -> None:
        """Count rows of ``messages``."""
        rows = rows.filter(pa.array(_has_role(rows, "publish") & is_in(rows["direction"], "c2s")))
        groups = self.sums.groups(OF_MESSAGES, rows)
        self.sums.add("messages", groups)
        self.sums.add("body_bytes", groups, _body_bytes(rows))

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count errors, rows of ``exchanges``."""
        has_request = true_mask(rows["request_offset"].is_valid())
        rows = rows.filter(pa.array(_has_role(rows, "publish") & is_in(rows["status"], "error") & has_request))
        self.sums.add("errors", self.sums.groups(OF_EXCHANGES, rows))


class Consumers(_Role):
    """Messages that clients request and receive.

    A request that names no topic counts for the topic of its connection, if the connection has exactly one topic. A
    reply counts as the messages in it.
    """

    names = ("asked", "received", "body_bytes")
    carried = of_messages("op", "destination", "client_name", "body_len", ITEM_COUNT)

    def __init__(self, key_names: Sequence[str] = BY) -> None:
        self.message_columns = item_counts
        lists = ((name, x.items.partition(".")[0]) for name, x in protocols().items() if x.items)
        self.reads = columns_read(key_names) | of_messages("connection_id", "direction") | self.carried | {*lists}
        self.sums = Sums(key_names, self.names)
        self._polls: dict[int, _Polls] = {}
        """By connection_id, the newest last."""

    def take_messages(self, rows: pa.Table) -> None:
        """Count requests, and messages that are pushed or that replies bring."""
        from_client = is_in(rows["direction"], "c2s")
        asked = rows.filter(pa.array(_has_role(rows, *ASKS) & from_client))
        groups = self.sums.groups(OF_MESSAGES, asked)
        self._learn_topics(rows)
        has_topic = true_mask(asked["destination"].is_valid())
        if "topic" not in self.sums.by:
            has_topic[:] = True
        self.sums.add("asked", groups[has_topic])
        self._add_polls(asked["connection_id"].to_numpy()[~has_topic], groups[~has_topic])
        pushed = _has_role(rows, "deliver") & ~from_client & _has_body(rows)
        self._receive(OF_MESSAGES, rows.filter(pa.array(pushed | _are_replies(rows))))

    def take_unfiltered(self, output: Output) -> None:
        """Record the topics of all connections."""
        self._learn_topics(output.rows)

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count replies for their requests, rows of ``exchanges``, and no more by themselves."""
        rows = rows.filter(pa.array(_has_role(rows, *ASKS)))
        if rows.num_rows:
            replies = end_rows(rows, "reply").rows
            are_replies = true_mask(rows["reply_offset"].is_valid()) & _are_replies(replies)
            self._receive(OF_MESSAGES, replies.filter(pa.array(are_replies & has_end(rows, "reply"))), -1)
            for name in ("body_len", ITEM_COUNT):
                rows = rows.append_column(name, replies[name])
            self._receive(OF_EXCHANGES, rows.filter(pa.array(are_replies)))

    def end_of_capture(self) -> None:
        """Count requests without a topic."""
        self._count_polls(0)

    def _receive(self, columns: Columns, rows: pa.Table, times: int = 1) -> None:
        """Count received messages; with -1 they count no more."""
        groups = self.sums.groups(columns, rows)
        self.sums.add("received", groups, rows[ITEM_COUNT].to_numpy() * times)
        self.sums.add("body_bytes", groups, _body_bytes(rows) * times)

    def _learn_topics(self, rows: pa.Table) -> None:
        """Record the topics that connections subscribe to or receive."""
        from_client = is_in(rows["direction"], "c2s")
        mask = (_has_role(rows, "subscribe") & from_client) | (_has_role(rows, "deliver") & ~from_client)
        rows = rows.filter(pa.array(mask & true_mask(rows["destination"].is_valid())))
        topics = pa.table({"id": rows["connection_id"], "topic": rows["destination"].cast(pa.string())})
        for pair in topics.group_by(["id", "topic"]).aggregate([]).to_pylist():
            polls = self._polls_of(pair["id"])
            polls.topic = pair["topic"] if polls.topic in (None, pair["topic"]) else SEVERAL

    def _add_polls(self, ids: NDArray[np.int64], groups: NDArray[np.int64]) -> None:
        pairs, counts = np.unique(np.array([ids, groups]), axis=1, return_counts=True)
        for connection_id, group, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
            polls = self._polls_of(connection_id)
            polls.counts[group] = polls.counts.get(group, 0) + count

    def _polls_of(self, connection_id: int) -> "_Polls":
        polls = self._polls.pop(connection_id, None) or _Polls({})
        self._polls[connection_id] = polls
        self._count_polls(MAX_POLLING)
        return polls

    def _count_polls(self, at_most: int) -> None:
        """Count the requests of the longest idle connections, until ``at_most`` are left."""
        while len(self._polls) > at_most:
            polls = self._polls.pop(next(iter(self._polls)))
            for group, count in polls.counts.items():
                with_topic = (
                    group if polls.topic in (None, SEVERAL) else self.sums.regrouped(group, "topic", polls.topic)
                )
                self.sums.add("asked", np.array([with_topic]), np.array([count]))


def item_counts(program: Program, frames: Frames, records: Records) -> Mapping[str, pa.Array]:
    """The column ITEM_COUNT of messages: one, unless a message has a list of them."""
    counts = pa.array(np.ones(len(frames.start), np.int64))
    column, _, _ = protocols()[frames.protocol].items.partition(".")
    if column:
        lengths = pc.list_value_length(single_array(records.table[column]))
        counts = pc.coalesce(lengths.cast(pa.int64()), counts)
    return {ITEM_COUNT: counts}


def _has_role(rows: pa.Table, *roles: str) -> NDArray[np.bool_]:
    """Rows with an operation of these roles; each batch of rows is of a single protocol."""
    if not rows.num_rows:
        return np.zeros(0, np.bool_)
    roles_of_protocol = protocols()[rows["protocol"][0].as_py()].roles
    return is_in(rows["op"], *(op for role in roles for op in getattr(roles_of_protocol, role)))


def _has_body(rows: pa.Table) -> NDArray[np.bool_]:
    return true_mask(rows["body_len"].is_valid())


def _are_replies(rows: pa.Table) -> NDArray[np.bool_]:
    """Replies that carry requested messages."""
    return _has_role(rows, *ASKS) & is_in(rows["direction"], "s2c") & _has_body(rows)


def _body_bytes(rows: pa.Table) -> NDArray[np.int64]:
    size: NDArray[np.int64] = pc.fill_null(rows["body_len"], 0).to_numpy()
    return size
