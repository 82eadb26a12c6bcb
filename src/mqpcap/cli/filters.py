"""The messages that are wanted, batch by batch, and what to say where there are none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.cli.console import plural
from mqpcap.cli.lines import endpoint
from mqpcap.query import Query, Rows
from mqpcap.tables.messages import Chunk

NONE = -(1 << 63)
"""No number, in arrays of what is known of exchanges."""
MOST_WORDS = 12
"""So many values of a column are named where none of them was wanted."""
MAX_WORDS = 1 << 12
"""So many are remembered."""
_PLURALS = {
    "op": "operations", "destination": "topics", "topic": "topics", "protocol": "protocols", "status": "statuses",
    "client": "clients", "server": "servers", "client_ip": "clients", "server_ip": "servers", "src_ip": "addresses",
    "dst_ip": "addresses", "client_name": "client names", "group_name": "groups", "dialect": "dialects",
}  # fmt: skip


@dataclass(slots=True)
class Tally:
    """How many messages were looked at and how many of them were wanted; until one is, what kept them out."""

    query: Query
    message_count: int = 0
    match_count: int = 0
    _met: dict[int, int] = field(default_factory=dict)
    """By its place in the filter, how many messages a condition may be true of."""
    _words: dict[int, set[str]] = field(default_factory=dict)
    _ends: dict[str, set[str]] = field(default_factory=dict)

    def look_at_connections(self, rows: pa.Table) -> None:
        """Take rows of ``connections``: of those that cannot be wanted no message is looked at."""
        if self.match_count or self.query.connections is None:
            return
        ours = rows.filter(pc.is_valid(rows["protocol"]))
        for end in ("client", "server"):
            both = (ours[f"{end}_{what}"].to_pylist() for what in ("ip", "port"))
            self._ends.setdefault(end, set()).update(map(endpoint, *both))

    def look(self, rows: Rows, first_ns: int) -> None:
        """Take messages that are looked at."""
        self.message_count += len(rows)
        if self.match_count:
            return
        for i, part in enumerate(self.query.parts):
            mask = pc.fill_null(part.mask(rows, first_ns), part.needs.exchanges)
            self._met[i] = self._met.get(i, 0) + (pc.sum(mask).as_py() or 0)
            words = self._words.setdefault(i, set())
            if not self._met[i] and len(words) < MAX_WORDS:
                words.update(next(part.conditions).words(rows))

    def added(self, other: "Tally") -> "Tally":
        """Both."""
        self.message_count += other.message_count
        self.match_count += other.match_count
        for i, count in other._met.items():
            self._met[i] = self._met.get(i, 0) + count
        for i, words in other._words.items():
            self._words.setdefault(i, set()).update(words)
        for end, words in other._ends.items():
            self._ends.setdefault(end, set()).update(words)
        return self

    @property
    def note(self) -> str | None:
        """What to say where nothing matches."""
        if self.match_count:
            return None
        if not self.message_count:
            ends = [f"{end}s {_listed(sorted(words))}" for end, words in self._ends.items() if words]
            return f"no connection matches; here are {', '.join(ends)}" if ends else None
        said = f"0 of {plural(self.message_count, 'message')} match"
        for i, part in enumerate(self.query.parts):
            words = sorted(self._words.get(i, ()))
            if not self._met.get(i) and words:
                name = next(part.conditions).column.name
                return f"{said}; {_PLURALS.get(name, name)} here: {_listed(words)}"
        return said


def _listed(words: Sequence[str]) -> str:
    return ", ".join([*(word or '""' for word in words[:MOST_WORDS]), *(["..."] if len(words) > MOST_WORDS else [])])


@dataclass(frozen=True, slots=True)
class Filter:
    """What a message must be to be shown, None for anything. ``columns`` are those of the protocol that are kept, None
    for all, and ``left_out`` those of ``messages`` that nobody looks at."""

    query: Query | None = None
    columns: Mapping[str, tuple[str, ...]] | None = None
    left_out: Sequence[str] = ()
    tally: Tally | None = None

    def sorted(self, chunk: Chunk, first_ns: int) -> tuple[Chunk, Chunk]:
        """The rows that are wanted, and those of which their exchange will tell."""
        rows = Rows(chunk.protocol, chunk.messages, chunk.fields)
        fields = chunk.fields
        if self.columns is not None:
            asked = self.query.needs.fields.get(chunk.protocol, frozenset()) if self.query is not None else ()
            kept = [x for x in fields.column_names if x in self.columns[chunk.protocol] or x in asked]
            fields = fields.select(["op", *(x for x in kept if x != "op")])  # without a column a table has no rows
        slim = Chunk(chunk.protocol, chunk.messages, fields)
        if self.query is None:
            return slim, _some(slim, pa.array(np.zeros(len(rows), np.bool_)))
        if self.tally is not None:
            self.tally.look(rows, first_ns)
        mask = self.query.mask(rows, first_ns)
        waits = pc.is_null(mask) if self.query.needs.exchanges else pa.array(np.zeros(len(rows), np.bool_))
        return self.counted(_some(slim, mask)), _some(slim, waits)

    def told(
        self, chunk: Chunk, known: Mapping[str, NDArray[np.int64]], words: Mapping[int, str],
        over: NDArray[np.bool_], first_ns: int,
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:  # fmt: skip
        """Of rows that wait for their exchanges: which are wanted, and which wait on.

        ``known``: what is known of their exchanges, words as numbers; ``over``: rows that have none.
        """
        assert self.query is not None
        unsettled = (known["state"] == NONE) & ~over
        rows = Rows(chunk.protocol, chunk.messages, chunk.fields, _exchanges(chunk, known, words), unsettled)
        mask = self.query.mask(rows, first_ns)
        wanted: NDArray[np.bool_] = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
        return wanted, pc.is_null(mask).to_numpy(zero_copy_only=False) & unsettled

    def counted(self, chunk: Chunk) -> Chunk:
        """The rows, counted as wanted."""
        if self.tally is not None:
            self.tally.match_count += chunk.messages.num_rows
        return chunk


def _some(chunk: Chunk, mask: pa.BooleanArray) -> Chunk:
    return Chunk(chunk.protocol, chunk.messages.filter(mask), chunk.fields.filter(mask))


def _exchanges(chunk: Chunk, known: Mapping[str, NDArray[np.int64]], words: Mapping[int, str]) -> pa.Table:
    """What is known of exchanges as a filter asks for it."""
    asks, state = known["is_request"] == 1, known["state"]
    own = {"packet": chunk.messages["first_packet"].to_numpy(), "ts_ns": chunk.messages["ts_ns"].to_numpy()}
    other = {"packet": known["packet"], "ts_ns": known["packet_ts_ns"]}
    columns: dict[str, pa.Array] = {name: _numbers(known[name]) for name in ("latency_ns", "error_code")}
    for what in ("packet", "ts_ns"):
        for end, is_own in (("request", asks), ("reply", ~asks)):
            columns[f"{end}_{what}"] = _numbers(np.where(state == NONE, NONE, np.where(is_own, own[what], other[what])))
    for name in ("state", "status"):
        columns[name] = pa.array([words.get(code) for code in known[name].tolist()], pa.string())
    return pa.table(columns | {"is_request": pa.array(asks, mask=state == NONE)})


def _numbers(values: NDArray[np.int64]) -> pa.Array:
    return pa.array(values, mask=values == NONE)
