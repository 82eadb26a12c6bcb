# scapy.contrib.description = Message queues: fq, kokaq, FlyMQ, BlipMQ, BIND 10 msgq, MQTT
# scapy.contrib.status = loads
"""The Scapy front end: ``from mqpcap.scapy import *``.

It exports the layer classes of all protocols and ``MqSession``, and binds the protocols' TCP ports. As a Scapy
extension: ``conf.exts.load("mqpcap")``, then ``load_contrib("mqpcap")``.

A port does not prove a protocol, so the binding decides by content (`MqDispatch`). Without a session each packet is
read on its own: messages that start in it are found, continuations are not. ``MqSession`` reassembles streams.
Several messages in a packet follow each other as layers. A message that continues in the next packet is its header
followed by ``Raw``.
"""

import sys

from scapy.layers.inet import TCP
from scapy.packet import Packet, bind_bottom_up
from scapy.utils import wrpcap

from mqpcap.protocols import classes_of, modules, protocols
from mqpcap.scapy import display, field_names, session
from mqpcap.scapy.port_binding import MqDispatch, add_payload, bind_port, payload_slices, tcp_reassemble
from mqpcap.scapy.session import MqSession, Seen, top
from mqpcap.schema import secrets
from mqpcap.schema.message import Message

show_secrets = False
"""Whether ``repr``, ``show`` and notebook tables show passwords and keys instead of ``***``. Bytes contain them."""


def message_classes() -> dict[str, type[Message]]:
    """The layer classes of all protocols by name."""
    return {cls.__name__: cls for module in modules().values() for cls in classes_of(module)}


def bind() -> None:
    """Binds the ports of all protocols. A second call does nothing."""
    if Message.payload_slices is payload_slices:
        return
    Message.payload_slices = payload_slices
    setattr(Message, "tcp_reassemble", classmethod(tcp_reassemble))  # noqa: B010 - to mypy it is no method
    setattr(Message, "add_payload", add_payload)  # noqa: B010
    secrets.are_shown = lambda: show_secrets
    display.install()
    field_names.install()
    session.install()
    for protocol in protocols().values():
        fronts = ([top(x.header)] if x.header is not None else x.messages() for x in protocol.layouts)
        for cls in {cls for front in fronts for cls in front}:
            bind_port(cls, protocol.ports[0])
    for port in sorted({port for protocol in protocols().values() for port in protocol.ports}):
        bind_bottom_up(TCP, MqDispatch, dport=port)
        bind_bottom_up(TCP, MqDispatch, sport=port)


if not issubclass(Message, Packet):
    raise ImportError("the command line ran in this process, whose layers are without Scapy: import mqpcap.scapy first")
_classes = message_classes()
globals().update(_classes)
__all__ = ["MqDispatch", "MqSession", "Seen", *sorted(_classes), "wrpcap"]
bind()
# explore("mqpcap") loads the modules that it lists.
sys.modules.setdefault("scapy.contrib.mqpcap", sys.modules[__name__])
