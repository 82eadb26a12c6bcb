"""Runs the command line, as ``mqpcap`` or ``python -m mqpcap``; Ctrl-C or a lack of memory while it loads is a line."""

import os
import sys


def main() -> None:
    """Runs the command; Ctrl-C before it has started prints a single line, too."""
    try:
        from mqpcap.cli import main as command

        command()
    except (ImportError, MemoryError, RuntimeError) as error:
        from mqpcap.wording import error_line, is_out_of_memory

        if not is_out_of_memory(error):
            raise
        sys.exit(f"mqpcap: {error_line(error)}")
    except KeyboardInterrupt:
        from contextlib import suppress

        with suppress(OSError):
            os.write(2, b"mqpcap: interrupted\n")
        # Not sys.exit: if Ctrl-C ended code run by `exec`, CPython counts it as unhandled and ends by the signal.
        os._exit(1)


if __name__ == "__main__":
    main()
