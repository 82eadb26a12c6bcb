"""Whatever the bytes are, there is a result, it obeys the laws, and it comes in bounded time and memory."""

import random
import struct
import tracemalloc
from pathlib import Path

import pyarrow.compute as pc
import pytest
from dissection import dissect
from running import ended_if_hung
from torture import ACK, MAKERS, SYN, Segment, broken_laws, pcap, read_bytes

from mqpcap.capture import captures
from mqpcap.decode import bytecode as interpreter

PORTS = {name: port for name, (port, _) in MAKERS.items() if name != "toy"}


def stream(body: bytes, port: int, started: bool, first: bytes = b"") -> bytes:
    """A capture of one direction in segments of 1400 bytes."""
    body = first + body
    segments = [Segment(b"", 999, 0, SYN), Segment(b"", 1, 1000, SYN | ACK, from_server=True)] if started else []
    segments += [Segment(body[i : i + 1400], 1000 + i, 2) for i in range(0, len(body), 1400)]
    return pcap(segments, port)


SIZE = 2 << 20 if interpreter.COMPILED else 32 << 10
HEADS = {
    "blipmq": struct.pack(">IBQ", 9 + 1_000_000, 3, 1) + b"\0\0\1a",
    "flymq": struct.pack(">BBBBI", 0xAF, 1, 1, 1, 1_000_000) + b"\0\1a",
    "fq": b"\2ex\3a.b" + bytes(16) + struct.pack(">I", 100_000),
    "kokaq": b"\x04\x20\x01\x06" + bytes(4) + b"\7\0\1\2" + b"\2\x04\x20\1\xff\xff\xff\xff",
    "msgq": struct.pack(">IH", 1_000_000, 900) + b"Skan\x04type\x28\x04send",
    "mqtt": b"\x30\xff\xff\xff\x7f\0\3a/b",
}


@pytest.mark.parametrize("started", [False, True], ids=["midstream", "started"])
@pytest.mark.parametrize("what", ["zeros", "random", "heads", "ones"])
@pytest.mark.parametrize("protocol", PORTS)
def test_a_search_takes_bounded_time(protocol: str, what: str, started: bool, tmp_path: Path) -> None:
    port, make = MAKERS[protocol]
    body = {
        "zeros": bytes(SIZE),
        "ones": b"\xff" * SIZE,
        "random": random.Random(7).randbytes(SIZE),
        "heads": HEADS[protocol] * (SIZE // len(HEADS[protocol])),
    }[what]
    data = stream(body, port, started, b"".join(make(i) for i in range(4)))
    path = tmp_path / "hostile.pcap"
    path.write_bytes(data)

    with ended_if_hung():
        dissection = dissect(captures([str(path)]).captures[0])

    decoded = sum(pc.sum(chunk.messages["frame_len"]).as_py() for chunk in dissection.chunks)
    problems = dissection.problems
    lost = problems.filter(pc.equal(problems["kind"], "undecoded"))["length"]
    assert decoded + (pc.sum(lost).as_py() or 0) == dissection.connections["bytes_c2s"][0].as_py()


def test_counts_and_lengths_of_four_gigabytes_are_flaws() -> None:
    huge = b"\xff\xff\xff\xff"
    for protocol, (port, make) in MAKERS.items():
        if protocol == "toy":
            continue
        for at in range(0, len(make(1)) - 4, 3):
            message = make(1)
            bad = message[:at] + huge + message[at + 4 :]

            result = read_bytes(stream(make(0) + bad + make(2) + make(3), port, True))

            assert broken_laws(result) == []


def test_ten_thousand_levels_are_too_deep_and_nothing_worse() -> None:
    """A list in a list in a list (type 0x22, length in one byte, as deep as bytes allow)."""
    inner = b""
    for _ in range(10_000):
        inner = b"\x03" + struct.pack(">I", len(inner)) + inner
    header = b"Skan\x01x" + inner
    message = struct.pack(">IH", 2 + len(header), len(header) % 65536) + header
    flat = struct.pack(">I", len(header)) + header

    for data in (message, flat):
        assert broken_laws(read_bytes(stream(data * 3, 9912, True))) == []


def test_memory_does_not_follow_a_claimed_length() -> None:
    """16 MiB claimed, a few hundred bytes sent, on a thousand connections."""
    claim = struct.pack(">IBQ", 16 << 20, 3, 2)
    first = struct.pack(">IBQH", 11, 1, 1, 1)
    segments = [
        segment
        for i in range(1000)
        for segment in (
            Segment(b"", 999, 0, SYN, client_port=20000 + i),
            Segment(first + claim + bytes(200), 1000, 1, client_port=20000 + i),
        )
    ]
    data = pcap(segments, 5555)
    tracemalloc.start()

    result = read_bytes(data)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(result.connections) == 1000
    assert peak_bytes < 200 << 20
