"""Reads the first bytes of a side on trial: how many of them a claimed protocol decodes.

In: the bytes, and the layout of the claim. Out: `Trial`. Called by ``detection``, which withdraws a claim to a
connection that began before the capture if most of its bytes do not decode.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mqpcap.decode.columns import flaw_reader
from mqpcap.decode.frames import FoundMessages, Frames
from mqpcap.decode.message_buffer import ChunkPackets, PacketIndex
from mqpcap.decode.scanning import Scanners
from mqpcap.decode.side import Side
from mqpcap.decode.stream_chunk import StreamChunk
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import MessageQueue
from mqpcap.tcp.flow_records import NO_OFFSET

MANY_MESSAGES = 8
"""Messages that follow the tail of a message, however long the tail is."""


class Trial(NamedTuple):
    """The result of reading a side.

    ``decoded_bytes``: bytes of messages that decode wholly.
    ``other_bytes``: bytes of messages with a flaw, and bytes without a message. A truncated message is neither.
    """

    decoded_bytes: int
    other_bytes: int
    message_count: int
    """Messages that decode wholly."""
    is_run: bool
    """Many messages, and nothing else after the first of them: the bytes before are the tail of a message."""


def read_on_trial(
    data: bytes, protocol: MessageQueue, layout: str, scanners: Scanners, start_known: bool, ended: bool
) -> Trial:
    """Frame and decode the first bytes of a side."""
    columns = np.array([[0], [len(data)], [0], [1], [0], [0], [NO_OFFSET], [0]], np.int64)
    packet = ChunkPackets(PacketIndex(columns), 0, 1)
    chunk = StreamChunk(0, data, 0, len(data), 0, packet, ended, ended, start_known)
    side, output = Side(0, 0), FoundMessages()
    side.begin(scanners.scanners_for(protocol)[layout].layout_index)
    consumed = side.take(chunk, scanners.scanners_by_index(protocol), output)
    side.end(output)
    count = decoded = truncated = 0
    first_offset = consumed
    for frames in output.take_all(np.empty(0, np.uint8)):
        decodes = _decodes(protocol, frames)
        count += int(decodes.sum())
        decoded += int(frames.captured[decodes].sum())
        truncated += int(frames.captured[frames.flaw == Flaw.TRUNCATED].sum())
        first_offset = min(first_offset, *frames.offset[decodes].tolist()) if decodes.any() else first_offset
    other = consumed - decoded - truncated
    return Trial(decoded, other, count, count >= MANY_MESSAGES and other == first_offset)


def _decodes(protocol: MessageQueue, frames: Frames) -> NDArray[np.bool_]:
    """Which messages decode; framing alone decides where layouts depend on what a connection shows later."""
    flaw = frames.flaw
    if protocol.evidence is None or protocol.evidence.select_layout is None:
        flaw = flaw_reader(protocol).records(frames.spans()).flaw
    decodes: NDArray[np.bool_] = flaw == Flaw.NONE
    return decodes
