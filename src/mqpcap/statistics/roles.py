"""Who produces and who consumes: messages and exchanges counted by topic and client.

The protocols say which operations publish, deliver and ask (``schema.requests.Roles``).
A producer sends a message that publishes. A consumer asks for messages, or gets one: pushed by the server, or in the
reply to its request, which then says the topic.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import is_in, true
from mqpcap.protocols import protocols
from mqpcap.statistics.groups import MAX_OPEN, NO_GROUP, Sums, WaitingReplies
from mqpcap.statistics.keys import OF_EXCHANGES, OF_MESSAGES
from mqpcap.tables.places import message_places, reply_places

ASKS = ("poll", "lock", "subscribe")
"""The roles by which a client asks for messages."""
BY = ("protocol", "topic", "client", "name")


SEVERAL = "\0"
"""In place of a topic: the connection has several. No topic is this text in a table of ours."""
MAX_POLLING = 1 << 16
"""Connections whose topic is noted, and requests without one; those of the longest silent count without a topic."""


@dataclass(slots=True)
class _Polls:
    """Requests of a connection that name no topic, by group, and the topic that it has."""

    counts: dict[int, int]
    topic: str | None = None


class Producers:
    """What clients publish."""

    names = ("messages", "body_bytes", "errors")

    def __init__(self, by: Sequence[str] = BY) -> None:
        self.sums = Sums(by, self.names)

    def take_messages(self, rows: pa.Table) -> None:
        """Count rows of ``messages``."""
        rows = rows.filter(pa.array(_has_role(rows, "publish") & is_in(rows["direction"], "c2s")))
        groups = self.sums.groups(OF_MESSAGES, rows)
        self.sums.add("messages", groups)
        self.sums.add("body_bytes", groups, _body_bytes(rows))

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count failures, rows of ``exchanges``."""
        has_request = true(rows["request_offset"].is_valid())
        rows = rows.filter(pa.array(_has_role(rows, "publish") & is_in(rows["status"], "error") & has_request))
        self.sums.add("errors", self.sums.groups(OF_EXCHANGES, rows))


class Consumers:
    """What clients ask for and get.

    A request that names no topic, as a POLL of BlipMQ, counts for the topic of its connection, if that has one only.
    """

    names = ("asked", "received", "body_bytes")

    def __init__(self, by: Sequence[str] = BY) -> None:
        self.sums = Sums(by, self.names)
        self._replies = WaitingReplies()
        self._polls: dict[int, _Polls] = {}
        """By connection_id, the newest last."""

    def take_messages(self, rows: pa.Table) -> None:
        """Count rows of ``messages``: what is asked for, and what is pushed; replies wait for their requests."""
        from_client = is_in(rows["direction"], "c2s")
        asked = rows.filter(pa.array(_has_role(rows, *ASKS) & from_client))
        groups = self.sums.groups(OF_MESSAGES, asked)
        self._learn_topics(rows)
        has_topic = true(asked["destination"].is_valid())
        if "topic" not in self.sums.by:
            has_topic[:] = True
        self.sums.add("asked", groups[has_topic])
        self._add_polls(asked["connection_id"].to_numpy()[~has_topic], groups[~has_topic])
        pushed = rows.filter(pa.array(_has_role(rows, "deliver") & ~from_client & _has_body(rows)))
        self._receive(self.sums.groups(OF_MESSAGES, pushed), _body_bytes(pushed))
        replies = _replies(rows)
        self._wait(replies, self.sums.groups(OF_MESSAGES, replies))

    def take_others(self, rows: pa.Table) -> None:
        """Take rows of ``messages`` that are not counted: replies among them may be to requests that are."""
        self._learn_topics(rows)
        replies = _replies(rows)
        self._wait(replies, np.full(replies.num_rows, NO_GROUP))

    def _wait(self, replies: pa.Table, groups: NDArray[np.int64]) -> None:
        self._replies.add(message_places(replies), groups, _body_bytes(replies))
        self._receive(*self._replies.given_up(MAX_OPEN))

    def take_exchanges(self, rows: pa.Table) -> None:
        """Take the replies to what was asked, rows of ``exchanges``."""
        rows = rows.filter(pa.array(_has_role(rows, *ASKS)))
        at, sizes = self._replies.found(reply_places(rows))
        self._receive(self.sums.groups(OF_EXCHANGES, rows)[at], sizes)

    def end_of_capture(self) -> None:
        """What has found no request finds none."""
        self._receive(*self._replies.given_up(0))
        self._count_polls(0)

    def _learn_topics(self, rows: pa.Table) -> None:
        """Note the topics that connections subscribe to, or get messages of."""
        from_client = is_in(rows["direction"], "c2s")
        mask = (_has_role(rows, "subscribe") & from_client) | (_has_role(rows, "deliver") & ~from_client)
        rows = rows.filter(pa.array(mask & true(rows["destination"].is_valid())))
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
        """Count the requests of the connections that were silent the longest, of all but ``at_most``."""
        while len(self._polls) > at_most:
            polls = self._polls.pop(next(iter(self._polls)))
            for group, count in polls.counts.items():
                with_topic = (
                    group if polls.topic in (None, SEVERAL) else self.sums.regrouped(group, "topic", polls.topic)
                )
                self.sums.add("asked", np.array([with_topic]), np.array([count]))

    def _receive(self, groups: NDArray[np.int64], body_bytes: NDArray[np.int64]) -> None:
        self.sums.add("received", groups)
        self.sums.add("body_bytes", groups, body_bytes)


def _has_role(rows: pa.Table, *roles: str) -> NDArray[np.bool_]:
    """The rows whose operation has one of the roles; all of them are of one protocol, as they come."""
    if not rows.num_rows:
        return np.zeros(0, np.bool_)
    of = protocols()[rows["protocol"][0].as_py()].roles
    return is_in(rows["op"], *(op for role in roles for op in getattr(of, role)))


def _has_body(rows: pa.Table) -> NDArray[np.bool_]:
    return true(rows["body_len"].is_valid())


def _replies(rows: pa.Table) -> pa.Table:
    """Those that bring what was asked for."""
    return rows.filter(pa.array(_has_role(rows, *ASKS) & is_in(rows["direction"], "s2c") & _has_body(rows)))


def _body_bytes(rows: pa.Table) -> NDArray[np.int64]:
    size: NDArray[np.int64] = pc.fill_null(rows["body_len"], 0).to_numpy()
    return size
