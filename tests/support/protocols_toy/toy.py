"""The toy protocol of the torture table: a big-endian length of four bytes, and as many bytes of body.

Port 5000. It is also the sixth protocol of the tests: one module, and nothing else is touched.
"""

from mqpcap.schema.fields import GreedyBytes, Length
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import ANY, DIRECTIONS, Claim, Envelope, Layout, MessageQueue, Opening, Verdict

MAX_BODY_BYTES = 1 << 20


class Toy(Message):
    """The length, which counts from after itself."""

    name = "Toy"
    fields_desc = [Length("length", at_most=MAX_BODY_BYTES)]


class ToyBody(Message):
    """Whatever was sent."""

    name = "Toy body"
    fields_desc = [GreedyBytes("body", body=True)]


def claims(opening: Opening) -> Claim:
    """Nothing tells the toy but its port and lengths that lead from message to message."""
    if not opening.on_port:
        return Claim(Verdict.NO)
    for direction in DIRECTIONS:
        if opening.find_run(direction, direction, 2) is not None:
            return Claim(Verdict.LIKELY, "c2s", "s2c")
    if opening.c2s_ended and opening.s2c_ended:
        return Claim(Verdict.NO)
    return Claim(Verdict.WAIT)


PROTOCOL = MessageQueue(
    name="toy",
    title="Toy",
    ports=(5000,),
    dialects=("v1",),
    layouts=tuple(
        Layout(d, d, {ANY: (ToyBody,)}, header=Toy, names={ANY: "MESSAGE"}, dialect="v1", on_bad="stop")
        for d in DIRECTIONS
    ),
    claims=claims,
    recognised="lengths that lead from message to message, on the port",
    envelope=Envelope(body="body"),
)
