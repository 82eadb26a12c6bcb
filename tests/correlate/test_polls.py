"""BlipMQ clients that send many POLLs ahead: which delivery answers which POLL.

The deliveries have QoS 1: they carry a tag of the broker's, not the id of their POLL.
"""

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from batches import End, correlated
from blipmq_broker import ACK, AUTH, HELLO, MS, NACK, PING, POLL, PONG, PUBLISH, SUBSCRIBE, TYPES, Frame, rows

from mqpcap.protocols import protocols

US = 1000
BATCH = 128
"""POLLs that a client sends together."""


class Talk:
    """Frames of one connection, which opens with HELLO, AUTH and SUBSCRIBE, each answered after 50 us."""

    def __init__(self, connection: int) -> None:
        self.connection, self.topic = connection, f"t{connection}"
        self.frames: list[Frame] = []
        self.sent = {True: 0, False: 0}
        for k, (op, columns) in enumerate(
            ((HELLO, {"version": 1}), (AUTH, {"text": "right"}), (SUBSCRIBE, {"topic": self.topic, "qos": 1}))
        ):
            request = self.add(True, op, k, 200 * k * US, **columns)
            self.add(False, ACK, k, (200 * k + 50) * US, sub=connection if op == SUBSCRIBE else 0, answers=request)

    def add(self, client: bool, op: int, number: int, now: int, **columns: object) -> Frame:
        frame = Frame(self.connection, client, op, number, now, now, self.sent[client], 29, **columns)  # type: ignore[arg-type]
        self.sent[client] += frame.length
        self.frames.append(frame)
        return frame

    def delivery(self, tag: int, now: int, poll: Frame) -> Frame:
        """A message under a tag."""
        return self.add(False, PUBLISH, tag, now, topic=self.topic, qos=1, body=tag, answers=poll)

    def acknowledged(self) -> list[Frame]:
        """The frames; each acknowledges what came 5 us before it."""
        for side in (True, False):
            others = [f for f in self.frames if f.client != side]
            times = [f.ts for f in others]
            for f in self.frames:
                if f.client == side:
                    k = bisect_right(times, f.ts - 5 * US)
                    f.ack = others[k - 1].offset + others[k - 1].length if k else 0
        return self.frames


def conversation(connection: int, poll_count: int, message_count: int, gap_ns: int) -> list[Frame]:
    """A client that sends its POLLs in batches, and acknowledges each delivery; its queue had all messages before.

    The broker handles a frame in 3 us, one after the other.
    """
    talk = Talk(connection)
    events: list[tuple[int, int, Frame | int]] = []
    free, tag = 0, 0
    for k in range(poll_count):
        heapq.heappush(events, (300 * MS + k // BATCH * gap_ns, k, k))
    order = poll_count
    while events:
        now, _, event = heapq.heappop(events)
        order += 1
        if isinstance(event, int):  # a POLL, or the acknowledgement of a tag
            is_poll = event >= 0
            frame = talk.add(True, POLL if is_poll else ACK, 10 + event if is_poll else -event, now, sub=connection)
            free = max(free, now + 20 * US) + 3 * US
            heapq.heappush(events, (free, order, frame))
        elif event.op == POLL and tag < message_count:
            tag += 1
            event.answered = True
            talk.delivery(tag, now, event)
            heapq.heappush(events, (now + 30 * US, order, -tag))
    return talk.acknowledged()


def pairs_of(frames: list[Frame], connections: Sequence[int] = (1,)) -> Iterator[tuple[dict[str, Any], Frame, Frame]]:
    """The rows of ``exchanges`` with a pair, and their frames."""
    by_offset = {(f.connection, f.client, f.offset): f for f in frames}
    ends = {c: End(requests_extent=1 << 40, replies_extent=1 << 40, requests_missing_at=-1) for c in connections}
    rule = protocols()["blipmq"].rule
    assert rule is not None
    for row in correlated(rule, [sorted(rows(frames), key=lambda row: row["ts_ns"])], ends, TYPES)["exchanges"]:
        sides = ((True, row["request_offset"]), (False, row["reply_offset"]))
        request, reply = (by_offset.get((row["connection_id"], *side)) for side in sides)
        if request is not None and reply is not None:
            yield row, request, reply


def test_a_client_that_polls_again_after_each_message_sends_no_burst() -> None:
    """The first POLL found nothing. As all ids are equal, the first delivery may be its answer, or that of the next."""
    talk = Talk(1)
    talk.add(True, POLL, 7, 300 * MS, sub=1)
    for k in range(8):
        now = 325 * MS + 300 * k * US
        talk.delivery(k + 1, now + 130 * US, talk.add(True, POLL, 7, now, sub=1))
    talk.add(True, POLL, 7, 327_400 * US, sub=1)

    assert [row["op"] for row, request, reply in pairs_of(talk.acknowledged()) if reply.answers is not request] == []


def test_a_server_that_is_slow_answers_pairs_nothing_wrong() -> None:
    """It takes 2 ms for a frame while the client sends two in that time: answers are late by more and more."""
    talk, free = Talk(1), 0
    replies: list[tuple[int, Frame]] = []
    for k in range(200):
        now = 300 * MS + k * MS
        while replies and replies[0][0] <= now:
            talk.delivery(k, *replies.pop(0))
        is_poll = k % 5 == 0
        frame = talk.add(
            True, POLL if is_poll else PUBLISH, 7, now, **({"sub": 1} if is_poll else {"topic": "x", "qos": 0})
        )
        free = max(free, now) + 2 * MS
        if is_poll:
            replies.append((free, frame))
    for number, (now, frame) in enumerate(replies):
        talk.delivery(1000 + number, now, frame)

    wrong = [row for row, request, reply in pairs_of(talk.acknowledged()) if reply.answers is not request]
    assert [row["request_offset"] for row in wrong if row["state"] == "answered"] == []


def test_a_burst_of_polls_that_read_two_queues_gives_no_pair() -> None:
    """The message may be of either queue, so it need not be for the first POLL."""
    talk = Talk(1)
    polls = [talk.add(True, POLL, 10 + k, 300 * MS, sub=1 + k % 2) for k in range(8)]
    talk.delivery(1, 300 * MS + 30 * US, polls[1])
    talk.delivery(2, 300 * MS + 33 * US, polls[3])

    assert [row["op"] for row, request, reply in pairs_of(talk.acknowledged()) if reply.answers is not request] == []


def test_a_message_of_the_client_may_answer_a_poll_that_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring holds six requests: the first POLLs are given up, and one of them gets the message published before."""
    monkeypatch.setattr("mqpcap.correlate.matcher.MAX_OPEN_REQUESTS", 6)
    talk = Talk(1)
    for k in range(3):
        talk.add(True, PUBLISH, 4 + k, 300 * MS + k * US, topic=talk.topic, qos=1, body=1 + k)
    polls = [talk.add(True, POLL, 10 + k, 300 * MS + (k + 1) * 10 * US, sub=1) for k in range(5)]
    talk.delivery(1, 301 * MS, polls[0])

    assert [row["op"] for row, request, reply in pairs_of(talk.acknowledged()) if reply.answers is not request] == []


@pytest.mark.parametrize(
    ("clients", "polls", "messages", "gap_us"),
    [(1, 1025, 1024, 200), (4, 5000, 3920, 200), (2, 2500, 1960, 20), (2, 2500, 1960, 2000)],
)
def test_polls_sent_ahead_get_the_messages_in_order(clients: int, polls: int, messages: int, gap_us: int) -> None:
    frames = [f for c in range(1, clients + 1) for f in conversation(c, polls, messages, gap_us * US)]
    by_offset = {(f.connection, f.client, f.offset): f for f in frames}
    ends = {
        c: End(requests_extent=1 << 40, replies_extent=1 << 40, requests_missing_at=-1) for c in range(1, clients + 1)
    }
    in_time = sorted(rows(frames), key=lambda row: row["ts_ns"])
    parts = [in_time[k : k + 5000] for k in range(0, len(in_time), 5000)]
    rule = protocols()["blipmq"].rule
    assert rule is not None

    pairs, acknowledgements = Counter[str](), Counter[str]()
    for row in correlated(rule, parts, ends, TYPES)["exchanges"]:
        request = by_offset.get((row["connection_id"], True, row["request_offset"]))
        if row["reply_offset"] is not None and request is not None:
            reply = by_offset[row["connection_id"], False, row["reply_offset"]]
            assert reply.answers is request, "no pair is wrong"
            pairs[row["op"]] += 1
            assert row["state"] == "answered" or (row["state"], row["how"]) == ("likely", "pause")
        elif row["op"] == "ACK":
            acknowledgements[row["state"]] += 1
    assert pairs["POLL"] >= 0.99 * clients * messages
    assert acknowledgements == {"silent": clients * messages}


@pytest.mark.parametrize("lost", [False, True])
def test_a_refusal_finds_its_publish_by_id_however_many_are_open(lost: bool) -> None:
    """20,000 publishes, and one in 40 is refused 3,000 publishes later, under the id of exactly one publish.

    With ``lost`` 40 publishes were not captured. Refusals of the publishes just before them wait for the next one, and
    the hole may hold publishes of any id, so that all but a few of the others are certain.
    """
    talk, publishes = Talk(1), list[Frame]()
    refusals = []
    for k in range(20_000):
        publishes.append(talk.add(True, PUBLISH, 10 + k, (1000 + k) * US, topic="t", qos=1, body=k))
        if k >= 3000 and k % 40 == 0:
            refused, now = publishes[k - 3000], (1000 + k) * US + 500
            refusals.append(talk.add(False, NACK, refused.id, now, code=500, text="wal overload", answers=refused))
    kept = talk.acknowledged()
    if lost:
        publishes[540].broken = True
        missing = {id(f) for f in publishes[500:540]}
        kept = [f for f in kept if id(f) not in missing]
    rule = protocols()["blipmq"].rule
    assert rule is not None
    here = {id(f) for f in kept}
    made = correlated(rule, [rows(kept)], {1: End()}, TYPES)["exchanges"]

    found = {row["reply_offset"]: (row["state"], row["request_offset"]) for row in made if row["reply_offset"]}
    expected = {f.offset: ("answered", f.answers.offset) for f in refusals if id(f.answers) in here}
    given = {offset: found.get(offset) for offset in expected}
    right = {x: (("answered", at), ("likely", at), ("unknown", None)) for x, (_, at) in expected.items()}
    assert [x for x in given if given[x] not in right[x]] == []
    assert list(given.values()).count(("unknown", None)) <= (13 if lost else 0)
    assert len(expected) == (424 if lost else 425)


def test_a_poll_is_not_answered_by_a_message_that_its_connection_published_after_it() -> None:
    """POLL, PUBLISH, POLL, ACK and PING come together, and the queue was empty: the message goes to the second POLL."""
    talk, now = Talk(1), 10 * MS
    talk.add(True, POLL, 4, now, sub=1)
    talk.add(True, PUBLISH, 5, now, topic="t1", qos=1, body=7)
    second = talk.add(True, POLL, 6, now, sub=1)
    talk.add(True, ACK, 1, now, sub=1)
    ping = talk.add(True, PING, 7, now)
    said = talk.delivery(1, now + MS, second)
    said.body = 7
    talk.add(False, PONG, 7, now + MS, answers=ping)
    rule = protocols()["blipmq"].rule
    assert rule is not None
    made = correlated(rule, [rows(talk.acknowledged())], {1: End()}, TYPES)["exchanges"]

    assert [row["request_offset"] for row in made if row["reply_offset"] == said.offset] == [second.offset]


def test_a_delivery_that_the_next_poll_releases_is_no_evidence_that_the_client_waits() -> None:
    """Two POLLs are open all the time: TCP holds each delivery until the next POLL acknowledges the one before.

    It comes 12 us after that POLL, however long the client paused. The capture begins in the middle.
    """
    talk, now = Talk(1), 10 * MS
    polls = [talk.add(True, POLL, 100, now, sub=1)]
    for k in range(40):
        now += (350 if k % 9 == 5 else 40 + k % 4) * US
        polls.append(talk.add(True, POLL, 101 + k, now, sub=1))
        talk.delivery(k, now + 12 * US, polls[k])
    kept = [f for f in talk.acknowledged() if f.ts > 11 * MS]
    rule = protocols()["blipmq"].rule
    assert rule is not None
    made = correlated(rule, [rows(kept)], {1: End(False, False)}, TYPES, {1: False})["exchanges"]

    truth = {f.offset: f.answers.offset for f in kept if f.answers}
    assert [
        row for row in made if row["reply_offset"] and row["request_offset"] not in (None, truth[row["reply_offset"]])
    ] == []
    assert len(made) > 40
