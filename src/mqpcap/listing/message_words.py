"""The words of a message for people: operation, destination, sizes, flaws, and the outcome of its request.

Nothing is said by colour alone: a flaw and an error are words. Bytes of a capture never reach the terminal
unescaped.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from mqpcap.listing.message_row import Exchange
from mqpcap.wording import shown

PREVIEW_BYTES = 48
NAME_LENGTH = 120
"""Characters of a name that are shown in a line."""
MAX_SHOWN_BYTES = 2048
"""Bytes of a value that are shown in a tree; ``--json`` and the tables have all of it."""
CLIENT_WIDTH, OPERATION_WIDTH = 21, 12
"""So wide are columns of a terminal at least: an address of IPv4 with its port, and most operations."""
_BLANKS = dict.fromkeys(b"\n\r\t")
_NAMES = (
    ("partition_id", "partition="), ("group_name", "group="), ("client_name", "client="), ("correlation_id", "id="),
    ("message_id", "message="),
)  # fmt: skip


class LinePart(NamedTuple):
    """A part of a line: its text, its colour, and how soon it is left out where there is no room: never (0), or the
    highest first."""

    text: str
    colour: str = ""
    rank: int = 0
    is_fixed: bool = False
    """Whether it is never shortened, only left out."""
    keep: Literal[0, 1, 2] = 0
    """How long it is kept as it is: the parts with 0 are shortened first."""
    is_spare: bool = False
    """Whether it is left out before an outcome loses its latency."""


CONTENT_PARTS = (
    LinePart("operation", "cyan", keep=2), LinePart("destination", "bold"),
    *(LinePart(label, rank=rank) for rank, (_, label) in enumerate(_NAMES, 3)),
    LinePart("length", keep=1), LinePart("body", is_spare=True), LinePart("ok", "green", keep=1),
    LinePart("error", "red"), LinePart("gap", "red"), LinePart("resynced", "red"), LinePart("flaw", "red"),
    LinePart("outcome", "dim", keep=1), LinePart("failure", "red", keep=1),
)  # fmt: skip
"""The parts that a line may have, in their order, each with its name for a text."""


def parts_of(texts: Sequence[str], kinds: Sequence[LinePart]) -> list[LinePart]:
    """The texts as parts of a line, without empty ones."""
    return [kind._replace(text=text) for text, kind in zip(texts, kinds, strict=True) if text]


def content_texts(message: Mapping[str, object], body: object, exchange: Exchange | None, is_narrow: bool) -> list[str]:
    """The texts of CONTENT_PARTS, empty for parts that a message does not have."""
    operation, destination, length = message["op"], message["destination"], message["body_len"]
    operation_words = f"operation {message['op_code']}" if operation is None else _word(operation, False)
    size = "" if length is None else f"{length} B"
    preview = "" if length is None or body is None else value_text(body, PREVIEW_BYTES)
    if not is_narrow and preview:
        size, preview = f"{size} {preview}", ""
    gap, flaw = message["gap_before_bytes"], message["flaw"]
    return [
        f"{operation_words:<{OPERATION_WIDTH}}" if is_narrow else operation_words,
        "" if destination is None else _word(destination),
        *["" if (value := message[name]) is None else label + _word(value) for name, label in _NAMES],
        size,
        preview,
        "ok" if message["status"] == "ok" else "",
        _error(message["status"], message["error_code"], message["error_text"]),
        f"[{gap} bytes missing before]" if gap else "",
        "[found by search]" if message["resynced"] else "",
        "" if flaw is None else f"[flaw: {flaw}]",
        *_outcome(exchange),
    ]


def _error(status: object, code: object, text: object) -> str:
    if status == "ok" or status is code is text is None:
        return ""
    words = [str(status or "error"), "" if code is None else str(code), "" if text is None else value_text(text, 200)]
    return " ".join(filter(None, words))


def _outcome(exchange: Exchange | None) -> tuple[str, str]:
    """What became of a request, or which request a reply answers, and the same where it failed; nothing where no answer
    is expected."""
    if exchange is None or exchange.state == "not_expected":
        return "", ""
    is_request, state, latency_ns, server_ns, packet, status, error_code, _, file, _ = exchange
    if state == "orphan":
        return "<= request not captured", ""
    if not is_request and packet is None:
        return f"<= {state}", ""
    if is_request and state not in ("answered", "likely"):
        return ("", "=> UNANSWERED") if state == "unanswered" else (f"=> {state}", "")
    words = f"{'=>' if is_request else '<='} {shown(file) if file else ''}#{packet}"
    for word in (status, error_code) if is_request else ():
        words += "" if word is None else f" {word}"
    words += "" if latency_ns is None else f" in {latency(latency_ns)}"
    if latency_ns is not None and server_ns is not None and 2 * server_ns < latency_ns:
        words += f", server {latency(server_ns)}"  # sending the request took most of the time
    words += " (likely)" if state == "likely" else ""
    return ("", words) if is_request and status == "error" else (words, "")


def latency(time_ns: int) -> str:
    """The time between two packets in milliseconds: to the microsecond, to the nanosecond where there are any."""
    ms, ns = divmod(abs(time_ns), 1_000_000)
    sign = "-" if time_ns < 0 else ""
    return f"{sign}{ms}.{ns // 1000:03d} ms" if ns % 1000 == 0 else f"{sign}{ms}.{ns:06d} ms"


def _word(value: object, quoted: bool = True) -> str:
    """A name, in quotes if it is not a single word; a long name is cut, and its length follows."""
    text = str(value)
    if text.isalnum() and text.isascii() and len(text) <= NAME_LENGTH:
        return text
    form = _in_quotes if quoted and (not text or " " in text or '"' in text) else shown
    if len(text) <= NAME_LENGTH:
        return form(text)
    return f"{form(text[:NAME_LENGTH])}... ({len(text):,} characters)"


def _in_quotes(text: str) -> str:
    # repr chooses the kind of quotes by the content.
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{shown(text)}"'


def value_text(value: object, at_most: int = MAX_SHOWN_BYTES) -> str:
    """A value on one line: text in quotes, other bytes in hex, cut with the rest counted."""
    if isinstance(value, bytes):
        text = readable(value)
        if text is None:
            at_most = max(at_most // 2, 1)
            return f"hex {value[:at_most].hex()}" + _rest(len(value) - at_most)
        value = text
    if isinstance(value, str):
        return _in_quotes(value[:at_most]) + _rest(len(value) - at_most)
    return str(value).lower() if isinstance(value, bool) else shown(str(value))


def _rest(more_count: int) -> str:
    return f" and {more_count} more" if more_count > 0 else ""


def readable(value: bytes) -> str | None:
    """The text that bytes are, None where a terminal would have to show anything but characters, tabs and new lines."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or text.translate(_BLANKS).isprintable() else None
