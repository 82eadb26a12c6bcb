"""``python -m mqpcap``: the command line without its script."""

from mqpcap.cli import main

if __name__ == "__main__":
    main(prog_name="python -m mqpcap")
