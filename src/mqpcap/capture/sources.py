"""Files, pipes and compressed files to plain bytes, a piece at a time.

Feeds ``windows`` and ``inputs``. Compression is known by content, never by the name's ending. Promises: memory
does not grow with the file; a stream that breaks off gives the bytes before the break (zstd and lz4: all but
ARROW_READ_BYTES) and then says, in ``failure``, what was found.

Hard part: a decompressor that raises also throws away what the same call had unpacked already. gzip input is
therefore fed again byte by byte from a copy of the decompressor's state; zstd and lz4 are asked for little at
a time.
"""

from __future__ import annotations

import bz2
import io
import os
import select
import stat
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import pyarrow as pa

from mqpcap.errors import one_line

COMPRESSED_CHUNK_BYTES = 1 << 16
"""Compressed bytes fed to gzip and bz2 at a time."""
MAX_PIECE_BYTES = 1 << 20
"""Plain bytes taken from gzip and bz2 at a time, so that a small input cannot blow up."""
ARROW_READ_BYTES = 1 << 12
"""Plain bytes asked of zstd and lz4 at a time; also the most that is lost where the input breaks off."""
MAX_MEMBERS_WITHOUT_BYTES = 1 << 16
"""Compressed members in a row that hold nothing, before the file counts as damaged."""
MAX_SAID_LENGTH = 200
"""So much of what a library says of a damaged stream is passed on."""

TICK_S = 0.03
"""Who waits for a pipe is told each time it gave nothing for so long."""
QUIET_S = 0.005
"""A pipe that gives nothing for so long has no more at hand."""
GATHER_S = 0.02
"""What comes within it is read with what came before."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who waits for bytes that come when somebody writes them.

    ``idle`` is called each time there was nothing for TICK_S; ``is_over`` says that what comes later is not wanted: the
    input ends here.
    """

    idle: Callable[[], None]
    is_over: Callable[[], bool] = bool


class Bytes:
    """A one-way stream of plain bytes; ``failure`` is what broke it off, None while nothing did."""

    failure: str | None = None
    size_bytes: int | None = None
    """Bytes in all, where reading may begin at any."""
    is_pipe = False
    """Whether bytes come when somebody writes them."""

    def read(self, length: int) -> bytes:
        """Up to length bytes; empty at the end only."""
        room = bytearray(length)
        got = self.readinto(memoryview(room))
        return bytes(room[:got])

    def readinto(self, view: memoryview) -> int:
        """Fill the view; the count is smaller than the view at the end only."""
        raise NotImplementedError

    def read_ready(self, view: memoryview, waiting: Waiting) -> int:
        """The same; of a pipe what is at hand, waiting for a first byte, and 0 at the end only."""
        return self.readinto(view)

    def seek(self, position: int) -> None:
        """Go to a byte, where there is ``size_bytes``; reading begins there. Raises OSError."""
        raise NotImplementedError

    def close(self) -> None:
        """Give the file back."""
        raise NotImplementedError


class _Unpacked(Bytes):
    """Plain bytes out of compressed ones, held until asked for."""

    def __init__(self, inner: Headed) -> None:
        self._inner = inner
        self._ready = memoryview(b"")
        self._ended = False

    def _refill(self) -> None:
        """Have more bytes ready, or end; neither is sure."""
        raise NotImplementedError

    def readinto(self, view: memoryview) -> int:
        """Fill the view; the count is smaller than the view at the end only."""
        got = 0
        while got < len(view) and (self._ready or not self._ended):
            if not self._ready:
                self._refill()
            taken = min(len(self._ready), len(view) - got)
            view[got : got + taken] = self._ready[:taken]
            self._ready = self._ready[taken:]
            got += taken
        return got

    def close(self) -> None:
        """Give the file back."""
        self._inner.close()


class Plain(Bytes):
    """Bytes of a file object, up to the size it had when opened if it is a regular file."""

    def __init__(self, file: BinaryIO, size_bytes: int | None, owned: bool) -> None:
        self._file = file
        self._left = size_bytes
        self._owned = owned
        self.size_bytes = size_bytes
        self.is_pipe = size_bytes is None

    def seek(self, position: int) -> None:
        """Go to a byte of a regular file; reading begins there."""
        assert self.size_bytes is not None
        self._file.seek(position)
        self._left = max(0, self.size_bytes - position)

    def readinto(self, view: memoryview) -> int:
        """Fill the view; the count is smaller than the view at the end only."""
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

    def read_ready(self, view: memoryview, waiting: Waiting) -> int:
        """Fill the view; of a pipe with what is at hand, waiting for a first byte: 0 at the end only."""
        if not self.is_pipe:
            return self.readinto(view)
        while not waiting.is_over() and not _comes(self._file, TICK_S):
            waiting.idle()
        if waiting.is_over():
            return 0
        read_once = getattr(self._file, "readinto1", None) or self._file.readinto  # type: ignore[attr-defined]  # as above
        got = count = read_once(view)
        until_s = time.monotonic() + GATHER_S
        while count and got < len(view) and _comes(self._file, min(QUIET_S, until_s - time.monotonic())):
            count = read_once(view[got:])
            got += count
        return int(got)

    def close(self) -> None:
        """Give the file back, if it is ours."""
        if self._owned:
            self._file.close()


class Growing(Plain):
    """Bytes of a regular file that is still being written: the end is where nothing more is wanted, or ``is_left``."""

    def __init__(self, file: BinaryIO, waiting: Waiting, is_left: Callable[[BinaryIO], bool]) -> None:
        super().__init__(file, None, owned=True)
        self._waiting, self._is_left = waiting, is_left

    def readinto(self, view: memoryview) -> int:
        """Fill the view, waiting for what is to be written; the count is smaller than the view at the end only."""
        got = 0
        while got < len(view) and (count := self.read_ready(view[got:], self._waiting)):
            got += count
        return got

    def read_ready(self, view: memoryview, waiting: Waiting) -> int:
        """Fill the view with what is there, waiting for a first byte; 0 at the end only."""
        while not (count := super().readinto(view)) and not waiting.is_over():
            if self._is_left(self._file):
                return super().readinto(view)  # what was written meanwhile
            time.sleep(TICK_S)
            waiting.idle()
        return count


class Headed:
    """A stream whose first bytes can be looked at before they are read."""

    def __init__(self, inner: Bytes, compression: str | None = None) -> None:
        self._inner = inner
        self._head = b""
        self.compression = compression

    @property
    def failure(self) -> str | None:
        """What broke the stream off, None while nothing did."""
        return self._inner.failure

    @property
    def size_bytes(self) -> int | None:
        """Bytes in all, where reading may begin at any; None of compressed files and of pipes."""
        return self._inner.size_bytes

    def seek(self, position: int) -> None:
        """Go to a byte; only where ``size_bytes`` says so. Raises OSError."""
        self._head = b""
        self._inner.seek(position)

    def peek(self, length: int) -> bytes:
        """The next bytes, fewer at the end only."""
        while len(self._head) < length:
            more = self._inner.read(length - len(self._head))
            if not more:
                break
            self._head += more
        return self._head[:length]

    def read(self, length: int) -> bytes:
        """Up to length bytes; empty at the end only."""
        if self._head:
            piece, self._head = self._head[:length], self._head[length:]
            return piece
        return self._inner.read(length)

    def readinto(self, view: memoryview) -> int:
        """Fill the view; the count is smaller than the view at the end only."""
        taken = min(len(self._head), len(view))
        view[:taken] = self._head[:taken]
        self._head = self._head[taken:]
        return taken + (self._inner.readinto(view[taken:]) if taken < len(view) else 0)

    @property
    def is_pipe(self) -> bool:
        """Whether bytes come as they are when somebody writes them."""
        return self._inner.is_pipe

    def read_ready(self, view: memoryview, waiting: Waiting) -> int:
        """What was looked at of a pipe, or what is at hand of it; else what ``readinto`` does."""
        if self._head:
            return self.readinto(view[: len(self._head)] if self.is_pipe else view)
        return self._inner.read_ready(view, waiting)

    def close(self) -> None:
        """Give the file back."""
        self._inner.close()


class _Decompressed(_Unpacked):
    """What gzip and bz2 share: members one after the other."""

    name = ""
    magic = b""

    def __init__(self, inner: Headed) -> None:
        super().__init__(inner)
        self._waiting = b""
        self._member_open = False
        self._barren = 0

    def _begin(self) -> None:
        raise NotImplementedError

    def _feed(self, chunk: bytes) -> tuple[bytes, bytes, bool]:
        """Plain bytes, input left over, and whether the member is complete."""
        raise NotImplementedError

    def _holds_input(self) -> bool:
        """Whether the decompressor can give more without being fed."""
        return False

    def _refill(self) -> None:
        if not self._waiting and not self._holds_input():
            self._waiting = self._inner.read(COMPRESSED_CHUNK_BYTES)
        if not self._waiting and not self._holds_input():
            self._ended = True
            if self._member_open:
                self.failure = self._inner.failure or f"the {self.name} stream is cut off"
            return
        if not self._member_open:
            if len(self._waiting) < len(self.magic):
                self._waiting += self._inner.read(COMPRESSED_CHUNK_BYTES)
            if not self._waiting.startswith(self.magic):
                self._ended = True
                if self._waiting.strip(b"\0"):
                    self.failure = f"bytes that are no {self.name} follow the {self.name} stream"
                return
            self._begin()
            self._member_open = True
        plain, self._waiting, complete = self._feed(self._waiting)
        if complete:
            self._member_open = False
            self._barren = 0 if plain else self._barren + 1
            if self._barren > MAX_MEMBERS_WITHOUT_BYTES:
                self._break_off(f"more than {MAX_MEMBERS_WITHOUT_BYTES} empty {self.name} members")
        self._ready = memoryview(plain)

    def _break_off(self, why: str) -> None:
        self.failure = why
        self._ended = True
        self._member_open = False


class _Gzip(_Decompressed):
    name = "gzip"
    magic = b"\x1f\x8b"

    def _begin(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    def _feed(self, chunk: bytes) -> tuple[bytes, bytes, bool]:
        before = self._member.copy()
        try:
            plain = self._member.decompress(chunk, MAX_PIECE_BYTES)
        except zlib.error as error:
            plain = _bytewise(before, chunk)
            self._break_off(f"the gzip stream is damaged ({error})")
            return plain, b"", False
        if self._member.eof:
            return plain, self._member.unused_data, True
        return plain, self._member.unconsumed_tail, False


def _bytewise(member: zlib._Decompress, chunk: bytes) -> bytes:
    """All that a gzip member gives before the byte that breaks it."""
    plain = bytearray()
    for at in range(len(chunk)):
        try:
            plain += member.decompress(chunk[at : at + 1])
        except zlib.error:
            break
    return bytes(plain)


class _Bz2(_Decompressed):
    name = "bz2"
    magic = b"BZh"

    def _begin(self) -> None:
        self._member = bz2.BZ2Decompressor()

    def _feed(self, chunk: bytes) -> tuple[bytes, bytes, bool]:
        try:
            plain = self._member.decompress(chunk, MAX_PIECE_BYTES)
        except (OSError, EOFError) as error:
            self._break_off(f"the bz2 stream is damaged ({error})")
            return b"", b"", False
        return plain, self._member.unused_data, self._member.eof

    def _holds_input(self) -> bool:
        return self._member_open and not self._member.needs_input


class _Readable(io.RawIOBase):
    """The little of a Python file that pyarrow asks for."""

    def __init__(self, inner: Headed) -> None:
        super().__init__()
        self._inner = inner

    def read(self, length: int = -1) -> bytes:
        return self._inner.read(length if length > 0 else COMPRESSED_CHUNK_BYTES)

    def readable(self) -> bool:
        return True


class _Arrow(_Unpacked):
    """zstd and lz4 frames, by pyarrow."""

    def __init__(self, inner: Headed, name: Literal["lz4", "zstd"]) -> None:
        super().__init__(inner)
        self._name = name
        self._stream = pa.CompressedInputStream(pa.PythonFile(_Readable(inner), mode="r"), name)

    def _refill(self) -> None:
        try:
            self._ready = memoryview(self._stream.read(ARROW_READ_BYTES))
        except (OSError, pa.ArrowException) as error:
            what = f"the {self._name} stream is cut off or damaged ({one_line(error)[:MAX_SAID_LENGTH]})"
            self.failure = self._inner.failure or what
        self._ended = not self._ready


def _comes(file: BinaryIO, time_s: float) -> bool:
    """Whether bytes, or the end of a file, come within a time; always where that cannot be told."""
    try:
        return bool(select.select([file], [], [], max(time_s, 0))[0])
    except (OSError, ValueError):
        return True


def plain_bytes(file: BinaryIO, size: int | None, owned: bool = False) -> Headed:
    """The plain bytes of a file object, decompressed if its content says so.

    owned: closing the bytes closes the file. size is where a regular file ended when it was opened: one that
    still grows is read up to there.
    """
    return _decompressed(Headed(Plain(file, size, owned)))


def _decompressed(raw: Headed) -> Headed:
    first = raw.peek(4)
    if first.startswith(_Gzip.magic):
        return Headed(_Gzip(raw), "gzip")
    if first.startswith(_Bz2.magic):
        return Headed(_Bz2(raw), "bz2")
    if first == _ZSTD_MAGIC:
        return Headed(_Arrow(raw, "zstd"), "zstd")
    if first == _LZ4_MAGIC:
        return Headed(_Arrow(raw, "lz4"), "lz4")
    return raw


def open_path(path: str | Path) -> Headed:
    """The plain bytes of the file at a path; raises OSError if it cannot be opened."""
    file = Path(path).open("rb", buffering=0)  # noqa: SIM115  # the caller closes it
    try:
        status = os.fstat(file.fileno())
    except OSError:
        file.close()
        raise
    return plain_bytes(file, status.st_size if stat.S_ISREG(status.st_mode) else None, owned=True)


def growing(path: str | Path, waiting: Waiting, is_left: Callable[[BinaryIO], bool]) -> Headed:
    """The bytes of a file that is still being written, until ``is_left`` says of it that it is no more.

    Raises OSError if it cannot be opened.
    """
    return _decompressed(Headed(Growing(Path(path).open("rb", buffering=0), waiting, is_left)))
