# cython: language_level=3
"""Ids and messages of a client: whether each is unique, and which delivery returns the client's own message.

In: the requests and replies of one connection. Out: answers for its ``matcher``.
"""

import cython

from mqpcap.correlate.messages import Reply, Request

MAX_KEYS = 1 << 12
"""Echo keys of requests that are remembered, and ids of a client: whether it uses each once is decided by these."""
MAX_PUBLISHES = 1 << 10
"""Messages of a client that are remembered, so that their delivery is recognised."""
MIN_UNIQUE = 3
"""Different ids that show that a client does not use one id for all requests; messages likewise."""
DELIVERED = -2
"""In place of a publish's stream offset: its message was delivered before."""

_MAX_KEYS = cython.declare(cython.Py_ssize_t, MAX_KEYS)
_MAX_PUBLISHES = cython.declare(cython.Py_ssize_t, MAX_PUBLISHES)


@cython.cclass
class Publish:
    """The stream offset of the client's last publish of a message; DELIVERED after its delivery.

    An object that is changed in place takes half the time of a number that is replaced.
    """

    offset: cython.longlong


@cython.cclass
class ClientKeys:
    """Keys of one client's requests; see the module.

    keys        echo keys of captured requests, the first ones
    ids         ids of the client, the first ones
    publishes   `Publish` by payload key

    If ``has_forgotten``, nothing more is remembered, and nothing is decided by it.
    """

    keys: set[int]
    ids: set[int]
    publishes: dict[int, Publish]

    def __init__(self) -> None:
        self.keys, self.ids, self.publishes = set(), set(), {}
        self.publish_count, self.ids_repeat, self.publishes_repeat, self.has_forgotten = 0, False, False, False

    @cython.cfunc
    def count(self) -> cython.Py_ssize_t:
        """Keys that are stored."""
        return len(self.keys) + len(self.ids) + len(self.publishes)

    @cython.cfunc
    def forget(self) -> cython.void:
        """Forget all, to make room."""
        self.has_forgotten = True
        self.keys.clear()
        self.ids.clear()
        self.publishes.clear()

    @cython.cfunc
    def add(self, q: Request) -> cython.void:
        """Note what a request names."""
        if self.has_forgotten:
            return
        if q.payload_key > 0 and len(self.publishes) < _MAX_PUBLISHES:
            publish: Publish | None = self.publishes.get(q.payload_key)
            if publish is None:
                publish = self.publishes[q.payload_key] = Publish()
            else:
                self.publishes_repeat = True
            publish.offset = q.offset
            self.publish_count += 1
        if len(self.keys) < _MAX_KEYS:
            self.keys.add(q.echo_key)
        if q.has_id and not self.ids_repeat and len(self.ids) < _MAX_KEYS:
            self.ids_repeat = q.echo_key in self.ids
            self.ids.add(q.echo_key)

    @cython.cfunc
    def publish_offset(self, r: Reply) -> cython.longlong:
        """The offset of the client's own publish of a returned message; negative without one, or if it came before."""
        if not r.payload_key or not self.publishes:
            return -1
        publish: Publish | None = self.publishes.get(r.payload_key)
        if publish is None:
            return -1
        offset: cython.longlong = publish.offset
        publish.offset = DELIVERED
        return offset

    @cython.cfunc
    def may_be_used(self, key: cython.longlong) -> cython.bint:
        """Whether a captured request may have an echo key."""
        return self.has_forgotten or key in self.keys or len(self.keys) >= _MAX_KEYS

    @cython.cfunc
    def has_unique_ids(self) -> cython.bint:
        """Whether the client uses each id once, as far as its requests tell."""
        return not self.ids_repeat and len(self.ids) >= MIN_UNIQUE

    @cython.cfunc
    def has_unique_publishes(self) -> cython.bint:
        """Whether no message was published twice, and enough were published to show it."""
        return self.publishes_differ() and self.publish_count >= MIN_UNIQUE

    @cython.cfunc
    def publishes_differ(self) -> cython.bint:
        """Whether no message was published twice, as far as is known."""
        return not self.publishes_repeat and not self.has_forgotten
