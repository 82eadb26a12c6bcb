"""Runs work on a background thread, a window ahead."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:  # a short command needs no pool
    from concurrent.futures import Executor, Future

MAX_QUEUED = 2
"""Items that wait or run, a window's rows and its pairs; a further one waits for the oldest. More would take memory."""
Item = TypeVar("Item")


class Background:
    """Runs items of work in the order given: in ``pool``, which has one thread, or at once where there is none.

    What an item raises is raised by the next call of ``submit`` or ``wait``.

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
        """The items, each made in the pool while the one before it is used."""
        if self._pool is None:
            yield from items
            return
        end = object()
        following = self._pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = self._pool.submit(next, items, end)
            yield cast(Item, item)

    def wait(self) -> None:
        """Return when all is done."""
        while self._under_way:
            self._under_way.popleft().result()
