"""``mqpcap wireshark``: dissectors for Wireshark, made of the descriptions of the protocols."""

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import put
from mqpcap.errors import MisuseError, QueryError
from mqpcap.wording import shown


@command(epilog="Example: mqpcap wireshark blipmq flymq")
@click.argument("names", nargs=-1, metavar="[PROTOCOL...]")
@click.option("--install", is_flag=True, help="Write the file to Wireshark's folder of Lua plugins, and name it.")
def wireshark(names: tuple[str, ...], install: bool) -> None:
    """Write a Lua file with Wireshark dissectors of protocols.

    Fields have the names of the tables: blipmq.topic, and mqpcap.op, mqpcap.destination, mqpcap.body_len for all. The
    file names what it cannot express. Secrets are shown as the packets have them.
    """
    from mqpcap import dissectors

    try:
        text = dissectors.wireshark(*names, install=install)
    except (ValueError, QueryError) as error:
        raise MisuseError(str(error)) from None
    put(shown(text) if install else text)
