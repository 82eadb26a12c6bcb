"""Many connections as arrays say the same as each one's record."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flows import flows_of, rows_of

from mqpcap.capture import captures
from mqpcap.tcp.flow_records import NONE
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
    assert of.community_ids() == [f.community_id for f in flows]
    assert of.ips(np.ones(len(flows), np.int64)) == [f.b_ip for f in flows]
    assert of.ports(np.zeros(len(flows), np.int64)).tolist() == [f.port[0] for f in flows]
    assert [END_STATES[i] for i in of.end_state] == [f.end_state for f in flows]
    assert (of.fin_offset != NONE).tolist() == [[x is not None for x in f.fin_offset] for f in flows]
    assert of.syn.any(axis=1).tolist() == [f.syn_seen for f in flows]


def test_columns_of_ipv6_endpoints_in_either_order() -> None:
    reassembler = assembled(next(p for p in PCAPS if p.stem == "http_5555"))
    low, high = (0x20010DB8 << 32, 1), (-(1 << 48), 2)
    hi, lo = (np.array([[one[i], two[i]] for one, two in ((low, high), (high, low), (low, low))]) for i in (0, 1))
    of = replace(reassembler.flows.columns(np.zeros(3, np.int64)), version=np.full(3, 6), hi=hi, lo=lo)
    of = replace(of, known_id=np.zeros(3, np.int64))

    assert of.ips(np.zeros(3, np.int64)) == ["2001:db8::1", "ffff::2", "2001:db8::1"]
    assert of.connection_ids().tolist() == [f.connection_id for f in rows_of(of, [0, 1, 2])]
    assert of.community_ids() == [f.community_id for f in rows_of(of, [0, 1, 2])]
