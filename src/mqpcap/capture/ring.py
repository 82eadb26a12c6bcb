"""Writes packets to a ring of files: the newest of a number of files, each up to a size.

In: windows of packets. Out: pcapng files in a new directory. Called by: ``extract -i --ring``.

Only files that this ring has made are deleted, and only while they are still these files.
"""

import os
import time
from contextlib import suppress
from typing import BinaryIO

from mqpcap.capture.pcapng import PacketFile, new_folder
from mqpcap.capture.windows import Window


class Ring:
    """A ring of ``count`` files of about ``size_bytes`` each in a directory, which must not exist."""

    def __init__(self, folder: str, count: int, size_bytes: int, application: str) -> None:
        new_folder(folder)
        self.packet_count = self.file_count = 0
        self._folder, self._count, self._size_bytes, self._application = folder, count, size_bytes, application
        self._paths: list[tuple[str, tuple[int, int]]] = []
        """The files that are there, oldest first, with device and inode."""
        self._file: BinaryIO | None = None
        self._packets: PacketFile | None = None
        self._left = 0

    def write(self, window: Window) -> None:
        """Write the packets of a window; a reader sees them when this returns."""
        for i, start in enumerate(window.offset.tolist()):
            if self._packets is None or self._left <= 0:
                self._packets = self._next_file()
            data = window.buffer[start : start + int(window.caplen[i])].tobytes()
            self._packets.write(int(window.link_type[i]), int(window.ts_ns[i]), data, int(window.wirelen[i]))
            self._left -= len(data)
            self.packet_count += 1
        if self._file is not None:
            self._file.flush()

    def _next_file(self) -> PacketFile:
        self.close()
        self.file_count += 1
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        path = os.path.join(self._folder, f"{self.file_count:05d}_{stamp}.pcapng")
        self._file = file = open(path, "xb")  # noqa: SIM115  # closed by `close`
        status = os.fstat(file.fileno())
        self._paths.append((path, (status.st_dev, status.st_ino)))
        while len(self._paths) > self._count:
            self._delete(*self._paths.pop(0))
        self._left = self._size_bytes
        return PacketFile(file, self._application)

    def _delete(self, path: str, identity: tuple[int, int]) -> None:
        with suppress(OSError):
            status = os.lstat(path)
            if (status.st_dev, status.st_ino) == identity:
                os.unlink(path)

    def close(self) -> None:
        """Close the file that is being written."""
        if self._file is not None:
            self._file.close()
            self._file = None
