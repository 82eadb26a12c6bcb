"""Who produces and who consumes: messages and exchanges counted by topic and client.

The protocols say which operations publish, deliver and ask (``schema.requests.Roles``).
A producer sends a message that publishes. A consumer asks for messages, or gets one: pushed by the server, or in the
reply to its request, which then says the topic.
"""

from collections.abc import Sequence

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
    """What clients ask for and get."""

    names = ("asked", "received", "body_bytes")

    def __init__(self, by: Sequence[str] = BY) -> None:
        self.sums = Sums(by, self.names)
        self._replies = WaitingReplies()

    def take_messages(self, rows: pa.Table) -> None:
        """Count rows of ``messages``: what is asked for, and what is pushed; replies wait for their requests."""
        from_client = is_in(rows["direction"], "c2s")
        asked = rows.filter(pa.array(_has_role(rows, *ASKS) & from_client))
        self.sums.add("asked", self.sums.groups(OF_MESSAGES, asked))
        pushed = rows.filter(pa.array(_has_role(rows, "deliver") & ~from_client & _has_body(rows)))
        self._receive(self.sums.groups(OF_MESSAGES, pushed), _body_bytes(pushed))
        replies = _replies(rows)
        self._wait(replies, self.sums.groups(OF_MESSAGES, replies))

    def take_others(self, rows: pa.Table) -> None:
        """Take rows of ``messages`` that are not counted: replies among them may be to requests that are."""
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
