"""One description, two readers: the Scapy classes and the interpreter agree on any bytes.

Agreement is not correctness (one description makes the same mistake twice): what the bytes mean is proven by the
layers' own tests, with bytes of real programs. The frames here are those of the captures, up to a few of every layout
and operation, and what fuzz() builds; then the same, damaged.
"""

import random
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from reading import by_classes, by_program
from scapy.packet import fuzz

from mqpcap.capture import captures
from mqpcap.decode.frames import Decoded
from mqpcap.pipeline import Options, Pipeline
from mqpcap.protocols import protocols
from mqpcap.schema.fields import Length, VarUint, smallest
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import ANY, MessageQueue

ROOT = Path(__file__).resolve().parents[2]
OF_EACH = 4
"""Frames taken of every layout and operation of a capture folder."""
MAX_FRAME_BYTES = 4096
"""Larger ones say nothing new and take long."""
NAMES = sorted(protocols())
KINDS = ("flip", "set", "cut", "insert", "drop", "grow", "swap")

Frame = tuple[str, bytes]


@cache
def captured(name: str) -> tuple[Frame, ...]:
    """(layout, bytes) of a protocol's captured messages, whole and broken ones."""
    found: dict[tuple[str, int], list[Frame]] = {}
    folders = [str(path) for path in (ROOT / "pcaps").glob(name)]  # a protocol from outside has none
    for capture in captures(folders, sys.stdin.buffer).captures if folders else ():
        pipeline = Pipeline(Options(), lambda output: None)
        for window in capture.windows():
            for parts in pipeline.frames(window):
                _take(pipeline, pipeline._decoded(parts), found)
        _take(pipeline, pipeline._last_messages(pipeline.assembler.finish(), None), found)
    return tuple(frame for frames in found.values() for frame in frames)


def _take(pipeline: Pipeline, batches: Iterator[Decoded], found: dict[tuple[str, int], list[Frame]]) -> None:
    for frames in (decoded.frames for decoded in batches):
        program = pipeline.decoder.reader(frames.protocol).program
        for i in range(len(frames.start)):
            layout = program.layouts[int(frames.layout[i])].name
            raw = frames.buffer[int(frames.start[i]) : int(frames.end[i])].tobytes()
            same = found.setdefault((layout, int(frames.op[i])), [])
            if len(same) < OF_EACH and len(raw) <= MAX_FRAME_BYTES and (layout, raw) not in same:
                same.append((layout, raw))


@cache
def built(name: str) -> tuple[Frame, ...]:
    """(layout, bytes) of what fuzz() makes of every body class."""
    random.seed(7)
    found: list[Frame] = []
    for layout in protocols()[name].layouts:
        for op, readings in layout.bodies.items():
            for reading in readings:
                body = fuzz((reading if isinstance(reading, type) else reading.message)())
                if layout.header is not None:
                    body = layout.header(**({} if op == ANY or layout.op is None else {layout.op: op})) / body
                found.append((layout.name, bytes(body)))
    return tuple(found)


def corpus(name: str) -> tuple[Frame, ...]:
    return captured(name) + built(name)


def damaged(protocol: MessageQueue, frame: Frame, steps: list[tuple[str, int, int]], true_length: bool) -> bytes:
    """The frame after some damage; ``true_length`` makes the header's length fit again, so that the body is read."""
    layout, raw = frame
    data = bytearray(raw)
    for kind, where, value in steps:
        at = where % (len(data) + 1)
        if kind == "insert":
            data[at:at] = bytes([value]) * (1 + value % 3)
        elif kind == "cut":
            del data[at:]
        elif kind == "grow":
            data += bytes([value]) * (1 + where % 9)
        elif kind == "swap":
            data[at : at + 4] = (value << 24 | where & 0xFFFFFF).to_bytes(4, "big")
        elif at < len(data):
            if kind == "flip":
                data[at] ^= 1 << value % 8
            elif kind == "set":
                data[at] = value
            else:
                del data[at : at + 1 + value % 3]
    header = protocol.layout(layout).header
    offset = 0
    for field in header.fields_desc if header is not None and true_length else ():
        if isinstance(field, Length):
            head = sum(smallest(f) for f in header.fields_desc)
            if isinstance(field.kind, VarUint):
                head = offset + next((i + 1 for i, byte in enumerate(data[offset : offset + 4]) if byte < 128), 4)
            length = len(data) - head + field.less
            if length >= 0 and len(data) >= head:
                data[:head] = field.put(bytes(data[:head]), offset, length - field.less)
            break
        offset += smallest(field)
    return bytes(data)


@pytest.mark.parametrize("name", NAMES)
def test_roads_agree_on_captured_and_built_frames(name: str) -> None:
    protocol = protocols()[name]

    for layout, raw in corpus(name):
        assert by_classes(protocol, layout, raw) == by_program(protocol, layout, raw), (layout, raw.hex())


@pytest.mark.parametrize("name", NAMES)
def test_captures_and_fuzz_reach_every_layout(name: str) -> None:
    """A layout that no frame here reaches would be compared by nobody."""
    reached = {layout for layout, raw in corpus(name) if by_program(protocols()[name], layout, raw)[1] is Flaw.NONE}

    assert reached == {x.name for x in protocols()[name].layouts if x.bodies}


STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 65535), st.integers(0, 255)), min_size=1, max_size=4)


@pytest.mark.parametrize("name", NAMES)
@examples(60)
@given(which=st.integers(0, 1 << 20), steps=STEPS, true_length=st.booleans())
def test_roads_agree_on_damaged_frames(
    name: str, which: int, steps: list[tuple[str, int, int]], true_length: bool
) -> None:
    protocol = protocols()[name]
    frame = corpus(name)[which % len(corpus(name))]

    raw = damaged(protocol, frame, steps, true_length)

    assert by_classes(protocol, frame[0], raw) == by_program(protocol, frame[0], raw)
