"""Which messages are wanted: filters as text, asked of columns.

:func:`query` reads a filter, such as ``op == "PUBLISH" and topic matches "^orders" and latency > 50ms``; names and
values are understood then, so that a wrong one is told before anything is read. A :class:`Query` says which columns it
needs and, batch by batch, which rows it selects. README.md beside this file says what the language has.
"""

from mqpcap.query.evaluation import FilterInput
from mqpcap.query.filter import EVERYTHING, Query, of_tree, query
from mqpcap.query.filter_columns import names
from mqpcap.query.grammar import Comparison
from mqpcap.query.selection import MessageSelector, Selection, exchanges_of
from mqpcap.query.values import Moment

__all__ = [
    "EVERYTHING", "Comparison", "FilterInput", "MessageSelector", "Moment", "Query", "Selection", "exchanges_of",
    "names", "of_tree", "query",
]  # fmt: skip
