"""BlipMQ clients that send many POLLs ahead: which delivery answers which POLL.

The deliveries have QoS 1: they carry a tag of the broker's, not the id of their POLL.
"""

import heapq
from bisect import bisect_right
from collections import Counter

import pytest
from batches import End, correlated
from blipmq_broker import ACK, AUTH, HELLO, MS, POLL, PUBLISH, SUBSCRIBE, TYPES, Frame, rows

from mqpcap.protocols import protocols

US = 1000
BATCH = 128
"""POLLs that a client sends together."""


def conversation(connection: int, poll_count: int, message_count: int, gap_ns: int) -> list[Frame]:
    """A client that sends its POLLs in batches, and acknowledges each delivery; its queue had all messages before.

    The broker handles a frame in 3 us, one after the other.
    """
    frames: list[Frame] = []
    sent = {True: 0, False: 0}
    events: list[tuple[int, int, Frame | int]] = []

    def add(client: bool, op: int, number: int, now: int, **columns: object) -> Frame:
        frame = Frame(connection, client, op, number, now, now, sent[client], 29, **columns)  # type: ignore[arg-type]
        sent[client] += frame.length
        frames.append(frame)
        return frame

    topic = f"t{connection}"
    for k, (op, said) in enumerate(
        ((HELLO, {"version": 1}), (AUTH, {"text": "right"}), (SUBSCRIBE, {"topic": topic, "qos": 1}))
    ):
        asked = add(True, op, k, 200 * k * US, **said)
        add(False, ACK, k, (200 * k + 50) * US, sub=connection if op == SUBSCRIBE else 0, answers=asked)
    free, tag = 0, 0
    for k in range(poll_count):
        heapq.heappush(events, (300 * MS + k // BATCH * gap_ns, k, k))
    order = poll_count
    while events:
        now, _, event = heapq.heappop(events)
        order += 1
        if isinstance(event, int):  # a POLL, or the acknowledgement of a tag
            is_poll = event >= 0
            frame = add(True, POLL if is_poll else ACK, 10 + event if is_poll else -event, now, sub=connection)
            free = max(free, now + 20 * US) + 3 * US
            heapq.heappush(events, (free, order, frame))
        elif event.op == POLL and tag < message_count:
            tag += 1
            event.answered = True
            add(False, PUBLISH, tag, now, topic=topic, qos=1, body=tag, answers=event)
            heapq.heappush(events, (now + 30 * US, order, -tag))
    for side in (True, False):
        others = [f for f in frames if f.client != side]
        times = [f.ts for f in others]
        for f in frames:
            if f.client == side:
                k = bisect_right(times, f.ts - 5 * US)
                f.ack = others[k - 1].offset + others[k - 1].length if k else 0
    return frames


@pytest.mark.parametrize(
    ("clients", "polls", "messages", "gap_us"),
    [(1, 1025, 1024, 200), (4, 5000, 3920, 200), (4, 5000, 3920, 20), (4, 5000, 3920, 2000)],
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
