"""Capture files made byte by byte, and the packets of windows read from them."""

import struct
from collections.abc import Iterable
from typing import Any

from mqpcap.capture import Window

PCAP_MAGIC = {("<", 1000): 0xA1B2C3D4, ("<", 1): 0xA1B23C4D, (">", 1000): 0xA1B2C3D4, (">", 1): 0xA1B23C4D}


def pcap(
    packets: Iterable[tuple[Any, ...]], order: str = "<", tick_ns: int = 1000, link_type: int = 1, snaplen: int = 262144
) -> bytes:
    """packets: (ts_ns, bytes) or (ts_ns, bytes, wire length)."""
    out = [struct.pack(order + "IHHiIII", PCAP_MAGIC[order, tick_ns], 2, 4, 0, 0, snaplen, link_type)]
    for ts_ns, data, *wire in packets:
        seconds, rest = divmod(ts_ns, 10**9)
        out.append(struct.pack(order + "IIII", seconds, rest // tick_ns, len(data), *(wire or [len(data)])) + data)
    return b"".join(out)


def block(kind, body, order="<"):
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def option(code, value, order="<"):
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order="<"):
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link_type=1, order="<", snaplen=0, options=b""):
    return block(1, struct.pack(order + "HHI", link_type, 0, snaplen) + options, order)


def enhanced(number, ticks, data, order="<", wire=None):
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), wire or len(data))
    return block(6, head + data, order)


def packets(windows_read: list[Window]) -> list[tuple[int, bytes, int, int]]:
    """(ts_ns, data, wire length, link type) of each packet."""
    rows = []
    for window in windows_read:
        for index in range(len(window.offset)):
            start = int(window.offset[index])
            data = window.buffer[start : start + int(window.caplen[index])].tobytes()
            rows.append((int(window.ts_ns[index]), data, int(window.wirelen[index]), int(window.link_type[index])))
    return rows
