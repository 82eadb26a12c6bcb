"""What is known about connections: one, or many as arrays; their identifiers and numbers."""

import base64
import hashlib
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mqpcap.tcp.chunks import I64
from mqpcap.tcp.flow_records import NONE
from mqpcap.tcp.flow_table import FlowTable
from mqpcap.tcp.headers import ADDRESSES, address_text
from mqpcap.tcp.sequence_numbers import MAX_WINDOW, unwrapped, wrapped

EndState = Literal["reset", "closed", "open"]
_Bytes = NDArray[np.uint8]
END_STATES: tuple[EndState, ...] = ("reset", "closed", "open")


@dataclass(frozen=True, slots=True)
class Flow:
    """One TCP connection. Pairs are (side 0, side 1); side 0 is sent by endpoint A, side 1 by endpoint B.

    oriented: A is the client, known from a SYN; else A is the sender of the first packet captured. fin_offset: stream
    offset behind the last byte, if a FIN was captured. acked: the highest acknowledgement of this side's bytes that the
    OTHER side sent, as an offset of this side's stream (fin_offset + 1 if its FIN is acknowledged), None if unknown.
    end_offset: behind the last byte given out. equal: its number among flows of the same tuple and first time.
    """

    index: int
    version: int
    a_ip: str
    a_port: int
    b_ip: str
    b_port: int
    first_ts_ns: int
    last_ts_ns: int
    oriented: bool
    syn_seen: bool
    end_state: EndState
    syn: tuple[bool, bool]
    rst: tuple[bool, bool]
    fin_offset: tuple[int | None, int | None]
    acked: tuple[int | None, int | None]
    end_offset: tuple[int, int]
    packets: tuple[int, int]
    bytes: tuple[int, int]
    retransmitted: tuple[int, int]
    conflict: tuple[int, int]
    missing: tuple[int, int]
    equal: int

    @property
    def connection_id(self) -> int:
        """The connection_id of the tables."""
        one = (_address_bytes(self.version, self.a_ip), self.a_port)
        two = (_address_bytes(self.version, self.b_ip), self.b_port)
        return connection_id(self.version, one, two, self.first_ts_ns, self.equal)

    @property
    def community_id(self) -> str:
        """The Community ID of the connection, version 1 with seed 0."""
        one = (_address_bytes(self.version, self.a_ip), self.a_port)
        two = (_address_bytes(self.version, self.b_ip), self.b_port)
        return _community_id(min(one, two), max(one, two))


@lru_cache(ADDRESSES)
def _address_bytes(version: int, text: str) -> bytes:
    return bytes(map(int, text.split("."))) if version == 4 else ipaddress.IPv6Address(text).packed


def _community_id(low: tuple[bytes, int], high: tuple[bytes, int]) -> str:
    said = b"\0\0" + low[0] + high[0] + b"\x06\0" + low[1].to_bytes(2, "big") + high[1].to_bytes(2, "big")
    return "1:" + base64.b64encode(hashlib.sha1(said, usedforsecurity=False).digest()).decode()


def connection_id(version: int, one: tuple[bytes, int], two: tuple[bytes, int], first_ts_ns: int, equal: int) -> int:
    """A positive number of 63 bits: of the endpoints in either order, the first packet's time, the number among equals.

    >>> a, b = (bytes([10, 0, 0, 1]), 5555), (bytes([10, 0, 0, 2]), 40000)
    >>> connection_id(4, a, b, 7, 0) == connection_id(4, b, a, 7, 0) != connection_id(4, a, b, 7, 1)
    True
    """
    said = bytes([version])
    for address, port in sorted((one, two)):
        said += address + port.to_bytes(2, "big")
    said += (first_ts_ns & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big") + equal.to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "big") & 0x7FFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class FlowColumns:
    """Connections as arrays, one row each, with the names and meanings of Flow; what is a pair there has shape (n, 2).

    hi and lo (int64, n by 2: endpoint A, endpoint B) are the halves of the addresses; port their ports. end_state is an
    index into END_STATES. fin_offset and acked are NONE where Flow has None.
    """

    version: I64
    hi: I64
    lo: I64
    port: I64
    first_ts_ns: I64
    last_ts_ns: I64
    equal: I64
    oriented: NDArray[np.bool_]
    end_state: I64
    syn: NDArray[np.bool_]
    rst: NDArray[np.bool_]
    fin_offset: I64
    acked: I64
    end_offset: I64
    packets: I64
    bytes: I64
    retransmitted: I64
    conflict: I64
    missing: I64

    def __len__(self) -> int:
        return len(self.version)

    def flow(self, row: int, number: int) -> Flow:
        """One row as a record, ``number`` being the connection's."""
        version = int(self.version[row])
        a_ip, b_ip = (address_text(version, int(self.hi[row, x]), int(self.lo[row, x])) for x in (0, 1))
        said = {field.name: getattr(self, field.name)[row].tolist() for field in fields(self)}
        pairs = {name: tuple(value) for name, value in said.items() if isinstance(value, list)}
        for name in ("fin_offset", "acked"):
            pairs[name] = tuple(None if value == NONE else value for value in pairs[name])
        for name in ("hi", "lo", "port"):
            del said[name], pairs[name]
        return Flow(
            **said | pairs | {"end_state": END_STATES[said["end_state"]]},
            index=number,
            a_ip=a_ip,
            a_port=int(self.port[row, 0]),
            b_ip=b_ip,
            b_port=int(self.port[row, 1]),
            syn_seen=any(pairs["syn"]),
        )

    def ips(self, side: NDArray[np.integer]) -> list[str]:
        """The address as text of one endpoint of each row: A where side is 0, B where it is 1."""
        row = np.arange(len(self))
        hi, lo = self.hi[row, side], self.lo[row, side]
        return [address_text(v, h, x) for v, h, x in zip(self.version.tolist(), hi.tolist(), lo.tolist(), strict=True)]

    def ports(self, side: NDArray[np.integer]) -> I64:
        """The port of the same endpoint."""
        port: I64 = self.port[np.arange(len(self)), side]
        return port

    def connection_ids(self) -> I64:
        """Flow.connection_id of each row."""
        out = np.zeros(len(self), np.int64)
        for version, rows, one, two, ports in self._endpoints():
            tail = np.column_stack([self.first_ts_ns[rows], self.equal[rows]]).astype(">i8").view(np.uint8)
            head = np.full((len(rows), 1), version, np.uint8)
            said = np.hstack([head, one, ports[:, :2], two, ports[:, 2:], tail.reshape(-1, 16)])
            digests = b"".join([hashlib.blake2b(x, digest_size=8).digest() for x in _rows(said)])
            out[rows] = np.frombuffer(digests, ">u8").astype(np.int64) & 0x7FFFFFFFFFFFFFFF
        return out

    def community_ids(self) -> list[str]:
        """Flow.community_id of each row."""
        out = np.empty(len(self), object)
        for _, rows, one, two, ports in self._endpoints():
            fixed = np.zeros((len(rows), 2), np.uint8)
            said = np.hstack([fixed, one, two, fixed + np.array([6, 0], np.uint8), ports])
            digests = (hashlib.sha1(x, usedforsecurity=False).digest() for x in _rows(said))
            out[rows] = ["1:" + base64.b64encode(x).decode() for x in digests]
        return list(out)

    def _endpoints(self) -> Iterator[tuple[int, I64, _Bytes, _Bytes, _Bytes]]:
        """By IP version: rows, the bytes of the lower and the higher endpoint's address, and of both their ports."""
        for version, size in ((4, 4), (6, 16)):
            rows = np.flatnonzero(self.version == version)
            if not len(rows):
                continue
            hi, lo = self.hi[rows].view(np.uint64), self.lo[rows].view(np.uint64)
            port = self.port[rows]
            same_hi, same = hi[:, 0] == hi[:, 1], (hi[:, 0] == hi[:, 1]) & (lo[:, 0] == lo[:, 1])
            b_first = (hi[:, 1] < hi[:, 0]) | (same_hi & (lo[:, 1] < lo[:, 0])) | (same & (port[:, 1] < port[:, 0]))
            row, low = np.arange(len(rows)), b_first.astype(np.int64)
            one, two = (
                np.column_stack([hi[row, x], lo[row, x]]).astype(">u8").view(np.uint8).reshape(-1, 16)[:, 16 - size :]
                for x in (low, 1 - low)
            )
            ports = np.column_stack([port[row, low], port[row, 1 - low]]).astype(">u2").view(np.uint8).reshape(-1, 4)
            yield version, rows, one, two, ports


def _rows(matrix: NDArray[np.uint8]) -> Iterator[bytes]:
    """The rows of a matrix as bytes."""
    whole, width = matrix.tobytes(), matrix.shape[1]
    return (whole[at : at + width] for at in range(0, len(whole), width))


def flow_columns(flows: NDArray[np.void], sides: NDArray[np.void]) -> FlowColumns:
    """Records of the flow table as columns; sides has two columns, one for each side."""
    fin, rst, base, reached = sides["fin"].copy(), sides["rst_seen"] != 0, sides["base"], sides["next"].copy()
    ack = sides["ack"][:, ::-1]
    return FlowColumns(
        version=flows["version"].astype(np.int64),
        hi=np.column_stack([flows["a_hi"], flows["b_hi"]]),
        lo=np.column_stack([flows["a_lo"], flows["b_lo"]]),
        port=np.column_stack([flows["a_port"], flows["b_port"]]).astype(np.int64),
        first_ts_ns=flows["first_ts_ns"].copy(),
        last_ts_ns=flows["last_ts_ns"].copy(),
        equal=flows["equal"].copy(),
        oriented=flows["oriented"] != 0,
        end_state=np.where(rst.any(axis=1), 0, np.where((fin != NONE).any(axis=1), 1, 2)),
        syn=sides["syn_seen"] != 0,
        rst=rst,
        fin_offset=fin,
        acked=np.where((base < 0) | (ack < 0), NONE, unwrapped(ack, base, reached)),
        end_offset=reached,
        packets=sides["packets"].copy(),
        bytes=sides["bytes"].copy(),
        retransmitted=sides["retransmitted"].copy(),
        conflict=sides["conflict"].copy(),
        missing=sides["missing"].copy(),
    )


class Numbers:
    """The numbers of connections, in order of their first packets, and their places in the flow table.

    A number stays a connection's for ever; the places of those that are forgotten are taken again.
    """

    def __init__(self) -> None:
        self._left = np.zeros(0, np.int64)
        """The numbers of the first flows of the table, where some before them are forgotten."""
        self.forgotten = 0

    def of(self, places: I64) -> I64:
        """The numbers of the connections at some places."""
        if not self.forgotten:
            return places
        numbers = places + self.forgotten
        old = np.flatnonzero(places < len(self._left))
        numbers[old] = self._left[places[old]]
        return numbers

    def places(self, numbers: I64) -> I64:
        """Where connections are, -1 if they are forgotten."""
        if not self.forgotten:
            return numbers
        places = numbers - self.forgotten
        old = np.flatnonzero(places < len(self._left))
        if len(old):
            at = np.searchsorted(self._left, numbers[old])
            places[old] = np.where(np.append(self._left, -1)[at] == numbers[old], at, -1)
        return places

    def leave_out(self, stays: NDArray[np.bool_]) -> None:
        """Only some of the connections stay in the table, and move together."""
        self._left = self.of(np.flatnonzero(stays))
        self.forgotten += int(np.count_nonzero(~stays))


class Flows:
    """The connections of a Reassembler, in order of their first packet; KeyError for those that are forgotten."""

    def __init__(self, table: FlowTable, numbers: Numbers) -> None:
        self._table = table
        self._numbers = numbers

    def __len__(self) -> int:
        return int(self._table.flow_count) + self._numbers.forgotten

    def __getitem__(self, number: int) -> Flow:
        if not 0 <= number < len(self):
            raise IndexError(f"flow {number} of {len(self)}")
        return self.columns(np.array([number])).flow(0, number)

    def __iter__(self) -> Iterator[Flow]:
        return (self[number] for number in range(len(self)))

    def columns(self, numbers: I64) -> FlowColumns:
        """Many of them at once."""
        return flow_columns(*self._records(numbers))

    def anchors(self, numbers: I64) -> tuple[I64, I64]:
        """The keys their segments have, and the sequence numbers of stream offset 0 (n by 2, -1 unknown)."""
        flows, sides = self._records(numbers)
        return flows["key"].copy(), sides["base"].copy()

    def _records(self, numbers: I64) -> tuple[NDArray[np.void], NDArray[np.void]]:
        places = self._numbers.places(numbers)
        gone = np.flatnonzero(places < 0)
        if len(gone):
            raise KeyError(int(numbers[gone[0]]))
        sides = self._table.side_array[: self._table.flow_count * 2].reshape(-1, 2)
        return self._table.flow_array[places], sides[places]

    def unseen_sides(self) -> list[tuple[int, int]]:
        """Connections, and the side of each, of which bytes were acknowledged that were not captured, or not yet."""
        sides = self._table.side_array[: self._table.flow_count * 2].reshape(-1, 2)
        ack, ahead = sides["ack"][:, ::-1], wrapped(sides["ack"][:, ::-1] - sides["base"] - sides["next"])
        unseen = (ack >= 0) & (sides["base"] >= 0) & (sides["ended"] == 0) & (ahead > 0) & (ahead < MAX_WINDOW)
        places, which = np.nonzero(unseen)
        return list(zip(self._numbers.of(places).tolist(), which.tolist(), strict=True))
