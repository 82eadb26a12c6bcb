"""All alignments of a small conversation, tried one by one: which pairs do all of them contain?

Written from the definition, without anything of ``correlate``: each reply gets a request; pairs do not cross, no
request that must be answered is passed over, operations fit, acknowledgements allow it. A hole of ``k`` shortest
messages is one to ``k`` messages that fit everything. The start is known; the end decides nothing.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class Message(NamedTuple):
    """A message, or one that may have been in a hole (no ``op``): it stands where its hole ``begins`` and ``ends``."""

    op: str | None
    begins: int
    ends: int
    acknowledges: int
    is_due: bool


def with_holes(rows: Sequence[Row], sent: int, length: int) -> list[Message]:
    """The messages of a side and what its holes may have held, in order of its stream."""
    messages: list[Message] = []
    read = 0
    end = {"op": None, "stream_offset": sent, "first_ack": 1 << 60}
    for row in (*sorted(rows, key=lambda r: int(r["stream_offset"])), end):
        offset = row["stream_offset"]
        for k in range((offset - read) // length):
            messages.append(Message(None, read, offset, row["first_ack"], k == 0))
        if row["op"] is not None:
            messages.append(Message(row["op"], offset, offset + length, row["first_ack"], True))
        read = offset + length
    return messages


def acknowledged(requests: Sequence[Message], reply: Message) -> int:
    """How many requests, counted from the first, a reply may answer."""
    for k, request in enumerate(requests):
        if request.op is None and request.begins >= reply.acknowledges:
            return k
        starts = reply.begins if reply.op is not None else reply.ends - 1
        if request.op is not None and (request.ends > reply.acknowledges or request.acknowledges > starts):
            return k
    return len(requests)


def certain_pairs(requests: Sequence[Message], replies: Sequence[Message]) -> set[tuple[int, int]]:
    """Offsets of the requests and replies that are a pair in every alignment."""
    limits = [acknowledged(requests, reply) for reply in replies]
    limits = [max(limits[: j + 1]) for j in range(len(limits))]

    def choices(i: int, j: int) -> list[int]:
        """Which request reply ``j`` may answer if all below ``i`` are settled; -1: no reply was in the hole."""
        open_to = next((k + 1 for k in range(i, len(requests)) if requests[k].is_due), len(requests))
        ops = {None, replies[j].op}
        fitting = [k for k in range(i, min(open_to, limits[j])) if replies[j].op is None or requests[k].op in ops]
        return fitting if replies[j].is_due else [*fitting, -1]

    @cache
    def ways(i: int, j: int) -> int:
        return j == len(replies) or sum(ways(i if k < 0 else k + 1, j + 1) for k in choices(i, j))

    answers: list[set[int]] = [set() for _ in replies]
    places = {0}
    for j in range(len(replies)):
        steps = [(i, k) for i in places for k in choices(i, j) if ways(i if k < 0 else k + 1, j + 1)]
        answers[j] = {k for _, k in steps}
        places = {i if k < 0 else k + 1 for i, k in steps}
    single = [(next(iter(ks)), j) for j, ks in enumerate(answers) if len(ks) == 1 and replies[j].op is not None]
    return {(requests[k].begins, replies[j].begins) for k, j in single if k >= 0 and requests[k].op is not None}
