"""Many connections as arrays say the same as each one's record."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from mqpcap.capture import captures
from mqpcap.tcp.headers import Dissector
from mqpcap.tcp.reassembly import END_STATES, NONE, FlowColumns, Reassembler, columns

PCAPS = sorted((Path(__file__).resolve().parents[2] / "pcaps").glob("*/*.pcap"))


def assembled(path: Path) -> Reassembler:
    dissector, reassembler = Dissector(), Reassembler()
    for window in captures([str(path)]).captures[0].windows():
        reassembler.feed(dissector.segments(window))
    reassembler.finish()
    return reassembler


def assert_equal(one: FlowColumns, two: FlowColumns) -> None:
    for name in (f.name for f in fields(FlowColumns)):
        assert getattr(one, name).tolist() == getattr(two, name).tolist(), name


@pytest.mark.parametrize("path", PCAPS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_columns_say_what_the_records_say(path: Path) -> None:
    flows = assembled(path).flows

    of = flows.columns()

    rows = np.arange(len(flows))
    assert_equal(of, columns(list(flows), rows))
    assert of.connection_ids().tolist() == [f.connection_id for f in flows]
    assert of.community_ids() == [f.community_id for f in flows]
    assert of.ips(np.ones(len(flows), np.int64)) == [f.b_ip for f in flows]
    assert [END_STATES[i] for i in of.end_state] == [f.end_state for f in flows]
    assert (of.fin_offset != NONE).tolist() == [[x is not None for x in f.fin_offset] for f in flows]


def test_columns_of_ipv6_endpoints_in_either_order() -> None:
    reassembler = assembled(next(p for p in PCAPS if p.stem == "http_5555"))
    flow = reassembler.flows[0]
    low, high = "2001:db8::1", "ffff::2"
    made = [
        type(flow)(**{f.name: getattr(flow, f.name) for f in fields(flow)} | {"version": 6, "a_ip": a, "b_ip": b})
        for a, b in ((low, high), (high, low), (low, low))
    ]

    of = columns(made, np.arange(3))

    assert of.connection_ids().tolist() == [f.connection_id for f in made]
    assert of.community_ids() == [f.community_id for f in made]
    assert of.ips(np.zeros(3, np.int64)) == [low, high, low]
