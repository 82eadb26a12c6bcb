# cython: language_level=3
"""Requests and replies as dialogues take them, and what a client asked so far.

Whether replies can be told apart where bytes are missing depends on habits of the client: it may count its requests
(:class:`Asked`), and give the server messages that come back to it (:class:`Given`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mqpcap.schema.requests import I64

NO_TIE = -(1 << 63)
"""Of a message that was not captured whole, so that it is not known what it repeats."""
MAX_GIVEN = 1 << 10
"""Messages that a client gave the server, remembered to tell which request brought one of them back."""
MAX_TIES = 1 << 12
"""Ties of requests that a connection with missing requests remembers, to tell which replies nobody asked for."""
STEADY = 3
RISING = 8
"""Equal steps, or steps upwards, that show that a client numbers its requests."""


class Request(NamedTuple):
    """A request: its row, what it is, and when it was captured. ``item``: see `Lane.items`."""

    row: int
    code: int
    tie: int
    item: int
    ts_ns: int
    end_ns: int
    offset: int
    cut: bool = False


class Reply(NamedTuple):
    """A reply. ``since``: where the client gave the message that it brings, -1 if it did not; its request is behind."""

    row: int
    code: int
    tie: int
    item: int
    ts_ns: int
    since: int = -1


class Requests(NamedTuple):
    """Requests of a connection that follow each other with no reply between: an array a column, as of Request."""

    rows: I64
    codes: I64
    ties: I64
    items: I64
    ts_ns: I64
    end_ns: I64
    offset: I64
    numbers: Sequence[I64]

    def each(self) -> Iterator[Request]:
        """One after the other."""
        for one in zip(*(column.tolist() for column in self[:7]), strict=True):
            yield Request(*one)


class _Counter:
    """Whether the numbers of a client's requests go up."""

    __slots__ = ("even", "falls", "last", "step", "steps")

    def __init__(self) -> None:
        self.last = -1
        self.steps, self.step = 0, 0
        self.even, self.falls = True, False

    def add(self, number: int) -> None:
        """The next number; -1 is none."""
        if number < 0:
            return
        if self.last >= 0:
            step = number - self.last
            self.falls = self.falls or step <= 0
            self.even = self.even and (self.steps == 0 or step == self.step)
            self.step = step
            self.steps += 1
        self.last = number

    def add_all(self, numbers: I64) -> None:
        """The next numbers."""
        numbers = numbers[numbers >= 0]
        for number in numbers[:2].tolist():
            self.add(number)
        if len(numbers) > 2:
            steps = np.diff(numbers[1:])
            self.falls = self.falls or bool((steps <= 0).any())
            self.even = self.even and bool((steps == self.step).all())
            self.steps += len(steps)
            self.step, self.last = int(steps[-1]), int(numbers[-1])

    @property
    def rises(self) -> bool:
        """Connections may share a counter, so equal steps are sooner a proof than steps upwards."""
        return not self.falls and (self.steps >= RISING or (self.even and self.steps >= STEADY))


class Asked:
    """What a client asked so far: whether it counts its requests, and the ties that replies may repeat."""

    __slots__ = ("counters", "ties", "unread", "unread_count")

    def __init__(self) -> None:
        self.counters: list[_Counter] = []
        self.ties: set[int] = set()
        self.unread: list[I64] = []
        self.unread_count = 0

    def count(self, numbers: Sequence[int]) -> None:
        """The numbers of one request."""
        if self.unread:
            self._read()
        if not self.counters:
            self.counters = [_Counter() for _ in numbers]
        for counter, number in zip(self.counters, numbers, strict=True):
            counter.add(number)

    def note(self, tie: int) -> None:
        """The tie of one request."""
        if len(self.ties) < MAX_TIES:
            self.ties.add(tie)

    def add_all(self, told: I64) -> None:
        """The tie and the numbers of requests, a row each; they are looked at when somebody asks."""
        self.unread.append(told)
        self.unread_count += len(told)
        if self.unread_count > MAX_TIES:
            self._read()

    def _read(self) -> None:
        unread, self.unread, self.unread_count = np.concatenate(self.unread), [], 0
        if not self.counters:
            self.counters = [_Counter() for _ in range(unread.shape[1] - 1)]
        for counter, numbers in zip(self.counters, unread.T[1:], strict=True):
            counter.add_all(numbers)
        if len(self.ties) < MAX_TIES:
            self.ties.update(unread[:, 0].tolist())

    @property
    def counts_up(self) -> bool:
        """Whether the client numbers its requests, so that a number is never used twice."""
        if self.unread:
            self._read()
        return any(counter.rises for counter in self.counters)

    def may_have(self, tie: int) -> bool:
        """Whether a request may have had a tie."""
        if self.unread:
            self._read()
        return tie == NO_TIE or tie in self.ties or len(self.ties) >= MAX_TIES


class Given:
    """Messages that a client gave the server, to tell which request brought one of them back.

    The server handles a connection's requests one after the other (BlipMQ: net/src/connection.rs), so a request that
    brings back what the client gave came behind it, and of several that read one queue the first gets what was in it.
    """

    __slots__ = ("at", "repeats")

    def __init__(self) -> None:
        self.at: dict[int, int] = {}
        self.repeats = False

    def add(self, q: Request) -> None:
        """A request with a message."""
        if len(self.at) < MAX_GIVEN:
            self.repeats = self.repeats or q.item in self.at
            self.at[q.item] = q.offset

    def brought(self, item: int) -> int:
        """Where a message was given that now comes back for the first time; a second time says nothing."""
        since = self.at.get(item, -1)
        if since >= 0:
            self.at[item] = -1
        return since

    @property
    def are_own(self) -> bool:
        """Whether nobody else gives such messages: the client never gave one twice."""
        return not self.repeats and len(self.at) >= STEADY


class Talk(Protocol):
    """What messages of a connection are told to."""

    def request(self, q: Request, numbers: Sequence[int]) -> int:
        """Take a request in; returns its kind."""

    def reply(self, r: Reply) -> None:
        """Take a reply in."""

    def gap(self, from_client: bool, offset: int) -> None:
        """Bytes of a side are missing."""


def converse(
    dialogue: Talk,
    first_row: int,
    columns: Sequence[Sequence[int]],
    numbers: Sequence[Sequence[int]],
    kinds: NDArray[np.int8],
) -> list[tuple[int, int]]:
    """Take rows through a dialogue; returns places and kinds of requests that are not of the kind they are taken for.

    ``columns``: place among the rows (-1: no request and no reply), code, tie, item, ts_ns, end_ns, offset,
    from_client, broken, cut.
    """
    other: list[tuple[int, int]] = []
    for (at, code, tie, item, ts_ns, end_ns, offset, client, broken, cut), counted in zip(zip(*columns), numbers):  # noqa: B905
        if broken:
            dialogue.gap(bool(client), offset)
        if at < 0:
            continue
        if client:
            kind = dialogue.request(Request(first_row + at, code, tie, item, ts_ns, end_ns, offset, bool(cut)), counted)
            if kind != kinds[at]:
                other.append((at, kind))
        else:
            dialogue.reply(Reply(first_row + at, code, tie, item, ts_ns))
    return other
