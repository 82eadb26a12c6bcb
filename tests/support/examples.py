"""How many examples a property is tried with: few in every run, more by hand, as ``MQPCAP_EXAMPLES=10 pytest``."""

import os

from hypothesis import settings


def multiplied(count: int) -> int:
    """The count, or the multiple that is asked for."""
    return count * int(os.environ.get("MQPCAP_EXAMPLES", "1"))


def examples(count: int) -> settings:
    """Settings with the count of examples; other settings are those of ``conftest.py``."""
    return settings(max_examples=multiplied(count))
