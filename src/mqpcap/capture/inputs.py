"""Resolves what the user names (files, directories, globs, URIs, standard input) to captures.

In: names. Out: `FoundCaptures`. Called by: the commands, ``recording`` and Spark. Promises: a capture is recognised by
its content; a file reached twice is read once; a bad input never hides another. No regular file stays open between
finding and reading it; a pipe can be read once.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, field, replace
from functools import partial
from itertools import count, islice
from typing import BinaryIO, cast

from mqpcap.capture import boundaries, file_sets
from mqpcap.capture.sources import InputWait, PeekableStream, open_path, plain_bytes
from mqpcap.capture.windows import FileFacts, Note, Window, WindowReader, capture_format, other_format
from mqpcap.errors import CaptureError
from mqpcap.records import dataclass

STDIN = "-"
_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
MAX_NEIGHBOURS = 65_536
"""Names of a folder that are looked at for the file before a named one."""
_BRACES = re.compile(r"([^{}]*)\{([^{}]*,[^{}]*)\}(.*)")
"""A name with alternatives, as Hadoop's globs and shells write them: ``day{1,2}.pcap``."""


@dataclass(slots=True)
class InputFile:
    """A capture file: its name as given, where it is from the root, and the open stream if it can be read only once."""

    name: str
    path: str
    source: PeekableStream | None = None
    consumed: bool = False

    def open(self) -> PeekableStream:
        """Its plain bytes; raises OSError, and CaptureError where they were read and cannot be again."""
        if self.consumed:
            raise CaptureError(f"{self.name} is a pipe and was read already; save it to a file to read it again")
        if self.source is None:
            return open_path(self.path)
        self.consumed = True
        source, self.source = self.source, None
        return source

    def span(self) -> file_sets.TimeSpan | None:
        """Times of its first and last packet, None without a packet or if it went away."""
        return span(self.name, self.open)


@dataclass(slots=True)
class Capture:
    """One recording: a file, or a set of rotated files in order of time.

    files: names as given.
    notes, facts: filled while windows are read; facts has an entry for each file that was read.
    wait: callbacks for reading a pipe live. If set, a window ends as soon as the pipe has no more data.
    dropped_count: packets of a live capture that were dropped; called when all is read.
    next_file: called after the last file; returns the file that continues a recording still being written, or None.
    """

    inputs: tuple[InputFile, ...]
    notes: list[Note] = field(default_factory=list)
    facts: list[FileFacts] = field(default_factory=list)
    wait: InputWait | None = None
    dropped_count: Callable[[], int] | None = None
    next_file: Callable[[], InputFile | None] | None = None
    doubts: list[str] = field(default_factory=list)
    """Notes on files that may belong to the recording."""
    _names: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """capture_file of each file, in order."""
        if len(self._names) != len(self.inputs):  # asked for with each batch of rows, of thousands of files
            self._names = tuple(file.name for file in self.inputs)
        return self._names

    def add(self, later: Capture) -> None:
        """Add the files of a later capture of the same recording."""
        self.inputs += later.inputs
        self.doubts += later.doubts

    def span(self) -> file_sets.TimeSpan | None:
        """Times of the first and the last packet; None without one."""
        spans = (file.span() for file in self.inputs)
        times = next((times for times in spans if times is not None), None)
        if times is None or len(self.inputs) == 1:
            return times
        spans = (file.span() for file in reversed(self.inputs))
        return times[0], next(times[1] for times in spans if times is not None)

    @property
    def is_pipe(self) -> bool:
        """Whether it comes while somebody writes it, and can be read once."""
        return any(file.source is not None and file.source.is_pipe for file in self.inputs)

    def windows(self) -> Iterator[Window]:
        """All packets of all files, a window at a time; starts notes and facts anew.

        Raises CaptureError if a pipe is read twice, or a file is gone or not a capture file any more.
        """
        self.notes.clear()
        self.facts.clear()
        for index in count():
            another = self.next_file() if index == len(self.inputs) and self.next_file is not None else None
            self.inputs += (another,) if another is not None else ()
            if index == len(self.inputs):
                return
            source = self.source(index)
            reader = WindowReader(self.inputs[index].name, index, source)
            try:
                yield from reader.windows(self.wait)
            finally:
                source.close()
                self.notes.extend(reader.notes)
                if (facts := reader.facts) is not None:
                    dropped = facts.drop_count if self.dropped_count is None else self.dropped_count()
                    self.facts.append(replace(facts, drop_count=dropped))

    def source(self, index: int) -> PeekableStream:
        """The plain bytes of a file, by its index. Raises CaptureError if a pipe was read already or a file is gone."""
        file = self.inputs[index]
        try:
            return file.open()
        except OSError as error:
            raise CaptureError(f"{file.name} cannot be read: {_reason(error)}") from error


@dataclass(frozen=True, slots=True)
class FoundCaptures:
    """Captures, and (name, reason) of the other files.

    unreadable: files that cannot be read, or that the user named and that are not captures. skipped: files in a
    directory that are not captures.
    """

    captures: list[Capture]
    unreadable: list[tuple[str, str]]
    skipped: list[tuple[str, str]]


def captures(inputs: Sequence[str], stdin: BinaryIO | None = None) -> FoundCaptures:
    """The captures in files, directories, globs, URIs and ``-`` (stdin, or the process's standard input).

    Captures are in the order of their first files. Bad inputs raise nothing.
    """
    search = InputSearch(stdin)
    for name in inputs:
        search.add(os.fspath(name))
    return search.result()


def is_remote(name: str) -> bool:
    """Whether a name is a URI.

    >>> is_remote("s3://bucket/day"), is_remote("C:/day"), is_remote("./day")
    (True, False, False)
    """
    return _URI.match(name) is not None


def file_of_source(name: str, source: PeekableStream) -> InputFile:
    """An input file of plain bytes that can be read once. Raises CaptureError if they are not a capture."""
    if (why := _rejection(source)) is not None:
        source.close()
        raise CaptureError(f"{name}: {why}")
    return InputFile(name, name, source)


def _place(file: InputFile, index: int) -> tuple[str, str]:
    """Directory and name, which group files; a pipe has a directory of its own."""
    if file.source is not None:
        return f"\0{index}", file.name
    directory, name = os.path.split(file.path)
    return os.path.realpath(directory), name


def span(name: str, opened: Callable[[], PeekableStream]) -> file_sets.TimeSpan | None:
    """Times of a file's first and last packet, None without a packet or if the file went away.

    If a file is large, its ends are read first, and its middle only if they are not enough.
    """
    first_ns = last_ns = None
    try:
        source = opened()
    except OSError:
        return None
    try:
        if (both := boundaries.first_and_last_ns(name, source)) is not None:
            return both
        if source.size_bytes is not None:
            source.seek(0)
        for window in WindowReader(name, 0, source).windows():
            first_ns = int(window.ts_ns[0]) if first_ns is None else first_ns
            last_ns = int(window.ts_ns[-1])
    except (CaptureError, OSError):
        return None
    finally:
        source.close()
    return None if first_ns is None or last_ns is None else (first_ns, last_ns)


def earlier_neighbour(name: str) -> str | None:
    """The file of the same set and folder that ends before this file begins; None if there is none."""
    folder, own_name = os.path.split(name)
    rotated = file_sets.rotated_name(own_name)
    earlier: list[tuple[tuple[str, ...], int, str]] = []
    with suppress(OSError):
        for file_name in islice(os.listdir(folder or "."), MAX_NEIGHBOURS):
            key, times, counter = astuple(file_sets.rotated_name(file_name))
            if key == rotated.key and (times, counter) < (rotated.times, rotated.counter):
                earlier.append((times, counter, file_name))
    if not earlier:
        return None
    place = os.path.join(folder, max(earlier)[2])
    its_times, own_times = span(place, partial(open_path, place)), span(name, partial(open_path, name))
    return place if its_times is not None and own_times is not None and its_times[1] <= own_times[0] else None


class InputSearch:
    """Goes through inputs and sorts files into captures and others."""

    def __init__(self, stdin: BinaryIO | None) -> None:
        self.files: list[InputFile] = []
        self.unreadable: list[tuple[str, str]] = []
        self.skipped: list[tuple[str, str]] = []
        self._stdin = stdin
        self._stdin_read = False
        # Device and inode of each file reached, and whether it was a capture.
        self._seen: dict[tuple[int, int], bool] = {}

    def result(self) -> FoundCaptures:
        """The captures among the files, and the other files."""
        files = self.files
        places = [_place(file, index) for index, file in enumerate(files)]
        spans = file_sets.file_sets(places, lambda index: files[index].span())
        captures = [Capture(tuple(files[index] for index in chain)) for chain in spans]
        return FoundCaptures(captures, self.unreadable, self.skipped)

    def add(self, name: str) -> None:
        """One input as the user wrote it."""
        if (parts := _BRACES.fullmatch(name)) and not os.path.lexists(name):
            for alternative in parts[2].split(","):
                self.add(parts[1] + alternative + parts[3])
        elif name == STDIN:
            self._add_stdin()
        elif is_remote(name):
            from mqpcap.capture.remote import add_remote  # file systems are loaded for URIs only

            add_remote(self, name)
        elif os.path.isdir(name):
            self._add_directory(name)
        elif os.path.lexists(name) or not glob.has_magic(name):
            self._add_file(name, named=True)
        else:
            # Not Path.glob, which would rewrite "./x" to "x": names stay as given.
            matches = sorted(glob.glob(name, recursive=True))
            if not matches:
                self.unreadable.append((name, "no file matches"))
            for match in matches:
                if not os.path.isdir(match):
                    self._add_file(match, named=True)
                elif "**" not in name:
                    self._add_directory(match)

    def _add_stdin(self) -> None:
        if self._stdin_read:
            return
        self._stdin_read = True
        # Unbuffered, so that `select` shows whether more bytes have arrived.
        source = plain_bytes(self._stdin or cast("BinaryIO", getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)), None)
        self.add_source(InputFile(STDIN, STDIN), source, once=True, named=True)

    def _add_directory(self, name: str) -> None:
        known_count = len(self.unreadable)
        are_captures = [self._add_file(path, named=False) for path in self._files_below(name.rstrip("/") or "/")]
        # A folder that cannot be read may hold captures; it was reported already.
        if not any(are_captures) and len(self.unreadable) == known_count:
            self.unreadable.append((name, "no capture in this directory"))

    def _files_below(self, directory: str) -> list[str]:
        """Every file below, in order of the names on its path; no directory is entered twice."""
        entered: set[str] = set()
        paths: list[str] = []
        for folder, folders, names in os.walk(directory, onerror=self._note_unreadable, followlinks=True):
            place = os.path.realpath(folder)
            if place in entered:
                folders.clear()
                continue
            entered.add(place)
            folders.sort()  # they are entered in this order
            paths += [os.path.join(folder, name) for name in names]
        return sorted(paths, key=lambda path: path.split("/"))

    def _note_unreadable(self, error: OSError) -> None:
        self.unreadable.append((str(error.filename), _reason(error)))

    def _add_file(self, name: str, named: bool) -> bool:
        """Whether it is a capture, also if it was reached before."""
        rejected = self.unreadable if named else self.skipped
        try:
            status = os.stat(name)
            regular = stat.S_ISREG(status.st_mode)
            if not regular and not (named and stat.S_ISFIFO(status.st_mode) | stat.S_ISCHR(status.st_mode)):
                rejected.append((name, "not a file"))
                return False
            was_capture = self._seen.get((status.st_dev, status.st_ino))
            if was_capture is not None and (was_capture or not named):
                return was_capture
            source = open_path(name)
        except FileNotFoundError:
            # In a directory: a link to nowhere, or a file that rotation took away meanwhile.
            rejected.append((name, "no such file"))
            return False
        except OSError as error:
            self.unreadable.append((name, _reason(error)))
            return False
        # The working directory may have changed when the file is opened again. Not abspath, which is wrong where ".."
        # follows a link.
        place = name if os.path.isabs(name) else os.path.join(os.getcwd(), name)
        is_capture = self.add_source(InputFile(name, place), source, once=not regular, named=named)
        self._seen[(status.st_dev, status.st_ino)] = is_capture
        return is_capture

    def add_source(self, file: InputFile, source: PeekableStream, once: bool, named: bool) -> bool:
        """Whether it is a capture. A source that can be read only ``once`` stays open."""
        why = _rejection(source)
        if why is None and once:
            file.source = source
        else:
            source.close()
        if why is None:
            self.files.append(file)
        else:
            (self.unreadable if named else self.skipped).append((file.name, why))
        return why is None


def _rejection(source: PeekableStream) -> str | None:
    """Why these bytes are not a capture; None if they are."""
    head = source.peek(24)
    if capture_format(head[:12]) is not None:
        return None
    inside = f" (inside {source.compression})" if source.compression else ""
    if source.failure and not head and "cut off" in source.failure:
        return f"it ends inside its first block, so nothing of it can be unpacked: {source.failure}"
    if source.failure:
        return f"not a capture: {source.failure}"
    if (name := other_format(source)) is not None:
        return f"not a capture: a file of {name}{inside}; editcap -F pcap converts it"
    if not head:
        return f"empty{inside}"
    return f"not a capture: it begins with {head[:4].hex(' ')}{inside}"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
