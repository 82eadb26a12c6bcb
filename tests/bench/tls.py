"""Measures how fast opened TLS is read, against the same frames in clear.

    python tests/bench/tls.py [MEGABYTES]

Python's ssl makes one connection of FlyMQ messages in memory, with bodies of 200 bytes and of 20,000 bytes. Both
captures are exported without writing; the fastest of three runs counts, in CPU time.
"""

import ssl
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from made_tls import CLIENT_SEQ, SERVER_SEQ, capture, contexts, conversation
from torture import ACK, SYN, Segment

from mqpcap.capture import captures
from mqpcap.options import Options
from mqpcap.pipeline import CapturePipeline
from mqpcap.tls import KeyLog


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


def seconds(path: Path, keys: KeyLog | None) -> float:
    """The fastest of three readings."""
    times = []
    for _ in range(3):
        (found,) = captures([str(path)]).captures
        begin = time.process_time()
        pipeline = CapturePipeline(found, Options(keys=keys), lambda output: None)
        pipeline.run()
        times.append(time.process_time() - begin)
    return min(times)


def main(megabytes: float) -> None:
    """Print a line for each size of body and version."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in (200, 20_000):
            data = message(size)
            count = int(megabytes * 1e6 / len(data))
            (folder / "clear.pcap").write_bytes(capture(in_clear(data, count)))
            clear = seconds(folder / "clear.pcap", None)
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                client, server = contexts(folder, version)
                segments, _ = conversation(client, server, [(data, b"")] * count)
                (folder / "tls.pcap").write_bytes(capture(segments))
                opened = seconds(folder / "tls.pcap", KeyLog(str(folder / "keys.log")))
                print(f"{size:>6} bytes, {version.name}: {count / clear:,.0f} messages/s in clear, "
                      f"{count / opened:,.0f} opened, {clear / opened:.2f} of the speed")  # fmt: skip


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20)
