"""The quality of a capture: what it holds, what was lost of it, and how far it can be trusted.

In: rows of all tables of one capture. Out: `CaptureQuality`, the numbers of ``mqpcap info``. Called by: ``info``,
``diff``, ``report``, and ``Recording``.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import codes_of, dictionary, factorize
from mqpcap.background import Background
from mqpcap.capture import Capture, FileFacts
from mqpcap.capture.annotations import Annotations, annotations
from mqpcap.decode.proxy_header import REASON as PROXY_HEADER
from mqpcap.listing.extra_columns import OTHER_PROTOCOL
from mqpcap.listing.message_words import value_text
from mqpcap.reading import Meter, Outcome, limit_notes, read, wired
from mqpcap.schema.protocol import DIRECTIONS
from mqpcap.statistics.counters import Counters, selected_counts
from mqpcap.statistics.report_columns import Column
from mqpcap.statistics.row_lines import text_lines
from mqpcap.tables.json_lines import Json
from mqpcap.tables.output import Output
from mqpcap.tables.schemas import CONNECTION_NUMBER, TLS_FACTS
from mqpcap.tcp.headers import COUNTS
from mqpcap.tcp.wrappings import foreign, link_type_name, unread
from mqpcap.websocket import REASON as WEBSOCKET
from mqpcap.wording import clock, counted, endpoint, plural, shown, size

FILES_SHOWN = 12
CONNECTIONS_SHOWN = 20
CLIENT_NAME_SHOWN = 40
"""Characters of a client's name in the list of connections."""
LISTED = (
    Column("connection", "connection", "plain"), Column("client", "client", "plain"),
    Column("server", "server", "plain"), Column("speaks", "speaks", "plain"), Column("client_name", "as", "plain"),
    Column("messages", "messages", "number"), Column("errors", "errors", "number"),
    Column("community_id", "community id", "plain", is_spare=True),
)  # fmt: skip
REMARKS_SHOWN = 20
"""Comments, and names, that lines have."""

MAX_TLS_LINES = 4
"""Lines on what TLS connections negotiated: the most frequent."""
MAX_CONNECTIONS = 10_000
"""Connections that are listed, in JSON too; further connections are counted."""
MAX_NAME_LENGTH = 1024
"""Characters of a client's name that are kept."""
TWINS_SHOWN = 4
"""Pairs of connections, with the same endpoints, times and bytes, that are named."""
ALL_TWICE = 0.95
"""From this share on, in pairs of packets, every packet counts as captured twice."""
SUMS = (
    "late_start_count", "one_sided_count", "resynced_count", "payload_bytes", "decoded_bytes", "flawed_bytes",
    "undecoded_bytes", "late_bytes", "gap_count", "gap_bytes", "snapped_bytes", "conflict_bytes", "retransmitted_bytes",
    "duplicate_packets", "client_closed_window_ns", "server_closed_window_ns",
    "foreign_payload_bytes", "foreign_gap_count", "foreign_gap_bytes",
)  # fmt: skip
"""Sums over the connections of supported protocols, ``foreign_``: of foreign protocols. Bytes are payload bytes."""
COLUMNS = frozenset({"protocol", "client_name", "status", "flaw", "resynced", "frame_len"})
"""The columns of ``messages`` that the numbers are made of."""
UNOPENED = ("refused", "not answered")
"""TCP states of a connection that never was."""
NO_EVIDENCE, NOT_SHOWN, ENDED_FIRST = "no evidence", "the protocol does not show it", "the capture ended first"
CERTAINTY = {"answered": "certain", "likely": "likely", "unanswered": "unanswered", "unknown": "unknown"}
"""By state of an exchange: how sure its pair is. Requests with any other state have no pair to find."""


@dataclass(slots=True)
class CaptureQuality:
    """The numbers of one capture."""

    files: list[FileFacts] = field(default_factory=list)
    packets: Mapping[str, int] = field(default_factory=dict)
    not_read: Mapping[str, int] = field(default_factory=dict)
    not_tcp: Mapping[str, int] = field(default_factory=dict)
    is_ended_early: bool = False
    """Whether a file was given up before its end."""
    notes: list[str] = field(default_factory=list)
    contradiction_count: int = 0
    """Pairs and deliveries whose order the clocks contradict."""
    connections: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    flaws: Counter[str] = field(default_factory=Counter)
    strangers: Counter[str] = field(default_factory=Counter)
    tls: Counter[tuple[str, str]] = field(default_factory=Counter)
    pairs: dict[str, Counter[str]] = field(default_factory=dict)
    """By protocol: requests whose pair is ``certain``, ``likely`` or ``unknown``."""
    unknown_pairs: Counter[str] = field(default_factory=Counter)
    """Requests whose pair is unknown, by the reason."""
    sums: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(SUMS, 0)))
    remarks: list[tuple[str, Annotations]] = field(default_factory=list)
    listed: dict[int, dict[str, Json]] = field(default_factory=dict)
    """Rows of the list of connections, by connection number."""
    twins: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of connections with the same endpoints, times and bytes."""
    _seen_ends: dict[tuple[str, int, str, int], Mapping[str, Any]] = field(default_factory=dict)
    """The last connection between two endpoints that carried bytes both ways."""
    _connection_packets: int = 0
    _errors: Counter[int] = field(default_factory=Counter)
    """By number of the connection, while it lives."""
    _names: dict[int, str] = field(default_factory=dict)
    _unknown: Counter[int] = field(default_factory=Counter)
    """Requests whose pair is unknown, by the id of the connection, while it lives."""
    _unpaired: Counter[int] = field(default_factory=Counter)
    """Replies without a request, likewise."""

    def end(self, capture: Capture, counts: Mapping[str, int], server_notes: Iterable[str]) -> None:
        """Take what is known when a capture has been read to its end."""
        self.files = list(capture.facts)
        self.packets = {name: count for name, count in counts.items() if name in COUNTS}
        self.contradiction_count = sum(
            counts.get(name, 0) for name in ("clock_contradictions", "stamped_before_publish")
        )
        self.not_read, self.not_tcp = unread(counts), foreign(counts)
        self.is_ended_early = any(note.kind == "damaged" for note in capture.notes)
        # Deliveries without a row say nothing of the capture's quality.
        of_quality = {name: count for name, count in counts.items() if not name.endswith("_deliveries")}
        self.notes = [*map(str, capture.notes), *limit_notes(capture.files[0], of_quality), *server_notes]
        self.notes += self._twin_notes()
        self.unknown_pairs[NO_EVIDENCE] += self._unknown.total()
        self.unknown_pairs = +self.unknown_pairs
        self.listed = dict(sorted(self.listed.items()))
        self.remarks = _remarks(capture)

    def take(self, output: Output) -> None:
        """Count rows of a table."""
        if output.table == "messages":
            self._take_messages(output.rows)
        elif output.table == "exchanges":
            self._take_exchanges(output.rows)
        elif output.table in ("connections", "problems"):
            take = self._take_connection if output.table == "connections" else self._take_problem
            for row in output.rows.to_pylist():
                take(row)

    def _take_messages(self, rows: pa.Table) -> None:
        self.messages[rows["protocol"][0].as_py()] += rows.num_rows
        if rows["client_name"].null_count < rows.num_rows:
            pairs = pa.table(
                {CONNECTION_NUMBER: rows[CONNECTION_NUMBER], "name": rows["client_name"].cast(pa.string())}
            ).drop_null()
            # Threads would tell the names of a connection in any order; the first counts.
            for pair in pairs.group_by([CONNECTION_NUMBER, "name"], use_threads=False).aggregate([]).to_pylist():
                self._names.setdefault(pair[CONNECTION_NUMBER], pair["name"][:MAX_NAME_LENGTH])
        errors = rows.filter(pc.equal(rows["status"].cast(pa.string()), "error"))[CONNECTION_NUMBER]
        self._errors.update({pair["values"]: pair["counts"] for pair in errors.value_counts().to_pylist()})
        flaws = rows["flaw"].cast(pa.string())
        sound = pc.sum(rows["frame_len"].filter(flaws.is_null())).as_py() or 0
        resynced_count, all_bytes = (pc.sum(rows[name]).as_py() for name in ("resynced", "frame_len"))
        self.sums.update(resynced_count=resynced_count, decoded_bytes=sound, flawed_bytes=all_bytes - sound)
        self.flaws.update({pair["values"]: pair["counts"] for pair in flaws.drop_null().value_counts().to_pylist()})

    def _take_exchanges(self, rows: pa.Table) -> None:
        protocol = rows["protocol"][0].as_py()
        states, is_reply = dictionary(rows["state"]), pc.is_null(rows["request_offset"]).to_numpy()
        ids, index = factorize(rows["connection_id"].to_numpy())
        names = states.dictionary.to_pylist()
        counts = np.bincount((index * len(names) + codes_of(states)) * 2 + is_reply)
        groups = np.flatnonzero(counts)
        connection_ids = ids[groups // (len(names) * 2)].tolist()
        for connection_id, group, count in zip(connection_ids, groups.tolist(), counts[groups].tolist(), strict=True):
            state, reply = divmod(group % (len(names) * 2), 2)
            certainty = CERTAINTY.get(names[state])
            if reply:
                self._unpaired[connection_id] += count
            elif certainty:
                self.pairs.setdefault(protocol, Counter())[certainty] += count
                if certainty == "unknown":
                    self._unknown[connection_id] += count

    def _take_connection(self, row: Mapping[str, Any]) -> None:
        """Count a connection; its messages and exchanges were counted earlier."""
        unpaired_count = self._unpaired.pop(row["connection_id"], 0)
        if unknown_count := self._unknown.pop(row["connection_id"], 0):
            self.unknown_pairs[_why_unknown(row, unpaired_count)] += unknown_count
        number = row[CONNECTION_NUMBER]
        payload_bytes = sum(row[f"bytes_{d}"] - row[f"tls_bytes_{d}"] for d in DIRECTIONS)
        silent = row["tcp_state"] if row["tcp_state"] in UNOPENED else "nothing"
        part = next((word for name, word in _PARTS.items() if row[name] is not None), None)
        kind = row["protocol"] or part or row[OTHER_PROTOCOL] or ("unknown" if payload_bytes else silent)
        name, error_count = self._names.pop(number, None), self._errors.pop(number, 0)
        names = [row[f"tls_{name}"] for name in TLS_FACTS]
        tls_facts = ", ".join(filter(None, names)) or None
        if len(self.listed) < MAX_CONNECTIONS:
            client, server = (endpoint(row[f"{end}_ip"], row[f"{end}_port"]) for end in ("client", "server"))
            self.listed[number] = {
                "connection": f"c{number}", "connection_id": str(row["connection_id"]), "client": client,
                "server": server, "speaks": kind, "client_name": name,
                "messages": row["messages_c2s"] + row["messages_s2c"], "errors": error_count,
                "community_id": str(row["community_id"]), **({} if tls_facts is None else {"tls": tls_facts}),
            }  # fmt: skip
        if tls_facts is not None:
            self.tls[row["tls"] or "closed", tls_facts] += 1
        self.connections[row["protocol"] or part or ("other" if row["tls"] is None else "tls")] += 1
        for end, direction in zip(("server", "client"), DIRECTIONS, strict=True):
            self.sums[f"{end}_closed_window_ns"] += row[f"closed_window_ns_{direction}"]
        self.sums["duplicate_packets"] += row["duplicate_packets_c2s"] + row["duplicate_packets_s2c"]
        self._connection_packets += row["packets_c2s"] + row["packets_s2c"]
        self._find_twin(row)
        if row["protocol"] is None:
            self.strangers[kind] += 1
            self.sums["foreign_payload_bytes"] += payload_bytes
            return
        self.sums.update(
            late_start_count=not row["syn_seen"],
            one_sided_count=0 in (row["packets_c2s"], row["packets_s2c"]),
            payload_bytes=payload_bytes,
            conflict_bytes=row["conflict_bytes_c2s"] + row["conflict_bytes_s2c"],
            retransmitted_bytes=row["retransmitted_bytes_c2s"] + row["retransmitted_bytes_s2c"],
        )

    def _find_twin(self, row: Mapping[str, Any]) -> None:
        """Note a connection with the endpoints, times and bytes of another one."""
        bytes_sent = row["bytes_c2s"], row["bytes_s2c"]
        if not all(bytes_sent) or len(self._seen_ends) >= MAX_CONNECTIONS:
            return
        ends = row["client_ip"], row["client_port"], row["server_ip"], row["server_port"]
        twin = self._seen_ends.get(ends)
        self._seen_ends[ends] = row
        if twin is None or bytes_sent != (twin["bytes_c2s"], twin["bytes_s2c"]):
            return
        if max(row["first_ts_ns"], twin["first_ts_ns"]) <= min(row["last_ts_ns"], twin["last_ts_ns"]):
            self.twins.append((twin[CONNECTION_NUMBER], row[CONNECTION_NUMBER]))

    def _twin_notes(self) -> Iterator[str]:
        for numbers in self.twins[:TWINS_SHOWN]:
            yield (
                f"c{min(numbers)} and c{max(numbers)} have the same endpoints, times and bytes: two captures of one "
                "connection with a device between them that rewrites sequence numbers, or connections of two networks"
            )
        other_count = len(self.twins) - TWINS_SHOWN
        if other_count > 0:
            yield f"{plural(other_count, 'more pair')} of connections with the same endpoints, times and bytes"

    def _take_problem(self, row: Mapping[str, Any]) -> None:
        length, reason = row["length"], row["reason"]
        if row["protocol"] is None:
            if row["kind"] == "gap":
                self.sums.update(foreign_gap_count=1, foreign_gap_bytes=length)
            return
        if reason in (PROXY_HEADER, WEBSOCKET):
            self.sums.update(payload_bytes=-length)  # bytes around messages are neither decoded nor lost
        elif row["kind"] == "undecoded":
            self.sums.update(undecoded_bytes=length, late_bytes=length * (reason == "late"))
        elif row["kind"] == "gap":
            self.sums.update(gap_count=1, gap_bytes=length, snapped_bytes=length * (reason == "snap length"))

    @property
    def decoded_share(self) -> float | None:
        """The share of payload bytes of supported protocols that is in messages without a flaw; None without any."""
        payload_bytes = self.sums["payload_bytes"]
        return self.sums["decoded_bytes"] / payload_bytes if payload_bytes else None

    @property
    def dropped_count(self) -> int | None:
        """Packets that the capturing system says it dropped, None if no file says."""
        drop_counts = [facts.drop_count for facts in self.files if facts.drop_count is not None]
        return sum(drop_counts) if drop_counts else None

    @property
    def packet_count(self) -> int:
        """Packets of all files."""
        return sum(facts.packet_count for facts in self.files)

    @property
    def loss_percent(self) -> float:
        """The larger of `missing_percent` and the share of our bytes that are in no sound message, or missing."""
        lost = sum(self.sums[name] for name in ("gap_bytes", "undecoded_bytes", "flawed_bytes"))
        return max(self.missing_percent, _percent(lost, self.sums["payload_bytes"] + self.sums["gap_bytes"]))

    @property
    def missing_percent(self) -> float:
        """The largest share that was never captured: of bytes of our protocols, of bytes of all, of packets."""
        sums, dropped = self.sums, self.dropped_count or 0
        gap_bytes, foreign_gap_bytes = sums["gap_bytes"], sums["foreign_gap_bytes"]
        own_bytes = sums["payload_bytes"] + gap_bytes
        all_bytes = own_bytes + sums["foreign_payload_bytes"] + foreign_gap_bytes
        all_shares = (gap_bytes, own_bytes), (gap_bytes + foreign_gap_bytes, all_bytes)
        return max(_percent(*share) for share in (*all_shares, (dropped, self.packet_count + dropped)))

    def __repr__(self) -> str:
        return f"<mqpcap.info of {', '.join(file.file for file in self.files)}: {self.verdict()}>"

    def verdict(self) -> str:
        """One line: whether all is there and decoded, and if not what stands against it."""
        return ("not read to its end; " if self.is_ended_early else "") + self._verdict()

    def _verdict(self) -> str:
        if not self.packet_count:
            return "empty: there is no packet"
        if not self.sums["payload_bytes"]:
            kinds = [f"connections are {counted(self.strangers.most_common())}"] if self.strangers else []
            kinds += [f"{plural(sum(self.not_read.values()), 'packet')} not read"] if self.not_read else []
            missing = self.sums["foreign_gap_bytes"]
            lost = f"; {size(missing)} of them were never captured" if missing else ""
            return f"nothing ours: {', '.join(kinds) or 'there is no TCP connection'}{lost}"
        against = [words for count, words in self._against() if count]
        if not against:
            return "whole: every captured byte of our protocols was decoded, and none is missing"
        return "with care: " + ", ".join(against)

    def _against(self) -> Iterator[tuple[int, str]]:
        """Reasons for doubt in a capture, each with its amount."""
        sums, flaw_count, dropped = self.sums, self.flaws.total(), self.dropped_count or 0
        yield dropped, f"the capturing system dropped {plural(dropped, 'packet')}"
        yield sums["snapped_bytes"], f"the snap length cut {size(sums['snapped_bytes'])}"
        lost, late, one_sided = (
            sums["gap_bytes"] - sums["snapped_bytes"], sums["late_start_count"], sums["one_sided_count"]
        )  # fmt: skip
        yield lost, f"{size(lost)} were never captured"
        yield sums["conflict_bytes"], f"{size(sums['conflict_bytes'])} were sent again with other content"
        yield late, f"{plural(late, 'connection')} began before the capture"
        yield one_sided, f"{plural(one_sided, 'connection was', 'connections were')} captured on one side only"
        yield flaw_count, f"{plural(flaw_count, 'message has', 'messages have')} a flaw"
        yield sums["undecoded_bytes"], f"{size(sums['undecoded_bytes'])} are no message"
        unknown_count = self.unknown_pairs.total() - self.unknown_pairs[NOT_SHOWN]
        yield unknown_count, f"{plural(unknown_count, 'request has', 'requests have')} no known outcome"
        clocks = self.contradiction_count
        yield clocks, f"the clocks contradict the order of {plural(clocks, 'pair')}"
        tls = self.connections["tls"]
        yield tls, f"{plural(tls, 'connection is', 'connections are')} encrypted"
        yield len(self.notes), "see the notes"

    def lines(self, utc: bool = True, is_coloured: bool = False, width: int | None = None) -> Iterator[str]:
        """The numbers for people: files with the verdict, numbers, comments and names, connections.

        >>> import mqpcap
        >>> [line for line in mqpcap.info("pcaps/blipmq/qos1.pcap")[0].lines() if "connections" in line]
        ['  connections   15: 15 blipmq']
        """
        for facts in self.files[:FILES_SHOWN]:
            yield shown(facts.file)
            if facts is self.files[0]:
                yield f"  verdict       {_painted(self.verdict()) if is_coloured else self.verdict()}"
            yield f"  format        {_format(facts)}"
        if len(self.files) > FILES_SHOWN:
            yield f"and {plural(len(self.files) - FILES_SHOWN, 'more file')} of the same capture"
        for name, words in self.facts(utc):
            yield f"  {name:<13} {shown(words)}"
        yield from self._remark_lines()
        yield from self._connection_lines(width)

    def _connection_lines(self, width: int | None) -> Iterator[str]:
        """A line for each of the first connections, columns aligned."""
        rows = [
            {**row, "client_name": row["client_name"] and shown(str(row["client_name"])[:CLIENT_NAME_SHOWN])}
            for row in islice(self.listed.values(), CONNECTIONS_SHOWN)
        ]
        yield from (f"  {line}" for line in text_lines(LISTED, rows, room=None if width is None else width - 2))
        more_count = self.connections.total() - CONNECTIONS_SHOWN
        if more_count > 0:
            yield f"  and {more_count:,} more; --json has them"

    def _remark_lines(self) -> Iterator[str]:
        all_remarks = [file_remarks for _, file_remarks in self.remarks]
        comments = [f"{where}: {value_text(text, 200)}" for remarks in all_remarks for where, text in remarks.comments]
        pairs = (pair for remarks in all_remarks for pair in remarks.names.items())
        names = [f"{address} is {shown(', '.join(names))}" for address, names in pairs]
        for word, lines in (("comment", comments), ("name", names)):
            yield from (f"  {word:<13} {line}" for line in lines[:REMARKS_SHOWN])
        more_count = sum(max(len(lines) - REMARKS_SHOWN, 0) for lines in (comments, names))
        if more_count:
            yield f"  and {more_count:,} more comments and names; --json has them"

    def facts(self, utc: bool) -> Iterator[tuple[str, str]]:
        """The numbers in words, for people: what they count, and what they say. Counts of zero are left out."""
        sums = self.sums
        packets = [(words, self.packets[key]) for key, words in _PACKETS.items() if self.packets.get(key)]
        yield "packets", _divided(self.packet_count, packets)
        for title, kinds_of_packets in (("not TCP", self.not_tcp), ("not read", self.not_read)):
            if kinds_of_packets:
                yield title, counted((name, count) for name, count in Counter(kinds_of_packets).most_common())
        times = [t for facts in self.files for t in (facts.first_ts_ns, facts.last_ts_ns) if t is not None]
        if times:
            first_time, last_time = (clock(t, utc, True) for t in (min(times), max(times)))
            yield "time", f"{first_time} to {last_time}, {(max(times) - min(times)) / 1e9:,.3f} s"
        if self.dropped_count:
            yield "dropped", f"{plural(self.dropped_count, 'packet')} by the capturing system"
        named = {"other": "of other protocols", "tls": "encrypted (TLS)"}
        kinds = [(named.get(name, name), n) for name, n in sorted(self.connections.items())]
        if kinds:
            yield "connections", _divided(self.connections.total(), kinds)
        for (state, facts), count in self.tls.most_common(MAX_TLS_LINES):
            yield "TLS", f"{plural(count, 'connection')} {state}: {shown(facts)}"
        if late_count := sums["late_start_count"]:
            yield "late start", f"{plural(late_count, 'connection')} began before the capture"
        if one_sided_count := sums["one_sided_count"]:
            yield "one side", f"of {plural(one_sided_count, 'connection')} was captured, without the other"
        if self.messages:
            resynced = f", {sums['resynced_count']:,} of them found by search" if sums["resynced_count"] else ""
            yield "messages", f"{_divided(self.messages.total(), sorted(self.messages.items()))}{resynced}"
        if self.flaws:
            yield "flaws", counted(sorted(self.flaws.items()))
        yield from self._pairs_in_words()
        yield from self._bytes_in_words()
        if duplicates := sums["duplicate_packets"]:
            is_all_twice = duplicates * 2 >= self._connection_packets * ALL_TWICE
            share = "every packet is in the capture twice; " if is_all_twice else ""
            yield "captured twice", f"{share}{plural(duplicates, 'copy', 'copies')}, not counted as sent again"
        ends = [(f"by the {end}", sums[f"{end}_closed_window_ns"]) for end in ("client", "server")]
        if closed := [f"{ns / 1e9:,.3f} s {by}" for by, ns in ends if ns]:
            yield "closed window", f"no room to receive for {', '.join(closed)}"
        for note in self.notes:
            yield "note", note

    def _pairs_in_words(self) -> Iterator[tuple[str, str]]:
        pairs: Counter[str] = sum(self.pairs.values(), Counter())
        if pairs:
            counts = [f"{pairs[word]:,} {word}" for word in CERTAINTY.values() if pairs[word]]
            yield "pairs", ", ".join(counts)
        for why, count in self.unknown_pairs.most_common():
            yield "unknown", f"the outcome of {plural(count, 'request')}: {why}"

    def _bytes_in_words(self) -> Iterator[tuple[str, str]]:
        sums = self.sums
        if self.decoded_share is not None:
            # Rounded down: 100% means every byte.
            yield "decoded", f"{int(self.decoded_share * 1000) / 10:.1f}% of {size(sums['payload_bytes'])} of payload"
        if sums["flawed_bytes"]:
            yield "flawed", f"{size(sums['flawed_bytes'])} in messages with a flaw"
        if sums["undecoded_bytes"]:
            late = f", {size(sums['late_bytes'])} of them before the first message" if sums["late_bytes"] else ""
            yield "undecoded", f"{size(sums['undecoded_bytes'])} in no message{late}"
        if sums["gap_bytes"]:
            snapped = f", {size(sums['snapped_bytes'])} of it by the snap length" if sums["snapped_bytes"] else ""
            yield "missing", f"{size(sums['gap_bytes'])} in {plural(sums['gap_count'], 'gap')}{snapped}"
        if sums["foreign_gap_bytes"]:
            gaps = plural(sums["foreign_gap_count"], "gap")
            yield "missing", f"{size(sums['foreign_gap_bytes'])} in {gaps} of other protocols"
        if again := sums["retransmitted_bytes"] + sums["conflict_bytes"]:
            conflict = f", {size(sums['conflict_bytes'])} of it with other content" if sums["conflict_bytes"] else ""
            yield "sent again", f"{size(again)}{conflict}"

    def as_json(self) -> Mapping[str, Json]:
        """The numbers as ``--json`` writes them."""
        files = [{key: list(x) if isinstance(x, tuple) else x for key, x in asdict(f).items()} for f in self.files]
        counters = ("packets", "not_tcp", "not_read", "connections", "messages", "flaws", "strangers")
        return {
            "files": files,
            "notes": self.notes,
            **{name: dict(sorted(getattr(self, name).items())) for name in counters},
            "pairs": {
                protocol: {word: counts[word] for word in CERTAINTY.values()}
                for protocol, counts in sorted(self.pairs.items())
            },
            "unknown_pairs": dict(self.unknown_pairs.most_common()),
            **self.sums,
            "decoded_share": self.decoded_share,
            "drop_count": self.dropped_count,
            "loss_percent": self.loss_percent,
            "missing_percent": self.missing_percent,
            "comments": [
                {"file": file, "of": where, "text": text} for file, x in self.remarks for where, text in x.comments
            ],
            "names": {address: names for _, x in self.remarks for address, names in x.names.items()},
            "connection_list": list(self.listed.values()),
            "verdict": self.verdict(),
        }


def _divided(total: int, parts: Sequence[tuple[str, int]]) -> str:
    """A number and its parts, for example ``382, all TCP``."""
    if len(parts) == 1 and parts[0][1] == total:
        return f"{total:,}, all {parts[0][0]}" if total > 1 else f"{total:,} {parts[0][0]}"
    return f"{total:,}" + (f": {counted(parts)}" if parts else "")


def _why_unknown(connection: Mapping[str, Any], unpaired_count: int) -> str:
    """Why pairs of a connection are unknown, by its row and the number of its replies without a request."""
    if not connection["syn_seen"]:
        return "the connection began before the capture"
    if connection["missing_bytes_c2s"] or connection["missing_bytes_s2c"]:
        return "bytes are missing"
    if unpaired_count:
        return NO_EVIDENCE
    return ENDED_FIRST if connection["end_state"] == "open" else NOT_SHOWN


_PARTS = {"same_as": "other side of NAT", "subflow_of": "subflow"}
"""Names of connections whose messages are rows of another connection."""
_PACKETS = {
    "tcp": "TCP", "fragment": "fragments", "not_tcp": "other IP", "not_ip": "not IP",
    "truncated_header": "with a cut header", "bad_header": "with a bad header",
    "unknown_link_type": "of an unknown link type", "too_deep": "nested too deep",
}  # fmt: skip


def quality_of(
    capture: Capture, outcome: Outcome, meter: Meter, worker: Background, counters: Counters | None = None
) -> CaptureQuality | None:
    """The numbers of a capture, None if nothing of it can be read; counters count its rows on the way."""
    quality, counters = CaptureQuality(), counters or Counters()
    count = counters.take if outcome.tally is None else selected_counts(outcome.tally, counters)

    def take(output: Output, first_ns: int) -> None:
        outcome.look(output)
        quality.take(output)
        count(output, first_ns)

    options = outcome.choices.dissection(only=counters.optional_tables | {"exchanges", "deliveries"})
    is_whole = outcome.tally is None
    options = (
        counters.narrowed(options, outcome.choices, COLUMNS) if is_whole else replace(options, carried=counters.carried)
    )
    pipeline = wired(capture, options, take, counters.hooks(needs_numbers=True), worker)
    any_read = read(pipeline, outcome, meter)
    counters.end_of_capture()
    if not any_read:
        return None
    quality.end(capture, pipeline.stages.counts, pipeline.stages.server_notes())
    return quality


def _percent(part: int, total: int) -> float:
    return 100 * part / total if total else 0.0


def _painted(verdict: str) -> str:
    """The verdict in green if the capture is whole, in yellow if there is a doubt, in red if it has nothing to read."""
    colour = {"whole": 32, "with care": 33}.get(verdict.split(":")[0], 31)
    return f"\x1b[{colour}m{verdict}\x1b[0m"


def _format(facts: FileFacts) -> str:
    ticks = {0: "finer than nanoseconds", 1: "nanoseconds", 1000: "microseconds", 1_000_000: "milliseconds"}
    words = [
        facts.format, facts.compression or "", f"{facts.byte_order}-endian",
        ticks.get(facts.tick_ns, f"ticks of {facts.tick_ns} ns"),
        f"snap length {facts.snaplen}" if facts.snaplen else "no snap length",
    ]  # fmt: skip
    links = [link_type_name(number) for number in facts.link_types]
    return ", ".join([*filter(None, words), *(links or ["no interface"])])


def _remarks(capture: Capture) -> list[tuple[str, Annotations]]:
    """Comments and names in the files that can be read again."""
    file_remarks = []
    for index, facts in enumerate(capture.facts):
        if facts.format == "pcapng" and os.path.isfile(facts.file):
            with closing(capture.source(index)) as source:
                file_remarks.append((facts.file, annotations(source)))
    return file_remarks
