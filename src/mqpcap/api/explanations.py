"""``mqpcap.explain``: one message, field by field."""

from collections.abc import Callable
from typing import Unpack, overload

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
from mqpcap.reading import Inputs, ReadingOptions, no_progress
from mqpcap.schema.protocol import Direction


@overload
def explain(
    path: Source,
    *,
    pairing: str,
    at: int | str | None = None,
    progress: Callable[[int], None] = ...,
    **options: Unpack[ReadingOptions],
) -> PairingReplay: ...


@overload
def explain(
    path: "Source | None" = None,
    at: int | str | None = None,
    *,
    connection: str | None = None,
    direction: Direction | None = None,
    offset: int | None = None,
    hex: str | bytes | None = None,
    protocol: str | None = None,
    dialect: str | None = None,
    progress: Callable[[int], None] = ...,
    **options: Unpack[ReadingOptions],
) -> list[ExplainedMessage]: ...


def explain(
    path: "Source | None" = None,
    at: int | str | PacketName | None = None,
    *,
    pairing: str | None = None,
    connection: str | None = None,
    direction: Direction | None = None,
    offset: int | None = None,
    hex: str | bytes | None = None,
    protocol: str | None = None,
    dialect: str | None = None,
    progress: Callable[[int], None] = no_progress,
    **options: Unpack[ReadingOptions],
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
    what = what_is_explained(has_capture, at, pairing, connection, direction, offset, hex, protocol, dialect)
    inputs = inputs_of(() if path is None else path, options, progress)
    outcome = inputs.outcome
    if isinstance(what, GivenBytes):
        message = explain_bytes(what, outcome.choices)
        if message.result.best is None or not message.result.best.fits:
            outcome.flaws["malformed"] += 1
        return [message]
    if isinstance(what, PairingName):
        replay = replay_pairing(inputs.captures, what.connection, what.packet, outcome, inputs.progress)
        inputs.check(replay is not None)
        assert replay is not None
        return replay
    explained, misses = explain_captured(inputs.captures, what, outcome, inputs.progress)
    inputs.check(bool(inputs.captures))
    if not explained:
        raise LookupError(misses[0])
    return explained
