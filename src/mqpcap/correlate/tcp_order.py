# cython: language_level=3
"""Gives the messages of each connection to its matcher in TCP's order, whatever the clocks of the two sides say.

In: `Messages` of a window, in order of time. Out: calls of `TcpOrder`, which matchers inherit.
Called by: ``exchanges``, through `match_messages`.

A reply waits until the client's bytes that it acknowledges were read or given up. A request waits for the bytes of the
server likewise. Pauses are measured in that order, too: the bytes of a side may be read long after those of the other.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

from mqpcap.correlate.batch import UNREAD, Messages
from mqpcap.correlate.messages import (
    NEVER,
    OPTIONAL_REPLY,
    MatchResults,
    Reply,
    Request,
    SideMessage,
    phantom_reply,
    phantom_request,
)
from mqpcap.correlate.replay import MISSING
from mqpcap.schema.requests import RequestKind, RequestTables
from mqpcap.tcp.flow_records import NO_OFFSET

MAX_WAITING = 1 << 14
"""Requests of a connection that wait for bytes of the server, and replies likewise; with more they go on."""
MESSAGE_BYTES = 256
KEY_BYTES = 64
"""Memory of an open message, and of a stored key."""

_MESSAGE_BYTES = cython.declare(cython.longlong, MESSAGE_BYTES)
_KEY_BYTES = cython.declare(cython.longlong, KEY_BYTES)
_OTHER = cython.declare(cython.longlong, -2)
"""The row of a message that is no request and no reply."""
_CLOSE_NS = cython.declare(cython.longlong, 1_000_000)
"""Waiting messages of a side that are no requests or replies are merged within this time."""
_ONE_WAY = cython.declare(cython.int, int(RequestKind.ONE_WAY))
_SILENT_SUCCESS = cython.declare(cython.int, int(RequestKind.SILENT_SUCCESS))
_NOT_A_REQUEST = cython.declare(cython.int, int(RequestKind.NOT_A_REQUEST))


@cython.cclass
class TcpOrder:
    """One connection: how far both sides were read, and messages that wait for bytes of the other side.

    ``client_read``, ``server_read``: messages below this stream offset were read, or were in a hole.
    ``acked_to``: how much of the client's side the server's messages acknowledged, at most.
    ``resume_at``: the first waiting reply goes on when ``client_read`` reaches this offset.
    ``has_waiting``: a request or a reply waits. Else there are no queues: an empty queue takes 700 bytes.
    ``last_ns``, ``pause_ns``: when the last byte of either side came; the longest pause since the last reply.
    ``is_after_hole``: bytes of the client are missing after its last message.
    ``skips_silent``: the connection is in the protocol's ``midstream_state``, whose kinds `match_messages` looks up:
    requests without a reply need not be added.
    ``client_truncated``, ``server_truncated``: the last message was not captured whole, so a hole begins inside it.
    ``is_deferred``: the next message of the batch is older than one that waits: nothing is released before it.
    ``held_bytes``: what open messages and keys take, as it was counted last.
    """

    waiting_requests: Any  # a deque while messages wait, else ()
    waiting_replies: Any
    replay: Any  # a `Replay`, None unless somebody wants it

    def __init__(self) -> None:
        self.replay = None
        self.client_read = self.server_read = self.acked_to = 0
        self.last_ns = self.pause_ns = 0
        self.client_truncated = self.server_truncated = self.is_after_hole = False
        self.skips_silent, self.has_waiting, self.is_deferred = True, False, False
        self.resume_at = NEVER
        self.waiting_requests = self.waiting_replies = ()
        self.held_bytes = 0

    # -- what a matcher does -------------------------------------------------------------------------------

    @cython.cfunc
    def _add_request(self, q: Request) -> cython.void:
        """The next request in TCP's order, or a hole of the client, which is a phantom."""

    @cython.cfunc
    def _add_reply(self, r: Reply) -> cython.void:
        """The next reply, or a hole of the server."""

    @cython.cfunc
    def _add_one_way(self, row: cython.longlong) -> cython.void:
        """A request that gets no reply."""

    @cython.cfunc
    def _finish(
        self, ended: cython.bint, orderly: cython.bint, whole_requests: cython.bint, whole_replies: cython.bint
    ) -> cython.bint:
        """Decide what is open; returns what `close` does."""
        return False

    @cython.cfunc
    def _open_count(self) -> cython.Py_ssize_t:
        """Messages that are not decided, beside those that wait."""
        return 0

    @cython.cfunc
    def _key_count(self) -> cython.Py_ssize_t:
        """Keys that are remembered."""
        return 0

    @cython.cfunc
    def _forget(self) -> cython.void:
        """Decide all messages as they stand, and forget all keys."""

    # -- memory --------------------------------------------------------------------------------------------

    @cython.ccall
    def recount(self) -> cython.longlong:
        """Count ``held_bytes`` anew; returns the change."""
        previous_bytes: cython.longlong = self.held_bytes
        waiting: cython.Py_ssize_t = len(self.waiting_requests) + len(self.waiting_replies)
        self.held_bytes = _MESSAGE_BYTES * (waiting + self._open_count()) + _KEY_BYTES * self._key_count()
        return self.held_bytes - previous_bytes

    @cython.ccall
    def give_up_all(self) -> cython.longlong:
        """Decide all messages as they stand, and forget all keys; returns the change of ``held_bytes``."""
        self.release(True)
        self._forget()
        return self.recount()

    # -- messages in order of time -------------------------------------------------------------------------

    @cython.cfunc
    def _client_hole(self, end: cython.longlong, ts_ns: cython.longlong, was_captured: cython.bint) -> cython.void:
        """Add a hole of the client that reaches to an offset; ``ts_ns``: the time of the next message.

        A newer reply that the hole lets go on waits for that message, so nothing is released before it is added.
        """
        q: Request = phantom_request(self.client_read, end, OPTIONAL_REPLY, was_captured)
        q.truncated, q.ts_ns = self.client_truncated, ts_ns
        self.client_read = end
        if self.has_waiting:
            self.waiting_requests.append(q)
        else:
            self.add(q, True)

    @cython.cfunc
    def _server_hole(self, end: cython.longlong, ack: cython.longlong, ts_ns: cython.longlong) -> cython.void:
        """Add a hole of the server that reaches to an offset; ``ack``, ``ts_ns``: those of the next message."""
        r: Reply = phantom_reply(end, ack, end - self.server_read, self.server_truncated)
        self.server_read, r.ts_ns = end, ts_ns
        self.add(r, False)

    @cython.cfunc
    def _note_time(self, ts_ns: cython.longlong, end_ns: cython.longlong, from_client: cython.bint) -> cython.void:
        """Measure the pause before the next message in TCP's order; after a hole there is none."""
        if from_client:
            if not self.is_after_hole and ts_ns - self.last_ns > self.pause_ns:
                self.pause_ns = ts_ns - self.last_ns
            self.is_after_hole = False
        if end_ns > self.last_ns:
            self.last_ns = end_ns

    @cython.cfunc
    def _take_request(self, q: Request) -> cython.void:
        """The next request in TCP's order, a hole of the client, or its message that is neither."""
        if q.row != -1 or q.end_ns:
            self._note_time(q.ts_ns, q.end_ns, True)
        else:
            self.is_after_hole, self.pause_ns = True, 0
        if q.row == _OTHER:
            return
        if q.row >= 0:
            q.pause_ns, self.pause_ns = self.pause_ns, 0
        self._add_request(q)

    @cython.cfunc
    def _take_reply(self, r: Reply) -> cython.void:
        """The next reply, a hole of the server, or its message that is neither."""
        if r.row != -1 or r.end_ns:
            self._note_time(r.ts_ns, r.end_ns, False)
        r.acks_less = r.ack != NO_OFFSET and r.ack < self.acked_to
        self.acked_to = max(self.acked_to, r.ack)
        if r.row != _OTHER:
            self._add_reply(r)

    @cython.cfunc
    def other(
        self, from_client: cython.bint, end: cython.longlong, ack: cython.longlong, ts_ns: cython.longlong,
        end_ns: cython.longlong,
    ) -> cython.void:  # fmt: skip
        """A message that is no request and no reply: only its time counts.

        If it must wait, it is merged with the message that waits last, if that is neither a request nor a reply and
        less than _CLOSE_NS older.
        """
        m: SideMessage
        is_read: cython.bint = ack <= (self.server_read if from_client else self.client_read)
        if is_read and not self.has_waiting:
            self._note_time(ts_ns, end_ns, from_client)
            return
        waiting = self.waiting_requests if from_client else self.waiting_replies
        if waiting:
            m = waiting[len(waiting) - 1]
            if m.row == _OTHER and ts_ns - m.end_ns < _CLOSE_NS:
                m.end_ns = max(m.end_ns, end_ns)
                return
        m = phantom_request(end - 1, end, OPTIONAL_REPLY) if from_client else phantom_reply(end, ack, 0, True)
        m.row, m.ack, m.ts_ns, m.end_ns = _OTHER, ack, ts_ns, end_ns
        self.add(m, from_client)

    @cython.cfunc
    def add(self, m: SideMessage, from_client: cython.bint) -> cython.void:
        """A request or a reply, or a hole of its side."""
        if not self.has_waiting:
            if m.ack <= (self.server_read if from_client else self.client_read):
                if from_client:
                    self._take_request(m)
                else:
                    self._take_reply(m)
                return
            self.waiting_requests, self.waiting_replies, self.has_waiting = deque(), deque(), True
        waiting = self.waiting_requests if from_client else self.waiting_replies
        waiting.append(m)
        self.release(len(waiting) > MAX_WAITING)

    @cython.cfunc
    def release(self, all_of_them: cython.bint) -> cython.void:
        """Go on with messages that waited, as far as both sides were read, or with all of them."""
        q: Request | None
        r: Reply | None
        may_ask: cython.bint
        may_answer: cython.bint
        if self.is_deferred and not all_of_them:
            return
        requests, replies = self.waiting_requests, self.waiting_replies
        while requests or replies:
            q = requests[0] if requests else None
            r = replies[0] if replies else None
            may_ask = q is not None and q.ack <= self.server_read and (r is None or r.offset >= q.ack)
            may_answer = r is not None and r.ack <= self.client_read and (q is None or q.offset >= r.ack)
            # If neither acknowledges the other, the earlier one goes first, as it does where neither waits.
            if q is not None and may_ask and (r is None or not may_answer or q.ts_ns <= r.ts_ns):
                q.in_hole = r is not None and q.ack > r.end - r.hole_length and r.hole_length > 0
                self._take_request(requests.popleft())
            elif r is not None and (may_answer or (r.hole_length > 0 and q is not None and q.ack >= r.end)):
                self._take_reply(replies.popleft())
            elif q is not None and (r is not None or all_of_them):
                # If a reply waits, too, each waits for the other: their acknowledgements are those of later packets.
                q.in_hole = q.in_hole or r is not None  # which request the waiting reply answers is not known
                self._take_request(requests.popleft())
            elif all_of_them:
                self._take_reply(replies.popleft())
            else:
                break
        self.resume_at = NEVER
        if not requests and not replies:
            self.waiting_requests, self.waiting_replies, self.has_waiting = (), (), False
            self.is_deferred = False
        elif replies:
            r = replies[0]
            self.resume_at = r.ack

    @cython.cfunc
    def defer(self, next_ns: cython.longlong) -> cython.void:
        """Note whether messages wait that are newer than the next message, which was read late."""
        q: Request
        r: Reply
        self.is_deferred = False
        if self.waiting_requests:
            q = self.waiting_requests[0]
            self.is_deferred = next_ns < q.ts_ns
        if self.waiting_replies:
            r = self.waiting_replies[0]
            self.is_deferred = self.is_deferred or next_ns < r.ts_ns

    @cython.ccall
    def close(
        self, ended: cython.bint, orderly: cython.bint, whole_requests: cython.bint, whole_replies: cython.bint,
        requests_end: cython.longlong, replies_end: cython.longlong,
    ) -> cython.bint:  # fmt: skip
        """The connection is over; returns whether it was in another state than assumed, or may have been.

        ``ended``: its end was captured; ``orderly``: see `ConnectionEnds`. ``whole_requests``, ``whole_replies``: all
        bytes of the side after its last message are no message; else a hole reaches to ``requests_end``,
        ``replies_end``.
        """
        if not whole_requests:
            self._client_hole(max(requests_end, self.client_read + 1), NEVER, False)
        if not whole_replies:
            self._server_hole(max(replies_end, self.server_read + 1), NO_OFFSET, NEVER)
        self.release(True)
        return self._finish(ended, orderly, whole_requests, whole_replies)


def _bytes(truths: NDArray[np.bool_]) -> memoryview:
    """Truths as bytes."""
    return memoryview(truths.view(np.uint8))


@cython.cclass
class _MessageColumns:
    """The columns of a batch of messages, and what its protocol says about them."""

    index: cython.const[cython.longlong][:]
    code: cython.const[cython.longlong][:]
    echo_key: cython.const[cython.longlong][:]
    payload_key: cython.const[cython.longlong][:]
    has_id: cython.const[cython.uchar][:]
    ts_ns: cython.const[cython.longlong][:]
    end_ns: cython.const[cython.longlong][:]
    offset: cython.const[cython.longlong][:]
    length: cython.const[cython.longlong][:]
    first_ack: cython.const[cython.longlong][:]
    last_ack: cython.const[cython.longlong][:]
    acked_from: cython.const[cython.longlong][:]
    truncated: cython.const[cython.uchar][:]
    after_gap: cython.const[cython.uchar][:]
    undecoded: cython.const[cython.uchar][:]
    start_seen: cython.const[cython.uchar][:]
    first_row: cython.longlong
    shortest: cython.longlong
    kinds: bytes
    early: Any  # requests that the server may answer before it has read them whole, None without one

    def __init__(self, rows: Messages, tables: RequestTables) -> None:
        batch = rows.batch
        self.index, self.code, self.has_id = memoryview(rows.index), memoryview(rows.code), _bytes(rows.has_id)
        self.echo_key, self.payload_key = memoryview(rows.echo_key), memoryview(rows.payload_key)
        self.offset, self.length = memoryview(batch.offset), memoryview(batch.length)
        self.ts_ns, self.end_ns = memoryview(batch.ts_ns), memoryview(batch.end_ns)
        self.first_ack, self.last_ack = memoryview(batch.first_ack), memoryview(batch.last_ack)
        self.acked_from, self.truncated = memoryview(batch.acked_from), _bytes(batch.truncated)
        self.after_gap, self.undecoded = _bytes(batch.after_gap), _bytes(batch.undecoded)
        self.start_seen = _bytes(batch.start_seen)
        self.first_row, self.shortest = rows.first_row, tables.habits.shortest_bytes
        self.kinds, self.early = tables.kind[tables.midstream_state], tables.early or None

    @cython.cfunc
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _read(self, m: SideMessage, k: cython.Py_ssize_t) -> cython.void:
        """Read what requests and replies have from a row."""
        m.row, m.code, m.echo_key = self.first_row + self.index[k], self.code[k], self.echo_key[k]
        m.payload_key, m.truncated = self.payload_key[k], self.truncated[k]
        m.offset, m.end = self.offset[k], self.offset[k] + self.length[k]
        m.ack, m.ts_ns, m.end_ns = self.first_ack[k], self.ts_ns[k], self.end_ns[k]

    @cython.cfunc
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def feed_client(self, m: TcpOrder, k: cython.Py_ssize_t) -> cython.void:
        """Give a message of the client to the matcher of its connection."""
        offset: cython.longlong = self.offset[k]
        end: cython.longlong = offset + self.length[k]
        index: cython.longlong = self.index[k]
        kind: cython.int
        q: Request
        if offset > m.client_read:
            if m.client_read == NO_OFFSET or (m.client_read == 0 and self.start_seen[k] and not self.after_gap[k]):
                m.client_read = offset  # the first captured message, or a header of the stream in front
            else:
                m._client_hole(offset, self.ts_ns[k], self.undecoded[k])
        if end > m.client_read:
            m.client_read = end
        m.client_truncated = self.truncated[k]
        kind = self.kinds[self.code[k]]
        if index >= 0 and not (m.skips_silent and kind in (_SILENT_SUCCESS, _ONE_WAY, _NOT_A_REQUEST)):
            q = Request()
            self._read(q, k)
            q.kind, q.has_id, q.reach = kind, self.has_id[k], end
            q.last_ack = self.last_ack[k]
            if q.truncated or (self.early is not None and q.code in self.early):
                q.reach, q.last_ack = offset + 1, NO_OFFSET
            m.add(q, True)
        elif index == UNREAD:
            q = phantom_request(offset, offset + self.shortest, OPTIONAL_REPLY, True)
            q.truncated, q.ts_ns, q.end_ns = True, self.ts_ns[k], self.end_ns[k]
            m.add(q, True)
        else:
            if index >= 0 and kind == _ONE_WAY:
                m._add_one_way(self.first_row + index)
            m.other(True, end, self.first_ack[k], self.ts_ns[k], self.end_ns[k])
        if m.client_read >= m.resume_at:
            m.release(False)

    @cython.cfunc
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def feed_server(self, m: TcpOrder, k: cython.Py_ssize_t) -> cython.void:
        """Give a message of the server to the matcher of its connection."""
        offset: cython.longlong = self.offset[k]
        end: cython.longlong = offset + self.length[k]
        ack: cython.longlong = self.first_ack[k]
        r: Reply
        if offset > m.server_read:
            if m.server_read == NO_OFFSET:
                m.server_read = min(offset, self.acked_from[k]) if self.acked_from[k] != NO_OFFSET else offset
            elif m.server_read == 0 and self.start_seen[k] and not self.after_gap[k]:
                m.server_read = offset  # a header of the stream in front
            if offset > m.server_read:
                m._server_hole(offset, ack, self.ts_ns[k])
        if end > m.server_read:
            m.server_read = end
        m.server_truncated = self.truncated[k]
        if self.index[k] >= 0:
            r = Reply()
            self._read(r, k)
            m.add(r, False)
        elif self.index[k] == UNREAD:
            r = phantom_reply(end, ack, self.shortest, True)
            r.ts_ns, r.end_ns = self.ts_ns[k], self.end_ns[k]
            m.add(r, False)
        else:
            m.other(False, end, ack, self.ts_ns[k], self.end_ns[k])
        if m.has_waiting and m.waiting_requests:
            m.release(False)


@cython.boundscheck(False)
@cython.wraparound(False)
def match_messages(
    matchers: dict[int, TcpOrder], matcher_type: Callable[..., TcpOrder], tables: RequestTables, results: MatchResults,
    rows: Messages,
) -> None:  # fmt: skip
    """Give messages to the matchers of their connections."""
    columns: _MessageColumns = _MessageColumns(rows, tables)
    order: cython.const[cython.longlong][:] = memoryview(rows.order)
    flow: cython.const[cython.longlong][:] = memoryview(rows.batch.flow)
    client: cython.const[cython.uchar][:] = _bytes(rows.client)
    opens: cython.const[cython.uchar][:] = _bytes(rows.opens)
    m: TcpOrder
    current: cython.longlong
    i: cython.Py_ssize_t = 0
    k: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(rows.order)
    was_deferred: cython.bint
    while i < count:
        k = order[i]
        current = flow[k]
        if current in matchers:
            m = matchers[current]
        else:
            m = matchers[current] = matcher_type(tables, current, bool(opens[k]), results)
            m.last_ns = columns.ts_ns[k]
            if not columns.start_seen[k]:
                m.client_read = m.server_read = NO_OFFSET
            if current == results.watched_flow:
                m.replay = results.replay
                m.replay.add("start", MISSING, MISSING, MISSING, 0 if opens[k] else 1)
        while i < count and flow[order[i]] == current:
            k = order[i]
            i += 1
            was_deferred = m.is_deferred
            if m.has_waiting:
                m.defer(columns.ts_ns[order[i]] if i < count and flow[order[i]] == current else NEVER)
            if client[k]:
                columns.feed_client(m, k)
            else:
                columns.feed_server(m, k)
            if was_deferred and not m.is_deferred:
                m.release(False)
        results.open_bytes += m.recount()
