"""The packets of selected messages, found in one capture, and written.

A capture is read for the messages that a filter selects; which packets brought which bytes, as the reassembly of the
streams tells, is noted meanwhile, about 30 bytes a packet. It is read again to copy those of the messages.
"""

import heapq
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap import __version__
from mqpcap.arrays import dictionary, file_text, unified
from mqpcap.capture import Capture, Window
from mqpcap.capture.pcapng import PacketFile
from mqpcap.cli.connection_search import Choice, Chosen, keys
from mqpcap.cli.console import Meter
from mqpcap.cli.lines import Paint, about, endpoint
from mqpcap.cli.numbered_pipeline import NumberedPipeline
from mqpcap.cli.reading import Outcome
from mqpcap.decode.columns import Records
from mqpcap.decode.frames import Frames
from mqpcap.pipeline import Emit, Options, Output
from mqpcap.query import Query
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.headers import Segments, connections_of

I64 = NDArray[np.int64]
MAX_COMMENTS = 64
"""Messages that are told of one packet; the rest is counted."""
_FILE_SHIFT = 48
"""Numbers of packets are below it, numbers of files above."""
_LEFT_OUT = ("capture", "ts", "end_ts_ns")
_TakenPacket = tuple[int, int, int, bytes, int, list[str]]
"""Time, number of the capture, link type, bytes, length on the wire, comments."""
_Spans = dict[tuple[int, str], tuple[I64, I64]]
"""By connection_id and direction where messages begin in the stream and where they end, in order."""


class Extraction:
    """What is taken of one capture."""

    def __init__(self, capture: Capture, asked: Query, whole: bool) -> None:
        self._capture, self._asked, self._whole = capture, asked, whole
        self._messages: list[pa.Table] = []
        self._packets: list[I64] = [np.zeros(0, np.int64) for _ in capture.files]
        """By file the numbers of packets that are taken."""
        self.message_count = self.connection_count = self.teller_count = 0
        self.note: str | None = None
        """Why nothing was found."""

    def _noting(self, capture: Capture, options: Options, emit: Emit) -> NumberedPipeline:
        self._notes = _NotingPipeline(capture, options, emit, self._whole)
        return self._notes

    @property
    def packet_count(self) -> int:
        """How many packets are taken."""
        return sum(len(numbers) for numbers in self._packets)

    def find(self, outcome: Outcome, meter: Meter) -> None:
        """Look for the messages and their packets."""

        def keep(output: Output) -> None:
            outcome.take(output.rows)
            self._messages.append(output.rows.drop_columns(list(_LEFT_OUT)))
            self.message_count += output.rows.num_rows

        choice = Choice(self._capture, self._asked, keep, self._noting)
        connections = choice.run(outcome, meter)
        self.note = choice.tally.note
        if not (self._messages or (self._whole and connections)):
            return
        self.connection_count = len(connections)
        if self._whole:
            others = choice.tellers(connections)
            self.teller_count = len(others)
            found = self._notes.of_connections([*connections, *others])
        else:
            found = self._notes.of_messages(_spans(self._messages))
        for file, numbers in enumerate(found):
            # All fragments of datagrams where one is taken: no row tells which are of the same.
            fragments = self._notes.fragments[file]
            with_them = np.isin(numbers, fragments).any()
            self._packets[file] = np.union1d(numbers, fragments) if with_them else np.unique(numbers)

    def packets(self, place: int, meter: Meter) -> Iterator[_TakenPacket]:
        """The packets that are taken, in the order of the capture."""
        if not self.packet_count:
            return
        comments = _Comments(self._capture, self._messages) if self._messages else None
        for window in self._capture.windows():
            wanted = np.flatnonzero(np.isin(window.number, self._packets[window.file]))
            for i in wanted.tolist():
                start, number = int(window.offset[i]), int(window.number[i])
                yield (
                    int(window.ts_ns[i]), place, int(window.link_type[i]),
                    window.buffer[start : start + int(window.caplen[i])].tobytes(), int(window.wirelen[i]),
                    comments.of(window.file, number) if comments is not None else [],
                )  # fmt: skip
            meter(int(window.caplen.sum()))

    @staticmethod
    def write(parts: "Sequence[Extraction]", file: BinaryIO, meter: Meter) -> int:
        """Write all packets in order of time, those of one capture in its own order; the bytes of packets written."""
        made, written_bytes = PacketFile(file, f"mqpcap {__version__}"), 0
        streams = [part.packets(place, meter) for place, part in enumerate(parts)]
        for ts_ns, _, link_type, data, wire_len, comments in heapq.merge(*streams, key=itemgetter(0)):
            made.write(link_type, ts_ns, data, wire_len, comments)
            written_bytes += len(data)
        return written_bytes


class _NotingPipeline(NumberedPipeline):
    """A pipeline that notes packets: the connection and the time of each, or (not ``whole``) which bytes it brought."""

    def __init__(self, capture: Capture, options: Options, emit: Emit, whole: bool) -> None:
        super().__init__(capture, options, emit)
        self._whole = whole
        self._window: Window | None = None
        self._notes: list[tuple[NDArray[np.integer], ...]] = []
        self._clients: dict[int, tuple[int, int]] = {}
        """By flow its connection_id, and the side that is the client."""
        self.fragments: list[I64] = [np.zeros(0, np.int64) for _ in capture.files]
        """By file the numbers of packets that are fragments."""

    def messages(self, window: Window) -> Iterator[tuple[Frames, Records]]:
        """The messages that the packets of a window complete."""
        self._window = window
        yield from super().messages(window)

    def _segments(self, segments: Segments) -> Segments:
        assert self._window is not None
        file = self._window.file
        if segments.counts.get("fragment"):
            numbers = self._window.number[connections_of(self._window)[2]]
            self.fragments[file] = np.union1d(self.fragments[file], numbers)
        if self._whole:
            files = np.full(len(segments.key), file, np.int16)
            self._notes.append((files, segments.number.copy(), segments.key.copy(), segments.ts_ns.copy()))
        self._window = None
        return super()._segments(segments)

    def _chunks(self, chunks: StreamChunks) -> StreamChunks:
        if not self._whole:
            side = np.repeat(2 * chunks.flow + chunks.side, np.diff(chunks.piece_first))
            of = chunks.piece_file.astype(np.int16), chunks.piece_number.copy(), side
            self._notes.append((*of, chunks.piece_offset.copy(), chunks.piece_length.astype(np.int32)))
        return super()._chunks(chunks)

    def close(self, flows: I64, files: Sequence[str], of_others: bool) -> None:
        """Connections are over."""
        ids = self.assembler.flows.columns(flows).connection_ids().tolist()
        for flow, connection_id in zip(flows.tolist(), ids, strict=True):
            state = self.framer.connections.get(flow)
            self._clients[flow] = connection_id, 0 if state is None else state.client
        super().close(flows, files, of_others)

    def of_connections(self, connections: Sequence[Chosen]) -> list[I64]:
        """The packets of whole connections, by file."""
        spans: dict[int, list[tuple[int, int]]] = {}
        for key, one in zip(keys(connections).tolist(), connections, strict=True):
            spans.setdefault(key, []).append((int(str(one.row["first_ts_ns"])), int(str(one.row["last_ts_ns"]))))
        file, number, key, ts_ns = self._noted(np.array(sorted(spans), np.int64))
        rows = np.flatnonzero(_in_time(key, ts_ns, spans)) if len(key) else np.zeros(0, np.intp)
        return self._by_file(file[rows], number[rows])

    def of_messages(self, spans: "_Spans") -> list[I64]:
        """The packets that brought bytes of messages, by file; these by side of a connection."""
        sides = {
            2 * flow + side: (connection_id, "c2s" if side == client else "s2c")
            for flow, (connection_id, client) in self._clients.items()
            for side in (0, 1)
        }
        wanted = sorted(side for side, one in sides.items() if one in spans)
        file, number, of, offset, length = self._noted(np.array(wanted, np.int64))
        hit = np.zeros(len(of), np.bool_)
        order = np.argsort(of, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(of[order])) + 1) if len(of) else ():
            begin, end = spans[sides[int(of[rows[0]])]]
            at = np.searchsorted(end, offset[rows], "right")
            hit[rows] = np.append(begin, np.iinfo(np.int64).max)[at] < offset[rows] + length[rows]
        return self._by_file(file[hit], number[hit])

    def _noted(self, of: I64) -> tuple[I64, ...]:
        """What is noted of some connections or sides, the third column, of the whole capture."""
        some = [tuple(column[np.isin(part[2], of)] for column in part) for part in self._notes]
        return tuple(np.concatenate(columns).astype(np.int64) for columns in zip(*some, strict=True))

    def _by_file(self, file: I64, number: I64) -> list[I64]:
        return [number[file == at] for at in range(len(self.capture.files))]


def _in_time(key: I64, ts_ns: I64, spans: dict[int, list[tuple[int, int]]]) -> NDArray[np.bool_]:
    """Which segments are of one of the connections between their ends, and not of another there."""
    order = np.argsort(key, kind="stable")
    borders = np.flatnonzero(np.diff(key[order], prepend=key[order[0]] ^ 1))
    inside = np.zeros(len(key), np.bool_)
    for rows in np.split(order, borders[1:]):
        for first_ns, last_ns in spans[int(key[rows[0]])]:
            inside[rows] |= (ts_ns[rows] >= first_ns) & (ts_ns[rows] <= last_ns)
    return inside


def _spans(messages: Sequence[pa.Table]) -> _Spans:
    found: _Spans = {}
    sides = unified(pa.concat_tables(messages)).combine_chunks().group_by(["connection_id", "direction"])
    for side in sides.aggregate([("stream_offset", "list"), ("frame_len", "list")]).to_batches():
        keys = zip(side["connection_id"].to_pylist(), side["direction"].to_pylist(), strict=True)
        for key, begins, lengths in zip(keys, side["stream_offset_list"], side["frame_len_list"], strict=True):
            begin, length = begins.values.to_numpy(), lengths.values.to_numpy()
            order = np.argsort(begin)
            found[key] = begin[order], (begin + length)[order]
    return found


class _Comments:
    """What is said of the first packet of each message."""

    def __init__(self, capture: Capture, messages: Sequence[pa.Table]) -> None:
        self._messages = unified(pa.concat_tables(messages)).combine_chunks()
        files = {file_text(name): i for i, name in enumerate(capture.files)}
        encoded = dictionary(self._messages["capture_file"])
        file = np.array([files[name] for name in encoded.dictionary.to_pylist()], np.int64)[encoded.indices.to_numpy()]
        place = file << _FILE_SHIFT | self._messages["first_packet"].to_numpy()
        self._order = np.argsort(place, kind="stable")
        self._places = place[self._order]

    def of(self, file: int, number: int) -> list[str]:
        """The comments of a packet."""
        here = file << _FILE_SHIFT | number
        first, last = (int(x) for x in np.searchsorted(self._places, [here, here + 1]))
        rows = self._order[first : min(last, first + MAX_COMMENTS)]
        said = [_comment(row) for row in self._messages.take(pa.array(rows)).to_pylist()] if last > first else []
        if last - first > MAX_COMMENTS:
            said.append(f"and {last - first - MAX_COMMENTS} more messages")
        return said


def _comment(message: dict[str, object]) -> str:
    ends = [endpoint(message[f"{end}_ip"], message[f"{end}_port"]) for end in ("src", "dst")]
    what = f"{message['protocol']}/{message['dialect']}"
    return "  ".join([what, *about(message, None, Paint()), " -> ".join(ends)])
