"""Finds capture files by URI in any file system of pyarrow.fs: s3, gs, hdfs, file.

In: a URI as the user wrote it, with keys and options in it. Out: `RemoteFile`; messages and tables get no secret.
Called by: ``inputs`` for names that are URIs, ``spark.storage`` for outputs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

import pyarrow as pa
from pyarrow import fs

from mqpcap.capture.inputs import InputFile, InputSearch, is_remote
from mqpcap.capture.sources import PeekableStream, plain_bytes
from mqpcap.errors import one_line

_OPTIONS = re.compile(r"\?[a-z_]+=[^/?]*(?:&[a-z_]+=[^/?]*)*$")
_SECRET = re.compile(r"(?<=://)(?:[^/@]*|[^/@:]*:(?![0-9]+/)[^@\s]*)@")
"""A key and its secret. If the secret contains a slash, the URI is invalid, and the error message would show it."""
_NO_BUCKET = re.compile(r"in bucket ('[^']*'): AWS Error NO_SUCH_BUCKET")
_MAGIC = re.compile(r"[*?\[]")


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

    >>> split_options("s3://bucket/day?region=us-east-1"), split_options("s3://bucket/part?.pcap")
    (('s3://bucket/day', '?region=us-east-1'), ('s3://bucket/part?.pcap', ''))
    """
    options = _OPTIONS.search(uri)
    return (uri[: options.start()], options.group()) if options and is_remote(uri) else (uri, "")


def redacted_uri(uri: str) -> str:
    """A URI without options, key and secret, as messages and tables show it.

    >>> redacted_uri("s3://key:secret@bucket/day?region=us-east-1")
    's3://bucket/day'
    """
    return _SECRET.sub("", split_options(uri)[0]) if is_remote(uri) else uri


def redacted_error(error: BaseException) -> str:
    """The message of an error on one line, without the secrets of URIs in it; a missing bucket without inner keys."""
    bucket = _NO_BUCKET.search(str(error))
    return f"there is no bucket {bucket[1]}" if bucket else _SECRET.sub("", one_line(error))


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


def add_remote(search: InputSearch, uri: str) -> None:
    """Add the captures of a URI of a file, a directory or a glob to a search."""
    shown_uri, count_before = redacted_uri(uri), len(search.files) + len(search.unreadable)
    try:
        system, path = open_filesystem(uri)
        searched, infos = _infos(system, path)
    except (OSError, pa.ArrowException) as error:
        search.unreadable.append((shown_uri, redacted_error(error)))
        return
    head = shown_uri[: shown_uri.rindex(path)] if path in shown_uri else shown_uri[: shown_uri.index("://") + 3]
    for info in infos:
        file = RemoteFile(head + info.path, info.path, None, False, uri, info.size)
        try:
            search.add_source(file, file.open(), once=False, named=not searched)
        except (OSError, pa.ArrowException) as error:
            # A file that rotation deleted after the search is not an error.
            is_gone = searched and isinstance(error, FileNotFoundError)
            (search.skipped if is_gone else search.unreadable).append((file.name, redacted_error(error)))
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
