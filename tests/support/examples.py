"""How many examples a property is tried with: few in every run, more by hand, as ``MQPCAP_EXAMPLES=10 pytest``."""

import os

from hypothesis import settings


def examples(count: int) -> settings:
    """So many, or a multiple of them."""
    return settings(max_examples=count * int(os.environ.get("MQPCAP_EXAMPLES", "1")))
