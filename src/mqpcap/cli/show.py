"""``mqpcap show``: one line per message."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING

import click

from mqpcap.cli.console import coloured
from mqpcap.cli.messages import Bytes
from mqpcap.cli.options import Choices, common, duration_ns, protocol_names, utc_option
from mqpcap.cli.reading import Outcome, dissections, finish, found, kept_stdin

if TYPE_CHECKING:
    from mqpcap.cli.lines import Style
    from mqpcap.cli.time_merge import Ordered, Row
    from mqpcap.pipeline import Dissection
    from mqpcap.tables.arrow import Chunk

LINES_AT_ONCE = 512
NOT_IN_LINES = ["ts", "end_ts_ns", "last_packet", "frame_len"]
"""Columns of `messages`; ``ts`` costs more than all the others to bring to Python."""


@click.command(epilog="Example: mqpcap show -u --slower-than 40ms --op POLL pcaps/blipmq/qos1.pcap")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per message: its columns, and fields.")
@click.option("-v", "--verbose", is_flag=True, help="Below each line the message's fields.")
@click.option("-x", "--hex", "as_hex", is_flag=True, help="Below each line the message's bytes.")
@utc_option
@click.option("-c", "--count", type=click.IntRange(min=0), metavar="N", help="Only the first N messages.")
@click.option("--protocol", "only_protocol", callback=protocol_names, multiple=True, metavar="NAME",
              help="Only this protocol (repeatable).")  # fmt: skip
@click.option("--op", "only_op", multiple=True, metavar="OP", help="Only this operation, as PUBLISH (repeatable).")
@click.option("--connection", "only_connection", type=int, multiple=True, metavar="ID",
              help="Only this connection_id (repeatable).")  # fmt: skip
@click.option("--flawed", "only_flawed", is_flag=True, help="Only messages with a flaw.")
@click.option("--unanswered", "only_unanswered", is_flag=True,
              help="Only requests whose answer was due and never came, not where it may lie in a gap.")  # fmt: skip
@click.option("--slower-than", "slower_than_ns", callback=duration_ns, metavar="TIME",
              help="Only requests answered later than that, as 50ms; units ns, us, ms, s.")  # fmt: skip
@common
def show(
    inputs: tuple[str, ...],
    as_json: bool,
    verbose: bool,
    as_hex: bool,
    utc: bool,
    count: int | None,
    only_protocol: tuple[str, ...],
    only_op: tuple[str, ...],
    only_connection: tuple[int, ...],
    only_flawed: bool,
    only_unanswered: bool,
    slower_than_ns: int | None,
    choices: Choices,
) -> None:
    """Show the messages of captures in order of time, one line each.

    A line says when, which packet, who to whom, protocol and dialect, operation, destination, ids, length and begin
    of the body, and what is wrong with it in words. A request ends with its answer: the reply's packet, status and
    latency, or silent (success is silence here), UNANSWERED, lost (the answer was not captured) or unknown; nothing
    where no answer is expected. A reply ends with its request's packet.
    """
    from mqpcap.cli.time_merge import Ordered

    if as_json and (verbose or as_hex):
        raise click.UsageError("--json holds all fields already; it goes with neither -v nor -x")
    if only_unanswered and slower_than_ns is not None:
        raise click.UsageError("--unanswered and --slower-than exclude each other: no answer, no latency")
    outcome = Outcome(choices)
    operations = tuple(op.lower() for op in only_op)
    wanted = _Filter(only_protocol, operations, only_connection, only_flawed, only_unanswered, slower_than_ns)
    with Ordered() as ordered, kept_stdin(inputs if as_hex else (), outcome):
        captures = found(inputs, outcome).captures
        for number, dissection in enumerate(dissections(captures, outcome)):
            for chunk in _chunks(dissection, wanted.needs_answers or not as_json):
                outcome.take(chunk)
                ordered.add(number, wanted(chunk) if as_json or verbose or as_hex else _for_lines(wanted(chunk)))
        if as_json:
            _write(_json_lines(islice(ordered.rows(), count)))
        else:
            style = _style(ordered, outcome, utc)
            with Bytes(captures if as_hex else (), islice(ordered.rows(), count), outcome) as data:
                _write(_lines(islice(ordered.rows(), count), style, verbose, data if as_hex else None))
    finish(outcome)


def _chunks(dissection: "Dissection", with_answers: bool) -> "Iterator[Chunk]":
    if not with_answers:
        return dissection.chunks(for_ledgers=False)
    from mqpcap.cli.outcomes import Answers

    answers = Answers(dissection)
    return map(answers, dissection.chunks())


def _for_lines(chunk: "Chunk") -> "Chunk":
    """The chunk without the columns that no line shows."""
    from mqpcap.tables.arrow import Chunk

    body = [name for name in _body_columns(chunk.protocol) if name in chunk.fields.column_names]
    # Without a column a table does not know how many rows it has.
    return Chunk(chunk.protocol, chunk.messages.drop_columns(NOT_IN_LINES), chunk.fields.select(["op", *body]))


class _Filter:
    """The rows of a chunk that were asked for."""

    def __init__(
        self,
        protocols: Sequence[str],
        operations: Sequence[str],
        connections: Sequence[int],
        flawed: bool,
        unanswered: bool,
        slower_than_ns: int | None,
    ) -> None:
        self.protocols = protocols
        self.operations = operations
        self.connections = connections
        self.flawed = flawed
        self.unanswered = unanswered
        self.slower_than_ns = slower_than_ns

    @property
    def needs_answers(self) -> bool:
        """Whether it asks for what became of requests."""
        return self.unanswered or self.slower_than_ns is not None

    def __call__(self, chunk: "Chunk") -> "Chunk":
        import pyarrow as pa
        import pyarrow.compute as pc

        from mqpcap.tables.arrow import Chunk

        keep = []
        no_answers = self.needs_answers and "answer.state" not in chunk.messages.column_names
        if no_answers or (self.protocols and chunk.protocol not in self.protocols):
            return Chunk(chunk.protocol, chunk.messages.slice(0, 0), chunk.fields.slice(0, 0))
        if self.operations:
            operation = pc.utf8_lower(chunk.messages["op"].cast(pa.string()))
            keep.append(pc.is_in(operation, pa.array(self.operations, pa.string())))
        if self.connections:
            keep.append(pc.is_in(chunk.messages["connection_id"], pa.array(self.connections, pa.int64())))
        if self.flawed:
            keep.append(pc.is_valid(chunk.messages["flaw"]))
        if self.unanswered:
            keep.append(pc.fill_null(pc.equal(chunk.messages["answer.state"], "unanswered"), False))
        if self.slower_than_ns is not None:
            keep.append(pc.fill_null(pc.greater(chunk.messages["answer.latency_ns"], self.slower_than_ns), False))
        if not keep:
            return chunk
        mask = reduce(pc.and_, keep)
        return Chunk(chunk.protocol, chunk.messages.filter(mask), chunk.fields.filter(mask))


def _write(lines: Iterator[str]) -> None:
    """Lines to stdout, some at a time."""
    while some := list(islice(lines, LINES_AT_ONCE)):
        sys.stdout.write("\n".join(some) + "\n")


def _json_lines(rows: "Iterator[Row]") -> Iterator[str]:
    from mqpcap.tables.arrow import MESSAGES
    from mqpcap.tables.json_lines import json_text, json_value

    for row in rows:
        yield json_text(
            {name: json_value(row.message[name]) for name in MESSAGES.names}
            | {"fields": {name: json_value(value) for name, value in row.fields.items()}}
        )


def _style(ordered: "Ordered", outcome: Outcome, utc: bool) -> "Style":
    """Dates only where the rows are of more than one day, file names only where there is more than one."""
    from mqpcap.cli.lines import Paint, Style, day

    span_ns = ordered.span_ns or (0, 0)
    dated = day(span_ns[0], utc) != day(span_ns[1], utc)
    return Style(utc, dated, outcome.file_count > 1, Paint(coloured(sys.stdout)))


def _lines(rows: "Iterator[Row]", style: "Style", verbose: bool, data: "Bytes | None") -> Iterator[str]:
    from mqpcap.cli.dumps import dump
    from mqpcap.cli.lines import line, tree
    from mqpcap.protocols import protocols
    from mqpcap.tables.arrow import KEYS

    known = protocols()
    bodies = {name: _body_columns(name) for name in known}
    names = {name: enum_names(name) for name in known} if verbose else {}
    for row in rows:
        body = next((x for name in bodies[row.protocol] if (x := row.fields.get(name)) is not None), None)
        yield line(row.message, body, style)
        if verbose:
            yield from tree({k: v for k, v in row.fields.items() if k not in KEYS}, names[row.protocol])
        if data is not None:
            for run in data.runs(row):
                yield from dump(run.data, run.hidden, run.offset)


def _body_columns(protocol: str) -> tuple[str, ...]:
    """Columns of the protocol's table; the first that is there has the user's payload."""
    from mqpcap.protocols import protocols

    columns = protocols()[protocol].envelope.body
    return (columns,) if isinstance(columns, str) else columns


def enum_names(protocol: str) -> Mapping[str, Mapping[int, str]]:
    """The names of the numbers of each column."""
    from mqpcap.protocols import protocols
    from mqpcap.schema.compiler import compiled

    return {column.name: dict(column.names) for column in compiled(protocols()[protocol]).columns if column.names}
