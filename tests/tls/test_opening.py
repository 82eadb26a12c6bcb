"""TLS opened with key logs, compared with what the clients wrote and read in clear."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from opened_tls import CAPTURES, hashes, keys_of, opened, stream, truth
from torture import broken_laws, read

from mqpcap.options import Options
from mqpcap.tables.schemas import KEYS
from mqpcap.tls.key_log import MASTER

NAMES = sorted(path.stem for path in CAPTURES.glob("*.keylog"))
WITH_STREAMS = [name for name in NAMES if (CAPTURES / f"{name}.truth.json").exists() and truth(name)["connections"]]


def path_of(name: str) -> Path:
    return CAPTURES / f"{name}.pcap"


@pytest.mark.parametrize("name", [name for name in WITH_STREAMS if not name.startswith("mqtt")])
def test_streams_are_those_of_the_clients(name: str) -> None:
    expected = {sha for c in truth(name)["connections"] for sha in c["stream_sha256"].values()}
    streams, rows = opened(path_of(name), keys_of(name))

    assert hashes(streams) == expected
    assert {c["tls"] for c in rows["connections"]} == {"opened"}


@pytest.mark.parametrize("name", ["t12_small_records", "t13_key_update", "t13_split_send"])
def test_stream_of_the_client_is_what_was_typed(name: str) -> None:
    """Of these the truth has the client's stream; the server sends each line reversed."""
    clear = truth(name)["clear"]["c2s"]
    streams, _ = opened(path_of(name), keys_of(name))

    client, server = (stream(streams[0, side]) for side in (0, 1))
    assert (len(client), hashlib.sha256(client).hexdigest()) == (clear["len"], clear["sha256"])
    lines = [line[::-1] for line in client.decode().split("\n")]
    assert server.decode() in ("\n".join(lines), "\n".join(lines[:-2]) + "\n")  # it ends before its last reply


def mqtt_types(data: bytes) -> list[int]:
    """The types of the MQTT packets in a stream (MQTT 3.1.1, 2.2)."""
    types, at = [], 0
    while at < len(data):
        length = shift = 0
        types.append(data[at] >> 4)
        while True:
            at += 1
            length |= (data[at] & 0x7F) << shift
            shift += 7
            if not data[at] & 0x80:
                break
        at += 1 + length
    assert at == len(data)
    return types


@pytest.mark.parametrize("name", ["mqtt_t12_resumed", "mqtt_t13"])
def test_mqtt_packets_are_those_of_the_truth(name: str) -> None:
    streams, rows = opened(path_of(name), keys_of(name))
    events = [c["events"] for c in truth(name)["connections"]]

    for flow, expected in enumerate(events):
        for side, direction in enumerate(("c2s", "s2c")):
            types = [event["type"] for event in expected if event["dir"] == direction]
            assert mqtt_types(stream(streams[flow, side])) == types
    assert [c["tls"] for c in rows["connections"]] == ["opened"] * len(events)


def test_a_session_resumed_without_a_line_of_its_own_opens_by_the_first_master_secret() -> None:
    """Go writes no line for a resumed connection of TLS 1.2: one line opens all; the server echoes."""
    assert len([*keys_of("go_t12_resumed").randoms(MASTER)]) == 1
    streams, rows = opened(path_of("go_t12_resumed"), keys_of("go_t12_resumed"))

    assert {c["tls"] for c in rows["connections"]} == {"opened"}
    assert {len(stream(parts)) for parts in streams.values()} == {21310}
    assert len(hashes(streams)) == 1


CLEAR_COLUMNS = (
    "direction", "stream_offset", "frame_len", "protocol", "dialect", "op", "destination", "message_id",
    "correlation_id", "body_len", "status", "error_code", "error_text", "flaw", "gap_before_bytes", "resynced",
)  # fmt: skip


@pytest.mark.parametrize("name", ["t13_aes256_gcm", "t12_ecdhe_rsa_aes128_gcm", "t12_cbc_sha256_etm"])
def test_rows_are_those_of_the_clear_twin(name: str) -> None:
    """The twin has the same frames behind the TLS proxy: its times and ends are its own."""
    result = read(path_of(name), Options(keys=keys_of(name)))
    clear = read(CAPTURES / f"{name}.clear.pcap")

    def rows_of(messages: list[dict[str, Any]], tables: list[dict[str, Any]]) -> list[list[object]]:
        order = {c["connection_id"]: i for i, c in enumerate(sorted(tables, key=lambda c: str(c["first_ts_ns"])))}
        keyed = [(order[m["connection_id"]], m["direction"], m["stream_offset"], m) for m in messages]
        return [
            [number, {k: v for k, v in m["fields"].items() if k not in KEYS}, *(m[x] for x in CLEAR_COLUMNS)]
            for number, _, _, m in sorted(keyed, key=lambda x: x[:3])
        ]

    assert len(result.messages) == 2 * 56
    assert rows_of(result.messages, result.connections) == rows_of(clear.messages, clear.connections)


@pytest.mark.parametrize("name", NAMES)
def test_every_captured_byte_is_plaintext_overhead_or_a_problem(name: str) -> None:
    assert broken_laws(read(path_of(name), Options(keys=keys_of(name)))) == []


def test_without_a_key_log_tls_stays_closed() -> None:
    result = read(path_of("t13_aes256_gcm"))

    assert [c["tls"] for c in result.connections] == ["closed"] * 2
    assert {p["reason"] for p in result.problems} == {"tls"}
    assert broken_laws(result) == []


def test_with_the_keys_of_others_rows_are_those_without_keys() -> None:
    name = "t13_aes256_gcm"
    with_others = read(path_of(name), Options(keys=keys_of("flymq_go_t13")))
    without = read(path_of(name))

    assert (with_others.problems, with_others.connections) == (without.problems, without.connections)
