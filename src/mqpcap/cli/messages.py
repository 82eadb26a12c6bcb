"""The bytes of the messages that are shown, with the places that must not be seen."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mqpcap.cli.options import Choices
from mqpcap.cli.reading import Outcome, again

if TYPE_CHECKING:
    from mqpcap.capture import Capture
    from mqpcap.cli.time_merge import Row
    from mqpcap.explain import Explanation, Hidden
    from mqpcap.message_bytes import MessageBytes, Wanted
    from mqpcap.schema.protocol import Direction


@dataclass(frozen=True, slots=True)
class Shown:
    """Contiguous bytes of a message, ``offset`` from its begin; the spans of ``veil`` count from the first of them."""

    offset: int
    data: bytes
    veil: "Hidden | None"

    @property
    def hidden(self) -> tuple[tuple[int, int], ...]:
        """The spans that must not be shown."""
        return () if self.veil is None else self.veil.spans


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
        choices = self._outcome.choices
        return [Shown(run.offset, run.data, hidden(row, run.data, run.offset, choices)) for run in runs]


def _wanted(row: "Row") -> "Wanted":
    from mqpcap.message_bytes import Wanted

    names = ("connection_id", "src_ip", "src_port", "stream_offset", "frame_len")
    return Wanted(*(row.message[name] for name in names))  # type: ignore[arg-type]  # columns of MESSAGES


def hidden(row: "Row", data: bytes, offset: int, choices: Choices) -> "Hidden | None":
    """What must not be shown of these bytes of a row, None if all may be.

    A row with a flaw is hidden behind its header in a protocol with secrets, and in any if Decode As may have named
    the wrong one; what is behind a hole is hidden whole.
    """
    from mqpcap import explain as explanation
    from mqpcap.protocols import protocols
    from mqpcap.schema.protocol import ANY
    from mqpcap.tables.arrow import SECRET

    if choices.show_secrets:
        return None
    protocol = protocols()[row.protocol]
    code = row.message["op_code"]
    op = ANY if code is None else int(str(code))
    if row.message["flaw"] is not None:
        if not choices.decode_as and not explanation.holds_secrets(protocol):
            return None
        return explanation.ALL if offset else explanation.behind_header(protocol, str(row.message["direction"]), op)
    if any(row.fields.get(name) == SECRET.encode() for name in protocol.spare):
        return explanation.behind_header(protocol, str(row.message["direction"]), op)
    if not explanation.holds_secrets(protocol, op):
        return None
    return explanation.hidden(protocol, data, explained(row, data, inside=False).best)


def explained(row: "Row", data: bytes, inside: bool = True) -> "Explanation":
    """The explanation of a row's bytes that agrees with the row; ``inside`` as there."""
    from mqpcap.explain import explanation
    from mqpcap.protocols import protocols
    from mqpcap.tables.arrow import KEYS

    direction: Direction = "c2s" if row.message["direction"] == "c2s" else "s2c"
    fields = {name: value for name, value in row.fields.items() if name not in KEYS}
    return explanation(protocols()[row.protocol], data, direction, _dialect(row), fields, inside)


def _dialect(row: "Row") -> str | None:
    return None if row.message["flaw"] is not None else str(row.message["dialect"])
