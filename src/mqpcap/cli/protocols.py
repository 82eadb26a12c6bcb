"""``mqpcap protocols``: what can be read, and how it is recognised."""

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import put, put_paragraph
from mqpcap.errors import MisuseError


@command(epilog="Examples: mqpcap protocols\n          mqpcap protocols blipmq")
@click.argument("name", required=False, metavar="[PROTOCOL]")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON array with an object per protocol.")
@click.option("--markdown", is_flag=True, help="Write the reference of PROTOCOL as Markdown.")
def protocols(name: str | None, as_json: bool, markdown: bool) -> None:
    """List the protocols, their ports, and how they are recognised.

    The reference of one PROTOCOL has each operation with its fields in wire order (types, units, values, columns), and
    the operations that answer it.
    """
    from mqpcap.protocols import described
    from mqpcap.schema.reference import lines
    from mqpcap.tables.json_lines import json_text

    if markdown and (name is None or as_json):
        raise click.UsageError("--markdown is of one PROTOCOL, and not with --json")
    try:
        facts = described(name)
    except ValueError as error:
        raise MisuseError(str(error)) from None
    if as_json:
        put(json_text(facts))
        return
    if name is not None:
        for line in lines(facts[0], markdown):
            put(line)
        return
    for entry in facts:
        ports, dialects, names = (", ".join(map(str, entry[key])) for key in ("ports", "dialects", "operations"))
        put(f"{entry['name']}: {entry['title']}, TCP port {ports or 'of no fixed number'}")
        names = names or "as each message names them"
        for head, text in ("dialects", dialects), ("operations", names), ("recognised", entry["recognised"]):
            put_paragraph(f"  {head:<12}", text, 14)
