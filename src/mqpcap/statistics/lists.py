"""Lists: the slowest requests, errors by code and text, deliveries by topic, traffic by client and server."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, is_in, true_mask
from mqpcap.protocols import protocols
from mqpcap.schema.protocol import DIRECTIONS
from mqpcap.statistics.groups import SumCounter, Sums
from mqpcap.statistics.keys import OF_CONNECTIONS, OF_EXCHANGES, OF_MESSAGES, Coded, Columns, coded, text
from mqpcap.statistics.latencies import PERCENTS, Latencies
from mqpcap.statistics.report_columns import Cells
from mqpcap.tables.message_keys import message_key, message_keys, reply_keys, stream_keys
from mqpcap.tables.messages import ENDPOINTS
from mqpcap.tables.output import Carried, Output, end_rows, of_messages
from mqpcap.tables.schemas import CONNECTION_NUMBER, EXCHANGES, KEYS
from mqpcap.wording import endpoint, plural

MAX_TRACKED = 1 << 18
"""The newest pairs of publish and receiving connection, which make a second delivery known."""
MAX_CONVERSATIONS = 1 << 16
"""Connections that are listed; about 2 kB each."""
MAX_LISTED = 1 << 16
"""Deliveries that are listed; about 1 kB each."""
MAX_INDEXED = 1 << 22
"""The newest publishes and deliveries whose packets are known; 24 bytes each."""
MAX_PENDING_ERRORS = 1 << 18
"""Errors that wait for their exchange. Beyond it the oldest count by themselves, and once more if it still comes."""
MAX_ERRORS = 1 << 14
"""Errors that are distinguished."""
ERROR_TEXT_LENGTH = 200
"""Characters of an error's text that distinguish it."""


class Slowest:
    """The ``max_rows`` exchanges with the largest latencies."""

    carried = of_messages("capture_file")

    def __init__(self, max_rows: int) -> None:
        self._most = max_rows
        self._rows = _WITH_FILES.empty_table()
        self._least_ns = -1

    def take_exchanges(self, rows: pa.Table) -> None:
        """Keep rows that are among the slowest until here."""
        if not rows.num_rows or not self._most:
            return
        is_slow = pc.greater(pc.fill_null(rows["latency_ns"], -1), self._least_ns)
        named = rows.select([*EXCHANGES.names, *_FILES]).rename_columns(_WITH_FILES.names)
        slow_rows = named.filter(is_slow).cast(_WITH_FILES)
        if not slow_rows.num_rows:
            return
        both = pa.concat_tables([self._rows, slow_rows])
        order = [("latency_ns", "descending"), ("request_ts_ns", "ascending"), ("request_packet", "ascending"),
                 ("capture", "ascending"), ("connection_id", "ascending")]  # fmt: skip
        self._rows = both.sort_by(order).slice(0, self._most).combine_chunks()
        if self._rows.num_rows == self._most:
            # An equal latency may still come with an earlier request.
            self._least_ns = self._rows["latency_ns"][-1].as_py() - 1

    def rows(self) -> list[Cells]:
        """The slowest first, as rows of ``exchanges``, with both ends and the files that hold both messages.

        ``reply_file`` is there where the reply is in another file.
        """
        rows = self._rows.to_pylist()
        for row in rows:
            row["reply_file"] = None if row["reply_file"] == row["request_file"] else row["reply_file"]
        return [with_ends(row) for row in rows]


_FILES = ("request.messages.capture_file", "reply.messages.capture_file")
_WITH_FILES = pa.schema([*EXCHANGES, ("request_file", pa.string()), ("reply_file", pa.string())])


def with_ends(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of ``exchanges`` or ``connections`` with address and port of both ends."""
    return {**row, **{end: endpoint(row[f"{end}_ip"], row[f"{end}_port"]) for end in ("client", "server")}}


class _FileNumbers(dict[str, int]):
    """Numbers of the files that messages are in."""

    def of(self, rows: pa.Table) -> Int64Array:
        """The number of each message's file."""
        files = text("capture_file", rows)
        numbers: Int64Array = np.array([self.setdefault(str(x), len(self)) for x in files.values], np.int64)[files.code]
        return numbers


class Errors:
    """Errors by the operation that failed, the topic and client of its request, code and text."""

    key_names = ("protocol", "op", "topic", "client", "error_code", "error_text")
    carried = of_messages("error_text", "capture_file")
    reads = of_messages(*KEYS, "status", "op", "destination", *ENDPOINTS, "error_code", "first_packet") | carried

    def __init__(self) -> None:
        self._sums = Sums(self.key_names, ("errors",), max_groups=MAX_ERRORS)
        self._own = Sums(self.key_names, ())
        self._waiting: dict[int, tuple[int, ...]] = {}
        """By message, errors without an exchange: group by its own values, time, packet, number of the file."""
        self._files = _FileNumbers()
        self._first: dict[int, tuple[int, ...]] = {}
        """By group: time, packet and file of its first error."""

    def take_messages(self, rows: pa.Table) -> None:
        """Keep the errors among rows of ``messages`` until their exchange comes."""
        rows = rows.filter(pa.array(is_in(rows["status"], "error")))
        columns = message_keys(rows), self._own.groups(_OF_ERRORS, rows), *self._places(rows)
        for key, *error in zip(*(column.tolist() for column in columns), strict=True):
            self._waiting[key] = tuple(error)
        self._count_waiting(MAX_PENDING_ERRORS)

    def _places(self, rows: pa.Table) -> tuple[Int64Array, ...]:
        return rows["ts_ns"].to_numpy(), rows["first_packet"].to_numpy(), self._files.of(rows)

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count errors with a request, rows of ``exchanges``."""
        rows = rows.filter(pa.array(is_in(rows["status"], "error")))
        if not rows.num_rows:
            return
        for key in reply_keys(rows).tolist():
            self._waiting.pop(key, None)
        replies = end_rows(rows, "reply").rows
        groups = self._sums.groups(_OF_ANSWERS, rows.append_column("error_text", replies["error_text"]))
        for group, *place in zip(groups.tolist(), *(column.tolist() for column in self._places(replies)), strict=True):
            self._count(group, tuple(place))

    def end_of_capture(self) -> None:
        """Count errors without a request."""
        self._count_waiting(0)

    def _count_waiting(self, max_count: int) -> None:
        """Count the oldest errors that wait, until ``max_count`` are left."""
        while len(self._waiting) > max_count:
            own_group, *place = self._waiting.pop(next(iter(self._waiting)))
            self._count(self._sums.number(self._own.key(own_group)), tuple(place))

    def _count(self, group: int, place: tuple[int, ...]) -> None:
        self._sums.add("errors", np.array([group]))
        self._first[group] = min(place, self._first.get(group, place))

    def rows(self) -> list[Cells]:
        """Errors by ``key_names``, with the file, packet and time of the first."""
        files, sums = list(self._files), self._sums.sums().items()
        return [
            {
                **dict(zip(self.key_names, key, strict=False)), **amounts, "capture_file": files[file],
                "first_packet": packet, "first_ts_ns": ts_ns,
            } for (key, amounts), (_, (ts_ns, packet, file)) in zip(sums, sorted(self._first.items()), strict=True)
        ]  # fmt: skip


def _error_text(rows: pa.Table) -> Coded:
    texts = text("error_text", rows)
    return Coded(texts.code, [x and str(x)[:ERROR_TEXT_LENGTH] for x in texts.values])


_OF_TEXTS: Columns = {"error_code": lambda rows: coded(rows["error_code"]), "error_text": _error_text}
_OF_ERRORS: Columns = {**OF_MESSAGES, "client": OF_MESSAGES["client_ip"], **_OF_TEXTS}
_OF_ANSWERS: Columns = {**OF_CONNECTIONS, **_OF_TEXTS}


class _Repeats:
    """Recognises deliveries of a message to a consumer that has got it before.

    The consumer is the subscription, where the request that a delivery answers names one, else the connection. Where a
    mark says what is redelivered, it is the client's name and the correlation id.
    """

    def __init__(self) -> None:
        self._known = np.empty(0, np.int64)
        self._first: set[int] = set()
        """Deliveries without the mark that their protocol has."""
        self._consumers: dict[int, int] = {}
        """By delivery the hash of its subscription."""

    @property
    def carried(self) -> frozenset[Carried]:
        """The columns of requests that name subscriptions."""
        rules = {name: protocol.acknowledgement for name, protocol in protocols().items()}
        return frozenset((name, rule.scope) for name, rule in rules.items() if rule is not None and rule.scope)

    def take_exchanges(self, rows: pa.Table) -> None:
        """Record the subscriptions of deliveries, which answer requests."""
        if not rows.num_rows:
            return
        protocol = protocols()[rows["protocol"][0].as_py()]
        rule = protocol.acknowledgement
        if rule is None or rule.scope is None:
            return
        scopes = rows[f"request.{protocol.name}.{rule.scope}"]
        named = true_mask(pc.and_(scopes.is_valid(), rows["reply_offset"].is_valid()))
        named &= is_in(rows["op"], *protocol.roles.poll)
        if len(self._consumers) < MAX_TRACKED:
            subscriptions = map(hash, scopes.filter(pa.array(named)).to_pylist())
            self._consumers.update(zip(reply_keys(rows)[named].tolist(), subscriptions, strict=True))

    @property
    def reads(self) -> frozenset[Carried]:
        """The columns of messages that are read, those with a mark among them."""
        marks = {(name, x.redelivered[0]) for name, x in protocols().items() if x.redelivered is not None}
        return of_messages(*KEYS, "protocol", "op", "client_name", "correlation_id") | marks

    def take_fields(self, output: Output) -> None:
        """Record the clients of deliveries that may have the mark."""
        protocol, rows, fields = protocols()[output.protocol or ""], output.rows, output.fields
        mark = protocol.redelivered
        if mark is None or fields is None or len(self._consumers) >= MAX_TRACKED:
            return
        is_delivery = is_in(rows["direction"], "s2c") & is_in(rows["op"], *protocol.roles.deliver)
        keys, kept = message_keys(rows)[is_delivery].tolist(), pa.array(np.flatnonzero(is_delivery))
        clients = pc.coalesce(rows["client_name"].cast(pa.string()), rows["connection_id"].cast(pa.string()))
        consumers = zip(*(x.take(kept).to_pylist() for x in (clients, rows["correlation_id"])), strict=True)
        self._consumers.update(zip(keys, map(hash, consumers), strict=True))
        has_mark = is_in(fields[mark[0]].take(kept), mark[1]).tolist()
        self._first.update(key for key, is_marked in zip(keys, has_mark, strict=True) if not is_marked)

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Whether each row's publish was delivered to its consumer earlier."""
        published = stream_keys(
            rows["publish_connection_id"], rows["publish_offset"], np.zeros(rows.num_rows, np.bool_)
        )
        with np.errstate(over="ignore"):
            ways = published * 3 + self._consumers_of(rows)
        is_again = np.isin(ways, self._known)
        is_again[np.setdiff1d(np.arange(len(ways)), np.unique(ways, return_index=True)[1])] = True
        self._known = np.concatenate([self._known, ways[~is_again]])[-MAX_TRACKED:]
        if self._first:
            delivered = _delivered(rows).tolist()
            is_again &= np.array([key not in self._first for key in delivered], np.bool_)
            self._first.difference_update(delivered)
        return is_again

    def _consumers_of(self, rows: pa.Table) -> Int64Array:
        connections: Int64Array = rows["deliver_connection_id"].to_numpy()
        if not self._consumers:
            return connections
        consumers = map(self._consumers.pop, _delivered(rows).tolist(), connections.tolist())
        return np.fromiter(consumers, np.int64, rows.num_rows)


def _delivered(rows: pa.Table) -> Int64Array:
    """The keys of delivered messages."""
    return stream_keys(rows["deliver_connection_id"], rows["deliver_offset"], np.ones(rows.num_rows, np.bool_))


class DeliveriesByTopic(SumCounter):
    """Deliveries of published messages and their latencies, by topic."""

    def __init__(self) -> None:
        self.sums = Sums(("protocol", "topic", "how"), ("delivered", "again"))
        self._latencies = Latencies()
        self._repeats = _Repeats()
        self.take_exchanges, self.carried = self._repeats.take_exchanges, self._repeats.carried
        self.take_fields, self.reads = self._repeats.take_fields, self._repeats.reads

    def take_deliveries(self, rows: pa.Table) -> None:
        """Count rows of ``deliveries``."""
        groups = self.sums.groups(OF_EXCHANGES, rows)
        self.sums.add("delivered", groups)
        is_timed = rows["latency_ns"].is_valid().to_numpy()
        self._latencies.add(groups[is_timed], rows["latency_ns"].drop_null().to_numpy())
        self.sums.add("again", groups[self._repeats.mask(rows)])

    def cells(self, rows: Sequence[Cells]) -> Iterator[Cells]:
        """The latencies of each group."""
        return (summary.cells() for summary in self._latencies.summaries(PERCENTS, len(rows)))


_PLACES = ("first_packet", "capture_file")


class DeliveryList:
    """Single deliveries, at most MAX_LISTED: rows of ``deliveries`` with the packets and ends of both messages."""

    needs_numbers = True

    def __init__(self) -> None:
        self.dropped_count = 0
        self._rows: list[dict[str, Any]] = []
        self._open: list[dict[str, Any]] = []
        """Rows of the capture that is being read."""
        self._repeats = _Repeats()
        self.take_exchanges, self.carried = self._repeats.take_exchanges, self._repeats.carried
        self.take_fields, self.reads = self._repeats.take_fields, self._repeats.reads | of_messages(*_PLACES)
        self._indexed: deque[Int64Array] = deque()
        """Keys, packets and files of publishes and deliveries, of each batch an array with three rows."""
        self._indexed_count = 0
        self._files = _FileNumbers()
        self._connections: dict[int, tuple[str, str, str]] = {}
        """By connection_id its name, client and server."""

    def take_messages(self, rows: pa.Table) -> None:
        """Record the packets of messages that may be published or delivered."""
        if not rows.num_rows:
            return
        roles = protocols()[rows["protocol"][0].as_py()].roles
        from_client = is_in(rows["direction"], "c2s")
        kept = from_client & is_in(rows["op"], *roles.publish)
        kept |= ~from_client & is_in(rows["op"], *roles.deliver, *roles.poll)
        columns = message_keys(rows), rows["first_packet"].to_numpy(), self._files.of(rows)
        self._indexed.append(np.array(columns)[:, kept])
        self._indexed_count += int(kept.sum())
        while self._indexed_count - self._indexed[0].shape[1] > MAX_INDEXED:
            self._indexed_count -= self._indexed.popleft().shape[1]

    def take_deliveries(self, rows: pa.Table) -> None:
        """Keep rows of ``deliveries``."""
        capacity = max(MAX_LISTED - len(self._rows) - len(self._open), 0)
        again = self._repeats.mask(rows).tolist()
        kept = zip(rows.slice(0, capacity).to_pylist(), again, strict=False)
        self._open += [{**row, "again": int(is_again)} for row, is_again in kept]
        self.dropped_count += max(rows.num_rows - capacity, 0)

    def take_connections(self, rows: pa.Table) -> None:
        """Record the ends of connections."""
        for row in rows.slice(0, max(MAX_CONVERSATIONS - len(self._connections), 0)).to_pylist():
            ends = with_ends(row)
            self._connections[row["connection_id"]] = f"c{row[CONNECTION_NUMBER]}", ends["client"], ends["server"]

    def end_of_capture(self) -> None:
        """All rows of a capture were taken: find their messages and connections."""
        indexed = np.concatenate([np.empty((3, 0), np.int64), *self._indexed], axis=1)
        keys, packets, numbers = indexed[:, np.argsort(indexed[0], kind="stable")]
        files = list(self._files)
        for row in self._open:
            for end, direction in (("publish", "c2s"), ("deliver", "s2c")):
                connection_id = row[f"{end}_connection_id"]
                key = message_key(connection_id, direction, row[f"{end}_offset"])
                i = int(np.searchsorted(keys, key))
                is_known = i < len(keys) and keys[i] == key
                name, client, server = self._connections.get(connection_id, (None, None, None))
                row |= {f"{end}_connection": name, f"{end}_client": client, "server": server}
                row[f"{end}_packet"] = int(packets[i]) if is_known else None
                row[f"{end}_file"] = files[numbers[i]] if is_known else row["capture"]
            row["deliver_file"] = None if row["deliver_file"] == row["publish_file"] else row["deliver_file"]
        self._rows += self._open
        self._open, self._indexed, self._connections = [], deque(), {}
        self._indexed_count = 0

    def rows(self) -> list[Cells]:
        """The rows in order of time."""
        names = ("deliver_ts_ns", "capture", "deliver_connection_id", "deliver_offset")
        return sorted(({**row, "topic": row["destination"]} for row in self._rows), key=itemgetter(*names))

    def notes(self) -> list[str]:
        """A note if there were too many."""
        dropped = plural(self.dropped_count, "more delivery", "more deliveries")
        return [f"{dropped} of the inputs"] if self.dropped_count else []


class Conversations:
    """Connections of any protocol: rows of ``connections`` with their numbers, at most MAX_CONVERSATIONS."""

    needs_numbers = True

    def __init__(self) -> None:
        self.dropped_count = 0
        self._rows: list[dict[str, Any]] = []

    def take_connections(self, rows: pa.Table) -> None:
        """Keep rows of ``connections``."""
        capacity = max(MAX_CONVERSATIONS - len(self._rows), 0)
        self._rows += rows.slice(0, capacity).to_pylist()
        self.dropped_count += max(rows.num_rows - capacity, 0)

    def rows(self) -> list[Cells]:
        """Rows with name and ends, duration, and bytes per second of each side; the most payload first."""

        def place(row: Mapping[str, Any]) -> tuple[int, str, int]:
            return -sum(row[f"bytes_{side}"] for side in DIRECTIONS), str(row["capture"]), row[CONNECTION_NUMBER]

        return sorted(map(self._with_rates, self._rows), key=place)

    def notes(self) -> list[str]:
        """A note if there were too many connections."""
        return [f"{plural(self.dropped_count, 'more connection')} of the inputs"] if self.dropped_count else []

    def _with_rates(self, row: dict[str, Any]) -> dict[str, Any]:
        duration_ns = row["last_ts_ns"] - row["first_ts_ns"]
        rates = {
            f"rate_{side}": row[f"bytes_{side}"] * 1_000_000_000 // duration_ns if duration_ns else None
            for side in DIRECTIONS
        }
        return with_ends(row) | rates | {"duration_ns": duration_ns, "connection": f"c{row[CONNECTION_NUMBER]}"}


class Hosts(SumCounter):
    """Connections and payload bytes by host, sent and received, in whichever role."""

    names = ("connections", "messages_sent", "messages_received", "bytes_sent", "bytes_received")

    def __init__(self) -> None:
        self.sums = Sums(("host",), self.names)

    def cells(self, rows: Sequence[Cells]) -> Iterator[Cells]:
        """The payload of both sides."""
        return _payload(self.names, rows)

    def take_connections(self, rows: pa.Table) -> None:
        """Count rows of ``connections``, for both hosts."""
        for end, sent, received in (("client", "c2s", "s2c"), ("server", "s2c", "c2s")):
            groups = self.sums.groups({"host": partial(text, f"{end}_ip")}, rows)
            is_new = np.ones(rows.num_rows, np.int64)
            if end == "server":  # a connection of a host with itself counts once
                clients, servers = (rows[f"{x}_ip"].cast(pa.string()) for x in ("client", "server"))
                is_new = pc.not_equal(clients, servers).to_numpy().astype(np.int64)
            self.sums.add("connections", groups, is_new)
            for name, side in (("sent", sent), ("received", received)):
                self.sums.add(f"messages_{name}", groups, rows[f"messages_{side}"].to_numpy())
                self.sums.add(f"bytes_{name}", groups, rows[f"bytes_{side}"].to_numpy())


def _payload(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Iterator[Cells]:
    return ({"payload": sum(row[name] for name in names if name.startswith("bytes_"))} for row in rows)


class Talkers(SumCounter):
    """Connections, messages and payload bytes by client, server and protocol, also of foreign protocols."""

    names = ("connections", *(f"{what}_{side}" for what in ("messages", "bytes") for side in ("c2s", "s2c")))

    def __init__(self, key_names: tuple[str, ...] = ("protocol", "client", "server")) -> None:
        self.sums = Sums(key_names, self.names)

    def cells(self, rows: Sequence[Cells]) -> Iterator[Cells]:
        """The payload of both sides."""
        return _payload(self.names, rows)

    def take_connections(self, rows: pa.Table) -> None:
        """Count rows of ``connections``."""
        groups = self.sums.groups(OF_CONNECTIONS, rows)
        self.sums.add("connections", groups)
        for name in self.names[1:]:
            self.sums.add(name, groups, rows[name].to_numpy())
