"""Writes directories in any file system of pyarrow.fs: local, s3, gs, hdfs. Tasks and driver write only through it."""

import os
import posixpath
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from mqpcap.capture.inputs import is_remote
from mqpcap.capture.remote import open_filesystem, redacted_error, redacted_uri, split_options
from mqpcap.errors import OutputError
from mqpcap.tables.export import remove, sizes

_WITH_FOLDERS = {"local", "hdfs"}
"""File systems with real folders, which must exist before a file, and with atomic renames."""


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
            raise OutputError(f"cannot open {self.name}: {redacted_error(error)}") from error

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
