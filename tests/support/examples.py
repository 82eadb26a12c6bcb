"""How many examples a property is tried with: few in every run, more by hand, as ``MQPCAP_EXAMPLES=10 pytest``."""

import os

from hypothesis import settings


def examples(count: int) -> settings:
    """Settings with the count, or a multiple of it; other settings are those of ``conftest.py``."""
    return settings(max_examples=count * int(os.environ.get("MQPCAP_EXAMPLES", "1")))
