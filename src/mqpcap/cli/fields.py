"""``mqpcap fields``: every name that filters, --fields and --by take, and every column of the tables."""

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import put, put_paragraph
from mqpcap.wording import misuse_of

NAME_WIDTH = 26


@command(epilog="Examples: mqpcap fields flymq\n          mqpcap fields messages --json")
@click.argument("name", required=False, metavar="[TABLE|PROTOCOL]")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON array with an object per field.")
def fields(name: str | None, as_json: bool) -> None:
    """List the fields: names with type, unit, values and meaning.

    Names of messages, exchanges and protocols are those of -Y, --fields and --by; a field of a protocol also goes
    without its protocol: key for flymq.key. The meanings are in the Parquet files, too, as comments of columns.
    """
    from mqpcap.query import field_catalogue
    from mqpcap.tables.json_lines import json_object, json_text

    with misuse_of():
        rows = field_catalogue.fields(name)
    if as_json:
        put(json_text([json_object(field.as_json()) for field in rows]))
        return
    table = ""
    for field in rows:
        if field.table != table:
            put(f"{chr(10) if table else ''}{field.table}{'' if field.in_filters else ' (columns of the table)'}")
            table = field.table
        notes = [field.meaning, f"in {field.unit}" if field.unit else ""]
        notes += [f"values: {', '.join(field.values)}" if field.values else ""]
        notes += [f"also {', '.join(field.aliases)}" if field.aliases else ""]
        kind = field.type if len(field.type) <= 18 else field.type.split("<")[0]
        head = f"  {field.name:<{NAME_WIDTH}} {kind:<18} "
        text = "; ".join(filter(None, notes))
        put_paragraph(head, text or "-", NAME_WIDTH + 22)
