"""``mqpcap protocols``: what can be read, and how it is recognised."""

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import put, put_paragraph


@command(epilog="Example: mqpcap protocols")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON array with an object per protocol.")
def protocols(as_json: bool) -> None:
    """List the protocols, their ports, and how they are recognised."""
    from mqpcap.protocols import described
    from mqpcap.tables.json_lines import json_text

    facts = described()
    if as_json:
        put(json_text(facts))
        return
    for entry in facts:
        ports, dialects, names = (", ".join(map(str, entry[key])) for key in ("ports", "dialects", "operations"))
        put(f"{entry['name']}: {entry['title']}, TCP port {ports or 'of no fixed number'}")
        names = names or "as each message names them"
        for head, text in ("dialects", dialects), ("operations", names), ("recognised", entry["recognised"]):
            put_paragraph(f"  {head:<12}", text, 14)
