"""Packet-capture dissection toolkit for message queues: fq, kokaq, FlyMQ, BlipMQ, BIND 10 msgq and MQTT.

``mqpcap.read("x.pcap")`` gives a table, ``mqpcap.open("x.pcap")`` all of them and the way back to the packets. Modules
are loaded when they are used: importing the package takes no pyarrow and no Scapy. The names in ``dir(mqpcap)`` are
promised.
"""

from mqpcap.errors import CaptureError, MqpcapError, QueryError

TYPE_CHECKING = False  # importing `typing` is half of this import, and Ctrl-C meanwhile would be a traceback
if TYPE_CHECKING:
    from typing import Any

    from mqpcap import protocols
    from mqpcap.api.comparison import diff
    from mqpcap.api.conversations import follow, trace
    from mqpcap.api.counts import live_stats, stats
    from mqpcap.api.explanations import explain
    from mqpcap.api.messages import messages, show
    from mqpcap.api.packets import extract
    from mqpcap.api.progress_bar import ProgressBar
    from mqpcap.api.quality import info, report
    from mqpcap.api.tables import ask, export, lake
    from mqpcap.dissectors import wireshark
    from mqpcap.query.field_catalogue import fields
    from mqpcap.recording import Recording, open, read
    from mqpcap.sample_captures import samples
    from mqpcap.tables.joining import join

__version__ = "0.1.0"
_MODULES = {
    "api.comparison": ("diff",),
    "api.conversations": ("follow", "trace"),
    "api.counts": ("live_stats", "stats"),
    "api.explanations": ("explain",),
    "api.messages": ("messages", "show"),
    "api.packets": ("extract",),
    "api.quality": ("info", "report"),
    "api.tables": ("ask", "export", "lake"),
    "dissectors": ("wireshark",),
    "tables.joining": ("join",),
    "api.progress_bar": ("ProgressBar",),
    "query.field_catalogue": ("fields",),
    "recording": ("Recording", "open", "read"),
    "sample_captures": ("samples",),
}
__all__ = [
    "CaptureError", "MqpcapError", "ProgressBar", "QueryError", "Recording", "ask", "diff", "explain", "export",
    "extract", "fields", "follow", "info", "join", "lake", "live_stats", "messages", "open", "protocols", "read",
    "report", "samples", "show", "stats", "trace", "wireshark",
]  # fmt: skip


def __getattr__(name: str) -> "Any":
    import importlib

    if name == "protocols":
        return importlib.import_module("mqpcap.protocols")
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(importlib.import_module(f"mqpcap.{module}"), name)
            if not isinstance(value, type):
                from mqpcap.call_options import names_options

                value = names_options(value)
                value.__module__ = __name__  # pickled by the name of the call that users have
            return globals().setdefault(name, value)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def scapy_ext(ext: "Any") -> None:
    """What Scapy calls for ``conf.exts.load("mqpcap")``; then ``load_contrib("mqpcap")`` is ``mqpcap.scapy``."""
    from pathlib import Path

    ext.config("mqpcap", __version__)
    ext.register("mqpcap", ext.MODE.CONTRIB, Path(__file__).parent / "scapy" / "__init__.py")
