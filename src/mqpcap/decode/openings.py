"""Which first bytes a client may send: one table for all protocols.

In: the new connections of a window, as columns. Out: those that no protocol can claim, with the name of the foreign
protocol. Called by: `Framer`, before any protocol is asked. The table is made of ``MessageQueue.openings``.

It decides only what a protocol would decide by the same bytes: the handshake shows the client, the first byte of its
stream was captured, and the client spoke first. All other connections are left to `Detector`.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.decode.foreign_protocols import foreign_protocol
from mqpcap.schema.protocol import FirstBytes, MessageQueue
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.flows import Flows

WIDTH_BYTES = 16
"""Bytes of a side that the table compares."""
NAME_BYTES = 9000
"""Bytes of a side that show the name of its protocol."""
_TO_ASK = tuple(
    map(FirstBytes, (b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n", b"CONNECT ", b"\4\1", b"\5", b"PRI * HTTP/2.0\r\n"))
)
"""Headers and requests of proxies, and HTTP/2, whose later bytes show gRPC: `Detector` reads them."""

_Words = NDArray[np.uint64]
_BYTES_KNOWN = np.tri(WIDTH_BYTES + 1, WIDTH_BYTES, -1, np.uint8) * np.uint8(255)


class _Patterns:
    """Values and masks of first bytes; bytes that are too few fit as far as they go."""

    def __init__(self, openings: Sequence[FirstBytes]) -> None:
        self.length = np.array([len(x.value) for x in openings], np.int64)
        self._value = _words(x.value for x in openings)
        self._mask = _words(x.mask or b"\xff" * len(x.value) for x in openings)

    def fits(self, words: _Words, length: Int64Array) -> NDArray[np.bool_]:
        """A matrix: the first bytes of a side (row) fit a pattern (column)."""
        captured = _BYTES_KNOWN[np.minimum(length, WIDTH_BYTES)].view(np.uint64)
        differing = (words[:, None] ^ self._value) & self._mask & captured[:, None]
        fits: NDArray[np.bool_] = (differing == 0).all(axis=2)
        return fits


def _words(values: Iterator[bytes]) -> _Words:
    return np.frombuffer(b"".join(x.ljust(WIDTH_BYTES, b"\0") for x in values), np.uint64).reshape(-1, 2)


class OpeningTable:
    """The openings of all protocols; ``asked_ports``: connections of these ports are not decided here."""

    def __init__(self, protocols: Mapping[str, MessageQueue], asked_ports: Sequence[int]) -> None:
        openings = [*_TO_ASK, *(x for protocol in protocols.values() for x in protocol.openings)]
        self._unanswered = _Patterns([x for x in openings if not x.answers])
        self._answered = [
            (_Patterns([x]), _Patterns([FirstBytes(*y) for y in x.answers])) for x in openings if x.answers
        ]
        searched = (port for x in protocols.values() if x.searches_on_port for port in x.ports)
        self._asked_ports = np.array([*asked_ports, *searched], np.int64)

    def foreign(self, chunks: StreamChunks, flows: Flows, rows: Int64Array) -> Iterator[tuple[int, str | None]]:
        """Numbers and names of foreign connections; ``rows``: the first chunk of each new connection."""
        if not len(chunks.buffer):
            return
        is_own = self._unanswered.fits(_first_words(chunks, rows), chunks.length[rows]).any(axis=1)
        rows, server_rows, port = clients_first(chunks, flows, rows[~is_own])
        is_asked = np.isin(port, self._asked_ports).any(axis=1)
        rows, server_rows = rows[~is_asked], server_rows[~is_asked]
        if not len(rows):
            return
        lengths = chunks.length[rows], np.where(server_rows >= 0, chunks.length[server_rows], 0)
        request, answer = (_first_words(chunks, x) for x in (rows, server_rows))
        may_begin, fits = np.zeros((2, len(rows)), np.bool_)
        for opening, answers in self._answered:
            begins = opening.fits(request, lengths[0])[:, 0]
            is_whole = (lengths[0] >= opening.length[0]) & (lengths[1] >= answers.length.max())
            may_begin |= begins
            fits |= begins & (~is_whole | answers.fits(answer, lengths[1]).any(axis=1))
        kept, buffer = ~fits, memoryview(chunks.buffer)
        # Without an opening of ours the first packet shows the name.
        sizes = np.where(may_begin, NAME_BYTES, chunks.piece_length[chunks.piece_first[rows]])
        places = (
            chunks.start[rows], np.minimum(lengths[0], sizes),
            chunks.start[server_rows], np.where(may_begin, np.minimum(lengths[1], NAME_BYTES), 0),
        )  # fmt: skip
        columns = (x[kept].tolist() for x in (chunks.flow[rows], *places))
        for number, start, size, server_start, server_size in zip(*columns, strict=True):
            answer_data = bytes(buffer[server_start : server_start + server_size]) if server_size else b""
            yield number, foreign_protocol(bytes(buffer[start : start + size]), answer_data)


def clients_first(
    chunks: StreamChunks, flows: Flows, rows: Int64Array
) -> tuple[Int64Array, Int64Array, NDArray[np.int32]]:
    """The chunks of clients that spoke first, from their SYN on and without a gap; ``rows``: first chunks.

    Also those of their servers, -1 for none, and the ports of both.
    """
    following = np.minimum(rows + 1, len(chunks) - 1)
    has_server = (chunks.flow[following] == chunks.flow[rows]) & (following > rows)
    is_client = (chunks.side[rows] == 0) & (chunks.offset[rows] == 0) & (chunks.length[rows] > 0)
    # Another chunk follows a gap.
    next_flow = chunks.flow[np.minimum(rows + 1 + has_server, len(chunks) - 1)]
    is_client &= (next_flow != chunks.flow[rows]) | (rows + 1 + has_server >= len(chunks))
    is_client &= ~has_server | ((chunks.side[following] == 1) & (chunks.offset[following] == 0))
    rows, following, has_server = rows[is_client], following[is_client], has_server[is_client]
    has_server &= chunks.length[following] > 0
    order, last_piece = chunks.piece_order, len(chunks.piece_order) - 1
    server_order = order[np.minimum(chunks.piece_first[following], last_piece)]
    is_first = ~has_server | (order[chunks.piece_first[rows]] < server_order)
    a_is_client, start_known, port = flows.beginnings(chunks.flow[rows])
    kept = a_is_client & start_known[:, 0] & is_first
    has_server &= start_known[:, 1]
    return rows[kept], np.where(has_server, following, -1)[kept], port[kept]


def _first_words(chunks: StreamChunks, rows: Int64Array) -> _Words:
    places = np.minimum(chunks.start[rows][:, None] + np.arange(WIDTH_BYTES), len(chunks.buffer) - 1)
    words: _Words = chunks.buffer[places].view(np.uint64)
    return words
