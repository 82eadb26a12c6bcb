"""Reads captures and writes directories in any file system of pyarrow.fs: local, s3, gs, hdfs.

Tasks and driver write only through a `Storage`.
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
from mqpcap.capture.sources import PeekableStream, plain_bytes
from mqpcap.errors import OutputError, one_line
from mqpcap.tables.export import remove, sizes

_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_OPTIONS = re.compile(r"\?[a-z_]+=[^/?]*(?:&[a-z_]+=[^/?]*)*$")
_SECRET = re.compile(r"(?<=://)(?:[^/@]*|[^/@:]*:(?![0-9]+/)[^@\s]*)@")
"""A key and its secret. If the secret contains a slash, the URI is invalid, and the error message would show it."""
_MAGIC = re.compile(r"[*?\[]")
_WITH_FOLDERS = {"local", "hdfs"}
"""File systems with real folders, which must exist before a file, and with atomic renames."""


def is_remote(name: str) -> bool:
    """Whether a name is a URI.

    >>> is_remote("s3://bucket/day"), is_remote("C:/day"), is_remote("./day")
    (True, False, False)
    """
    return _URI.match(name) is not None


@lru_cache(32)
def open_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI or local path, and the path in it; each process connects once."""
    if not is_remote(uri):
        return fs.LocalFileSystem(), uri
    system, path = fs.FileSystem.from_uri(_quoted(uri))
    return system, path


def split_options(uri: str) -> tuple[str, str]:
    """Splits a URI into its base and its options, which follow a question mark.

    A question mark that is part of a glob stays.

    >>> parted("s3://bucket/day?region=us-east-1"), parted("s3://bucket/part?.pcap")
    (('s3://bucket/day', '?region=us-east-1'), ('s3://bucket/part?.pcap', ''))
    """
    options = _OPTIONS.search(uri)
    return (uri[: options.start()], options.group()) if options and is_remote(uri) else (uri, "")


def redacted_uri(uri: str) -> str:
    """A URI without options, key and secret, as messages and tables show it.

    >>> shown("s3://key:secret@bucket/day?region=us-east-1")
    's3://bucket/day'
    """
    return _SECRET.sub("", split_options(uri)[0]) if is_remote(uri) else uri


def _redacted_error(error: BaseException) -> str:
    """The message of an error on one line, without the secrets of URIs in it."""
    return _SECRET.sub("", one_line(error))


def _quoted(uri: str) -> str:
    """A URI with the characters of globs percent-encoded."""
    base, options = split_options(uri)
    return base.replace("[", "%5B").replace("]", "%5D").replace(" ", "%20").replace("?", "%3F") + options


@dataclass(slots=True)
class RemoteFile(InputFile):
    """A capture file with a URI."""

    uri: str = ""
    size_bytes: int = 0

    def open(self) -> PeekableStream:
        """The decompressed bytes; raises OSError if the file cannot be opened."""
        system, _ = open_filesystem(self.uri)
        return plain_bytes(system.open_input_file(self.path), self.size_bytes, owned=True)


def captures(inputs: Sequence[str]) -> FoundCaptures:
    """The captures in files, directories, globs and URIs, in the order given."""
    search = InputSearch(None)
    for name in inputs:
        if is_remote(name):
            _add(search, name)
        else:
            search.add(name)
    return search.result()


def _add(search: InputSearch, uri: str) -> None:
    shown_uri, count_before = redacted_uri(uri), len(search.files) + len(search.unreadable)
    try:
        system, path = open_filesystem(uri)
        searched, infos = _infos(system, path)
    except (OSError, pa.ArrowException) as error:
        search.unreadable.append((shown_uri, _redacted_error(error)))
        return
    head = shown_uri[: shown_uri.rindex(path)] if path in shown_uri else shown_uri[: shown_uri.index("://") + 3]
    for info in infos:
        file = RemoteFile(head + info.path, info.path, None, False, uri, info.size)
        try:
            search.add_source(file, file.open(), once=False, named=not searched)
        except (OSError, pa.ArrowException) as error:
            # A file that rotation deleted after the search is not an error.
            is_gone = searched and isinstance(error, FileNotFoundError)
            (search.skipped if is_gone else search.unreadable).append((file.name, _redacted_error(error)))
    if len(search.files) + len(search.unreadable) == count_before:
        search.unreadable.append((shown_uri, "no capture in this directory" if searched else "no such file"))


def _infos(system: fs.FileSystem, path: str) -> tuple[bool, list[fs.FileInfo]]:
    """Whether ``path`` is a directory that was searched, and the files found."""
    magic = _MAGIC.search(path)
    if magic is None and (info := system.get_file_info(path)).type != fs.FileType.Directory:
        return False, [info] if info.type == fs.FileType.File else []
    base = path if magic is None else path[: magic.start()].rpartition("/")[0]
    below = [i for i in system.get_file_info(fs.FileSelector(base, recursive=True)) if i.type == fs.FileType.File]
    return magic is None, sorted((i for i in below if magic is None or _fits(i.path, path)), key=lambda i: i.path)


def _fits(path: str, pattern: str) -> bool:
    if "**" in pattern:
        return fnmatchcase(path, pattern.replace("**/", "*"))
    path_parts, pattern_parts = path.split("/"), pattern.split("/")
    return len(path_parts) == len(pattern_parts) and all(map(fnmatchcase, path_parts, pattern_parts))


@dataclass(frozen=True, slots=True)
class Storage:
    """A directory, by a local path or a URI; each process that uses it opens it."""

    uri: str

    @property
    def is_local(self) -> bool:
        """Whether it is a local path (or a path of a mounted file system)."""
        return not is_remote(self.uri)

    @property
    def name(self) -> str:
        """The URI without secrets, for messages."""
        return redacted_uri(self.uri)

    def open_filesystem(self) -> tuple[fs.FileSystem, str]:
        """The file system, and the path of the directory in it."""
        try:
            return open_filesystem(self.uri)
        except (OSError, pa.ArrowException) as error:
            raise OutputError(f"cannot open {self.name}: {_redacted_error(error)}") from error

    def _at(self, name: str, is_new: bool = False) -> tuple[fs.FileSystem, str]:
        """The file system and path of a file; for a new file, creates its folders."""
        system, base = self.open_filesystem()
        path = posixpath.join(base, name) if name else base
        if is_new and system.type_name in _WITH_FOLDERS:
            system.create_dir(posixpath.dirname(path), recursive=True)
        return system, path

    def beside(self, prefix: str, suffix: str) -> "Storage":
        """The directory beside it that has this prefix and suffix around its name."""
        base, options = split_options(self.uri)
        head, _, name = base.rstrip("/").rpartition("/")
        return Storage((f"{head}/" if head or base.startswith("/") else "") + prefix + name + suffix + options)

    def output(self, name: str) -> pa.NativeFile:
        """Open a file for writing; creates its folders."""
        system, path = self._at(name, is_new=True)
        return system.open_output_stream(path)

    def write(self, name: str, content: bytes) -> None:
        """Write a file that readers see only once it is complete."""
        system, path = self._at(name)
        fresh = posixpath.join(posixpath.dirname(name), f".{uuid.uuid4().hex}")
        has_folders = system.type_name in _WITH_FOLDERS
        with self.output(fresh if has_folders else name) as file:
            file.write(content)
        if has_folders:
            system.move(self._at(fresh)[1], path)

    def read(self, name: str) -> bytes | None:
        """The content of a file, None if it does not exist."""
        with suppress(FileNotFoundError), self.input(name) as file:
            content: bytes = file.read()
            return content
        return None

    def input(self, name: str) -> pa.NativeFile:
        """Open a file for random access."""
        system, path = self._at(name)
        return system.open_input_file(path)

    def sizes(self, folder: str = "") -> dict[str, int]:
        """The size of every file below a folder, by its name in this directory."""
        system, path = self._at(folder)
        base = self._at("")[1].rstrip("/")
        infos = system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        return {i.path[len(base) + 1 :]: i.size for i in infos if i.type == fs.FileType.File}

    def move(self, name: str, to: "Storage", new_name: str) -> None:
        """Move a file into another directory of the same file system."""
        system, path = self._at(name)
        system.move(path, to._at(new_name, is_new=True)[1])

    def remove_file(self, name: str) -> None:
        """Remove a file, if it exists."""
        system, path = self._at(name)
        with suppress(FileNotFoundError):
            system.delete_file(path)

    def hide(self) -> None:
        """Deny other users access to a local directory, as it may contain packets."""
        if self.is_local:
            path = self.path("")
            path.chmod(path.stat().st_mode & 0o770)

    def find_foreign_file(self, ours: re.Pattern[str]) -> str | None:
        """The first name that does not match or is not a regular file; raises OutputError for a symbolic link."""
        path = self.path("") if self.is_local else None
        if path is None or not os.path.lexists(path):
            size_by_name = self.sizes()
        elif path.is_symlink():
            raise OutputError(f"{path} is a symbolic link; remove it")
        else:
            size_by_name = {name: size for name, size in sizes(path).items() if not name.endswith("/")}
        return min((name for name, size in size_by_name.items() if size < 0 or not ours.fullmatch(name)), default=None)

    def remove(self, ours: re.Pattern[str]) -> None:
        """Remove files whose names match, and the directory if it is empty then."""
        if self.is_local:
            remove(self.path(""), ours)
        elif self.find_foreign_file(ours) is None:
            system, path = self._at("")
            with suppress(FileNotFoundError):
                system.delete_dir(path)

    def path(self, name: str) -> Path:
        """The local path of a file in the directory."""
        return Path(self._at(name)[1])
