"""Message classes made of a few fields, and protocols with one layout for each."""

from mqpcap.schema.fields import Kind
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import ANY, Claim, Envelope, Layout, MessageQueue, Verdict


def message(shape: str, *fields: Kind) -> type[Message]:
    return type(shape, (Message,), {"name": shape, "fields_desc": list(fields)})


def protocol_of(*layouts: Layout) -> MessageQueue:
    return MessageQueue("toy", "Toy", (1,), ("v",), layouts, lambda _: Claim(Verdict.NO), "", Envelope())


def protocol(**bodies: type[Message]) -> MessageQueue:
    """Its client sends messages without a header, in a layout of each name."""
    return protocol_of(*(Layout(name, "c2s", {ANY: (cls,)}) for name, cls in bodies.items()))
