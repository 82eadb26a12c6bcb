"""Captures behind URIs: s3, gs, hdfs and whatever else pyarrow.fs opens."""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

import pyarrow as pa
from pyarrow import fs

from mqpcap.capture import Capture, FoundCaptures, chains
from mqpcap.capture import captures as local_captures
from mqpcap.capture.inputs import span
from mqpcap.capture.sources import Headed, plain_bytes
from mqpcap.capture.windows import capture_format
from mqpcap.errors import one_line

_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_OPTIONS = re.compile(r"\?[a-z_]+=[^/?]*(?:&[a-z_]+=[^/?]*)*$")
_SECRET = re.compile(r"(?<=://)[^/@]*@")
_MAGIC = re.compile(r"[*?\[]")


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


def _quoted(uri: str) -> str:
    """Characters of globs are none of URIs."""
    base, options = parted(uri)
    return base.replace("[", "%5B").replace("]", "%5D").replace(" ", "%20").replace("?", "%3F") + options


@dataclass(slots=True)
class RemoteFile:
    """A capture file in a file system; stands where a local file does."""

    name: str
    path: str
    uri: str
    size_bytes: int
    modified_ns: int
    source: None = None

    def open(self) -> Headed:
        """Its plain bytes; raises OSError if it cannot be opened."""
        system, _ = opened(self.uri)
        return plain_bytes(system.open_input_file(self.path), self.size_bytes, owned=True)


def captures(inputs: Sequence[str]) -> FoundCaptures:
    """The captures behind URIs and local names, in the order given."""
    found, unreadable, skipped = [], [], []
    for name in inputs:
        one = _listed(name) if is_remote(name) else local_captures([name])
        found += one.captures
        unreadable += one.unreadable
        skipped += one.skipped
    return FoundCaptures(found, unreadable, skipped)


def _listed(uri: str) -> FoundCaptures:
    unreadable: list[tuple[str, str]] = []
    skipped: list[tuple[str, str]] = []
    files: list[RemoteFile] = []
    try:
        system, path = opened(uri)
        searched, infos = _infos(system, path)
    except (OSError, pa.ArrowException) as error:
        return FoundCaptures([], [(shown(uri), one_line(error))], [])
    known = shown(uri)
    head = known[: known.rindex(path)] if path in known else known[: known.index("://") + 3]
    for info in infos:
        file = RemoteFile(head + info.path, info.path, uri, info.size, info.mtime_ns or 0)
        try:
            reason = _stranger(file)
        except (OSError, pa.ArrowException) as error:
            # One that rotation took away meanwhile is no loss.
            is_gone = searched and isinstance(error, FileNotFoundError)
            (skipped if is_gone else unreadable).append((file.name, one_line(error)))
            continue
        if reason is None:
            files.append(file)
        else:
            (skipped if searched else unreadable).append((file.name, reason))
    if not files and not unreadable:
        unreadable.append((known, "no capture in this directory" if searched else "no such file"))
    places = [posixpath.split(file.path) for file in files]
    found = [
        Capture(tuple(files[i] for i in chain))  # type: ignore[misc]  # a RemoteFile opens as a local one does
        for chain in chains.chains(places, lambda i: span(files[i].name, files[i].open))
    ]
    return FoundCaptures(found, unreadable, skipped)


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


def _stranger(file: RemoteFile) -> str | None:
    source = file.open()
    head = source.peek(24)
    source.close()
    if capture_format(head[:12]) is not None:
        return None
    return f"not a capture: it begins with {head[:4].hex(' ')}" if head else "empty"
