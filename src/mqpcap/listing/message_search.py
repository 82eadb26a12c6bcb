"""The messages that ``explain`` is asked for, looked for while a capture is read; reading stops at the last one."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import file_text, is_in
from mqpcap.capture import Capture
from mqpcap.decode.foreign_protocols import TLS
from mqpcap.hooks import StageHooks
from mqpcap.listing.extra_columns import OTHER_PROTOCOL, WITH_BYTES, PacketFinder, PacketPayload
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.reorder_buffer import ReorderBuffer
from mqpcap.listing.shown_messages import ShownMessages
from mqpcap.query import Comparison, FilterInput, MatchTally, of_tree
from mqpcap.query.selection import select_rows
from mqpcap.reading import Meter, Outcome, steps, wired
from mqpcap.schema.protocol import Direction
from mqpcap.tables.output import Output


class MessageSearch(ABC):
    """Messages of one capture that are looked for."""

    packet: int | None = None
    columns: StageHooks = WITH_BYTES
    """Adds the further columns of the rows."""

    def __init__(self, number: int) -> None:
        self.places: list[PacketPayload] = []
        self._buffer = ReorderBuffer(number, ShownMessages(), 1)
        self._waiting: list[Output] = []

    def run(self, capture: Capture, outcome: Outcome, meter: Meter) -> None:
        """Read until everything is found."""
        options = outcome.choices.dissection(only=frozenset({"exchanges"}))
        hooks = self.columns
        if self.packet is not None:
            finder = PacketFinder(self.packet)
            self.places, hooks = finder.payloads, replace(hooks, packets=finder.add)
        pipeline = wired(capture, options, lambda output, _: self._take(output), hooks)
        with closing(steps(pipeline, outcome, meter)) as windows:
            for _ in windows:
                for output in self._waiting:
                    if output.fields is not None:
                        output = select_rows(output, self._found(output))
                    self._buffer.add(output, 0)
                self._waiting = []
                if self._is_over():
                    return

    def _take(self, output: Output) -> None:
        # The place of a packet is known at the end of its window.
        if output.fields is not None or output.table == "exchanges":
            self._waiting.append(output)

    def rows(self) -> list[MessageRow]:
        """The rows that were looked for."""
        return [row for part in self._buffer.pop_until((1 << 63) - 1) for row in part]

    @abstractmethod
    def _found(self, output: Output) -> NDArray[np.bool_]:
        """Which rows are looked for."""

    @abstractmethod
    def _is_over(self) -> bool:
        """Whether no other row can be looked for."""


class PlaceSearch(MessageSearch):
    """The message that holds a byte of a stream."""

    def __init__(self, number: int, connection: str | None, direction: Direction | None, offset: int) -> None:
        super().__init__(number)
        self._query = of_tree(Comparison("connection", "==", ((connection or "").strip(),)))
        self._tally = MatchTally(self._query)
        self._connection, self._direction, self._offset = connection, direction, offset

    def _found(self, output: Output) -> NDArray[np.bool_]:
        m = output.rows
        begin: NDArray[np.int64] = m["stream_offset"].to_numpy()
        is_wanted: NDArray[np.bool_] = (begin <= self._offset) & (begin + m["frame_len"].to_numpy() > self._offset)
        assert output.protocol is not None and output.fields is not None
        self._tally.look(output, 0)
        is_there = self._query.selects(FilterInput(output.protocol, m, output.fields))
        self._tally.match_count += int(np.count_nonzero(is_there))
        return is_wanted & is_there & is_in(m["direction"], self._direction)

    def _is_over(self) -> bool:
        return len(self._buffer) > 0

    @property
    def miss(self) -> str:
        """Why there may be no row."""
        place = f"no message of connection {self._connection} {self._direction} holds offset {self._offset}"
        return f"{place}: {note}" if (note := self._tally.note) is not None else place


class PacketSearch(MessageSearch):
    """The messages that have bytes of a packet, in each file of the capture."""

    def __init__(self, number: int, packet: int, files: Sequence[str], file: int | None = None) -> None:
        super().__init__(number)
        self.packet = packet
        self._files = [file_text(name) for name in files]
        self._file = file
        """The index of the only file that is searched, None for all."""
        self._stranger: str | None = None
        """The foreign protocol of the packet's connection."""
        self._by_ports: dict[int, list[PacketPayload]] = {}
        """The packets that are searched for, by their ports: each file of a capture may have such a packet."""
        self._indexed_count = 0
        self._behind: set[PacketPayload] = set()
        """Packets with later messages on their connection: their own messages are complete."""

    def _found(self, output: Output) -> NDArray[np.bool_]:
        m = output.rows
        names = "first_packet", "last_packet", "ts_ns", "end_ts_ns"
        first_packets, last_packets, begin_ns, end_ns = (m[name].to_numpy() for name in names)
        mask = np.zeros(m.num_rows, np.bool_)
        for place in self._places_near(_port_pairs(m), begin_ns, end_ns):
            ends = ("src_ip", "src_port", "dst_ip", "dst_port")
            same_ends = reduce(and_, (is_in(m[name], getattr(place, name)) for name in ends))
            # A retransmission is not the packet of any message, and a later connection may use the ports again.
            # If a message continues in the next file, the number of its last packet counts in that file.
            begins_here = is_in(m["capture_file"], self._files[place.file])
            continues = (end_ns > place.ts_ns) & (len(self._files) > 1)
            around = ~begins_here | ((first_packets <= self.packet) & ((last_packets >= self.packet) | continues))
            mask |= same_ends & around & (begin_ns <= place.ts_ns) & (end_ns >= place.ts_ns)
            if (same_ends & (end_ns > place.ts_ns)).any():
                self._behind.add(place)
        return mask

    def _places_near(
        self, port_pairs: NDArray[np.int64], begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
    ) -> list[PacketPayload]:
        """The packets that messages with these ports and times may have, or may prove to be complete."""
        for place in self.places[self._indexed_count :]:
            if self.is_searched(place):
                self._by_ports.setdefault(place.src_port << 16 | place.dst_port, []).append(place)
        self._indexed_count = len(self.places)
        if not len(end_ns):
            return []
        low, high = int(begin_ns.min()), int(end_ns.max())
        places = (place for pair in np.unique(port_pairs).tolist() for place in self._by_ports.get(pair, ()))
        return [x for x in places if x.ts_ns <= high and (x.ts_ns >= low or x not in self._behind)]

    def _take(self, output: Output) -> None:
        super()._take(output)
        for place in self._searched() if output.table == "connections" else ():
            ends = {(place.src_ip, place.src_port), (place.dst_ip, place.dst_port)}
            for row in output.rows.filter(pc.is_null(output.rows["protocol"])).to_pylist():
                both = {(row["client_ip"], row["client_port"]), (row["server_ip"], row["server_port"])}
                if both == ends and row["first_ts_ns"] <= place.ts_ns <= row["last_ts_ns"]:
                    name = row[OTHER_PROTOCOL]
                    words = {None: "is not ours", TLS: "is TLS: encrypted, so nothing of it can be read"}
                    self._stranger = words.get(name, f"is {name}, not ours")

    def _searched(self) -> list[PacketPayload]:
        return list(filter(self.is_searched, self.places))

    def is_searched(self, place: PacketPayload) -> bool:
        """Whether a packet is in a file that is searched."""
        return self._file in (None, place.file)

    def _is_over(self) -> bool:
        return len(self._behind) == (len(self._files) if self._file is None else 1)

    @property
    def miss(self) -> str:
        """Why there may be no row."""
        places = self._searched()
        if not places:
            return f"there is no packet {self.packet}" + (
                "" if self._file is None else f" in {self._files[self._file]}"
            )
        if places[0].src_port < 0:
            return f"packet {self.packet} is no TCP packet"
        if not places[0].payload_len:
            return f"packet {self.packet} has no TCP payload"
        if self._stranger is not None:
            return f"packet {self.packet} is of a connection that {self._stranger}"
        return f"no message has bytes of packet {self.packet}; export has it in problems, or it is a retransmission"


def _port_pairs(rows: pa.Table) -> NDArray[np.int64]:
    """The ports of each row as one number."""
    src_port, dst_port = (rows[name].to_numpy().astype(np.int64) for name in ("src_port", "dst_port"))
    pairs: NDArray[np.int64] = src_port << 16 | dst_port
    return pairs
