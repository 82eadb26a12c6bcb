"""``mqpcap.explain``: one message, field by field."""

from typing import Any, TypeAlias, TypedDict, Unpack, overload

from mqpcap.api.inputs import Source, inputs_of
from mqpcap.listing.explained_messages import (
    ExplainedMessage,
    GivenBytes,
    PacketName,
    PairingName,
    explain_bytes,
    explain_captured,
    what_is_explained,
)
from mqpcap.listing.pairing_replay import PairingReplay, replay_pairing
from mqpcap.reading import CallOptions, Inputs
from mqpcap.schema.protocol import Direction

At: TypeAlias = int | str | PacketName | None


class MessageName(TypedDict, total=False):
    """A message by its place in a stream, or by its bytes."""

    connection: str | None
    direction: Direction | None
    offset: int | None
    hex: str | bytes | None
    protocol: str | None
    dialect: str | None


class ExplainOptions(CallOptions, MessageName, total=False):
    """The options of a call, and the name of its message."""


@overload
def explain(path: Source, at: At = None, *, pairing: str, **options: Unpack[CallOptions]) -> PairingReplay: ...


@overload
def explain(
    path: "Source | None" = None, at: At = None, *, pairing: None = None, **options: Unpack[ExplainOptions]
) -> list[ExplainedMessage]: ...


def explain(
    path: "Source | None" = None, at: At = None, *, pairing: str | None = None, **options: Unpack[ExplainOptions]
) -> list[ExplainedMessage] | PairingReplay:
    """Messages field by field: where each field is, its bytes, its value and what that means.

    In a capture the message is named by the packet (``at=12`` or ``at="broker.pcap1#12"``), or by connection, direction
    and offset. ``hex`` and ``protocol``: the message's bytes in place of a capture, hex digits or bytes.
    ``pairing``: how the replies of a connection, as ``"c7"``, found their requests; with ``at`` only around a message.
    Raises LookupError if there is no such message, ValueError if it is not named.

    >>> import mqpcap
    >>> [message.result.best.operation for message in mqpcap.explain("pcaps/blipmq/qos1.pcap", at=12)]
    ['PUBLISH']
    """
    has_capture = path.name != "" if isinstance(path, Inputs) else path is not None
    call_options: dict[str, Any] = {**options}
    named = {name: call_options.pop(name, None) for name in MessageName.__annotations__}
    what = what_is_explained(has_capture, at, pairing, **named)
    inputs = inputs_of(() if path is None else path, call_options)
    outcome = inputs.outcome
    if isinstance(what, GivenBytes):
        message = explain_bytes(what, outcome.choices)
        if message.result.best is None or not message.result.best.fits:
            outcome.flaws["malformed"] += 1
        return [message]
    if isinstance(what, PairingName):
        replay = replay_pairing(inputs.captures, what.connection, what.packet, outcome, inputs.progress)
        inputs.check(replay is not None)
        inputs.finish()
        assert replay is not None
        return replay
    explained, misses = explain_captured(inputs.captures, what, outcome, inputs.progress)
    inputs.check(bool(inputs.captures))
    if not explained:
        raise LookupError(misses[0])
    inputs.finish()
    return explained
