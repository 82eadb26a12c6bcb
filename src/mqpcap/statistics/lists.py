"""Lists: the slowest requests, errors by code and text, deliveries by topic, traffic by client and server."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import Int64Array, is_in
from mqpcap.listing.redeliveries import Redeliveries, receipt_columns, receipts
from mqpcap.schema.protocol import DIRECTIONS
from mqpcap.statistics.groups import SumCounter, Sums
from mqpcap.statistics.keys import OF_CONNECTIONS, OF_EXCHANGES, OF_MESSAGES, Coded, Columns, coded, text
from mqpcap.statistics.latencies import PERCENTS, Latencies
from mqpcap.statistics.report_columns import Cells
from mqpcap.tables.message_keys import message_keys, reply_keys
from mqpcap.tables.messages import ENDPOINTS
from mqpcap.tables.output import CarriedByDeliveries, end_rows, of_messages
from mqpcap.tables.schemas import CONNECTION_NUMBER, EXCHANGES, KEYS
from mqpcap.wording import endpoint, plural

MAX_CONVERSATIONS = 1 << 16
"""Connections that are listed; about 2 kB each."""
MAX_LISTED = 1 << 16
"""Deliveries that are listed; about 1 kB each."""
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


class DeliveriesByTopic(SumCounter):
    """Deliveries of published messages and their latencies, by topic."""

    def __init__(self) -> None:
        self.sums = Sums(("protocol", "topic", "how"), ("delivered", "again"))
        self._latencies = Latencies()
        self._redeliveries = Redeliveries()
        self.carried_by_deliveries = receipt_columns()

    def take_deliveries(self, rows: pa.Table) -> None:
        """Count rows of ``deliveries``."""
        groups = self.sums.groups(OF_EXCHANGES, rows)
        self.sums.add("delivered", groups)
        is_timed = rows["latency_ns"].is_valid().to_numpy()
        self._latencies.add(groups[is_timed], rows["latency_ns"].drop_null().to_numpy())
        self.sums.add("again", groups[self._redeliveries.counts(receipts(rows)) > 0])

    def cells(self, rows: Sequence[Cells]) -> Iterator[Cells]:
        """The latencies of each group."""
        return (summary.cells() for summary in self._latencies.summaries(PERCENTS, len(rows)))


_OF_ENDS = {"packet": "first_packet", "file": "capture_file", "connection": CONNECTION_NUMBER}


class RowList:
    """Rows of a table with numbers of connections, at most a number; a note counts the others."""

    needs_numbers = True
    words: tuple[str, ...] = ()
    """The noun of a dropped row, and its plural."""

    def __init__(self) -> None:
        self.dropped_count = 0
        self._rows: list[dict[str, Any]] = []

    def _kept(self, rows: pa.Table, max_rows: int) -> list[dict[str, Any]]:
        """The rows that are listed, those before all others."""
        capacity = max(max_rows - len(self._rows), 0)
        self.dropped_count += max(rows.num_rows - capacity, 0)
        kept: list[dict[str, Any]] = rows.slice(0, capacity).to_pylist()
        return kept

    def notes(self) -> list[str]:
        """A note if there were too many."""
        return [f"{plural(self.dropped_count, *self.words)} of the inputs"] if self.dropped_count else []


class DeliveryList(RowList):
    """Single deliveries, at most MAX_LISTED: rows of ``deliveries`` with the packets and ends of both messages."""

    words = "more delivery", "more deliveries"

    def __init__(self) -> None:
        super().__init__()
        self._redeliveries = Redeliveries()
        columns = (*_OF_ENDS.values(), *ENDPOINTS)
        of_ends: set[CarriedByDeliveries] = {(end, "messages", x) for end in ("publish", "deliver") for x in columns}
        self.carried_by_deliveries = receipt_columns() | of_ends

    def take_deliveries(self, rows: pa.Table) -> None:
        """Keep rows of ``deliveries``."""
        again = (self._redeliveries.counts(receipts(rows)) > 0).tolist()
        kept = zip(self._kept(rows, MAX_LISTED), again, strict=False)
        self._rows += [_with_both_ends(row) | {"again": int(is_again)} for row, is_again in kept]

    def rows(self) -> list[Cells]:
        """The rows in order of time."""
        names = ("deliver_ts_ns", "capture", "deliver_connection_id", "deliver_offset")
        return sorted(({**row, "topic": row["destination"]} for row in self._rows), key=itemgetter(*names))


def _with_both_ends(row: dict[str, Any]) -> dict[str, Any]:
    """A row of ``deliveries`` with the carried columns of both messages, by their names in the report."""
    both = {name: x for name, x in row.items() if "." not in name}
    for end, client in (("publish", "src"), ("deliver", "dst")):
        carried = {name.rpartition(".")[2]: x for name, x in row.items() if name.startswith(f"{end}.messages.")}
        both |= {f"{end}_{name}": carried[column] for name, column in _OF_ENDS.items()}
        both[f"{end}_client"] = endpoint(carried[f"{client}_ip"], carried[f"{client}_port"])
        both[f"{end}_connection"] = f"c{carried[CONNECTION_NUMBER]}"
    both["server"] = endpoint(carried["src_ip"], carried["src_port"])
    return both | {"deliver_file": None if both["deliver_file"] == both["publish_file"] else both["deliver_file"]}


class Conversations(RowList):
    """Connections of any protocol: rows of ``connections`` with their numbers, at most MAX_CONVERSATIONS."""

    words = ("more connection",)

    def take_connections(self, rows: pa.Table) -> None:
        """Keep rows of ``connections``."""
        self._rows += self._kept(rows, MAX_CONVERSATIONS)

    def rows(self) -> list[Cells]:
        """Rows with name and ends, duration, and bytes per second of each side; the most payload first."""

        def place(row: Mapping[str, Any]) -> tuple[int, str, int]:
            return -sum(row[f"bytes_{side}"] for side in DIRECTIONS), str(row["capture"]), row[CONNECTION_NUMBER]

        return sorted(map(self._with_rates, self._rows), key=place)

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
