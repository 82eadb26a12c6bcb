"""BlipMQ exchanges and deliveries: truth files, what the notes say step by step, and random conversations."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
    Conversation,
    Frame,
    damaged,
    table,
)

from mqpcap import arrays as matching
from mqpcap.capture import captures
from mqpcap.correlate import rows as packed_rows
from mqpcap.pipeline import dissect
from mqpcap.protocols.blipmq import aside as blipmq_aside
from mqpcap.protocols.blipmq import pairing as blipmq_pairing
from mqpcap.protocols.blipmq.aside import Sieve
from mqpcap.protocols.blipmq.columns import Columns
from mqpcap.schema.protocol import Ends, Matches, Pairing, State

ROOT = Path(__file__).resolve().parents[2]
WHOLE, DAMAGED = 60, 240
"""Random conversations per run; 10,000 damaged ones were run by hand without a wrong pair."""


def truths() -> Iterator[Any]:
    places = [(ROOT / "tests" / "truth" / "blipmq", ROOT / "pcaps" / "blipmq")]
    if shared := os.environ.get("MQPCAP_SHARED"):
        places.append((Path(shared) / "captures" / "blipmq",) * 2)
    for folder, pcaps in places:
        for file in sorted(folder.glob("*.truth.json")):
            pcap = pcaps / file.name.replace(".truth.json", ".pcap")
            yield pytest.param(file, pcap, id=f"{file.parent.parent.name}-{file.stem}")


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


@pytest.mark.parametrize(("truth", "pcap"), list(truths()))
def test_exchanges_are_those_the_client_saw(truth: Path, pcap: Path) -> None:
    said = json.loads(truth.read_text())
    if not pcap.exists() or not any("events" in c for c in said["connections"]):
        pytest.skip("no single events in the truth")
    dissection = dissect(captures([str(pcap)]).captures[0])
    rows = [r for chunk in dissection.chunks() if chunk.protocol == "blipmq" for r in chunk.messages.to_pylist()]
    rows = sorted((r for r in rows if r["flaw"] != "truncated"), key=lambda r: r["stream_offset"])
    ours = [c for c in dissection.connections.to_pylist() if c["protocol"] == "blipmq"]
    ids = {c["client_port"]: c["connection_id"] for c in ours}
    exchanges = dissection.ledgers()["blipmq"].exchanges.to_pylist()

    got = {
        (e["connection_id"], e["request_offset"]): (e["state"], e["reply_offset"])
        for e in exchanges
        if e["request_offset"] is not None
    }
    want = expected(said, rows, ids)

    assert {k: got.get(k) for k in want} == want
    assert all(state == "unknown" for k, (state, _) in got.items() if k not in want)


def run(frames: list[Frame], ends: dict[int, Ends]) -> tuple[Pairing, Matches]:
    rows = table(frames)
    pairs = blipmq_pairing.pairs(rows, ends)
    return with_aside(frames, pairs), blipmq_pairing.deliveries(rows, ends, pairs)


def with_aside(frames: list[Frame], pairs: Pairing) -> Pairing:
    """The pairs and, by the words of ``Aside``, the requests that were set aside."""
    aside = pairs.aside
    if aside is None:
        return pairs
    rows = sorted(set(range(len(frames))) - set(aside.seen.tolist()))
    ends = dict(zip(aside.connection.tolist(), aside.end.tolist(), strict=True))
    silent = [frames[k].offset < ends[frames[k].connection] for k in rows]
    states = [State.SILENT if one else State.UNKNOWN for one in silent]
    return pairs.plus(Pairing(np.array(rows, np.int64), np.full(len(rows), -1), np.array(states, np.int8)))


def wrong(frames: list[Frame], pairs: Pairing, matches: Matches) -> list[tuple[object, ...]]:
    """Everything that the broker knows better."""
    out: list[tuple[object, ...]] = []
    captured = {id(f) for f in frames}
    seen = {id(f.answers) for f in frames if f.answers is not None}
    asked: Counter[int] = Counter()
    for request, reply, number in zip(pairs.request.tolist(), pairs.reply.tolist(), pairs.state.tolist(), strict=True):
        state = State(number)
        frame = frames[request] if request >= 0 else None
        asked[request] += 1
        if state == State.ANSWERED:
            if frames[reply].answers is not frame:
                out.append(("pair", request, reply))
        elif frame is None:
            if state == State.ORPHAN and id(frames[reply].answers) in captured:
                out.append((state.name, reply))
        elif (state in (State.SILENT, State.NOT_EXPECTED, State.UNANSWERED) and frame.answered) or (
            state == State.LOST and (not frame.answered or id(frame) in seen)
        ):
            out.append((state.name, request))
    del asked[-1]
    out += [("rows", i) for i, f in enumerate(frames) if f.client and asked[i] != 1]
    replies = sorted(pairs.reply[pairs.reply >= 0].tolist())
    if replies != [i for i, f in enumerate(frames) if not f.client]:
        out.append(("replies",))
    for publish, deliver, how in zip(matches.publish.tolist(), matches.deliver.tolist(), matches.how, strict=True):
        if frames[deliver].message is not frames[publish]:
            out.append((how, publish, deliver))
    return out


@pytest.mark.parametrize("seed", range(WHOLE))
def test_whole_conversations_have_no_wrong_pair_and_few_open_ones(seed: int) -> None:
    talk = Conversation(seed)
    frames = list(talk.frames)
    pairs, matches = run(frames, talk.ends())

    assert wrong(frames, pairs, matches) == []


def test_nearly_all_answers_of_whole_conversations_are_paired() -> None:
    """What stays open are frames of two connections that the broker may have handled in either order."""
    states: Counter[int] = Counter()
    for seed in range(WHOLE):
        talk = Conversation(seed)
        pairs, _ = run(list(talk.frames), talk.ends())
        states.update(pairs.state[pairs.reply >= 0].tolist())

    assert states[State.UNKNOWN] < 0.02 * states[State.ANSWERED]


@pytest.mark.parametrize("seed", range(DAMAGED))
def test_damaged_conversations_have_no_wrong_pair(seed: int) -> None:
    frames, ends = damaged(Conversation(seed), random.Random(seed + 10**6))
    pairs, matches = run(frames, ends)

    assert wrong(frames, pairs, matches) == []


class Script:
    """Frames written down one after the other, 1 ms apart; ``c`` sends, ``s`` answers."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.offset = {True: 0, False: 0}
        self.now = 10**18

    def _add(self, client: bool, op: int, number: int, said: dict[str, Any]) -> int:
        self.now += MS
        frame = Frame(1, client, op, number, self.now, self.now, self.offset[client], 20, **said)
        self.offset[client] += 20
        self.frames.append(frame)
        return len(self.frames) - 1

    def c(self, op: int, number: int, **said: Any) -> int:
        return self._add(True, op, number, said)

    def s(self, op: int, number: int, **said: Any) -> int:
        return self._add(False, op, number, said)

    def ready(self) -> "Script":
        self.c(HELLO, 1, version=1), self.s(ACK, 1, sub=0), self.c(AUTH, 2, text="k"), self.s(ACK, 2, sub=0)
        return self

    def states(self, **edge: Any) -> dict[int, tuple[str, int]]:
        whole = Ends(1, "s 1", True, ((), ()), False, True, True, True, 10**18)
        ends = replace(whole, **edge)
        pairs = with_aside(self.frames, blipmq_pairing.pairs(table(self.frames), {1: ends}))
        return {
            (a if a >= 0 else b): (State(s).name.lower(), b)
            for a, b, s in zip(pairs.request.tolist(), pairs.reply.tolist(), pairs.state.tolist(), strict=True)
        }


class Producer(Script):
    """A connection that publishes and asks for signs of life; some of it goes wrong."""

    def __init__(self, number: int, dice: random.Random) -> None:
        super().__init__()
        self.now += number
        self.number, self.dice = number, dice
        if dice.random() < 0.1:
            self.publish()
        if dice.random() < 0.9:
            self.ready()
        asked = [self.one() for _ in range(dice.randint(0, 30))]
        for ping in (ping for ping in asked if ping is not None and dice.random() < 0.98):
            self.s(PONG, ping)
        if dice.random() < 0.2:
            self.publish()

    def one(self) -> int | None:
        what = self.dice.random()
        number = len(self.frames) + 10
        if what < 0.7:
            self.publish()
            return None
        if what < 0.71:
            self.c(77, number)
            return None
        self.c(PING, number)
        if what < 0.9:
            self.s(PONG, number)
            return None
        return number

    def publish(self) -> None:
        said = {"topic": self.dice.choice(["a", "b"]), "qos": int(self.dice.random() < 0.5), "body": len(self.frames)}
        if self.dice.random() < 0.01:
            said |= self.dice.choice([{"qos": 2}, {"topic": ""}])
        self.c(PUBLISH, self.dice.choice([0, len(self.frames) + 10]), **said)

    def edge(self) -> Ends:
        reset, fin, covered = self.dice.choice([(True, False, False), (False, True, True), (False, False, False)])
        hole = (self.dice.randrange(20) * 20,) if self.dice.random() < 0.1 else ()
        started = self.dice.random() < 0.95
        server = f"s {self.dice.randint(1, 2)}"
        return Ends(self.number, server, started, (hole, ()), reset, fin, fin, covered, 10**18)


@pytest.mark.parametrize("seed", range(400))
def test_publishes_set_aside_have_the_states_that_looking_at_each_gives(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    producers = [Producer(k, dice) for k in range(1, dice.randint(2, 5))]
    frames = [replace(f, connection=p.number) for p in producers for f in p.frames]
    ends = {p.number: p.edge() for p in producers}
    # Looked at a few rows at a time, and connections merged block by block, as those of long captures are.
    monkeypatch.setattr(packed_rows, "BLOCK_ROW_COUNT", 1 + seed % 7)
    monkeypatch.setattr(matching, "MERGED", seed % 3)
    monkeypatch.setattr(blipmq_aside, "GROUP_ROW_COUNT", 1 + seed % 11)
    sifted, _ = run(frames, ends)
    monkeypatch.setattr(Sieve, "plain", lambda self, ends: np.zeros(len(self.connection), np.bool_))
    every, _ = run(frames, ends)

    assert exchanges_of(sifted) == exchanges_of(every)


def exchanges_of(pairs: Pairing) -> list[tuple[int, int, int]]:
    return sorted(zip(pairs.request.tolist(), pairs.reply.tolist(), pairs.state.tolist(), strict=True))


def test_publishes_of_a_producer_are_silent_as_far_as_the_server_surely_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is looked at: the PONG says that all in front of its PING was handled, nothing of those behind."""
    script = Script().ready()
    before = [script.c(PUBLISH, k, topic="a", qos=k % 2, body=k) for k in range(10, 14)]
    script.c(PING, 20), script.s(PONG, 20)
    behind = [script.c(PUBLISH, k, topic="a", qos=k % 2, body=k) for k in range(30, 34)]
    looked: list[int] = []
    monkeypatch.setattr(blipmq_pairing, "Columns", lambda rows: (looked.append(rows.num_rows), Columns(rows))[1])

    states = script.states(server_fin=False, covered=False)
    assert [states[k][0] for k in (*before, *behind)] == ["silent"] * 4 + ["unknown"] * 4
    assert [script.states()[k][0] for k in behind] == ["silent"] * 4
    assert {*looked} <= {6, 0}


def test_open_frames_before_a_server_fin_are_silent_and_before_a_reset_unknown() -> None:
    script = Script().ready()
    poll, publish = script.c(POLL, 3, sub=9), script.c(PUBLISH, 4, topic="a", qos=1, body=1)

    assert [script.states()[k][0] for k in (poll, publish)] == ["silent", "silent"]
    reset = script.states(reset=True, server_fin=False, covered=False)
    assert [reset[k][0] for k in (poll, publish)] == ["unknown", "unknown"]


def test_fixed_frames_are_unanswered_after_a_reset_and_unknown_where_the_capture_ends() -> None:
    script = Script().ready()
    ping = script.c(PING, 3)

    assert script.states(reset=True, server_fin=False, covered=False)[ping][0] == "unanswered"
    assert script.states(server_fin=False, covered=False)[ping][0] == "unknown"


def test_an_answer_in_a_gap_is_lost_and_counting_goes_on_behind_it() -> None:
    script = Script().ready()
    first = script.c(PING, 3)
    script.offset[False] += 20  # the PONG that was not captured
    hole = script.offset[False] - 20
    pings = [(script.c(PING, i), script.s(PONG, i)) for i in range(4, 6)]

    states = script.states(holes=((), (hole,)))

    assert states[first] == ("lost", -1)
    assert [states[a] for a, _ in pings] == [("answered", b) for _, b in pings]


def test_an_answer_to_a_request_in_a_gap_is_an_orphan() -> None:
    script = Script().ready()
    for i in range(3, 11):
        script.c(PING, i), script.s(PONG, i)
    hole = script.offset[True]
    script.offset[True] += 20
    alone = script.s(PONG, 11)
    ping, pong = script.c(PING, 12), script.s(PONG, 12)

    states = script.states(holes=((hole,), ()))

    assert states[alone][0] == "orphan"
    assert states[ping] == ("answered", pong)


def test_frames_behind_an_unknown_type_are_unanswered() -> None:
    script = Script().ready()
    script.c(11, 3, bad=True)
    ping = script.c(PING, 4)

    assert script.states()[ping][0] == "unanswered"


def test_deliveries_of_a_known_queue_may_all_be_without_a_publish() -> None:
    """The first tag with the second body: the wire contradicts the queue, so the tag tells no publish."""
    script = Script().ready()
    script.c(SUBSCRIBE, 3, topic="a", qos=1), script.s(ACK, 3, sub=2)
    published = [script.c(PUBLISH, 4 + k, topic="a", qos=1, body=10 + k) for k in range(2)]
    poll = script.c(POLL, 6, sub=2)
    delivery = script.s(PUBLISH, 1, topic="a", qos=1, body=11)
    states = script.states()

    assert states[poll] == ("answered", delivery)
    assert [states[k][0] for k in published] == ["silent", "silent"]


def test_of_two_equal_acks_the_first_is_silent() -> None:
    """Section 7, step 6a: two in one write give silence for the first and 404 for the second."""
    script = Script().ready()
    script.c(SUBSCRIBE, 3, topic="a", qos=1), script.s(ACK, 3, sub=2)
    script.c(PUBLISH, 4, topic="a", qos=1, body=5), script.c(POLL, 5, sub=2)
    script.s(PUBLISH, 1, topic="a", qos=1, body=5)
    first, second = script.c(ACK, 1, sub=2), script.c(ACK, 1, sub=2)
    refused = script.s(NACK, 1, code=404, text="unknown subscription or delivery tag")

    states = script.states()

    assert (states[first], states[second]) == (("silent", -1), ("answered", refused))


def test_polls_of_an_empty_queue_are_not_what_a_later_message_answers() -> None:
    """Capture qos1, C14: the delivery answers the POLL behind the PUBLISH; its id is the tag."""
    script = Script().ready()
    script.c(SUBSCRIBE, 3, topic="a", qos=1), script.s(ACK, 3, sub=2)
    early = [script.c(POLL, i, sub=2) for i in range(4, 8)]
    script.c(PUBLISH, 8, topic="a", qos=1, body=5)
    late = script.c(POLL, 9, sub=2)
    delivery = script.s(PUBLISH, 1, topic="a", qos=1, body=5)

    states = script.states()

    assert [states[k][0] for k in early] == ["silent"] * 4
    assert states[late] == ("answered", delivery)


def test_a_refused_publish_pairs_by_its_id() -> None:
    script = Script().ready()
    first, second = script.c(PUBLISH, 3, topic="a", qos=1, body=1), script.c(PUBLISH, 4, topic="a", qos=1, body=2)
    refused = script.s(NACK, 4, code=500, text="durable publish failed: wal writer stopped")

    states = script.states()

    assert (states[first], states[second]) == (("silent", -1), ("answered", refused))


def test_subscription_one_is_that_of_the_self_test() -> None:
    script = Script().ready()
    script.c(PUBLISH, 3, topic="test", qos=1, body=1), script.c(PUBLISH, 4, topic="a", qos=1, body=2)
    poll = script.c(POLL, 5, sub=1)
    stranger = script.s(PUBLISH, 1, topic="a", qos=1, body=2)

    assert script.states()[poll][0] != "answered"
    assert script.states()[stranger][0] == "unknown"


def test_a_gap_just_before_the_first_fixed_answer_of_a_late_start_leaves_what_is_before_open() -> None:
    script = Script()
    ack = script.c(ACK, 4, sub=2)
    hole = script.offset[False]
    script.offset[False] += 20
    for i in range(5, 15):
        script.c(PING, i), script.s(PONG, i)

    assert script.states(start=False, holes=((), (hole,)))[ack][0] == "unknown"


def test_a_late_start_is_ready_only_if_the_server_says_so() -> None:
    script = Script()
    pong = script.c(PONG, 4)

    assert script.states(start=False, server_fin=False, covered=False)[pong][0] == "unknown"
    script.c(PING, 5), script.s(PONG, 5)
    assert script.states(start=False, server_fin=False, covered=False)[pong][0] == "not_expected"


@pytest.mark.parametrize("seed", range(12))
def test_what_short_connections_share_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations and copies of them on other connections of the broker, some damaged: counted once, or each."""
    talk = Conversation(seed)
    frames, ends = damaged(talk, random.Random(seed)) if seed % 3 == 0 else (list(talk.frames), talk.ends())
    again = [replace(f, connection=f.connection + 1000, ts=f.ts + 7 * MS, end=f.end + 7 * MS) for f in frames]
    ends |= {k + 1000: replace(e, connection_id=k + 1000, first_ts_ns=e.first_ts_ns + 7 * MS) for k, e in ends.items()}
    shared = run([*frames, *again], ends)
    monkeypatch.setattr(blipmq_pairing, "MAX_SHAPE_FRAMES", -1)
    apart = run([*frames, *again], ends)

    assert as_lists(shared) == as_lists(apart)


def as_lists(found: tuple[Pairing, Matches]) -> list[object]:
    pairs, matches = found
    arrays = (pairs.request, pairs.reply, pairs.state, pairs.publish, matches.publish, matches.deliver, matches.key)
    return [None if array is None else list(array) for array in arrays] + [matches.how, matches.doubtful]


def test_connections_that_say_the_same_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    read = blipmq_pairing._Talk._read
    monkeypatch.setattr(blipmq_pairing._Talk, "_read", lambda self: (counted.append(1), read(self))[1])
    frames, ends = [], {}
    for k in range(1, 101):
        start = k * 10 * MS
        greeting = [(True, HELLO, 1), (False, ACK, 1), (True, AUTH, 2), (False, ACK, 2)]
        said = [*greeting, (True, PUBLISH, 3), (True, POLL, 4)]
        offsets = {True: 0, False: 0}
        for at, (client, op, number) in enumerate(said):
            sub = {ACK: 0, POLL: 7}.get(op)
            frames.append(
                Frame(k, client, op, number, start + at * MS, start + at * MS, offsets[client], 20, sub=sub,
                      version=1 if op == HELLO else None, qos=0 if op == PUBLISH else None,
                      topic="orders" if op == PUBLISH else None, body=k if op == PUBLISH else None)
            )  # fmt: skip
            offsets[client] += 20
        ends[k] = Ends(k, "10.0.0.1 5555", True, ((), ()), False, True, True, True, start)

    pairs, _ = run(frames, ends)

    assert len(counted) == 1
    assert Counter(State(s).name for s in pairs.state.tolist()) == {"ANSWERED": 200, "SILENT": 200}
