"""Counts of the packets of an interface, given again and again while packets come."""

import time
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Protocol, TypeVar

from mqpcap.capture import Capture, InputWait
from mqpcap.capture.interface import Interface
from mqpcap.errors import CaptureError

Result = TypeVar("Result")


class Count(Protocol):
    """A function that counts captures."""

    def __call__(self, captures: Sequence[Capture], *, tick: Callable[[], None]) -> None:
        """Count them; ``tick`` is called after each window of packets."""


def renewed(
    interface: str, bpf: str | None, every_s: float, count: Count, result: Callable[[], Result]
) -> Iterator[Result]:
    """The result of counting after each time, also while no packets come; the interface is closed with the iterator.

    Counting is done by a thread, which alone calls ``result``. Raises CaptureError if the interface fails.
    """
    listener = Interface(interface, bpf)
    results: SimpleQueue[Result | Exception] = SimpleQueue()
    next_s = time.monotonic() + every_s

    def tick() -> None:
        nonlocal next_s
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + every_s
            results.put(result())

    def run() -> None:
        try:
            capture = listener.capture()
            capture.wait = InputWait(tick)
            count([capture], tick=tick)
            results.put(CaptureError(f"{interface}: {listener.failure or 'no more packets come'}"))
        except Exception as error:  # raised again by the iterator
            results.put(error)

    thread = Thread(target=run, name="mqpcap-count", daemon=True)
    thread.start()
    try:
        while not isinstance(item := results.get(), Exception):
            yield item
        raise item
    finally:
        listener.stop()
        thread.join()
        listener.close()
