"""The filter language: parses filters, and selects the messages that match.

In: a filter as text, for example ``op == "PUBLISH" and topic matches "^orders" and latency > 50ms``, and the outputs of
a pipeline. Out: the selected rows. Called by: ``recording``, the commands, Spark's data source.

:func:`query` checks all names and values, so that an error is reported before a capture is read. A :class:`Query` names
the columns that it needs, and selects rows batch by batch. README.md in this directory describes the language.
"""

from mqpcap.query.evaluation import FilterInput
from mqpcap.query.filter import EVERYTHING, Query, of_tree, query
from mqpcap.query.filter_columns import names
from mqpcap.query.grammar import Comparison
from mqpcap.query.match_tally import MatchTally
from mqpcap.query.selection import MessageSelection, Selection
from mqpcap.query.shortcuts import WORDS, shortcut_queries
from mqpcap.query.values import Moment
from mqpcap.tables.joining import exchanges_of

__all__ = [
    "EVERYTHING", "WORDS", "Comparison", "FilterInput", "MatchTally", "MessageSelection", "Moment", "Query",
    "Selection", "exchanges_of", "names", "of_tree", "query", "shortcut_queries",
]  # fmt: skip
