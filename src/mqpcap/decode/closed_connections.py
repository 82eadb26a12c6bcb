"""The connections of a capture, live or over, as its end asks of them.

A live connection is a ``ConnectionState`` of ``framing``. A closed one is a number here, and a record that it shares
with all that say the same: a capture may have millions of them. Promises: what a row or a table would have said of the
live connection, it says of the closed one.
"""

import pickle
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from mqpcap.decode.framing import ConnectionState, ConnectionView
from mqpcap.schema.protocol import Evidence, MessageQueue


@dataclass(frozen=True, slots=True)
class ClosedConnection:
    """What is kept of a ``ConnectionState``; ``connection`` is its evidence, or that of another which says the same."""

    protocol: MessageQueue | None
    identified_by: str | None
    client: int
    messages: tuple[int, int]
    connection: Evidence | None


class ConnectionRegistry(Mapping[int, ConnectionView]):
    """Connections by their number: the live ones, which others may change, and those that are over.

    ``joining`` is the evidence of those that are over in protocols where others may ask for it.
    """

    def __init__(self, live: Mapping[int, ConnectionState]) -> None:
        self.live = live
        self.joining: dict[int, Evidence] = {}
        self._records: list[ClosedConnection] = []
        self._places: dict[bytes, int] = {}
        self._record_numbers = array("i")
        self._closed_count = 0

    def end(self, flows: Sequence[int]) -> None:
        """Pack away connections that are over and whose bytes are all read; they may leave ``live`` then."""
        for state in [self.live[flow] for flow in flows if flow in self.live]:
            protocol, connection = state.protocol, state.connection
            if protocol is not None and protocol.evidence is not None and protocol.evidence.joins:
                assert connection is not None
                self.joining[state.flow], connection = connection, None
            name = protocol.name if protocol is not None else None
            evidence = (connection.state, connection.layouts) if connection is not None else None
            key = pickle.dumps((name, state.identified_by, state.client, state.messages, evidence))
            place = self._places.setdefault(key, len(self._records))
            if place == len(self._records):
                self._records.append(
                    ClosedConnection(protocol, state.identified_by, state.client, state.messages, connection)
                )
            self._record_numbers.extend(repeat(0, state.flow + 1 - len(self._record_numbers)))
            self._record_numbers[state.flow] = place + 1
            self._closed_count += 1

    def connection(self, flow: int) -> Evidence:
        """The evidence of a connection of some protocol; that of one that is over may have another's name."""
        state, closed = self.live.get(flow), self.closed(flow)
        found = state.connection if state is not None else closed.connection if closed is not None else None
        return found or self.joining[flow]

    def closed(self, flow: int) -> ClosedConnection | None:
        """A connection that is over; None if it is not."""
        number = self._record_numbers[flow] if flow < len(self._record_numbers) else 0
        return self._records[number - 1] if number else None

    def get(self, flow: int, default: Any = None) -> Any:
        """A connection, whichever it is; ``default`` for one nobody asked about."""
        return self.live.get(flow) or self.closed(flow) or default

    def __getitem__(self, flow: int) -> ConnectionView:
        state: ConnectionView | None = self.get(flow)
        if state is None:
            raise KeyError(flow)
        return state

    def __iter__(self) -> Iterator[int]:
        """The numbers of all, those that are over first."""
        yield from (flow for flow, number in enumerate(self._record_numbers) if number)
        yield from self.live

    def __len__(self) -> int:
        return self._closed_count + len(self.live)
