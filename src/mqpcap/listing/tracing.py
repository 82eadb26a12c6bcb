"""Follows published messages through their deliveries and the acknowledgements of these.

In: captures, and an id or a packet of a message. Out: `Trace` objects, as lines for people or as JSON. Called by:
``follow``.

A capture is read twice. The first pass finds published messages, and collects all deliveries and pairs in temporary
files. The second pass reads the rows of the messages that are traced, and finds the acknowledgements of their
deliveries. A packet is searched for in a pass of its own, which ends there.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, append_columns, is_in, true_mask
from mqpcap.capture import Capture
from mqpcap.listing.connection_search import read_again
from mqpcap.listing.explained_messages import PacketName
from mqpcap.listing.extra_columns import NUMBERED
from mqpcap.listing.field_lines import message_object
from mqpcap.listing.message_lines import ROOMY_WIDTH, Style, body_of, line
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.message_search import MessageSearch, PacketSearch
from mqpcap.listing.message_words import latency
from mqpcap.listing.redeliveries import RECEIPT, Redeliveries, receipt_columns, receipts
from mqpcap.protocols import protocols
from mqpcap.reading import Meter, Outcome, read, wired
from mqpcap.schema.requests import Acknowledgement
from mqpcap.tables.json_lines import Json
from mqpcap.tables.message_keys import message_key, message_keys, reply_keys, request_keys, stream_keys
from mqpcap.tables.output import Output
from mqpcap.tables.schemas import DELIVERIES, plain
from mqpcap.tables.spilled_rows import SpilledRows
from mqpcap.wording import endpoint, plural

MAX_TRACES = 100
"""Published messages that are traced if an id is not unique."""
MAX_DELIVERIES = 10_000
"""Deliveries that are traced."""
STEP_WIDTH = 30
"""Columns of the words before a line: the step, and the time since the step before."""
INDENT = "    "
_DELIVERIES = pa.schema([*plain(DELIVERIES), *RECEIPT])
Key = tuple[int, str, int]
"""Connection, direction and stream offset of a message."""
ONE_MESSAGE = "--message or --at follows one message; it goes with --json, and with no selection"


@dataclass(frozen=True, slots=True)
class TracedDelivery:
    """One delivery of a published message.

    again: how many earlier deliveries went to the same consumer: the same subscription, else the same connection. 0 is
    a first delivery; a first delivery to a further consumer is fan-out.
    acknowledgement: None if there is none in the capture; is_due: whether the protocol wants one.
    """

    row: MessageRow
    key: str
    how: str
    latency_ns: int | None
    again: int
    is_due: bool
    acknowledgement: MessageRow | None

    @property
    def acknowledged_after_ns(self) -> int | None:
        """From the delivery to its acknowledgement."""
        return None if self.acknowledgement is None else _ns(self.acknowledgement) - _ns(self.row)


Step = Literal["published", "delivered", "acknowledged"]


@dataclass(frozen=True, slots=True)
class Trace:
    """A published message, and its deliveries in order of time; note: why none is known."""

    publish: MessageRow
    deliveries: tuple[TracedDelivery, ...]
    note: str | None = None

    def steps(self) -> Iterator[tuple[Step, MessageRow, TracedDelivery | None]]:
        """The messages: the publish, then each delivery, followed by its acknowledgement."""
        yield "published", self.publish, None
        for delivery in self.deliveries:
            yield "delivered", delivery.row, delivery
            if delivery.acknowledgement is not None:
                yield "acknowledged", delivery.acknowledgement, delivery

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def as_json(self) -> Iterator[Mapping[str, Json]]:
        """The objects that ``follow --message --json`` writes: a message each, as ``show --json``, and its step."""
        for step, row, delivery in self.steps():
            about: dict[str, Json] = {"step": step}
            if delivery is not None:
                is_delivery = step == "delivered"
                about |= {"key": delivery.key, "how": delivery.how, "again": delivery.again}
                about["after_ns"] = delivery.latency_ns if is_delivery else delivery.acknowledged_after_ns
            if self.note is not None:
                about["note"] = self.note
            yield {**message_object(row), "trace": about}

    def lines(self, style: Style | None = None) -> Iterator[str]:
        """The trace for people: a line for each step, and a summary."""
        style = style or Style(utc=True)
        is_wide = style.width is None or style.width >= ROOMY_WIDTH + STEP_WIDTH
        own_width = style.width and style.width - (STEP_WIDTH if is_wide else len(INDENT))
        common = None
        if not is_wide:  # no line repeats what all have in common
            publish = self.publish.message
            common = f"{publish['protocol']}/{publish['dialect']}", endpoint(publish["dst_ip"], publish["dst_port"])
            yield " at ".join(common)
        own_style = replace(style, width=own_width, common=common)
        for step, row, delivery in self.steps():
            words = _step_words(step, delivery)
            text = line(row.message, body_of(row), own_style, row.exchange)
            if is_wide:
                yield f"{words:<{STEP_WIDTH}}{text}"
            else:
                yield style.paint("bold", words)
                yield INDENT + text
        yield self.summary()

    def summary(self) -> str:
        """How many deliveries and acknowledgements there are, in one line."""
        if self.note is not None:
            return self.note
        consumers, again = sum(not x.again for x in self.deliveries), sum(bool(x.again) for x in self.deliveries)
        words = [f"{plural(len(self.deliveries), 'delivery', 'deliveries')} to {plural(consumers, 'consumer')}"]
        words += [f"{again:,} again"] if again else []
        if acknowledged := sum(x.acknowledgement is not None for x in self.deliveries):
            words.append(f"{acknowledged:,} acknowledged")
        if missing := sum(x.is_due and x.acknowledgement is None for x in self.deliveries):
            words.append(f"{missing:,} not acknowledged in the capture")
        return f"{', '.join(words)}; evidence: {self.deliveries[0].how}"


def _step_words(step: Step, delivery: TracedDelivery | None) -> str:
    if delivery is None:
        return step
    if step == "delivered":
        again = " again" if delivery.again else ""
        return f"{step}{again}" + ("" if delivery.latency_ns is None else f" in {latency(delivery.latency_ns)}")
    return f"{step} in {latency(delivery.acknowledged_after_ns or 0)}"


def trace_messages(captures: Sequence[Capture], name: str | PacketName, outcome: Outcome, meter: Meter) -> list[Trace]:
    """The traces of messages with an id, or in a packet, in order of time. Raises LookupError if there is none."""
    read_again(captures)
    traces: list[Trace] = []
    misses: list[str] = []
    if isinstance(name, PacketName):
        name = name.with_path([file for capture in captures for file in capture.files])
    for number, capture in enumerate(captures):
        names = _Names(name) if isinstance(name, str) else _names_of_packet(number, capture, name, outcome, meter)
        if names is None:
            continue
        links = _Links(names)
        links.read(capture, outcome, meter)
        publishes, deliveries, miss = links.traced()
        if publishes:
            outcome.notes.clear()  # those of the second reading are the same
            search = _TraceSearch(number, publishes, deliveries, links.refused)
            search.run(capture, outcome, meter)
            traces += search.traces()
        misses.append(miss)
    if not traces and not outcome.unreadable:
        raise LookupError(misses[0] if misses else f"there is no file {getattr(name, 'file', '')}")
    return traces


def _names_of_packet(
    number: int, capture: Capture, name: PacketName, outcome: Outcome, meter: Meter
) -> "_Names | None":
    """The messages of a packet; None if the packet is in another capture."""
    file = name.index_in(capture.files)
    if file == -1:
        return None
    search = PacketSearch(number, name.number, capture.files, file)
    search.run(capture, outcome, meter)
    rows = search.rows()
    return _Names(f"packet {name.number}", rows, None if rows else search.miss)


class _Names:
    """The traced messages by an id, or as messages of a packet: a publish, a delivery or an answer to either."""

    def __init__(self, text: str, rows: Sequence[MessageRow] | None = None, miss: str | None = None) -> None:
        self.text, self.miss = text, miss
        self.id = text if rows is None else None
        self.keys = {_key(row) for row in rows or ()}
        self.acknowledgements = [row for row in rows or () if _role(row) == "ack"]


def _role(row: MessageRow) -> str | None:
    """The role of a message in the way of another one, None for messages without such a role."""
    roles, op = protocols()[row.protocol].roles, row.message["op"]
    if row.message["direction"] == "s2c":
        return "deliver" if op in roles.deliver | roles.poll else None
    return "publish" if op in roles.publish else "ack" if op in roles.ack else None


def _key(row: MessageRow) -> Key:
    message = row.message
    return int(str(message["connection_id"])), str(message["direction"]), int(str(message["stream_offset"]))


def _ns(row: MessageRow) -> int:
    return int(str(row.message["ts_ns"]))


def _tags(rule: Acknowledgement, fields: pa.Table) -> pa.Array:
    """The tag of each delivery as text, null if none is due."""
    tags = pc.coalesce(*(fields[name].cast(pa.string()) for name in rule.tag))
    if rule.due is not None:
        column, value = rule.due
        tags = pc.if_else(pc.equal(fields[column], value), tags, None)
    return tags


class _Links:
    """The first pass: publishes with the names, and all deliveries and pairs."""

    def __init__(self, names: _Names) -> None:
        self._names = names
        self._publishes: dict[int, Key] = {}
        """Named messages that are publishes, by the number of their key."""
        self._deliveries: set[int] = set()
        """Named messages that are deliveries."""
        self._rows = SpilledRows(_DELIVERIES)
        self.refused: set[int] = set()
        """Acknowledgements that the server refused."""
        self._named = {message_key(*key) for key in names.keys}
        self._acknowledged: dict[Key, int] = {}
        """By named acknowledgement the last delivery that it may acknowledge."""

    def read(self, capture: Capture, outcome: Outcome, meter: Meter) -> None:
        """Read the capture to its end."""
        options = outcome.choices.dissection(only=frozenset({"exchanges", "deliveries"}))
        options = replace(options, carried_by_deliveries=receipt_columns())
        read(wired(capture, options, lambda output, _: self._take(output)), outcome, meter)

    def _take(self, output: Output) -> None:
        if output.table == "deliveries":
            rows = append_columns(output.rows.select(DELIVERIES.names), receipts(output.rows))
            self._rows.append(rows.cast(_DELIVERIES))
        elif output.table == "exchanges":
            self._take_pairs(output.rows)
        elif output.fields is not None and output.protocol is not None:
            self._take_messages(output.protocol, output.rows, output.fields)

    def _take_pairs(self, rows: pa.Table) -> None:
        """Record requests: refused acknowledgements, and those that named replies name, too."""
        is_paired = rows["request_offset"].is_valid()
        acks = protocols()[rows["protocol"][0].as_py()].roles.ack if rows.num_rows else ()
        refused = true_mask(is_paired) & is_in(rows["status"], "error") & is_in(rows["op"], *acks)
        self.refused.update(request_keys(rows)[refused].tolist())
        named = pc.and_(is_paired, pa.array(np.isin(reply_keys(rows), list(self._named))))
        for pair in rows.filter(pc.and_(named, pc.equal(rows["request_direction"], "c2s"))).to_pylist():
            key = pair["connection_id"], "c2s", pair["request_offset"]
            self._publishes[message_key(*key)] = key  # if it is none, it has no delivery

    def _take_messages(self, protocol: str, rows: pa.Table, fields: pa.Table) -> None:
        roles = protocols()[protocol].roles
        from_client = is_in(rows["direction"], "c2s")
        publishes = from_client & is_in(rows["op"], *roles.publish)
        delivers = ~from_client & is_in(rows["op"], *roles.deliver, *roles.poll)
        numbers = message_keys(rows)
        if self._names.id is None:
            named = np.isin(numbers, list(self._named))
            self._note_acknowledged(protocol, rows, fields, delivers, numbers)
        else:
            named = is_in(rows["message_id"], self._names.id)
            named |= publishes & is_in(rows["correlation_id"], self._names.id)
        self._deliveries.update(numbers[named & delivers].tolist())
        for i in np.flatnonzero(named & publishes).tolist():
            key = rows["connection_id"][i].as_py(), "c2s", rows["stream_offset"][i].as_py()
            self._publishes[int(numbers[i])] = key

    def _note_acknowledged(
        self, protocol: str, rows: pa.Table, fields: pa.Table, delivers: NDArray[np.bool_], numbers: Int64Array
    ) -> None:
        """Look for the deliveries that named acknowledgements are of."""
        rule = protocols()[protocol].acknowledgement
        for acknowledgement in self._names.acknowledgements:
            if rule is None or not rule.tag or acknowledgement.protocol != protocol:
                continue
            is_before = rows["ts_ns"].to_numpy() <= _ns(acknowledgement)
            is_sent = true_mask(pc.equal(rows["connection_id"], acknowledgement.message["connection_id"]))
            tagged = is_in(_tags(rule, fields), str(acknowledgement.fields[rule.column]))
            indexes = np.flatnonzero(delivers & is_before & is_sent & tagged)
            if len(indexes):
                self._acknowledged[_key(acknowledgement)] = int(numbers[indexes[-1]])

    def traced(self) -> tuple[dict[int, Key], pa.Table, str]:
        """The traced publishes, all of their deliveries in order of time, and the reason if there is no publish."""
        rows = self._rows.table().combine_chunks()
        from_server = np.ones(rows.num_rows, np.bool_)
        published = stream_keys(rows["publish_connection_id"], rows["publish_offset"], ~from_server)
        delivered = stream_keys(rows["deliver_connection_id"], rows["deliver_offset"], from_server)
        named_deliveries = self._deliveries | set(self._acknowledged.values())
        is_named = np.isin(delivered, list(named_deliveries))
        if self._names.id is not None:
            is_named |= true_mask(pc.equal(rows["key"], self._names.id))
        for row in rows.filter(pa.array(is_named)).slice(0, MAX_DELIVERIES).to_pylist():
            key = row["publish_connection_id"], "c2s", row["publish_offset"]
            self._publishes[message_key(*key)] = key
        kept = {number: self._publishes[number] for number in list(self._publishes)[:MAX_TRACES]}
        traced = rows.filter(pa.array(np.isin(published, list(kept)))).sort_by("deliver_ts_ns").slice(0, MAX_DELIVERIES)
        again = Redeliveries().counts(traced)
        return kept, traced.append_column("again", pa.array(again)), self._miss(bool(named_deliveries))

    def _miss(self, is_delivery: bool) -> str:
        if is_delivery:
            return f"{self._names.text} is a delivery; nothing in the capture proves which publish it is of"
        if self._names.id is not None:
            return f"no message is published with the id {self._names.text}; ids are those of show, keys of deliveries"
        return self._names.miss or f"{self._names.text} has no message that is published, delivered or acknowledged"


class _TraceSearch(MessageSearch):
    """The second pass: rows of the traced messages, and the acknowledgements of their deliveries."""

    columns = NUMBERED

    def __init__(
        self, number: int, publishes: Mapping[int, Key], deliveries: pa.Table, refused: Collection[int]
    ) -> None:
        super().__init__(number)
        self._publishes, self._deliveries = publishes, deliveries.to_pylist()
        self._delivered: dict[int, list[dict[str, Any]]] = {}
        """By delivered message its rows of ``deliveries``."""
        for row in self._deliveries:
            number = message_key(row["deliver_connection_id"], "s2c", row["deliver_offset"])
            self._delivered.setdefault(number, []).append(row)
        self._positions: dict[int, list[tuple[object, int]]] = {}
        """By delivery the topic, partition and offset of each traced message in it."""
        self._refused = np.array(list(refused), np.int64)
        self._wanted = np.array([*publishes, *self._delivered], np.int64)
        self._connections = pa.array({row["deliver_connection_id"] for row in self._deliveries}, pa.int64())
        self._due: dict[int, object] = {}
        """Deliveries that are to be acknowledged, with their tags."""
        self._open: dict[int, list[int]] = {}
        """By connection its deliveries that are not acknowledged yet, in order of time."""
        self._acknowledged: dict[int, Key] = {}
        """By delivery its acknowledgement."""

    def _found(self, output: Output) -> NDArray[np.bool_]:
        assert output.protocol is not None and output.fields is not None
        rows, fields = output.rows, output.fields
        numbers = message_keys(rows)
        wanted: NDArray[np.bool_] = np.isin(numbers, self._wanted)
        protocol = protocols()[output.protocol]
        rule = protocol.acknowledgement
        if rule is None or not self._delivered:
            return wanted
        tags = _tags(rule, fields) if rule.tag else None
        from_client = is_in(rows["direction"], "c2s")
        ours = true_mask(pc.is_in(rows["connection_id"], self._connections))
        acks = ours & from_client & is_in(rows["op"], *protocol.roles.ack) & ~np.isin(numbers, self._refused)
        ts_ns = rows["ts_ns"].to_numpy()
        relevant = np.flatnonzero(wanted | acks)
        for i in relevant[np.argsort(ts_ns[relevant], kind="stable")].tolist():
            number, connection_id = int(numbers[i]), rows["connection_id"][i].as_py()
            if number in self._delivered:
                tag = None if tags is None else tags[i].as_py()
                if tags is None:
                    self._positions[number] = self._offsets_in(number)
                if tags is None or tag is not None:
                    self._due[number] = tag
                    self._open.setdefault(connection_id, []).append(number)
            elif acks[i]:
                value, place = fields[rule.column][i].as_py(), _partition(rows, i)
                scope = None if rule.scope is None else fields[rule.scope].cast(pa.string())[i].as_py()
                for delivery in self._handled(rule, self._open.get(connection_id, []), value, place, scope):
                    self._acknowledged[delivery] = connection_id, "c2s", rows["stream_offset"][i].as_py()
                    self._open[connection_id].remove(delivery)
                    wanted[i] = True
        return wanted

    def _handled(
        self, rule: Acknowledgement, open_deliveries: Sequence[int], value: object, place: object, scope: object
    ) -> list[int]:
        """The open deliveries that are acknowledged: the last with a tag, or all before a position."""
        if not rule.tag:
            return [
                number for number in open_deliveries
                if any(x == place and offset < int(str(value)) for x, offset in self._positions[number])
            ]  # fmt: skip
        tagged = [x for x in open_deliveries if self._due[x] == str(value)]
        return [x for x in tagged if self._delivered[x][0]["scope"] in (None, scope)][-1:]

    def _offsets_in(self, delivery: int) -> list[tuple[object, int]]:
        keys = [(row["destination"], *row["key"].rpartition(":")[::2]) for row in self._delivered[delivery]]
        return [((destination, int(partition)), int(offset)) for destination, partition, offset in keys]

    def _is_over(self) -> bool:
        return False

    def traces(self) -> list[Trace]:
        """The traces in order of time."""
        rows = {_key(row): row for row in self.rows()}
        by_publish: dict[Key, list[TracedDelivery]] = {key: [] for key in self._publishes.values()}
        for row in self._deliveries:
            publish = row["publish_connection_id"], "c2s", row["publish_offset"]
            key = row["deliver_connection_id"], "s2c", row["deliver_offset"]
            number = message_key(*key)
            acknowledgement = self._acknowledged.get(number)
            if key in rows:
                by_publish[publish].append(TracedDelivery(
                    rows[key], row["key"], row["how"], row["latency_ns"], row["again"],
                    self._due.get(number) is not None, None if acknowledgement is None else rows.get(acknowledgement),
                ))  # fmt: skip
        traces = [
            Trace(rows[key], tuple(deliveries), None if deliveries else _why_none(rows[key]))
            for key, deliveries in by_publish.items() if key in rows and _role(rows[key]) == "publish"
        ]  # fmt: skip
        return sorted(traces, key=lambda trace: trace.publish.order)


def _partition(rows: pa.Table, i: int) -> tuple[object, object]:
    return rows["destination"][i].as_py(), rows["partition_id"][i].as_py()


def _why_none(publish: MessageRow) -> str:
    """Why no delivery of a published message is known."""
    rule = protocols()[publish.protocol].rule
    if rule is None or rule.deliveries is None:
        return f"{publish.protocol}: nothing that a client receives says which publish it is of"
    if publish.exchange is not None and publish.exchange.status == "error":
        return "the publish was refused"
    return "no delivery in the capture is certainly of this publish"
