"""The messages that are wanted, batch by batch, to be shown or counted, and what to say where there are none."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from mqpcap.cli.console import plural
from mqpcap.pipeline import CapturePipeline, Output
from mqpcap.query import EVERYTHING, FilterInput, Query, Selection
from mqpcap.statistics.keys import endpoint

if TYPE_CHECKING:
    from mqpcap.statistics.counters import Counters


MOST_WORDS = 12
"""Values of a column that a note names if none of them matched."""
MAX_WORDS = 1 << 12
"""Values of a column that are remembered, up to the last batch."""
MAX_WORD_LENGTH = 200
"""Characters of a value that are remembered."""
MAX_ASKING_BYTES = 256 << 20
"""Requests of a capture that wait for their outcome because only those with a certain one are asked for."""
MAX_OPEN = 1 << 21
"""Messages that are counted and whose exchange may still come; of older ones it is not counted."""
_PLURALS = {
    "op": "operations", "destination": "topics", "topic": "topics", "protocol": "protocols", "status": "statuses",
    "client": "clients", "server": "servers", "client_ip": "clients", "server_ip": "servers", "src_ip": "addresses",
    "dst_ip": "addresses", "client_name": "client names", "group_name": "groups", "dialect": "dialects",
}  # fmt: skip


@dataclass(slots=True)
class Tally:
    """Numbers of messages that were tested and that matched; until the first match, the conditions that failed."""

    query: Query
    message_count: int = 0
    match_count: int = 0
    _met: Counter[int] = field(default_factory=Counter)
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
            self._met[i] += pc.sum(mask).as_py() or 0
            if not self._met[i] and len(self._words[i]) < MAX_WORDS:
                words = next(part.conditions).seen_values(rows)[:MAX_WORDS]
                self._words[i].update(word[:MAX_WORD_LENGTH] for word in words)

    def _widen(self, span_ns: tuple[int, ...]) -> None:
        times = (*(self._span_ns or ()), *span_ns)
        self._span_ns = (min(times), max(times)) if times else None

    def added(self, added: "Tally") -> "Tally":
        """Both."""
        self._widen(added._span_ns or ())
        self.message_count += added.message_count
        self.match_count += added.match_count
        self._met += added._met
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
            if not self._met[i] and self._words[i]:
                name = next(part.conditions).column.name
                return f"{note}; {_PLURALS.get(name, name)} here: {_listed(self._words[i])}"
        if self._asks_time and self._span_ns is not None:
            from mqpcap.cli.lines import clock

            note += "; messages here are from {} to {}".format(*(clock(ts_ns, True, True) for ts_ns in self._span_ns))
        return note

    @property
    def _asks_time(self) -> bool:
        return any(condition.column.name in ("ts", "ts_ns") for condition in self.query.conditions)


def _listed(words: Collection[str]) -> str:
    named = [word or '""' for word in sorted(words)[:MOST_WORDS]]
    return ", ".join([*named, *(["..."] if len(words) > MOST_WORDS else [])])


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects the messages to show. ``columns`` gives those of a protocol that are kept, None for all, and
    ``left_out`` those of ``messages`` that nobody looks at."""

    query: Query = EVERYTHING
    columns: Callable[[str], tuple[str, ...]] | None = None
    left_out: Sequence[str] = ()
    tally: Tally | None = None

    def slim(self, output: Output) -> Output:
        """The messages without columns that nobody looks at."""
        if self.columns is None or output.fields is None or output.protocol is None:
            return output
        # Without a column a table has no rows.
        kept = {"op", *self.columns(output.protocol), *self.query.fields(output.protocol)}
        return replace(output, fields=output.fields.select([x for x in output.fields.column_names if x in kept]))


def selected_counts(tally: Tally, counters: "Counters", pipeline: CapturePipeline) -> Callable[[Output], None]:
    """A receiver of rows of any table that counts selected rows: messages, and exchanges of selected messages."""
    slim = Filter(tally.query, lambda protocol: ()).slim
    pairs = "exchanges" in counters.optional_tables

    def count(output: Output) -> None:
        tally.match_count += output.rows.num_rows if output.table == "messages" else 0
        counters.take(output)

    selection = Selection(tally.query, count, MAX_OPEN, MAX_ASKING_BYTES)

    def take(output: Output) -> None:
        first_ns = pipeline.first_ns or 0
        if output.table == "messages" and pairs:
            counters.count("unfiltered", output.rows)
        tally.look(output, first_ns)
        if output.table != "problems":  # nobody counts them, and the selection would keep them to its end
            selection.add(slim(output), first_ns)

    return take
