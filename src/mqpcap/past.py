"""The connections of a capture, live or over, as its end asks of them.

A live connection is a Talk of ``frames``. One that is over is a number here, and a record that it shares with all that
say the same: a capture may have millions of them. Promises: what a row or a table would have said of the live
connection, it says of the one that is over.
"""

import pickle
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import repeat
from typing import Any

from mqpcap.frames import Spoken, Talk
from mqpcap.protocol import Connection, Facts, MessageQueue


@dataclass(frozen=True, slots=True)
class Past:
    """What is kept of a Talk; ``relaid`` has the layouts that its evidence replaces by others."""

    protocol: MessageQueue | None
    identified_by: str | None
    client: int
    messages: tuple[int, int]
    facts: Facts
    relaid: Mapping[str, str]


class Talks(Mapping[int, Spoken]):
    """Talks by the number of the connection: the live ones, which others may change, and those that are over.

    ``connections`` is the evidence of those that are over in protocols where others may have a say, or ask for it.
    """

    def __init__(self, live: Mapping[int, Talk]) -> None:
        self.live = live
        self.connections: dict[int, Connection] = {}
        self._records: list[Past] = []
        self._places: dict[bytes, int] = {}
        self._codes = array("i")
        self._past_count = 0

    def end(self, flows: Sequence[int]) -> None:
        """Pack away connections that are over and whose bytes are all read; they may leave ``live`` then."""
        speaking: dict[str, list[Talk]] = {}
        for flow in flows:
            talk = self.live.get(flow)
            if talk is not None and talk.protocol is None:
                self._add(talk, Facts(), {})
            elif talk is not None and talk.protocol is not None:
                speaking.setdefault(talk.protocol.name, []).append(talk)
        for talks in speaking.values():
            self._end(talks)

    def _end(self, talks: Sequence[Talk]) -> None:
        """The same for some of one protocol."""
        protocol = talks[0].protocol
        assert protocol is not None
        evidence = protocol.evidence
        connections = [talk.connection for talk in talks if talk.connection is not None]
        said = [Facts()] * len(talks)
        if evidence is not None and evidence.joins:
            self.connections.update(zip((talk.flow for talk in talks), connections, strict=True))
        elif evidence is not None:
            said = evidence.settle(connections)
        for talk, connection, facts in zip(talks, connections, said, strict=True):
            relaid = {}
            if evidence is not None and evidence.relayout is not None:
                names = [layout.name for layout in protocol.layouts]
                relaid = {name: new for name in names if (new := evidence.relayout(connection, name)) != name}
            self._add(talk, facts, relaid)

    def _add(self, talk: Talk, facts: Facts, relaid: Mapping[str, str]) -> None:
        name = talk.protocol.name if talk.protocol is not None else None
        key = pickle.dumps((name, talk.identified_by, talk.client, talk.messages, astuple(facts), relaid))
        place = self._places.setdefault(key, len(self._records))
        if place == len(self._records):
            self._records.append(
                Past(talk.protocol, talk.identified_by, talk.client, talk.messages, facts, relaid)
            )  # fmt: skip
        self._codes.extend(repeat(0, talk.flow + 1 - len(self._codes)))
        self._codes[talk.flow] = place + 1
        self._past_count += 1

    def past(self, flow: int) -> Past | None:
        """A connection that is over; None if it is not."""
        code = self._codes[flow] if flow < len(self._codes) else 0
        return self._records[code - 1] if code else None

    def get(self, flow: int, default: Any = None) -> Any:
        """A connection, whichever it is; ``default`` for one nobody asked about."""
        return self.live.get(flow) or self.past(flow) or default

    def __getitem__(self, flow: int) -> Spoken:
        talk: Spoken | None = self.get(flow)
        if talk is None:
            raise KeyError(flow)
        return talk

    def __iter__(self) -> Iterator[int]:
        """The numbers of all, those that are over first."""
        yield from (flow for flow, code in enumerate(self._codes) if code)
        yield from self.live

    def __len__(self) -> int:
        return self._past_count + len(self.live)
