"""Follows a capture file that is still being written, and its successors, as one capture.

In: the name of a file or directory. Out: a `Capture` that grows. Called by: the commands with ``--follow``.

A successor has the same name (the old file was moved away or emptied), or belongs to the same file set by its name and
times (``file_sets``). tcpdump -C and -G and dumpcap -b write such files.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from mqpcap.capture.file_sets import file_sets, rotated_name
from mqpcap.capture.inputs import Capture, InputFile, file_of_source, span
from mqpcap.capture.sources import InputWait, growing, open_path
from mqpcap.errors import CaptureError

LOOK_S = 0.1
"""Seconds between two looks for a successor."""


def follow_rotation(name: str, wait: InputWait, report: Callable[[str], None]) -> Capture:
    """The capture in a file that is still being written; in a directory, in the file that was written last.

    ``report`` is called with a sentence about each successor. Raises OSError if a file cannot be opened and
    CaptureError if it is not a capture.
    """
    if Path(name).is_dir():
        written = [(status.st_mtime_ns, str(path)) for path, status in _files(Path(name))]
        if not written:
            raise CaptureError(f"{name}: no capture in this directory")
        name = max(written)[1]
    follower = _RotationFollower(name, wait, report)
    capture = Capture((follower.open_file(wait),))
    capture.next_file = lambda: follower.next(capture.wait or wait)
    return capture


class _RotationFollower:
    def __init__(self, name: str, wait: InputWait, report: Callable[[str], None]) -> None:
        self._name, self._report = name, report
        self._next: str | None = None
        self._looked_s = 0.0

    def open_file(self, wait: InputWait) -> InputFile:
        """The current file, opened."""
        self._next = None
        source = growing(self._name, wait, self._has_successor)
        if source.compression is not None:
            source.close()
            raise CaptureError(f"{self._name}: a {source.compression} file cannot be followed")
        return file_of_source(self._name, source)

    def next(self, wait: InputWait) -> InputFile | None:
        """The successor, None at the end of the input."""
        if self._next is None:
            return None
        anew = self._next == self._name
        self._report(f"{self._name}: {'begun anew' if anew else 'goes on in ' + self._next}")
        self._name = self._next
        try:
            return self.open_file(wait)
        except CaptureError:
            if wait.is_over():  # before its header was written
                return None
            raise

    def _has_successor(self, file: BinaryIO) -> bool:
        """Whether this file was read to its end and has a successor."""
        if self._next is None and time.monotonic() - self._looked_s >= LOOK_S:
            self._looked_s = time.monotonic()
            self._next = self._successor(os.fstat(file.fileno()), file.tell())
        return self._next is not None

    def _successor(self, status_now: os.stat_result, position: int) -> str | None:
        path = Path(self._name)
        if status_now.st_size < position:
            return self._name
        later = []
        for candidate, status in _files(path.parent, rotated_name(path.name).key):
            if not os.path.samestat(status, status_now) and (
                candidate == path or status.st_mtime_ns > status_now.st_mtime_ns
            ):
                later.append((candidate != path, status.st_mtime_ns, candidate))
        for moved, _, candidate in sorted(later):
            if not moved or self._is_same_recording(candidate):
                return str(candidate) if moved else self._name
        return None

    def _is_same_recording(self, candidate: Path) -> bool:
        paths = [Path(self._name), candidate]
        sets = file_sets(
            [("", path.name) for path in paths], lambda k: span(str(paths[k]), lambda: open_path(paths[k]))
        )
        return sets == [[0, 1]]


def _files(folder: Path, key: str | None = None) -> Iterator[tuple[Path, os.stat_result]]:
    """The files of a folder; with a key only those whose rotated name has it."""
    for path in folder.iterdir():
        if key is None or rotated_name(path.name).key == key:
            try:
                status = path.stat()
            except OSError:  # it was taken away meanwhile
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status
