"""The process that a command is, as ``mqpcap`` or ``python -m mqpcap``: the command line, also while it is loaded."""

import os
from contextlib import suppress


def main() -> None:
    """Run the command; Ctrl-C before it runs is one line, too."""
    try:
        from mqpcap.cli import main as command

        command()
    except KeyboardInterrupt:
        with suppress(OSError):
            os.write(2, b"mqpcap: interrupted\n")
        os._exit(1)  # Python would end by the signal where it came in code made by `exec`


if __name__ == "__main__":
    main()
