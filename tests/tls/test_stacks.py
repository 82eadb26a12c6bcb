"""TLS as OpenSSL speaks it with other suites, in one process: nothing here is a capture of somebody."""

import hashlib
import ssl
from pathlib import Path

import pytest
from made_tls import CLIENT_SEQ, NO_ENCRYPT_THEN_MAC, SERVER_SEQ, capture, contexts, conversation
from opened_tls import opened, stream
from torture import Segment, broken_laws, flymq_message, read

import mqpcap
from mqpcap.options import Options
from mqpcap.tcp import derived_streams
from mqpcap.tls import KeyLog

TURNS = [(flymq_message(0), b"first"), (b"x" * 40_000, b"y" * 20_000), (flymq_message(1), b"")]
SUITES = [
    (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-GCM-SHA384", False),
    (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-CCM", False),
    (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-CCM8@SECLEVEL=0", False),
    (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-CHACHA20-POLY1305", False),
    (ssl.TLSVersion.TLSv1_2, "AES128-SHA@SECLEVEL=0", True),
    (ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-AES256-SHA384@SECLEVEL=0", True),
    (ssl.TLSVersion.TLSv1, "AES256-SHA@SECLEVEL=0", True),
    (ssl.TLSVersion.TLSv1_1, "AES128-SHA@SECLEVEL=0", True),
    (ssl.TLSVersion.TLSv1_3, None, False),
]


def sides(turns: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    requests, replies = zip(*turns, strict=True)
    return b"".join(requests), b"".join(replies)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
@pytest.mark.parametrize("mac_first", [False, True])
@pytest.mark.parametrize(("version", "ciphers", "is_rsa"), SUITES)
def test_both_streams_are_what_was_written(
    version: ssl.TLSVersion, ciphers: str | None, is_rsa: bool, mac_first: bool, tmp_path: Path
) -> None:
    client, server = contexts(tmp_path, version, ciphers, is_rsa)
    if mac_first:
        client.options |= NO_ENCRYPT_THEN_MAC
    segments, _ = conversation(client, server, TURNS)
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))
    streams, rows = opened(path, KeyLog(str(tmp_path / "keys.log")))

    assert (stream(streams[0, 0]), stream(streams[0, 1])) == sides(TURNS)
    (row,) = rows["connections"]
    assert (row["tls"], row["tls_server_name"], row["tls_alpn"]) == ("opened", "broker.example", "mq")
    assert broken_laws(read(path, Options(keys=KeyLog(str(tmp_path / "keys.log"))))) == []


def test_a_hello_retry_request(tmp_path: Path) -> None:
    client, server = contexts(tmp_path, ssl.TLSVersion.TLSv1_3)
    server.set_ecdh_curve("secp384r1")  # of which the client sends no key at first
    segments, _ = conversation(client, server, TURNS)
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))
    streams, _ = opened(path, KeyLog(str(tmp_path / "keys.log")))

    assert any(hashlib.sha256(b"HelloRetryRequest").digest() in segment.body for segment in segments)
    assert (stream(streams[0, 0]), stream(streams[0, 1])) == sides(TURNS)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_connection(version: ssl.TLSVersion, tmp_path: Path) -> None:
    client, server = contexts(tmp_path, version)
    _, session = conversation(client, server, TURNS)
    segments, _ = conversation(client, server, TURNS, session=session)
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))
    streams, _ = opened(path, KeyLog(str(tmp_path / "keys.log")))

    assert (stream(streams[0, 0]), stream(streams[0, 1])) == sides(TURNS)


PROXY = b"PROXY TCP4 10.0.0.1 10.0.0.2 4000 9092\r\n"


def test_tls_after_a_proxy_header(tmp_path: Path) -> None:
    client, server = contexts(tmp_path, ssl.TLSVersion.TLSv1_3)
    turns = [(flymq_message(i), b"") for i in range(3)]
    segments, _ = conversation(client, server, turns, [Segment(PROXY, CLIENT_SEQ, SERVER_SEQ)])
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))
    result = read(path, Options(keys=KeyLog(str(tmp_path / "keys.log"))))

    assert [m["stream_offset"] for m in result.messages] == [len(PROXY) + i * len(flymq_message(0)) for i in range(3)]
    assert result.connections[0]["proxied_ip"] == "10.0.0.1"
    assert broken_laws(result) == []


def test_tls_that_begins_after_bytes_in_clear(tmp_path: Path) -> None:
    client, server = contexts(tmp_path, ssl.TLSVersion.TLSv1_2)
    before = [
        Segment(b"220 ready\r\n", SERVER_SEQ, CLIENT_SEQ, from_server=True),
        Segment(b"STARTTLS\r\n", CLIENT_SEQ, SERVER_SEQ + 11),
        Segment(b"220 go ahead\r\n", SERVER_SEQ + 11, CLIENT_SEQ + 10, from_server=True),
    ]
    segments, _ = conversation(client, server, TURNS, before)
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))
    streams, rows = opened(path, KeyLog(str(tmp_path / "keys.log")))

    request, reply = sides(TURNS)
    assert stream(streams[0, 0]) == b"STARTTLS\r\n" + request
    assert stream(streams[0, 1]) == b"220 ready\r\n220 go ahead\r\n" + reply
    assert rows["connections"][0]["tls"] == "opened"
    assert broken_laws(read(path, Options(keys=KeyLog(str(tmp_path / "keys.log"))))) == []


def test_replies_are_paired_where_a_window_has_more_records_than_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledgements are told in plaintext before the places of records are forgotten."""
    monkeypatch.setattr(derived_streams, "MAX_PLACES", 4)
    reply = bytes.fromhex("af010801") + (4).to_bytes(4) + bytes(4)
    request = bytes.fromhex("af01080000000000")
    client, server = contexts(tmp_path, ssl.TLSVersion.TLSv1_3)
    segments, _ = conversation(client, server, [(request, reply)] * 300)
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))
    rows = mqpcap.read(path, "exchanges", keylog=tmp_path / "keys.log")

    assert rows["state"].value_counts().to_pylist() == [{"values": "answered", "counts": 300}]
