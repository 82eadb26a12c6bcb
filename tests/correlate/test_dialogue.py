"""One connection's dialogue, one behaviour a test."""

import tracemalloc
from dataclasses import dataclass, field

import pytest

from mqpcap.correlate import dialogue as module
from mqpcap.correlate.dialogue import Dialogue, Findings, NamedRequests, Reply, Request
from mqpcap.schema.requests import NO_TIE, RequestKind, RequestTables, State

ANSWERED, UNANSWERED, LOST = map(int, (State.ANSWERED, State.UNANSWERED, State.LOST))
ORPHAN, UNKNOWN = map(int, (State.ORPHAN, State.UNKNOWN))
ASK, MAYBE, QUIET, SAID, OTHER = range(5)
MS = 1_000_000


KINDS = bytes([RequestKind.FIXED, RequestKind.OPTIONAL, *[RequestKind.SILENT] * 3])


def tables(ties: bool = False, timed: bool = False, named: bool = False) -> RequestTables:
    """ASK gets SAID or OTHER, MAYBE may get SAID, QUIET nothing."""
    return RequestTables(
        kind=[KINDS], wants=[[3, 1, 0, 0, 0]], says=[0, 0, 0, 1, 2],
        first_only=[False] * 5, untied=[False] * 5, next_state={}, silence=[State.SILENT] * 5,
        ties=ties, timed=timed, named=named,
    )  # fmt: skip


def couples(flat: list[int]) -> list[tuple[int, int]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


@dataclass
class Script:
    """Messages one after the other, 1 ms apart; rows are numbered as they come."""

    tables: RequestTables
    started: bool = True
    row: int = -1
    found: Findings = field(default_factory=Findings)

    def __post_init__(self) -> None:
        make = NamedRequests if self.tables.named else Dialogue
        self.dialogue = make(self.tables, 1, self.started, self.found)

    def c(self, code: int, tie: int = 0, after_ns: int = 0, number: int = -1) -> int:
        self.row += 1
        ts = self.row * MS + after_ns
        numbers = (number,) if self.tables.ties or self.tables.named else ()
        self.dialogue.request(Request(self.row, code, tie, 0, ts, ts, self.row * 20, numbers))
        return self.row

    def s(self, code: int, tie: int = 0, after_ns: int = 0) -> int:
        self.row += 1
        self.dialogue.reply(Reply(self.row, code, tie, 0, self.row * MS + after_ns))
        return self.row

    def gap(self, from_client: bool) -> None:
        self.dialogue.gap(from_client, (self.row + 1) * 20)

    def end(self, ended: bool = True, whole: bool = True) -> dict[int, int]:
        """The state of each row; rows of OPTIONAL requests without one were handled and got no reply."""
        self.dialogue.close(ended, whole, False)
        said = dict(reversed(couples(self.found.states)))
        return said | {q: ANSWERED for q, _ in self.pairs}

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return couples(self.found.pairs)


def test_replies_come_in_the_order_of_the_requests() -> None:
    script = Script(tables())
    asked = [script.c(ASK) for _ in range(3)]
    said = [script.s(SAID), script.s(OTHER), script.s(SAID)]

    assert script.pairs == list(zip(asked, said, strict=True))


def test_what_is_open_at_a_captured_end_is_unanswered() -> None:
    assert Script(tables()).end() == {}
    for ended, whole, state in ((True, True, UNANSWERED), (False, True, UNKNOWN), (True, False, UNKNOWN)):
        script = Script(tables())
        ask = script.c(ASK)
        assert script.end(ended, whole) == {ask: state}


def test_an_answer_that_two_may_have_got_waits_for_the_next_one() -> None:
    script = Script(tables())
    script.c(MAYBE), script.c(MAYBE)
    script.s(SAID)
    assert script.pairs == []
    ask = script.c(ASK)
    barrier = script.s(OTHER)

    assert script.pairs == [(ask, barrier)]
    assert script.end() == {0: UNKNOWN, 1: UNKNOWN, 2: UNKNOWN, ask: ANSWERED}


def test_two_answers_of_two_that_may_get_one_are_theirs() -> None:
    script = Script(tables())
    script.c(MAYBE), script.c(MAYBE)
    script.s(SAID), script.s(SAID)
    ask = script.c(ASK)
    barrier = script.s(OTHER)

    assert sorted(script.pairs) == [(0, 2), (1, 3), (ask, barrier)]


def test_one_that_was_certainly_handled_when_a_later_one_came_is_out() -> None:
    """Longer ago than any handling took: its answer would be there."""
    script = Script(tables(timed=True))
    script.c(MAYBE)
    late = script.c(MAYBE, after_ns=100 * MS)
    said = script.s(SAID, after_ns=100 * MS)
    script.c(ASK, after_ns=100 * MS)

    assert script.pairs == [(late, said)]


def test_answers_behind_a_gap_are_placed_where_only_one_place_fits() -> None:
    script = Script(tables())
    asked = [script.c(ASK) for _ in range(3)]
    script.gap(from_client=False)
    said = [script.s(SAID), script.s(SAID), script.s(SAID)]
    script.c(QUIET)
    more = script.c(ASK)

    assert script.pairs == list(zip(asked, said, strict=True))
    assert script.end()[more] == UNANSWERED


def test_answers_behind_a_gap_that_fit_twice_stay_unpaired() -> None:
    script = Script(tables())
    asked = [script.c(ASK) for _ in range(3)]
    script.gap(from_client=False)
    said = [script.s(SAID), script.s(SAID)]

    assert script.end() == dict.fromkeys([*asked, *said], UNKNOWN)
    assert script.pairs == []


def test_the_last_answer_behind_a_gap_may_be_of_a_request_that_is_missing() -> None:
    """The bytes that say so come later."""
    script = Script(tables())
    ask = script.c(ASK)
    script.gap(from_client=False)
    script.s(SAID)
    script.gap(from_client=True)
    script.c(ASK)

    assert script.pairs == []
    assert script.end()[ask] == UNKNOWN


def test_no_request_behind_missing_ones_is_paired_where_only_order_tells() -> None:
    script = Script(tables())
    first = script.c(ASK)
    script.gap(from_client=True)
    script.c(ASK)
    said = script.s(SAID)
    script.s(SAID), script.s(SAID)

    assert script.pairs == [(first, said)]


def test_a_tie_starts_the_counting_again() -> None:
    script = Script(tables(ties=True))
    for n in range(5):
        script.c(ASK, tie=n, number=n), script.s(SAID, tie=n)
    lost = script.c(ASK, tie=5, number=5)
    script.gap(from_client=False)
    ask = script.c(ASK, tie=6, number=6)
    said = script.s(SAID, tie=6)

    assert script.pairs[-1] == (ask, said)
    assert script.end()[lost] == LOST


def test_an_answer_nobody_asked_for_is_an_orphan_where_requests_are_missing() -> None:
    script = Script(tables(ties=True))
    for n in range(9):
        script.c(ASK, tie=n, number=n), script.s(SAID, tie=n)
    script.gap(from_client=True)
    alone = script.s(SAID, tie=9)

    assert script.end()[alone] == ORPHAN


def test_a_gap_between_replies_that_wait_is_not_forgotten() -> None:
    """What they belong to is seen only when the client counts: the request between has lost its answer."""
    script = Script(tables(ties=True), started=False)
    for n in range(8):
        script.c(ASK, tie=n, number=n)
    first = script.s(SAID, tie=7)
    maybe = script.c(MAYBE, tie=8, number=8)
    script.gap(from_client=False)
    last = script.c(ASK, tie=9, number=9)
    said = script.s(SAID, tie=9)
    script.c(ASK, tie=10, number=10)

    assert script.pairs == [(7, first), (last, said)]
    assert script.end()[maybe] == UNKNOWN


def test_an_open_request_is_answered_by_its_number_where_the_client_counts() -> None:
    script = Script(tables(ties=True), started=False)
    asked = [(script.c(MAYBE, tie=n, number=n), script.s(SAID, tie=n)) for n in range(5)]
    script.c(ASK, tie=5, number=5)

    assert script.pairs == asked


@pytest.mark.parametrize(("gap_behind", "state"), [(True, UNKNOWN), (False, None)])
def test_a_request_that_expects_nothing_may_have_got_its_reply_in_a_gap(gap_behind: bool, state: int | None) -> None:
    one_way = tables(ties=True)._replace(silence=[State.NOT_EXPECTED] * 5)
    script = Script(one_way)
    for n in range(5):
        script.c(ASK, tie=n, number=n), script.s(SAID, tie=n)
    if gap_behind:
        quiet = script.c(MAYBE, tie=5, number=5)
    script.gap(from_client=False)
    if not gap_behind:
        quiet = script.c(MAYBE, tie=5, number=5)
    script.c(ASK, tie=6, number=6), script.s(SAID, tie=6)

    assert script.end().get(quiet) == state


def test_what_was_not_captured_whole_ties_nothing() -> None:
    script = Script(tables(ties=True), started=False)
    script.c(ASK, tie=NO_TIE)
    alone = script.s(SAID, tie=NO_TIE)

    assert script.pairs == []
    assert script.end()[alone] == UNKNOWN


def test_a_request_without_a_tie_is_answered_in_step_between_the_same_ids() -> None:
    """One that may get an answer, and one that must, of the same id: who got the only one is not known."""
    script = Script(tables(ties=True))
    script.c(MAYBE, tie=7), script.c(ASK, tie=7)
    script.s(SAID, tie=7)
    script.c(ASK, tie=7)
    script.s(SAID, tie=7)

    assert script.pairs == []


def test_too_many_open_requests_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPEN", 8)
    script = Script(tables())
    asked = [script.c(ASK) for _ in range(9)]
    script.s(SAID)
    states = script.end()

    assert script.pairs == []
    assert {states[k] for k in asked} == {UNKNOWN}


def test_named_requests_are_answered_in_any_order() -> None:
    script = Script(tables(named=True))
    one, two = script.c(ASK, tie=1, number=0), script.c(ASK, tie=2, number=0)
    last, first = script.s(SAID, tie=2), script.s(SAID, tie=1)

    assert script.pairs == [(two, last), (one, first)]


def test_a_name_that_is_used_again_says_nothing_more() -> None:
    script = Script(tables(named=True))
    one, again = script.c(ASK, tie=1, number=0), script.c(ASK, tie=1, number=0)
    script.s(SAID, tie=1)

    assert script.pairs == []
    assert script.end() == {one: UNKNOWN, again: UNKNOWN, 2: module.NO_ROW}


def test_only_the_first_reply_to_a_name_counts() -> None:
    script = Script(tables(named=True))
    one = script.c(ASK, tie=1, number=0)
    first = script.s(SAID, tie=1)
    more = script.s(SAID, tie=1)

    assert script.pairs == [(one, first)]
    assert script.end() == {one: ANSWERED, more: module.NO_ROW}


def test_requests_that_were_given_up_leave_memory() -> None:
    script = Script(tables(ties=True))

    def fill() -> int:
        for k in range(3 * module.MAX_OPEN):
            script.c(ASK, tie=k)
        script.found.clear()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before, after = fill(), fill()
    finally:
        tracemalloc.stop()

    assert after - before < 32 * module.MAX_OPEN  # a request takes 100 bytes or more


def test_requests_that_share_a_tie_have_one_state_each() -> None:
    """Behind a gap any of them may have got any of the replies: what is found must not grow with their product."""
    script = Script(tables(ties=True))
    asked = [script.c(ASK, 7) for _ in range(100)]
    script.gap(False)
    said = [script.s(SAID, 7) for _ in range(100)]

    assert script.end() == dict.fromkeys([*asked, *said], UNKNOWN)
    assert len(couples(script.found.states)) <= 2 * len(asked) + len(said)  # of the end, too
