"""Records how the request matcher aligned one connection, so that a user can see why a pair is certain or likely.

In: steps of a matcher, as they happen. Out: `Replay.steps`, at most `MAX_STEPS`. Called by: ``matcher``, only for the
connection that ``explain --pairing`` asks for.
"""

from collections import deque
from typing import Literal, NamedTuple

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


class Replay:
    """The steps of one request group of a connection; with ``target`` only those around one message.

    side: the side that asks.
    target: direction and stream offset of that message. Steps before the span of the message are dropped, and recording
    ends with the span.
    """

    def __init__(self, by_name: bool, side: str = "c2s") -> None:
        self.by_name, self.side = by_name, side
        self.steps: deque[Step] = deque(maxlen=MAX_STEPS)
        self.left_out_count = 0
        self.keeps_span = False
        self.target: tuple[str, int] | None = None
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
        if self.target is not None and not self._has_target:
            direction, offset = self.target
            requests = (step.offset,) if step.kind == "request" else (step.earliest,) if step.kind == "pair" else ()
            replies = (step.offset,) if step.kind in ("reply", "pair", "unpaired") else ()
            self._has_target = offset in (requests if direction == self.side else replies)

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
        return self.target is not None and self.target[0] == self.side and self.target[1] >= open_from
