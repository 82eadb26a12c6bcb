"""TLS of which packets are missing, swapped or cut off in front: no byte is invented, and whole messages are found."""

import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from examples import multiplied
from opened_tls import CAPTURES, Streams, keys_of, opened
from rows import records
from torture import broken_laws, read

from mqpcap.options import Options

NAMES = (
    "t13_aes256_gcm",
    "t12_ecdhe_rsa_aes128_gcm",
    "t12_chacha",
    "t12_cbc_sha256_etm",
    "t10_cbc_sha1",
    "flymq_go_t13",
)
SEEDS = multiplied(1)
HANDSHAKE = b"\x16\x03"
"""Packets that begin with a record of this type stay: TLS 1.2 cannot be opened without its ServerHello."""


def damaged(name: str, way: str, seed: int, folder: Path) -> tuple[Path, set[int]]:
    """A copy of a capture, and the numbers of the packets that it lacks."""
    head, packets = records(CAPTURES / f"{name}.pcap")
    chance, numbers = random.Random(f"{name} {way} {seed}"), [*range(len(packets))]
    if way == "cut":
        kept = numbers[chance.randrange(len(packets) // 2) :]
    elif way == "swapped":
        kept = sorted(numbers, key=lambda i: i + chance.choice((0, 0, 0, 0, 1.5)))
    else:
        kept = [i for i in numbers if HANDSHAKE in packets[i][60:110] or chance.random() * 100 > float(way)]
    path = folder / f"{seed}.pcap"
    path.write_bytes(head + b"".join(packets[i] for i in kept))
    return path, {i + 1 for i in numbers} - {i + 1 for i in kept}


@cache
def whole_of(name: str) -> tuple[Streams, dict[str, list[Any]]]:
    return opened(CAPTURES / f"{name}.pcap", keys_of(name))


def signature(message: dict[str, Any]) -> tuple[object, ...]:
    return message["direction"], message["op"], message["frame_len"], message["message_id"], message["body_len"]


@pytest.mark.parametrize("way", ["0.1", "1", "5", "swapped", "cut"])
@pytest.mark.parametrize("name", NAMES)
def test_plaintext_is_never_invented_and_whole_messages_are_found(name: str, way: str, tmp_path: Path) -> None:
    """A message is expected if all packets from its first to its last were captured."""
    whole, whole_rows = whole_of(name)
    clear = [b"".join(part for _, part in sorted(parts.items())) for parts in whole.values()]
    expected_count = found_count = 0
    for seed in range(SEEDS):
        path, lost = damaged(name, way, seed, tmp_path)
        streams, rows = opened(path, keys_of(name))
        assert broken_laws(read(path, Options(keys=keys_of(name)))) == []
        if {c["tls"] for c in rows["connections"]} == {"opened"}:
            assert all(any(part in data for data in clear) for parts in streams.values() for part in parts.values())
        expected = Counter(
            signature(message)
            for message in whole_rows["messages"]
            if lost.isdisjoint(range(message["first_packet"], message["last_packet"] + 1))
        )
        found = Counter(signature(message) for message in rows["messages"] if message["flaw"] is None)
        assert found <= Counter(map(signature, whole_rows["messages"]))
        expected_count += expected.total()
        found_count += (found & expected).total()

    least = {"cut": 0.9 if "t13" in name else 0.0, "5": 0.9}.get(way, 0.97)
    assert found_count >= least * expected_count, (found_count, expected_count)
