"""Captures to read and directories to write in any file system: local, s3, gs, hdfs and what else pyarrow.fs opens.

All that tasks and driver write goes through a `Storage`.
"""

import os
import posixpath
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from mqpcap.capture import FoundCaptures
from mqpcap.capture.inputs import InputFile, InputSearch
from mqpcap.capture.sources import Headed, plain_bytes
from mqpcap.errors import OutputError, one_line
from mqpcap.tables.export import remove, sizes

_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_OPTIONS = re.compile(r"\?[a-z_]+=[^/?]*(?:&[a-z_]+=[^/?]*)*$")
_SECRET = re.compile(r"(?<=://)(?:[^/@]*|[^/@:]*:(?![0-9]+/)[^@\s]*)@")
"""A key and its secret; with a slash in it, as many have, the URI is none, but it is shown in what is said of that."""
_MAGIC = re.compile(r"[*?\[]")
_WITH_FOLDERS = {"local", "hdfs"}
"""File systems where a folder must be there before a file, and where a rename is one step."""


def is_remote(name: str) -> bool:
    """Whether it is a URI.

    >>> is_remote("s3://bucket/day"), is_remote("C:/day"), is_remote("./day")
    (True, False, False)
    """
    return _URI.match(name) is not None


@lru_cache(32)
def opened(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI or local path, and the path in it; a connection is made once in a process."""
    if not is_remote(uri):
        return fs.LocalFileSystem(), uri
    system, path = fs.FileSystem.from_uri(_quoted(uri))
    return system, path


def parted(uri: str) -> tuple[str, str]:
    """A URI without what tells how to get there, and that: options behind a question mark.

    A question mark that is part of a glob stays.

    >>> parted("s3://bucket/day?region=us-east-1"), parted("s3://bucket/part?.pcap")
    (('s3://bucket/day', '?region=us-east-1'), ('s3://bucket/part?.pcap', ''))
    """
    found = _OPTIONS.search(uri)
    return (uri[: found.start()], found.group()) if found and is_remote(uri) else (uri, "")


def shown(uri: str) -> str:
    """A URI as it may be shown and written down: without options and without a key and its secret.

    >>> shown("s3://key:secret@bucket/day?region=us-east-1")
    's3://bucket/day'
    """
    return _SECRET.sub("", parted(uri)[0]) if is_remote(uri) else uri


def _told(error: BaseException) -> str:
    """What an error says, on one line and without the secret of a URI in it."""
    return _SECRET.sub("", one_line(error))


def _quoted(uri: str) -> str:
    """Characters of globs are none of URIs."""
    base, options = parted(uri)
    return base.replace("[", "%5B").replace("]", "%5D").replace(" ", "%20").replace("?", "%3F") + options


@dataclass(slots=True)
class RemoteFile(InputFile):
    """A capture file behind a URI."""

    uri: str = ""
    size_bytes: int = 0
    modified_ns: int = 0

    def open(self) -> Headed:
        """Its plain bytes; raises OSError if it cannot be opened."""
        system, _ = opened(self.uri)
        return plain_bytes(system.open_input_file(self.path), self.size_bytes, owned=True)


def captures(inputs: Sequence[str]) -> FoundCaptures:
    """The captures in files, directories, globs and URIs, in the order given."""
    search = InputSearch(None)
    for name in inputs:
        if is_remote(name):
            _add(search, name)
        else:
            search.add(name)
    return search.found()


def _add(search: InputSearch, uri: str) -> None:
    known, known_count = shown(uri), len(search.files) + len(search.unreadable)
    try:
        system, path = opened(uri)
        searched, infos = _infos(system, path)
    except (OSError, pa.ArrowException) as error:
        search.unreadable.append((known, _told(error)))
        return
    head = known[: known.rindex(path)] if path in known else known[: known.index("://") + 3]
    for info in infos:
        file = RemoteFile(head + info.path, info.path, None, False, uri, info.size, info.mtime_ns or 0)
        try:
            search.add_source(file, file.open(), once=False, named=not searched)
        except (OSError, pa.ArrowException) as error:
            # One that rotation took away meanwhile is no loss.
            is_gone = searched and isinstance(error, FileNotFoundError)
            (search.skipped if is_gone else search.unreadable).append((file.name, _told(error)))
    if len(search.files) + len(search.unreadable) == known_count:
        search.unreadable.append((known, "no capture in this directory" if searched else "no such file"))


def _infos(system: fs.FileSystem, path: str) -> tuple[bool, list[fs.FileInfo]]:
    """Whether a directory was searched, and the files."""
    magic = _MAGIC.search(path)
    if magic is None and (info := system.get_file_info(path)).type != fs.FileType.Directory:
        return False, [info] if info.type == fs.FileType.File else []
    base = path if magic is None else path[: magic.start()].rpartition("/")[0]
    below = [i for i in system.get_file_info(fs.FileSelector(base, recursive=True)) if i.type == fs.FileType.File]
    return magic is None, sorted((i for i in below if magic is None or _fits(i.path, path)), key=lambda i: i.path)


def _fits(path: str, pattern: str) -> bool:
    if "**" in pattern:
        return fnmatchcase(path, pattern.replace("**/", "*"))
    one, two = path.split("/"), pattern.split("/")
    return len(one) == len(two) and all(map(fnmatchcase, one, two))


@dataclass(frozen=True, slots=True)
class Storage:
    """A directory, by a local path or a URI; opened where it is used."""

    uri: str

    @property
    def is_local(self) -> bool:
        """Whether it is a path of this machine (or of a file system mounted on every one)."""
        return not is_remote(self.uri)

    @property
    def name(self) -> str:
        """As it may be shown: without a secret."""
        return shown(self.uri)

    def opened(self) -> tuple[fs.FileSystem, str]:
        """Its file system, and its path there."""
        try:
            return opened(self.uri)
        except (OSError, pa.ArrowException) as error:
            raise OutputError(f"cannot open {self.name}: {_told(error)}") from error

    def _at(self, name: str, is_new: bool = False) -> tuple[fs.FileSystem, str]:
        """Where a file is, by its name here; of a new one the folders are made."""
        system, base = self.opened()
        path = posixpath.join(base, name) if name else base
        if is_new and system.type_name in _WITH_FOLDERS:
            system.create_dir(posixpath.dirname(path), recursive=True)
        return system, path

    def beside(self, prefix: str, suffix: str) -> "Storage":
        """A directory beside it, of a name made of its own."""
        base, options = parted(self.uri)
        head, _, name = base.rstrip("/").rpartition("/")
        return Storage((f"{head}/" if head or base.startswith("/") else "") + prefix + name + suffix + options)

    def output(self, name: str) -> pa.NativeFile:
        """A file to write; its folders are made."""
        system, path = self._at(name, is_new=True)
        return system.open_output_stream(path)

    def write(self, name: str, content: bytes) -> None:
        """Writes a file that appears whole."""
        system, path = self._at(name)
        fresh = posixpath.join(posixpath.dirname(name), f".{uuid.uuid4().hex}")
        has_folders = system.type_name in _WITH_FOLDERS
        with self.output(fresh if has_folders else name) as file:
            file.write(content)
        if has_folders:
            system.move(self._at(fresh)[1], path)

    def read(self, name: str) -> bytes | None:
        """A file's bytes, None if there is none."""
        with suppress(FileNotFoundError), self.input(name) as file:
            content: bytes = file.read()
            return content
        return None

    def input(self, name: str) -> pa.NativeFile:
        """A file to read anywhere."""
        system, path = self._at(name)
        return system.open_input_file(path)

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Every file below a folder, by its name in this directory, with its size."""
        system, path = self._at(folder)
        base = self._at("")[1].rstrip("/")
        infos = system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        return {i.path[len(base) + 1 :]: i.size for i in infos if i.type == fs.FileType.File}

    def move(self, name: str, to: "Storage", new_name: str) -> None:
        """Moves a file into another directory of the same file system."""
        system, path = self._at(name)
        system.move(path, to._at(new_name, is_new=True)[1])

    def remove_file(self, name: str) -> None:
        """Removes a file, if it is there."""
        system, path = self._at(name)
        with suppress(FileNotFoundError):
            system.delete_file(path)

    def hide(self) -> None:
        """Bars others than its user and group from a local directory: packets may wait in it."""
        if self.is_local:
            path = self.path("")
            path.chmod(path.stat().st_mode & 0o770)

    def stranger(self, ours: re.Pattern[str]) -> str | None:
        """The first file whose whole name does not fit, or that is no plain file; raises OutputError for a link."""
        path = self.path("") if self.is_local else None
        if path is None or not os.path.lexists(path):
            found = self.sizes()
        elif path.is_symlink():
            raise OutputError(f"{path} is a symbolic link; remove it")
        else:
            found = {name: size for name, size in sizes(path).items() if not name.endswith("/")}
        return min((name for name, size in found.items() if size < 0 or not ours.fullmatch(name)), default=None)

    def remove(self, ours: re.Pattern[str]) -> None:
        """Removes files whose whole names fit, and the directory if nothing else is in it."""
        if self.is_local:
            remove(self.path(""), ours)
        elif self.stranger(ours) is None:
            system, path = self._at("")
            with suppress(FileNotFoundError):
                system.delete_dir(path)

    def path(self, name: str) -> Path:
        """The local path of a file in it."""
        return Path(self._at(name)[1])
