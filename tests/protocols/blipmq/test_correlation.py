"""BlipMQ exchanges and deliveries: truth files, the server's rules one by one, and random conversations."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batches import End, correlated
from blipmq_broker import (
    ACK,
    AUTH,
    HELLO,
    MS,
    NACK,
    PING,
    POLL,
    PONG,
    PUBLISH,
    SUBSCRIBE,
    TYPES,
    Captured,
    Conversation,
    Frame,
    damaged,
    rows,
)
from dissection import dissect
from examples import multiplied

from mqpcap.capture import captures
from mqpcap.protocols.blipmq import PROTOCOL

ROOT = Path(__file__).resolve().parents[3]
RULE = PROTOCOL.rule
assert RULE is not None
WHOLE, DAMAGED = 60, multiplied(120)
"""Random conversations per run."""
MANY = 0.97
"""Share of the answers in the truth files that is found at least."""


def truths() -> Iterator[tuple[Path, Path]]:
    places = [(ROOT / "tests" / "truth" / "blipmq", ROOT / "pcaps" / "blipmq")]
    if shared := os.environ.get("MQPCAP_SHARED"):
        places.append((Path(shared) / "captures" / "blipmq",) * 2)
    for folder, pcaps in places:
        for file in sorted(folder.glob("*.truth.json")):
            pcap = pcaps / file.name.replace(".truth.json", ".pcap")
            yield file, pcap


def expected(
    truth: dict[str, Any], rows: list[dict[str, Any]], ids: dict[int, int]
) -> dict[tuple[int, int], tuple[str, int | None]]:
    """(connection, offset of a client frame) -> state and offset of the answer, as the client saw it."""
    out: dict[tuple[int, int], tuple[str, int | None]] = {}
    for connection in truth["connections"]:
        number = ids.get(connection["client_port"])
        if number is None or "events" not in connection:
            continue
        offsets = {
            d: iter([r["stream_offset"] for r in rows if (r["connection_id"], r["direction"]) == (number, d)])
            for d in ("c2s", "s2c")
        }
        at = {i: next(offsets[e["dir"]]) for i, e in enumerate(connection["events"]) if "type" in e}
        answers = {e["answers"]: at[i] for i, e in enumerate(connection["events"]) if e.get("answers") is not None}
        for i, event in enumerate(connection["events"]):
            if "type" not in event or event["dir"] != "c2s" or event["type_name"] == "unknown":
                continue
            silent = "not_expected" if event["type"] in (NACK, PONG) else "silent"
            out[number, at[i]] = ("answered", answers[i]) if i in answers else (silent, None)
    return out


def test_exchanges_are_those_the_client_saw() -> None:
    """Of all truth files: no other pair, no other state but `unknown`, and nearly all of them."""
    there = found = 0
    for truth, pcap in truths():
        said = json.loads(truth.read_text())
        if not pcap.exists() or not any("events" in c for c in said["connections"]):
            continue
        made = dissect(captures([str(pcap)]).captures[0])
        messages = [r for chunk in made.chunks if chunk.protocol == "blipmq" for r in chunk.messages.to_pylist()]
        messages = sorted((r for r in messages if r["flaw"] != "truncated"), key=lambda r: r["stream_offset"])
        ours = [c for c in made.connections.to_pylist() if c["protocol"] == "blipmq"]
        want = expected(said, messages, {c["client_port"]: c["connection_id"] for c in ours})
        got = {
            (e["connection_id"], e["request_offset"]): (e["state"], e["reply_offset"])
            for e in made.exchanges.to_pylist()
            if e["request_offset"] is not None
        }

        assert want.keys() <= got.keys(), pcap
        allowed = {k: (want[k], ("unknown", None), ("likely", want[k][1])) for k in want}
        assert {k: got[k] for k in want if got[k] not in allowed[k]} == {}, pcap
        assert all(state == "unknown" for k, (state, _) in got.items() if k not in want), pcap
        answered = [k for k in want if want[k][0] == "answered"]
        there += len(answered)
        found += sum(got[k] == want[k] for k in answered)
    print(f"{found} of {there} pairs of the truth files")
    assert found >= MANY * there


Key = tuple[int, bool, int]


def run(
    made: Captured, parts: int = 1
) -> tuple[list[tuple[Frame | None, Frame | None, str]], list[tuple[Frame, Frame]]]:
    """Exchanges as (request, reply, state) and deliveries as (publish, delivery), fed in so many parts."""
    by_key: dict[Key, Frame] = {(f.connection, f.client, f.offset): f for f in made.frames}
    in_time = rows(sorted(made.frames, key=lambda f: (f.ts, not f.client, f.offset)))
    size = max(1, -(-len(in_time) // parts))
    fed = [in_time[at : at + size] for at in range(0, len(in_time), size)]
    said = correlated(RULE, fed, made.ends, TYPES, made.started(), made.lost)
    exchanges = [
        (by_key.get((e["connection_id"], True, e["request_offset"])),
         by_key.get((e["connection_id"], False, e["reply_offset"])), e["state"])
        for e in said["exchanges"]
    ]  # fmt: skip
    deliveries = [
        (by_key[d["publish_connection_id"], True, d["publish_offset"]],
         by_key[d["deliver_connection_id"], False, d["deliver_offset"]])
        for d in said["deliveries"]
    ]  # fmt: skip
    return exchanges, deliveries


def wrong(made: Captured, parts: int = 1) -> list[tuple[object, ...]]:
    """Everything that the broker knows better."""
    out: list[tuple[object, ...]] = []
    captured = {id(f) for f in made.frames}
    seen = {id(f.answers) for f in made.frames if f.answers is not None}
    asked: Counter[int] = Counter()
    told: Counter[int] = Counter()
    exchanges, deliveries = run(made, parts)
    for request, reply, state in exchanges:
        asked[id(request)] += 1
        told[id(reply)] += 1
        if state == "answered":
            if reply is None or reply.answers is not request:
                out.append(("pair", request, reply))
        elif request is None:
            if state == "orphan" and reply is not None and id(reply.answers) in captured:
                out.append((state, reply))
        elif (state in ("silent", "not_expected", "unanswered") and request.answered) or (
            state == "lost" and (not request.answered or id(request) in seen)
        ):
            out.append((state, request))
    out += [("request", f) for f in made.frames if f.client and asked[id(f)] != 1]
    out += [("reply", f) for f in made.frames if not f.client and told[id(f)] != 1]
    return out + [("delivery", a, b) for a, b in deliveries if b.message is not a]


def test_whole_conversations_have_no_wrong_pair() -> None:
    for seed in range(WHOLE):
        talk = Conversation(seed)

        assert wrong(Captured(talk.frames, talk.ends())) == [], seed


def test_nearly_all_answers_of_whole_conversations_are_paired() -> None:
    states: Counter[str] = Counter()
    deliveries = there = 0
    for seed in range(WHOLE):
        talk = Conversation(seed)
        exchanges, found = run(Captured(talk.frames, talk.ends()))
        states.update(state for _, reply, state in exchanges if reply is not None)
        deliveries += len(found)
        there += sum(f.message is not None for f in talk.frames)

    print(f"{states['answered']} of {sum(states.values())} replies, {deliveries} of {there} deliveries")
    assert states["unknown"] < 0.06 * states["answered"]


def test_damaged_conversations_have_no_wrong_pair() -> None:
    for seed in range(DAMAGED):
        assert wrong(damaged(Conversation(seed), random.Random(seed + 10**6))) == [], seed


@pytest.mark.parametrize("seed", range(multiplied(10)))
def test_batches_change_no_row(seed: int) -> None:
    talk = Conversation(seed)
    made = damaged(talk, random.Random(seed)) if seed % 2 else Captured(talk.frames, talk.ends())

    def texts(parts: int) -> tuple[list[str], list[str]]:
        exchanges, deliveries = run(made, parts)
        named = [(state, a and (a.connection, a.offset), b and (b.connection, b.offset)) for a, b, state in exchanges]
        return sorted(map(repr, named)), sorted(repr((a.offset, b.connection, b.offset)) for a, b in deliveries)

    assert texts(1) == texts(3) == texts(max(len(made.frames), 1))


class Script:
    """Frames written down one after the other, 1 ms apart; ``c`` sends, ``s`` answers."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.offset = {True: 0, False: 0}
        self.now = 10**18
        self.gone = {True: -1, False: -1}
        self.broken = {True: False, False: False}

    def _add(self, client: bool, op: int, number: int, said: dict[str, Any]) -> int:
        self.now += MS
        frame = Frame(1, client, op, number, self.now, self.now, self.offset[client], 20, **said)
        frame.broken, self.broken[client] = self.broken[client], False
        frame.ack = self.offset[not client]
        self.offset[client] += 20
        self.frames.append(frame)
        return len(self.frames) - 1

    def c(self, op: int, number: int, **said: Any) -> int:
        return self._add(True, op, number, said)

    def s(self, op: int, number: int, **said: Any) -> int:
        return self._add(False, op, number, said)

    def lose(self, client: bool) -> None:
        """A frame that was not captured."""
        self.gone[client], self.broken[client] = self.offset[client], True
        self.offset[client] += 20

    def ready(self) -> "Script":
        self.c(HELLO, 1, version=1), self.s(ACK, 1, sub=0), self.c(AUTH, 2, text="k"), self.s(ACK, 2, sub=0)
        return self

    def states(
        self, ended: bool = True, covered: bool = True, started: bool = True, parts: int = 1
    ) -> dict[int, tuple[str, int]]:
        """Of each request, or else reply, its state and the reply."""
        extents = {"requests_extent": self.offset[True], "replies_extent": self.offset[False]}
        end = End(ended, covered, self.gone[True], self.gone[False], **extents)
        exchanges, _ = run(Captured(self.frames, {1: end}, set() if started else {1}), parts)
        place = {id(f): i for i, f in enumerate(self.frames)}
        place[id(None)] = -1
        return {place[id(a or b)]: (state, place[id(b)]) for a, b, state in exchanges}


def test_publishes_are_silent_as_far_as_the_server_surely_came() -> None:
    """The PONG says that all in front of its PING was handled, nothing of those after."""
    script = Script().ready()
    before = [script.c(PUBLISH, k, topic="a", qos=k % 2, body=k) for k in range(10, 14)]
    script.c(PING, 20), script.s(PONG, 20)
    behind = [script.c(PUBLISH, k, topic="a", qos=k % 2, body=k) for k in range(30, 34)]

    states = script.states(ended=False, covered=False)
    assert [states[k][0] for k in (*before, *behind)] == ["silent"] * 4 + ["unknown"] * 4
    assert [script.states()[k][0] for k in behind] == ["silent"] * 4


def test_open_frames_before_a_server_fin_are_silent_and_before_a_reset_unknown() -> None:
    script = Script().ready()
    poll, publish = script.c(POLL, 3, sub=9), script.c(PUBLISH, 4, topic="a", qos=1, body=1)

    assert [script.states()[k][0] for k in (poll, publish)] == ["silent", "silent"]
    reset = script.states(covered=False)
    assert [reset[k][0] for k in (poll, publish)] == ["unknown", "unknown"]


def test_requests_are_unanswered_after_a_reset_and_unknown_at_the_end_of_the_capture() -> None:
    script = Script().ready()
    ping = script.c(PING, 3)

    assert script.states(covered=False)[ping][0] == "unanswered"
    assert script.states(ended=False, covered=False)[ping][0] == "unknown"


def test_a_reply_in_a_gap_is_lost_and_later_pairs_are_found() -> None:
    script = Script().ready()
    first = script.c(PING, 3)
    script.lose(client=False)
    pings = [(script.c(PING, i), script.s(PONG, i)) for i in range(4, 6)]

    states = script.states()

    assert states[first] == ("lost", -1)
    assert [states[a] for a, _ in pings] == [("answered", b) for _, b in pings]


def test_an_answer_to_a_request_in_a_gap_is_an_orphan() -> None:
    script = Script().ready()
    for i in range(3, 11):
        script.c(PING, i), script.s(PONG, i)
    script.lose(client=True)
    alone = script.s(PONG, 11)
    ping, pong = script.c(PING, 12), script.s(PONG, 12)

    states = script.states()

    assert states[alone][0] == "orphan"
    assert states[ping] == ("answered", pong)


def test_frames_after_an_unknown_type_are_unanswered() -> None:
    script = Script().ready()
    script.c(11, 3, bad=True)
    ping = script.c(PING, 4)

    assert script.states()[ping][0] == "unanswered"


def test_of_two_equal_acks_none_is_taken_for_the_refused_one() -> None:
    """Two ACKs of one tag in one write: the server is silent for the first and answers 404 to the second."""
    script = Script().ready()
    script.c(SUBSCRIBE, 3, topic="a", qos=1), script.s(ACK, 3, sub=2)
    script.c(PUBLISH, 4, topic="a", qos=1, body=5), script.c(POLL, 5, sub=2)
    script.s(PUBLISH, 1, topic="a", qos=1, body=5)
    first, second = script.c(ACK, 1, sub=2), script.c(ACK, 1, sub=2)
    refused = script.s(NACK, 1, code=404, text="unknown subscription or delivery tag")

    states = script.states()

    assert (states[first], states[second]) == (("unknown", -1), ("unknown", -1))
    assert states[refused][0] == "unknown"


def test_polls_of_an_empty_queue_are_not_what_a_later_message_answers() -> None:
    """Capture qos1, C14: the delivery answers the POLL after the PUBLISH; its id is the tag."""
    script = Script().ready()
    script.c(SUBSCRIBE, 3, topic="a", qos=1), script.s(ACK, 3, sub=2)
    early = [script.c(POLL, i, sub=2) for i in range(4, 8)]
    script.c(PUBLISH, 8, topic="a", qos=1, body=5)
    late = script.c(POLL, 9, sub=2)
    delivery = script.s(PUBLISH, 1, topic="a", qos=1, body=5)

    states = script.states()

    assert {states[k][0] for k in early} <= {"silent", "unknown"}
    assert states[late] in (("answered", delivery), ("likely", delivery), ("unknown", -1))


@pytest.mark.parametrize("count", [1024, 5000])
@pytest.mark.parametrize("extra", [0, 1])
def test_deliveries_answer_polls_that_were_sent_ahead_in_order(count: int, extra: int) -> None:
    """A client sends POLLs ahead, 64 to a segment, gets a message for each but perhaps the last, and confirms all.

    With one POLL more than messages any of them may be the one without: likely at the earliest place.
    """
    script = Script().ready()
    script.c(SUBSCRIBE, 3, topic="a", qos=1), script.s(ACK, 3, sub=2)
    polls = []
    for k in range(count + extra):
        script.now -= MS if k % 64 else MS - 3_000
        polls.append(script.c(POLL, 4 + k, sub=2))
    deliveries = []
    for k in range(count):
        script.now -= MS - 10_000
        deliveries.append(script.s(PUBLISH, k + 1, topic="a", qos=1, body=k))
    confirmed = [script.c(ACK, k + 1, sub=2) for k in range(count)]

    states = script.states()

    state = "likely" if extra else "answered"
    assert [states[k] for k in polls[:count]] == [(state, delivery) for delivery in deliveries]
    assert {states[k][0] for k in confirmed} == {"silent"}


def test_a_refused_publish_pairs_by_its_id() -> None:
    script = Script().ready()
    first, second = script.c(PUBLISH, 3, topic="a", qos=1, body=1), script.c(PUBLISH, 4, topic="a", qos=1, body=2)
    refused = script.s(NACK, 4, code=500, text="durable publish failed: wal writer stopped")

    states = script.states()

    assert (states[first], states[second]) == (("silent", -1), ("answered", refused))


def test_requests_before_a_gap_and_the_first_certain_reply_of_a_late_start_stay_open() -> None:
    script = Script()
    ack = script.c(ACK, 4, sub=2)
    script.lose(client=False)
    for i in range(5, 15):
        script.c(PING, i), script.s(PONG, i)

    assert script.states(started=False)[ack][0] == "unknown"


def test_a_late_start_is_ready_only_if_the_server_says_so() -> None:
    script = Script()
    pong = script.c(PONG, 4)

    assert script.states(ended=False, covered=False, started=False)[pong][0] == "unknown"
    script.c(PING, 5), script.s(PONG, 5)
    assert script.states(ended=False, covered=False, started=False)[pong][0] == "not_expected"


@pytest.mark.parametrize(("covered", "state"), [(True, "silent"), (False, "unknown")])
def test_a_late_start_that_nothing_was_refused_was_ready(covered: bool, state: str) -> None:
    """The server closed after all: in any other state it had answered."""
    script = Script()
    publish = script.c(PUBLISH, 4, topic="a", qos=0, body=1)

    assert script.states(covered=covered, started=False)[publish][0] == state


def test_a_late_start_that_was_refused_something_was_not_ready() -> None:
    """It logs in later: what came before got a refusal, one of which is missing."""
    script = Script()
    first = script.c(PUBLISH, 4, topic="a", qos=0, body=1)
    script.lose(client=False)
    script.c(PUBLISH, 5, topic="a", qos=0, body=1), script.s(NACK, 5, code=401, text="unauthenticated")
    script.c(HELLO, 6, version=1), script.s(ACK, 6, sub=0), script.c(AUTH, 7, text="k"), script.s(ACK, 7, sub=0)
    script.c(PING, 8), script.s(PONG, 8)
    last = script.c(PUBLISH, 9, topic="a", qos=0, body=1)

    states = script.states(started=False)

    assert (states[first][0], states[last][0]) == ("unknown", "silent")


def test_a_late_client_that_counts_is_paired_by_its_numbers() -> None:
    """Deliveries of QoS 0 repeat the id of their POLL, so that nothing else need tell where the counting begins."""
    script = Script()
    polls = []
    for i in range(4, 9):
        script.c(PUBLISH, 2 * i, topic="a", qos=0, body=i)
        polls.append((script.c(POLL, 2 * i + 1, sub=2), script.s(PUBLISH, 2 * i + 1, topic="a", qos=0, body=i)))

    states = script.states(started=False)

    assert [states[a] for a, _ in polls] == [("answered", b) for _, b in polls]


def test_a_message_that_was_there_answers_the_first_poll_of_its_subscription() -> None:
    """Capture qos1: PUBLISHes m1 and m2, later three POLLs in one packet, answered with m2 and, again, m1."""
    script = Script().ready()
    script.c(SUBSCRIBE, 3, topic="a", qos=1), script.s(ACK, 3, sub=8)
    script.c(PUBLISH, 4, topic="a", qos=1, body=1), script.c(PUBLISH, 5, topic="a", qos=1, body=2)
    script.c(POLL, 6, sub=8), script.s(PUBLISH, 1, topic="a", qos=1, body=1)
    first, second, third = (script.c(POLL, number, sub=8) for number in (7, 8, 9))
    for k in (first, second, third):
        script.frames[k].ts = script.frames[k].end = script.now  # one packet
    there, again = (script.s(PUBLISH, 3 - body, topic="a", qos=1, body=body) for body in (2, 1))
    script.c(PING, 10), script.s(PONG, 10)

    states = script.states()

    assert states[first] == ("answered", there)
    # The retry may have put m1 back between any two of the POLLs: the earliest is likely.
    assert [states[k] for k in (second, third)] == [("likely", again), ("unknown", -1)]


def test_a_late_client_that_gets_its_own_messages_is_paired_by_them() -> None:
    """Capture midstream: each delivery brings the body that the client published in front of its POLL."""
    script, polls = Script(), []
    for i in range(4, 9):
        script.c(PUBLISH, 9, topic="a", qos=1, body=i)
        polls.append((script.c(POLL, 9, sub=2), script.s(PUBLISH, i, topic="a", qos=1, body=i)))
        script.c(ACK, i, sub=2)
    script.c(PING, 9), script.s(PONG, 9)

    states = script.states(started=False)

    assert [states[a] for a, _ in polls] == [("answered", b) for _, b in polls]


@pytest.mark.parametrize("parts", [1, 99])
def test_a_request_before_a_late_start_showed_its_state_may_still_be_paired(parts: int) -> None:
    """A frame of the server is lost. The next delivery shows the state, two more prove which POLL it answers."""
    script, polls = Script(), []
    script.c(POLL, 9, sub=2), script.lose(client=False)
    for i in range(4, 9):
        script.c(PUBLISH, 9, topic="a", qos=1, body=i)
        polls.append((script.c(POLL, 9, sub=2), script.s(PUBLISH, i, topic="a", qos=1, body=i)))

    states = script.states(started=False, parts=parts)

    assert [states[poll] for poll, _ in polls] == [("answered", delivery) for _, delivery in polls]


def test_what_came_before_a_state_that_is_seen_only_later_is_unknown() -> None:
    """The login lies in missing bytes: the PONG may have come in front of it, and then it was refused."""
    script = Script()
    script.c(HELLO, 1, version=1), script.s(ACK, 1, sub=0)
    pong = script.c(PONG, 2)
    script.c(AUTH, 3, text="k")
    script.lose(client=False)
    script.c(SUBSCRIBE, 4, topic="a", qos=1), script.s(ACK, 4, sub=2)

    assert script.states()[pong][0] == "unknown"
