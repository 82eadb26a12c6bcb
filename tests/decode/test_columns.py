"""Message spans to columns, in batches."""

import gzip
import struct

import numpy as np
import pyarrow as pa
import pytest

from mqpcap.decode import columns
from mqpcap.decode.columns import ColumnReader, Spans
from mqpcap.protocols import protocols
from mqpcap.schema.flaws import Flaw

FLYMQ = protocols()["flymq"]
FETCH, PACKED = 7, 3


def reply(number: int, value_len: int, flags: int = PACKED, damaged: bool = False, record_count: int = 1) -> bytes:
    """A FETCH reply; compressed if the flags say so."""
    record = struct.pack(">QI", number, 0) + struct.pack(">I", value_len) + bytes([number]) * value_len
    body = struct.pack(">IQ", record_count, number + 1) + record * record_count
    if flags == PACKED:
        body = gzip.compress(body)
    if damaged:
        body = body[:-4] + bytes(4)
    return struct.pack(">BBBBI", 0xAF, 1, FETCH, flags, len(body)) + body


def spans(*frames: bytes) -> Spans:
    reader = ColumnReader(FLYMQ)
    layout = [x.name for x in reader.program.layouts].index("s2c")
    lengths, n = np.array([len(frame) for frame in frames], np.int64), len(frames)
    ends = np.cumsum(lengths)
    return Spans(
        np.frombuffer(b"".join(frames), np.uint8), ends - lengths, ends,
        np.full(n, layout, np.int32), np.full(n, FETCH, np.int64), np.zeros(n, np.uint8),
    )  # fmt: skip


FRAMES = (reply(1, 600), reply(2, 600), reply(3, 70, flags=1), reply(4, 600, damaged=True), reply(5, 600), reply(6, 9))


def test_batches_hold_the_rows_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ColumnReader(FLYMQ).records(spans(*FRAMES))
    monkeypatch.setattr(columns, "INFLATED_BYTES", 1000)
    parts = list(ColumnReader(FLYMQ).batches(spans(*FRAMES)))

    assert len(parts) > 1
    assert pa.concat_tables([part.table for part in parts]).to_pylist() == whole.table.to_pylist()
    assert np.concatenate([part.flaw for part in parts]).tolist() == [0, 0, 0, Flaw.MALFORMED, 0, 0]
    assert whole.table["records"].to_pylist()[4] == [{"offset": 5, "key": b"", "value": b"\5" * 600}]


def test_what_is_inflated_at_once_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small frames that grow: a batch ends with the body that passes the limit."""
    monkeypatch.setattr(columns, "INFLATED_BYTES", 1000)
    frames = [reply(k, 600) for k in range(9)]
    assert sum(map(len, frames)) < 1000

    assert [len(part.flaw) for part in ColumnReader(FLYMQ).batches(spans(*frames))] == [2, 2, 2, 2, 1]


def test_batches_have_a_number_of_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [reply(k, 100, flags=1) for k in range(7)]
    size = len(plain[0])

    monkeypatch.setattr(columns, "BATCH_ROWS", 3)
    assert [len(part.flaw) for part in ColumnReader(FLYMQ).batches(spans(*plain))] == [3, 3, 1]
    monkeypatch.setattr(columns, "BATCH_BYTES", 2 * size)
    assert [len(part.flaw) for part in ColumnReader(FLYMQ).batches(spans(*plain))] == [2, 2, 2, 1]
    monkeypatch.setattr(columns, "BATCH_BYTES", size - 1)
    assert [len(part.flaw) for part in ColumnReader(FLYMQ).batches(spans(*plain))] == [1] * 7


@pytest.mark.parametrize("entries", [1, 16, 64])
def test_entries_of_the_tape_are_bounded(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields of many messages are read in parts; a message with more has a tape of its own, which is not kept."""
    frames = (*FRAMES, *(reply(k, 9, record_count=200 if k == 3 else 2) for k in range(9)))
    whole = ColumnReader(FLYMQ).records(spans(*frames))
    monkeypatch.setattr(columns, "TAPE_ENTRIES", 1)
    monkeypatch.setattr(columns, "MAX_TAPE_ENTRIES", entries)
    reader = ColumnReader(FLYMQ)
    parts, sizes = [], []
    for part in reader.batches(spans(*frames)):
        parts.append(part)
        sizes.append(len(reader._tape[0]))

    assert pa.concat_tables([part.table for part in parts]).to_pylist() == whole.table.to_pylist()
    assert np.concatenate([part.flaw for part in parts]).tolist() == whole.flaw.tolist()
    assert sum(size > 64 for size in sizes) == 1
    assert sum(raw.n for raw in reader.raw(spans(*frames))) == len(frames)


def test_no_rows_are_no_batch_and_an_empty_table() -> None:
    assert list(ColumnReader(FLYMQ).batches(spans())) == []
    assert ColumnReader(FLYMQ).records(spans()).table.num_rows == 0
