"""Properties of ``Framer.feed``: any bytes, in any segments and windows.

Other tests of framing have one rule each. These hold for all of them: each byte is in one message or one undecoded
range, windows change nothing, and segments do not change the messages of a whole stream.
"""

from collections import Counter
from itertools import pairwise
from random import Random

from conversations import CONNECTIONS, SIDE_BYTES, conversation, damaged, packets, windows_of
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from segments import Packet, segments

from mqpcap.decode.frames import Frames, Problem
from mqpcap.decode.framing import Framer
from mqpcap.protocols import protocols
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.reassembly import Reassembler

COLUMNS = (
    "flow", "side", "offset", "captured", "op", "flaw", "layout", "gap_before", "resynced", "ts_ns", "end_ts_ns",
    "first_packet", "last_packet", "first_ack", "last_ack",
)  # fmt: skip
NAMES = st.sampled_from(sorted(CONNECTIONS))
SEEDS = st.integers(0, 1 << 32)
Row = tuple[int, ...]


class Framed:
    """What a `Framer` finds in packets that it gets window by window.

    ``messages``: rows of COLUMNS, with the bytes of each as ``bodies``; ``read_bytes``: by connection and side.
    """

    def __init__(self, windows: list[list[Packet]]) -> None:
        self._reassembler, self._framer = Reassembler(), Framer(protocols())
        self.messages: list[Row] = []
        self.bodies: list[bytes] = []
        self.read_bytes: Counter[tuple[int, int]] = Counter()
        packet_count = 0
        for window in windows:
            self._feed(self._reassembler.feed(segments(window, packet_count)))
            packet_count += len(window)
        self._feed(self._reassembler.finish())
        self._add(self._framer.finish(self._reassembler.flows))
        found, foreign = self._framer.output.take_problems()
        in_foreign = (
            Problem(*place, "undecoded", ("foreign", "tls")[is_tls], ts_ns, packet)
            for *place, ts_ns, packet, is_tls in foreign.tolist()
        )
        self.problems = sorted([*found, *in_foreign])

    def _feed(self, chunks: StreamChunks) -> None:
        frames, consumed, wanted = self._framer.feed(chunks, self._reassembler.flows)
        assert ((consumed >= 0) & (consumed <= chunks.length) & (wanted >= 0)).all()
        assert (consumed == chunks.length)[chunks.gap_after | chunks.ended].all()
        for flow, side, count in zip(chunks.flow.tolist(), chunks.side.tolist(), consumed.tolist(), strict=True):
            self.read_bytes[flow, side] += count
        self._add(frames)
        self._reassembler.retain(chunks, consumed, wanted)

    def _add(self, parts: list[Frames]) -> None:
        for frames in parts:
            self.messages += zip(*(getattr(frames, name).tolist() for name in COLUMNS), strict=True)
            spans = zip(frames.start.tolist(), frames.end.tolist(), strict=True)
            self.bodies += [frames.buffer[start:end].tobytes() for start, end in spans]


@examples(40, shrink=False)
@given(NAMES, SEEDS)
def test_segments_do_not_change_the_messages_of_a_whole_stream(name: str, seed: int) -> None:
    """The messages of a real program follow each other without a flaw, as if each side came in one segment.

    The streams end inside a message, which is truncated or less than a header.
    """
    dice, said = Random(seed), conversation(name)
    whole = Framed([packets(said, Random(0), size=SIDE_BYTES)])
    cut = packets(said, dice)
    framed = Framed(windows_of(cut, dice))

    untimed = COLUMNS.index("ts_ns")
    assert sorted(row[:untimed] for row in framed.messages) == sorted(row[:untimed] for row in whole.messages)
    framed_to = [0, 0]
    for (_, side, offset, captured, _, flaw, *_), body in sorted(zip(framed.messages, framed.bodies, strict=True)):
        assert (offset, body) == (framed_to[side], said.sides[side][offset : offset + captured])
        framed_to[side] += captured
        assert not flaw or framed_to[side] == len(said.sides[side])
    for _, side, offset, length, *_ in framed.problems:
        assert (offset, offset + length) == (framed_to[side], len(said.sides[side]))


@examples(20, shrink=False)
@given(NAMES, SEEDS)
def test_each_byte_is_in_one_message_or_undecoded_in_any_windows(name: str, seed: int) -> None:
    """Packets are lost, changed, truncated or late; the capture may begin inside the connection."""
    dice = Random(seed)
    has_start = dice.random() < 0.7
    cut = packets(conversation(name), dice, has_start)
    cut = damaged(cut if has_start else cut[dice.randrange(len(cut)) :], dice)
    one_by_one, framed = Framed([[packet] for packet in cut]), Framed(windows_of(cut, dice))

    assert all(problem.length > 0 for problem in framed.problems)
    ranges = [row[:4] for row in framed.messages] + [problem[:4] for problem in framed.problems]
    found_bytes: Counter[tuple[int, int]] = Counter()
    for flow, side, _, length in ranges:
        found_bytes[flow, side] += length
    assert found_bytes == +framed.read_bytes
    for (flow, side, offset, length), (next_flow, next_side, next_offset, _) in pairwise(sorted(ranges)):
        assert (flow, side) != (next_flow, next_side) or offset + length <= next_offset
    assert sorted(one_by_one.messages) == sorted(framed.messages)
    assert one_by_one.problems == framed.problems
