"""Work on a background thread."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from mqpcap.background import MAX_QUEUED, Background


def test_without_a_pool_work_is_done_at_once() -> None:
    done: list[int] = []
    Background().submit(lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()]


def test_no_more_than_some_pieces_are_ahead() -> None:
    go, begun = threading.Event(), list[int]()

    def piece(k: int) -> None:
        go.wait(10)
        begun.append(k)

    with ThreadPoolExecutor(1) as pool:
        behind = Background(pool)
        for k in range(MAX_QUEUED):
            behind.submit(partial(piece, k))
        late = threading.Thread(target=behind.submit, args=(partial(piece, MAX_QUEUED),))
        late.start()
        late.join(0.05)
        assert late.is_alive() and begun == []
        go.set()
        late.join(10)
        behind.wait()
    assert begun == list(range(MAX_QUEUED + 1))


def test_what_a_piece_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("of the piece")

    with ThreadPoolExecutor(1) as pool:
        behind = Background(pool)
        behind.submit(fail)
        with pytest.raises(ValueError, match="of the piece"):
            behind.wait()
        behind.wait()
        behind.submit(fail)
        with pytest.raises(ValueError, match="of the piece"):
            for _ in range(MAX_QUEUED):
                behind.submit(lambda: None)


@pytest.mark.parametrize("threads", [0, 1])
def test_items_are_made_ahead_one_at_a_time(threads: int) -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for k in range(5):
            made.append(k)
            yield k
        raise ValueError("no more")

    used: list[int] = []
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="no more"):
        for item in Background(pool if threads else None).prefetch(items()):
            used.append(item)
            assert len(made) <= len(used) + threads
    assert used == made == [0, 1, 2, 3, 4]
