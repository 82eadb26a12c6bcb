"""Passes rows of a capture to counters, and names the tables and columns that they need."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from mqpcap.capture import Capture
from mqpcap.hooks import StageHooks
from mqpcap.listing.extra_columns import NUMBERED
from mqpcap.listing.shown_messages import MAX_ASKING_BYTES, ShownMessages
from mqpcap.options import OPTIONAL_TABLES, Options
from mqpcap.query import MatchTally, Query, Selection
from mqpcap.reading import READ_FOR_NOTES, Choices, Meter, Outcome, background, size_bytes, steps, wired
from mqpcap.tables.output import KNOWN_OF_ENDS, Carried, CarriedByDeliveries, Output
from mqpcap.tcp.headers import Segments

MAX_PENDING_MESSAGES = 1 << 21
"""Messages that are counted and whose exchange may still come; of older ones it is not counted."""


class Counters:
    """Several counters: each gets the rows of the tables that it has a ``take_TABLE`` for, ``without`` named tables.

    Two inputs are not tables: ``unfiltered``, all messages with their fields while a filter selects the counted rows
    (the exchange of a message may be selected though the message is not), and ``segments`` of the packets.
    """

    def __init__(self, *counters: Any, without: Collection[str] = ()) -> None:
        self._counters = [(counter, without) for counter in counters]

    def __add__(self, added: "Counters") -> "Counters":
        """The counters of both."""
        both = Counters()
        both._counters = self._counters + added._counters
        return both

    @property
    def reads(self) -> frozenset[Carried] | None:
        """The columns of messages that counters read, None if a counter does not name its columns."""
        takers = (x for x, _ in self._counters if hasattr(x, "take_messages") or hasattr(x, "take_fields"))
        reads = [getattr(x, "reads", None) for x in takers]
        named = [columns for columns in reads if columns is not None]
        of_deliveries = {(table, name) for _, table, name in self.carried_by_deliveries}
        return None if len(named) < len(reads) else self.carried.union(of_deliveries, *named)

    def narrowed(self, options: Options, choices: Choices, columns: Collection[str] = ()) -> Options:
        """The options with the columns of messages that counters and notes read alone, and of ``columns``."""
        options = self.carrying(options)
        reads = None if choices.decode_as else self.reads
        if reads is None:
            return options
        named = READ_FOR_NOTES.union(columns, (name for table, name in reads if table == "messages"))
        return replace(options, policy=replace(options.policy, columns=named, fields=reads))

    @property
    def optional_tables(self) -> frozenset[str]:
        """The tables of OPTIONAL_TABLES that a counter needs."""
        return frozenset(table for table in OPTIONAL_TABLES if self._takes(table))

    @property
    def carried(self) -> frozenset[Carried]:
        """The columns of both ends that counters read of rows of ``exchanges``; what these have is left out."""
        takers = (x for x, without in self._counters if "exchanges" not in without and hasattr(x, "carried"))
        return frozenset().union(*(x.carried for x in takers)) - KNOWN_OF_ENDS

    @property
    def carried_by_deliveries(self) -> frozenset[CarriedByDeliveries]:
        """The columns of both messages, and of the request, that counters read of rows of ``deliveries``."""
        return frozenset().union(*(getattr(x, "carried_by_deliveries", ()) for x, _ in self._counters))

    def carrying(self, options: Options) -> Options:
        """The options with the columns that counters read of pairs."""
        return replace(options, carried=self.carried, carried_by_deliveries=self.carried_by_deliveries)

    def _takes(self, table: str) -> list[Callable[[pa.Table | Output | Segments], None]]:
        name = f"take_{table}"
        return [getattr(x, name) for x, without in self._counters if table not in without and hasattr(x, name)]

    def take(self, output: Output, first_ns: int = 0) -> None:
        """Count rows of any table; messages go with their fields to counters that have ``take_fields``."""
        self.count(output.table, output.rows)
        for counter, _ in self._counters if output.fields is not None else ():
            if hasattr(counter, "take_fields"):
                counter.take_fields(output)

    def field_columns(self, protocol: str) -> tuple[str, ...]:
        """The columns of a protocol's table that counters read."""
        reads = (getattr(x, "reads", ()) for x, _ in self._counters if hasattr(x, "take_fields"))
        return tuple(name for columns in reads for table, name in columns if table == protocol)

    def count(self, table: str, rows: pa.Table | Output | Segments) -> None:
        """Count rows of a table, by its name."""
        for take in self._takes(table):
            take(rows)

    def hooks(self, needs_numbers: bool = False) -> StageHooks:
        """Callbacks that count the segments of packets, and make columns that counters need."""
        needs_numbers |= any(getattr(counter, "needs_numbers", False) for counter, _ in self._counters)
        hooks = NUMBERED if needs_numbers else StageHooks()
        own_columns = {x.message_columns for x, _ in self._counters if hasattr(x, "message_columns")}
        columns = *hooks.message_columns, *own_columns
        # With a callback for packets the small files of a recording are not read as one window.
        packets = (lambda _, segments: self.count("segments", segments)) if self._takes("segments") else None
        return replace(hooks, packets=packets, message_columns=columns)

    def end_of_capture(self) -> None:
        """All rows of a capture were counted."""
        for counter, _ in self._counters:
            if hasattr(counter, "end_of_capture"):
                counter.end_of_capture()


def selected_counts(tally: MatchTally, counters: Counters) -> Callable[[Output, int], None]:
    """A receiver of rows of any table that counts selected rows: messages, and exchanges of selected messages."""
    drop_unused_columns = ShownMessages(tally.query, counters.field_columns).drop_unused_columns
    pairs = "exchanges" in counters.optional_tables

    def count(output: Output) -> None:
        tally.match_count += output.rows.num_rows if output.table == "messages" else 0
        counters.take(output)

    selection = Selection(tally.query, count, MAX_PENDING_MESSAGES, MAX_ASKING_BYTES, marks_ends=True)

    def take(output: Output, first_ns: int) -> None:
        if output.table == "messages" and pairs:
            counters.count("unfiltered", output)
        tally.look(output, first_ns)
        if output.table != "problems":  # nobody counts them, and the selection would keep them to its end
            selection.add(drop_unused_columns(output), first_ns)

    return take


def _receiver(outcome: Outcome, counters: Counters) -> Callable[[Output, int], None]:
    """A receiver of the rows of one capture: counts those that are selected."""
    count = counters.take if outcome.tally is None else selected_counts(outcome.tally, counters)

    def take(output: Output, first_ns: int) -> None:
        if output.table == "messages":
            outcome.take(output.rows)
        count(output, first_ns)

    return take


def count_captures(
    captures: Sequence[Capture],
    outcome: Outcome,
    counters: Counters,
    meter: Meter,
    wanted: Query | None = None,
    tick: Callable[[], None] | None = None,
) -> None:
    """Have captures counted, one after the other; only what is wanted of them.

    tick: called after each window of packets.
    """
    options = outcome.choices.dissection(only=counters.optional_tables)
    if wanted is None:
        options = counters.narrowed(options, outcome.choices)
    else:
        outcome.tally, options = MatchTally(wanted), counters.carrying(options)
        pairs = {"exchanges"} if wanted.needs_exchanges else set()
        ours = None if outcome.choices.strict else wanted.connections
        options = replace(options, optional_tables=options.optional_tables | pairs, connections=ours)

    with background(outcome.choices, size_bytes(captures)) as worker:
        for capture in captures:
            hooks = counters.hooks(needs_numbers=outcome.tally is not None)
            for _ in steps(wired(capture, options, _receiver(outcome, counters), hooks, worker), outcome, meter):
                if tick is not None:
                    tick()
            counters.end_of_capture()
