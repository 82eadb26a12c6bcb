"""Many connections as arrays say the same as each one's record."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flows import connection_id, flows_of, rows_of
from segments import SYN, B, Packet, a
from streams import HANDSHAKE, read

from mqpcap.capture import captures
from mqpcap.tcp.flow_records import NO_OFFSET
from mqpcap.tcp.flows import END_STATES
from mqpcap.tcp.headers import Dissector
from mqpcap.tcp.reassembly import Reassembler

PCAPS = sorted((Path(__file__).resolve().parents[2] / "pcaps").glob("*/*.pcap"))


def assembled(path: Path) -> Reassembler:
    dissector, reassembler = Dissector(), Reassembler()
    for window in captures([str(path)]).captures[0].windows():
        reassembler.feed(dissector.segments(window))
    reassembler.finish()
    return reassembler


@pytest.mark.parametrize("path", PCAPS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_columns_say_what_the_records_say(path: Path) -> None:
    reassembler = assembled(path)
    flows = flows_of(reassembler)

    of = reassembler.flows.columns(np.arange(len(flows)))

    assert of.connection_ids().tolist() == [f.connection_id for f in flows]
    assert of.community_ids().to_pylist() == [f.community_id for f in flows]
    assert of.ips(np.ones(len(flows), np.int64)) == [f.b_ip for f in flows]
    assert of.ports(np.zeros(len(flows), np.int64)).tolist() == [f.port[0] for f in flows]
    assert [END_STATES[i] for i in of.end_state] == [f.end_state for f in flows]
    assert (of.fin_offset != NO_OFFSET).tolist() == [[x is not None for x in f.fin_offset] for f in flows]
    assert of.syn.any(axis=1).tolist() == [f.syn_seen for f in flows]


def test_columns_of_ipv6_endpoints_in_either_order() -> None:
    reassembler = assembled(next(p for p in PCAPS if p.stem == "http_5555"))
    low, high = (0x20010DB8 << 32, 1), (-(1 << 48), 2)
    hi, lo = (np.array([[one[i], two[i]] for one, two in ((low, high), (high, low), (low, low))]) for i in (0, 1))
    of = replace(reassembler.flows.columns(np.zeros(3, np.int64)), version=np.full(3, 6), hi=hi, lo=lo)
    of = replace(of, cached_id=np.zeros(3, np.int64))

    assert of.ips(np.zeros(3, np.int64)) == ["2001:db8::1", "ffff::2", "2001:db8::1"]
    assert of.connection_ids().tolist() == [f.connection_id for f in rows_of(of, [0, 1, 2])]
    assert of.community_ids().to_pylist() == [f.community_id for f in rows_of(of, [0, 1, 2])]


def test_times_and_packets_of_a_flow(window: int) -> None:
    seen = read([*HANDSHAKE, a(1000, b"abc")], window)

    assert (seen.flows[0].first_ts_ns, seen.flows[0].last_ts_ns) == (1_000_000, 4_000_000)
    assert seen.flows[0].packets == (3, 1)
    assert seen.packet_of[(0, 0, 1)] == 4


def test_connection_id_is_that_of_the_endpoints_the_time_and_the_number_among_equals() -> None:
    again = [a(70000 + 1000 * i, flags=SYN, ts_ns=5) for i in range(3)]
    one = read([*again, a(1, flags=SYN, ts_ns=6)]).flows
    two = read([Packet(("10.9.9.9", 1), B, 7, flags=SYN, ts_ns=3), *again]).flows[1:]

    assert [flow.duplicate for flow in one] == [0, 1, 2, 0]
    assert len({flow.connection_id for flow in one}) == 4
    assert [flow.connection_id for flow in two] == [flow.connection_id for flow in one[:3]]
    assert all(0 < flow.connection_id < 2**63 for flow in one)


def test_connection_id_does_not_depend_on_the_first_sender() -> None:
    client, server = (bytes([10, 0, 0, 1]), 40000), (bytes([10, 0, 0, 2]), 5555)

    assert connection_id(4, client, server, 7, 0) == connection_id(4, server, client, 7, 0)


def test_community_id_is_that_of_its_specification() -> None:
    # README of the specification: SSH between these endpoints, seed 0.
    seen = read([Packet(("128.232.110.120", 34855), ("66.35.250.204", 80), 1, flags=SYN)])

    assert seen.flows[0].community_id == "1:LQU9qZlK+B5F3KDmev6m5PMibrg="
