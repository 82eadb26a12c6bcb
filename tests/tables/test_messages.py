"""Rows of messages: a protocol derives what it declares, and batches have the declared columns."""

import struct
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dissection import dissect
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from mutated_captures import one_packet_windows
from running import run
from torture import ACK, SYN, Segment, pcap

from mqpcap import pipeline
from mqpcap.capture import captures
from mqpcap.protocols import protocols
from mqpcap.tables.messages import RowPolicy, message_rows
from mqpcap.tables.schemas import TABLES, protocol_schema

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = [path for name in protocols() for path in sorted((ROOT / "pcaps" / name).glob("*.pcap"))]


def test_a_derived_column_that_is_not_declared_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fq = protocols()["fq"]
    short = replace(fq, envelope=replace(fq.envelope, derives=("status",)))
    monkeypatch.setattr("mqpcap.pipeline.protocols", lambda: {**protocols(), "fq": short})

    with pytest.raises(ValueError, match=r"fq: derive makes \['error_text', 'message_id', 'status'\]"):
        dissect(captures([str(ROOT / "pcaps" / "fq" / "session.pcap")]).captures[0])


Call = tuple[Any, ...]
"""The arguments of `message_rows` for a batch: protocol, program, frames, records, connections, and others."""


@lru_cache
def calls_for(path: Path) -> list[Call]:
    """A call for each batch of a capture, in windows of a few packets: many batches of few messages."""
    calls: list[Call] = []

    def noted(*arguments: Any) -> Any:
        calls.append(arguments)
        return message_rows(*arguments)

    with pytest.MonkeyPatch.context() as patch, one_packet_windows(40):
        patch.setattr(pipeline, "message_rows", noted)
        dissect(captures([str(path)]).captures[0])
    return calls


def some_rows(call: Call, rows: list[int], spare: bytes | None) -> Call:
    """The call with these rows only, and with bytes in all columns that have spare bytes if any are given."""
    protocol, program, frames, records, connections, *others = call
    table = records.table.take(pa.array(rows, pa.int64()))
    for name in protocol.spare if spare is not None else ():
        column = table.column_names.index(name)
        table = table.set_column(column, name, pa.array([spare] * len(rows), pa.binary()))
    index = np.array(rows, np.intp)
    records = replace(records, table=table, flaw=records.flaw[index], variant=records.variant[index])
    connections = replace(connections, index=connections.index[index], missing_ns=connections.missing_ns[index])
    return protocol, program, frames.taken(index), records, connections, *others


@examples(40)
@given(st.sampled_from(CAPTURES), st.booleans(), st.sampled_from([None, 0, 3]), st.data())
def test_schema_of_a_batch_is_the_declared_one_whatever_its_rows(
    path: Path, show_secrets: bool, bodies: int | None, data: st.DataObject
) -> None:
    """Any rows of a batch, also such as may be a misread login: its spare bytes may begin with NUL, or are many."""
    *call, _, pairs = data.draw(st.sampled_from(calls_for(path) or calls_for(CAPTURES[0])))
    rows = data.draw(st.lists(st.integers(0, len(call[2].start) - 1), min_size=1, max_size=4))
    spare = data.draw(st.sampled_from([None, b"\0", b"x" * 40]))

    chunk, _ = message_rows(*some_rows((*call, RowPolicy(show_secrets, bodies), pairs), rows, spare))

    assert chunk.messages.schema.equals(TABLES["messages"], check_metadata=True)
    assert chunk.fields.schema.equals(protocol_schema(call[0]), check_metadata=True)


def test_ping_with_a_payload_beside_one_without_is_exported(tmp_path: Path) -> None:
    """The payload's byte NUL may be of a login whose operation was damaged."""
    inputs = []
    for name, payload in (("a", b""), ("b", b"\0")):
        hello, ping = struct.pack(">IBQ", 11, 1, 1) + b"\0\2", struct.pack(">IBQ", 9 + len(payload), 7, 2) + payload
        ack, pong = struct.pack(">IBQ", 17, 5, 1) + bytes(8), struct.pack(">IBQ", 9, 8, 2)
        sent, got = 1 + len(hello), 1 + len(ack)
        segments = [
            Segment(seq=0, flags=SYN), Segment(ack=1, flags=SYN | ACK, from_server=True),
            Segment(hello, 1, 1), Segment(ack, 1, sent, from_server=True),
            Segment(ping, sent, got), Segment(pong, got, sent + len(ping), from_server=True),
        ]  # fmt: skip
        inputs.append(tmp_path / f"{name}.pcap")
        inputs[-1].write_bytes(pcap(segments, 5555))

    done = run("export", *inputs, "--out", tmp_path / "out")

    assert done.exit_code == 0, done.stderr
    rows = pq.read_table(tmp_path / "out" / "blipmq").sort_by("capture")
    assert rows["op"].to_pylist() == ["HELLO", "ACK", "PING", "PONG"] * 2
    assert [x for x in rows["trailing_bytes"].to_pylist() if x] == [b"***"]
