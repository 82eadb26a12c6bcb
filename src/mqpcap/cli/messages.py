"""The bytes of the messages that are shown, with the places that must not be seen."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mqpcap.cli.reading import Outcome, again

if TYPE_CHECKING:
    from mqpcap.capture import Capture
    from mqpcap.cli.time_merge import Row
    from mqpcap.explain import Explanation
    from mqpcap.message_bytes import MessageBytes, Wanted
    from mqpcap.schema.protocol import Direction


@dataclass(frozen=True, slots=True)
class Shown:
    """Contiguous bytes of a message, ``offset`` from its begin; ``hidden`` spans count from the first of them."""

    offset: int
    data: bytes
    hidden: tuple[tuple[int, int], ...]


class Bytes:
    """The bytes of rows, each capture read again once; a context manager."""

    def __init__(self, captures: "Sequence[Capture]", rows: "Iterable[Row]", outcome: Outcome) -> None:
        self._captures = captures
        self._rows = rows
        self._outcome = outcome
        self._message_bytes: dict[int, MessageBytes] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if not self._captures:
            return self
        from mqpcap.message_bytes import MessageBytes

        wanted: dict[int, list[Wanted]] = {}
        for row in self._rows:
            wanted.setdefault(row.capture, []).append(_wanted(row))
        options = self._outcome.choices.dissection()
        for number, some in wanted.items():
            capture = again(self._captures[number], self._outcome)
            message_bytes = MessageBytes(capture, some, options.max_memory_bytes)
            self._message_bytes[number] = self._stack.enter_context(message_bytes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def runs(self, row: "Row") -> list[Shown]:
        """What was captured of a message, in order."""
        runs = self._message_bytes[row.capture].runs(_wanted(row))
        secrets = not self._outcome.choices.show_secrets and _may_hold_secret(
            row.protocol, str(row.message["direction"]), row.message["op_code"]
        )
        return [Shown(run.offset, run.data, _hidden(row, run.data, run.offset) if secrets else ()) for run in runs]


def _wanted(row: "Row") -> "Wanted":
    from mqpcap.message_bytes import Wanted

    names = ("connection_id", "src_ip", "src_port", "stream_offset", "frame_len")
    return Wanted(*(row.message[name] for name in names))  # type: ignore[arg-type]  # columns of MESSAGES


@cache
def _may_hold_secret(protocol: str, direction: str, op: int | None) -> bool:
    from mqpcap.explain import may_hold_secret
    from mqpcap.protocols import protocols

    return may_hold_secret(protocols()[protocol], direction, op)


def _hidden(row: "Row", data: bytes, offset: int) -> tuple[tuple[int, int], ...]:
    """Spans of the run that hold a secret: what is behind a hole is hidden whole."""
    if offset:
        return ((0, len(data)),)
    from mqpcap.explain import secret_spans
    from mqpcap.protocols import protocols

    protocol = protocols()[row.protocol]
    return tuple(secret_spans(protocol, data, explained(row, data).best))


def explained(row: "Row", data: bytes) -> "Explanation":
    """The explanation of a row's bytes that agrees with the row."""
    from mqpcap.explain import explanation
    from mqpcap.protocols import protocols
    from mqpcap.tables.arrow import KEYS

    direction: Direction = "c2s" if row.message["direction"] == "c2s" else "s2c"
    fields = {name: value for name, value in row.fields.items() if name not in KEYS}
    return explanation(protocols()[row.protocol], data, direction, _dialect(row), fields)


def _dialect(row: "Row") -> str | None:
    return None if row.message["flaw"] is not None else str(row.message["dialect"])
