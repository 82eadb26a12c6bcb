"""Files, pipes and compressed files to plain bytes, a piece at a time.

In: a path or a file object. Out: a `PeekableStream`. Called by: ``windows`` and ``inputs``. Compression is recognised
by content, never by the name's ending.

Promises: memory does not grow with the file. A truncated stream gives the bytes before the break (zstd and lz4: all but
ARROW_READ_BYTES), and then ``failure`` has the reason.

The hard part: a decompressor that raises also loses the bytes that the same call had already unpacked. Therefore gzip
input is fed again, byte by byte, from a copy of the decompressor's state. zstd and lz4 unpack little at a time.
"""

from __future__ import annotations

import bz2
import io
import lzma
import os
import select
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from mqpcap.errors import one_line
from mqpcap.records import dataclass

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

COMPRESSED_CHUNK_BYTES = 1 << 16
"""Compressed bytes fed to gzip, bz2 and xz at a time."""
MAX_PIECE_BYTES = 1 << 20
"""Plain bytes taken from gzip, bz2 and xz at a time, so that a small input cannot fill memory."""
ARROW_READ_BYTES = 1 << 12
"""Plain bytes unpacked by zstd and lz4 at a time; at most this many are lost where the input is truncated."""
MAX_XZ_MEMORY_BYTES = 128 << 20
"""Memory of xz's dictionary: `xz -9` takes 65 MB. A stream that asks for more is not unpacked."""
MAX_MEMBERS_WITHOUT_BYTES = 1 << 16
"""Empty compressed members in a row; with more the file counts as damaged."""
MAX_SAID_LENGTH = 200
"""Characters of a library's error message that are passed on."""

TICK_S = 0.03
"""``InputWait.idle`` is called each time a pipe gave no bytes for this time."""
PIPE_IDLE_S = 0.005
"""A pipe that gives no bytes for this time has no more available."""
COALESCE_S = 0.02
"""Bytes that arrive within this time are read together."""

_MAGICS = {
    "gzip": b"\x1f\x8b",
    "bz2": b"BZh",
    "xz": b"\xfd7zXZ\0",
    "zstd": b"\x28\xb5\x2f\xfd",
    "lz4": b"\x04\x22\x4d\x18",
}


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY_BYTES),
}


@dataclass(frozen=True, slots=True)
class InputWait:
    """Callbacks of a caller that waits for bytes of a pipe or of a growing file.

    ``idle`` is called each time no bytes arrived for TICK_S. If ``is_over`` is true, the input ends here.
    """

    idle: Callable[[], None]
    is_over: Callable[[], bool] = bool


class PeekableStream:
    """The bytes of a file object; the first of them can be looked at before they are read.

    A regular file keeps the size it had when opened, though it may grow. ``owned``: closing the stream closes the file.
    """

    compression: str | None = None
    """Name of the compression, None for plain files."""
    failure: str | None = None
    """Why the stream is truncated, None if it is not."""
    size_bytes: int | None = None
    """Size of a seekable file; None of compressed files and of pipes."""
    is_pipe = False
    """Whether bytes arrive while another process writes them."""
    _head = b""

    def __init__(self, file: BinaryIO, size_bytes: int | None, owned: bool) -> None:
        self._file = file
        self._left = size_bytes
        self._owned = owned
        self.size_bytes = size_bytes
        self.is_pipe = size_bytes is None

    def seek(self, position: int) -> None:
        """Go to a byte, where there is ``size_bytes``; reading begins there. Raises OSError."""
        assert self.size_bytes is not None
        self._file.seek(position)
        self._head, self._left = b"", max(0, self.size_bytes - position)

    def close(self) -> None:
        """Give the file back, if it is ours."""
        if self._owned:
            self._file.close()

    def peek(self, length: int) -> bytes:
        """The next bytes, fewer at the end only."""
        if len(self._head) < length:
            head, self._head = self._head, b""
            self._head = head + self.read(length - len(head))
        return self._head[:length]

    def read(self, length: int) -> bytes:
        """The next bytes, fewer at the end only."""
        room = bytearray(length)
        return bytes(room[: self.readinto(memoryview(room))])

    def readinto(self, view: memoryview) -> int:
        """Fill the view; the count is smaller than the view at the end only."""
        taken = min(len(self._head), len(view))
        view[:taken] = self._head[:taken]
        self._head = self._head[taken:]
        return taken + (self._fill(view[taken:]) if taken < len(view) else 0)

    def read_ready(self, view: memoryview, wait: InputWait) -> int:
        """Like ``readinto``; from a pipe the available bytes, after waiting for the first; 0 at the end only."""
        if not self.is_pipe:
            return self.readinto(view)
        return self.readinto(view[: len(self._head)]) if self._head else self._available(view, wait)

    def _fill(self, view: memoryview) -> int:
        """Fill the view with the bytes after the head."""
        want = len(view) if self._left is None else min(len(view), self._left)
        got = 0
        while got < want:
            try:
                count = self._file.readinto(view[got:want])  # type: ignore[attr-defined]  # BinaryIO lacks it
            except OSError as error:
                self.failure = f"reading failed ({error.strerror or error})"
                break
            if not count:
                break
            got += count
        if self._left is not None:
            self._left -= got
        return got

    def _available(self, view: memoryview, wait: InputWait) -> int:
        """The bytes of a pipe that are available, after waiting for the first."""
        while not wait.is_over() and not _comes(self._file, TICK_S):
            wait.idle()
        if wait.is_over():
            return 0
        read_once = getattr(self._file, "readinto1", None) or self._file.readinto  # type: ignore[attr-defined]  # as above
        got = count = read_once(view)
        until_s = time.monotonic() + COALESCE_S
        while count and got < len(view) and _comes(self._file, min(PIPE_IDLE_S, until_s - time.monotonic())):
            count = read_once(view[got:])
            got += count
        return int(got)


class _Growing(PeekableStream):
    """A regular file that is still being written. It ends with the input, or if it ``has_successor``."""

    def __init__(self, file: BinaryIO, wait: InputWait, has_successor: Callable[[BinaryIO], bool]) -> None:
        super().__init__(file, None, owned=True)
        self._waiting, self._has_successor = wait, has_successor

    def _fill(self, view: memoryview) -> int:
        got = 0
        while got < len(view) and (count := self._available(view[got:], self._waiting)):
            got += count
        return got

    def _available(self, view: memoryview, wait: InputWait) -> int:
        while not (count := super()._fill(view)) and not wait.is_over():
            if self._has_successor(self._file):
                return super()._fill(view)  # written meanwhile
            time.sleep(TICK_S)
            wait.idle()
        return count


class _TruncatedStream(Exception):
    """A compressed stream is truncated or damaged; the message is the reason."""


class _Decompressed(PeekableStream):
    """Plain bytes of a compressed stream; bytes of a piece that were not asked for are buffered."""

    def __init__(self, inner: PeekableStream, compression: str) -> None:
        self.compression = compression
        self._inner = inner
        self._pieces = (_members if compression in _DECOMPRESSORS else _frames)(inner, compression)
        self._piece = memoryview(b"")

    def _fill(self, view: memoryview) -> int:
        got = 0
        try:
            while got < len(view):
                while not self._piece:
                    self._piece = memoryview(next(self._pieces))
                taken = min(len(self._piece), len(view) - got)
                view[got : got + taken] = self._piece[:taken]
                self._piece = self._piece[taken:]
                got += taken
        except StopIteration:
            pass
        except _TruncatedStream as broken:
            self.failure = str(broken)
        return got

    def close(self) -> None:
        """Give the file back."""
        self._inner.close()


def _members(inner: PeekableStream, name: str) -> Iterator[bytes]:
    """Plain bytes, in pieces, of the gzip, bz2 or xz members that follow one another. Raises _TruncatedStream."""
    magic, left, empty_count = _MAGICS[name], b"", 0
    while left := left or inner.read(COMPRESSED_CHUNK_BYTES):
        if len(left) < len(magic):
            left += inner.read(COMPRESSED_CHUNK_BYTES)
        if not left.startswith(magic):
            if left.strip(b"\0"):
                raise _TruncatedStream(f"bytes that are no {name} follow the {name} stream")
            return
        plain, member = b"", _DECOMPRESSORS[name]()
        while not member.eof:
            if not left and getattr(member, "needs_input", True):
                left = inner.read(COMPRESSED_CHUNK_BYTES)
                if not left:
                    raise _TruncatedStream(inner.failure or f"the {name} stream is cut off")
            saved = member.copy() if name == "gzip" else None
            try:
                plain = member.decompress(left, MAX_PIECE_BYTES)
            except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
                if saved is not None:
                    yield _bytewise(saved, left)
                raise _TruncatedStream(f"the {name} stream is damaged ({error})") from error
            yield plain
            left = member.unused_data or getattr(member, "unconsumed_tail", b"")
        empty_count = 0 if plain else empty_count + 1
        if empty_count > MAX_MEMBERS_WITHOUT_BYTES:
            raise _TruncatedStream(f"more than {MAX_MEMBERS_WITHOUT_BYTES} empty {name} members")


def _bytewise(member: zlib._Decompress, chunk: bytes) -> bytes:
    """All bytes that a gzip member gives before its first damaged byte."""
    plain = bytearray()
    with suppress(zlib.error):
        for index in range(len(chunk)):
            plain += member.decompress(chunk[index : index + 1])
    return bytes(plain)


def _frames(inner: PeekableStream, name: str) -> Iterator[bytes]:
    """Plain bytes, in pieces, of zstd and lz4 frames, by pyarrow. Raises _TruncatedStream."""
    stream = pa.CompressedInputStream(pa.PythonFile(PythonFile(inner), mode="r"), name)
    try:
        while plain := stream.read(ARROW_READ_BYTES):
            yield plain
    except (OSError, pa.ArrowException) as error:
        text = f"the {name} stream is cut off or damaged ({one_line(error)[:MAX_SAID_LENGTH]})"
        raise _TruncatedStream(inner.failure or text) from error


class PythonFile(io.RawIOBase):
    """A stream as pyarrow and Python's own readers take one."""

    def __init__(self, inner: PeekableStream) -> None:
        super().__init__()
        self._inner = inner

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer; the count is smaller than its size at the end only."""
        return self._inner.readinto(memoryview(buffer))

    def readable(self) -> bool:
        """It is."""
        return True


def _comes(file: BinaryIO, time_s: float) -> bool:
    """Whether bytes, or the end of the file, arrive within a time; true if the file does not support `select`."""
    try:
        return bool(select.select([file], [], [], max(time_s, 0))[0])
    except (OSError, ValueError):
        return True


def plain_bytes(file: BinaryIO, size: int | None, owned: bool = False) -> PeekableStream:
    """The plain bytes of a file object, decompressed if its content says so; size None for a pipe."""
    return _decompressed(PeekableStream(file, size, owned))


def _decompressed(raw: PeekableStream) -> PeekableStream:
    head = raw.peek(max(map(len, _MAGICS.values())))
    return next((_Decompressed(raw, name) for name, magic in _MAGICS.items() if head.startswith(magic)), raw)


def open_path(path: str | Path) -> PeekableStream:
    """The plain bytes of the file at a path; raises OSError if it cannot be opened."""
    file = Path(path).open("rb", buffering=0)  # noqa: SIM115  # the caller closes it
    status = os.fstat(file.fileno())
    return plain_bytes(file, status.st_size if stat.S_ISREG(status.st_mode) else None, owned=True)


def growing(path: str | Path, wait: InputWait, has_successor: Callable[[BinaryIO], bool]) -> PeekableStream:
    """The bytes of a file that is still being written, until it ``has_successor``.

    Raises OSError if it cannot be opened.
    """
    return _decompressed(_Growing(Path(path).open("rb", buffering=0), wait, has_successor))
