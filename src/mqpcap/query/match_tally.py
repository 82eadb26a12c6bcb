"""Counts how many messages match a filter, and says why none does."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

import pyarrow.compute as pc

from mqpcap.query.evaluation import FilterInput
from mqpcap.query.filter import Query
from mqpcap.query.filter_columns import STREAM
from mqpcap.tables.output import Output
from mqpcap.wording import clock, endpoint, plural

NAMED_VALUES = 12
"""Values of a column that a note names if none of them matched."""
MAX_WORDS = 1 << 12
"""Values of a column that are remembered, up to the last batch."""
MAX_WORD_LENGTH = 200
"""Characters of a value that are remembered."""
_PLURALS = {
    "op": "operations", "destination": "topics", "topic": "topics", "protocol": "protocols", "status": "statuses",
    "client": "clients", "server": "servers", "client_ip": "clients", "server_ip": "servers", "src_ip": "addresses",
    "dst_ip": "addresses", "client_name": "client names", "group_name": "groups", "dialect": "dialects",
    **dict.fromkeys(("connection", "connection_id", STREAM), "connections"),
}  # fmt: skip


@dataclass(slots=True)
class MatchTally:
    """Numbers of messages that were tested and that matched; until the first match, the conditions that failed."""

    query: Query
    message_count: int = 0
    match_count: int = 0
    _match_counts: Counter[int] = field(default_factory=Counter)
    """By its place in the filter, how many messages a condition may be true of."""
    _words: defaultdict[int | str, set[str]] = field(default_factory=partial(defaultdict, set))
    """By the same, the texts that its column has, and by an end of connections those there."""
    _span_ns: tuple[int, int] | None = None
    """Times of the first and the last message that was looked at."""

    def look(self, output: Output, first_ns: int) -> None:
        """Take messages that are looked at; of connections that cannot be wanted no message is."""
        if output.fields is not None and output.protocol is not None:
            self.message_count += output.rows.num_rows
            if not self.match_count:
                self._look_at_messages(FilterInput(output.protocol, output.rows, output.fields), first_ns)
        elif output.table == "connections" and not self.match_count and self.query.connections is not None:
            ours = output.rows.filter(pc.is_valid(output.rows["protocol"]))
            for end in ("client", "server") if len(self._words["client"]) < MAX_WORDS else ():
                both = (ours[f"{end}_{column}"].to_pylist() for column in ("ip", "port"))
                self._words[end].update(map(endpoint, *both))

    def _look_at_messages(self, rows: FilterInput, first_ns: int) -> None:
        if len(rows):
            self._widen(tuple(pc.min_max(rows.messages["ts_ns"]).as_py().values()))
        for i, part in enumerate(self.query.parts):
            mask = pc.fill_null(part.mask(rows, first_ns), part.needs_exchanges)
            self._match_counts[i] += pc.sum(mask).as_py() or 0
            if not self._match_counts[i] and len(self._words[i]) < MAX_WORDS:
                words = next(part.conditions).seen_values(rows)[:MAX_WORDS]
                self._words[i].update(word[:MAX_WORD_LENGTH] for word in words)

    def _widen(self, span_ns: tuple[int, ...]) -> None:
        times = (*(self._span_ns or ()), *span_ns)
        self._span_ns = (min(times), max(times)) if times else None

    def added(self, added: "MatchTally") -> "MatchTally":
        """Both."""
        self._widen(added._span_ns or ())
        self.message_count += added.message_count
        self.match_count += added.match_count
        self._match_counts += added._match_counts
        for place, words in added._words.items():
            self._words[place] |= words
        return self

    @property
    def note(self) -> str | None:
        """What to say where nothing matches."""
        if self.match_count:
            return None
        if not self.message_count:
            if self._asks_time and not self._words:
                return "no message is of that time"
            ends = [f"{end}s {_listed(self._words[end])}" for end in ("client", "server") if self._words[end]]
            return f"no connection matches; here are {', '.join(ends)}" if ends else None
        note = f"0 of {plural(self.message_count, 'message')} match"
        for i, part in enumerate(self.query.parts):
            if not self._match_counts[i] and self._words[i]:
                name = next(part.conditions).column.name
                return f"{note}; {_PLURALS.get(name, name)} here: {_listed(self._words[i])}"
        if self._asks_time and self._span_ns is not None:
            note += "; messages here are from {} to {}".format(*(clock(ts_ns, True, True) for ts_ns in self._span_ns))
        return note

    @property
    def _asks_time(self) -> bool:
        return any(condition.column.name in ("ts", "ts_ns") for condition in self.query.conditions)


def _by_number(word: str) -> list[tuple[int, str]]:
    """Sorts words with numbers in them by the numbers: c2 before c10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", word)]


def _listed(words: Collection[str]) -> str:
    named = [word or '""' for word in sorted(words, key=_by_number)[:NAMED_VALUES]]
    return ", ".join([*named, *(["..."] if len(words) > NAMED_VALUES else [])])
