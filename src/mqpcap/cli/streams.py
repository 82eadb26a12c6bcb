"""The streams of some connections of a capture, reassembled anew: their bytes, and the packets that brought them."""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mqpcap.capture import Capture, Window
from mqpcap.cli.chosen import Chosen
from mqpcap.cli.console import Meter
from mqpcap.pipeline import taken
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.headers import Dissector, Segments, endpoints, keys_of
from mqpcap.tcp.reassembly import Reassembler

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes of a side that follow each other, each given once; and the packets of its pieces, by file and number."""

    connection_id: int
    direction: str
    offset: int
    data: NDArray[np.uint8]
    piece_offset: I64
    piece_length: I64
    piece_number: I64
    piece_file: I64


class Streams:
    """The connections of one capture that are asked for."""

    def __init__(self, capture: Capture, connections: Sequence[Chosen], meter: Meter) -> None:
        self._capture, self._meter = capture, meter
        self._clients = {one.id: (one.row["client_ip"], one.row["client_port"]) for one in connections}
        self._keys = keys(connections)
        self._assembler = Reassembler()

    def runs(self) -> Iterator[Run]:
        """The runs of all sides as they become whole, in order of offset within a side."""
        dissector = Dissector()
        for window in self._capture.windows():
            yield from self._runs(self._assembler.feed(self._some(dissector, window)))
            self._meter(int(window.caplen.sum()))
        yield from self._runs(self._assembler.finish())

    def _some(self, dissector: Dissector, window: Window) -> Segments:
        """The segments between the ends of the connections that are asked for."""
        segments = dissector.segments(window)
        return taken(segments, np.flatnonzero(np.isin(segments.key, self._keys)))

    def _runs(self, chunks: StreamChunks) -> Iterator[Run]:
        known = {flow: self._connection(flow) for flow in np.unique(chunks.flow).tolist()}
        for i in range(len(chunks)):
            which, client = known[int(chunks.flow[i])]
            if which not in self._clients or not chunks.length[i]:
                continue
            start, pieces = int(chunks.start[i]), slice(int(chunks.piece_first[i]), int(chunks.piece_first[i + 1]))
            yield Run(
                which, "c2s" if chunks.side[i] == client else "s2c", int(chunks.offset[i]),
                chunks.buffer[start : start + int(chunks.length[i])], chunks.piece_offset[pieces],
                chunks.piece_length[pieces], chunks.piece_number[pieces], chunks.piece_file[pieces],
            )  # fmt: skip

    def _connection(self, flow: int) -> tuple[int, int]:
        """The connection_id of a flow, and which side of it is the client."""
        of = self._assembler.flows.columns(np.array([flow]))
        number, side = int(of.connection_ids()[0]), np.zeros(1, np.int64)
        return number, 0 if (of.ips(side)[0], int(of.ports(side)[0])) == self._clients.get(number) else 1


def keys(connections: Sequence[Chosen]) -> I64:
    """``Segments.key`` of connections."""
    ends = []
    for end in ("client", "server"):
        ips = [int(ipaddress.ip_address(str(one.row[f"{end}_ip"]))) for one in connections]
        ports = np.array([int(str(one.row[f"{end}_port"])) for one in connections], np.int64)
        ends.append(endpoints(_halves([ip >> 64 for ip in ips]), _halves(ips), ports))
    return keys_of((ends[0], ends[1]))


def _halves(numbers: Sequence[int]) -> I64:
    return np.array([number & (1 << 64) - 1 for number in numbers], np.uint64).view(np.int64)
