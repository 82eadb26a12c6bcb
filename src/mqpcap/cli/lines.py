"""One message as a line for people, and its fields as a tree.

Nothing is said by colour alone: a flaw and an error are words. Bytes of a capture never reach the terminal
unescaped.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from mqpcap.cli.connections import NUMBER, short_name
from mqpcap.cli.console import shown

if TYPE_CHECKING:
    from mqpcap.cli.outcomes import Exchange

PREVIEW_BYTES = 48
NAME_LENGTH = 120
"""So many characters of a name are shown in a line."""
MAX_SHOWN_BYTES = 2048
"""So much of one value is shown in a tree; ``--json`` and the tables have all of it."""

ROOMY_WIDTH = 110
"""Below it a line on a terminal has no room for addresses."""
CLIENT_WIDTH, OPERATION_WIDTH = 21, 12
"""So wide are columns of a terminal at least: an address of IPv4 with its port, and most operations."""
_NAMES = (
    ("partition_id", "partition"), ("group_name", "group"), ("client_name", "client"), ("correlation_id", "id"),
    ("message_id", "message"),
)  # fmt: skip
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

    width: columns that a line may have, None for any number. common: protocol and dialect, and server, that need not be
    said, as they were.
    """

    utc: bool = False
    dated: bool = False
    filed: bool = False
    paint: Paint = Paint()
    width: int | None = None
    common: tuple[str, str] | None = None


class Part(NamedTuple):
    """A part of a line: its text, its colour, and how soon it is left out where there is no room: never (0), or the
    highest first."""

    text: str
    colour: str = ""
    rank: int = 0
    is_fixed: bool = False
    """Whether it is told whole or not at all."""


def clock(ts_ns: int, utc: bool, dated: bool) -> str:
    """A time of day with microseconds and its zone, the date in front if asked.

    >>> clock(1_700_000_000_000_001_000, True, True)
    '2023-11-14 22:13:20.000001Z'
    """
    seconds, ns = divmod(ts_ns, 1_000_000_000)
    second, zone = _second(seconds, utc, dated)
    return f"{second}.{ns // 1000:06d}{zone}"


@lru_cache
def _second(seconds: int, utc: bool, dated: bool) -> tuple[str, str]:
    """A second, and the zone: Z if UTC was asked for, else how far the local time is ahead, as +01 or -03:30."""
    when = datetime.fromtimestamp(seconds, UTC)
    when = when if utc else when.astimezone()
    return f"{when:{'%Y-%m-%d ' if dated else ''}%H:%M:%S}", "Z" if utc else when.isoformat()[-6:].removesuffix(":00")


def day(ts_ns: int, utc: bool) -> str:
    """The date of a time."""
    return _second(ts_ns // 1_000_000_000, utc, True)[0][:10]


def endpoint(ip: object, port: object) -> str:
    """``address:port``, IPv6 in brackets."""
    return f"[{ip}]:{port}" if ":" in str(ip) else f"{ip}:{port}"


def common_words(message: Mapping[str, object]) -> tuple[str, str]:
    """What most lines of a capture have in common: protocol and dialect, and the server."""
    end = "dst" if message["direction"] == "c2s" else "src"
    return f"{message['protocol']}/{message['dialect']}", endpoint(message[f"{end}_ip"], message[f"{end}_port"])


def line(message: Mapping[str, object], body: object, style: Style, exchange: "Exchange | None" = None) -> str:
    """The line of a message: when, packet, who to whom, what, about what, and how it went."""
    parts = [part for part in _parts(message, body, style, exchange) if part.text]
    if style.width is not None:
        parts = fitted(parts, style.width)
    return "  ".join(style.paint(part.colour, part.text) if part.colour else part.text for part in parts).rstrip()


def fitted(parts: Sequence[Part], width: int) -> list[Part]:
    """The parts that there is room for; the last that stays is shortened behind a word, or in it where it is one.

    >>> [part.text for part in fitted([Part("PUBLISH"), Part("id=7", rank=1), Part("a long topic")], 18)]
    ['PUBLISH', 'a long...']
    """
    left = list(parts)
    while _width(left) > width and (ranked := [part for part in left if part.rank]):
        left.remove(max(ranked, key=lambda part: part.rank))
    while (over := _width(left) - width) > 0 and (loose := [part for part in left if not part.is_fixed]):
        longest = max(loose, key=lambda part: len(part.text))
        at, text = left.index(longest), _shortened(longest.text, len(longest.text) - over)
        left[at : at + 1] = [longest._replace(text=text)] if len(text) < len(longest.text) else []
    return left


def _width(parts: Sequence[Part]) -> int:
    return sum(len(part.text) for part in parts) + 2 * (len(parts) - 1)


def _shortened(text: str, length: int) -> str:
    kept = text.rstrip()[: max(length - 3, 4)]
    behind_word = kept.rpartition(" ")[0]
    return (behind_word or kept) + "..."


def _parts(message: Mapping[str, object], body: object, style: Style, exchange: "Exchange | None") -> Iterator[Part]:
    words = common_words(message)
    is_narrow = style.width is not None
    yield Part(clock(int(str(message["ts_ns"])), style.utc, style.dated), "dim", is_fixed=True)
    packet = f"#{message['first_packet']}"
    if style.filed:
        packet = shown(str(message["capture_file"])) + packet
    yield Part(f"{packet:<6}", is_fixed=True)
    if NUMBER in message:
        yield Part(f"{short_name(int(str(message[NUMBER]))):<3}", is_fixed=True)
    # The client stands left, so the arrow shows the direction at a glance.
    end = "src" if message["direction"] == "c2s" else "dst"
    client, arrow = endpoint(message[f"{end}_ip"], message[f"{end}_port"]), "->" if end == "src" else "<-"
    ends = f"{client:<{CLIENT_WIDTH}} {arrow}" if is_narrow else f"{client} {arrow}"
    if style.width is not None and style.width < ROOMY_WIDTH and NUMBER in message:
        ends = arrow  # the connection has a name, and info says its ends
    yield Part(ends if words == style.common else f"{ends} {words[1]}", is_fixed=True)
    yield Part("" if words == style.common else words[0], rank=9)
    yield from _said(message, body, exchange, is_narrow)


def about(message: Mapping[str, object], body: object, paint: Paint, exchange: "Exchange | None" = None) -> list[str]:
    """The words of a message behind its place and ends: the operation first."""
    parts = _said(message, body, exchange, is_narrow=False)
    return [paint(part.colour, part.text) if part.colour else part.text for part in parts if part.text]


def _said(message: Mapping[str, object], body: object, exchange: "Exchange | None", is_narrow: bool) -> Iterator[Part]:
    operation = _cut(str(message["op"]), shown) if message["op"] is not None else f"operation {message['op_code']}"
    yield Part(f"{operation:<{OPERATION_WIDTH}}" if is_narrow else operation, "cyan")
    if message["destination"] is not None:
        yield Part(_word(message["destination"]), "bold")
    for rank, (name, label) in enumerate(_NAMES, 3):
        if message[name] is not None:
            yield Part(f"{label}={_word(message[name])}", rank=rank)
    if message["body_len"] is not None:
        length, preview = f"{message['body_len']} B", "" if body is None else value_text(body, PREVIEW_BYTES)
        yield from [Part(length), Part(preview, rank=2)] if is_narrow else [Part(f"{length} {preview}".rstrip())]
    yield from _verdicts(message)
    yield from _outcome(exchange)


def _outcome(exchange: "Exchange | None") -> Iterator[Part]:
    """What became of a request, or which request a reply answers; nothing where no answer is expected."""
    if exchange is None or exchange.state == "not_expected":
        return
    state, other = exchange.state, f"{shown(exchange.file or '')}#{exchange.packet}"
    took = "" if exchange.latency_ns is None else f"in {latency(exchange.latency_ns)}"
    if state == "orphan":
        yield Part("<= request not captured", "dim")
    elif not exchange.is_request:
        yield Part(f"<= {other} {took}" if exchange.packet is not None else f"<= {state}", "dim")
    elif state == "answered":
        words = [str(x) for x in (exchange.status, exchange.error_code) if x is not None]
        yield Part(" ".join([f"=> {other}", *words, took]), "red" if exchange.status == "error" else "dim")
    elif state == "unanswered":
        yield Part("=> UNANSWERED", "red")
    else:
        yield Part(f"=> {state}", "dim")


def latency(time_ns: int) -> str:
    """The time between two packets in milliseconds: to the microsecond, to the nanosecond where there are any."""
    ms, ns = divmod(abs(time_ns), 1_000_000)
    sign = "-" if time_ns < 0 else ""
    return f"{sign}{ms}.{ns // 1000:03d} ms" if ns % 1000 == 0 else f"{sign}{ms}.{ns:06d} ms"


def _verdicts(message: Mapping[str, object]) -> Iterator[Part]:
    if message["status"] == "ok":
        yield Part("ok", "green")
    elif message["status"] is not None or message["error_code"] is not None or message["error_text"] is not None:
        said = [str(message["status"] or "error")]
        said += [str(message["error_code"])] if message["error_code"] is not None else []
        said += [value_text(message["error_text"], 200)] if message["error_text"] is not None else []
        yield Part(" ".join(said), "red")
    if message["gap_before_bytes"]:
        yield Part(f"[{message['gap_before_bytes']} bytes missing before]", "red")
    if message["resynced"]:
        yield Part("[found by search]", "red")
    if message["flaw"] is not None:
        yield Part(f"[flaw: {message['flaw']}]", "red")


def _word(value: object) -> str:
    """A name as it is, in quotes where it would not stand as one word; a long one is cut, with its length."""
    text = str(value)
    return _cut(text, shown if text and " " not in text and '"' not in text else _in_quotes)


def _cut(text: str, form: Callable[[str], str]) -> str:
    if len(text) <= NAME_LENGTH:
        return form(text)
    return f"{form(text[:NAME_LENGTH])}... ({len(text):,} characters)"


def _in_quotes(text: str) -> str:
    # repr would choose its quotes by what is inside.
    inside = shown(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{inside}"'


def value_text(value: object, at_most: int = MAX_SHOWN_BYTES) -> str:
    """A value on one line: text in quotes, other bytes in hex, cut with the rest counted."""
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return _cut_hex(value, at_most)
        return _quoted(text, at_most) if _readable(text) else _cut_hex(value, at_most)
    if isinstance(value, str):
        return _quoted(value, at_most)
    if isinstance(value, Decimal):
        return str(int(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return shown(str(value))


def _readable(text: str) -> bool:
    return text.isprintable() or all(c.isprintable() or c in "\n\t\r" for c in text)


def _quoted(text: str, at_most: int) -> str:
    more = len(text) - at_most
    return _in_quotes(text[:at_most]) + (f" and {more} more" if more > 0 else "")


def _cut_hex(value: bytes, at_most: int) -> str:
    shown_bytes = value[: max(at_most // 2, 1)]
    more = len(value) - len(shown_bytes)
    return f"hex {shown_bytes.hex()}" + (f" and {more} more" if more else "")


def tree(fields: Mapping[str, object], names: Mapping[str, Mapping[int, str]], indent: int = 4) -> Iterator[str]:
    """A line per field that is there; lists one element a line; enum names beside their numbers."""
    for name, value in fields.items():
        if value is not None:
            yield from _branch(name, value, names, indent)


def _branch(name: str, value: object, names: Mapping[str, Mapping[int, str]], indent: int) -> Iterator[str]:
    pad = " " * indent
    if isinstance(value, Mapping):
        yield f"{pad}{name}"
        yield from tree(value, names, indent + 2)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield f"{pad}{name}: {len(value)} in the list"
        for i, item in enumerate(value):
            if isinstance(item, Mapping):
                inner = ", ".join(f"{k}={value_text(v, 200)}" for k, v in item.items() if v is not None)
                yield f"{pad}  [{i}] {inner}"
            else:
                yield f"{pad}  [{i}] {value_text(item, 200)}"
    else:
        meaning = names.get(name, {}).get(value) if isinstance(value, int) else None
        yield f"{pad}{name}: {value_text(value)}" + (f" ({meaning})" if meaning else "")
