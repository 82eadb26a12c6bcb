"""Rows of dissections and exports, in an order of their own, so that two roads can be compared."""

import os
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from dissection import Dissection

Rows = dict[str, list[str]]


def texts(tables: Iterable[pa.Table]) -> list[str]:
    """Every row as text, sorted: the names of its columns, and its values."""
    rows: list[str] = []
    for table in tables:
        names = " ".join(table.column_names)
        rows += [f"{names} {values!r}" for values in zip(*map(_values, table.columns), strict=True)]
    return sorted(rows)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, times as text, which is quicker than Python's."""
    return (column.cast(pa.string()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def of_dissections(made: Sequence[Dissection]) -> Rows:
    """All tables of dissections."""
    found: dict[str, list[pa.Table]] = {}
    for one in made:
        for chunk in one.chunks:
            found.setdefault("messages", []).append(chunk.messages)
            found.setdefault(chunk.protocol, []).append(chunk.fields)
        for name in ("exchanges", "deliveries", "connections", "problems", "captures"):
            found.setdefault(name, []).append(one.table(name))
    return {name: rows for name, tables in sorted(found.items()) if (rows := texts(tables))}


def of_export(out: Path) -> Rows:
    """All tables of an export's directory."""
    return {
        folder.name: texts(pq.ParquetFile(path).read(use_threads=False) for path in folder.rglob("*.parquet"))
        for folder in sorted(out.iterdir())
        if folder.is_dir()
    }


def row_count(out: Path, table: str) -> int:
    """How many rows a table of an export has."""
    return sum(pq.read_metadata(path).num_rows for path in (out / table).rglob("*.parquet"))


def schemas(out: Path) -> dict[str, pa.Schema]:
    """The schema of each table of an export."""
    return {f.name: ds.dataset(f, format="parquet").schema for f in sorted(out.iterdir()) if f.is_dir()}


def records(path: Path) -> tuple[bytes, list[bytes]]:
    """A pcap's header, and its records."""
    data = path.read_bytes()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    found, at = [], 24
    while at < len(data):
        size = struct.unpack_from(order + "I", data, at + 8)[0]
        found.append(data[at : at + 16 + size])
        at += 16 + size
    return data[:24], found


def rotated(path: Path, folder: Path, parts: int, name: str = "part.pcap") -> list[Path]:
    """The capture in so many files as tcpdump -C names them."""
    head, packets = records(path)
    each = -(-len(packets) // parts)
    made = []
    for i in range(parts):
        file = folder / f"{name}{i or ''}"
        file.write_bytes(head + b"".join(packets[i * each : (i + 1) * each]))
        made.append(file)
    return made


def merged(paths: Sequence[Path], out: Path) -> Path:
    """Captures of one link type and clock as one, in order of time."""
    heads: set[Any] = set()
    packets: list[tuple[int, int, bytes]] = []
    for path in paths:
        head, found = records(path)
        heads.add((head[:4], head[20:24]))
        packets += [(*struct.unpack_from("<II", one), one) for one in found]
    assert len(heads) == 1, heads
    packets.sort(key=lambda one: one[:2])
    out.write_bytes(head + b"".join(one for _, _, one in packets))
    return out


def moved(path: Path, out: Path, port: int, to: int) -> Path:
    """The capture (Ethernet, IPv4) with its server on another port."""
    head, packets = records(path)
    made = [head]
    for one in packets:
        packet = bytearray(one)
        tcp = 16 + 14 + (packet[30] & 15) * 4
        for at in (tcp, tcp + 2):
            if packet[at : at + 2] == struct.pack(">H", port):
                packet[at : at + 2] = struct.pack(">H", to)
        made.append(bytes(packet))
    out.write_bytes(b"".join(made))
    return out


def fragmented(path: Path, out: Path) -> Path:
    """The capture (Ethernet, IPv4) with every second packet in fragments, the parts of some out of order."""

    def parts(record: bytes, number: int) -> Iterator[bytes]:
        ip = 16 + 14
        head, payload = record[ip : ip + 20], record[ip + 20 : ip + struct.unpack_from(">H", record, ip + 2)[0]]
        pieces = [payload[at : at + 16] for at in range(0, len(payload), 16)]
        for i, piece in enumerate(pieces):
            more = 0x2000 if i + 1 < len(pieces) else 0
            fresh = bytearray(head)
            fresh[2:8] = struct.pack(">HHH", 20 + len(piece), number, more | (i * 2))
            packet = record[16:ip] + bytes(fresh) + piece
            yield record[:8] + struct.pack("<II", len(packet), len(packet)) + packet

    head, found = records(path)
    made = []
    for number, record in enumerate(found):
        is_cut = number % 2 and record[16 + 14] == 0x45
        pieces = list(parts(record, number)) if is_cut else [record]
        made += reversed(pieces) if number % 3 == 0 else pieces
    out.write_bytes(head + b"".join(made))
    return out


QUICK_SPARK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",  # tables this small are slower to plan again than to join
    "spark.default.parallelism": "2",
    # A query of a few hundred rows is read sooner than its code is compiled.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",  # Spark writes each plan as text, for a page that nobody opens
}
"""Settings for small tables; `test_first_lines_of_both_pages_are_whole_scripts` has those of users."""


def importable(environment: dict[str, str]) -> dict[str, str]:
    """The environment in which a worker finds what this process imports."""
    paths = [p for p in sys.path if p and Path(p).is_dir() and "site-packages" not in p and "lib/python" not in p]
    paths = [p for p in paths if (Path(p) / "mqpcap").is_dir() or (Path(p) / "pyspark_mqpcap").is_dir()]
    return {**environment, "PYTHONPATH": os.pathsep.join([*paths, environment.get("PYTHONPATH", "")]).strip(os.pathsep)}
