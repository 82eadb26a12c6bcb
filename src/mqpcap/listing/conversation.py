"""One connection as a conversation of two sides, for people.

In: the messages of a connection, in order of time. Out: lines; each reply stands below its request, payloads below
their messages. Called by: ``follow``.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from mqpcap.listing.connection_search import SelectedConnection
from mqpcap.listing.hex_dump import dump
from mqpcap.listing.message_lines import Style, content_words
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.message_words import latency
from mqpcap.query.filter_columns import bodies
from mqpcap.wording import clock, plural, shown

MAX_WAITING = 1 << 12
"""Messages that wait until the reply of an earlier request can stand under it."""
PLAIN_WIDTH = 100
"""Columns of a payload in a style without a width."""
BODY_BYTES = 4096
"""Bytes of a body that are shown; JSON has all."""
BODY_ITEMS = 100
"""Bodies of a message that are shown."""
_ENDS = {"reset": "ended by a reset", "closed": "closed", "open": "open at the end of the capture"}


def _waits(turn: Sequence[MessageRow]) -> bool:
    exchange = turn[0].exchange
    return len(turn) == 1 and exchange is not None and exchange.is_request and exchange.state in ("answered", "likely")


class Conversation:
    """The messages of a connection in order of time, each reply below its request."""

    def __init__(self, connection: SelectedConnection, style: Style) -> None:
        self.connection, self._style = connection, style
        self._turns: deque[list[MessageRow]] = deque()
        self._asking: dict[tuple[object, object], list[MessageRow]] = {}

    def head(self) -> Iterator[str]:
        """Heading: both ends, numbers of messages, times, missing bytes."""
        row, paint, utc = self.connection.row, self._style.paint, self._style.utc
        begin, end = (int(str(row[name])) for name in ("first_ts_ns", "last_ts_ns"))
        counts = [plural(int(str(row[f"messages_{d}"])), "message") for d in ("c2s", "s2c")]
        protocol = row["protocol"] or (
            "encrypted (TLS)" if row["tls"] is not None else "no protocol that is known here"
        )
        yield paint("bold", f"{self.connection.end('client')} -> {self.connection.end('server')}  {protocol}")
        count_words = f"{counts[0]} from the client, {counts[1]} from the server"
        yield f"c{self.connection.number}, connection {self.connection.id}; {count_words}"
        yield f"{clock(begin, utc, True)} to {clock(end, utc, True)}, {_ENDS[str(row['end_state'])]}"
        missing = sum(int(str(row[f"missing_bytes_{d}"])) for d in ("c2s", "s2c"))
        if missing:
            yield paint("red", f"{plural(missing, 'byte')} of it were never captured")

    def lines(self, rows: Iterable[MessageRow]) -> Iterator[str]:
        """Take further messages, in order of time; the lines of turns that are complete."""
        for row in rows:
            self._take(row)
            yield from self._due(MAX_WAITING)

    def last_lines(self) -> Iterator[str]:
        """The lines of turns that are open at the end."""
        return self._due(0)

    def _take(self, row: MessageRow) -> None:
        exchange, side = row.exchange, row.message["direction"]
        if exchange is not None and not exchange.is_request:
            turn = self._asking.pop(("s2c" if side == "c2s" else "c2s", exchange.offset), None)
            if turn is not None:
                turn.append(row)
                return
        self._turns.append([row])
        if _waits([row]):
            self._asking[(side, row.message["stream_offset"])] = self._turns[-1]

    def _due(self, at_most: int) -> Iterator[str]:
        """The turns that are complete, and the oldest beyond ``at_most`` turns."""
        while self._turns and (not _waits(self._turns[0]) or len(self._turns) > at_most):
            turn = self._turns.popleft()
            first_message = turn[0].message
            self._asking.pop((first_message["direction"], first_message["stream_offset"]), None)
            for i, row in enumerate(turn):
                yield from self._message_lines(row, "    " * i, len(turn) > 1)

    def _message_lines(self, row: MessageRow, indent: str, is_paired: bool) -> Iterator[str]:
        """``is_paired``: request and reply are printed together, without the packet of their partner."""
        message, style, paint = row.message, self._style, self._style.paint
        arrow = "->" if message["direction"] == "c2s" else "<-"
        ts_ns = int(str(message["ts_ns"]))
        when = paint("dim", clock(ts_ns, style.utc, False) if style.times is None else style.times(ts_ns))
        words = content_words(message, None, paint, None if is_paired else row.exchange)
        if is_paired and indent and row.exchange is not None and row.exchange.latency_ns is not None:
            words.append(paint("dim", f"in {latency(row.exchange.latency_ns)}"))
        packet = f"{shown(str(message['capture_file'])) if style.filed else ''}#{message['first_packet']}"
        yield "  ".join([f"{indent}{when}", f"{packet:<6}", f"{arrow} {words[0]}", *words[1:]])
        for line in body_lines(row, max((style.width or PLAIN_WIDTH) - len(indent) - 8, 20)):
            yield f"{indent}        {line}"


def body_lines(row: MessageRow, width: int) -> Iterator[str]:
    """The payload, wrapped: text as text, other bytes as a dump."""
    for path, _ in bodies(row.protocol):
        values = list(_inside(row.fields.get(path[0]), path[1:]))
        for value, label in values[:BODY_ITEMS]:
            for i, line in enumerate(_wrapped(value, width - len(label))):
                yield (" " * len(label) if i else label) + line
        if len(values) > BODY_ITEMS:
            yield f"and {len(values) - BODY_ITEMS:,} more"


def _inside(value: object, path: tuple[str, ...]) -> Iterator[tuple[bytes, str]]:
    """The bodies in a column, those in lists with their places."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from ((body, f"[{i}] {label}") for body, label in _inside(item, path))
    elif isinstance(value, dict):
        yield from _inside(value.get(path[0]), path[1:])
    elif isinstance(value, str | bytes) and value:
        yield value.encode() if isinstance(value, str) else value, ""


def _wrapped(value: bytes, width: int) -> Iterator[str]:
    part, more_bytes = value[:BODY_BYTES], len(value) - BODY_BYTES
    text = part.decode("utf-8", "ignore" if more_bytes > 0 else "replace")
    if all(c.isprintable() or c in "\n\r\t" for c in text) and "\ufffd" not in text:
        for line in text.splitlines():
            safe = shown(line.expandtabs(4))
            yield from (safe[offset : offset + width] for offset in range(0, max(len(safe), 1), width))
    else:
        yield from dump(part, indent=0)
    if more_bytes > 0:
        yield f"and {plural(more_bytes, 'more byte')}; --json has all"
