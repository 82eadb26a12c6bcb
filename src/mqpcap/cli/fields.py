"""``mqpcap fields``: every name that filters, --fields and --by take, and every column of the tables."""

import sys

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import PARAGRAPH_WIDTH, put, put_lines, width_of
from mqpcap.wording import misuse_of


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
    put_lines(rows.lines(min(width_of(sys.stdout) or PARAGRAPH_WIDTH, PARAGRAPH_WIDTH)))
