"""Hostile records and key logs: bounded, and never an exception."""

import random
import ssl
import struct
import tracemalloc
from pathlib import Path

import pytest
from made_tls import CLIENT_SEQ, SERVER_SEQ, capture, contexts, conversation
from opened_tls import CAPTURES, keys_of, opened, stream
from torture import ACK, SYN, Segment, broken_laws, flymq_message, read, read_bytes

from mqpcap.options import Options
from mqpcap.tcp import derived_streams
from mqpcap.tls import KeyLog, key_log, session, side
from mqpcap.tls.handshake import CLIENT_HELLO, HandshakeReader, hello

OPENING = Segment(seq=CLIENT_SEQ - 1, flags=SYN), Segment(b"", SERVER_SEQ - 1, CLIENT_SEQ, SYN | ACK, from_server=True)


def line(number: int, label: str = "CLIENT_RANDOM", size: int = 48) -> bytes:
    return f"{label} {number:064x} {'ab' * size}".encode()


def test_sessions_of_a_key_log_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_log, "MAX_SESSIONS", 10)
    monkeypatch.setattr(key_log, "MAX_RESUMABLE", 10)
    keys = KeyLog()
    keys.add(line(i) for i in range(25))
    for i in range(25):
        keys.remember(bytes([i]), bytes(32))

    assert (len(keys._sessions), keys.forgotten_count, len(keys.resumable)) == (10, 15, 10)
    assert keys.secrets((24).to_bytes(32)) and not keys.secrets((14).to_bytes(32))


def test_a_long_key_log_is_read_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6 MB of sessions, comments and a line without an end, 50 sessions are kept. `bench/tls.py` reads 100 MB."""
    monkeypatch.setattr(key_log, "MAX_SESSIONS", 50)
    with (tmp_path / "k").open("wb") as file:
        for i in range(10_000):
            file.write(line(i) + b"\n# comment\n")
        file.write(b"CLIENT_RANDOM " * 300_000)
    KeyLog()
    tracemalloc.start()
    keys = KeyLog(str(tmp_path / "k"))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (len(keys._sessions), keys.forgotten_count) == (50, 9950)
    assert peak_bytes < 200_000


def test_lines_that_are_no_secrets_are_passed_over(tmp_path: Path) -> None:
    junk = b"\n".join(
        [b"# comment", b"CLIENT_RANDOM zz yy", line(1) + b" more", b"x" * 5_000_000, line(2)[:-1], b"\0\xff"]
    )
    (tmp_path / "k").write_bytes(junk + b"\r\n" + line(3) + b"\r\n" + line(3) + b"\n" + line(4))
    keys = KeyLog(str(tmp_path / "k"))

    assert [bool(keys.secrets(i.to_bytes(32))) for i in range(6)] == [False, False, False, True, True, False]
    assert "ab" not in repr(keys)


def test_a_key_log_that_grows_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_bytes(line(1)[:50])
    keys = KeyLog(str(path), grows=True)
    assert not keys.secrets((1).to_bytes(32))
    path.write_bytes(line(1) + b"\n" + line(2))

    assert keys.refresh() and not keys.refresh()
    assert keys.secrets((1).to_bytes(32)) and keys.secrets((2).to_bytes(32))


def test_a_long_handshake_message_is_passed_over() -> None:
    reader = HandshakeReader()
    certificate = b"\x0b" + (200_000).to_bytes(3) + bytes(200_000)
    data = certificate + b"\x14" + (12).to_bytes(3) + bytes(12)
    kinds = [kind for i in range(0, len(data), 1000) for kind, _ in reader.messages(data[i : i + 1000])]

    assert kinds == [20]
    assert len(reader._data) == 0


@pytest.mark.parametrize("seed", range(20))
def test_hellos_of_random_bytes_give_nothing_or_facts(seed: int) -> None:
    chance = random.Random(seed)
    body = bytearray((CAPTURES / "t13_aes256_gcm.pcap").read_bytes()[600:1200])
    for _ in range(30):
        body[chance.randrange(len(body))] = chance.randrange(256)
        hello(CLIENT_HELLO, bytes(body[chance.randrange(100) :]))


@pytest.mark.parametrize("name", ["t13_key_update", "t12_small_records", "mqtt_t12_resumed", "t10_cbc_sha1"])
def test_damaged_bytes_are_problems(name: str, tmp_path: Path) -> None:
    """Bytes of packets are changed by chance, lengths of records among them."""
    content, chance = bytearray((CAPTURES / f"{name}.pcap").read_bytes()), random.Random(name)
    at = 24
    while at < len(content):
        size = int.from_bytes(content[at + 8 : at + 12], "little")
        if size > 80 and chance.random() < 0.2:
            content[at + 16 + 66 + chance.randrange(min(size - 66, 60))] ^= 1 << chance.randrange(8)
        at += 16 + size
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    result = read(path, Options(keys=keys_of(name)))

    assert broken_laws(result) == []


def test_a_hello_without_an_end_is_not_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived_streams, "MAX_HELD_BYTES", 3000)
    head = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03"
    data = head + bytes(16_389 - len(head))
    segments = [*OPENING, *(Segment(data[i : i + 1000], CLIENT_SEQ + i, SERVER_SEQ) for i in range(0, len(data), 1000))]
    result = read_bytes(capture(segments), Options(keys=KeyLog()))

    assert [(c["tls"], c["bytes_c2s"]) for c in result.connections] == [("closed", len(data))]
    assert broken_laws(result) == []


def test_held_bytes_of_all_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived_streams, "MAX_ALL_HELD_BYTES", 100)
    result = read(CAPTURES / "t13_key_update.pcap", Options(keys=KeyLog()))

    assert [c["tls"] for c in result.connections] == ["closed"]


def test_opened_bytes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Beyond the bound a message of several records is read as one with a hole of no bytes."""
    from mqpcap.capture import windows

    monkeypatch.setattr(derived_streams, "MAX_RETAINED_BYTES", 100)
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)
    long = struct.pack(">BBBBI", 0xAF, 1, 1, 1, 60_012) + b"\0\6orders" + bytes(60_004)
    client, server = contexts(tmp_path, ssl.TLSVersion.TLSv1_3)
    segments, _ = conversation(client, server, [(flymq_message(0), b""), (long, b""), (flymq_message(1), b"")])
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))
    result = read(path, Options(keys=KeyLog(str(tmp_path / "keys.log"))))

    assert broken_laws(result) == []
    assert [m["frame_len"] for m in result.messages] == [len(flymq_message(0)), len(long), len(flymq_message(1))]


def test_trials_for_a_late_start_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the bound at 0 no key is tried, so a capture that begins inside a connection stays closed."""
    content = (CAPTURES / "t13_split_send.pcap").read_bytes()
    at = 24
    for _ in range(12):
        at += 16 + int.from_bytes(content[at + 8 : at + 12], "little")
    path = tmp_path / "x.pcap"
    path.write_bytes(content[:24] + content[at:])

    def states() -> list[str | None]:
        return [c["tls"] for c in read(path, Options(keys=keys_of("t13_split_send"))).connections]

    assert states() == ["opened"]
    monkeypatch.setattr(session, "MAX_LATE_TRIALS", 0)
    assert states() == ["closed"]
    monkeypatch.setattr(session, "MAX_LATE_TRIALS", 1000)
    monkeypatch.setattr(key_log, "MAX_ALL_LATE_TRIALS", 0)
    assert states() == ["closed"]


def test_tried_master_secrets_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a resumed connection alone, as the first was not captured."""
    client, server = contexts(tmp_path, ssl.TLSVersion.TLSv1_2)
    _, before = conversation(client, server, [])
    segments, _ = conversation(client, server, [(flymq_message(0), b"")], session=before)
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))
    lines = (tmp_path / "keys.log").read_bytes().splitlines()
    (tmp_path / "first.log").write_bytes(next(x for x in lines if x[:1] != b"#") + b"\n")

    streams, _ = opened(path, KeyLog(str(tmp_path / "first.log")))
    assert stream(streams[0, 0]) == flymq_message(0)
    monkeypatch.setattr(session, "MAX_TRIED_MASTERS", 0)
    _, rows = opened(path, KeyLog(str(tmp_path / "first.log")))
    assert [c["tls"] for c in rows["connections"]] == ["closed"]


def test_trials_after_a_gap_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A record of the client is missing; with the bound at 0 nothing after it opens, and nothing is invented."""
    client, server = contexts(tmp_path, ssl.TLSVersion.TLSv1_3)
    segments, _ = conversation(client, server, [(flymq_message(i), b"") for i in range(20)])
    data = [i for i, segment in enumerate(segments) if segment.body[:1] == b"\x17" and not segment.from_server]
    del segments[data[8]]
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))

    def count() -> int:
        result = read(path, Options(keys=KeyLog(str(tmp_path / "keys.log"))))
        assert broken_laws(result) == []
        return len(result.messages)

    assert count() == 19
    monkeypatch.setattr(side, "MAX_TRIAL_BYTES", 0)
    assert 1 <= count() < 19


def test_records_that_do_not_open_are_lost_one_by_one(tmp_path: Path) -> None:
    """Seventeen records in a row are damaged; each is a problem, and those after them open."""
    client, server = contexts(tmp_path, ssl.TLSVersion.TLSv1_2)
    segments, _ = conversation(client, server, [(flymq_message(i), b"") for i in range(40)])
    data = [i for i, segment in enumerate(segments) if segment.body[:1] == b"\x17"]
    for i in data[2:19]:
        body = segments[i].body
        segments[i] = Segment(body[:-1] + bytes([body[-1] ^ 1]), segments[i].seq, segments[i].ack)
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))
    result = read(path, Options(keys=KeyLog(str(tmp_path / "keys.log"))))

    assert len(result.messages) == 40 - 17
    assert sum(p["length"] for p in result.problems) == sum(len(segments[i].body) for i in data[2:19])
    assert broken_laws(result) == []
