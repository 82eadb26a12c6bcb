"""The catalog of a lake: its recordings, the files that were taken, and where each recording's state is.

A catalog is a JSON file for each run, ``_mqpcap/RUN.json``. A file is known by its content: the fingerprint of its
first packets, and then of all. Its path, size and time only spare reading it again.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mqpcap.capture.inputs import InputFile
from mqpcap.capture.windows import WindowReader
from mqpcap.decode.columns import gathered
from mqpcap.errors import OutputError

FOLDER: Final = "_mqpcap"
"""The folder of a lake with everything that is no table."""
FORMAT: Final = 2
"""Grows when a catalog changes its form."""
HEAD_PACKETS: Final = 64
"""Packets in the fingerprint of a file's beginning."""


@dataclass(slots=True)
class TakenFile:
    """A file of a recording.

    - head: fingerprint of its first packets.
    - row: its row of the table ``captures``.
    - copies: path, size and time (ns) of the file and its copies. They spare reading it again.
    """

    path: str
    head: str
    row: dict[str, Any]
    copies: list[tuple[str, int, int]]

    @property
    def stats(self) -> set[tuple[str, int, int]]:
        """The copies, for lookups."""
        return {(path, size_bytes, modified_ns) for path, size_bytes, modified_ns in self.copies}


@dataclass(slots=True, eq=False)
class Recording:
    """A recording: ``key`` is its folder and its name without counter and time; ``state`` the name of a file."""

    capture: str
    key: tuple[str, str]
    files: list[TakenFile] = field(default_factory=list)
    state: str | None = None

    @property
    def first_ns(self) -> int:
        """The time of its first packet."""
        return min((file.row["first_ts_ns"] or 0 for file in self.files), default=0)

    @property
    def last_ns(self) -> int:
        """The time of its last packet."""
        return max((file.row["last_ts_ns"] or 0 for file in self.files), default=0)


@dataclass(slots=True)
class Catalog:
    """Everything that a run leaves for the next."""

    run: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    recordings: list[Recording] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    """Files of a recording that is taken anew."""
    removing: list[str] = field(default_factory=list)
    """Captures whose rows are being removed."""
    aside: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    """Size, time (ns) and reason of files that were not taken, by path."""

    def files(self) -> Iterator[tuple[Recording, TakenFile]]:
        """All files that were taken."""
        for recording in self.recordings:
            for file in recording.files:
                yield recording, file

    def text(self) -> str:
        """The catalog as JSON."""
        return json.dumps({"format": FORMAT} | _attributes(self), default=_attributes)


def _attributes(item: object) -> dict[str, Any]:
    """The attributes of a part of the catalog, which `asdict` would copy."""
    return {name: getattr(item, name) for name in type(item).__slots__}  # type: ignore[attr-defined]


def load_catalog(folder: Path, run: int) -> Catalog:
    """The catalog that a run left; raises OutputError if it is damaged or of another release."""
    if not run:
        return Catalog()
    path = folder / FOLDER / f"{run:06d}.json"
    try:
        content = json.loads(path.read_text("utf-8"))
        if content.pop("format") != FORMAT:
            raise OutputError(f"{folder} was written by another release of mqpcap; export its captures to a new lake")
        recordings = [
            Recording(
                x["capture"], tuple(x["key"]), [TakenFile(**file) for file in x["files"]], _state_name(x["state"])
            )
            for x in content.pop("recordings")
        ]
        return Catalog(recordings=recordings, **content)
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise OutputError(f"{path} is damaged; restore it, or export the captures to a new lake") from error


def _state_name(name: str | None) -> str | None:
    if name is not None and os.path.basename(name) != name:
        raise ValueError(name)
    return name


def save(path: Path, content: bytes) -> None:
    """Writes a file that only its owner may read or change: it may hold captured secrets."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def head_of(path: str) -> str:
    """The fingerprint of a file's first packets: their times and bytes; empty without packets.

    Raises CaptureError and OSError as reading does.
    """
    source = InputFile(path, path).open()
    try:
        for window in WindowReader(path, 0, source).windows():
            count = min(HEAD_PACKETS, len(window.ts_ns))
            head = hashlib.sha256(window.ts_ns[:count].tobytes())
            head.update(gathered(window.buffer, window.offset[:count], window.caplen[:count])[0].tobytes())
            return head.hexdigest()
    finally:
        source.close()
    return ""
