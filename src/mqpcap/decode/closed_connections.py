"""The connections of a capture, live or over, as its end asks of them.

A live connection is a Talk of ``frames``. One that is over is a number here, and a record that it shares with all that
say the same: a capture may have millions of them. Promises: what a row or a table would have said of the live
connection, it says of the one that is over.
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
    """What is kept of a Talk; ``connection`` is its evidence, or that of another which says the same."""

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
        self._codes = array("i")
        self._past_count = 0

    def end(self, flows: Sequence[int]) -> None:
        """Pack away connections that are over and whose bytes are all read; they may leave ``live`` then."""
        for talk in [self.live[flow] for flow in flows if flow in self.live]:
            protocol, connection = talk.protocol, talk.connection
            if protocol is not None and protocol.evidence is not None and protocol.evidence.joins:
                assert connection is not None
                self.joining[talk.flow], connection = connection, None
            name = protocol.name if protocol is not None else None
            said = (connection.state, connection.layouts) if connection is not None else None
            key = pickle.dumps((name, talk.identified_by, talk.client, talk.messages, said))
            place = self._places.setdefault(key, len(self._records))
            if place == len(self._records):
                self._records.append(
                    ClosedConnection(protocol, talk.identified_by, talk.client, talk.messages, connection)
                )
            self._codes.extend(repeat(0, talk.flow + 1 - len(self._codes)))
            self._codes[talk.flow] = place + 1
            self._past_count += 1

    def connection(self, flow: int) -> Evidence:
        """The evidence of a connection of some protocol; that of one that is over may have another's name."""
        talk, past = self.live.get(flow), self.past(flow)
        found = talk.connection if talk is not None else past.connection if past is not None else None
        return found or self.joining[flow]

    def past(self, flow: int) -> ClosedConnection | None:
        """A connection that is over; None if it is not."""
        code = self._codes[flow] if flow < len(self._codes) else 0
        return self._records[code - 1] if code else None

    def get(self, flow: int, default: Any = None) -> Any:
        """A connection, whichever it is; ``default`` for one nobody asked about."""
        return self.live.get(flow) or self.past(flow) or default

    def __getitem__(self, flow: int) -> ConnectionView:
        talk: ConnectionView | None = self.get(flow)
        if talk is None:
            raise KeyError(flow)
        return talk

    def __iter__(self) -> Iterator[int]:
        """The numbers of all, those that are over first."""
        yield from (flow for flow, code in enumerate(self._codes) if code)
        yield from self.live

    def __len__(self) -> int:
        return self._past_count + len(self.live)
