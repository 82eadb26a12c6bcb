"""The messages to show or count, by a filter, and their columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mqpcap.query import EVERYTHING, MatchTally, Query
from mqpcap.tables.output import Output

MAX_ASKING_BYTES = 256 << 20
"""Requests of a capture that wait for their outcome because only those with a certain one are asked for."""


@dataclass(frozen=True, slots=True)
class ShownMessages:
    """The messages to show: a filter, and their columns.

    columns: gives the columns of a protocol that are kept, None for all.
    left_out: columns of ``messages`` that nobody looks at.
    """

    query: Query = EVERYTHING
    columns: Callable[[str], tuple[str, ...]] | None = None
    left_out: Sequence[str] = ()
    tally: MatchTally | None = None

    def drop_unused_columns(self, output: Output) -> Output:
        """The messages without columns that nobody looks at."""
        if self.columns is None or output.fields is None or output.protocol is None:
            return output
        # Without a column a table has no rows.
        kept = {"op", *self.columns(output.protocol), *self.query.fields(output.protocol)}
        return replace(output, fields=output.fields.select([x for x in output.fields.column_names if x in kept]))
