"""The packets of selected messages, found and written, and what is read of them again."""

import io
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from dissection import Dissection, dissect
from examples import one_in
from running import ROOT, run
from torture import SYN, Segment, pcap

import mqpcap
from mqpcap.capture import captures
from mqpcap.listing.extraction import Extraction, write_packets
from mqpcap.pipeline import Options
from mqpcap.query import Query, query
from mqpcap.reading import Choices, Outcome
from mqpcap.tables.messages import RowPolicy
from mqpcap.tables.schemas import KEYS

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark on PATH")
QOS1 = "pcaps/blipmq/qos1.pcap"
SAMPLES = one_in(3, sorted(str(path.relative_to(ROOT)) for path in (ROOT / "pcaps").rglob("*.pcap")))
CHANGES = frozenset({"capture", "capture_file", "first_packet", "last_packet", "request_packet", "reply_packet"})


def blipmq(frame_type: int, correlation_id: int, payload: bytes = b"") -> bytes:
    """A frame of BlipMQ version 1 (frame.rs): length of all that follows, type, id, payload."""
    return (9 + len(payload)).to_bytes(4, "big") + bytes([frame_type]) + correlation_id.to_bytes(8, "big") + payload


def extracted(path: Path | str, asked: Query, out: Path, whole: bool) -> Extraction:
    (capture,) = captures([os.fspath(path)]).captures
    made = Extraction(capture, asked, whole)
    made.find(Outcome(Choices()), lambda count: None)
    file = io.BytesIO()
    write_packets([made], file, Outcome(Choices()), lambda count: None)
    out.write_bytes(file.getvalue())
    return made


def dissected(path: Path | str) -> Dissection:
    (capture,) = captures([os.fspath(path)]).captures
    return dissect(capture, Options(policy=RowPolicy(seeds=(1 << 29, 1 << 29))))


def rows(found: Dissection, connections: frozenset[int]) -> list[Mapping[str, object]]:
    """Rows of all tables of some connections, without what an extraction changes."""
    tables = [chunk.messages.to_pylist() for chunk in found.chunks]
    tables += [
        [
            {"fields": {k: v for k, v in row.items() if v is not None}} | {k: row[k] for k in KEYS}
            for row in chunk.fields.to_pylist()
        ]
        for chunk in found.chunks
    ]
    tables += [found.table(name).to_pylist() for name in ("exchanges", "connections", "problems")]
    kept = (
        {k: v for k, v in row.items() if k not in CHANGES and k != "fields"}
        | {"fields": {k: v for k, v in row.get("fields", {}).items() if k not in CHANGES}}
        for table in tables
        for row in table
        if row["connection_id"] in connections
    )
    return sorted(kept, key=repr)


@pytest.mark.parametrize("path", SAMPLES)
def test_connections_extracted_give_the_same_rows_again(path: str, tmp_path: Path) -> None:
    """Of the connection with the first and of that with the last message."""
    whole = dissected(ROOT / path)
    messages = [row for chunk in whole.chunks for row in chunk.messages.select(["ts_ns", "connection_id"]).to_pylist()]
    messages.sort(key=lambda row: row["ts_ns"])
    ids = {row["connection_id"] for row in (messages[0], messages[-1])} if messages else set()
    if not ids:
        pytest.skip("no message of ours")

    extracted(ROOT / path, query(f"connection in ({', '.join(map(str, ids))})"), tmp_path / "out.pcapng", whole=True)

    assert rows(dissected(tmp_path / "out.pcapng"), frozenset(ids)) == rows(whole, frozenset(ids))


def test_the_connection_that_proved_a_name_is_extracted_with_it(tmp_path: Path) -> None:
    """fq: the user of a data connection is told by the login on its command connection."""
    whole = dissected(ROOT / "pcaps/fq/session.pcap")
    (data, *_) = [
        row["connection_id"]
        for chunk in whole.chunks
        for row, fields in zip(chunk.messages.to_pylist(), chunk.fields.to_pylist(), strict=True)
        if fields["connection_kind"] == "data" and row["client_name"] is not None
    ]

    made = extracted(
        ROOT / "pcaps/fq/session.pcap", query(f"connection == {data}"), tmp_path / "out.pcapng", whole=True
    )

    assert (made.connection_count, made.context_count) == (1, 1)


def segmented(tmp_path: Path) -> Path:
    """A PUBLISH in three segments of which the last comes first, between PINGs of the same side."""
    hello = blipmq(1, 1, b"\0\1")
    body = b"x" * 300
    publish = blipmq(3, 4, b"\1\0\2q1" + body)
    stream = [
        (hello, 0),
        (blipmq(7, 2), 0),
        (publish[200:], 200),
        (publish[:100], 0),
        (publish[100:200], 100),
        (blipmq(7, 3), 0),
    ]
    begins = [0, len(hello), len(hello) + 13, len(hello) + 13, len(hello) + 13, len(hello) + 13 + len(publish)]
    data = [Segment(seq=1000, flags=SYN), Segment(seq=5000, ack=1001, flags=SYN | 16, from_server=True)]
    data += [Segment(part, seq=1001 + at + more, ack=5001) for (part, more), at in zip(stream, begins, strict=True)]
    data.insert(6, Segment(seq=5001, ack=1001 + len(hello), flags=16, from_server=True))
    path = tmp_path / "in.pcap"
    path.write_bytes(pcap(data, 5555))
    return path


def test_packets_are_those_that_carry_the_messages(tmp_path: Path) -> None:
    path = segmented(tmp_path)

    publish = extracted(path, query("op == PUBLISH"), tmp_path / "publish.pcapng", whole=False)
    ping = extracted(path, query("op == PING"), tmp_path / "ping.pcapng", whole=False)
    whole = extracted(path, query("op == PUBLISH"), tmp_path / "whole.pcapng", whole=True)

    # Numbers from 1: two of the handshake, HELLO, PING, the last third, the first, an ACK, the second, PING.
    assert publish._packets.tolist() == [5, 6, 8]
    assert ping._packets.tolist() == [4, 9]
    assert whole._packets.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_packets_after_the_hole_of_a_message_are_its_packets(tmp_path: Path) -> None:
    """HELLO, a PUBLISH whose middle was not captured (it is longer than both ends together), and a PING."""
    hello, publish, ping = blipmq(1, 1, b"\0\1"), blipmq(3, 4, b"\1\0\2q1" + bytes(300)), blipmq(7, 2)
    begin = 1001 + len(hello)
    data = [
        Segment(seq=1000, flags=SYN),
        Segment(seq=5000, ack=1001, flags=SYN | 16, from_server=True),
        Segment(hello, seq=1001, ack=5001),
        Segment(publish[:40], seq=begin, ack=5001),
        Segment(publish[280:], seq=begin + 280, ack=5001),
        Segment(ping, seq=begin + len(publish), ack=5001),
        Segment(seq=5001, ack=begin + len(publish) + len(ping), flags=16, from_server=True),
    ]
    path = tmp_path / "in.pcap"
    path.write_bytes(pcap(data, 5555))

    by_op = {
        op: extracted(path, query(f"op == {op}"), tmp_path / f"{op}.pcapng", whole=False)._packets.tolist()
        for op in ("HELLO", "PUBLISH", "PING")
    }

    assert by_op == {"HELLO": [3], "PUBLISH": [4, 5], "PING": [6]}


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_extracted_is_found_in_one_reading(whole: bool) -> None:
    read_bytes: list[int] = []
    (capture,) = captures([str(ROOT / QOS1)]).captures

    Extraction(capture, query("op == PING"), whole).find(Outcome(Choices()), read_bytes.append)

    assert sum(read_bytes) <= (ROOT / QOS1).stat().st_size


def test_what_is_counted_is_what_was_written(tmp_path: Path) -> None:
    """The file loses its second half between the two readings: packets of the sample are read in order of time."""
    path, outcome, file = tmp_path / "shrinks.pcap", Outcome(Choices()), io.BytesIO()
    shutil.copy(ROOT / QOS1, path)
    (capture,) = captures([str(path)]).captures
    made = Extraction(capture, query("protocol exists"), False)
    made.find(outcome, lambda count: None)
    os.truncate(path, path.stat().st_size // 2)

    summary = write_packets([made], file, outcome, lambda count: None)

    (tmp_path / "out.pcapng").write_bytes(file.getvalue())
    there = mqpcap.read(str(tmp_path / "out.pcapng")).num_rows
    assert 0 < summary.message_count == there < 242
    ((name, reason),) = [x for x in outcome.unreadable if "went missing" in x[1]]
    assert name == str(path) and reason.startswith(f"{made.packet_count - summary.packet_count} packets of ")


@needs_tshark
@pytest.mark.tshark
def test_tshark_reads_the_packets_and_the_comments(tmp_path: Path) -> None:
    path = segmented(tmp_path)
    result = run("extract", path, "--op", "PUBLISH", "--connections", "--out", tmp_path / "out.pcapng")

    assert result.exit_code == 0, result.stderr
    names = ["frame.number", "frame.time_epoch", "tcp.seq_raw", "tcp.len", "tcp.flags.syn"]
    assert fields(tmp_path / "out.pcapng", names) == fields(path, names)
    assert fields(tmp_path / "out.pcapng", ["frame.comment"]) == [
        *[""] * 5, "blipmq/v1  PUBLISH  q1  id=4  300 B  10.0.0.1:40000 -> 10.0.0.2:5555", *[""] * 3,
    ]  # fmt: skip


def fields(path: Path, names: list[str]) -> list[str]:
    wanted = [word for name in names for word in ("-e", name)]
    told = subprocess.run(["tshark", "-r", path, "-T", "fields", *wanted], capture_output=True, text=True, check=True)
    return told.stdout.removesuffix("\n").split("\n")


@needs_tshark
@pytest.mark.tshark
def test_times_lengths_and_cut_packets_stay(tmp_path: Path) -> None:
    path = ROOT / "pcaps/faults/fq_snapped.pcap"
    names = ["frame.time_epoch", "frame.cap_len", "frame.len", "ip.id", "tcp.srcport"]

    extracted(path, query("protocol exists"), tmp_path / "out.pcapng", whole=True)

    assert set(fields(tmp_path / "out.pcapng", names)) <= set(fields(path, names))
    assert len(fields(tmp_path / "out.pcapng", names)) > 100


def test_secrets_are_not_in_comments(tmp_path: Path) -> None:
    for path, secret in ((QOS1, b"dev-key"), ("pcaps/fq/session.pcap", b"watchpw")):
        out = tmp_path / f"{path.split('/')[1]}.pcapng"
        packets = (ROOT / path).read_bytes().count(secret)
        extracted(ROOT / path, query("protocol exists"), out, whole=True)

        assert out.read_bytes().count(secret) == packets > 0  # in packets only
