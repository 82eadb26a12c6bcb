"""A directory of any file system: local, s3, gs, hdfs; all that tasks and driver write goes through it."""

import os
import posixpath
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from mqpcap.errors import OutputError, one_line
from mqpcap.spark import remote
from mqpcap.tables.export import remove, sizes

_WITH_FOLDERS = {"local", "hdfs"}
"""File systems where a folder must be there before a file, and where a rename is one step."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A directory, by a local path or a URI; opened where it is used."""

    uri: str

    @property
    def is_local(self) -> bool:
        """Whether it is a path of this machine (or of a file system mounted on every one)."""
        return not remote.is_remote(self.uri)

    @property
    def name(self) -> str:
        """As it may be shown: without a secret."""
        return remote.shown(self.uri)

    def opened(self) -> tuple[fs.FileSystem, str]:
        """Its file system, and its path there."""
        try:
            return remote.opened(self.uri)
        except (OSError, pa.ArrowException) as error:
            raise OutputError(f"cannot open {self.name}: {one_line(error)}") from error

    def _at(self, name: str) -> tuple[fs.FileSystem, str]:
        system, base = self.opened()
        return system, posixpath.join(base, name) if name else base

    def beside(self, prefix: str, suffix: str) -> "Storage":
        """A directory beside it, of a name made of its own."""
        base, options = remote.parted(self.uri)
        head, _, name = base.rstrip("/").rpartition("/")
        return Storage((f"{head}/" if head or base.startswith("/") else "") + prefix + name + suffix + options)

    def output(self, name: str) -> pa.NativeFile:
        """A file to write; its folders are made."""
        system, path = self._at(name)
        if system.type_name in _WITH_FOLDERS:
            system.create_dir(posixpath.dirname(path), recursive=True)
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
        _, target = to._at(new_name)
        if system.type_name in _WITH_FOLDERS:
            system.create_dir(posixpath.dirname(target), recursive=True)
        system.move(path, target)

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
