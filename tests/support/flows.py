"""Connections one by one, as tests ask for them, with identifiers made the plain way."""

import base64
import hashlib
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from mqpcap.tcp.flow_records import NO_OFFSET
from mqpcap.tcp.flows import END_STATES, TCP_STATES, FlowColumns
from mqpcap.tcp.reassembly import Reassembler

Address = bytes


@dataclass(frozen=True)
class Flow:
    """A row of `FlowColumns`; pairs are (sent by A, sent by B), what is not known is None."""

    index: int
    version: int
    hi: tuple[int, int]
    lo: tuple[int, int]
    port: tuple[int, int]
    first_ts_ns: int
    last_ts_ns: int
    duplicate: int
    a_is_client: bool
    end_state: str
    syn: tuple[bool, bool]
    rst: tuple[bool, bool]
    fin_offset: tuple[int | None, int | None]
    acked: tuple[int | None, int | None]
    end_offset: tuple[int, int]
    packets: tuple[int, int]
    bytes: tuple[int, int]
    retransmitted: tuple[int, int]
    duplicates: tuple[int, int]
    conflict: tuple[int, int]
    missing: tuple[int, int]
    tcp_state: str
    closed_by: int
    idle_before_close_ns: int
    closed_window_ns: tuple[int, int]

    @property
    def syn_seen(self) -> bool:
        return any(self.syn)

    @property
    def a_ip(self) -> str:
        return str(ipaddress.ip_address(self._address(0)))

    @property
    def b_ip(self) -> str:
        return str(ipaddress.ip_address(self._address(1)))

    def _address(self, end: int) -> Address:
        whole = b"".join((half[end] & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big") for half in (self.hi, self.lo))
        return whole[12:] if self.version == 4 else whole

    @property
    def _ends(self) -> list[tuple[Address, int]]:
        return sorted((self._address(end), self.port[end]) for end in (0, 1))

    @property
    def connection_id(self) -> int:
        return connection_id(self.version, *self._ends, self.first_ts_ns, self.duplicate)

    @property
    def community_id(self) -> str:
        (low, low_port), (high, high_port) = self._ends
        said = b"\0\0" + low + high + b"\x06\0" + low_port.to_bytes(2, "big") + high_port.to_bytes(2, "big")
        return "1:" + base64.b64encode(hashlib.sha1(said).digest()).decode()


def connection_id(
    version: int, one: tuple[bytes, int], two: tuple[bytes, int], first_ts_ns: int, duplicate: int
) -> int:
    said = bytes([version])
    for address, port in sorted((one, two)):
        said += address + port.to_bytes(2, "big")
    said += (first_ts_ns & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big") + duplicate.to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "big") & 0x7FFFFFFFFFFFFFFF


def rows_of(of: FlowColumns, numbers: list[int]) -> Iterator[Flow]:
    """The rows one by one, each with the number of its connection."""
    for row, number in enumerate(numbers):
        said = {f.name: getattr(of, f.name)[row].tolist() for f in fields(Flow) if f.name != "index"}
        said |= {name: tuple(value) for name, value in said.items() if isinstance(value, list)}
        for name in ("fin_offset", "acked"):
            said[name] = tuple(None if value == NO_OFFSET else value for value in said[name])
        words = {"end_state": END_STATES[said["end_state"]], "tcp_state": TCP_STATES[said["tcp_state"]]}
        yield Flow(number, **said | words)


def flows_of(reassembler: Reassembler) -> list[Flow]:
    """The connections that are not forgotten, in order."""
    numbers = np.sort(reassembler.live)
    return list(rows_of(reassembler.flows.columns(numbers), numbers.tolist()))
