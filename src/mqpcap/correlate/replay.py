"""Records how the request matcher aligned one connection, so that a user can see why a pair is certain or likely.

In: steps of a matcher, as they happen. Out: `Replay.steps`, at most `MAX_STEPS`. Called by: ``matcher``, only for the
connection that ``explain --pairing`` asks for.
"""

from collections import deque
from collections.abc import Iterator, Set
from typing import Literal, NamedTuple

from mqpcap.schema.protocol import other_direction

MAX_STEPS = 1 << 14
"""Steps that are recorded; later steps are counted."""
MISSING = -1
"""In place of a request's stream offset: a request in a hole."""
ANY = -2
"""In place of a request's stream offset: any number of requests before the capture, or in a large hole."""
StepKind = Literal["start", "request", "reply", "hole", "assumption", "decision", "pair", "unpaired"]


class Step(NamedTuple):
    """One step of a matcher.

    ``offset``: stream offset of the request or reply; of a reply that may be missing: MISSING.
    ``earliest``, ``latest``: stream offsets of the first and the last request that a reply may answer, or MISSING, ANY.
    ``size``: requests in the ring after a request; requests from earliest to latest; messages of a hole.
    ``evidence``: of a pair, as in ``exchanges.how``.
    ``is_likely``: whether the pair rests on an assumption.
    ``text``: what happened, for people.
    """

    kind: StepKind
    offset: int = MISSING
    earliest: int = MISSING
    latest: int = MISSING
    size: int = 0
    evidence: int = -1
    is_likely: bool = False
    text: str = ""

    def messages(self, side: str) -> Iterator[tuple[str, int]]:
        """The request and the reply of the step, as direction and stream offset; ``side``: the side that asks."""
        if self.kind in ("request", "pair"):
            yield side, self.offset if self.kind == "request" else self.earliest
        if self.kind in ("reply", "pair", "unpaired"):
            yield other_direction(side), self.offset


class Replay:
    """The steps of one request group of a connection; with ``targets`` only those around these messages.

    side: the side that asks.
    targets: direction and stream offset of each. Steps before the span of the first of them are dropped, and recording
    ends with the span.
    """

    def __init__(self, by_name: bool, side: str = "c2s") -> None:
        self.by_name, self.side = by_name, side
        self.steps: deque[Step] = deque(maxlen=MAX_STEPS)
        self.left_out_count = 0
        self.keeps_span = False
        self.targets: Set[tuple[str, int]] = frozenset()
        self.is_over = False
        self._has_target = False

    def add(self, *values: object, **named: object) -> None:
        """Record a step."""
        step = Step(*values, **named)  # type: ignore[arg-type]  # Cython calls this with the types of Step
        if self.is_over:
            return
        if len(self.steps) == MAX_STEPS and not self.keeps_span:
            self.left_out_count += 1
            return
        self.steps.append(step)
        if self.targets and not self._has_target:
            self._has_target = not self.targets.isdisjoint(step.messages(self.side))

    def settled(self, open_from: int) -> None:
        """All requests before a stream offset are decided: the next span begins."""
        if not self.keeps_span or self.is_over:
            return
        if self._has_target and not self._is_open(open_from):
            self.is_over = True
            return
        while self.steps and not self._has_target:
            step = self.steps[0]
            if step.kind == "request" and step.offset >= open_from:
                break
            self.steps.popleft()

    def _is_open(self, open_from: int) -> bool:
        return any(side == self.side and offset >= open_from for side, offset in self.targets)
