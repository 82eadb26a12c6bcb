"""Packet-capture dissection toolkit for message queues: fq, kokaq, FlyMQ, BlipMQ and BIND 10 msgq."""

from typing import Any

__version__ = "0.1.0"


def scapy_ext(ext: Any) -> None:
    """What Scapy calls for ``conf.exts.load("mqpcap")``; then ``load_contrib("mqpcap")`` is ``mqpcap.scapy``."""
    from pathlib import Path

    ext.config("mqpcap", __version__)
    ext.register("mqpcap", ext.MODE.CONTRIB, Path(__file__).parent / "scapy" / "__init__.py")
