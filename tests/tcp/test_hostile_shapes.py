"""What a capture chooses is no lever: work follows its size, whatever its addresses, times, holes and keys are.

Steps are counted where they can be; ``bench/hostile.py`` measures the same shapes in seconds.
"""

import pickle
import random
import struct
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import hostile
from flows import flows_of
from segments import ACK, RST, SYN, A, B, Packet, a, b, segments

from mqpcap.decode.framing import Framer
from mqpcap.pipeline import Options, Pipeline
from mqpcap.protocols import protocols
from mqpcap.tcp import eviction, flow_table
from mqpcap.tcp.fragments import Fragment, Fragments
from mqpcap.tcp.headers import _ADDRESS_KEY, endpoints
from mqpcap.tcp.reassembly import Reassembler


def one_key(n: int) -> Reassembler:
    """After SYNs of n connections whose share hash is the same."""
    assembler = Reassembler()
    fed = segments([Packet((A[0], 1024 + i), B, 7 * i, 0, SYN) for i in range(n)])
    assembler.feed(replace(fed, key=np.full(n, 12345)))
    return assembler


def test_flows_of_one_key_are_apart_in_the_table() -> None:
    """A search steps over neighbours, so the longest run of taken places bounds its steps."""
    taken = np.append(one_key(3000)._fast_path.slots != 0, False)
    longest = int(np.diff(np.flatnonzero(~taken)).max())

    assert np.count_nonzero(taken) == 3000
    assert longest < 600


def test_made_up_addresses_have_one_key() -> None:
    """Else the shape of the benchmark shows nothing."""
    found = [hostile.one_key(hi, 1024 + hi) for hi in range(50)]
    hi, lo = (np.array(column, np.uint64).view(np.int64) for column in zip(*found, strict=True))

    assert len(set(endpoints(hi, lo, 1024 + np.arange(50)).tolist())) == 1


def table_layout(secret: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """Flows, and the pickled state, where this places flows in the table."""
    monkeypatch.setattr(flow_table, "HASH_KEY", secret)
    dice = random.Random(5)
    said = [
        Packet((A[0], 1024 + dice.randrange(300)), B, dice.randrange(50), 0, dice.choice([SYN, ACK, RST]), b"x")
        for _ in range(4000)
    ]
    assembler = Reassembler()
    stretches = assembler.feed(segments(said))
    return flows_of(assembler), stretches.buffer.tobytes(), stretches.flow.tolist(), pickle.dumps(assembler)


def test_rows_and_state_do_not_depend_on_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = np.random.default_rng(1).integers(0, 1 << 64, (3, len(flow_table.HASH_KEY)), np.uint64)
    one, *others = [table_layout(secret, monkeypatch) for secret in secrets]

    assert all(other == one for other in others)


def test_state_made_with_one_secret_is_found_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    state = pickle.dumps(one_key(500))
    monkeypatch.setattr(flow_table, "HASH_KEY", ~flow_table.HASH_KEY)
    assembler = pickle.loads(state)
    again = segments([Packet((A[0], 1024 + i), B, 7 * i, 0, SYN) for i in range(500)])
    assembler.feed(replace(again, key=np.full(500, 12345)))

    assert len(assembler.flows) == 500


def test_what_came_before_a_flow_is_found_in_few_steps() -> None:
    """A thousand flows on one tuple: 1, 2, 4 .. 512 before."""
    steps = list(eviction.ancestors(np.arange(-1, 999)))

    assert [int(np.count_nonzero(step < 0)) for step in steps] == [1 << k for k in range(10)]


def test_older_flows_of_a_tuple_leave_with_newer() -> None:
    """The first has the latest packet and is not over. It leaves with those that came after it, and none before it."""
    assembler = Reassembler()
    hours = [40, *range(20)]
    assembler.feed(segments([a(1000 * i, flags=SYN, ts_ns=h * 3600 * 10**9) for i, h in enumerate(hours)]))
    other = Packet(("10.0.0.9", 1), B, 1, 0, SYN, ts_ns=40 * 3600 * 10**9)
    assembler.feed(segments([other]))

    evicted = assembler.eviction_candidates(4, 100).tolist()
    assert evicted == [*range(len(evicted))]
    assert len(evicted) > 1


def test_a_byte_sent_again_long_after_is_compared() -> None:
    """Behind more pieces than are looked through one by one: found all the same, the value being another."""
    said = [a(999, flags=SYN), b(4999, ack=1000, flags=SYN | ACK)]
    said += [a(1000 + i, bytes([i % 251]), ack=5000) for i in range(3000)]
    said += [a(1000 + i, b"\xff", ack=5000) for i in (7, 2500, 7, 0)]
    assembler = Reassembler()
    assembler.feed(segments(said))

    conflicts = assembler.conflicts()
    assert sorted(row.offset for row in conflicts) == [0, 7, 7, 2500]
    assert assembler.counts["uncompared_bytes"] == 0


def test_fragments_and_addresses_are_not_distinguished_by_crafted_hashes() -> None:
    alike = [x for k in range(2000) if (x := hostile.one_hash(k)) is not None]
    halves = [(x, y) for x in hostile.ALIKE for y in hostile.ALIKE]
    datagrams = [(6, *one, *two, 1, 6) for one in halves for two in halves]
    assert len({hash((6, *x)) for x in alike}) == len({hash(x) for x in datagrams}) == 1

    fragments = Fragments()
    for of in datagrams[:4000]:
        fragments.add(of, 0, Fragment(8, 16, True, bytes(8)))

    assert len({hash(key) for key in fragments._datagrams}) > 3990
    assert len({hash(_ADDRESS_KEY(6, *x)) for x in alike}) == len(alike) > 200


def test_a_long_message_is_not_read_again_with_each_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand segments of 100 bytes, each a window of its own: the bytes shown are few times those sent."""
    shown = []
    feed = Framer.feed
    monkeypatch.setattr(Framer, "feed", lambda *given: shown.append(given[1].length.sum()) or feed(*given))
    message = struct.pack(">IBQ", 9 + 4 + 100_000, 3, 1) + b"\1\0\1t" + bytes(100_000)
    hello = struct.pack(">IBQH", 11, 1, 1, 1)
    said = [a(999, flags=SYN), b(4999, ack=1000, flags=SYN | ACK), a(1000, hello, ack=5000)]
    said += [a(1015 + at, message[at : at + 100], ack=5000) for at in range(0, len(message), 100)]
    pipeline, found = Pipeline(Options(), lambda output: None), []
    for i, packet in enumerate(said):
        window = segments([packet], i)
        for parts in pipeline.frames(SimpleNamespace(ts_ns=window.ts_ns, secrets=()), window):
            found += pipeline._decoded(parts)
    found += pipeline._last_messages(pipeline.assembler.finish(), None)

    assert sum(len(decoded.frames.start) for decoded in found) == 2
    assert sum(shown) < 5 * len(message)


def test_buffered_pieces_cost_little_and_count_for_it() -> None:
    """Ten thousand bytes, every other one missing, of a connection that nobody knows yet."""
    framer, assembler = Framer(protocols()), Reassembler()
    said = [a(999, flags=SYN), b(4999, ack=1000, flags=SYN | ACK)]
    said += [a(1000 + 2 * k, b"x", ack=5000) for k in range(10_000)] + [b(5000, ack=21_000)] * 40
    for k in range(0, len(said), 1000):
        framer.feed(assembler.feed(segments(said[k : k + 1000], k)), assembler.flows)

    hold = framer.connections[0].pending
    assert hold is not None
    assert len(hold.chunks) > 5000
    assert len({id(chunk.buffer) for chunk in hold.chunks}) <= 11
    assert framer.detector._pending_bytes == hold.pending_bytes > 250 * 5000
