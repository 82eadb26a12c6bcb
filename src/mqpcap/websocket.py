"""MQTT in WebSocket: frames of both sides to one stream each.

In: `StreamChunks`, of TLS the plaintext. Out: `StreamChunks` with the payload of data frames, unmasked and joined: the
end of a frame means nothing (MQTT 5.0, section 6). Control frames lie between. Called by: the pipeline. What frames add
(the HTTP upgrade, headers, control frames) is one row of ``problems`` for each side, at its end.

Source: RFC 6455 (4: upgrade, 5.2: frames). A connection is opened if both sides upgrade, and ``mqtt`` is
named. After missing bytes a frame is found by the headers that follow it. Compressed frames (RFC 7692) are named,
not opened: their bytes have no packets.
"""

import re
from collections.abc import Iterable

import numpy as np

from mqpcap.tcp.chunks import LENGTH, NUMBER, OFFSET, TS_NS, StreamChunks
from mqpcap.tcp.derived_streams import (
    MAX_HELD_BYTES,
    DerivedConnection,
    DerivedSide,
    DerivedStreams,
    LostRange,
    Record,
    State,
)  # fmt: skip

REASON = "websocket"
"""``problems.reason`` of what frames add. Its bytes are not lost: nothing of a message is missing."""
COMPRESSED = "websocket: compressed"
MAX_HEAD_BYTES = 16 << 10
"""Longest request or response of the upgrade."""
MIN_FRAMES = 3
"""Frames in a row that are found after missing bytes; fewer if the captured bytes end with them."""
UPGRADE = re.compile(
    rb"(?:GET [!-~]+ HTTP/1\.1|HTTP/1\.1 101[^\r\n]*)\r\n(?:[^\r\n]+\r\n)*?upgrade:[ \t]*websocket[ \t]*\r\n", re.I
)
_MQTT = re.compile(rb"\r\nsec-websocket-protocol:[^\r\n]*\bmqtt", re.I)
_BEGINS = b"GET ", b"HTTP/1.1 101"
_CONTROL = range(8, 11)
_FIRST = re.compile(rb"[\x00-\x02\x80-\x82\x88-\x8a]", re.DOTALL)
"""A frame's first byte: no extension, and an opcode that exists."""
_WHOLE = re.compile(rb"[\x81\x82\x88-\x8a]", re.DOTALL)
"""The first byte of a frame with a whole message, or of a control frame."""


def frame_header(data: memoryview, start: int) -> tuple[int, int, bytes] | None:
    """The size of the header, the size of its payload, and the key that masks it; None if it is not whole.

    The size is -1 if it is no header: a size has one form, and control frames are short.
    """
    head = bytes(data[start : start + 14])
    if len(head) < 2:
        return None
    length, size = head[1] & 127, 2
    if length > 125:
        size += 2 if length == 126 else 8
        if len(head) < size:
            return None
        least, length = (126, 65536)[length - 126], int.from_bytes(head[2:size])
        size = size if least <= length < 1 << 63 and head[0] & 8 == 0 else -1
    is_masked = head[1] >> 7
    if not _FIRST.match(head) or size < 0:
        return -1, 0, b""
    key = head[size : size + 4 * is_masked]
    return None if len(key) < 4 * is_masked else (size + len(key), length, key)


def frames_begin(data: memoryview, offset: int) -> bool | None:
    """Whether whole messages or control frames in a row begin at a place; None if more bytes decide."""
    for _ in range(MIN_FRAMES):
        header = frame_header(data, offset)
        if header is None or header[0] < 0 or not _WHOLE.match(data, offset):
            return None if header is None else False
        offset += header[0] + header[1]
        if offset >= len(data):
            return True if offset == len(data) else None
    return True


def unmasked(content: memoryview, key: bytes, offset: int) -> bytes:
    """Payload from a byte on without its mask (RFC 6455, 5.3)."""
    n = len(content)
    if not key:
        return bytes(content)
    repeated = (key * (n // 4 + 2))[offset % 4 :][:n]
    return (int.from_bytes(content) ^ int.from_bytes(repeated)).to_bytes(n)


class WebSocketSide(DerivedSide):
    """A side; ``head``: its upgrade, once it is known."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.head: bytes | None = None
        self.is_refused = self._searches = self._is_estimated = False
        self._left, self._key, self._key_at, self._is_data = 0, b"", 0, True
        """The current frame: bytes of payload to come, its mask and how far it was used, whether it is data."""
        self._reason, self._first = REASON, [0, 0]
        """Why bytes are lost; time and number of the first packet."""

    def read_head(self) -> None:
        """Read the upgrade, if it is whole."""
        run = self.runs[0] if self.runs else None
        if self.head is not None or run is None:
            return
        data = bytes(run.data[:MAX_HEAD_BYTES])
        end = data.find(b"\r\n\r\n") + 4
        has_all = len(data) == MAX_HEAD_BYTES or len(self.runs) > 1 or self.has_end
        if run.offset == 0 and end > 3 and UPGRADE.match(data, 0, end):
            self.head, self.at, self.made_to, self.start_known = data[:end], end, 0, True
            self.overhead_bytes, self.places = end, [(0, 0, True), (end, 0, False)]
            self._first = self.pieces[[TS_NS, NUMBER], 0].tolist()
        else:
            begins = any(data[: len(x)] == x[: len(data)] for x in _BEGINS)
            self.is_refused = run.offset > 0 or end > 3 or has_all or not begins

    @property
    def known_to(self) -> int:
        """All bytes up to the end of the run, as a header that is not whole makes none."""
        run = next((run for run in self.runs if run.offset <= self.at < run.end), None)
        return self.at if run is None or self._searches else run.end

    def acknowledged(self, offset: int) -> int:
        """The payload that is acknowledged."""
        return self.made_to if offset > self.at else max(self.derived_offset(offset), 0)

    def step(self, data: memoryview, base: int, is_final: bool) -> bool:
        """Pass payload, or a header."""
        start = self.at - base
        if self._left:
            self._pass_payload(data[start : start + self._left])
            return True
        if self._searches:
            return self._search(data, base, is_final)
        header = frame_header(data, start)
        if header is None:
            return False
        size, self._left, self._key = header
        if size < 0:
            self._begin_search(COMPRESSED if data[start] & 0x70 == 0x40 else "websocket: not a frame")
            return True
        self._key_at, self._is_data = 0, data[start] & 15 not in _CONTROL
        self.overhead_bytes += size
        self._pass(size, 0)
        return True

    def _pass(self, size: int, made_bytes: int) -> None:
        self.at += size
        self.made_to += made_bytes
        self.places.append((self.at, self.made_to, False))

    def _pass_payload(self, content: memoryview) -> None:
        """Pass payload of the current frame, packet by packet: a message need not wait for the frame's end."""
        n = len(content)
        if not self._is_data:
            self.overhead_bytes += n
            self._end_payload(n, 0)
            return
        payload, end = unmasked(content, self._key, self._key_at), self.at + n
        i = int(np.searchsorted(self.pieces[OFFSET], self.at, "right")) - 1
        begin = self.at
        while begin < end:
            until = min(int(self.pieces[OFFSET, i] + self.pieces[LENGTH, i]), end)
            if until > begin:
                part = payload[begin - self.at : until - self.at]
                place = self.made_to + begin - self.at, len(part), begin, begin, until
                self.records.append(Record(*place, self._is_estimated, part))
                begin, self._is_estimated = until, False
            i += 1
        self._end_payload(n, n)

    def _end_payload(self, n: int, made_bytes: int) -> None:
        self._left -= n
        self._key_at += n
        self._pass(n, made_bytes)

    # -- what is missing -----------------------------------------------------------------------------------

    def pass_gap(self, offset: int) -> None:
        """Pass missing bytes: of the current frame, or of frames that nobody knows."""
        size = offset - self.at
        self.places.append((self.at, self.made_to, True))
        if size <= self._left and not self.has_estimate:
            self._end_payload(size, size if self._is_data else 0)
        else:
            self._begin_search("websocket: frames before it are missing")
            self._pass(size, size)
        self.has_estimate = False

    def break_record(self, data: memoryview) -> None:
        """Pass a header with a hole, and what a search did not find."""
        self._begin_search("websocket: frames before it are missing")
        self._lose(len(data))

    def _begin_search(self, why: str) -> None:
        self._left, self._searches, self._is_estimated = 0, True, True
        self._reason = why if self._reason != COMPRESSED else COMPRESSED

    def _search(self, data: memoryview, base: int, is_final: bool) -> bool:
        """Find a frame; False if more bytes are needed."""
        start, is_last = self.at - base, is_final or self.held_bytes > MAX_HELD_BYTES
        if self._reason == COMPRESSED:
            self._lose(len(data) - start)
            return True
        for match in _WHOLE.finditer(data, start):
            is_frame = frames_begin(data, match.start())
            if is_frame or (is_frame is None and not (is_last or self.has_end)):
                self._lose(match.start() - start)
                self._searches, self._reason = not is_frame, REASON if is_frame else self._reason
                return bool(is_frame)
        self._lose(len(data) - start)
        return False

    def _lose(self, size: int) -> None:
        self.lose_captured(self.at, size, self._reason)
        self._pass(size, size)

    def lose_overhead(self) -> None:
        """Note what frames added, at the end of the side."""
        if self.overhead_bytes:
            self.lost.append(LostRange(self.made_to, self.overhead_bytes, REASON, self.at, *self._first))
            self.overhead_bytes = 0


class WebSocketConnection(DerivedConnection[WebSocketSide]):
    """A connection that begins as HTTP does."""

    _state = State.HELD

    def new_sides(self) -> tuple[WebSocketSide, WebSocketSide]:
        """Both sides, without bytes."""
        return WebSocketSide(0), WebSocketSide(1)

    @property
    def state(self) -> State:
        """Whether both sides upgraded."""
        return self._state

    def close(self, why: str) -> None:
        """Let its bytes pass."""
        self._state = State.CLOSED

    def advance(self) -> None:
        """Read the upgrade, then frames."""
        if self._state is State.HELD:
            for side in self.sides:
                side.read_head()
            heads = [side.head for side in self.sides if side.head is not None]
            is_long = max(side.held_bytes for side in self.sides) > MAX_HELD_BYTES
            if any(side.is_refused for side in self.sides):
                self._state = State.CLOSED
            elif len(heads) == 2 or self.is_final or is_long:
                self._state = State.OPENED if any(map(_MQTT.search, heads)) else State.CLOSED
        if self._state is State.OPENED:
            for side in self.sides:
                side.advance(self.is_final)
                if self.is_final:
                    side.lose_overhead()


class WebSockets(DerivedStreams[WebSocketConnection]):
    """Opens the connections with MQTT in WebSocket."""

    def find(self, chunks: StreamChunks) -> Iterable[WebSocketConnection]:
        """The connections with a side that begins as an upgrade does."""
        rows = np.flatnonzero((chunks.offset == 0) & (chunks.length > 0))
        rows = rows[np.isin(chunks.buffer[chunks.start[rows]], [begin[0] for begin in _BEGINS])]
        buffer, sizes = memoryview(chunks.buffer), np.minimum(chunks.length[rows], MAX_HEAD_BYTES)
        columns = chunks.flow[rows], chunks.start[rows], sizes
        for number, start, size in zip(*(x.tolist() for x in columns), strict=True):
            head = buffer[start : start + size]
            if number in self.connections or not any(head[: len(x)] == x[:size] for x in _BEGINS):
                continue
            data = bytes(head)
            end = data.find(b"\r\n\r\n") + 4
            if end <= 3 or UPGRADE.match(data, 0, end):
                yield WebSocketConnection(number)
