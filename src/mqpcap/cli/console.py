"""Writes lines, notes and progress on stderr, and escapes text for a terminal.

Names and texts from captures pass `shown` before a terminal sees them.
"""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from mqpcap.wording import cell_width, shown

if TYPE_CHECKING:
    from rich.progress import Progress

    from mqpcap.listing.message_lines import Style
    from mqpcap.statistics.report_columns import Cells, Column
    from mqpcap.statistics.row_lines import Form

PARAGRAPH_WIDTH = 100


def put(line: str) -> None:
    """Write one line to stdout. (``click.echo`` would write UTF-8 to a stdout whose encoding is ASCII.)"""
    sys.stdout.write(f"{line}\n")


def put_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


def put_rows(
    columns: "Sequence[Column]", rows: "Sequence[Cells]", form: "Form", utc: bool = False, header: bool = True,
    is_folded: bool = False,
) -> None:  # fmt: skip
    """Write rows to stdout; on a terminal, and between tabs, values have no control characters."""
    from mqpcap.statistics.row_lines import text_lines, value_lines

    width = width_of(sys.stdout)
    if form == "text":
        put_lines(text_lines(columns, rows, utc, width, is_folded, coloured(sys.stdout)))
    else:
        escaped = shown if form == "tsv" or width is not None else str
        sys.stdout.writelines(value_lines(columns, rows, form, header, escaped))


def put_paragraph(head: str, text: str, indent: int) -> None:
    """Write a text after its head, at most PARAGRAPH_WIDTH wide; further lines are indented."""
    width = min(width_of(sys.stdout) or PARAGRAPH_WIDTH, PARAGRAPH_WIDTH)
    put(textwrap.fill(text, width, initial_indent=head, subsequent_indent=" " * indent))


def escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Escapes characters that the encoding of stdout does not have, as JSON escapes them.

    >>> import codecs
    >>> codecs.register_error("mqpcap.escape", escape_unencodable)
    >>> "tópico 🐇".encode("ascii", "mqpcap.escape")
    b't\\\\u00f3pico \\\\ud83d\\\\udc07'
    """
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)), error.end


def print_note(line: str) -> None:
    """One line on stderr."""
    sys.stderr.write(wrapped(shown(line), sys.stderr) + "\n")
    sys.stderr.flush()


def coloured(stream: object, when: str = "auto") -> bool:
    """Whether colours are used: ``always``, ``never``, or on a terminal unless NO_COLOR is set."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return when == "always" or (when == "auto" and wanted and width_of(stream) is not None)


def width_of(stream: object) -> int | None:
    """The columns of a terminal, None where it is none."""
    isatty = getattr(stream, "isatty", None)
    return shutil.get_terminal_size().columns if isatty and isatty() else None


def line_style(color: str, width: int | None, **settings: Any) -> "Style":
    """How lines of messages look on stdout; ``settings``: see there."""
    from mqpcap.listing.message_lines import Paint, Style

    return Style(paint=Paint(coloured(sys.stdout, color)), width=width, **settings)


def wrapped(line: str, stream: object, indent: int = 2) -> str:
    """The line, wrapped between words if it is wider than a terminal; further lines are indented."""
    width = width_of(stream)
    if width is None or _length(line) <= width:
        return line
    lines = [""]
    for word in re.findall(r" *[^ ]+", line):
        if _length(lines[-1] + word) > width and lines[-1].strip():
            lines.append(" " * indent + word.lstrip())
        else:
            lines[-1] += word
    return "\n".join(lines)


def _length(text: str) -> int:
    """How many columns of a terminal a line takes; colours take none."""
    return cell_width(re.sub(r"\x1b\[\d*m", "", text))


class BarMeter:
    """Counts bytes that were read, and shows them if it has a bar."""

    def __init__(self, bar: "Progress | None", total_bytes: int) -> None:
        self._bar, self._total_bytes, self._read_bytes = bar, total_bytes, 0
        self._task = None if bar is None else bar.add_task("reading", total=total_bytes or None)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No bar for as long as rows are written: on one terminal they would run into each other."""
        if self._bar is not None:
            self._bar.stop()
        try:
            yield
        finally:
            sys.stdout.flush()
            if self._bar is not None:
                self._bar.start()

    def __call__(self, read_bytes: int) -> None:
        """Count bytes that were read."""
        if self._bar is None or self._task is None:
            return
        self._read_bytes += read_bytes
        # A compressed file gives more bytes than it has: then nobody knows how many are to come. The work after the
        # last byte has no measure either.
        if self._read_bytes >= self._total_bytes:
            self._bar.tasks[0].total = None  # to `update` None would mean as it was
        phase = "finishing" if self._read_bytes == self._total_bytes else "reading"
        self._bar.update(self._task, completed=self._read_bytes, description=phase)


@contextmanager
def metered(total_bytes: int, quiet: bool) -> Iterator[BarMeter]:
    """A meter that draws a bar when stderr is a terminal, for as long as it is entered."""
    bar = None if quiet or not sys.stderr.isatty() else _new_bar(total_bytes > 0)
    with bar or nullcontext():
        yield BarMeter(bar, total_bytes)


def _new_bar(has_total: bool) -> "Progress":
    from rich import progress
    from rich.console import Console

    size, speed = progress.FileSizeColumn(), progress.TransferSpeedColumn()
    if has_total:  # what nobody knows the end of has no bar
        columns = progress.BarColumn(), progress.DownloadColumn(), speed, progress.TimeRemainingColumn()
    # Rows are not to go through the bar's console, which writes to stderr.
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        *(columns if has_total else (size, speed)),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
    )
