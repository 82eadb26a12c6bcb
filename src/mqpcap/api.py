"""Every command as a call with the same name: values and iterators in place of printed lines.

In: captures, as in ``mqpcap.open``, and a filter, as in ``-Y``. Out: tables of pyarrow, dataclasses, iterators. Called
by: users, through ``mqpcap.stats``, ``mqpcap.diff`` and so on.

All calls take the options of ``mqpcap.open`` (``decode_as``, ``show_secrets``, ``bodies``, ``max_memory_bytes``), and
``jobs``. Calls with a filter take the words of the commands, too: ``op="PUBLISH"``, ``since="+30s"``. progress: a
function that is called with the count of bytes read since its last call. notes: a list that gets the notes that a
command writes to stderr. All raise CaptureError for an input that is not a capture file or cannot be read, and
QueryError for a text that is not a filter.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import pyarrow as pa

from mqpcap.arrays import file_text
from mqpcap.capture import Capture
from mqpcap.errors import CaptureError, MisuseError, MqpcapError, OutputError, QueryError
from mqpcap.listing.anonymisation import KEY_BYTES, Anonymisation, key_of_file
from mqpcap.listing.connection_search import SelectedConnection, connection_query, find_connection, is_connection_name
from mqpcap.listing.conversation import Conversation
from mqpcap.listing.explained_messages import (
    ExplainedMessage,
    GivenBytes,
    PacketName,
    PairingName,
    explain_bytes,
    explain_captured,
    what_is_explained,
)
from mqpcap.listing.extra_columns import BYTES, LAYOUT, VARIANT
from mqpcap.listing.extraction import NO_BODIES, ExtractSummary, Split, find_packets, write_extract
from mqpcap.listing.filters import Filter
from mqpcap.listing.message_lines import Style
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.pairing_replay import PairingReplay, replay_pairing
from mqpcap.listing.side_bytes import side_bytes
from mqpcap.listing.time_merge import merged_rows
from mqpcap.listing.tracing import ONE_MESSAGE, Trace, trace_messages
from mqpcap.parallel_export import export_captures
from mqpcap.protocols import protocols
from mqpcap.query import EVERYTHING, WORDS, Query, field_catalogue, query, shortcut_queries
from mqpcap.query.field_catalogue import Field
from mqpcap.query.values import duration_ns
from mqpcap.reading import (
    Choices,
    FilterOptions,
    Outcome,
    ReadingOptions,
    background,
    checked_choices,
    size_bytes,
    with_end,
)
from mqpcap.recording import Paths, open_inputs
from mqpcap.schema.protocol import Direction, other_direction
from mqpcap.statistics.capture_quality import Report, report_of
from mqpcap.statistics.changes import Comparison, compared, count_side, new_side
from mqpcap.statistics.charts import check_drawing
from mqpcap.statistics.chosen_rows import checked, chosen
from mqpcap.statistics.counters import count_captures
from mqpcap.statistics.live_counts import renewed
from mqpcap.statistics.report_columns import Cells, Column
from mqpcap.statistics.report_page import Page, check_target, write_page
from mqpcap.statistics.stats_question import StatsQuestion, checked_top
from mqpcap.tables.export import ExportSummary, check_export, check_local
from mqpcap.wording import extra_line, misuse_of

if TYPE_CHECKING:
    from mqpcap.delta.contents import LakeContents
    from mqpcap.schema.message import Message


def ask(question: str, path: str | Path, *, notes: list[str] | None = None, **parameters: object) -> pa.Table:
    """The answer to a question of `mqpcap.queries`, from an export, a lake or a capture, by DuckDB.

    path: a directory of tables, else captures, which are exported to a temporary directory. notes: a list; reasons
    why a protocol has no answer are appended. Raises QueryError for an unknown question or parameter. DuckDB is
    in the extra ``lake``; Polars and Spark answer by `mqpcap.queries.run`.
    """
    from mqpcap import queries

    try:
        import duckdb
    except ImportError as error:
        raise QueryError(f"DuckDB is not installed: {extra_line('lake')}") from error
    with (
        tempfile.TemporaryDirectory(prefix="mqpcap-") as folder,
        duckdb.connect() as con,
        _in_one_line(f"{path}: ", duckdb.Error),
    ):
        if not queries.holds_tables(path):
            export(path, f"{folder}/tables", notes=notes)
            path = f"{folder}/tables"
        queries.tables(con, path)
        answer = queries.run(question, con, **parameters)
        if notes is not None:
            names = con.execute("SELECT DISTINCT protocol FROM messages ORDER BY protocol").fetchall()
            notes += queries.why_not(question, (name for (name,) in names))
        rows: pa.Table = answer.to_arrow_table() if hasattr(answer, "to_arrow_table") else answer.fetch_arrow_table()
        return rows


@contextmanager
def _in_one_line(place: str, kind: type[Exception]) -> Iterator[None]:
    """An error of a library inside becomes an error of this package, with the first line of its text."""
    try:
        yield
    except kind as error:
        raise MqpcapError(place + (str(error).splitlines() or [kind.__name__])[0]) from error


Metric = Literal["count", "bytes", "errors", "latency", "p50", "p95", "p99", "max"]
ReportName = Literal[
    "producers", "consumers", "errors", "talkers", "connections", "deliveries", "delivery_list", "delays", "slowest"
]
SLOWEST = 10
"""Requests that the report ``slowest`` lists where no number is given."""


def _ignore(read_bytes: int) -> None:
    """No progress is shown."""


class _Inputs:
    """The captures of one call, what happened to them, and temporary files that live as long as this object."""

    wanted: Query | None = None
    """The messages that are selected, None for all."""

    def __init__(self, path: Paths, options: Mapping[str, Any]) -> None:
        choices = checked_choices(**options)
        self.captures, self._copies = open_inputs(path)
        self.outcome = Outcome(choices)
        self.outcome.capture_count = len(self.captures)
        self.outcome.file_count = sum(len(capture.files) for capture in self.captures)

    def finish(self, notes: list[str] | None, *report_notes: str) -> None:
        """Give the notes out. Raises CaptureError if an input could not be read."""
        if self.outcome.unreadable:
            raise CaptureError(": ".join(self.outcome.unreadable[0]))
        if notes is not None:
            notes += [*report_notes, *self.outcome.final_notes()]


def _selected(path: Paths, filter: str | Query | None, options: Mapping[str, Any]) -> _Inputs:
    """The captures of a call that takes a filter, or the words of the commands for one."""
    inputs = _Inputs(path, _without_words(options))
    inputs.wanted = _wanted(filter, options, inputs.captures, inputs.outcome.choices)
    return inputs


def _without_words(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in WORDS}


def _wanted(
    filter: str | Query | None, options: Mapping[str, Any], captures: Sequence[Capture], choices: Choices
) -> Query | None:
    """The query of a filter and of the words among the options; None without either."""
    queries = shortcut_queries({name: value for name, value in options.items() if name in WORDS})
    with misuse_of("-Y"):
        queries += [] if filter is None else [query(filter) if isinstance(filter, str) else filter]
    if not queries:
        return None
    wanted = reduce(and_, queries)
    wanted.check_bodies(choices.bodies)
    return with_end(wanted, captures)


def stats(
    path: Paths,
    report: ReportName | None = None,
    *,
    by: Sequence[str] | str | None = None,
    metric: Sequence[Metric] | str = (),
    interval: str | None = None,
    sort: str | None = None,
    reverse: bool = False,
    having: str | None = None,
    top: int | None = None,
    filter: str | Query | None = None,
    progress: Callable[[int], None] = _ignore,
    notes: list[str] | None = None,
    **options: Unpack[FilterOptions],
) -> pa.Table:
    """Messages, bytes, errors and latencies by group; with ``report`` a ready-made report.

    by: what to group by, ``("protocol", "op")`` if nothing is given; any names of `fields` will do, also as one text
    with commas. metric: what to count, all by default; rows are sorted by the first. sort, reverse, having: as the
    command's options. interval: over time, as ``"1s"``. top: only the first rows; ``slowest`` has ten by default.

    >>> import mqpcap
    >>> mqpcap.stats("pcaps/blipmq/qos1.pcap", by=["op"], top=1).to_pylist()[0]["messages"]
    68
    """
    inputs = _selected(path, filter, options)
    asked = StatsQuestion.of_words(report, by, metric, interval, inputs.wanted is not None)
    counted = asked.report(checked_top(top) or SLOWEST)
    checked(counted.columns, having, sort)
    count_captures(inputs.captures, inputs.outcome, counted.counters, progress, inputs.wanted)
    rows = chosen(counted.columns, counted.rows(), having, sort, reverse)
    inputs.finish(notes, *counted.notes())
    return _table(counted.columns, rows[:top])


def live_stats(
    interface: str,
    report: ReportName | None = None,
    *,
    every: str = "5s",
    bpf: str | None = None,
    by: Sequence[str] | str | None = None,
    metric: Sequence[Metric] | str = (),
    top: int | None = None,
    filter: str | Query | None = None,
    **options: Unpack[FilterOptions],
) -> Iterator[pa.Table]:
    """The table of `stats` for a network interface, again after each time, until the iterator is closed.

    every: the time between tables, as ``"5s"``. bpf: a filter of tcpdump for the packets to capture. Further parameters
    are those of `stats`. Listening needs the rights that tcpdump needs. Raises CaptureError where the interface cannot
    be opened.
    """
    choices = checked_choices(**_without_words(options))
    wanted = _wanted(filter, options, (), choices)
    asked = StatsQuestion.of_words(report, by, metric, None, wanted is not None)
    counted = asked.report(checked_top(top) or SLOWEST)
    outcome = Outcome(choices)
    counts = partial(count_captures, outcome=outcome, counters=counted.counters, meter=_ignore, wanted=wanted)

    def table() -> pa.Table:
        return _table(counted.columns, counted.rows()[:top])

    return renewed(interface, bpf, duration_ns(every.strip()) / 1e9, counts, table)


def _table(columns: Sequence[Column], rows: Sequence[Cells]) -> pa.Table:
    """Rows of a report as a table; a column without a value has the type of its kind."""
    arrays = {}
    for column in columns:
        array = pa.array([row.get(column.name) for row in rows])
        if pa.types.is_null(array.type):
            array = array.cast(pa.int64() if column.kind in ("number", "ms", "clock", "packet") else pa.string())
        arrays[column.name] = array
    return pa.table(arrays)


def diff(
    before: Paths,
    after: Paths,
    filter: str | Query | None = None,
    *,
    progress: Callable[[int], None] = _ignore,
    notes: list[str] | None = None,
    **options: Unpack[FilterOptions],
) -> Comparison:
    """Operations, errors, latencies, topics and clients of two captures, compared.

    filter: the messages to compare; all of them judge how far a side can be trusted.
    ``result.parts["operations"]`` has a `Change` for each operation; ``result.as_json()`` is the object of ``--json``.

    >>> import mqpcap
    >>> [change.words for change in mqpcap.diff("pcaps/fq/session.pcap", "pcaps/fq/session.pcap").parts["topics"]][0]
    ()
    """
    inputs = [_selected(path, filter, options) for path in (before, after)]
    sides = []
    for letter, name, each in zip("AB", (before, after), inputs, strict=True):
        side = new_side(letter, name if isinstance(name, str) else str(name), each.captures)
        with background(each.outcome.choices, size_bytes(each.captures)) as worker:
            count_side(side, each.outcome, progress, worker, each.wanted)
        each.finish(notes)
        sides.append(side)
    comparison = compared(sides)
    if notes is not None:
        notes += comparison.notes()
    return comparison


def info(path: Paths, *, progress: Callable[[int], None] = _ignore, **options: Unpack[ReadingOptions]) -> list[Report]:
    """Kind and quality of each capture: `Report` has ``verdict()``, ``loss_percent``, ``notes``.

    ``as_json()`` of each is its entry in ``info --json``.

    >>> import mqpcap
    >>> mqpcap.info("pcaps/faults/blipmq_lost.pcap")[0].packet_count
    381
    """
    inputs = _Inputs(path, options)
    with background(inputs.outcome.choices, size_bytes(inputs.captures)) as worker:
        reports = [report_of(capture, inputs.outcome, progress, worker) for capture in inputs.captures]
    inputs.finish(None)
    return [report for report in reports if report is not None]


def fields(name: str | None = None) -> Sequence[Field]:
    """Every name that filters take, with type, unit, values and meaning; or those of a table or a protocol.

    >>> import mqpcap
    >>> [field.unit for field in mqpcap.fields("exchanges") if field.name == "latency_ns"]
    ['ns']
    """
    return field_catalogue.fields(name)


def show(
    path: Paths,
    filter: str | Query | None = None,
    *,
    progress: Callable[[int], None] = _ignore,
    notes: list[str] | None = None,
    **options: Unpack[FilterOptions],
) -> Iterator[MessageRow]:
    """The messages in order of time, while the captures are read: columns, fields, and what became of each request.

    >>> import mqpcap
    >>> next(mqpcap.show("pcaps/blipmq/qos1.pcap", 'op == "PING"')).exchange.state
    'answered'
    """
    inputs = _selected(path, filter, options)
    return _rows(inputs, inputs.captures, Filter(inputs.wanted or EVERYTHING), progress, notes)


def _rows(
    inputs: _Inputs,
    captures: Sequence[Capture],
    selected: Filter,
    progress: Callable[[int], None],
    notes: list[str] | None,
    with_bytes: bool = False,
) -> Iterator[MessageRow]:
    yield from merged_rows(captures, selected, inputs.outcome, progress, with_bytes)
    inputs.finish(notes)


def messages(
    path: Paths,
    filter: str | Query | None = None,
    *,
    progress: Callable[[int], None] = _ignore,
    notes: list[str] | None = None,
    **options: Unpack[FilterOptions],
) -> "Iterator[Message]":
    """The messages as Scapy messages with ``.mq``, in order of time, while the captures are read.

    They have no packets; ``mqpcap.open(path).packets(row)`` has. Secrets are in the bytes, as in Scapy's own layers.

    >>> import mqpcap
    >>> next(mqpcap.messages("pcaps/blipmq/qos1.pcap", 'op == "PUBLISH"')).topic
    b'q1'
    """
    inputs = _selected(path, filter, options)
    selected = Filter(inputs.wanted or EVERYTHING)
    return map(_message, _rows(inputs, inputs.captures, selected, progress, notes, with_bytes=True))


def _message(row: MessageRow) -> "Message":
    from mqpcap.scapy.session import COLUMNS, Pair, PairLookup, Seen, message

    columns: Mapping[str, Any] = row.message
    pair, exchange = PairLookup(), row.exchange
    if exchange is not None:
        reply_offset = exchange.offset if exchange.is_request else None
        side = columns["connection_id"], other_direction(columns["direction"])
        key = None if reply_offset is None else (*side, reply_offset)
        pair.resolve(Pair(key, exchange.state, exchange.how, exchange.latency_ns))
    mq = Seen(**{name: columns[name] for name in COLUMNS}, pair=pair)
    return message(protocols()[row.protocol].layout(columns[LAYOUT]), columns[BYTES], columns[VARIANT], mq)


@dataclass(frozen=True, slots=True)
class FollowedConnection:
    """One connection: its row of ``connections``, and its messages in order of time, read as they are taken."""

    connection: SelectedConnection
    messages: Iterator[MessageRow]
    _bytes: Callable[[Direction], Iterator[bytes]]

    def lines(self) -> Iterator[str]:
        """The conversation for people: takes ``messages``; each reply stands below its request."""
        talk = Conversation(self.connection, Style(utc=True))
        return chain(talk.head(), talk.lines(self.messages), talk.last_lines())

    def raw(self, direction: Direction) -> Iterator[bytes]:
        """The reassembled bytes of a side, in order, secrets as ``*``; bytes that were never captured are left out."""
        return self._bytes(direction)


def follow(
    path: Paths,
    filter: str | Query | None = None,
    *,
    progress: Callable[[int], None] = _ignore,
    notes: list[str] | None = None,
    **options: Unpack[FilterOptions],
) -> FollowedConnection:
    """One connection and its messages; the filter selects messages of this connection alone, as ``"connection == c2"``.

    A name will do, ``"c2"``, and words: ``connection="c2"``. Raises MqpcapError if not exactly one connection matches.

    >>> import mqpcap
    >>> len(list(mqpcap.follow("pcaps/blipmq/qos1.pcap", "connection == c2").messages))
    11
    """
    if isinstance(filter, str) and is_connection_name(filter):
        filter = connection_query(filter, "NAME")
    inputs = _selected(path, filter, options)
    match = find_connection(inputs.captures, inputs.wanted or EVERYTHING, inputs.outcome, progress)
    if match is None:
        inputs.finish(notes)
        raise CaptureError("there is no capture")
    capture, connection = match
    inputs.outcome.notes.clear()  # those of the second reading are the same
    rows = _rows(inputs, [capture], Filter(connection.query()), progress, notes)
    return FollowedConnection(connection, rows, partial(_side_bytes, inputs, capture, connection, progress, notes))


def _side_bytes(
    inputs: _Inputs, capture: Capture, connection: SelectedConnection, progress: Callable[[int], None],
    notes: list[str] | None, direction: Direction,
) -> Iterator[bytes]:  # fmt: skip
    yield from side_bytes(capture, connection, direction, inputs.outcome, progress)
    inputs.finish(notes)


def trace(
    path: Paths,
    message: str | None = None,
    *,
    at: int | str | None = None,
    progress: Callable[[int], None] = _ignore,
    notes: list[str] | None = None,
    **options: Unpack[ReadingOptions],
) -> list[Trace]:
    """Published messages with their deliveries, and the acknowledgements of these, with the times between.

    message: an id: ``message_id`` or ``correlation_id`` of a publish, or ``key`` of a delivery. at: a packet with the
    publish, a delivery or an answer to one, as in `explain`. Raises LookupError if there is no such message.

    >>> import mqpcap
    >>> [(d.latency_ns, d.acknowledged_after_ns) for d in mqpcap.trace("pcaps/blipmq/qos1.pcap", at=12)[0].deliveries]
    [(110000, 195000)]
    """
    if message is not None and at is not None:
        raise MisuseError(ONE_MESSAGE)
    if message is None and at is None:
        raise MisuseError("name the message by --message ID or by --at PACKET")
    inputs = _Inputs(path, options)
    name = message if message is not None else PacketName.parsed(at or 0)
    traces = trace_messages(inputs.captures, name, inputs.outcome, progress)
    inputs.finish(notes)
    return traces


@overload
def explain(
    path: Paths,
    *,
    pairing: str,
    at: int | str | None = None,
    progress: Callable[[int], None] = ...,
    **options: Unpack[ReadingOptions],
) -> PairingReplay: ...


@overload
def explain(
    path: Paths | None = None,
    at: int | str | None = None,
    *,
    connection: str | None = None,
    direction: Direction | None = None,
    offset: int | None = None,
    hex: str | bytes | None = None,
    protocol: str | None = None,
    dialect: str | None = None,
    progress: Callable[[int], None] = ...,
    **options: Unpack[ReadingOptions],
) -> list[ExplainedMessage]: ...


def explain(
    path: Paths | None = None,
    at: int | str | None = None,
    *,
    pairing: str | None = None,
    connection: str | None = None,
    direction: Direction | None = None,
    offset: int | None = None,
    hex: str | bytes | None = None,
    protocol: str | None = None,
    dialect: str | None = None,
    progress: Callable[[int], None] = _ignore,
    **options: Unpack[ReadingOptions],
) -> list[ExplainedMessage] | PairingReplay:
    """Messages field by field: where each field is, its bytes, its value and what that means.

    In a capture the message is named by the packet (``at=12`` or ``at="broker.pcap1#12"``), or by connection, direction
    and offset. ``hex`` and ``protocol``: the message's bytes in place of a capture, hex digits or bytes.
    ``pairing``: how the replies of a connection, as ``"c7"``, found their requests; with ``at`` only around a message.
    Raises LookupError if there is no such message, ValueError if it is not named.

    >>> import mqpcap
    >>> [message.result.best.operation for message in mqpcap.explain("pcaps/blipmq/qos1.pcap", at=12)]
    ['PUBLISH']
    """
    what = what_is_explained(path is not None, at, pairing, connection, direction, offset, hex, protocol, dialect)
    if isinstance(what, GivenBytes):
        return [explain_bytes(what, checked_choices(**options))]
    assert path is not None
    inputs = _Inputs(path, options)
    if isinstance(what, PairingName):
        replay = replay_pairing(inputs.captures, what.connection, what.packet, inputs.outcome, progress)
        inputs.finish(None)
        assert replay is not None
        return replay
    explained, misses = explain_captured(inputs.captures, what, inputs.outcome, progress)
    inputs.finish(None)
    if not explained:
        raise LookupError(misses[0])
    return explained


def report(
    path: Paths,
    out: str | os.PathLike[str],
    *,
    progress: Callable[[int], None] = _ignore,
    notes: list[str] | None = None,
    **options: Unpack[ReadingOptions],
) -> int:
    """Write a report on captures as one HTML file and return its size in bytes. ``out`` is new, or an earlier report.

    Raises OutputError for any other ``out``, and if matplotlib is not installed.
    """
    target = os.fspath(out)
    check_target(target)
    check_drawing()
    inputs = _Inputs(path, options)
    page = Page(", ".join(file_text(capture.files[0]) for capture in inputs.captures), inputs.outcome)
    for capture in inputs.captures:
        page.take(capture, progress)
    inputs.finish(notes)
    return write_page(target, page.parts())


def extract(
    path: Paths,
    out: str | os.PathLike[str],
    filter: str | Query | None = None,
    *,
    connections: bool = False,
    anonymise: Anonymisation | bytes | str | bool | None = None,
    split: Split | None = None,
    progress: Callable[[int], None] = _ignore,
    notes: list[str] | None = None,
    **options: Unpack[FilterOptions],
) -> ExtractSummary:
    """Write the packets of selected messages into a new capture file, ``out``, which must not exist.

    connections: whole connections of selected messages. anonymise: a key of 32 bytes, the path of a file with a key, as
    ``--key-file``, True for a new key, or `Anonymisation`, which says how bodies and names are replaced. Equal keys
    give equal addresses. split: ``"connection"``, ``"topic"`` or a number of bytes; ``out`` is then a new directory
    with a file for each. Raises MqpcapError if nothing is selected.
    """
    key = key_of_file(anonymise) if isinstance(anonymise, str) else anonymise
    key = os.urandom(KEY_BYTES) if key is True else key
    how = Anonymisation(key) if isinstance(key, bytes) else key or None
    if how is not None and len(how.key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(how.key)}")
    if "bodies" in options:
        raise MisuseError(NO_BODIES)
    if os.path.lexists(out):
        raise OutputError(f"{os.fspath(out)} exists; extract replaces no file")
    inputs = _selected(path, filter, options)
    parts = find_packets(inputs.captures, inputs.wanted, connections, inputs.outcome, progress)
    inputs.finish(None)
    assert parts is not None
    summary = write_extract(parts, os.fspath(out), split, inputs.outcome, progress, how)
    inputs.finish(notes)
    return summary


def lake(directory: str | os.PathLike[str]) -> "LakeContents":
    """Recordings and tables of a lake that ``export(..., append=directory)`` made. Raises OutputError for another."""
    from mqpcap.delta.contents import lake_contents

    return lake_contents(Path(directory))


@overload
def export(
    path: Paths, out: str | os.PathLike[str], filter: str | Query | None = None, *,
    progress: Callable[[int], None] = _ignore, notes: list[str] | None = None, **options: Unpack[FilterOptions],
) -> ExportSummary: ...  # fmt: skip


@overload
def export(
    path: Paths, *, append: str | os.PathLike[str], finish: bool = False, rebuild: bool = False,
    remove: Sequence[str] = (), progress: Callable[[int], None] = _ignore,
    notes: list[str] | None = None, **options: Unpack[ReadingOptions],
) -> "LakeContents": ...  # fmt: skip


def export(
    path: Paths,
    out: str | os.PathLike[str] | None = None,
    filter: str | Query | None = None,
    *,
    append: str | os.PathLike[str] | None = None,
    finish: bool = False,
    rebuild: bool = False,
    remove: Sequence[str] = (),
    progress: Callable[[int], None] = _ignore,
    notes: list[str] | None = None,
    **options: Unpack[FilterOptions],
) -> "ExportSummary | LakeContents":
    """Write the tables of captures as Parquet below ``out``, which is new, empty, or holds an earlier export.

    append: a lake that grows instead. finish: its recordings end. rebuild: the recording of a late file is taken anew.
    remove: captures to take out. jobs: processes and threads; a script that asks for several begins with
    ``if __name__ == "__main__":``.
    """
    is_filtered = filter is not None or not options.keys().isdisjoint(WORDS)
    check_export(out is not None, append is not None, bool(finish or rebuild or remove), is_filtered)
    check_local(os.fspath(out if out is not None else append or ""))
    options.setdefault("jobs", 1)
    if append is not None:
        outcome = Outcome(checked_choices(**options))
        return _append(path, Path(append), outcome, finish, rebuild, remove, progress, notes)
    assert out is not None
    inputs = _selected(path, filter, options)
    inputs.outcome.choices = replace(inputs.outcome.choices, wanted=inputs.wanted)
    summary = export_captures(inputs.captures, Path(out), inputs.outcome, progress, allow_missing=False)
    inputs.finish(notes)  # an input that could not be read is an error after the others are published
    if summary is None:
        raise CaptureError(f"{inputs.captures[0].files[0]}: no packets to export")
    return summary


def _append(
    path: Paths,
    folder: Path,
    outcome: Outcome,
    finish: bool,
    rebuild: bool,
    remove: Sequence[str],
    progress: Callable[[int], None],
    notes: list[str] | None,
) -> "LakeContents":
    from mqpcap.delta import growth

    for capture in remove:
        with growth.Lake(folder) as grown:
            grown.remove(capture)
    named = [path] if isinstance(path, str | os.PathLike) else list(path) if isinstance(path, Sequence) else [path]
    names = [os.fspath(name) for name in named if isinstance(name, str | os.PathLike)]
    if len(names) < len(named):
        raise TypeError("a lake takes files by their paths")
    growth.append(folder, names, outcome, lambda _: nullcontext(progress), finish=finish, rebuild=rebuild)
    if outcome.unreadable:
        raise CaptureError(": ".join(outcome.unreadable[0]))
    if notes is not None:
        notes += outcome.notes
    return lake(folder)
