"""How many examples a property is tried with: few in every run, more by hand, as ``MQPCAP_EXAMPLES=10 pytest``.

Examples are random values, seeds, and sample captures.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import Phase, settings

T = TypeVar("T")


def multiplied(count: int) -> int:
    """The count, or the multiple that is asked for."""
    return count * int(os.environ.get("MQPCAP_EXAMPLES", "1"))


def examples(count: int, shrink: bool = True) -> settings:
    """Settings with the count of examples; other settings are those of ``conftest.py``.

    ``shrink``: look for a smaller example if one fails. Without, a failure of a property that is slow comes at once.
    """
    phases = [phase for phase in Phase if shrink or phase not in (Phase.shrink, Phase.explain)]
    return settings(max_examples=multiplied(count), phases=phases)


def one_in(step: int, items: Sequence[T], first: int = 0) -> Sequence[T]:
    """One item of every ``step``, by turns another; more of them where more examples are asked for."""
    step = max(step // multiplied(1), 1)
    return items[first % step :: step]
