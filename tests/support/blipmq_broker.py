"""A small version 1 broker and clients that talk to it, as rows and ends, for tests.

Nothing here knows how pairs are found: the broker says which frame it answered when it answers.
"""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import pyarrow as pa
from batches import End, Row

from mqpcap.tcp.flow_records import NO_OFFSET

HELLO, AUTH, PUBLISH, SUBSCRIBE, ACK, NACK, PING, PONG, POLL = range(1, 10)
NAMES = dict(enumerate(["HELLO", "AUTH", "PUBLISH", "SUBSCRIBE", "ACK", "NACK", "PING", "PONG", "POLL"], 1))
MS = 1_000_000
NOTHING = -1


@dataclass
class Frame:
    """A frame as captured; ``answers`` is the frame a server frame answers, ``answered`` whether one came."""

    connection: int
    client: bool
    op: int
    id: int
    ts: int
    end: int = 0
    offset: int = 0
    length: int = 0
    topic: str | None = None
    qos: int | None = None
    sub: int | None = None
    body: int | None = None
    code: int | None = None
    text: str | None = None
    version: int | None = None
    bad: bool = False
    broken: bool = False
    ack: int = NO_OFFSET
    answers: "Frame | None" = None
    answered: bool = False
    message: "Frame | None" = None


@dataclass
class Queue:
    """A subscription: what waits and what is in flight, as (tag, publish, qos, deliveries)."""

    topic: str
    qos: int
    tag: int = 1
    waiting: list[list] = field(default_factory=list)
    flight: dict[int, tuple[list, int]] = field(default_factory=dict)


class Broker:
    """Handles one frame at a time; says what it answers."""

    def __init__(self, rng: random.Random, retry_ms: int) -> None:
        self.rng, self.retry_ns = rng, retry_ms * MS
        self.queues: dict[int, Queue] = {1: Queue("test", 1, 2)}
        self.state: dict[int, str] = {}
        self.full = False

    def tick(self, now: int) -> None:
        for queue in self.queues.values():
            for tag, (message, due) in list(queue.flight.items()):
                if now >= due:
                    del queue.flight[tag]
                    if message[3] < 3:
                        queue.waiting.append(message)

    def handle(self, f: Frame, now: int) -> dict | None:
        state = self.state.setdefault(f.connection, "new")
        if f.op == HELLO:
            if state != "new":
                return nack(f, 400, "HELLO already performed")
            if f.bad:
                return nack(f, 400, "invalid HELLO payload")
            if f.version != 1:
                return nack(f, 426, "unsupported protocol version")
            self.state[f.connection] = "hello"
            return {"op": ACK, "id": f.id, "sub": 0}
        if f.op == AUTH:
            if state != "hello":
                return nack(f, 400, "HELLO not performed" if state == "new" else "already authenticated")
            if f.bad:
                return nack(f, 400, "invalid AUTH payload")
            if f.text == "wrong":
                return nack(f, 401, "invalid API key")
            self.state[f.connection] = "ready"
            return {"op": ACK, "id": f.id, "sub": 0}
        if state != "ready":
            return nack(f, 401, "unauthenticated")
        return self.ready(f, now)

    def ready(self, f: Frame, now: int) -> dict | None:
        if f.op in (NACK, PONG):
            return None
        if f.op == PING:
            return {"op": PONG, "id": f.id}
        if f.bad:
            return nack(f, 400, f"invalid {NAMES[f.op]} payload")
        if f.op in (PUBLISH, SUBSCRIBE):
            if f.topic == "":
                return nack(f, 400, "empty topic")
            if f.qos not in (0, 1):
                return nack(f, 400, "invalid QoS value")
        elif f.sub == 0:
            return nack(f, 400, "subscription_id must be non-zero")
        return {PUBLISH: self.publish, SUBSCRIBE: self.subscribe, ACK: self.ack, POLL: self.poll}[f.op](f, now)

    def publish(self, f: Frame, now: int) -> dict | None:
        if f.qos and self.full and self.rng.random() < 0.5:
            return nack(f, 500, "durable publish failed: wal overload: wal channel full")
        for queue in self.queues.values():
            if queue.topic == f.topic:
                queue.waiting.append([queue.tag, f, min(f.qos or 0, queue.qos), 0])
                queue.tag += 1
        return None

    def subscribe(self, f: Frame, now: int) -> dict:
        number = len(self.queues) + 1
        self.queues[number] = Queue(f.topic or "", f.qos or 0)
        return {"op": ACK, "id": f.id, "sub": number}

    def ack(self, f: Frame, now: int) -> dict | None:
        queue = self.queues.get(f.sub or 0)
        if queue is None or f.id not in queue.flight:
            return nack(f, 404, "unknown subscription or delivery tag")
        del queue.flight[f.id]
        return None

    def poll(self, f: Frame, now: int) -> dict | None:
        queue = self.queues.get(f.sub or 0)
        if queue is None or not queue.waiting:
            return None
        message = queue.waiting.pop(0)
        tag, publish, qos, _ = message
        if qos:
            message[3] += 1
            queue.flight[tag] = message, now + self.retry_ns * 2 ** (message[3] - 1)
        return {
            "op": PUBLISH, "id": tag if qos else f.id, "qos": qos, "topic": publish.topic, "body": publish.body,
            "message": publish,
        }  # fmt: skip


def nack(f: Frame, code: int, text: str) -> dict:
    return {"op": NACK, "id": f.id, "code": code, "text": text}


class Talk:
    """A client: its ids, its habits, what it has seen."""

    def __init__(self, rng: random.Random, number: int) -> None:
        self.rng, self.number = rng, number
        self.ids = rng.choice(["count", "count", "same", "few", "down"])
        self.next = 1 if self.ids != "down" else 1 << 40
        self.last_handled = self.last_sent = self.last_answer = 0
        self.offset = {True: 0, False: 0}
        self.subs: list[int] = []
        self.tags: list[tuple[int, int]] = []
        self.waits = rng.random() < 0.5
        self.left = rng.randint(3, 25)
        self.greeting = [HELLO, AUTH]
        if rng.random() < 0.15:
            self.greeting = rng.choice(
                [[AUTH, HELLO, PING, AUTH], [HELLO, HELLO, AUTH, POLL], [HELLO, AUTH, AUTH], [PUBLISH, HELLO, AUTH]]
            )

    def number_of(self) -> int:
        if self.ids == "same":
            return 7
        if self.ids == "few":
            return self.rng.randint(1, 5)
        self.next += 1 if self.ids == "count" else -1
        return self.next


class Conversation:
    """Random clients on one broker until all is said; ``frames`` in order of capture."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.broker = Broker(rng, rng.choice([100, 100, 150, 300, 1000, 20000]))
        self.talks = [Talk(rng, i + 1) for i in range(rng.randint(1, 4))]
        self.topics = rng.choice([["a"], ["a", "b"], ["a", "b", "test"]])
        self.bodies = rng.choice([2, 1000, 1_000_000])
        self.slow = rng.choice([200_000, 2 * MS, 7 * MS])
        self.refuses = rng.random() < 0.1
        self.frames: list[Frame] = []
        self.events: list[tuple[int, int, str, object]] = []
        self.count = 0
        start = 1_700_000_000_000 * MS
        for talk in self.talks:
            self.at(start + rng.randint(0, 50 * MS), "send", talk)
        self.at(start + rng.randint(0, 200 * MS), "tick", None)
        self.start = start
        self.closed = {t.number: rng.choice(["fin", "fin", "open", "reset"]) for t in self.talks}
        self.run()

    def at(self, when: int, what: str, who: object) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, what, who))

    def run(self) -> None:
        while any(what != "tick" for _, _, what, _ in self.events):
            now, _, what, who = heapq.heappop(self.events)
            if what == "tick":
                self.broker.tick(now)
                self.at(now + 200 * MS, "tick", None)
            elif what == "send":
                assert isinstance(who, Talk)
                self.send(who, now)
            else:
                assert isinstance(who, tuple)
                self.handled(*who, now)
        for f in self.frames:
            others = [o for o in self.frames if (o.connection, o.client) == (f.connection, not f.client)]
            f.ack = max((o.offset + o.length for o in others if o.end <= f.ts), default=0)

    def send(self, talk: Talk, now: int) -> None:
        if talk.left <= 0:
            return
        rng = self.rng
        talk.left -= 1
        f = self.frame(talk, max(now, talk.last_sent))
        f.end = f.ts + (rng.randint(0, 300_000) if rng.random() < 0.1 else 0)
        talk.last_sent = f.end
        self.captured(talk, f)
        when = max(talk.last_handled + 1000, f.end + rng.randint(5_000, self.slow))
        talk.last_handled = when
        self.at(when, "handle", (talk, f))
        if not talk.waits or f.op == PUBLISH:
            self.at(talk.last_sent + self.pause(), "send", talk)

    def pause(self) -> int:
        rng = self.rng
        return rng.choice([0, 0, 0, rng.randint(0, MS), *[rng.randint(0, 30 * MS)] * 2, rng.randint(0, 400 * MS)])

    def handled(self, talk: Talk, f: Frame, now: int) -> None:
        rng = self.rng
        self.broker.full = self.refuses and rng.random() < 0.5
        said = self.broker.handle(f, now)
        then = now
        if said is not None:
            held = 40 * MS if rng.random() < 0.02 else 0
            then = max(talk.last_answer, now + rng.randint(1_000, 50_000) + held)
            talk.last_answer = then
            answer = Frame(talk.number, False, ts=then, end=then, answers=f, **said)
            f.answered = True
            self.captured(talk, answer)
            if answer.op == ACK and answer.sub:
                talk.subs.append(answer.sub)
            if answer.op == PUBLISH and answer.qos:
                talk.tags.append((f.sub or 0, answer.id))
        if talk.waits and f.op != PUBLISH:
            self.at(then + self.pause(), "send", talk)

    def captured(self, talk: Talk, f: Frame) -> None:
        length = 13 + self.rng.randint(0, 30)
        f.length = length if f.message is None else f.message.length  # both carry topic and body
        f.offset = talk.offset[f.client]
        talk.offset[f.client] += f.length
        self.frames.append(f)

    def frame(self, talk: Talk, now: int) -> Frame:
        rng, new = self.rng, Frame(talk.number, True, 0, talk.number_of(), now)
        if talk.greeting:
            new.op = talk.greeting.pop(0)
        elif rng.random() < 0.03:
            new.op = rng.choice([HELLO, AUTH, NACK, PONG])
        else:
            new.op = rng.choice([PUBLISH] * 6 + [POLL] * 8 + [ACK] * 3 + [PING, SUBSCRIBE])
            if not talk.subs and rng.random() < 0.5:
                new.op = SUBSCRIBE
        new.bad = rng.random() < 0.03 and new.op not in (PING, NACK, PONG)
        if new.bad:
            return new
        odd = rng.random() < 0.04
        if new.op == HELLO:
            new.version = 2 if odd else 1
        elif new.op == AUTH:
            new.text = "wrong" if odd else "right"
        elif new.op in (PUBLISH, SUBSCRIBE):
            new.topic, new.qos = rng.choice(self.topics), rng.randint(0, 1)
            if new.op == PUBLISH:
                new.body = rng.randint(1, self.bodies)
            if odd:
                new.topic, new.qos = rng.choice([("", 1), ("", 7), ("a", 7)])
        elif new.op == POLL:
            new.sub = self.subscription(talk)
        elif new.op == ACK:
            new.sub, new.id = self.subscription(talk), rng.randint(1, 4)
            if talk.tags and rng.random() < 0.8:
                new.sub, new.id = rng.choice(talk.tags)
        if odd and new.op in (POLL, ACK):
            new.sub = 0
        return new

    def subscription(self, talk: Talk) -> int:
        if talk.subs and self.rng.random() < 0.9:
            return self.rng.choice(talk.subs)
        return self.rng.randint(1, 6)

    def ends(self) -> dict[int, End]:
        made = {}
        for talk in self.talks:
            closed = self.closed[talk.number]
            extents = {"requests_extent": talk.offset[True], "replies_extent": talk.offset[False]}
            made[talk.number] = End(closed != "open", closed == "fin", **extents)
        return made


@dataclass
class Captured:
    """What a capture has of a conversation: its frames, how connections ended, and which began before it."""

    frames: list[Frame]
    ends: dict[int, End]
    late: set[int] = field(default_factory=set)
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Connection and time of frames of clients that were not captured."""

    def started(self) -> dict[int, bool]:
        """Whether the start of each connection was captured."""
        return {number: number not in self.late for number in self.ends}


U64 = pa.decimal128(20, 0)
TYPES = {
    "correlation_id": U64, "qos": pa.int32(), "subscription_id": U64, "error_text": pa.string(),
    "protocol_version": pa.int32(), "partition_key": pa.binary(), "body": pa.binary(),
}  # fmt: skip
"""Of the columns that the rule reads."""


def rows(frames: Sequence[Frame]) -> list[Row]:
    """Frames as the rows that the rule sees."""
    return [_row(f) for f in frames]


def _row(f: Frame) -> Row:
    row = {
        "connection": f.connection, "direction": "c2s" if f.client else "s2c", "op_code": f.op, "op": NAMES.get(f.op),
        "ts_ns": f.ts, "end_ts_ns": f.end, "first_ack": f.ack, "last_ack": f.ack,
        "stream_offset": f.offset, "frame_len": f.length, "broken": f.broken,
        "status": None if f.client else "error" if f.op == NACK else "ok", "f.correlation_id": Decimal(f.id),
        "f.error_text": None if f.client else f.text, "flaw": "malformed" if f.bad else None,
    }  # fmt: skip
    if not f.bad:
        row |= {
            "destination": f.topic, "error_code": f.code, "f.qos": f.qos, "f.protocol_version": f.version,
            "f.subscription_id": None if f.sub is None else Decimal(f.sub),
            "f.body": None if f.body is None else f"{f.body:064x}".encode(),
        }  # fmt: skip
    return row


def damaged(talk: Conversation, rng: random.Random) -> Captured:
    """What a capture with lost packets, a late start or an early end has of a conversation."""
    made = Captured(list(talk.frames), talk.ends())
    times = sorted(f.ts for f in made.frames)
    how = rng.choice(["late", "early", "loss", "loss", "all"])
    if how in ("early", "all"):
        cut = rng.choice(times[len(times) // 3 :])
        made.frames = [f for f in made.frames if f.end <= cut]
        made.ends = {number: End(False, False) for number in made.ends}
    if how in ("late", "all"):
        cut = rng.choice(times[: 2 * len(times) // 3])
        made.late = {f.connection for f in made.frames if f.ts < cut}
        made.frames = [f for f in made.frames if f.ts >= cut]
    if how in ("loss", "all"):
        _lose(made, rng)
    return made


def _lose(made: Captured, rng: random.Random) -> None:
    rate = rng.choice([0.01, 0.05, 0.2])
    gone: set[tuple[int, bool]] = set()  # sides with bytes missing in front of the next frame
    kept: list[Frame] = []
    for f in made.frames:
        if rng.random() < rate:
            gone.add((f.connection, f.client))
            name = "requests_missing_at" if f.client else "replies_missing_at"
            made.ends[f.connection] = replace(made.ends[f.connection], **{name: f.offset}, last_ns=f.end)
            if f.client:
                made.lost.append((f.connection, f.ts))
        elif (f.connection, f.client) in gone:
            gone.discard((f.connection, f.client))
            f.broken = True
            kept.append(f)
        else:
            kept.append(f)
    made.frames = kept
