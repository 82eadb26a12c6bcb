"""Connections that nobody asks for, left out before reassembly."""

import pickle

import numpy as np
import pytest
from numpy.typing import NDArray
from segments import ACK, FIN, RST, SYN, B, Packet, segments

from mqpcap.tcp import exclusion, headers
from mqpcap.tcp.exclusion import Endpoints, ExcludedConnections, selected_flows
from mqpcap.tcp.flows import FlowColumns
from mqpcap.tcp.headers import endpoint_pairs, keys_of
from mqpcap.tcp.reassembly import Reassembler

PORTS = (1, 2, 3)


def packets(ports: list[int], flags: int = ACK) -> headers.Segments:
    """A packet to B from each of these ports, and one back."""
    ways = [way for port in ports for way in ((("10.0.0.1", port), B), (B, ("10.0.0.1", port)))]
    made = segments([Packet(*way, 1, 1, flags) for way in ways])
    made.key[:] = keys_of(endpoint_pairs(made))
    return made


def flows() -> FlowColumns:
    """The connections of PORTS."""
    assembler = Reassembler()
    assembler.feed(packets([*PORTS]))
    return assembler.flows.columns(np.arange(len(PORTS)))


def of_port(port: int) -> exclusion.ConnectionTest:
    def test(version: NDArray[np.integer], one: Endpoints, other: Endpoints) -> NDArray[np.bool_]:
        assert {*version.tolist()} <= {4}
        return (one.port == port) | (other.port == port)

    return test


def some(of: FlowColumns, rows: list[int]) -> FlowColumns:
    return FlowColumns(*(getattr(of, name)[rows] for name in FlowColumns.__slots__))


def test_wanted_connections_are_those_of_the_test() -> None:
    assert selected_flows(of_port(2), flows()).tolist() == [False, True, False]
    assert selected_flows(of_port(B[1]), flows()).tolist() == [True, True, True]


def test_packets_of_excluded_connections_are_left_out_in_both_directions() -> None:
    excluded = ExcludedConnections()
    assert excluded.kept_rows(packets([1, 2]), of_port(9)).tolist() == [0, 1, 2, 3]
    excluded.add(some(flows(), [0, 2]))

    assert excluded.kept_rows(packets([1, 2, 3]), of_port(9)).tolist() == [2, 3]
    assert pickle.loads(pickle.dumps(excluded)).kept_rows(packets([1, 2, 3]), of_port(9)).tolist() == [2, 3]


@pytest.mark.parametrize("flags", [FIN | ACK, RST])
def test_what_closes_a_connection_is_followed(flags: int) -> None:
    excluded = ExcludedConnections()
    excluded.add(flows())

    assert excluded.kept_rows(packets([1], flags), of_port(9)).tolist() == [0, 1]
    assert excluded.kept_rows(packets([1]), of_port(9)).tolist() == []


def test_ends_that_open_another_connection_are_excluded_no_more() -> None:
    excluded = ExcludedConnections()
    excluded.add(flows())
    excluded.kept_rows(packets([1], SYN), of_port(9))

    assert excluded.kept_rows(packets([1, 2]), of_port(9)).tolist() == [0, 1]


def test_a_wanted_connection_of_the_same_key_is_followed() -> None:
    excluded = ExcludedConnections()
    excluded.add(some(flows(), [0]))
    alike = packets([1, 2])
    alike.key[:] = alike.key[0]

    assert excluded.kept_rows(alike, of_port(2)).tolist() == [2, 3]


def test_no_more_are_excluded_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusion, "MAX_EXCLUDED", 2)
    excluded = ExcludedConnections()
    excluded.add(some(flows(), [0, 1]))
    excluded.add(some(flows(), [1]))
    excluded.add(some(flows(), [2]))

    assert excluded.kept_rows(packets([1, 2, 3]), of_port(9)).tolist() == [4, 5]
