"""No output shows a secret unasked, however damaged the capture is.

Sessions of every protocol with secrets, each with random secrets of its own, are damaged in ways drawn by a seed;
many damaged connections lie in one capture. A secret is found by any twelve of its bytes in a row: fewer may be a
fixed header where the framing is lost, and the contract keeps its columns.

What no reader can see stays shown: FlyMQ's login is two texts, as requests of other operations are or begin. With
their operation byte it is a whole message of theirs.
"""

import base64
import gzip
import random
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import running
from examples import multiplied
from message_rows import merged
from numpy.typing import NDArray
from torture import ACK, CLIENT_PORT, PSH, SYN, Segment, pcap

from mqpcap.errors import ProtocolError
from mqpcap.listing.explanation import MAX_ITEMS, explanation, secret_spans
from mqpcap.listing.hex_dump import dump
from mqpcap.protocols import protocols
from mqpcap.schema.compiler import compiled
from mqpcap.schema.fields import Array, Text
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import ANY, Claim, Envelope, Layout, MessageQueue, Verdict
from mqpcap.tables.messages import RowPolicy, _under_policy

SEED = 14
DAMAGED = multiplied(100)
PIECE = 12
"""So many bytes of a secret in a row are a find."""
PORTS = {"blipmq": 5555, "flymq": 9092, "fq": 8765, "fq_data": 8765}
LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
TWO_TEXTS = frozenset({0x06, 0x21, 0x60, 0x61, 0x63, 0x64, 0x65})
"""FlyMQ's COMMIT, REPLAY_DLQ, GET_OFFSET, RESET_OFFSET, DESCRIBE_GROUP, GET_LAG, DELETE_GROUP."""


@dataclass(frozen=True)
class Session:
    """What one connection says, message by message: from the server or not, and the bytes."""

    protocol: str
    said: tuple[tuple[bool, bytes], ...]
    secrets: tuple[bytes, ...]

    @property
    def port(self) -> int:
        return PORTS[self.protocol]


def text(value: bytes, size: int = 2) -> bytes:
    return len(value).to_bytes(size, "big") + value


def token(draw: random.Random, length: int = 24) -> bytes:
    return bytes(draw.choice(LETTERS) for _ in range(length))


def blipmq(draw: random.Random) -> Session:
    """HELLO, AUTH, PING, SUBSCRIBE, and a second login; PUBLISH comes last, its body has no end of its own."""

    def frame(kind: int, number: int, body: bytes) -> bytes:
        return struct.pack(">IBQ", 9 + len(body), kind, number) + body

    keys = token(draw), token(draw, 40)
    client = [
        frame(1, 1, b"\0\1"), frame(2, 2, text(keys[0])), frame(7, 3, b""), frame(4, 4, text(b"orders") + b"\1"),
        frame(2, 5, text(keys[1])), frame(3, 6, b"\1" + text(b"orders") + b"hello"),
    ]  # fmt: skip
    server = [frame(5, n, bytes(8)) for n in (1, 2)] + [frame(8, 3, b"")] + [frame(5, n, bytes(8)) for n in (4, 5, 6)]
    return Session("blipmq", tuple(zip((False, True) * 6, interleaved(client, server), strict=True)), keys)


def flymq(draw: random.Random) -> Session:
    """Logins and accounts, some of them packed."""

    def frame(op: int, body: bytes) -> bytes:
        packed = op in (0x70, 0x73, 0x75, 0x7C) and draw.random() < 0.3
        body = gzip.compress(body, mtime=0) if packed else body
        return struct.pack(">BBBBI", 0xAF, 1, op, 3 if packed else 1, len(body)) + body

    roles = struct.pack(">I", 1) + text(b"admin")
    keys = [token(draw) for _ in range(5)]
    account = [text(b"alice") + text(keys[n]) + text(keys[n + 1]) + roles + b"\1" for n in (1, 3)]
    client = [
        frame(0x70, text(b"admin") + text(keys[0])), frame(0x72, b""), frame(0x73, account[0]),
        frame(0x7C, account[1]), frame(0x08, b""),
    ]  # fmt: skip
    success = b"\1" + text(b"admin") + struct.pack(">I", 1) + text(b"admin", 1) + text(b"")
    user = text(b"alice") + roles + struct.pack(">I", 0) + b"\1" + bytes(16)
    server = [frame(op, body) for op, body in (
        (0x71, success), (0x72, success), (0x73, user), (0x7C, b"\1" + text(b"")), (0x08, struct.pack(">I", 0))
    )]  # fmt: skip
    return Session("flymq", tuple(zip((False, True) * 5, interleaved(client, server), strict=True)), tuple(keys))


def fq(draw: random.Random) -> Session:
    """A command connection: login, its key, a bind, heartbeats."""
    password, key = token(draw), token(draw, 127)
    detail = b"inbox\0mem:private,block"
    client = [
        b"\xcc\x50\xca\xfe", b"\xaa\xaa\0\0" + text(b"alice") + text(detail) + text(password),
        b"\xb1\x70\0\0" + text(b"maryland") + text(b"prefix:\"\""), b"\x48\x48\x03\xe8", b"\xbe\xa7",
    ]  # fmt: skip
    server = [b"", b"\xaa\0" + text(key), b"\xb1\x71\0\0\0\1", b"\xbe\xa7", b"\xbe\xa7"]
    return Session("fq", tuple(zip((False, True) * 5, interleaved(client, server), strict=True)), (password, key))


def fq_data(draw: random.Random) -> Session:
    """A data connection, of a client or of another broker: the key, then messages."""
    key = token(draw, 127)
    word, node = draw.choice([(b"\xfa\xce", b""), (b"\xfe\xed", bytes([10, 0, 0, 9])), (b"\xfa\xde", b"")])

    def message(n: int, full: bool) -> bytes:
        said = text(b"maryland", 1) + text(b"a.b", 1) + bytes([n]) * 16
        return said + (text(b"alice", 1) + b"\0" if full else b"") + struct.pack(">I", 5) + b"hello"

    client = [b"\xcc\x50" + word + node + text(key), *(message(n, bool(node) or word == b"\xfa\xde") for n in range(4))]
    server = [b"", *(message(n, True) for n in range(4, 8))]
    return Session("fq_data", tuple(zip((False, True) * 5, interleaved(client, server), strict=True)), (key,))


def interleaved(client: Sequence[bytes], server: Sequence[bytes]) -> Iterator[bytes]:
    for one, other in zip(client, server, strict=True):
        yield from (one, other)


Kind = Callable[[random.Random], Session]
SESSIONS: tuple[Kind, ...] = (blipmq, flymq, fq, fq_data)


# -- damage ------------------------------------------------------------------------------------------------


def segments(session: Session, client_port: int, draw: random.Random) -> list[Segment]:
    """The connection from SYN on, each message in one to three segments."""
    seqs = [1000, 5000]
    opening = Segment(seq=seqs[0] - 1, flags=SYN), Segment(b"", seqs[1] - 1, seqs[0], SYN | ACK, from_server=True)
    out = [*opening]
    for from_server, said in session.said:
        cuts = sorted({0, len(said), *(draw.randrange(len(said) + 1) for _ in range(draw.randrange(3)))})
        for start, end in pairwise(cuts):
            mine, other = (1, 0) if from_server else (0, 1)
            out.append(Segment(said[start:end], seqs[mine], seqs[other], PSH | ACK, from_server))
            seqs[mine] += end - start
    return [replace(x, client_port=client_port) for x in out]


def lost(packets: list[Segment], draw: random.Random) -> list[Segment]:
    gone = {draw.randrange(2, len(packets)) for _ in range(draw.choice([1, 1, 2, 4]))}
    return [x for i, x in enumerate(packets) if i not in gone]


def changed(packets: list[Segment], draw: random.Random) -> list[Segment]:
    out = list(packets)
    for _ in range(draw.choice([1, 1, 3])):
        i = draw.randrange(2, len(out))
        body = bytearray(out[i].body)
        body[draw.randrange(len(body))] = draw.randrange(256)
        out[i] = replace(out[i], body=bytes(body))
    return out


def cut(packets: list[Segment], draw: random.Random) -> list[Segment]:
    snap = draw.randrange(4, 60)
    return [replace(x, body=x.body[:snap], wire_bytes=len(x.body)) for x in packets]


def swapped(packets: list[Segment], draw: random.Random) -> list[Segment]:
    """The client speaks from the server's port, and how the connection began was not captured."""
    return [replace(x, from_server=not x.from_server) for x in packets[2 + draw.randrange(3) :]]


def late(packets: list[Segment], draw: random.Random) -> list[Segment]:
    return packets[2 + draw.randrange(len(packets) - 3) :]


def one_way(packets: list[Segment], draw: random.Random) -> list[Segment]:
    side = draw.random() < 0.3
    return [x for x in packets[draw.choice([0, 2]) :] if x.from_server == side]


def misread(session: Session, draw: random.Random) -> Session:
    """A byte at the begin of a message, its operation or a length mostly, is another; not one that TWO_TEXTS has."""
    said = list(session.said)
    i = draw.choice([i for i, (from_server, one) in enumerate(said) if len(one) > 2 and not from_server])
    at, value = draw.randrange(min(len(said[i][1]), 9)), draw.randrange(0x83)
    if not (session.protocol == "flymq" and at == 2 and value in TWO_TEXTS):
        said[i] = said[i][0], changed_at(said[i][1], at, value)
    return replace(session, said=tuple(said))


def changed_at(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


def damaged(session: Session, client_port: int, draw: random.Random) -> list[Segment]:
    """One damage, sometimes two."""
    if draw.random() < 0.5:
        return segments(misread(session, draw), client_port, draw)
    packets = segments(session, client_port, draw)
    for damage in draw.sample([lost, changed, cut, swapped, late, one_way], draw.choice([1, 1, 2])):
        packets = damage(packets, draw) if len(packets) > 4 else packets
    return packets


# -- logins of real programs -----------------------------------------------------------------------------------


LOGINS = ("blipmq/qos1", "blipmq/errors", "flymq/login", "flymq/users", "fq/session", "fq/errors")
MAX_SESSION_MESSAGES = 40
SECRET_LENGTHS = range(7, 128)
"""Shorter ones stand in other bytes by chance."""


@cache
def captured_sessions(name: str) -> tuple[Session, ...]:
    """The connections of a sample capture that have secrets, message by message."""
    from mqpcap.listing.row_bytes import row_secrets
    from mqpcap.reading import Choices

    said: dict[object, list[tuple[bool, bytes]]] = {}
    found: dict[object, list[bytes]] = {}
    for row in merged(name, with_bytes=True):
        connection = row.message["connection_id"]
        said.setdefault(connection, []).append((row.message["direction"] == "s2c", row.data))
        spans = None if row.message["flaw"] is not None else row_secrets(row, Choices())
        for begin, end in () if spans is None else spans.spans:
            if end - begin in SECRET_LENGTHS:
                found.setdefault(connection, []).append(row.data[begin:end])
    protocol = name.partition("/")[0]
    sessions = (Session(protocol, tuple(said[x][:MAX_SESSION_MESSAGES]), tuple(found[x])) for x in found)
    return tuple(x for x in sessions if len(x.said) > 3)


def with_own_secrets(session: Session, draw: random.Random) -> Session:
    """The session with other secrets of equal length: no other session has them."""
    said, secrets = list(session.said), []
    for old in dict.fromkeys(session.secrets):
        secrets.append(token(draw, len(old)))
        said = [(side, data.replace(old, secrets[-1])) for side, data in said]
    return Session(session.protocol, tuple(said), tuple(secrets))


def two_text_count(data: bytes) -> int:
    return sum(data.count(bytes([0xAF, 1, op])) for op in TWO_TEXTS)


def mutated(name: str, count: int, draw: random.Random) -> Iterator[tuple[Session, list[Segment]]]:
    """Damaged connections of a sample capture, without those in which a login became a request of two texts."""
    for i in range(count):
        session = with_own_secrets(draw.choice(captured_sessions(name)), draw)
        packets = damaged(session, 1024 + i, draw)
        sent = two_text_count(b"".join(data for _, data in session.said))
        if session.protocol != "flymq" or two_text_count(b"".join(x.body for x in packets)) <= sent:
            yield session, packets


def leaking_outputs(name: str, count: int, seed: int, folder: Path) -> list[str]:
    """The outputs that show a secret of mutated connections of a sample capture."""
    draw = random.Random(f"{seed} {name}")
    sessions = list(mutated(name, count, draw))
    path = written(folder, sessions[0][0].port, [x for _, packets in sessions for x in packets])
    secrets = [secret for session, _ in sessions for secret in session.secrets]
    assert leaks(path.read_bytes(), secrets)
    leaking = [what for what, output in outputs(path, [], folder) if leaks(output, secrets)]
    for _ in range(RAW_COUNT):
        words = "--connection", f"c{draw.randrange(len(sessions)) + 1}", "--raw", draw.choice(("c2s", "s2c"))
        raw = running.run_bytes("follow", "-q", path, *words).stdout
        leaking += [" ".join(words)] if leaks(raw.ljust(PIECE, b"\0"), secrets) else []
    return leaking


RAW_COUNT = 2
"""Sides whose raw bytes are written, for each capture: each reads it twice."""


@pytest.mark.parametrize("name", LOGINS)
def test_no_output_of_a_mutated_login_shows_a_secret(name: str, tmp_path: Path) -> None:
    """More of them: ``python tests/bench/secret_mutants.py``."""
    assert leaking_outputs(name, DAMAGED // 4, SEED, tmp_path) == []


# -- finding -----------------------------------------------------------------------------------------------


def pieces(data: bytes) -> NDArray[np.uint64]:
    """A number for every PIECE bytes in a row: of the first eight, and the last."""
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data.ljust(PIECE, b"\0"), np.uint8), 8)
    numbers = np.ascontiguousarray(windows).view(np.uint64).reshape(-1)
    return numbers[: 8 - PIECE] * np.uint64(0x9E3779B97F4A7C15) + numbers[PIECE - 8 :]


def shapes(output: bytes) -> bytes:
    """What an output says: as it is, its dumps' text and bytes, every run of hex digits, and what is base64."""
    said = [output]
    for rows in re.findall(rb"(?:^ {4}[0-9a-f]{4}  [0-9a-f* ]{48}  .*\n)+", output, re.MULTILINE):
        said.append(b"".join(x[60:] for x in rows.splitlines()))
        cells = b"".join(x[10:58] for x in rows.splitlines())
        said.append(bytes.fromhex(cells.replace(b"*", b"0").decode()))
    for run_ in re.findall(rb"[0-9a-f]{16,}", output):
        said += [bytes.fromhex(run_[i : i + (len(run_) - i) // 2 * 2].decode()) for i in (0, 1)]
    for run_ in re.findall(rb"[0-9A-Za-z+/]{12,}", output):
        said += [base64.b64decode(run_[i : i + (len(run_) - i) // 4 * 4]) for i in range(4)]
    return b"\0".join(said)


def leaks(output: bytes, secrets: Sequence[bytes]) -> list[bytes]:
    """The secrets an output has a piece of."""
    shown = shapes(output)
    said, wanted = pieces(shown), pieces(b"\0".join(secrets))
    begins = np.zeros(1 << 20, bool)  # by the top 20 bits, which few of what is no piece have, too
    begins[wanted >> np.uint64(44)] = True
    found = {*np.intersect1d(said[begins[said >> np.uint64(44)]], wanted).tolist()}
    out = [secret for secret in secrets if found.intersection(pieces(secret).tolist())] if found else []
    short = [secret for secret in secrets if len(secret) < PIECE]
    return out + [secret for secret in short if secret in shown]


def test_the_finder_finds_each_shape() -> None:
    secret = token(random.Random(SEED))
    dumped = "".join(f"{line}\n" for line in dump(b"0123456789" + secret)).encode()

    for output in (secret, secret.hex().encode(), dumped, base64.b64encode(secret), base64.b64encode(b"a" + secret)):
        assert leaks(b"begin " + output + b" end", [secret]) == [secret]
    assert leaks(token(random.Random(0)), [secret]) == []


# -- outputs -----------------------------------------------------------------------------------------------


def run(*arguments: str | Path) -> bytes:
    ended = running.run(*arguments)
    assert ended.exit_code in (0, 1), ended.stderr
    return ended.stdout.encode()


def explanations(path: Path, options: Sequence[str]) -> bytes:
    """``explain`` of every message, as text and as JSON, in one pass over the capture."""
    from mqpcap.capture import captures
    from mqpcap.decode.detection import DecodeAs
    from mqpcap.listing.explained_messages import ExplainedMessage
    from mqpcap.listing.extra_columns import WITH_BYTES
    from mqpcap.listing.message_row import MessageRow
    from mqpcap.listing.row_bytes import explanation_of, row_secrets
    from mqpcap.pipeline import CapturePipeline
    from mqpcap.reading import Choices
    from mqpcap.tables.json_lines import json_text
    from mqpcap.tables.output import Output

    rules = [re.fullmatch(r"tcp.port==(\d+),(\w+)", option) for option in options[1::2]]
    choices = Choices(decode_as=tuple(DecodeAs(int(x[1]), x[2]) for x in rules if x))
    said: list[str] = []

    def tell(output: Output) -> None:
        if output.fields is None or output.protocol is None:
            return
        for message, fields in zip(output.rows.to_pylist(), output.fields.to_pylist(), strict=True):
            row = MessageRow(0, output.protocol, message, fields)
            secrets = row_secrets(row, choices)
            message = ExplainedMessage(explanation_of(row, inside=False), row, secrets, choices)
            said.extend(message.lines(readings=True))
            said.append(json_text(message.as_json()))

    for capture in captures([str(path)]).captures:
        CapturePipeline(capture, choices.dissection(), tell, hooks=WITH_BYTES).run()
    return "\n".join(said).encode()


def tables(path: Path, options: Sequence[str], out: Path) -> bytes:
    """Every value of text or bytes of the exported tables, and the files themselves."""
    run("export", "-q", *options, path, "--out", out)
    said = []
    for file in out.rglob("*.parquet"):
        said += [file.read_bytes()]
        said += [x for column in pq.read_table(file).columns for x in values(column.combine_chunks())]
    return b"\n".join(said)


def values(array: pa.Array) -> Iterator[bytes]:
    for value in array.to_pylist():
        yield value if isinstance(value, bytes) else repr(value).encode()


def outputs(path: Path, options: Sequence[str], folder: Path) -> Iterator[tuple[str, bytes]]:
    yield "show -v -x", run("show", "-q", "-v", "-x", *options, path)
    yield "show --json", run("show", "-q", "--json", *options, path)
    yield "explain", explanations(path, options)
    yield "export", tables(path, options, folder / "out")


def written(folder: Path, port: int, packets: Sequence[Segment]) -> Path:
    path = folder / "capture.pcap"
    path.write_bytes(pcap(packets, port))
    return path


@pytest.mark.parametrize("kind", SESSIONS, ids=lambda kind: kind.__name__)
def test_no_output_of_a_damaged_capture_shows_a_secret(kind: Kind, tmp_path: Path) -> None:
    draw = random.Random(f"{SEED} {kind.__name__}")
    sessions = [kind(draw) for _ in range(DAMAGED // len(SESSIONS))]
    packets = [x for i, session in enumerate(sessions) for x in damaged(session, CLIENT_PORT + i, draw)]
    path = written(tmp_path, sessions[0].port, packets)
    secrets = [secret for session in sessions for secret in session.secrets]

    assert leaks(path.read_bytes(), secrets)
    for name, output in outputs(path, [], tmp_path):
        assert leaks(output, secrets) == [], name


def test_decode_as_another_protocol_shows_no_secret(tmp_path: Path) -> None:
    """Sessions of every kind as messages of every protocol, each pair at a port of its own."""
    draw = random.Random(SEED)
    parts: list[bytes] = []
    secrets: list[bytes] = []
    rules: list[str] = []
    packet_count = 0
    for port, (kind, other) in enumerate(product(SESSIONS, protocols()), 20_000):
        sessions = [kind(draw) for _ in range(multiplied(6))]
        packets = [x for i, session in enumerate(sessions) for x in damaged(session, CLIENT_PORT + i, draw)]
        parts.append(pcap(packets, port, packet_count)[24 if parts else 0 :])  # one header is enough
        packet_count += len(packets)
        secrets += [secret for session in sessions for secret in session.secrets]
        rules += ["-d", f"tcp.port=={port},{other}"]
    path = tmp_path / "capture.pcap"
    path.write_bytes(b"".join(parts))

    for name, output in outputs(path, rules, tmp_path):
        assert leaks(output, secrets) == [], name


# (session, first bytes of the messages that are changed, the place of the byte, values it does not get)
BYTES: list[tuple[Kind, tuple[bytes, ...], int, frozenset[int]]] = [
    (blipmq, (b"\0\0\0\x23\2", b"\0\0\0\x33\2"), 4, frozenset()),
    (blipmq, (b"\0\0\0\x23\2", b"\0\0\0\x33\2"), 3, frozenset()),
    (blipmq, (b"\0\0\0\x09\7",), 3, frozenset()),
    (flymq, (b"\xaf\1\x70", b"\xaf\1\x73", b"\xaf\1\x7c"), 2, TWO_TEXTS),
    (flymq, (b"\xaf\1\x70", b"\xaf\1\x73", b"\xaf\1\x7c"), 7, frozenset()),
    (fq, (b"\xaa\xaa", b"\xaa\0"), 1, frozenset()),
    (fq_data, (b"\xcc\x50",), 3, frozenset()),
    (fq_data, (b"\xcc\x50\xfa",), 5, frozenset()),
]


@pytest.mark.parametrize(("kind", "begins", "at", "never"), BYTES)
def test_a_login_with_a_changed_operation_or_length_shows_no_secret(
    kind: Kind, begins: tuple[bytes, ...], at: int, never: frozenset[int], tmp_path: Path
) -> None:
    """Every second operation there is, and some more."""
    draw = random.Random(f"{SEED} {kind.__name__} {at}")
    packets: list[Segment] = []
    secrets: list[bytes] = []
    for value in sorted({*range(0x83), 0xA0, 0xAA, 0xCE, 0xDE, 0xED, 0xFE, 0xFF} - never)[:: 2 if at in (2, 4) else 12]:
        session = kind(draw)
        secrets += session.secrets
        said = [(side, changed_at(one, at, value) if one.startswith(begins) else one) for side, one in session.said]
        packets += segments(replace(session, said=tuple(said)), CLIENT_PORT + value, draw)
    path = written(tmp_path, PORTS[kind.__name__], packets)

    for name, output in outputs(path, [], tmp_path):
        assert leaks(output, secrets) == [], name


def test_a_key_that_reads_as_a_message_after_a_damaged_length_is_hidden(tmp_path: Path) -> None:
    """fq: a key's length of 127 became 2. From the third byte on the key is a message's exchange of 122 bytes.

    The route is ``4`` (52) bytes, then come an id and an empty body: bytes of the messages after the key.
    """
    draw = random.Random(SEED)
    key = b"Tmz" + token(draw, 122) + b"4V"
    ids = [bytes([n]) + bytes(15) for n in (1, 2, 3)]
    messages = [text(b"events", 1) + text(b"app.fqs", 1) + x + struct.pack(">I", 9) + b"line one\n" for x in ids]
    client = [b"\xcc\x50\xfa\xce\0\2" + key, *messages]
    session = Session("fq", tuple((False, x) for x in client), (key,))
    path = written(tmp_path, 8765, segments(session, CLIENT_PORT, draw))

    shown = run("show", "-q", "--show-secrets", path)
    assert leaks(shown, [key]) == []
    assert shown.count(b"malformed") == 1
    for name, output in outputs(path, [], tmp_path):
        assert leaks(output, [key]) == [], name


@pytest.mark.parametrize("op", sorted(TWO_TEXTS))
def test_a_longer_login_as_a_request_of_two_texts_shows_no_secret(op: int, tmp_path: Path) -> None:
    """What follows the two texts shows that they may be user and password."""
    key = token(random.Random(SEED))
    body = text(b"alice") + text(key) + text(token(random.Random(0))) + struct.pack(">I", 0) + b"\1"
    frame = struct.pack(">BBBBI", 0xAF, 1, op, 1, len(body)) + body
    packets = segments(Session("flymq", ((False, frame),), ()), 40000, random.Random(0))
    path = written(tmp_path, 9092, packets)

    for name, output in outputs(path, [], tmp_path):
        assert leaks(output, [key]) == [], name


# -- places of their own -----------------------------------------------------------------------------------


def test_the_installed_command_hides_a_key_in_a_frame_of_another_operation(tmp_path: Path) -> None:
    """BlipMQ's AUTH as a POLL, as a PING, and with an operation that does not exist."""
    key = token(random.Random(SEED))
    hello = struct.pack(">IBQ", 11, 1, 1) + b"\0\1"
    packets: list[Segment] = []
    for i, op in enumerate((9, 7, 99)):
        login = struct.pack(">IBQ", 35, op, 2) + text(key)
        packets += segments(Session("blipmq", ((False, hello), (False, login)), ()), 40000 + i, random.Random(i))
    path = written(tmp_path, 5555, packets)
    command = [sys.executable, "-m", "mqpcap", "show", "-q", "-v", "-x", str(path)]

    said = subprocess.run(command, capture_output=True, check=True, timeout=300).stdout
    shown = subprocess.run([*command, "--show-secrets"], capture_output=True, check=True, timeout=300).stdout

    assert leaks(said, [key]) == []
    assert leaks(shown, [key]) == [key]
    assert b'trailing_bytes: "***"' in said


def test_bytes_after_a_ping_are_shown_if_they_are_no_secret(tmp_path: Path) -> None:
    frames = [struct.pack(">IBQ", 11, 1, 1) + b"\0\1", struct.pack(">IBQ", 14, 7, 2) + b"extra"]
    packets = segments(Session("blipmq", tuple((False, x) for x in frames), ()), 40000, random.Random(0))

    assert b'trailing_bytes: "extra"' in run("show", "-q", "-v", written(tmp_path, 5555, packets))


def test_explain_of_bytes_hides_what_another_direction_or_misfit_would_show() -> None:
    """FlyMQ AUTH told to be a reply; a packed one whose operation is not its own; numbers in what does not fit."""
    key = token(random.Random(SEED))
    login = text(b"admin") + text(key)
    packed = gzip.compress(login, mtime=0)
    frames = [
        (struct.pack(">BBBBI", 0xAF, 1, 0x70, 1, len(login)) + login, "s2c"),
        (struct.pack(">BBBBI", 0xAF, 1, 0x03, 3, len(packed)) + packed, "c2s"),
        (struct.pack(">BBBBI", 0xAF, 1, 0x10, 3, len(packed)) + packed, "c2s"),
        (struct.pack(">BBBBI", 0xAF, 1, 0x70, 1, len(key)) + key, "c2s"),
    ]
    first = str(int.from_bytes(key[:2], "big"))  # what stands where a length should

    for frame, direction in frames:
        for form in ([], ["--json"]):
            said = run("explain", *form, "--hex", frame.hex(), "--protocol", "flymq", "--direction", direction)
            assert leaks(said, [key]) == []
            assert first not in said.decode()
    assert first in run("explain", "--show-secrets", "--hex", frames[3][0].hex(), "--protocol", "flymq").decode()


class Vault(Message):
    """A list of keys."""

    name = "vault"
    fields_desc = [Array("keys", Text("api_key", prefix=1, secret=True))]


class Safe(Message):
    """A key beside a name, as an element."""

    name = "safe"
    fields_desc = [Text("label", prefix=1), Text("api_key", prefix=1, secret=True)]


class Safes(Message):
    """Names and keys."""

    name = "safes"
    fields_desc = [Array("safes", Safe)]


def vault(*readings: type) -> MessageQueue:
    layout = Layout("c2s", "c2s", {ANY: readings}, dialect="v1")
    return MessageQueue(
        name="vault", title="Vault", ports=(), dialects=("v1",), layouts=(layout,),
        claims=lambda opening: Claim(Verdict.NO), recognised="never", envelope=Envelope(),
    )  # fmt: skip


@pytest.mark.parametrize("cls", [Vault, Safes])
def test_a_secret_beyond_the_list_limit_is_hidden(cls: type) -> None:
    protocol = vault(cls)
    data = b"\3abc\3key" * MAX_ITEMS
    best = explanation(protocol, data).best
    assert best is not None and best.fits
    assert best.items[-1].meaning == "more fields, not listed"

    spans = secret_spans(protocol, data, best).spans

    last = len(data) - 3
    assert any(start <= last and len(data) <= end for start, end in spans)


def test_secrets_in_a_list_are_masked_in_the_tables() -> None:
    program = compiled(vault(Vault, Safes))
    columns = {x.name: (i, x) for i, x in enumerate(program.columns) if x.parent < 0}
    keys = pa.array([["one", "two"], None, []])
    safes = pa.array([[{"label": "a", "api_key": "one"}], None, [{"label": "b", "api_key": "two"}]])

    said = [
        _under_policy(program, *columns[n], x, RowPolicy()).to_pylist() for n, x in (("keys", keys), ("safes", safes))
    ]

    assert said[0] == [["***", "***"], None, []]
    assert said[1] == [[{"label": "a", "api_key": "***"}], None, [{"label": "b", "api_key": "***"}]]


def test_a_column_that_is_a_secret_only_in_some_messages_is_refused() -> None:
    class Open(Message):
        """The same column, told to be none."""

        name = "open"
        fields_desc = [Array("keys", Text("api_key", prefix=1))]

    with pytest.raises(ProtocolError, match="secret"):
        compiled(vault(Vault, Open))
