"""Small sample captures that come with the package, one or two of each protocol.

In: a folder. Out: the captures in it, under the names that the examples of the help texts use (``blipmq/qos1.pcap``).
Called by: ``mqpcap samples`` and users, as ``mqpcap.samples``.

Each is a copy of a capture in ``pcaps`` of the repository.
"""

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from os import PathLike
from pathlib import Path

from mqpcap.errors import OutputError


def samples(folder: str | PathLike[str]) -> list[Path]:
    """Writes the captures into a folder, which is made if there is none; returns their paths.

    Raises OutputError if a file of such a name has other content: no file is replaced. After an error nothing is left.
    """
    paths = []
    new_paths: list[Path] = []
    try:
        for name, capture in sorted(_captures()):
            path, content = Path(folder) / name, capture.read_bytes()
            if path.exists() and (not path.is_file() or path.read_bytes() != content):
                raise OutputError(f"{path} exists with other content; samples replaces no file")
            for parent in reversed(path.parents):
                if not parent.exists():
                    parent.mkdir()
                    new_paths.append(parent)
            if not path.exists():
                with path.open("xb") as file:
                    new_paths.append(path)
                    file.write(content)
            paths.append(path)
    except BaseException:
        for written in reversed(new_paths):
            if written.is_dir():
                written.rmdir()
            else:
                written.unlink()
        raise
    return paths


def _captures() -> Iterator[tuple[str, Traversable]]:
    for protocol in files(__name__).iterdir():
        if protocol.is_dir():
            for capture in protocol.iterdir():
                if capture.name.endswith(".pcap"):
                    yield f"{protocol.name}/{capture.name}", capture
