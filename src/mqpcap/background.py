"""Work done behind who gives it: in a thread of its own, one piece after the other, while the next is made ready."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a short command needs no pool
    from concurrent.futures import Executor, Future

AHEAD = 1
"""So many pieces wait or are being done; who gives more waits for the oldest. More take memory and no less time."""


class Background:
    """Does pieces of work in the order given: in ``pool``, which has one thread, or at once where there is none.

    What a piece raises is raised by the next call of ``do`` or ``wait``.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> done = []
    >>> with ThreadPoolExecutor(1) as pool:
    ...     behind = Background(pool)
    ...     for k in range(5):
    ...         behind.do(lambda k=k: done.append(k))
    ...     behind.wait()
    >>> done
    [0, 1, 2, 3, 4]
    """

    def __init__(self, pool: "Executor | None" = None) -> None:
        self._pool = pool
        self._under_way: deque[Future[None]] = deque()

    def do(self, work: Callable[[], None]) -> None:
        """Has a piece done."""
        if self._pool is None:
            work()
            return
        while len(self._under_way) >= AHEAD:
            self._under_way.popleft().result()
        self._under_way.append(self._pool.submit(work))

    def wait(self) -> None:
        """Returns when all is done."""
        while self._under_way:
            self._under_way.popleft().result()
