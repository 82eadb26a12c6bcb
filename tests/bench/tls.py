"""Measures how fast opened TLS is read, against the same frames in clear, and in how much memory.

    python tests/bench/tls.py [speed|memory] [MEGABYTES]

Python's ssl makes one connection of FlyMQ messages in memory, with bodies of 200 bytes and of 20,000 bytes. Both
captures are exported without writing; the fastest of five runs counts, in CPU time. Memory is the peak of `mqpcap
export` as a process of its own: of MEGABYTES and of four times as many, and with key logs of 100 MB.
"""

import random
import ssl
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from made_tls import CLIENT_SEQ, SERVER_SEQ, capture, contexts, conversation
from torture import ACK, SYN, Segment

from mqpcap.tls.key_log import LABELS

READING = """import sys, time
from mqpcap.capture import captures
from mqpcap.options import Options
from mqpcap.pipeline import CapturePipeline
from mqpcap.tls import KeyLog

path, *keys = sys.argv[1:]
(found,) = captures([path]).captures
begin = time.process_time()
CapturePipeline(found, Options(keys=KeyLog(*keys) if keys else None), lambda output: None).run()
print(time.process_time() - begin)
"""
PROBE = """import re, runpy, sys, time
try:
    runpy.run_module("mqpcap", run_name="__main__")
finally:
    peak_kb = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
    print(f"{peak_kb / 1024:,.0f} MB, {time.process_time():.1f} s")
"""
"""A command that prints what it took: what the system has of a child also counts memory of this process."""


def message(size: int) -> bytes:
    """A PRODUCE of FlyMQ with a body of this size."""
    payload = b"\0\6orders" + bytes(4) + struct.pack(">I", size) + b"v" * size + b"\xff\xff\xff\xff"
    return struct.pack(">BBBBI", 0xAF, 1, 1, 1, len(payload)) + payload


def in_clear(data: bytes, count: int) -> list[Segment]:
    """The segments of the same messages without TLS."""
    segments = [
        Segment(seq=CLIENT_SEQ - 1, flags=SYN), Segment(b"", SERVER_SEQ - 1, CLIENT_SEQ, SYN | ACK, from_server=True),
    ]  # fmt: skip
    at = CLIENT_SEQ
    for _ in range(count):
        for start in range(0, len(data), 1400):
            segments.append(Segment(data[start : start + 1400], at, SERVER_SEQ))
            at += len(segments[-1].body)
    return segments


def seconds(path: Path, *keys: Path) -> float:
    """The fastest of five readings, each in a process that holds nothing else: the collector would visit it."""
    command = [sys.executable, "-c", READING, str(path), *map(str, keys)]
    return min(float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) for _ in range(5))


def speed(megabytes: float, folder: Path) -> None:
    """Print a line for each size of body and version."""
    for size in (200, 20_000):
        data = message(size)
        count = int(megabytes * 1e6 / len(data))
        (folder / "clear.pcap").write_bytes(capture(in_clear(data, count)))
        clear = seconds(folder / "clear.pcap")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            client, server = contexts(folder, version)
            segments, _ = conversation(client, server, [(data, b"")] * count)
            (folder / "tls.pcap").write_bytes(capture(segments))
            opened = seconds(folder / "tls.pcap", folder / "keys.log")
            print(f"{size:>6} bytes, {version.name}: {count / clear:,.0f} messages/s in clear, "
                  f"{count / opened:,.0f} opened, {clear / opened:.2f} of the speed")  # fmt: skip


def key_logs() -> Iterator[tuple[str, Iterator[bytes]]]:
    """The content of key logs, without end: sessions of both kinds, and what is no secret."""
    chance = random.Random(1)
    labels = [label for generation in LABELS[1:] for label in generation]

    def sessions(names: list[str]) -> Iterator[bytes]:
        while True:
            key, secret = chance.randbytes(32).hex(), chance.randbytes(48).hex()
            yield "".join(f"{name} {key} {secret}\n" for name in names).encode()

    yield "sessions of TLS 1.2", sessions(["CLIENT_RANDOM"])
    yield "sessions of TLS 1.3", sessions(labels)
    yield "one line again and again", iter(lambda: f"CLIENT_RANDOM {'ab' * 32} {'cd' * 48}\n".encode(), b"")
    yield "one line without an end", iter(lambda: b"CLIENT_RANDOM " * 1000, b"")


def peak(path: Path, *options: object) -> str:
    """The peak memory and CPU time of an export."""
    out = path.with_suffix(".out")
    command = ["export", "-q", path, "--out", out, "--bodies", "none", *options]
    done = subprocess.run([sys.executable, "-c", PROBE, *map(str, command)], check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().splitlines()[-1]


def memory(megabytes: float, folder: Path) -> None:
    """Print a line for each version and amount, and for each key log."""
    data = message(20_000)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for times in (1, 4):
            client, server = contexts(folder, version)
            segments, _ = conversation(client, server, [(data, b"")] * int(times * megabytes * 1e6 / len(data)))
            path = folder / f"{version.name}{times}.pcap"
            path.write_bytes(capture(segments))
            print(f"{version.name}, {times * megabytes:,.0f} MB: {peak(path, '--keylog', folder / 'keys.log')}")
    small = folder / "TLSv1_31.pcap"
    for name, content in key_logs():
        with open(folder / "large.log", "wb") as file:
            for lines in content:
                if file.write(lines) and file.tell() >= 100e6:
                    break
            file.write(b"\n" + (folder / "keys.log").read_bytes())
        print(f"key log of 100 MB, {name}: {peak(small, '--keylog', folder / 'large.log')}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        what, size = [*sys.argv[1:], *("speed", "20")[len(sys.argv) - 1 :]]
        {"speed": speed, "memory": memory}[what](float(size), Path(name))
