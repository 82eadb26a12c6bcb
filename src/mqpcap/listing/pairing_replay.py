"""The replay of one connection's pairing: what each reply may have answered, and why it was decided as it was.

In: captures and a connection. Out: `PairingReplay`, as lines for people or as an object for JSON. Called by:
``explain --pairing``. The capture is read twice: once to find the connection, once to replay it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow.compute as pc

from mqpcap.capture import Capture
from mqpcap.correlate import Correlation
from mqpcap.correlate.replay import ANY, MAX_STEPS, MISSING, Replay, Step
from mqpcap.listing.connection_search import SelectedConnection, find_connection
from mqpcap.listing.explained_messages import PacketName
from mqpcap.listing.extra_columns import NUMBERED
from mqpcap.query import Query
from mqpcap.reading import Meter, Outcome, read, wired
from mqpcap.schema.protocol import other_direction
from mqpcap.schema.requests import Evidence
from mqpcap.tables.json_lines import Json
from mqpcap.tables.output import Output
from mqpcap.wording import plural, shown

CONTEXT_STEPS = 10
"""Steps that are shown before and after each step of the target."""
MAX_LINES = 200
"""Lines of a replay for people; further lines are counted."""
MAX_MESSAGES = 4 * MAX_STEPS
"""Messages whose packet and operation are remembered."""
Key = tuple[str, int]
"""Direction and stream offset of a message."""


class MessageName(NamedTuple):
    """Packet, operation and destination of a message, as a replay shows it."""

    packet: int
    op: str | None
    destination: str | None


@dataclass(frozen=True, slots=True)
class PairingReplay:
    """How the requests and replies of one connection were paired.

    replays     the steps of each request group, in order
    messages    packet, operation and destination of its messages
    states      state and evidence by message; a pair has one entry, at its request
    """

    connection: SelectedConnection
    replays: Sequence[Replay]
    messages: Mapping[Key, MessageName]
    states: Mapping[Key, tuple[str, str | None]]
    targets: Set[Key] = frozenset()
    """The messages around which lines are shown, if there are many."""

    def as_json(self) -> dict[str, Json]:
        """The object that ``explain --pairing --json`` writes."""
        row = self.connection.row
        return {
            "connection": f"c{self.connection.number}",
            "connection_id": str(self.connection.id),
            "client": self.connection.end("client"),
            "server": self.connection.end("server"),
            "protocol": None if row["protocol"] is None else str(row["protocol"]),
            "groups": [
                {
                    "replies": "by name" if replay.by_name else "in order",
                    **({"requests": replay.side} if replay.side == "s2c" else {}),
                    "steps": [*map(self._of_side(replay.side)._step_object, replay.steps)],
                    "steps_left_out": replay.left_out_count,
                }
                for replay in self.replays
                if len(replay.steps) > 1
            ],
        }

    def _step_object(self, step: Step) -> Json:
        values: dict[str, Json] = {"step": step.kind}
        if step.kind == "start":
            return values | {"open_requests": "any number" if step.size else "none"}
        if step.text:
            values["text"] = step.text
        if step.kind in ("reply", "unpaired"):
            values["reply_packet"] = self._packet("s2c", step.offset)
            values |= {"first": self._place(step.earliest), "last": self._place(step.latest), "candidates": step.size}
        elif step.kind == "request":
            state, _ = self.states.get(("c2s", step.offset), (None, None))
            values |= {"request_packet": self._packet("c2s", step.offset), "open_requests": step.size, "state": state}
        elif step.kind == "pair":
            values["request_packet"] = self._packet("c2s", step.earliest)
            values["reply_packet"] = self._packet("s2c", step.offset)
            values |= {"state": "likely" if step.is_likely else "answered", "how": _evidence(step)}
        elif step.kind == "hole":
            values["at_most"] = step.size
        return values

    def _of_side(self, side: str) -> "PairingReplay":
        """The replay of requests of a side: it reads as if the client asked."""
        if side == "c2s":
            return self
        messages: dict[Key, MessageName] = {(other_direction(d), offset): x for (d, offset), x in self.messages.items()}
        states: dict[Key, tuple[str, str | None]]
        states = {(other_direction(d), offset): x for (d, offset), x in self.states.items()}
        targets = {(other_direction(d), offset) for d, offset in self.targets}
        return replace(self, messages=messages, states=states, targets=targets)

    def _packet(self, direction: str, offset: int) -> int | None:
        message = self.messages.get((direction, offset))
        return None if message is None else message.packet

    def _place(self, offset: int) -> Json:
        return {ANY: "any number of requests", MISSING: "missing request"}.get(offset) or self._packet("c2s", offset)

    def lines(self) -> Iterator[str]:
        """The replay for people, at most `MAX_LINES` lines and a heading."""
        ends = f"{self.connection.end('client')} -> {self.connection.end('server')}"
        protocol = self.connection.row["protocol"] or "no protocol that is known here"
        yield f"c{self.connection.number}  {ends}  {protocol}"
        replays = [replay for replay in self.replays if len(replay.steps) > 1]
        if not replays:
            yield "no request that may get a reply, and no reply"
        for number, replay in enumerate(replays, 1):
            kind = "replies repeat a name of their request" if replay.by_name else "replies keep the order of requests"
            kind += ", requests of the server" if replay.side == "s2c" else ""
            yield f"group {number} of {len(replays)}: {kind}" if len(replays) > 1 else kind
            lines = list(self._of_side(replay.side)._lines_of(replay))
            yield from lines[:MAX_LINES]
            more_count = max(len(lines) - MAX_LINES, 0) + replay.left_out_count
            if more_count:
                yield f"{plural(more_count, 'more line')}; --at PACKET shows those of a message"

    def _lines_of(self, replay: Replay) -> Iterator[str]:
        steps, folded = list(replay.steps), _folded(replay.steps)
        numbers = _around(steps, self.targets) if self.targets and len(folded) > MAX_LINES else []
        if not numbers:
            yield from self._step_lines(folded)
        for number, previous in zip(numbers, [-1, *numbers], strict=False):
            if number > previous + 1:
                yield f"  ... {plural(number - previous - 1, 'step')}"
            yield from self._step_lines(steps[number : number + 1])

    def _step_lines(self, steps: "Sequence[Step | list[Step]]") -> Iterator[str]:
        for step in steps:
            if isinstance(step, list):
                begin, end = (self._words("s2c", pair.offset) for pair in (step[0], step[-1]))
                how = _evidence(step[0])
                yield f"  {len(step):,} replies, {begin} to {end}: each answers the only open request ({how})"
            else:
                yield _LINES[step.kind](self, step)

    def _words(self, direction: str, offset: int) -> str:
        message = self.messages.get((direction, offset))
        if message is None:
            return f"{'a request' if direction == 'c2s' else 'a reply'} at {offset}"
        return " ".join([f"#{message.packet}", *(shown(x[:40]) for x in message[1:] if x is not None)])

    def _candidates(self, step: Step) -> str:
        if not step.size:
            return "no captured request"
        earliest, latest = (_NAMES.get(x) or self._words("c2s", x) for x in (step.earliest, step.latest))
        if earliest == latest:
            return earliest
        return f"{earliest} up to {latest} ({step.size:,} places)"

    def _request_line(self, step: Step) -> str:
        state, how = self.states.get(("c2s", step.offset), ("", None))
        result = f": {state}{f' ({how})' if how else ''}" if state else ""
        return f"  request {self._words('c2s', step.offset)}{result}; ring {step.size:,}"

    def _reply_line(self, step: Step) -> str:
        name = "a reply that may be missing" if step.offset == MISSING else f"reply {self._words('s2c', step.offset)}"
        return f"  {name} may answer {self._candidates(step)}"

    def _pair_line(self, step: Step) -> str:
        state = "likely" if step.is_likely else "certain"
        pair = f"{self._words('s2c', step.offset)} answers {self._words('c2s', step.earliest)}"
        return f"  => {pair}: {state} ({_evidence(step)}{f', {step.text}' if step.text else ''})"

    def _unpaired_line(self, step: Step) -> str:
        state, _ = self.states.get(("s2c", step.offset), ("unknown", None))
        return f"  => {self._words('s2c', step.offset)}: {state}, it may answer {self._candidates(step)}"


_NAMES = {ANY: "requests that were not captured", MISSING: "a missing request"}
_STARTS = "the start was captured: no request is open", "the capture begins inside: any number of requests may be open"
_LINES: Mapping[str, Callable[[PairingReplay, Step], str]] = {
    "start": lambda _, step: f"  {_STARTS[step.size]}",
    "request": PairingReplay._request_line,
    "reply": PairingReplay._reply_line,
    "hole": lambda _, step: f"  hole of the {step.text}: at most {plural(step.size, 'message')}",
    "assumption": lambda _, step: f"  assumption {step.text}",
    "decision": lambda _, step: f"  decided: {step.text}",
    "pair": PairingReplay._pair_line,
    "unpaired": PairingReplay._unpaired_line,
}


def _evidence(step: Step) -> str:
    return Evidence(step.evidence).name.lower()


def _around(steps: Sequence[Step], messages: Set[Key]) -> list[int]:
    """The numbers of the steps of messages and of their pairs, and of the steps around them."""
    pairs = [{*x.messages("c2s")} for x in steps if x.kind == "pair"]
    names = {*messages}.union(*(pair for pair in pairs if not pair.isdisjoint(messages)))
    named = (i for i, step in enumerate(steps) if not names.isdisjoint(step.messages("c2s")))
    return sorted({k for i in named for k in range(max(i - CONTEXT_STEPS, 0), min(i + CONTEXT_STEPS + 1, len(steps)))})


def _folded(steps: Iterable[Step]) -> "list[Step | list[Step]]":
    """The steps without what a pair says: a reply with one candidate that is decided at once.

    Runs of requests that are the only open one and their replies are lists of these pairs.
    """
    result: list[Step | list[Step]] = []
    for step in steps:
        result.append(step)
        if step.kind != "pair" or step.is_likely:
            continue
        if _shapes(result[-3:-1]) == [("reply", step.offset, 1), ("decision", MISSING, 0)]:
            del result[-3:-1]
        if _shapes(result[-2:-1]) == [("request", step.earliest, 1)]:
            del result[-2:]
            run = result[-1] if result else None
            if isinstance(run, list) and run[-1].evidence == step.evidence:
                run.append(step)
            else:
                result.append([step])
    return [x[0] if isinstance(x, list) and len(x) == 1 else x for x in result]


def _shapes(steps: "Sequence[Step | list[Step]]") -> list[tuple[str, int, int]]:
    return [(x.kind, x.offset, x.size) for x in steps if isinstance(x, Step)]


class _Recorder:
    """Records how one connection's messages are paired."""

    def __init__(self, connection: SelectedConnection, keeps_span: bool) -> None:
        self.replays: list[Replay] = []
        self.targets: set[Key] = set()
        self._connection, self._keeps_span = connection, keeps_span

    def watch(self, protocol: str, correlation: Correlation) -> None:
        """Watch the connection, if it is of this protocol."""
        if protocol == self._connection.row["protocol"]:
            self.replays = correlation.watch(self._connection.id)
            for replay in self.replays:
                replay.keeps_span, replay.targets = self._keeps_span, self.targets


def replay_pairing(
    captures: Sequence[Capture], query: Query, packet: PacketName | None, outcome: Outcome, meter: Meter
) -> PairingReplay | None:
    """The replay of the single connection that a filter selects, None if a capture cannot be read.

    packet: only the span of the messages that begin in it. Raises MqpcapError if no connection matches or several do,
    LookupError if the packet has no message of it.
    """
    match = find_connection(captures, query, outcome, meter)
    if match is None:
        return None
    outcome.notes.clear()  # those of the second reading are the same
    capture, connection = match
    recorder = _Recorder(connection, packet is not None)
    messages: dict[Key, MessageName] = {}
    states: dict[Key, tuple[str, str | None]] = {}

    def take(output: Output, first_ns: int) -> None:
        if output.table not in ("messages", "exchanges"):
            return
        rows = output.rows.filter(pc.equal(output.rows["connection_id"], connection.id))
        if output.table == "exchanges":
            _note_states(states, rows.select(_STATE_COLUMNS).to_pylist())
            return
        for row in rows.select(_MESSAGE_COLUMNS).to_pylist():
            key = row["direction"], row["stream_offset"]
            messages[key] = MessageName(row["first_packet"], row["op"], row["destination"])
            if len(messages) > MAX_MESSAGES:
                del messages[key if packet is None else next(iter(messages))]
            if packet is not None and _is_in(packet, row):
                recorder.targets.add(key)

    options = outcome.choices.dissection(only=frozenset({"exchanges"}))
    options = replace(options, connections=connection.query().connections)
    hooks = replace(NUMBERED, correlation=recorder.watch)
    read(wired(capture, options, take, hooks), outcome, meter)
    if packet is not None and not recorder.targets:
        raise LookupError(f"no message of c{connection.number} begins in packet {packet.number}")
    return PairingReplay(connection, recorder.replays, messages, states, recorder.targets)


def _is_in(packet: PacketName, row: Mapping[str, object]) -> bool:
    """Whether a message begins in a packet."""
    return packet.number == row["first_packet"] and packet.index_in([str(row["capture_file"])]) != -1


_MESSAGE_COLUMNS = ["direction", "stream_offset", "first_packet", "op", "destination", "capture_file"]
_STATE_COLUMNS = ["request_direction", "request_offset", "reply_offset", "state", "how"]


def _note_states(states: dict[Key, tuple[str, str | None]], rows: Sequence[Mapping[str, object]]) -> None:
    """Record the states of requests, and of replies without one."""
    for row in rows:
        offset, direction = row["request_offset"], str(row["request_direction"])
        if offset is None:
            offset, direction = row["reply_offset"], other_direction(direction)
        if len(states) < MAX_MESSAGES:
            states[direction, int(str(offset))] = str(row["state"]), row["how"]  # type: ignore[assignment]  # text
