"""The page of fields, made of what ``mqpcap fields`` lists.

``python tests/support/fields_page.py`` prints the page, with ``--write`` it renews it.
"""

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import mqpcap
from mqpcap.query.field_catalogue import Field

PAGE = Path(__file__).resolve().parents[2] / "src/mqpcap/query/FIELDS.md"
HEAD = """# Every field

Names as filters (`-Y`), `--fields` and `--by` take them, and the columns of the tables. `mqpcap fields` prints them,
and the Parquet files have the meanings as comments of their columns. A field of a protocol also goes without its
protocol: `key` for `flymq.key`. `python tests/support/fields_page.py --write` renews this page.
"""


def page() -> str:
    """The page as Markdown."""
    return HEAD + "".join(
        _section(table, list(fields)) for table, fields in groupby(mqpcap.fields(), lambda x: x.table)
    )


def _section(table: str, fields: list[Field]) -> str:
    columns = "" if any(field.in_filters for field in fields) else ", columns of the table"
    return (
        "\n".join([f"\n## {table}{columns}\n", "| name | type | meaning |", "|---|---|---|", *map(_row, fields)]) + "\n"
    )


def _row(field: Field) -> str:
    return f"| `{field.name}` | {field.type} | {'; '.join(_words(field)).replace('|', '&#124;')} |"


def _words(field: Field) -> Iterator[str]:
    if field.meaning:
        yield field.meaning
    if field.unit:
        yield f"in {field.unit}"
    if field.values:
        yield f"values: {', '.join(field.values)}"
    if field.aliases:
        yield "also " + ", ".join(f"`{alias}`" for alias in field.aliases)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
