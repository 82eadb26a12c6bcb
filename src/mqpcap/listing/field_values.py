"""The values of a message by the names that filters use: for ``--fields``, and for `MessageRow` in Python.

In: names, and rows of `time_merge`. Out: a value for each name, null where the message has none. Called by: the
commands and ``mqpcap.show``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from mqpcap.listing.line_times import seconds
from mqpcap.listing.message_row import MessageRow
from mqpcap.query.filter_columns import RELATIVE_TIME, STREAM, TIME_SINCE_LINE, ColumnSource, bodies, column
from mqpcap.tables.json_lines import json_time
from mqpcap.tables.schemas import CONNECTION_NUMBER
from mqpcap.wording import endpoint


class FieldReader:
    """Reads the values of names from messages. Raises QueryError for an unknown name."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._sources = {name: column(name).sources for name in self.names if name not in _TIMES}
        self._before_ns: int | None = None
        """The time of the line before."""

    def columns(self, protocol: str) -> tuple[str, ...]:
        """The columns of a protocol's table that are read."""
        return tuple({x.path[0] for sources in self._sources.values() for x in sources if x.table == protocol})

    def values(self, row: MessageRow) -> list[object]:
        """The value of each name; a list where a message has several."""
        values = [self._value(name, row) for name in self.names]
        self._before_ns = _ts_ns(row)
        return values

    def _value(self, name: str, row: MessageRow) -> object:
        if name == TIME_SINCE_LINE:
            ts_ns = _ts_ns(row)
            return seconds(ts_ns - (ts_ns if self._before_ns is None else self._before_ns), 9)
        if name in _COMPUTED:
            return _COMPUTED[name](row)
        for source in self._sources[name]:
            value = _source_value(source, row)
            if value is not None:
                return value
        return None


def _source_value(source: ColumnSource, row: MessageRow) -> object:
    if source.table == "messages":
        return row.message[source.path[0]]
    if source.table == "exchanges":
        return _exchange_value(source.path[0], row)
    return nested_value(row.fields.get(source.path[0]), source.path[1:]) if source.table == row.protocol else None


def nested_value(value: object, path: Sequence[str]) -> object:
    """The value at a path of fields; of a list that of each item."""
    if isinstance(value, list):
        return [nested_value(item, path) for item in value]
    if path and isinstance(value, Mapping):
        return nested_value(value.get(path[0]), path[1:])
    return value


def _exchange_value(name: str, row: MessageRow) -> object:
    exchange = row.exchange
    if exchange is None:
        return None
    end, _, value_name = name.partition("_")
    if end not in ("request", "reply"):
        return not exchange.is_request if name == "is_reply" else getattr(exchange, name)
    is_own = exchange.is_request == (end == "request")
    if value_name == "packet":
        return row.message["first_packet"] if is_own else exchange.packet
    own_ns, latency_ns = _ts_ns(row), exchange.latency_ns
    if is_own or latency_ns is None:
        return own_ns if is_own else None
    return own_ns + latency_ns if exchange.is_request else own_ns - latency_ns


def _end(row: MessageRow, end: str) -> tuple[object, object]:
    """Address and port of the client or the server."""
    side = "src" if (end == "client") == (row.message["direction"] == "c2s") else "dst"
    return row.message[f"{side}_ip"], row.message[f"{side}_port"]


def _ts_ns(row: MessageRow) -> int:
    return int(str(row.message["ts_ns"]))


def _time(row: MessageRow) -> object:
    return json_time(_ts_ns(row))


def _number(row: MessageRow) -> int:
    return int(str(row.message[CONNECTION_NUMBER]))


@cache
def _of_end(end: str, index: int) -> Callable[[MessageRow], object]:
    return lambda row: _end(row, end)[index]


_TIMES = (RELATIVE_TIME, TIME_SINCE_LINE)
"""Names of Wireshark that no column has."""
_COMPUTED: Mapping[str, Callable[[MessageRow], object]] = {
    "ts": _time,
    "frame.time": _time,
    "frame.time_epoch": lambda row: seconds(_ts_ns(row), 9),
    RELATIVE_TIME: lambda row: seconds(_ts_ns(row) - row.first_ns, 9),
    "connection": lambda row: f"c{_number(row)}",
    STREAM: lambda row: _number(row) - 1,
    "client": lambda row: endpoint(*_end(row, "client")),
    "server": lambda row: endpoint(*_end(row, "server")),
    "client_ip": _of_end("client", 0),
    "client_port": _of_end("client", 1),
    "server_ip": _of_end("server", 0),
    "server_port": _of_end("server", 1),
}


def message_bodies(row: MessageRow) -> Iterator[bytes]:
    """The bodies of a message: user payload, one for each record of a list."""
    for path, _ in bodies(row.protocol):
        yield from _leaves(nested_value(row.fields.get(path[0]), path[1:]))


def _leaves(value: object) -> Iterator[bytes]:
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str | bytes):
        yield value.encode() if isinstance(value, str) else value
