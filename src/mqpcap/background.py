"""Runs work on one background thread, so that decoding and writing overlap.

In: functions and iterators. Called by: ``pipeline`` and the commands.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:  # a short command needs no pool
    from concurrent.futures import Executor, Future

MAX_QUEUED = 2
"""Items that are queued or run: the rows of a window and its pairs. A further item waits for the oldest."""
Item = TypeVar("Item")


class Background:
    """Runs items of work in order: in ``pool``, which has one thread, or at once without a pool.

    An error of an item is raised by the next call of ``submit`` or ``wait``.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> done = []
    >>> with ThreadPoolExecutor(1) as pool:
    ...     background = Background(pool)
    ...     for k in range(5):
    ...         background.submit(lambda k=k: done.append(k))
    ...     background.wait()
    >>> done
    [0, 1, 2, 3, 4]
    """

    def __init__(self, pool: "Executor | None" = None) -> None:
        self._pool = pool
        self._under_way: deque[Future[None]] = deque()

    def submit(self, work: Callable[[], None]) -> None:
        """Run an item."""
        if self._pool is None:
            work()
            return
        while len(self._under_way) >= MAX_QUEUED:
            self._under_way.popleft().result()
        self._under_way.append(self._pool.submit(work))

    def prefetch(self, items: Iterator[Item]) -> Iterator[Item]:
        """The items; the pool computes the next item while the caller uses the current item."""
        if self._pool is None:
            yield from items
            return
        end = object()
        following = self._pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = self._pool.submit(next, items, end)
            yield cast(Item, item)

    def wait(self) -> None:
        """Return once all items are done."""
        while self._under_way:
            self._under_way.popleft().result()
