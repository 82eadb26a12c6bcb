"""Rows of a report that a test selects, in the order of a column: ``--having`` and ``--sort``.

In: the columns and rows of a report. Out: the selected rows. Called by: ``stats``, and ``mqpcap.stats``.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from mqpcap.errors import QueryError
from mqpcap.query.grammar import Comparison, Logic, Tree, parsed
from mqpcap.query.values import duration_ns, integer
from mqpcap.statistics.report_columns import Cells, Column
from mqpcap.wording import misuse_of

SHORT_NAMES = {
    **{name: f"latency_{name}_ns" for name in ("p50", "p95", "p99", "max")}, "count": "messages",
    "latency": "latency_p99_ns",
}  # fmt: skip
"""Short names of columns, if the report has no column of such a name."""
_RELATIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "in": operator.eq,
}  # fmt: skip


def chosen(
    columns: Sequence[Column], rows: Sequence[Cells], having: str | None, sort: str | None, reverse: bool
) -> list[Cells]:
    """The rows that pass a test on columns, sorted by a column: numbers from the largest, text from A.

    Rows without a value come last. Raises QueryError for an unknown column or a value that is none.
    """
    result = list(rows)
    if having is not None:
        tree = parsed(having)
        result = [row for row in result if _is_true(tree, columns, row)]
    if sort is None:
        return result[::-1] if reverse else result
    column = named_column(columns, sort)
    is_number = column.kind not in ("text", "plain", "file")
    with_value = [row for row in result if row.get(column.name) is not None]
    with_value.sort(key=lambda row: _sort_key(row[column.name]), reverse=is_number != reverse)
    return with_value + [row for row in result if row.get(column.name) is None]


def checked(columns: Sequence[Column], having: str | None, sort: str | None) -> None:
    """Raises MisuseError if the test or the column is none of this report, before anything is read."""
    if having is not None:
        with misuse_of("--having"):
            _is_true(parsed(having), columns, {})
    if sort is not None:
        with misuse_of("--sort"):
            named_column(columns, sort)


def named_column(columns: Sequence[Column], name: str) -> Column:
    """The column of a name or a short name; raises QueryError."""
    by_name = {column.name: column for column in columns}
    column = by_name.get(name) or by_name.get(SHORT_NAMES.get(name.lower(), ""))
    if column is None:
        raise QueryError(f"there is no column {name!r}; there are {', '.join(by_name)}")
    return column


def _sort_key(value: object) -> tuple[bool, object]:
    return isinstance(value, str), value


def _is_true(tree: Tree, columns: Sequence[Column], row: Cells) -> bool:
    if isinstance(tree, Logic):
        parts = [_is_true(part, columns, row) for part in tree.parts]
        return not all(parts) if tree.word == "not" else all(parts) if tree.word == "and" else any(parts)
    return _test(tree, named_column(columns, tree.name), row)


def _test(test: Comparison, column: Column, row: Cells) -> bool:
    value = row.get(column.name)
    if test.relation in ("is", "exists"):
        return value is not None
    relation = _RELATIONS.get(test.relation)
    if relation is None:
        raise QueryError(f"{column.name} is compared with {', '.join(_RELATIONS)}, not {test.relation}")
    wanted = [_parsed(str(word), column) for word in test.values]
    if value is None:
        return False
    cell = value if isinstance(wanted[0], int) and isinstance(value, int) else str(value)
    return any(relation(cell, word if isinstance(cell, int) else str(word)) for word in wanted)


def _parsed(word: str, column: Column) -> int | str:
    if column.kind == "ms":
        return duration_ns(word)
    if column.kind in ("number", "rare", "packet"):
        return integer(word)
    return word if not word.lstrip("-").isdecimal() else int(Decimal(word))
