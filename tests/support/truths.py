"""Captures against their truth files: what clients said they sent and received, compared with every row.

``checked(pcap, truth)`` gives a Verdict: how many rows and values were compared, and one line per difference. From the
shell, ``python tests/support/truths.py DIR`` prints a table of all captures below DIR.

The bytes of a row come from a small reassembly of our own here, so that hashes of whole frames do not rest on
the code they test.
"""

import functools
import hashlib
import json
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dissection import dissect

from mqpcap.capture import captures
from mqpcap.pipeline import Options
from mqpcap.tables.messages import RowPolicy

Row = dict[str, Any]
MANY = 40
"""So many differences of one capture are told; the rest is counted."""


@dataclass
class Verdict:
    """What the comparison of one capture came to."""

    rows: int = 0
    values: int = 0
    differences: list[str] = field(default_factory=list)

    def equal(self, where: str, found: object, expected: object) -> None:
        """Note a difference unless both are equal."""
        self.values += 1
        if found != expected:
            self.differences.append(f"{where}: found {_short(found)}, truth says {_short(expected)}")

    def text(self) -> str:
        """The first differences, a line each."""
        more = [f"... and {len(self.differences) - MANY} more"] if len(self.differences) > MANY else []
        return "\n".join([*self.differences[:MANY], *more])


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:150]}... ({len(text)} characters)"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def streams(content: bytes) -> dict[tuple[int, int, int], tuple[bytes, bytes]]:
    """The bytes of both directions by (client port, server port, number among equals), both sides without gaps."""
    flows: dict[frozenset[tuple[bytes, int]], list[dict[tuple[bytes, int], dict[str, Any]]]] = {}
    at = 24
    while at + 16 <= len(content):
        caplen = struct.unpack_from("<I", content, at + 8)[0]
        frame = content[at + 16 : at + 16 + caplen]
        at += 16 + caplen
        if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        header = 14 + (frame[14] & 15) * 4
        source, target = frame[26:30], frame[30:34]
        sport, dport, seq, _, offset, flags = struct.unpack_from(">HHIIBB", frame, header)
        body = frame[header + (offset >> 4) * 4 : 14 + struct.unpack_from(">H", frame, 16)[0]]
        a, b = (source, sport), (target, dport)
        known = flows.setdefault(frozenset((a, b)), [])
        if not known or (flags & 0x12 == 2 and known[-1].get(a, {}).get("syn") not in (None, seq)):
            known.append({})
        side = known[-1].setdefault(
            a, {"data": {}, "syn": None, "port": sport, "other": dport, "first": len(known[-1]) == 0}
        )
        if flags & 2:
            side["syn"] = seq
        if body:
            side["data"].setdefault(seq, b"")
            side["data"][seq] = max(side["data"][seq], body, key=len)
    out: dict[tuple[int, int, int], tuple[bytes, bytes]] = {}
    for known in flows.values():
        for flow in known:
            for one in flow.values():
                other = next((x for x in flow.values() if x is not one), {"data": {}, "syn": None})
                key = (one["port"], one["other"])
                number = sum(k[:2] == key for k in out)
                out[(*key, number)] = (_joined(one), _joined(other))
    return out


def _joined(side: Mapping[str, Any]) -> bytes:
    data = side["data"]
    if not data:
        return b""
    base = (side["syn"] + 1) % 2**32 if side["syn"] is not None else min(data)
    out = bytearray()
    for start, body in sorted(((seq - base) % 2**32, body) for seq, body in data.items()):
        if start <= len(out) < start + len(body):
            out += body[len(out) - start :]
        elif start > len(out):
            break
    return bytes(out)


@dataclass(eq=False)
class Export:
    """One capture dissected: ``rows`` are messages with the protocol's columns under ``fields``, by connection id."""

    paths: tuple[Path, ...]
    messages: list[Row]
    connections: list[Row]
    problems: list[Row]
    exchanges: dict[str, list[Row]]
    deliveries: dict[str, list[Row]]

    @functools.cached_property
    def bytes_of(self) -> dict[tuple[int, int, int], tuple[bytes, bytes]]:
        """Streams by ports and number."""
        first, *rest = (path.read_bytes() for path in self.paths)
        return streams(first + b"".join(x[24:] for x in rest))

    def rows(self, connection: Row, direction: str | None = None) -> list[Row]:
        """The messages of a connection, in stream order within a direction."""
        found = self._by_connection.get(connection["connection_id"], [])
        return [row for row in found if direction in (None, row["direction"])]

    @functools.cached_property
    def _by_connection(self) -> dict[int, list[Row]]:
        out = defaultdict(list)
        for row in self.messages:
            out[row["connection_id"]].append(row)
        for rows in out.values():
            rows.sort(key=lambda r: (r["direction"], r["stream_offset"]))
        return out

    def connection(self, client_port: int, server_port: int | None = None, number: int = 0) -> Row | None:
        """The n-th connection of these ports."""
        fit = [
            c for c in self.connections
            if c["client_port"] == client_port and server_port in (None, c["server_port"])
        ]  # fmt: skip
        return fit[number] if number < len(fit) else None

    def raw(self, connection: Row) -> dict[str, bytes]:
        """The bytes of a connection by direction."""
        key = (connection["client_port"], connection["server_port"])
        equals = [c for c in self.connections if (c["client_port"], c["server_port"]) == key]
        number = [c["connection_id"] for c in equals].index(connection["connection_id"])
        c2s, s2c = self.bytes_of.get((*key, number), (b"", b""))
        return {"c2s": c2s, "s2c": s2c}


@functools.lru_cache(4)
def export(*paths: Path) -> Export:
    """Everything mqpcap says of the files, which must be one capture, secrets included."""
    (capture,) = captures([str(p) for p in paths]).captures
    done = dissect(capture, Options(policy=RowPolicy(show_secrets=True)))
    messages = []
    for chunk in done.chunks:
        fields = chunk.fields.to_pylist()
        for row, own in zip(chunk.messages.to_pylist(), fields, strict=True):
            messages.append(row | {"fields": own})
    return Export(
        tuple(paths), messages, done.connections.to_pylist(), done.problems.to_pylist(),
        _by_protocol(done.exchanges.to_pylist(), "request_ts_ns"),
        _by_protocol(done.deliveries.to_pylist(), "deliver_ts_ns"),
    )  # fmt: skip


def _by_protocol(rows: Sequence[Row], time: str) -> dict[str, list[Row]]:
    """Rows by protocol, in order of time; where they have none, of the reply."""
    out: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda r: r[time] or r["reply_ts_ns"]):
        out.setdefault(row["protocol"], []).append(row)
    return out


def whole_frames(rows: Sequence[Row]) -> list[Row]:
    """The rows that truth files count: whole frames."""
    return [row for row in rows if row["flaw"] != "truncated"]


def counts(rows: Sequence[Row]) -> dict[str, Counter[str | None]]:
    """Whole frames by direction and operation."""
    out: dict[str, Counter[str | None]] = {"c2s": Counter(), "s2c": Counter()}
    for row in whole_frames(rows):
        out[row["direction"]][row["op"]] += 1
    return out


def _conservation(found: Export, verdict: Verdict) -> None:
    """Nothing is lost: rows and undecoded stretches are all the bytes there are, and messages are counted right."""
    for c in found.connections:
        for d in ("c2s", "s2c"):
            rows = found.rows(c, d)
            undecoded = sum(
                p["length"] for p in found.problems
                if p["connection_id"] == c["connection_id"] and p["direction"] == d and p["kind"] == "undecoded"
            )  # fmt: skip
            where = f"port {c['client_port']} {d}"
            verdict.equal(f"{where} bytes", sum(r["frame_len"] for r in rows) + undecoded, c[f"bytes_{d}"])
            verdict.equal(f"{where} messages", len(rows), c[f"messages_{d}"])


def checked(pcap: Path, truth: Path) -> Verdict:
    """The comparison of one capture with its truth file."""
    said = json.loads(truth.read_text())
    found = export(pcap)
    verdict = Verdict(len(found.messages))
    _conservation(found, verdict)
    PROTOCOLS[truth.parent.name](found, said, verdict)
    return verdict


# kokaq


def kokaq(found: Export, said: Row, verdict: Verdict) -> None:
    """Every frame of every connection, header fields, names, payload, metadata and the frame's own hash."""
    seen: Counter[tuple[int, int]] = Counter()
    for n, c in enumerate(said["connections"]):
        ports = (c["client_port"], c["server_port"])
        connection = found.connection(*ports, seen[ports])
        seen[ports] += 1
        where = f"connection {n} (port {ports[0]})"
        if connection is None:
            verdict.equal(where, None, "a connection")
            continue
        verdict.equal(f"{where} protocol", connection["protocol"], "kokaq" if said["dialect"] and _frames(c) else None)
        for d in ("c2s", "s2c"):
            events = [e for e in c["events"] if e["dir"] == d and "opcode" in e]
            rows = found.rows(connection, d)
            if c.get("answer_may_be_cut") and d == "s2c":
                rows = _cut(rows, events)
            verdict.equal(f"{where} {d} frames", len(whole_frames(rows)), len(events))
            raw = found.raw(connection)[d]
            for i, (row, event) in enumerate(zip(whole_frames(rows), events, strict=False)):
                _kokaq_frame(f"{where} {d} {i}", row, event, raw, said["dialect"], verdict)
    if said["dialect"] is None:
        verdict.equal("messages", len(found.messages), 0)
        return
    totals = said["counts"]
    by_op: dict[str, Counter[str]] = {"c2s": Counter(), "s2c": Counter()}
    for row in whole_frames(found.messages):
        by_op[row["direction"]][f"{row['op_code']} {row['op']}"] += 1
    for d in ("c2s", "s2c"):
        if not any(c.get("answer_may_be_cut") for c in said["connections"]):
            verdict.equal(f"counts {d}", dict(by_op[d]), dict(totals[d]))
            verdict.equal(f"frames {d}", sum(by_op[d].values()), totals[f"frames_{d}"])


def _frames(c: Row) -> list[Row]:
    return [e for e in c["events"] if "opcode" in e]


def _cut(rows: list[Row], events: Sequence[Row]) -> list[Row]:
    """Rows of an answer that a reset may have cut: a truncated one counts as there."""
    return [
        r | {"flaw": None if r["flaw"] == "truncated" else r["flaw"], "cut": r["flaw"] == "truncated"} for r in rows
    ]


def _name(event: Row, which: str, dialect: str) -> str | None:
    """A namespace or queue as the column says it (protocols/kokaq.md, 10.1)."""
    if dialect != "doc":
        value = event[which]
        return None if value is None else str(value)
    if f"{which}_hex" not in event:
        return event[which]  # type: ignore[no-any-return]
    raw = bytes.fromhex(event[f"{which}_hex"])
    try:
        text = raw.decode()
        if text.isprintable():
            return text
    except UnicodeDecodeError:
        pass
    return str(int.from_bytes(raw)) if len(raw) == 4 else raw.hex()


def _kokaq_frame(where: str, row: Row, event: Row, raw: bytes, dialect: str, verdict: Verdict) -> None:
    own = row["fields"]
    expected: Row = {
        "dialect": dialect, "op_code": event["opcode"], "op": event["opcode_name"], "flaw": None,
        "frame_len": event["frame_len"],
        "correlation_id": f"{event['opaque']}:{event.get('op_opaque', event.get('opaque2'))}",
    }  # fmt: skip
    fields: Row = {
        "message_type": event["message_type"], "rq": event["request_type"], "opaque": event["opaque"],
        "op_opaque": event.get("op_opaque", event.get("opaque2")),
        "client": event.get("client_id"), "status": event.get("status"), "reason": event.get("reason"),
    }  # fmt: skip
    if dialect != "lean":
        fields["tag"] = event["tag"]
    if event.get("component") == "payload" or dialect == "lean":
        fields["namespace"] = _name(event, "namespace", dialect)
        fields["queue"] = _name(event, "queue", dialect)
        expected["body_len"] = event.get("payload_len")
        if not row.get("cut"):
            verdict.equal(f"{where} payload", own["body"] is not None and sha256(own["body"]), event["payload_sha256"])
    else:
        fields |= {"namespace": None, "queue": None, "body": None}
        expected["body_len"] = None
    fields["component_opaque"] = event.get("component_opaque")
    if "trailer_len" in event or dialect == "lean":
        fields["trailer"] = bytes.fromhex(event["trailer_hex"]) if event.get("trailer_len") else None
    for name, value in expected.items():
        if row.get("cut") and name in ("frame_len", "body_len"):
            continue
        verdict.equal(f"{where} {name}", row[name], value)
    if row.get("cut"):
        return
    for name, value in fields.items():
        verdict.equal(f"{where} {name}", own[name], value)
    _kokaq_metadata(where, own["metadata"], event, verdict)
    start = row["stream_offset"]
    verdict.equal(f"{where} bytes", sha256(raw[start : start + row["frame_len"]]), event["frame_sha256"])


def _kokaq_metadata(where: str, entries: list[Row] | None, event: Row, verdict: Verdict) -> None:
    if event.get("component") != "metadata":
        verdict.equal(f"{where} metadata", entries, None)
        return
    verdict.equal(f"{where} metadata count", (entries and len(entries)) or 0, event["metadata_count"])
    if not entries:
        return
    listed = [entries[0], entries[-1]] if event.get("metadata_first_and_last_only") else entries
    for entry, said in zip(listed, event["metadata"], strict=False):
        verdict.equal(f"{where} metadata", (entry["tag"], entry["value"].hex()), (said["tag"], said["value_hex"]))


# FlyMQ

_AUDIT, _AUDIT_EXPORT = "0x80", "0x81"
_ZEROES = {"filter": "", "topic": "", "enabled": False, "offset": 0}
_MEANT_OTHERWISE = {"0x21": ("python", "java"), "0x05": ("doc",)}
_NAMES_TOO = {"0x7D": ("roles",), "0x53": ("topics",)}
"""Operations whose lists of structs have the names in a column of their own as well."""
_NOT_ON_THE_WIRE = {"created_at", "default_public"}
"""Fields of the decoder's structures that no byte stands for (schemas; the entries of an ACL list)."""


def flymq(found: Export, said: Row, verdict: Verdict) -> None:
    """Every frame in order, its payload's hash, and every field that the server's own decoders read."""
    seen: Counter[tuple[int, int]] = Counter()
    for n, c in enumerate(said["connections"]):
        ports = (c["client_port"], c["server_port"])
        connection = found.connection(*ports, seen[ports])
        seen[ports] += 1
        where = f"connection {n} (port {ports[0]}, {c['client']})"
        if connection is None:
            verdict.equal(where, None, "a connection")
            continue
        if c.get("tls"):
            verdict.equal(f"{where} rows under TLS", len(found.rows(connection)), 0)
            reasons = {p["reason"] for p in found.problems if p["connection_id"] == connection["connection_id"]}
            verdict.equal(f"{where} reason", reasons, {"tls"})
            continue
        raw = found.raw(connection)
        for d in ("c2s", "s2c"):
            events = [e for e in c["events"] if e["dir"] == d and "op" in e]
            rows = whole_frames(found.rows(connection, d))
            if f"{d}_bytes" in c:
                verdict.equal(f"{where} {d} own reassembly", sha256(raw[d]), c[f"{d}_sha256"])
            verdict.equal(f"{where} {d} frames", len(rows), len(events))
            for i, (row, event) in enumerate(zip(rows, events, strict=False)):
                _flymq_frame(f"{where} {d} {i} {event['op_name']}", row, event, raw[d], said, verdict)
            loose = [e for e in c["events"] if e["dir"] == d and "kind" in e]
            if rows or not loose:
                _flymq_loose(f"{where} {d}", found, connection, d, loose, verdict)
    if any(c.get("tls") for c in said["connections"]):
        return
    for d in ("c2s", "s2c"):
        by_op = Counter(f"0x{r['op_code']:02X}" for r in whole_frames(found.messages) if r["direction"] == d)
        verdict.equal(f"counts {d}", dict(by_op), {k: v for k, v in said["counts"][d].items() if v})
        verdict.equal(f"total {d}", sum(by_op.values()), said["counts"][f"{d}_total"])


def _flymq_loose(where: str, found: Export, connection: Row, d: str, loose: Sequence[Row], verdict: Verdict) -> None:
    """Bytes that are no complete frame: a truncated row if the header was there, else undecoded."""
    cut = [r for r in found.rows(connection, d) if r["flaw"] == "truncated"]
    undecoded = [
        p for p in found.problems
        if p["connection_id"] == connection["connection_id"] and p["direction"] == d and p["kind"] == "undecoded"
    ]  # fmt: skip
    headed = [e for e in loose if e["kind"] == "unfinished frame" and e["len"] >= 8]
    verdict.equal(f"{where} unfinished frames", [r["frame_len"] for r in cut], [e["len"] for e in headed])
    verdict.equal(
        f"{where} undecoded bytes", sum(p["length"] for p in undecoded), sum(e["len"] for e in loose if e not in headed)
    )


def _flymq_frame(where: str, row: Row, event: Row, raw: bytes, said: Row, verdict: Verdict) -> None:
    own = row["fields"]
    verdict.equal(f"{where} op_code", row["op_code"], int(event["op"], 16))
    known = not (event["op_name"].startswith(("0x", "UNKNOWN", "unknown")) or row["op"] is None)
    if known:
        verdict.equal(f"{where} op", row["op"], event["op_name"].removesuffix(" (SDK numbering)"))
    verdict.equal(f"{where} frame_len", row["frame_len"], 8 + event["payload_len"])
    verdict.equal(f"{where} flags", own["flags"], event["flags"])
    payload = raw[row["stream_offset"] + 8 : row["stream_offset"] + row["frame_len"]]
    verdict.equal(f"{where} payload", sha256(payload), event["payload_sha256"])
    if event["dir"] == "s2c" and event["op"] == "0xFF" and "fields" not in event:
        verdict.equal(f"{where} fields", row["flaw"], "malformed")
    if "fields" in event:
        legacy = said["server"]["version"] == "1.26.7" and row["dialect"] == "legacy"
        verdict.equal(f"{where} flaw", row["flaw"], None)
        # An ERROR in the older servers' form is the document's form too (protocols/flymq.md, sections 8 and 12).
        older = {"legacy", "doc"} if event["op"] == "0xFF" else {"legacy"}
        verdict.equal(f"{where} dialect of an older server", row["dialect"] in older, legacy or _older(event))
        # The server reads what an SDK or the document lays out otherwise in its way; the columns say what was meant.
        if row["flaw"] is None and row["dialect"] not in _MEANT_OTHERWISE.get(event["op"], ()):
            _flymq_fields(where, event, own, verdict)
    elif "not_in_server_layout" in event:
        verdict.equal(
            f"{where} refused by the server",
            row["flaw"] is not None or row["dialect"] in ("python", "java", "doc", "legacy"),
            True,
        )
    if event["op"] == "0xFF" and event["dir"] == "s2c":
        verdict.equal(f"{where} status", row["status"], "error")
        if "fields" in event:
            verdict.equal(f"{where} error_text", row["error_text"], event["fields"]["message"])
            verdict.equal(f"{where} error_code", row["error_code"], event["fields"].get("code"))
    elif event["dir"] == "s2c" and row["flaw"] is None:
        verdict.equal(
            f"{where} status", row["status"], "error" if event.get("fields", {}).get("success") is False else "ok"
        )
    elif event["dir"] == "c2s":
        verdict.equal(f"{where} status", row["status"], None)
    if "value_as_produced" in event:
        _is_equal(f"{where} inner_value", own["inner_value"], event["value_as_produced"], verdict)


def _older(event: Row) -> bool:
    return "older" in event["fields"].get("form", "")


def _flymq_fields(where: str, event: Row, own: Row, verdict: Verdict) -> None:
    op, d = event["op"], event["dir"]
    fields = dict(event["fields"])
    fields.pop("form", None)
    if op == _AUDIT_EXPORT and "query" in fields:
        fields |= fields.pop("query")
    expected: Row = {}
    for name, value in fields.items():
        column = name
        if name == "messages" and op in ("0x07", "0x0B"):
            column = "records"
        elif name == "message" and op == "0x13":
            column = "data"
        elif name == "topics" and op == "0x53":
            column = "topic_partitions"
        elif name == "roles" and op == "0x7D":
            column = "role_list"
        elif name == "value" and d == "c2s" and op in ("0x74", "0x77"):
            column = "username"
        elif name == "value" and d == "c2s" and op in ("0x79", "0x7A"):
            column = "topic"
        expected[_column(column, own)] = value
    for name, value in expected.items():
        if name not in own:
            if name not in _NOT_ON_THE_WIRE:
                verdict.equal(f"{where} column {name}", "missing", value)
            continue
        if own[name] is None and name.removesuffix("_s") in _NOT_ON_THE_WIRE and op == "0x11":
            continue
        if own[name] is None and name in _ZEROES and value == _ZEROES[name]:
            continue
        _is_equal(f"{where} {name}", own[name], value, verdict)
    ignored = {
        "capture", "connection_id", "direction", "stream_offset", "ts", "ts_ns", "op", "flaw", "flags", "extra",
        "inner_value",
        "page_offset", *_NAMES_TOO.get(op, ()),
    }  # fmt: skip
    beyond = {k for k, v in own.items() if v is not None and k not in ignored and k not in expected}
    verdict.equal(f"{where} columns beyond the truth", beyond, set())


def _column(name: str, own: Mapping[str, object]) -> str:
    """The name of the column: the truth's names lack the unit."""
    return next((x for x in (name, f"{name}_ms", f"{name}_s") if x in own), name)


def _is_equal(where: str, found: Any, said: Any, verdict: Verdict) -> None:
    """A value of a row against a value of the truth, where long or binary ones are given by length and hash."""
    if isinstance(said, dict) and "len" in said and set(said) <= {"len", "text", "hex", "sha256", "kind"}:
        raw = found.encode() if isinstance(found, str) else found
        if raw is None:
            verdict.equal(where, found, said)
        elif "text" in said:
            verdict.equal(where, raw.decode("utf-8", "replace"), said["text"])
        elif "hex" in said and isinstance(found, str):
            verdict.equal(where, found, bytes.fromhex(said["hex"]).decode("utf-8", "replace"))
        elif "hex" in said:
            verdict.equal(where, raw.hex(), said["hex"])
        else:
            verdict.equal(where, (len(raw), sha256(raw)), (said["len"], said["sha256"]))
    elif isinstance(said, dict):
        if isinstance(found, list):  # a map on the wire is a list of pairs
            pairs = {next(iter(x.values())): tuple(x.values())[1] for x in found}
            verdict.equal(where, pairs, said)
            return
        for name, value in said.items():
            if name in _NOT_ON_THE_WIRE and (not isinstance(found, dict) or _column(name, found) not in found):
                continue
            if isinstance(found, dict):
                _is_equal(f"{where}.{name}", found.get(_column(name, found)), value, verdict)
            else:
                verdict.equal(where, found, said)
    elif isinstance(said, list):
        verdict.equal(f"{where} count", len(found) if found is not None else None, len(said))
        for i, (one, two) in enumerate(zip(found or [], said, strict=False)):
            _is_equal(f"{where}[{i}]", one, two, verdict)
    else:
        verdict.equal(where, int(found) if type(found).__name__ == "Decimal" else found, said)


# BlipMQ


def blipmq(found: Export, said: Row, verdict: Verdict) -> None:
    """Every frame of the raw clients with every field, counts of the load generators."""
    seen: Counter[int] = Counter()
    for n, c in enumerate(said["connections"]):
        port = c["client_port"]
        connection = found.connection(port, c.get("server_port"), seen[port])
        seen[port] += 1
        where = f"connection {n} (port {port}, {c.get('scenario')})"
        if connection is None:
            verdict.equal(where, None, "a connection")
            continue
        if c.get("server_port") == 9100:
            verdict.equal(f"{where} protocol", connection["protocol"], None)
            continue
        if "events" not in c:
            _blipmq_counts(where, found, connection, c["counts"], verdict)
            continue
        for d in ("c2s", "s2c"):
            events = [e for e in c["events"] if e["dir"] == d and "type" in e]
            rows = whole_frames(found.rows(connection, d))
            verdict.equal(f"{where} {d} frames", len(rows), len(events))
            raw = found.raw(connection)[d]
            for i, (row, event) in enumerate(zip(rows, events, strict=False)):
                _blipmq_frame(f"{where} {d} {i} {event.get('type_name')}", row, event, raw, verdict)
    for d in ("c2s", "s2c"):
        said_counts = said["counts"][d]
        by_op = Counter(r["op"] or f"type_{r['op_code']}" for r in whole_frames(found.messages) if r["direction"] == d)
        for op, count in said_counts.items():
            if isinstance(count, int) and op != "not_a_frame":
                verdict.equal(f"counts {d} {op}", by_op[op], count)
            elif op != "not_a_frame":
                verdict.equal(f"counts {d} {op} {count}", by_op[op] >= int(count.split()[-1]), True)
        verdict.equal(f"operations {d}", set(by_op) - set(said_counts), set())


def _blipmq_counts(where: str, found: Export, connection: Row, said: Row, verdict: Verdict) -> None:
    for d in ("c2s", "s2c"):
        by_op = Counter(r["op"] for r in found.rows(connection, d))
        for op, count in said[d].items():
            if isinstance(count, int):
                verdict.equal(f"{where} {d} {op}", by_op[op], count)


def _blipmq_frame(where: str, row: Row, event: Row, raw: bytes, verdict: Verdict) -> None:
    own, said = row["fields"], event.get("fields", {})
    verdict.equal(f"{where} op_code", row["op_code"], event["type"])
    verdict.equal(f"{where} id", int(own["correlation_id"]), int(event["id"]))
    verdict.equal(f"{where} correlation_id", row["correlation_id"], str(event["id"]))
    verdict.equal(f"{where} frame_len", row["frame_len"], 13 + event["payload_len"])
    payload = raw[row["stream_offset"] + 13 : row["stream_offset"] + row["frame_len"]]
    verdict.equal(f"{where} payload", sha256(payload), event["payload_sha256"])
    if "payload_error" in event:
        verdict.equal(f"{where} flaw", row["flaw"], "malformed")
        return
    known = event.get("type_name") is not None and not str(event.get("type_name")).startswith(("0x", "unknown", "type"))
    verdict.equal(f"{where} flaw", row["flaw"], None if known else "unknown")
    if not known or row["flaw"]:
        return
    verdict.equal(f"{where} op", row["op"], event["type_name"])
    names = {
        "version": "protocol_version", "code": "error_code", "text": "error_text", "qos_byte": "qos_flags",
        "trailing_hex": "trailing_bytes", "payload_hex": "trailing_bytes",
    }  # fmt: skip
    plain = {
        "subscription_id",
        "qos",
        "topic",
        "api_key",
        "delivery_tag",
        "group",
        "from_offset",
        "ttl_ms",
        "version",
        "code",
        "text",
        "qos_byte",
    }
    for name, value in said.items():
        column = names.get(name, name)
        if name in plain:
            have = own[column]
            if name == "delivery_tag" and row["dialect"] != "v2" and have is None:
                have = own["correlation_id"]
            if isinstance(value, int) or name in ("subscription_id", "delivery_tag", "from_offset"):
                verdict.equal(f"{where} {name}", None if have is None else int(have), int(value))
            else:
                verdict.equal(f"{where} {name}", have, value)
        elif name in ("trailing_hex", "payload_hex"):
            verdict.equal(f"{where} {name}", (own[column] or b"").hex(), value)
        elif name == "body_sha256":
            verdict.equal(f"{where} body", sha256(own["body"]), value)
        elif name == "body_len":
            verdict.equal(f"{where} body_len", row["body_len"], value)
        elif name in ("topic_sha256", "api_key_sha256"):
            verdict.equal(f"{where} {name}", sha256(own[name.removesuffix("_sha256")].encode()), value)
        elif name == "partition_key":
            verdict.equal(f"{where} {name}", own[name], value.encode())
        elif name == "topic_len":
            verdict.equal(f"{where} {name}", len(own["topic"].encode()), value)
    if event["type_name"] == "NACK":
        verdict.equal(f"{where} status", row["status"], "error" if event["dir"] == "s2c" else None)
        verdict.equal(f"{where} error_code", row["error_code"], said["code"])


# fq


def fq(found: Export, said: Row, verdict: Verdict) -> None:
    """Counts of commands and messages, and every list of what programs printed, in order."""
    have = counts(found.messages)
    for side, d in (("client_to_server", "c2s"), ("server_to_client", "s2c")):
        for op, count in said["commands"][side].items():
            if op == "command_connections":
                continue
            verdict.equal(f"{side} {op}", have[d][op], count)
        told = said["messages"][side]
        number = told.get("count", told.get("well_formed_frames"))
        verdict.equal(f"{side} messages", have[d]["message"], number)
    log = said.get("server_log_counts", {})
    words = sum(v for k, v in log.get("mode_words", {}).items() if k.startswith("cc50"))
    if words:
        verdict.equal("connect", have["c2s"]["connect"], words - _stillborn(said))
    _fq_details(found, said, verdict)


def _stillborn(said: Row) -> int:
    """Connections whose mode word was followed by a key longer than fq takes: bad framing from the first byte on."""
    return sum(1 for case in said.get("handmade_cases", []) if case["case"] == "data mode with 128-byte key")


def _messages_of(found: Export, d: str, **wanted: object) -> list[Row]:
    rows = [r for r in found.messages if r["op"] == "message" and r["direction"] == d and r["flaw"] is None]
    return [r for r in rows if all(r.get(k, r["fields"].get(k)) == v for k, v in wanted.items())]


def _fq_list(where: str, rows: Sequence[Row], events: Sequence[Row], verdict: Verdict) -> None:
    """Messages in order against what a client printed."""
    verdict.equal(f"{where} count", len(rows), len(events))
    for i, (row, event) in enumerate(zip(rows, events, strict=False)):
        own = row["fields"]
        verdict.equal(f"{where} {i} exchange", own["exchange"], event["exchange"])
        verdict.equal(f"{where} {i} route", own["route"], event["route"])
        verdict.equal(f"{where} {i} destination", row["destination"], event["exchange"])
        if "msgid" in event:
            verdict.equal(f"{where} {i} msgid", own["message_id"].hex(), event["msgid"])
            verdict.equal(f"{where} {i} message_id", row["message_id"], event["msgid"])
        if "sender" in event and own["sender"] is not None:
            verdict.equal(f"{where} {i} sender", own["sender"], event["sender"])
        if "hops" in event:
            hops = event["hops"] if isinstance(event["hops"], str) else ",".join(event["hops"])
            verdict.equal(f"{where} {i} hops", ",".join(own["hops"]), hops)
        verdict.equal(f"{where} {i} payload_len", row["body_len"], event["payload_len"])
        verdict.equal(f"{where} {i} body", sha256(own["body"]), event["sha256"])


def _in_time(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda r: (r["ts_ns"], r["first_packet"], r["stream_offset"]))


def _fq_details(found: Export, said: Row, verdict: Verdict) -> None:
    sent, got = said["messages"]["client_to_server"], said["messages"]["server_to_client"]
    of = functools.partial(_messages_of, found)
    if "list" in sent:
        _fq_list("published", _in_time(of("c2s")), sent["list"], verdict)
        _fq_list("delivered", _in_time(of("s2c")), got["list"], verdict)
    if "sha256_of_all_payloads_in_order" in sent:
        _fq_bulk("published", _in_time(of("c2s")), sent, verdict)
        _fq_bulk("delivered", _in_time(of("s2c")), got, verdict)
        verdict.equal("senders", dict(Counter(r["fields"]["sender"] for r in of("s2c"))), got["sender"])
        verdict.equal("hops", dict(Counter(",".join(r["fields"]["hops"]) for r in of("s2c"))), got["hops"])
    for user in ("bob", "linesender"):
        if user in sent:
            _fq_list(f"{user} published", _in_time(of("c2s", client_name=user)), sent[user], verdict)
    if "alice_printed_by_client" in got:
        _fq_list("alice got", _in_time(of("s2c", client_name="alice")), got["alice_printed_by_client"], verdict)
        watched = of("s2c", client_name="watcher")
        verdict.equal("watcher got", len(watched), got["watcher_expected"]["count"])
        verdict.equal("tail got", len(of("s2c", client_name="tail")), got["tail_expected"]["count"])
    for name, listed in said.get("published", {}).items():
        if "list" in listed:
            _fq_list(name, _in_time(of("c2s", client_name=name.partition("_")[0])), listed["list"], verdict)
    for name, listed in said.get("received_list", {}).items():
        _fq_list(name, _in_time(of("s2c", client_name=name)), listed, verdict)
    if "subscriber_printed" in said:
        _fq_list(
            "node subscriber",
            _in_time(of("s2c")),
            [e for e in said["subscriber_printed"] if e["ev"] == "recv"],
            verdict,
        )
        _fq_list("node publisher", _in_time(of("c2s")), list(said["publisher_printed"]), verdict)
        for row, event in zip(_in_time(of("c2s")), said["publisher_printed"], strict=False):
            verdict.equal("node id", row["fields"]["message_id"], event["msgid_string"].encode()[:16])
    if "auth" in said:
        _fq_auth(found, said, verdict)
    _fq_binds(found, said, verdict)
    _fq_errors(found, said, verdict)
    for user, listed in said.get("statuses", {}).items():
        rows = _in_time([r for r in found.messages if r["op"] == "status" and r["client_name"] == user])
        verdict.equal(f"{user} statuses", [_values(r) for r in rows], listed)
    for user, listed in said.get("status_printed", {}).items():
        rows = [r for r in found.messages if r["op"] == "status" and r["client_name"] == user]
        verdict.equal(f"{user} status", [_values(r) for r in rows], [listed])
    if "status_of_pubA_and_pubB" in said.get("published", {}):
        rows = _in_time([r for r in found.messages if r["op"] == "status"])
        key = json.dumps
        verdict.equal("statuses", sorted(key(_values(r), sort_keys=True) for r in rows),
                      sorted(key(x, sort_keys=True) for x in said["published"]["status_of_pubA_and_pubB"]))  # fmt: skip


def _values(row: Row) -> dict[str, int]:
    return {x["name"]: int(x["value"]) for x in row["fields"]["status_values"]}


def _fq_bulk(where: str, rows: Sequence[Row], said: Row, verdict: Verdict) -> None:
    bodies = [r["fields"]["body"] for r in rows]
    verdict.equal(f"{where} payloads", sha256(b"".join(bodies)), said["sha256_of_all_payloads_in_order"])
    verdict.equal(f"{where} bytes", sum(r["body_len"] for r in rows), said["payload_bytes"])
    ids = "".join(r["message_id"] + "\n" for r in rows)
    verdict.equal(f"{where} ids", sha256(ids.encode()), said["sha256_of_msgid_hex_lines"])
    verdict.equal(f"{where} routes", dict(Counter(r["fields"]["route"] for r in rows)), said["routes"])
    verdict.equal(f"{where} exchange", {r["destination"] for r in rows}, {said["exchange"]})
    if "zero_length_payloads" in said:
        verdict.equal(f"{where} empty", sum(not x for x in bodies), said["zero_length_payloads"])
        verdict.equal(f"{where} longest", max(map(len, bodies)), said["payload_len_max"])


def _fq_auth(found: Export, said: Row, verdict: Verdict) -> None:
    rows = [r["fields"] for r in found.messages if r["op"] == "auth" and r["flaw"] is None]
    for login in said["auth"]:
        mine = [r for r in rows if r["user"] == login["user"]]
        verdict.equal(f"logins of {login['user']}", len(mine), login.get("times", 1))
        queue, _, how = login["queue_field"].partition("\\0")
        kind, _, params = how.partition(":")
        for row in mine:
            verdict.equal(f"{login['user']} password", row["password"], login["password"])
            if "<" not in queue:
                verdict.equal(f"{login['user']} queue", row["queue"], queue)
            verdict.equal(f"{login['user']} type", row["queue_type"], kind or None)
            verdict.equal(f"{login['user']} params", row["queue_params"], params or None)


def _fq_binds(found: Export, said: Row, verdict: Verdict) -> None:
    for bind in said.get("binds", []):
        fit = [
            r for r in found.messages
            if r["op"] == "bind_request" and r["client_name"] == bind["client"]
            and (r["fields"]["exchange"], r["fields"]["bind_flags"], r["fields"]["program"])
            == (bind["exchange"], bind["flags"], bind.get("program", r["fields"]["program"]))
        ]  # fmt: skip
        verdict.equal(f"bind {bind}", len(fit) >= 1, True)
    asked = [r["fields"] for r in _in_time([r for r in found.messages if r["op"] == "unbind_request"])]
    answered = list(_in_time([r for r in found.messages if r["op"] == "unbind"]))
    for i, unbind in enumerate(said.get("unbinds", [])):
        verdict.equal(f"unbind {i}", asked[i]["binding_id"], unbind["route_id_sent"])
        verdict.equal(f"unbind {i} result", answered[i]["fields"]["binding_id"], unbind["result"])
        is_refused = unbind["result"] == 2**32 - 1
        verdict.equal(f"unbind {i} status", answered[i]["status"], "error" if is_refused else "ok")


def _fq_errors(found: Export, said: Row, verdict: Verdict) -> None:
    if "libfq_cases" not in said:
        return
    texts = Counter(r["fields"]["error_text"].strip() for r in found.messages if r["op"] == "error")
    for name, case in said["libfq_cases"].items():
        for text in case["errors_printed"]:
            verdict.equal(f"error of {name}", texts[text.strip()] > 0, True)
    for row in found.messages:
        if row["op"] == "error":
            verdict.equal("error status", (row["status"], row["error_text"]), ("error", row["fields"]["error_text"]))
    refused = [r for r in found.messages if r["op"] in ("bind", "unbind") and r["fields"]["binding_id"] == 2**32 - 1]
    said_refused = [b for b in said["bind_unbind_results_printed"] if b.get("result", b["route_id"]) == 2**32 - 1]
    verdict.equal("refused binds", len(refused) >= len(said_refused), True)
    for row in refused:
        verdict.equal(f"refused {row['op']}", (row["status"], row["error_text"]), ("error", "refused"))
    for n, case in enumerate(said["handmade_cases"]):
        for kind in ("", "cmd_"):
            port = case.get(f"{kind}client_port")
            text = case.get(f"{kind}received_hex")
            connection = found.connection(port) if port else None
            if connection is None or text is None or " " in text:
                continue
            verdict.equal(f"handmade {n} received", found.raw(connection)["s2c"].hex().startswith(text), True)
            rows = found.rows(connection, "s2c")
            for row in rows:
                start = row["stream_offset"]
                verdict.equal(
                    f"handmade {n} {row['op']}",
                    text[2 * start : 2 * (start + row["frame_len"])],
                    found.raw(connection)["s2c"][start : start + row["frame_len"]].hex(),
                )


# msgq


def msgq(found: Export, said: Row, verdict: Verdict) -> None:
    """Every message in order with its length and its whole document, and the counts by connection."""
    by_name = {c["name"]: found.connection(c["client_port"]) for c in said["connections"]}
    for name, connection in by_name.items():
        if connection is None:
            verdict.equal(f"connection {name}", None, "a connection")
            continue
        for way, d in (("sent", "c2s"), ("received", "s2c")):
            rows = whole_frames(found.rows(connection, d))
            told = said["counts_by_connection"][name]
            if way in told and not any("raw_hex" in e for e in said["events"]):
                verdict.equal(f"{name} {way}", len(rows), told[way])
                if told.get(f"{way}_bytes"):
                    verdict.equal(f"{name} {way} bytes", sum(r["frame_len"] for r in rows), told[f"{way}_bytes"])
            by_hand = [e for e in said["events"] if e["conn"] == name and e["dir"] == f"{way}_by_hand"]
            if by_hand:
                _msgq_by_hand(f"{name} {way}", found, connection, d, by_hand, verdict)
            events = [e for e in said["events"] if e["conn"] == name and e["dir"] == way]
            if "bulk" in said and name in (said["bulk"]["sender"], said["bulk"]["receiver"]):
                events, rows = _msgq_bulk(said["bulk"], name, way, rows, events, verdict)
            verdict.equal(f"{name} {way} events", len(rows) if events else 0, len(events))
            raw = found.raw(connection)[d]
            for i, (row, event) in enumerate(zip(rows, events, strict=False)):
                _msgq_message(f"{name} {way} {i}", row, event, raw, verdict)


def _msgq_bulk(
    bulk: Row, name: str, way: str, rows: list[Row], events: list[Row], verdict: Verdict
) -> tuple[list[Row], list[Row]]:
    many = [r for r in rows if r["op"] == "send"]
    if (name, way) not in ((bulk["sender"], "sent"), (bulk["receiver"], "received")):
        return events, rows
    verdict.equal(f"{name} bulk", len(many), bulk[f"messages_{way}"])
    verdict.equal(
        f"{name} seq",
        [r["fields"]["seq"] for r in many],
        [str(n) for n in range(bulk["first_seq"], bulk["last_seq"] + 1)],
    )
    bodies = [json.loads(r["fields"]["msg"]) for r in many]
    lines = "".join(f"{b['n']} {len(b['pad'])}\n" for b in bodies)
    verdict.equal(f"{name} bodies", sha256(lines.encode()), bulk["sha256_of_lines_n_space_padlength_newline"])
    verdict.equal(
        f"{name} group",
        {(r["destination"], r["fields"]["instance"]) for r in many},
        {(bulk["group"], bulk["instance"])},
    )
    return events, [r for r in rows if r["op"] != "send"]


def _msgq_by_hand(where: str, found: Export, connection: Row, d: str, events: Sequence[Row], verdict: Verdict) -> None:
    """Bytes written by hand: the rows cut the stream where the length prefixes say."""
    raw = found.raw(connection)[d]
    said = bytes.fromhex("".join(e["raw_hex"] for e in events))
    verdict.equal(f"{where} bytes", raw == said or said.startswith(raw), True)
    if connection["protocol"] is None:
        return
    at, spans = 0, []
    while at + 4 <= len(raw):
        size = int.from_bytes(raw[at : at + 4])
        if at + 4 + size > len(raw):
            break
        spans.append((at, 4 + size))
        at += 4 + size
    rows = whole_frames(found.rows(connection, d))
    verdict.equal(f"{where} spans", [(r["stream_offset"], r["frame_len"]) for r in rows], spans)
    for row in rows:
        start = row["stream_offset"]
        good = raw[start + 4 : start + 8] == b"Skan"
        if not good:
            verdict.equal(f"{where} at {start} without magic", row["flaw"], "malformed")


def _msgq_message(where: str, row: Row, event: Row, raw: bytes, verdict: Verdict) -> None:
    own = row["fields"]
    verdict.equal(f"{where} flaw", row["flaw"], None)
    if "length" in event:
        verdict.equal(f"{where} length", row["frame_len"] - 4, event["length"])
    if "sha256" in event:
        start = row["stream_offset"]
        bodies = [sha256(raw[start + k : start + row["frame_len"]]) for k in (0, 4)]
        verdict.equal(f"{where} bytes", event["sha256"] in bodies, True)
    if row["flaw"]:
        return
    document = json.loads(own["document"])
    outer = event.get("message", event.get("header"))
    if "message" in event:
        verdict.equal(f"{where} document", document, _plain(event["message"], document))
    if "header" in event and "seq" not in event:
        verdict.equal(f"{where} header", document["header"], _plain(event["header"], document["header"]))
        if "length" in event:
            split = row["frame_len"] - 6
            size = int.from_bytes(raw[row["stream_offset"] + 4 : row["stream_offset"] + 6])
            verdict.equal(f"{where} header_length", size, event["header_length"])
            assert split >= size
    if "body" in event and "body_as_printed_by_library" not in event:
        body = event["body"]
        is_raw = isinstance(body, dict) and set(body) == {"hex"}  # neither a message nor JSON
        verdict.equal(f"{where} body", document["body"], body if is_raw else _plain(body, document["body"]))
    if "msg" in event and "message" not in event:
        _msgq_command(where, json.loads(own["msg"]), event["msg"], verdict)
    if "env" in event:
        for name, value in event["env"].items():
            verdict.equal(f"{where} {name}", own[name], str(value))
    if outer is not None:
        for name in ("type", "from", "to", "group", "instance", "seq", "repl", "reply", "subtype"):
            value = outer.get(name)
            if isinstance(value, (str, int, type(None))) and not (name == "subtype" and "sybtype" in outer):
                verdict.equal(f"{where} {name}", own[name], None if value is None else _text(value))
        _msgq_envelope(where, row, outer, verdict)
    if "command" in event:
        word = {"sub": "subscribe", "unsub": "unsubscribe"}.get(event["command"].split()[0], "send")
        verdict.equal(f"{where} op", row["op"], word)
    if "seq" in event:
        verdict.equal(f"{where} seq", own["seq"], str(event["seq"]))
    if "lname" in event:
        verdict.equal(f"{where} lname", own["lname"], event["lname"])


def _msgq_command(where: str, found: Any, said: Row, verdict: Verdict) -> None:
    """What a C++ client was told to send: reals go as text, 512 bytes of text with a length byte missing."""
    data = said.get("data")
    if isinstance(data, dict) and data["len"] == 512:
        verdict.equal(f"{where} broken msg", isinstance(found, str) and found.startswith("Skan"), True)
        return
    wanted = {k: str(v) if isinstance(v, float) else v for k, v in said.items()}
    verdict.equal(f"{where} msg", found, _plain(wanted, found))


def _msgq_envelope(where: str, row: Row, outer: Row, verdict: Verdict) -> None:
    op = outer.get("type")
    if op is None and row["direction"] == "s2c":
        op = "lname" if "lname" in outer else "stats" if "stats" in outer else None
    verdict.equal(f"{where} op", row["op"], op)
    if isinstance(outer.get("group"), (str, type(None))):
        verdict.equal(f"{where} destination", row["destination"], outer.get("group"))
        verdict.equal(f"{where} client_name", row["client_name"], outer.get("from"))
    tied = outer.get("reply", outer.get("repl", outer.get("seq")))
    verdict.equal(f"{where} correlation_id", row["correlation_id"], None if tied is None else _text(tied))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _plain(said: Any, found: Any) -> Any:
    """A truth value in the writing of the document column; hashed texts become the found text if the hash fits."""
    if isinstance(said, dict):
        if set(said) == {"hex"}:
            raw = bytes.fromhex(said["hex"])
            try:
                return raw.decode()
            except UnicodeDecodeError:
                return said
        if set(said) == {"real"}:  # not finite: JSON has no number for it
            return said["real"]
        if "sha256" in said and "len" in said:
            same = isinstance(found, str) and (len(found), sha256(found.encode())) == (said["len"], said["sha256"])
            return found if same else said
        if "carried_as" in said or set(said) == {"embedded"}:
            return _plain(said["embedded"], found)
        return {k: _plain(v, found.get(k) if isinstance(found, dict) else None) for k, v in said.items()}
    if isinstance(said, list):
        items = found if isinstance(found, list) and len(found) == len(said) else [None] * len(said)
        return [_plain(a, b) for a, b in zip(said, items, strict=True)]
    return said


PROTOCOLS: Mapping[str, Callable[[Export, Row, Verdict], None]] = {
    "kokaq": kokaq, "flymq": flymq, "blipmq": blipmq, "fq": fq, "msgq": msgq,
}  # fmt: skip


def pairs(pcaps: Path, truths: Path) -> Iterator[tuple[Path, Path]]:
    """The captures below one folder with their truth below the other."""
    for truth in sorted(truths.glob("*/*.truth.json")):
        pcap = pcaps / truth.parent.name / truth.name.replace(".truth.json", ".pcap")
        if truth.parent.name in PROTOCOLS and pcap.exists():
            yield pcap, truth


def _table(folder: Path) -> int:
    print(f"{'capture':36} {'rows':>7} {'compared':>9} {'differences':>11}")
    bad = 0
    for pcap, truth in pairs(folder, folder):
        verdict = checked(pcap, truth)
        bad += len(verdict.differences)
        print(
            f"{pcap.parent.name + '/' + pcap.name:36} {verdict.rows:7} {verdict.values:9} {len(verdict.differences):11}"
        )
        if verdict.differences:
            print(verdict.text())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(_table(Path(sys.argv[1])))
