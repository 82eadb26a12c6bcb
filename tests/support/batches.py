"""Rows written down by hand as the room ``correlate`` takes them, and what it says of them.

A row is a dict with ``direction``, ``op`` and ``ts_ns``; ``stream_offset`` and ``frame_len`` follow from the rows
before it where they are missing. Fields of a protocol have ``f.`` in front.
``connection`` is 1 unless a row says otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from mqpcap.correlate import Batch, ConnectionEnds, Correlation, Watermarks
from mqpcap.schema.requests import CorrelationRule
from mqpcap.tables.messages import RowPolicy, fingerprints
from mqpcap.tcp.flow_records import NO_OFFSET

Row = dict[str, Any]
LENGTH = 20
SERVER = "10.0.0.1", 9
PRINTS = fingerprints(RowPolicy().seeds)


@dataclass(frozen=True)
class End:
    """How a connection ended, and the offsets after which bytes of each side hold no message (-1: none).

    ``ended``: the ends of both sides were captured.
    """

    ended: bool = True
    all_acknowledged: bool = True
    requests_missing_at: int = -1
    replies_missing_at: int = -1
    last_ns: int = 0
    orderly: bool = False
    requests_extent: int = 0
    replies_extent: int = 0


def placed(rows: Sequence[Row]) -> list[Row]:
    """The rows with their places in the streams of their connections."""
    at: dict[tuple[int, str], int] = {}
    made = []
    for row in rows:
        row = {"connection": 1, "frame_len": LENGTH} | row
        side = row["connection"], row["direction"]
        row.setdefault("stream_offset", at.get(side, 0))
        at[side] = row["stream_offset"] + row["frame_len"]
        made.append(row)
    return made


def batch(rows: Sequence[Row], types: Mapping[str, pa.DataType], started: Mapping[int, bool]) -> Batch:
    """Placed rows as a batch; ``types`` are those of the protocol's columns."""

    def column(name: str, type_: pa.DataType, default: object = None) -> pa.Array:
        return pa.array([row.get(name, default) for row in rows], type_)

    def numbers(name: str, default: object = 0) -> Any:
        return np.array([row.get(name, default) for row in rows], np.int64)

    def flags(name: str) -> Any:
        return np.array([bool(row.get(name)) for row in rows], np.bool_)

    text, number = pa.string(), pa.int64()
    names = {"op": text, "op_code": number, "destination": text, "client_name": text, "status": text}
    columns = {name: column(name, type_) for name, type_ in (names | {"error_code": number, "flaw": text}).items()}
    columns["direction"] = column("direction", text)
    columns["connection_id"] = column("connection", number)
    columns["first_packet"] = column("first_packet", number, 1)
    for who in ("client", "server"):
        columns[f"{who}_ip"] = column(f"{who}_ip", text, SERVER[0])
        columns[f"{who}_port"] = column(f"{who}_port", pa.int32(), SERVER[1])
    columns |= {f"f.{name}": column(f"f.{name}", type_) for name, type_ in types.items()}
    ends = np.array([row.get("end_ts_ns", row["ts_ns"]) for row in rows], np.int64)
    return Batch(
        pa.table(columns), numbers("connection"), columns["direction"].to_numpy(zero_copy_only=False) == "c2s",
        numbers("stream_offset"), numbers("frame_len"), numbers("ts_ns"), ends, flags("broken"), flags("undecoded"),
        np.array([row.get("flaw") == "truncated" for row in rows], np.bool_),
        np.array([started.get(row["connection"], True) for row in rows], np.bool_),
        numbers("first_ack", NO_OFFSET), numbers("last_ack", NO_OFFSET), numbers("acked_from"),
        numbers("missing_ns"),
    )  # fmt: skip


def closing(ends: Mapping[int, End]) -> ConnectionEnds:
    """How connections ended."""
    columns = {
        x.name: np.array(
            [getattr(end, x.name) for end in ends.values()], np.bool_ if x.type in (bool, "bool") else np.int64
        )
        for x in fields(End)
    }
    ended = columns.pop("ended")
    return ConnectionEnds(np.array(list(ends), np.int64), ended, ended, **columns)


def watermarks_after(part: Sequence[Row], fed: Sequence[Row], lost: Sequence[tuple[int, int]]) -> Watermarks:
    """How far a capture was read after a part. ``lost``: connection and time of what clients sent and the server
    acknowledged, and was not captured: a connection waits for it until its next message comes."""
    start, now = part[0]["ts_ns"], max(row["ts_ns"] for row in part)
    heard = {row["connection"]: row["ts_ns"] for row in fed if row["direction"] == "c2s"}
    waits = any(at <= now and heard.get(connection, 0) <= at for connection, at in lost)
    return Watermarks({SERVER: min([at for _, at in lost if at <= now] + [start])} if waits else {}, now)


def correlated(
    rule: CorrelationRule,
    parts: Iterable[Sequence[Row]],
    ends: Mapping[int, End],
    types: Mapping[str, pa.DataType],
    started: Mapping[int, bool] | None = None,
    lost: Sequence[tuple[int, int]] = (),
) -> dict[str, list[Row]]:
    """The rows of ``exchanges`` and ``deliveries`` that placed rows give, fed part by part, each in order of time."""
    made = Correlation("test", rule, PRINTS)
    found: dict[str, list[Row]] = {"exchanges": [], "deliveries": []}
    fed: list[Row] = []
    for part in parts:
        if part:
            in_time = sorted(part, key=lambda r: r["ts_ns"])
            fed += in_time
            for name, table in made.feed(batch(in_time, types, started or {}), watermarks_after(in_time, fed, lost)):
                found[name] += table.to_pylist()
    for name, table in [*made.close(closing(ends)), *made.finish()]:
        found[name] += table.to_pylist()
    return found
