"""Messages as lines for people, with their fields as a tree and their bytes.

Nothing is said by colour alone: a flaw and an error are words. Bytes of a capture never reach the terminal
unescaped.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from mqpcap.arrays import file_text
from mqpcap.listing.hex_dump import dump
from mqpcap.listing.message_words import CLIENT_WIDTH, CONTENT_PARTS, LinePart, content_texts, parts_of, value_text
from mqpcap.listing.row_bytes import bytes_after_hole, left_out, row_secrets
from mqpcap.protocols import protocols
from mqpcap.schema.compiler import compiled
from mqpcap.tables.schemas import CONNECTION_NUMBER, KEYS
from mqpcap.wording import cell_width, clock, clock_second, cut, endpoint, plural, shown

if TYPE_CHECKING:
    from mqpcap.listing.message_row import Exchange, MessageRow
    from mqpcap.reading import Choices


ROOMY_WIDTH = 110
"""Below it a line on a terminal has no room for addresses."""
SHORT_TEXT = 7
"""Characters of a text that is not shortened before the operation and the outcome are."""
_COLOURS = {"dim": "\x1b[2m", "red": "\x1b[31m", "green": "\x1b[32m", "cyan": "\x1b[36m", "bold": "\x1b[1m"}
_PLAIN = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Paint:
    """Colours, or none."""

    coloured: bool = False

    def __call__(self, colour: str, text: str) -> str:
        """The text in a colour."""
        return f"{_COLOURS[colour]}{text}{_PLAIN}" if self.coloured and text else text


@dataclass(frozen=True, slots=True)
class Style:
    """How lines look: time in UTC or local, with the date or only the time of day, with or without the file's name.

    ``width`` is the number of columns of a line, None for any. ``common`` is the protocol with its dialect, and the
    server, that only the heading has. ``times`` writes the time of each line in turn; None writes times of day.
    ``short_names`` are those of files, as ``f3``, where lines do not have the paths.
    """

    utc: bool = False
    dated: bool = False
    filed: bool = False
    paint: Paint = Paint()
    width: int | None = None
    common: tuple[str, str] | None = None
    times: Callable[[int], str] | None = None
    short_names: Mapping[str, str] = field(default_factory=dict)


_LOCATION_PARTS = (
    LinePart("time", "dim", is_fixed=True), LinePart("packet", is_fixed=True), LinePart("connection", is_fixed=True),
    LinePart("ends", is_fixed=True), LinePart("protocol", rank=9),
)  # fmt: skip


def line(message: Mapping[str, object], body: object, style: Style, exchange: "Exchange | None" = None) -> str:
    """The line of a message: time, packet, both ends, operation, destination, outcome."""
    texts = [*_place(message, style), *content_texts(message, body, exchange, style.width is not None)]
    if style.width is None and not style.paint.coloured:
        return "  ".join(filter(None, texts)).rstrip()
    parts = parts_of(texts, _LOCATION_PARTS + CONTENT_PARTS)
    if style.width is not None:
        parts = fit_width(parts, style.width)
    return "  ".join(_painted(parts, style.paint)).rstrip()


def content_words(
    message: Mapping[str, object], body: object, paint: Paint, exchange: "Exchange | None" = None
) -> list[str]:
    """The words of a message after its time and ends: the operation first."""
    return _painted(parts_of(content_texts(message, body, exchange, False), CONTENT_PARTS), paint)


def _painted(parts: Sequence[LinePart], paint: Paint) -> list[str]:
    return [paint(part.colour, part.text) if part.colour else part.text for part in parts]


def fit_width(parts: Sequence[LinePart], width: int) -> list[LinePart]:
    """The parts that fit the width: names are left out, then bodies and long texts shortened, then latencies left out.

    >>> [part.text for part in fit_width([LinePart("PUBLISH"), LinePart("id=7", rank=1), LinePart("a long topic")], 18)]
    ['PUBLISH', 'a long...']
    """
    left = list(parts)
    while _width(left) > width and (ranked := [part for part in left if part.rank]):
        left.remove(max(ranked, key=lambda part: part.rank))
    left = _texts_cut(left, width, 0, SHORT_TEXT, spare=True)
    if _width(left) > width:
        left = [part._replace(text=part.text.rstrip()) if part.keep else part for part in left]
    if _width(left) > width:
        left = [part for part in left if not part.is_spare]
    left = _outcomes_cut(left, width, " in ")
    left = _texts_cut(left, width, 0, SHORT_TEXT)
    left = _outcomes_cut(left, width, " ok")
    for keep in range(3):
        left = _texts_cut(left, width, keep, 0)
    return left


def _outcomes_cut(parts: Sequence[LinePart], width: int, word: str) -> list[LinePart]:
    """The parts, outcomes up to a word if the line is too wide: better no latency than half of it."""
    is_wide = _width(parts) > width
    return [
        part._replace(text=part.text.partition(word)[0]) if is_wide and part.text.startswith(("=> ", "<= ")) else part
        for part in parts
    ]


def _texts_cut(parts: Sequence[LinePart], width: int, keep: int, least: int, spare: bool = False) -> list[LinePart]:
    """The parts, the longest texts of a rank shortened until the line fits or none is longer than ``least``.

    spare: only texts that are left out soon.
    """
    left = list(parts)
    while (excess := _width(left) - width) > 0:
        widths = {x: cell_width(x.text) for x in left if x.keep == keep and not x.is_fixed and x.is_spare >= spare}
        loose = [part for part, part_width in widths.items() if part_width > least]
        if not loose:
            break
        longest = max(loose, key=widths.__getitem__)
        index, text = left.index(longest), _shortened(longest.text, max(widths[longest] - excess, least))
        left[index : index + 1] = [longest._replace(text=text)] if cell_width(text) < widths[longest] else []
    return left


def _width(parts: Sequence[LinePart]) -> int:
    return sum(cell_width(part.text) for part in parts) + 2 * (len(parts) - 1)


def _shortened(text: str, width: int) -> str:
    return cut(text.rstrip(), max(width - 3, 4)).rstrip() + "..."


def _place(message: Mapping[str, object], style: Style) -> tuple[str, ...]:
    """The texts of _LOCATION_PARTS."""
    packet = f"#{message['first_packet']}"
    if style.filed:
        name = str(message["capture_file"])
        packet = (style.short_names.get(name) or shown(name)) + packet
    ts_ns: int = message["ts_ns"]  # type: ignore[assignment]  # of MESSAGES
    when = clock(ts_ns, style.utc, style.dated) if style.times is None else style.times(ts_ns)
    ends = _ends(message.get(CONNECTION_NUMBER), *map(message.__getitem__, _ENDS), style.width, style.common)
    return when, f"{packet:<6}", *ends


_ENDS = "direction", "src_ip", "src_port", "dst_ip", "dst_port", "protocol", "dialect"


@lru_cache
def _ends(
    number: int | None, direction: object, src_ip: object, src_port: object, dst_ip: object, dst_port: object,
    protocol: object, dialect: object, width: int | None, common: tuple[str, str] | None,
) -> tuple[str, str, str]:  # fmt: skip
    # The client stands left, so the arrow shows the direction at a glance.
    ends, arrow = [endpoint(src_ip, src_port), endpoint(dst_ip, dst_port)], "->"
    if direction != "c2s":
        ends, arrow = ends[::-1], "<-"
    client, server = ends
    client_words = f"{client} {arrow}" if width is None else f"{client:<{CLIENT_WIDTH}} {arrow}"
    name = "" if number is None else f"c{number:<2}"
    if width is not None and width < ROOMY_WIDTH and name:
        client_words = arrow  # the connection has a name, and info says its ends
    variant = f"{protocol}/{dialect}"
    return (name, client_words, "") if (variant, server) == common else (name, f"{client_words} {server}", variant)


def tree(fields: Mapping[str, object], names: Mapping[str, Mapping[int, str]], indent: int = 4) -> Iterator[str]:
    """A line per field that is there; lists one element a line; enum names beside their numbers."""
    pad = " " * indent
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield f"{pad}{name}"
            yield from tree(value, names, indent + 2)
        elif isinstance(value, list):
            yield f"{pad}{name}: {len(value)} in the list"
            yield from (f"{pad}  [{i}] {_item(item)}" for i, item in enumerate(value))
        elif value is not None:
            meaning = names.get(name, {}).get(value) if isinstance(value, int) else None
            yield f"{pad}{name}: {value_text(value)}" + (f" ({meaning})" if meaning else "")


def _item(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={value_text(v, 200)}" for k, v in value.items() if v is not None)
    return value_text(value, 200)


class Lines:
    """Lines for people of each row.

    In a style with a width the date stands once above the lines of a day. Else lines of another day than the first
    have their date. Names of files stand where there is more than one: paths, or with a width short names as ``f3``. A
    line above the first row of each file has its path. ``files``: the paths in order, whose places are the short names.
    ``verbose``: with the fields of each message below its line. ``as_hex``: with its bytes.
    """

    def __init__(
        self, choices: "Choices", style: Style, files: Sequence[str] = (), verbose: bool = False, as_hex: bool = False
    ) -> None:
        self._choices, self._verbose, self._as_hex = choices, verbose, as_hex
        short_names = {} if style.width is None else {file_text(name): f"f{i}" for i, name in enumerate(files, 1)}
        self._style = replace(style, filed=len(files) > 1, short_names=short_names)
        self._named: set[str] = set()
        """Files whose path was written."""
        self._first_day = self._day = ""
        self._second = -1

    def __call__(self, row: "MessageRow") -> str:
        """The lines of a row."""
        message = row.message
        second = message["ts_ns"] // 1_000_000_000  # type: ignore[operator]  # of MESSAGES
        heading = "" if second == self._second else self._turned(row, second)
        exchange = row.exchange
        if self._style.filed and self._style.short_names:
            heading += self._legend(str(message["capture_file"]))
            if exchange is not None and exchange.file is not None:
                exchange = exchange._replace(file=self._style.short_names.get(exchange.file, exchange.file))
        text = f"{heading}{line(message, body_of(row), self._style, exchange)}\n"
        if self._verbose:
            names = enum_names(row.protocol)
            left_out = {*KEYS, *(f"{name}_name" for name in names)}  # a number is written with its name
            fields = {name: value for name, value in row.fields.items() if name not in left_out}
            text += "".join(f"{field_line}\n" for field_line in tree(fields, names))
        return text + "".join(f"{field_line}\n" for field_line in self._bytes(row)) if self._as_hex else text

    def _legend(self, name: str) -> str:
        """A line with the path of a file that no line named before."""
        if name in self._named or name not in self._style.short_names:
            return ""
        self._named.add(name)
        return self._style.paint("dim", f"{self._style.short_names[name]} is {shown(name)}") + "\n"

    def _turned(self, row: "MessageRow", second: int) -> str:
        """Take the style for another second; returns what stands in front of the first row: what lines on a terminal
        do not say again."""
        style = self._style
        self._second, heading = second, ""
        today = clock_second(second, style.utc, True)[0][:10]
        if not self._first_day and style.width is not None:
            message, end = row.message, "dst" if row.message["direction"] == "c2s" else "src"
            variant = f"{message['protocol']}/{message['dialect']}"
            common = variant, endpoint(message[f"{end}_ip"], message[f"{end}_port"])
            style = replace(style, common=common)
            heading = f"{' at '.join(common)}, where a line says no other"
        is_new_day, self._day = today != self._day, today
        if style.width is not None and style.times is None and is_new_day:
            fits = len(today) + 2 + len(heading) <= style.width
            heading = (f"{today}  {heading}" if fits else f"{today}\n{heading}").rstrip()
        heading = style.paint("dim", heading) + "\n" if heading else ""
        self._first_day = self._first_day or today
        self._style = replace(style, dated=style.width is None and today != self._first_day)
        return heading

    def _bytes(self, row: "MessageRow") -> Iterator[str]:
        mask = row_secrets(row, self._choices)
        yield from dump(row.data, () if mask is None else mask.spans, left_out=left_out(row, self._choices))
        after_hole = bytes_after_hole(row)
        if after_hole:
            yield f"    and {plural(after_hole, 'byte')} after missing ones"


@cache
def body_columns(protocol: str) -> tuple[str, ...]:
    """The columns of a protocol's table that may hold the payload, the first present column first."""
    columns = protocols()[protocol].envelope.body
    return (columns,) if isinstance(columns, str) else tuple(columns)


def body_of(row: "MessageRow") -> object:
    """The payload of a message, None if it has none."""
    bodies = (row.fields.get(name) for name in body_columns(row.protocol))
    return next((body for body in bodies if body is not None), None)


@cache
def enum_names(protocol: str) -> Mapping[str, Mapping[int, str]]:
    """The names of the numbers of each column."""
    return {column.name: dict(column.names) for column in compiled(protocols()[protocol]).columns if column.names}
