"""``mqpcap show``: one line per message."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import line_style, metered, print_note, width_of
from mqpcap.cli.live import EndOfInput, check_sources, comes_live, input_options, open_captures, summary
from mqpcap.cli.options import (
    color_option,
    common,
    exit_option,
    field_lines,
    field_options,
    filter_options,
    time_options,
)
from mqpcap.cli.reading import finish, reading
from mqpcap.reading import Choices, Outcome, first_packet_ns, size_bytes
from mqpcap.records import dataclass

if TYPE_CHECKING:
    from mqpcap.listing.body_output import Encoding
    from mqpcap.listing.field_lines import FieldLines
    from mqpcap.listing.line_times import TimeForm
    from mqpcap.listing.message_lines import Lines
    from mqpcap.listing.message_row import MessageRow
    from mqpcap.listing.time_merge import Write
    from mqpcap.query import Query

ROWS_AT_ONCE = 512
NOT_IN_LINES = ["capture", "connection_id", "stream_offset", "ts", "end_ts_ns", "last_packet"]
"""Columns of `messages`; ``ts`` costs more than all the others to bring to Python."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How messages are written: as lines, JSON objects, values of fields, or bodies alone."""

    as_json: bool
    verbose: bool
    as_hex: bool
    raw_body: bool
    bodies_to: str | None
    body_encoding: "Encoding | None"
    field_names: tuple[str, ...]
    header: bool
    as_csv: bool

    def check(self) -> None:
        """Raises UsageError if options exclude each other."""
        has_details, has_values = self.verbose or self.as_hex, bool(self.field_names or self.as_csv)
        if self.as_json and has_details:
            raise click.UsageError("--json holds all fields already; it goes with neither -v nor -x")
        if has_values and (has_details or (self.as_csv and self.as_json)):
            raise click.UsageError(
                "--fields and --csv write values; they go with neither -v nor -x, --csv not with --json"
            )
        if self.body_encoding and (not self.as_json or self.field_names):
            raise click.UsageError("--body-encoding goes with --json, without --fields")
        has_other = self.as_json or has_details or has_values or bool(self.raw_body and self.bodies_to)
        if (self.raw_body or self.bodies_to) and has_other:
            raise click.UsageError("--raw-body and --bodies-to write bodies alone; they go with no other form")

    def columns(self, fields: "FieldLines | None") -> "tuple[Callable[[str], tuple[str, ...]] | None, Sequence[str]]":
        """The columns of a protocol that this form needs, None for all, and those of `messages` that it does not."""
        from mqpcap.listing.message_lines import body_columns

        needs_all = self.as_json or self.verbose or self.as_hex or self.raw_body or self.bodies_to is not None
        columns = fields.reader.columns if fields else None if needs_all else body_columns
        of_lines = NOT_IN_LINES if self.as_hex else [*NOT_IN_LINES, "frame_len"]
        return columns, ["ts"] if fields or self.as_json else of_lines

    def text(self, lines: "Lines") -> "Callable[[MessageRow], str]":
        """Makes the text of a message."""
        from mqpcap.listing.field_lines import json_line

        if self.body_encoding:
            return partial(_records, encoding=self.body_encoding)
        return json_line if self.as_json else lines

    def body_writer(self) -> "Callable[[Iterable[MessageRow]], None] | None":
        """Writes bodies, None in another form."""
        if self.bodies_to:
            from mqpcap.listing.body_output import BodyFiles

            return BodyFiles(self.bodies_to).write
        return _write_raw if self.raw_body else None


@command(epilog="Example: mqpcap show -u --slower-than 40ms --op POLL pcaps/blipmq/qos1.pcap")
@input_options
@click.option("--follow", is_flag=True, help="Follow a file that grows, and its successors.")
@click.option("--json", "as_json", is_flag=True, help="Write an object per message, with all fields.")
@click.option("-v", "--verbose", is_flag=True, help="Add the fields of each message below its line.")
@click.option("-x", "--hex", "as_hex", is_flag=True, help="Add the bytes of each message below its line.")
@click.option("--raw-body", is_flag=True, help="Write only the bodies, each ended by a new line.")
@click.option("--bodies-to", metavar="DIR", type=click.Path(), help="Write each body to a file in a new folder DIR.")
@click.option("--body-encoding", type=click.Choice(["text", "base64"]),
              help="With --json: write bodies alone, encoded like this.")  # fmt: skip
@field_options
@time_options
@exit_option
@color_option
@click.option("-c", "--count", type=click.IntRange(min=0), metavar="N", help="Stop after N messages.")
@filter_options
@common
def show(
    inputs: tuple[str, ...], interface: str | None, bpf: str | None, follow: bool, time_form: "TimeForm", utc: bool,
    must_match: bool, color: str, count: int | None, wanted: "Query | None", choices: Choices, **form_options: Any,
) -> None:  # fmt: skip
    """Show the messages of captures in order of time, one line each.

    A request ends with its answer: the reply's packet, status and latency, or silent (success is silence), UNANSWERED,
    lost (not captured) or unknown. A reply ends with its request's packet. Live input (-i, --follow, a pipe) is shown
    as it arrives.
    """
    from mqpcap.api.messages import write_messages
    from mqpcap.listing.line_times import is_utc, line_times
    from mqpcap.listing.message_lines import Lines

    form = _Form(**form_options)
    form.check()
    check_sources(inputs, interface, bpf, follow)
    outcome = Outcome(choices)
    fields = field_lines(form.field_names, form.header, form.as_csv, form.as_json)
    is_live = comes_live(inputs, interface, follow)
    end = EndOfInput()
    # Rows and a bar on one terminal would run into each other.
    quiet = choices.quiet or sys.stdout.isatty() or is_live
    with (
        end if is_live else nullcontext(),
        open_captures(inputs, interface, bpf, follow, end, outcome) as captures,
        reading(inputs, outcome, wanted) as opened,
    ):
        opened.captures = captures
        times = line_times(time_form, utc, first_packet_ns(captures) if time_form == "r" else None)
        files = [name for capture in captures for name in capture.files]
        style = line_style(color, width_of(sys.stdout), utc=is_utc(time_form, utc), times=times)
        lines = Lines(choices, style, files, form.verbose, form.as_hex)
        text = fields or form.text(lines)
        sys.stdout.write(fields.heading if fields else "")
        write_bodies = form.body_writer()
        with metered(size_bytes(captures), quiet) as opened.progress, suppress(_Enough):
            write = _limited(write_bodies or (lambda rows: sys.stdout.write("".join(map(text, rows)))), count)
            write_messages(opened, write, *form.columns(fields), form.as_hex, end.is_over)
    if is_live and not choices.quiet:
        sys.stdout.flush()
        print_note(summary(outcome, captures))
    finish(outcome, must_match and not outcome.match_count)


def _records(row: "MessageRow", encoding: "Encoding") -> str:
    from mqpcap.listing.body_output import body_records
    from mqpcap.tables.json_lines import json_text

    return "".join(json_text(record) + "\n" for record in body_records(row, encoding))  # type: ignore[arg-type]  # text, numbers


def _write_raw(rows: "Iterable[MessageRow]") -> None:
    """Write the bodies to stdout as they are, each followed by a new line."""
    from mqpcap.listing.field_values import message_bodies

    sys.stdout.flush()
    sys.stdout.buffer.writelines(body + b"\n" for row in rows for body in message_bodies(row))
    sys.stdout.buffer.flush()


class _Enough(Exception):
    """As many messages are shown as were asked for."""


def _limited(write_batch: "Callable[[Sequence[MessageRow]], object]", count: int | None) -> "Write":
    """Writes rows, many at once, until there are ``count`` of them; then raises _Enough."""
    left = sys.maxsize if count is None else count
    if not left:
        raise _Enough

    def write(rows: "Iterator[MessageRow]") -> None:
        nonlocal left
        while batch := list(islice(rows, min(ROWS_AT_ONCE, left))):
            write_batch(batch)
            left -= len(batch)
        sys.stdout.flush()
        if not left:
            raise _Enough

    return write
