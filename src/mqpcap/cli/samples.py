"""``mqpcap samples``: small captures to try the commands with."""

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import put


@command(epilog="Example: mqpcap samples pcaps")
@click.argument("folder", type=click.Path(), metavar="DIR")
def samples(folder: str) -> None:
    """Write small sample captures of each protocol into DIR.

    The examples of all commands work in the folder that has them as DIR "pcaps". No file is replaced.
    """
    from mqpcap import sample_captures
    from mqpcap.wording import shown

    for path in sample_captures.samples(folder):
        put(shown(str(path)))
