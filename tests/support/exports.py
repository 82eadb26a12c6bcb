"""Small exports of made-up rows, and what is in a folder of files."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from mqpcap.tables.export import Export, ExportSummary

DAY_NS = 86_400_000_000_000
RECORDS = pa.list_(pa.struct([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        pa.field("connection_id", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("ts_ns", pa.int64(), metadata={b"unit": b"ns since 1970"}),
        pa.field("op", pa.string()),
        pa.field("src_port", pa.int32()),
        pa.field("resynced", pa.bool_()),
        pa.field("tag", pa.decimal128(20, 0)),
        pa.field("body", pa.binary()),
        pa.field("records", RECORDS),
    ]
)


def batch(*times_ns: int, op: str = "PUBLISH") -> pa.RecordBatch:
    rows = [
        {
            "connection_id": 7,
            "ts": time_ns // 1000,
            "ts_ns": time_ns,
            "op": op,
            "src_port": 5555,
            "resynced": False,
            "tag": Decimal(2**64 - 1),
            "body": b"\x00body",
            "records": [{"offset": 1, "key": None, "value": b"v"}],
        }
        for time_ns in times_ns
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def export(out: Path, *batches: pa.RecordBatch, threads: int = 1) -> ExportSummary:
    with Export(out, threads=threads) as tables:
        for rows in batches:
            tables.write("messages", rows, "ts_ns")
        return tables.commit()


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder)}
