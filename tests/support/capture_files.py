"""Capture files made byte by byte, and the packets of windows read from them."""

import bz2
import gzip
import lzma
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from mqpcap.capture import Capture, Window, captures

PCAP_MAGIC = {("<", 1000): 0xA1B2C3D4, ("<", 1): 0xA1B23C4D, (">", 1000): 0xA1B2C3D4, (">", 1): 0xA1B23C4D}

T0 = 1_795_243_604_123_456_000
THREE = [(T0, b"one"), (T0 + 1000, b"second", 60), (T0 + 5_000_000_000, b"")]


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


def written(directory: Path, name: str, content: bytes) -> str:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def only(name: str) -> Capture:
    found = captures([name])
    assert not found.unreadable
    (capture,) = found.captures
    return capture


def read(directory: Path, content: bytes) -> tuple[list[tuple[int, bytes, int, int]], Capture]:
    capture = only(written(directory, "capture", content))
    return packets(list(capture.windows())), capture


def seconds(*times):
    """A pcap with a packet at each of these seconds."""
    return pcap([(T0 + second * 10**9, b"x") for second in times])


def lz4(data):
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "lz4") as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


def zstd(data):
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


COMPRESSORS = {"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zstd": zstd, "lz4": lz4}


def cut(path: str, begin: int, end: int, out: Path, shift_us: dict[int, int] | None = None) -> Path:
    """Packets of a little-endian pcap file with Ethernet and IPv4, from a number to another, as a file.

    shift_us: by TCP source port, microseconds that are added to the times of its packets.
    """
    data = Path(path).read_bytes()
    records, offset = [], 24
    while offset < len(data):
        seconds, micros, caplen = struct.unpack_from("<III", data, offset)
        record = bytearray(data[offset : offset + 16 + caplen])
        (port,) = struct.unpack_from(">H", record, 16 + 14 + 20)
        time_us = seconds * 1_000_000 + micros + (shift_us or {}).get(port, 0)
        struct.pack_into("<II", record, 0, *divmod(time_us, 1_000_000))
        records.append(bytes(record))
        offset += len(record)
    out.write_bytes(data[:24] + b"".join(records[begin - 1 : end]))
    return out
