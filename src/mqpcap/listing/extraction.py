"""Finds the packets of selected messages in a capture, and writes them to a new file.

In: captures and a filter. Out: a pcapng file. Called by: ``api``.

A capture is read twice. The first pass selects messages, and records for each packet the stream bytes that reassembly
took from it, about 30 bytes of memory a packet. The second pass copies the packets with bytes of selected messages.
"""

import heapq
import os
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice, repeat
from typing import BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap import __version__
from mqpcap.arrays import Int64Array, dictionary, file_text, unify_dictionaries
from mqpcap.capture import Capture, Window
from mqpcap.capture.pcapng import PacketFile, new_folder
from mqpcap.errors import MqpcapError, OutputError
from mqpcap.hooks import StageHooks
from mqpcap.listing.anonymisation import Anonymisation, AnonymousPackets
from mqpcap.listing.connection_search import ConnectionSearch, SelectedConnection
from mqpcap.listing.extra_columns import NUMBERED
from mqpcap.listing.message_lines import Paint, content_words
from mqpcap.query import Query, query
from mqpcap.reading import Meter, Outcome
from mqpcap.tables.connections import EndedConnections
from mqpcap.tables.output import Output
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.flags import MULTIPATH
from mqpcap.tcp.headers import Segments, connections_of
from mqpcap.wording import endpoint, plural, size

NO_BODIES = "extract copies packets as they are, without --bodies; --anonymise replaces what users sent"
MAX_COMMENTS = 64
"""Messages that are described in a packet's comment; further messages are counted."""
COMMENTED_TOGETHER = 256
"""Packets whose messages become rows of Python together."""
_FILE_SHIFT = 48
"""The place of a packet is its number, and from this bit on that of its file."""
_LEFT_OUT = ("capture", "ts", "end_ts_ns")
_TakenPacket = tuple[int, int, bytes, int, list[str], int]
"""Time, link type, bytes, length on the wire, comments, place."""
Split = Literal["connection", "topic"] | int
"""The content of each file: a connection, a topic, or a number of bytes of packets."""
WITHOUT_TOPIC = "without topic"
"""Messages that name no topic, as a file."""
MAX_SPLIT_FILES = 500
"""Files that packets are split into; all of them are open together."""
_Spans = tuple[Int64Array, Int64Array]
"""Starts and ends of ranges."""


class Extraction:
    """The packets to copy from a capture."""

    def __init__(self, capture: Capture, asked: Query, whole_connections: bool) -> None:
        self.capture, self._asked, self._whole = capture, asked, whole_connections
        self._notes = _PacketNotes(whole_connections)
        self._messages: list[pa.Table] = []
        self._connections: list[SelectedConnection] = []
        self._packets: Int64Array = np.zeros(0, np.int64)
        """The places of packets that are taken."""
        self.message_count = self.connection_count = self.context_count = 0
        self.note: str | None = None
        """Why nothing was found."""

    def is_taken(self, file: int, packet_numbers: Int64Array) -> NDArray[np.bool_]:
        """Which packets of a file, by their numbers, are taken."""
        return np.isin(_places(file, packet_numbers), self._packets)

    def groups(self, split: Literal["connection", "topic"]) -> Iterator[tuple[str, Int64Array]]:
        """The packets of each connection or topic: a name, empty without a topic, and the sorted places of packets."""
        if split == "connection":
            for connection in self._connections:
                messages = None if self._whole else self._of("connection_id", connection.id)
                places = self._notes.packets(messages, self._choice.with_subflows([connection]))
                yield f"c{connection.number}", np.intersect1d(places, self._packets)
            return
        topics = pa.concat_tables([part.select(["destination"]) for part in self._messages])["destination"].unique()
        for topic in sorted(topics.to_pylist(), key=lambda topic: topic or ""):
            rows = self._of("destination", topic)
            yield topic or "", np.unique(self._notes.packets_of_messages(rows))

    def _of(self, column: str, value: object) -> list[pa.Table]:
        """The selected messages with a value in a column."""
        columns = [rows[column] for rows in self._messages]
        masks = [pc.is_null(x) if value is None else pc.fill_null(pc.equal(x, value), False) for x in columns]
        return [rows.filter(mask) for rows, mask in zip(self._messages, masks, strict=True)]

    @property
    def secrets(self) -> Sequence[bytes]:
        """The key logs of TLS in the capture."""
        return self._notes.secrets

    @property
    def packet_count(self) -> int:
        """How many packets are taken."""
        return len(self._packets)

    def find(self, outcome: Outcome, meter: Meter) -> None:
        """Look for the messages and their packets."""

        def keep(output: Output) -> None:
            outcome.take(output.rows)
            self._messages.append(output.rows.drop_columns(list(_LEFT_OUT)))
            self.message_count += output.rows.num_rows

        self._notes.rules = outcome.choices.decode_as
        self._choice = choice = ConnectionSearch(self.capture, self._asked, keep, self._notes.hooks())
        connections = choice.run(outcome, meter)
        self.note = choice.tally.note
        if not (self._messages or (self._whole and connections)):
            return
        self._connections, self.connection_count = connections, len(connections)
        if self._whole:
            context = choice.context_connections(connections)
            self.context_count = len(context)
            connections = [*connections, *context]
        taken = self._notes.packets(None if self._whole else self._messages, choice.with_subflows(connections))
        # If a fragment is copied, all fragments of its file are: no row names the fragments of a datagram.
        fragments = self._notes.fragments
        with_them = np.isin(fragments >> _FILE_SHIFT, np.intersect1d(taken, fragments) >> _FILE_SHIFT)
        self._packets = np.union1d(taken, fragments[with_them])

    def check_written(self, places: Int64Array, outcome: Outcome) -> None:
        """Count only messages whose packets were written: a file may have shrunk since its packets were found."""
        missing = np.setdiff1d(self._packets, places)
        if not len(missing):
            return
        self._messages = [rows.filter(pa.array(self._are_there(rows, missing))) for rows in self._messages]
        self.message_count = sum(rows.num_rows for rows in self._messages)
        words = f"{plural(len(missing), 'packet')} of {self.packet_count:,} went missing while the capture was read"
        outcome.unreadable.append((self.capture.files[0], words))

    def _are_there(self, rows: pa.Table, missing: Int64Array) -> NDArray[np.bool_]:
        """Which messages have none of the missing packets, by the first and the last of each."""
        begins, ends = (_message_places(self.capture, rows, f"{end}_packet") for end in ("first", "last"))
        between = np.searchsorted(missing, ends, "right") > np.searchsorted(missing, begins)
        return ~between

    def packets(self, meter: Meter) -> Iterator[_TakenPacket]:
        """The packets that are taken, in the order of the capture."""
        if not self.packet_count:
            return
        comments = _Comments(self.capture, self._messages) if self._messages else None
        for window in self.capture.windows():
            places = _places(window.file, window.packet_number)
            taken = np.flatnonzero(np.isin(places, self._packets))
            comment_texts = comments.of(places[taken]) if comments is not None else repeat(list[str]())
            for i, texts in zip(taken.tolist(), comment_texts, strict=False):
                start = int(window.offset[i])
                yield (
                    int(window.ts_ns[i]), int(window.link_type[i]),
                    window.buffer[start : start + int(window.caplen[i])].tobytes(), int(window.wirelen[i]), texts,
                    int(places[i]),
                )  # fmt: skip
            meter(int(window.caplen.sum()))


@dataclass(frozen=True, slots=True)
class ExtractSummary:
    """Numbers of an extraction: packets and their bytes, messages, connections.

    context_count: connections that were added because they prove a server or carry a login of these.
    """

    packet_count: int
    size_bytes: int
    message_count: int
    connection_count: int
    context_count: int

    def lines(self, out: str) -> Iterator[str]:
        """The summary for people; ``out``: the name of the new capture."""
        source = f"{plural(self.message_count, 'message')} of {plural(self.connection_count, 'connection')}"
        yield f"{out}: {plural(self.packet_count, 'packet')}, {size(self.size_bytes)}, of {source}"
        if self.context_count:
            added = plural(self.context_count, "other connection")
            yield f"note: {added} added, by which these are recognised or named"


def find_packets(
    captures: Sequence[Capture], selected: Query | None, whole_connections: bool, outcome: Outcome, meter: Meter
) -> list[Extraction] | None:
    """The packets to copy from each capture; None if a capture cannot be read.

    Raises MqpcapError if there is nothing to copy.
    """
    asked = selected or query("protocol exists")  # of connections, too, those that are ours
    parts = [Extraction(capture, asked, whole_connections) for capture in captures]
    for part in parts:
        part.find(outcome, meter)
    if any(part.packet_count for part in parts):
        return parts
    if parts and not outcome.unreadable:
        notes = [part.note for part in parts if part.note is not None]
        raise MqpcapError("nothing to extract" + (f": {notes[0]}" if notes else ""))
    return None


Sink = Callable[[_TakenPacket, int], None]
"""Takes a packet, and the index of the capture that it is from."""


def write_packets(
    parts: Sequence[Extraction], file: BinaryIO, outcome: Outcome, meter: Meter, how: Anonymisation | None = None
) -> ExtractSummary:
    """Write all packets in order of time, those of one capture in its own order; ``how``: anonymised."""
    writer = _packet_file(file, how)
    secrets = [lines for part in parts for lines in part.secrets] if how is None else []
    if secrets and not outcome.choices.show_secrets:
        outcome.notes.append("the secrets of TLS in the capture were left out; --show-secrets copies them")
    for lines in secrets if outcome.choices.show_secrets else ():
        writer.write_secrets(lines)
    return _write(parts, lambda packet, _: _put(writer, packet), outcome, meter, how)


def write_extract(
    parts: Sequence[Extraction],
    out: str,
    split: Split | None,
    outcome: Outcome,
    meter: Meter,
    how: Anonymisation | None = None,
) -> ExtractSummary:
    """Write packets into a new file; with ``split`` into several files of a new directory."""
    if split is not None:
        return split_packets(parts, out, split, outcome, meter, how)
    with created_file(out) as file:
        return write_packets(parts, file, outcome, meter, how)


def split_packets(
    parts: Sequence[Extraction], folder: str, split: Split, outcome: Outcome, meter: Meter,
    how: Anonymisation | None = None,
) -> ExtractSummary:  # fmt: skip
    """Write the packets to several files in a new directory, which goes away where writing fails.

    Raises OutputError if these are more than MAX_SPLIT_FILES. A packet with messages of several topics is in each of
    their files.
    """
    new_folder(folder)
    files = _SplitFiles(folder, how)
    try:
        with files.opened:
            sink = files.by_size(split) if isinstance(split, int) else files.by_group(parts, split)
            return _write(parts, sink, outcome, meter, how)
    except BaseException:
        files.remove()
        raise


def _packet_file(file: BinaryIO, how: Anonymisation | None) -> PacketFile:
    return PacketFile(file, f"mqpcap {__version__}", None if how is None else how.words())


def _put(file: PacketFile, packet: _TakenPacket) -> None:
    ts_ns, link_type, data, wire_len, comments, _ = packet
    file.write(link_type, ts_ns, data, wire_len, comments)


def _write(
    parts: Sequence[Extraction], sink: Sink, outcome: Outcome, meter: Meter, how: Anonymisation | None
) -> ExtractSummary:
    streams: list[Iterator[tuple[_TakenPacket, int]]] = []
    places = [array("q") for _ in parts]
    unreadable_count = written_bytes = packet_count = 0
    for number, part in enumerate(parts):
        packets = part.packets(meter)
        if how is not None and part.packet_count:
            anonymous = AnonymousPackets(part.capture, how)
            anonymous.read(outcome, meter)
            unreadable_count += anonymous.messages.unreadable_count
            rows = anonymous.packets(part.is_taken, meter)
            packets = ((*row[:5], row[6] | row[5] << _FILE_SHIFT) for row in rows)
        streams.append(zip(packets, repeat(number)))
    for packet, number in heapq.merge(*streams, key=lambda pair: pair[0][0]):
        sink(packet, number)
        places[number].append(packet[5])
        written_bytes += len(packet[2])
        packet_count += 1
    for part, written in zip(parts, places, strict=True):
        part.check_written(np.frombuffer(written, np.int64), outcome)
    if unreadable_count:
        words = plural(unreadable_count, "message keeps only its", "messages keep only their")
        outcome.notes.append(f"{words} header: the rest cannot be replaced without changing its length")
    messages, connections, context = (
        sum(getattr(part, f"{name}_count") for part in parts) for name in ("message", "connection", "context")
    )
    return ExtractSummary(packet_count, written_bytes, messages, connections, context)


class _SplitFiles:
    """Capture files in a directory that this object has made."""

    def __init__(self, folder: str, how: Anonymisation | None) -> None:
        self.opened = ExitStack()
        self._folder, self._how = folder, how
        self._names: list[str] = []

    def _new(self, name: str) -> PacketFile:
        if len(self._names) >= MAX_SPLIT_FILES:
            raise OutputError(f"more than {MAX_SPLIT_FILES} files; choose fewer with a filter, or a larger size")
        path = os.path.join(self._folder, f"{name}.pcapng")
        file = self.opened.enter_context(open(path, "xb"))  # noqa: SIM115  # closed by the stack
        self._names.append(path)
        return _packet_file(file, self._how)

    def by_size(self, size_bytes: int) -> Sink:
        """Starts a file whenever the last file has that number of bytes of packets."""
        left = 0
        file: PacketFile | None = None

        def write(packet: _TakenPacket, _: int) -> None:
            nonlocal left, file
            if file is None or left <= 0:
                self.opened.close()
                file, left = self._new(f"{len(self._names) + 1:05d}"), size_bytes
            _put(file, packet)
            left -= len(packet[2])

        return write

    def by_group(self, parts: Sequence[Extraction], split: Literal["connection", "topic"]) -> Sink:
        """A file for each connection or topic."""
        files: dict[str, PacketFile] = {}
        by_capture: list[_FilesByPlace] = []
        for part in parts:
            groups = []
            for name, places in part.groups(split):
                if name not in files or split == "connection":
                    files[name] = self._new(self._file_name(name, len(self._names) + 1, split, len(parts) > 1))
                groups.append((files[name], places))
            by_capture.append(_FilesByPlace(groups))

        def write(packet: _TakenPacket, number: int) -> None:
            for file in by_capture[number].files(packet[5]):
                _put(file, packet)

        return write

    def _file_name(self, name: str, number: int, split: str, is_numbered: bool) -> str:
        if split == "connection" and not is_numbered:
            return name
        words = "" if self._how is not None else "_" + re.sub(r"[^A-Za-z0-9.-]", "_", name or WITHOUT_TOPIC)[:80]
        return f"{number:03d}{words}"

    def remove(self) -> None:
        """Remove the files, and the directory if nothing else is in it."""
        for path in self._names:
            with suppress(OSError):
                os.unlink(path)
        with suppress(OSError):
            os.rmdir(self._folder)


class _FilesByPlace:
    """The files that each packet of a capture goes to; groups: a file, and the places of its packets."""

    def __init__(self, groups: Sequence[tuple[PacketFile, Int64Array]]) -> None:
        self._files = [file for file, _ in groups]
        places = np.concatenate([np.empty(0, np.int64), *(places for _, places in groups)])
        numbers = np.repeat(np.arange(len(groups)), [len(places) for _, places in groups])
        order = np.argsort(places, kind="stable")
        self._places, self._numbers = places[order], numbers[order]

    def files(self, place: int) -> Iterator[PacketFile]:
        """The files of a packet, in the order of groups."""
        start, end = np.searchsorted(self._places, (place, place + 1))
        return (self._files[number] for number in self._numbers[start:end].tolist())


@contextmanager
def created_file(name: str) -> Iterator[BinaryIO]:
    """A file that did not exist; it goes away where writing fails."""
    try:
        file = open(name, "xb")  # noqa: SIM115 - closed below, before it may be taken away
    except FileExistsError:
        raise OutputError(f"{name} exists, and is not replaced") from None
    except OSError as error:
        raise OutputError(f"{name} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield file
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _places(file: int | NDArray[np.integer], packet_numbers: NDArray[np.integer]) -> Int64Array:
    """The places of packets of a file, or each of a file of its own."""
    return packet_numbers.astype(np.int64) | np.asarray(file, np.int64) << _FILE_SHIFT


class _PacketNotes:
    """Notes of packets: connection and time of each, or the bytes that it brought (not ``whole_connections``)."""

    def __init__(self, whole_connections: bool) -> None:
        self._whole = whole_connections
        self._notes: list[tuple[NDArray[np.integer], ...]] = []
        """Packets; keys of connections, or numbers of their sides; starts (a time, or an offset), and lengths."""
        self._clients: dict[int, tuple[int, int]] = {}
        """By flow its connection_id, and the side that is the client."""
        self._keys: dict[int, int] = {}
        """By connection_id the key of its segments."""
        self._joining: list[tuple[Int64Array, Int64Array]] = []
        """Packets without payload that have an option of Multipath TCP, and the keys of their connections."""
        self.secrets: list[bytes] = []
        self.rules: Sequence[tuple[int, str]] = ()
        self.fragments: Int64Array = np.zeros(0, np.int64)
        """The packets that are fragments."""

    def hooks(self) -> StageHooks:
        """Callbacks that take the notes."""
        chunks = None if self._whole else self._note_chunks
        return replace(NUMBERED, packets=self._note_packets, chunks=chunks, ended=self._note_ended)

    def _note_packets(self, window: Window, segments: Segments) -> None:
        self.secrets += window.secrets
        if segments.counts.get("fragment"):
            numbers = window.packet_number[connections_of(window, self.rules)[2]]
            self.fragments = np.union1d(self.fragments, _places(window.file, numbers))
        joins = (segments.flags & MULTIPATH != 0) & (segments.wire_length == 0)
        if joins.any():
            self._joining.append((_places(window.file, segments.packet_number[joins]), segments.key[joins]))
        if self._whole:
            places, moments = _places(window.file, segments.packet_number), np.ones(len(segments.key), np.int8)
            self._notes.append((places, segments.key.copy(), segments.ts_ns.copy(), moments))

    def _note_chunks(self, chunks: StreamChunks) -> None:
        sides = np.repeat(2 * chunks.flow + chunks.side, np.diff(chunks.piece_first))
        places = _places(chunks.piece_file, chunks.piece_packet_number)
        self._notes.append((places, sides, chunks.piece_offset.copy(), chunks.piece_length.astype(np.int32)))

    def _note_ended(self, ended: EndedConnections) -> None:
        ids = ended.flows.columns(ended.numbers).connection_ids().tolist()
        self._keys.update(zip(ids, ended.flows.anchors(ended.numbers)[0].tolist(), strict=True))
        self._clients.update(zip(ended.numbers.tolist(), zip(ids, ended.client.tolist(), strict=True), strict=True))

    def packets(self, messages: Sequence[pa.Table] | None, connections: Sequence[SelectedConnection]) -> Int64Array:
        """The packets of messages, and those that join subflows; of whole connections where no messages are given."""
        if messages is None:
            return self.packets_of_connections(connections)
        keys = [self._keys[connection.id] for connection in connections]
        joining = [places[np.isin(key, keys)] for places, key in self._joining]
        return np.concatenate([self.packets_of_messages(messages), *joining])

    def packets_of_connections(self, connections: Sequence[SelectedConnection]) -> Int64Array:
        """The packets of whole connections: those between their ends, and not of another there."""
        times: dict[int, list[tuple[int, int]]] = {}
        for connection in connections:
            span = int(str(connection.row["first_ts_ns"])), int(str(connection.row["last_ts_ns"])) + 1
            times.setdefault(self._keys[connection.id], []).append(span)
        return self._packets_in({key: tuple(np.array(spans).T) for key, spans in times.items()})

    def packets_of_messages(self, messages: Sequence[pa.Table]) -> Int64Array:
        """The packets that brought bytes of messages."""
        spans = _spans(messages)
        sides = {
            2 * flow + side: spans.get((connection_id, "c2s" if side == client else "s2c"))
            for flow, (connection_id, client) in self._clients.items()
            for side in (0, 1)
        }
        return self._packets_in({side: message_spans for side, message_spans in sides.items() if message_spans}, True)

    def _packets_in(self, spans: Mapping[int, _Spans], are_messages: bool = False) -> Int64Array:
        """The places of packets with something in the ranges, which are by connection or side.

        ``are_messages``: the ranges count captured bytes, from the stream offset of the first on.
        """
        side_keys = np.array(sorted(spans), np.int64)
        side_notes = [tuple(column[np.isin(part[1], side_keys)] for column in part) for part in self._notes]
        place, group, begin, length = (np.concatenate(columns) for columns in zip(*side_notes, strict=True))
        hit = np.zeros(len(place), np.bool_)
        order = np.argsort(group, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(group) else ():
            starts, (begins, ends) = begin[rows], spans[int(group[rows[0]])]
            if are_messages:
                # A message with a hole takes more of the stream than its captured bytes, which are counted instead.
                rows = rows[np.argsort(starts, kind="stable")]
                offsets, starts = begin[rows], np.cumsum(length[rows], dtype=np.int64) - length[rows]
                piece = np.maximum(np.searchsorted(offsets, begins, "right") - 1, 0)
                moved = starts[piece] - offsets[piece]
                begins, ends = begins + moved, ends + moved
            # More ranges have begun before its end than have ended before its begin.
            begun = np.searchsorted(np.sort(begins), starts + length[rows])
            hit[rows] = begun > np.searchsorted(np.sort(ends), starts, "right")
        return place[hit]


def _spans(messages: Sequence[pa.Table]) -> dict[tuple[int, str], _Spans]:
    """By connection_id and direction the stream offset of each message, and that plus its captured bytes."""
    rows = unify_dictionaries(pa.concat_tables(messages)).combine_chunks()
    sides = rows.group_by(["connection_id", "direction"], use_threads=False).aggregate(
        [("stream_offset", "list"), ("frame_len", "list")]
    )
    names, span_lists = ("connection_id", "direction", "stream_offset_list", "frame_len_list"), {}
    for connection_id, direction, begins, lengths in zip(*map(sides.column, names), strict=True):
        begin, length = begins.values.to_numpy(), lengths.values.to_numpy()
        span_lists[connection_id.as_py(), direction.as_py()] = begin, begin + length
    return span_lists


def _message_places(capture: Capture, messages: pa.Table, column: str) -> Int64Array:
    """The places of the packets in a column of messages, all in the file where the message begins."""
    files = {file_text(name): i for i, name in enumerate(capture.files)}
    encoded = dictionary(messages["capture_file"])
    file = np.array([files[name] for name in encoded.dictionary.to_pylist()], np.int64)[encoded.indices.to_numpy()]
    return _places(file, messages[column].to_numpy())


class _Comments:
    """Comments on the first packet of each message."""

    def __init__(self, capture: Capture, messages: Sequence[pa.Table]) -> None:
        self._messages = unify_dictionaries(pa.concat_tables(messages)).combine_chunks()
        place = _message_places(capture, self._messages, "first_packet")
        self._order = np.argsort(place, kind="stable")
        self._places = place[self._order]

    def of(self, places: Int64Array) -> Iterator[list[str]]:
        """The comments of each packet."""
        for start in range(0, len(places), COMMENTED_TOGETHER):
            part = places[start : start + COMMENTED_TOGETHER]
            starts, ends = np.searchsorted(self._places, part), np.searchsorted(self._places, part + 1)
            counts = np.minimum(ends - starts, MAX_COMMENTS)
            rows = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
            messages = iter(self._messages.take(pa.array(self._order[rows])).to_pylist())
            for count, uncommented in zip(counts.tolist(), (ends - starts - counts).tolist(), strict=True):
                texts = [_comment(message) for message in islice(messages, count)]
                yield [*texts, f"and {uncommented} more messages"] if uncommented else texts


def _comment(message: dict[str, object]) -> str:
    ends = [endpoint(message[f"{end}_ip"], message[f"{end}_port"]) for end in ("src", "dst")]
    protocol_words = f"{message['protocol']}/{message['dialect']}"
    return "  ".join([protocol_words, *content_words(message, None, Paint()), " -> ".join(ends)])
