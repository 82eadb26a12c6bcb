"""Parses the values in a filter, by the kind of the column that they are compared with."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, auto

from mqpcap.errors import QueryError

MAX_INT64 = (1 << 63) - 1
SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ValueKind(Enum):
    """The kind of a column's values: it decides how a value is written in a filter, and which relations it has."""

    TEXT = auto()
    WORD = auto()
    """Text with few distinct values, for example operations; upper and lower case are equal."""
    BYTES = auto()
    INTEGER = auto()
    """Counts, sizes, numbers on the wire."""
    DURATION = auto()
    TIME = auto()
    TRUTH = auto()
    ADDRESS = auto()
    ENDPOINT = auto()
    """An address, with or without a port."""
    CONNECTION = auto()
    """A connection, by its id, its number, or the address and port of either end."""
    STREAM = auto()
    """A connection, by its number from 0, as Wireshark counts."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as written in a filter: nanoseconds since ``origin``.

    - ``epoch``: 1970
    - ``begin``: the first packet of the capture
    - ``end``: the last packet of the capture; ``ns`` is negative. `Query.ending` makes it a time since 1970
    - ``day``: the midnight before the first packet, in local time or ``utc``; ``ns`` is a time of day
    """

    origin: str
    ns: int
    utc: bool = False
    later_ns: int = 0
    """Nanoseconds to add to this time."""

    def time_ns(self, first_ns: int) -> int:
        """Nanoseconds since 1970, in a capture whose first packet has the time ``first_ns``."""
        if self.origin == "epoch":
            return self.ns + self.later_ns
        if self.origin == "end":
            return self.ns + self.later_ns
        if self.origin == "begin":
            return first_ns + self.ns + self.later_ns
        day = datetime.fromtimestamp(first_ns // SECOND_NS, UTC)
        day = (day if self.utc else day.astimezone()).replace(hour=0, minute=0, second=0, microsecond=0)
        seconds, ns = divmod(self.ns, SECOND_NS)
        clock = day.replace(tzinfo=UTC if self.utc else None) + timedelta(seconds=seconds)
        return _epoch_s(clock) * SECOND_NS + ns + self.later_ns

    def later(self, by_ns: int) -> "Moment":
        """This time plus a number of nanoseconds."""
        return replace(self, later_ns=self.later_ns + by_ns)

    def next_day(self) -> "Moment":
        """The same time of day, a day later."""
        return replace(self, ns=self.ns + DAY_NS)


def _epoch_s(clock: datetime) -> int:
    """Seconds since 1970 of a date and time; without a zone it is local time.

    A local time that is skipped when summer time begins is the moment of the skip.
    """
    if clock.tzinfo is not None or clock.astimezone().replace(tzinfo=None) == clock:
        return int(clock.timestamp())
    low_s, high_s = (int(clock.replace(fold=fold).timestamp()) for fold in (1, 0))
    offset = datetime.fromtimestamp(high_s).astimezone().utcoffset()
    while high_s - low_s > 1:
        middle_s = (low_s + high_s) // 2
        if datetime.fromtimestamp(middle_s).astimezone().utcoffset() == offset:
            high_s = middle_s
        else:
            low_s = middle_s
    return high_s


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A network (None: any address) and a port (None: any port)."""

    network: Network | None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class ConnectionNumber:
    """The number of a connection in its capture, from 1, in the order of first packets: ``c7``."""

    number: int


Value = str | bytes | int | bool | Moment | Network | Endpoint | ConnectionNumber


def duration_ns(word: str) -> int:
    """``50ms``, ``1.5s`` or ``0.04`` as nanoseconds, rounded down; a number without a unit is seconds.

    >>> duration_ns("1.5us"), duration_ns("0.04")
    (1500, 40000000)
    """
    match = re.fullmatch(r"(\d{0,40}(?:\.\d{1,20})?)\s*([a-zA-Zµμ]*)", word, re.ASCII)
    if match is None or not match[1]:
        raise QueryError(f"{word!r} is no time like 50ms; the units are ns, us, ms, s, min and h")
    unit_ns = _DURATIONS_NS.get(match[2].lower() or "s")
    if unit_ns is None:
        raise QueryError(f"{match[2]!r} is no unit; the units are ns, us, ms, s, min and h, as in 50ms")
    time_ns = int(Decimal(match[1]) * unit_ns)
    if time_ns > MAX_INT64:
        raise QueryError(f"{word} is more than 292 years")
    return time_ns


_DURATIONS_NS = {
    "ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 10**6, "s": SECOND_NS, "min": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
}  # fmt: skip


def integer(word: str) -> int:
    """``17``, ``-1``, ``0xbea7``, ``10kB`` or ``1.5MiB`` as an integer.

    >>> integer("1.5kB"), integer("2MiB")
    (1500, 2097152)
    """
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", word):
        return int(word, 16)
    match = re.fullmatch(r"(-?\d{1,20}(?:\.\d{1,20})?)\s*(?:([kmgt]?)(i?)b)?", word, re.ASCII | re.IGNORECASE)
    if match is None or ("." in match[1] and not match[2]):
        raise QueryError(f"{word!r} is no number like 17, 0x11, 10kB or 2MiB")
    power = " kmgt".index((match[2] or " ").lower())
    return int(Decimal(match[1]) * (1024 if match[3] else 1000) ** power)


_CLOCK = r"(\d\d?):(\d\d)(?::(\d\d)(\.\d{1,9})?)?(Z?)"
_DATE = r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(\.\d{1,9})?)?\s*(Z|[+-]\d\d(?::?\d\d)?)?"


def moment(word: str, utc: bool) -> Moment:
    """Parses a time: ISO 8601, or as below.

    ``05:24:10`` of the capture's first day, ``+30s`` from its start, ``-5m`` before its end, or seconds since 1970.

    A time without a zone is UTC if ``utc``, else local. A number of 16 to 19 digits is nanoseconds, as in ``--json``.

    >>> moment("2023-11-14T22:13:20.5Z", False).ns
    1700000000500000000
    """
    if word[:1] in ("+", "-"):
        span = re.sub(r"(\d)\s*m$", r"\1min", word[1:].lstrip())  # -5m is minutes
        return Moment("begin", duration_ns(span)) if word[0] == "+" else Moment("end", -duration_ns(span))
    if re.fullmatch(r"\d{16,19}", word, re.ASCII):
        return Moment("epoch", int(word))
    if re.fullmatch(r"\d{1,10}(\.\d{1,20})?", word, re.ASCII):
        return Moment("epoch", duration_ns(word))
    if match := re.fullmatch(_CLOCK, word, re.ASCII):
        hours, minutes, seconds = (int(x or 0) for x in match.group(1, 2, 3))
        if hours < 24 and minutes < 60 and seconds < 60:
            ns = (hours * 3600 + minutes * 60 + seconds) * SECOND_NS + _fraction_ns(match[4])
            return Moment("day", ns, utc or bool(match[5]))
    elif match := re.fullmatch(_DATE, word, re.ASCII):
        zone = (match[4] or ("Z" if utc else "")).replace("Z", "+00:00")
        with_minutes = f"{match[1]}T{match[2] or '00:00'}{zone}"
        try:
            parsed = datetime.fromisoformat(with_minutes)
            return Moment("epoch", _epoch_s(parsed) * SECOND_NS + _fraction_ns(match[3]))
        except (ValueError, OverflowError):
            pass
    raise QueryError(
        f"{word!r} is no time like 05:24:10, +30s, -5m, 2026-11-21T05:24:10Z or 2026-11-21, or seconds since 1970"
    )


def _fraction_ns(digits: str | None) -> int:
    return int((digits or ".0")[1:].ljust(9, "0"))


def network(word: str) -> Network:
    """Parses an address, or a network in CIDR notation."""
    try:
        return ipaddress.ip_network(word.strip("[]"), strict=False)
    except ValueError:
        raise QueryError(f"{word!r} is no address like 10.0.0.7, 10.0.0.0/8 or fd00::1") from None


def endpoint(word: str) -> Endpoint:
    """Parses an address or network, an address with a port, or a port of any address: ``80`` or ``:80``.

    >>> endpoint("10.0.0.7:5555").port, endpoint("[::1]:80").port, endpoint("::1").port, endpoint(":80").network
    (5555, 80, None, None)
    """
    match = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*):(\d{1,5})", word, re.ASCII)
    if match is None and re.fullmatch(r"\d{1,5}", word, re.ASCII):
        return endpoint(f":{word}")
    if match is None:
        return Endpoint(network(word))
    if int(match[2]) > 65535:
        raise QueryError(f"{match[2]} is no TCP port")
    return Endpoint(network(match[1]) if match[1] else None, int(match[2]))


def _connection(word: str) -> int | Endpoint | ConnectionNumber:
    if re.fullmatch(r"\d{1,19}", word, re.ASCII) and int(word) <= MAX_INT64:
        return int(word)
    if re.fullmatch(r"c\d{1,18}", word, re.ASCII):
        return ConnectionNumber(int(word[1:]))
    try:
        return endpoint(word)
    except QueryError:
        raise QueryError(f"{word!r} is no connection; say c7, IP:PORT or a connection_id") from None


def _truth(word: str) -> bool:
    if word.lower() not in ("true", "false"):
        raise QueryError(f"{word!r} is neither true nor false")
    return word.lower() == "true"


def _bytes(word: str) -> bytes:
    if re.fullmatch(r"0x(?:[0-9a-fA-F]{2})+", word):
        return bytes.fromhex(word[2:])
    return word.encode()


_READERS: dict[ValueKind, Callable[[str], Value]] = {
    ValueKind.TEXT: str,
    ValueKind.WORD: str.lower,
    ValueKind.BYTES: _bytes,
    ValueKind.INTEGER: integer,
    ValueKind.DURATION: duration_ns,
    ValueKind.TRUTH: _truth,
    ValueKind.ADDRESS: network,
    ValueKind.ENDPOINT: endpoint,
    ValueKind.CONNECTION: _connection,
    ValueKind.STREAM: lambda word: ConnectionNumber(integer(word) + 1),
}


def value(word: str, kind: ValueKind, utc: bool) -> Value:
    """Parses a value for a column of a kind; raises QueryError. ``utc``: times without a zone are UTC."""
    return moment(word, utc) if kind is ValueKind.TIME else _READERS[kind](word)
