"""``mqpcap info``: what a capture is, and how far it can be trusted."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from mqpcap.cli.completion import files
from mqpcap.cli.connection_names import STRANGER, short_name
from mqpcap.cli.console import Meter, folded, metered, plural, shown, size, width_of
from mqpcap.cli.options import Choices, common, utc_option
from mqpcap.cli.reading import Outcome, background, caps, finish, found, read, size_bytes, told_of_speed

if TYPE_CHECKING:
    import pyarrow as pa

    from mqpcap.background import Background
    from mqpcap.capture import Capture, FileFacts
    from mqpcap.capture.remarks import Remarks
    from mqpcap.pipeline import Output
    from mqpcap.tables.json_lines import Json

FILES_SHOWN = 12
CONNECTIONS_SHOWN = 20
MAX_CONNECTIONS = 10_000
"""So many connections are listed, in JSON too; the rest is counted."""
REMARKS_SHOWN = 20


@dataclass(slots=True)
class Listed:
    """What the list of connections says of one."""

    number: int
    client: str
    server: str
    kind: str
    """Its protocol, the stranger's name, or unknown."""
    client_name: str | None
    message_count: int
    error_count: int
    community_id: str
    connection_id: int


@dataclass(slots=True)
class Report:
    """The numbers of one capture."""

    files: list["FileFacts"] = field(default_factory=list)
    packets: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    caps: list[str] = field(default_factory=list)
    connections: Counter[str] = field(default_factory=Counter)
    tls_count: int = 0
    late_start_count: int = 0
    one_sided_count: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    flaws: Counter[str] = field(default_factory=Counter)
    resynced_count: int = 0
    our_bytes: int = 0
    decoded_bytes: int = 0
    flawed_bytes: int = 0
    undecoded_bytes: int = 0
    late_bytes: int = 0
    gap_count: int = 0
    gap_bytes: int = 0
    snapped_bytes: int = 0
    conflict_bytes: int = 0
    retransmitted_bytes: int = 0
    remarks: list[tuple[str, "Remarks"]] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)
    strangers: Counter[str] = field(default_factory=Counter)
    _errors: Counter[int] = field(default_factory=Counter)
    """By number of the connection, while it lives."""
    _names: dict[int, str] = field(default_factory=dict)

    def end(self, capture: "Capture", counts: Mapping[str, int]) -> None:
        """Take what is known when a capture has been read to its end."""
        self.files, self.packets = list(capture.facts), dict(counts)
        self.notes, self.caps = [str(note) for note in capture.notes], caps(capture.files[0], counts)
        self.listed.sort(key=lambda one: one.number)
        self.remarks = _remarks(capture)

    def take(self, output: "Output") -> None:
        """Count rows of a table."""
        if output.table == "messages":
            self._take_messages(output.rows)
        elif output.table == "connections":
            for row in output.rows.to_pylist():
                self._take_connection(row)
        elif output.table == "problems":
            for row in output.rows.to_pylist():
                if row["protocol"] is not None:
                    self._take_problem(row)

    def _take_messages(self, rows: "pa.Table") -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        from mqpcap.tables.schemas import NUMBER

        self.messages[rows["protocol"][0].as_py()] += rows.num_rows
        self.resynced_count += pc.sum(rows["resynced"]).as_py()
        if rows["client_name"].null_count < rows.num_rows:
            pairs = pa.table({NUMBER: rows[NUMBER], "name": rows["client_name"].cast(pa.string())}).drop_null()
            for pair in pairs.group_by([NUMBER, "name"]).aggregate([]).to_pylist():
                self._names.setdefault(pair[NUMBER], pair["name"])
        errors = rows.filter(pc.equal(rows["status"].cast(pa.string()), "error"))[NUMBER]
        self._errors.update({pair["values"]: pair["counts"] for pair in errors.value_counts().to_pylist()})
        flaws, lengths = rows["flaw"].cast(pa.string()), rows["frame_len"]
        sound = pc.sum(lengths.filter(pc.is_null(flaws))).as_py() or 0
        self.decoded_bytes += sound
        self.flawed_bytes += pc.sum(lengths).as_py() - sound
        for pair in pc.value_counts(flaws.drop_null()).to_pylist():
            self.flaws[pair["values"]] += pair["counts"]

    def _take_connection(self, row: Mapping[str, Any]) -> None:
        self._list(row)
        is_tls = row["tls"] is not None
        self.tls_count += is_tls and row["protocol"] is None
        self.connections[row["protocol"] or ("tls" if is_tls else "other")] += 1
        if row["protocol"] is None:
            return
        self.late_start_count += not row["syn_seen"]
        self.one_sided_count += 0 in (row["packets_c2s"], row["packets_s2c"])
        self.our_bytes += row["bytes_c2s"] + row["bytes_s2c"]
        self.conflict_bytes += row["conflict_bytes_c2s"] + row["conflict_bytes_s2c"]
        self.retransmitted_bytes += row["retransmitted_bytes_c2s"] + row["retransmitted_bytes_s2c"]

    def _list(self, row: Mapping[str, Any]) -> None:
        from mqpcap.cli.lines import endpoint
        from mqpcap.tables.schemas import NUMBER

        number = row[NUMBER]
        is_silent = not row["bytes_c2s"] + row["bytes_s2c"]
        kind = row["protocol"] or row[STRANGER] or ("nothing" if is_silent else "unknown")
        name, error_count = self._names.pop(number, None), self._errors.pop(number, 0)
        if row["protocol"] is None:
            self.strangers[kind] += 1
        if len(self.listed) < MAX_CONNECTIONS:
            client, server = (endpoint(row[f"{end}_ip"], row[f"{end}_port"]) for end in ("client", "server"))
            count = row["messages_c2s"] + row["messages_s2c"]
            ids = str(row["community_id"]), int(row["connection_id"])
            self.listed.append(Listed(number, client, server, kind, name, count, error_count, *ids))

    def _take_problem(self, row: Mapping[str, Any]) -> None:
        """A stretch of one of our connections."""
        if row["kind"] == "undecoded":
            self.undecoded_bytes += row["length"]
            self.late_bytes += row["length"] if row["reason"] == "late" else 0
        elif row["kind"] == "gap":
            self.gap_count += 1
            self.gap_bytes += row["length"]
            self.snapped_bytes += row["length"] if row["reason"] == "snap length" else 0

    def as_json(self) -> "Mapping[str, Json]":
        """The numbers as ``--json`` writes them."""
        return _as_json(self)

    @property
    def decoded_share(self) -> float | None:
        """Of the payload bytes captured of our protocols, those in messages without a flaw; None without any."""
        return self.decoded_bytes / self.our_bytes if self.our_bytes else None

    @property
    def dropped_count(self) -> int | None:
        """Packets that the capturing system says it dropped, None if no file says."""
        said = [facts.drop_count for facts in self.files if facts.drop_count is not None]
        return sum(said) if said else None

    @property
    def loss_percent(self) -> float:
        """Bytes of our protocols that were never captured, or are in no sound message, in percent of all; or dropped
        packets in percent of all, if they are more."""
        all_bytes = self.our_bytes + self.gap_bytes
        lost = self.gap_bytes + self.undecoded_bytes + self.flawed_bytes
        packets, dropped = sum(facts.packet_count for facts in self.files), self.dropped_count or 0
        shares = [lost / all_bytes if all_bytes else 0.0, dropped / (packets + dropped) if dropped else 0.0]
        return 100 * max(shares)

    def verdict(self) -> str:
        """One line: whether all is there and decoded, and if not what stands against it."""
        if not any(facts.packet_count for facts in self.files):
            return "empty: there is no packet"
        if not self.our_bytes:
            said = ", ".join(f"{count:,} {name}" for name, count in self.strangers.most_common())
            return f"nothing ours: {f'connections are {said}' if said else 'there is no TCP connection'}"
        against = list(self._against())
        if not against:
            return "whole: every captured byte of our protocols was decoded, and none is missing"
        return "with care: " + ", ".join(against)

    def _against(self) -> Iterator[str]:
        if self.dropped_count:
            yield f"the capturing system dropped {plural(self.dropped_count, 'packet')}"
        if self.snapped_bytes:
            yield f"the snap length cut {size(self.snapped_bytes)}"
        if self.gap_bytes > self.snapped_bytes:
            yield f"{size(self.gap_bytes - self.snapped_bytes)} were never captured"
        if self.conflict_bytes:
            yield f"{size(self.conflict_bytes)} were sent again with other content"
        if self.late_start_count:
            yield f"{plural(self.late_start_count, 'connection')} began before the capture"
        if self.one_sided_count:
            yield f"{plural(self.one_sided_count, 'connection was', 'connections were')} captured on one side only"
        if self.flaws:
            yield f"{plural(sum(self.flaws.values()), 'message has', 'messages have')} a flaw"
        if self.undecoded_bytes:
            yield f"{size(self.undecoded_bytes)} are no message"
        if self.tls_count:
            yield f"{plural(self.tls_count, 'connection is', 'connections are')} encrypted"
        if self.notes or self.caps:
            yield "see the notes"


@click.command(epilog="Example: mqpcap info pcaps/faults/blipmq_lost.pcap")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...", shell_complete=files)
@click.option("--json", "as_json", is_flag=True, help="One JSON object with an entry per capture.")
@click.option("--max-loss", type=click.FloatRange(0, 100), metavar="PERCENT",
              help="For scripts: exit 1 if more than that was dropped, never captured or not decoded.")  # fmt: skip
@utc_option
@common
def info(inputs: tuple[str, ...], as_json: bool, max_loss: float | None, utc: bool, choices: Choices) -> None:
    """Tell what captures are and how far they can be trusted.

    A verdict in one line; files, packets and messages; what was lost, cut, sent again or not understood; comments and
    names that the file has; and its connections, with the short names that show and --connection use.
    """
    from mqpcap.tables.json_lines import json_text

    outcome = Outcome(choices, tells_notes=False)
    reports: list[Json] = []
    captures = found(inputs, outcome).captures
    told_of_speed(outcome)
    total = size_bytes(captures)
    with metered(total, choices.quiet) as meter, background(choices, total) as behind:
        for capture in captures:
            report = _report(capture, outcome, meter, behind)
            if report is None:
                continue
            if max_loss is not None and report.loss_percent > max_loss:
                said = f"{report.loss_percent:.3g} % lost, more than --max-loss {max_loss:g}"
                outcome.unreadable.append((capture.files[0], said))
            if as_json:
                reports.append(report.as_json())
                continue
            with meter.aside():
                for line in _as_text(report, utc):
                    click.echo(folded(line, sys.stdout, 16), color=True)
    if as_json:
        strangers = {
            name: [{"file": file, "reason": reason} for file, reason in some]
            for name, some in (("skipped", outcome.skipped), ("unreadable", outcome.unreadable))
        }
        click.echo(json_text({"captures": reports, **strangers}))
    finish(outcome)


def _report(capture: "Capture", outcome: Outcome, meter: Meter, behind: "Background") -> Report | None:
    """The numbers of a capture; None if nothing of it can be read."""
    from mqpcap.cli.numbered_pipeline import NumberedPipeline

    report = Report()

    def take(output: "Output") -> None:
        outcome.look(output)
        report.take(output)

    pipeline = NumberedPipeline(capture, outcome.choices.dissection(only=frozenset()), take, behind)
    if not read(pipeline, outcome, meter):
        return None
    report.end(capture, pipeline.counts)
    return report


def _remarks(capture: "Capture") -> "list[tuple[str, Remarks]]":
    """What people wrote into the files that can be read again."""
    from mqpcap.capture.remarks import remarks

    found = []
    for index, facts in enumerate(capture.facts):
        if facts.format == "pcapng" and os.path.isfile(facts.file):
            source = capture.source(index)
            try:
                found.append((facts.file, remarks(source)))
            finally:
                source.close()
    return found


def _precision(tick_ns: int) -> str:
    known = {0: "finer than nanoseconds", 1: "nanoseconds", 1000: "microseconds", 1_000_000: "milliseconds"}
    return known.get(tick_ns, f"ticks of {tick_ns} ns")


def _links(facts: "FileFacts") -> str:
    from mqpcap.tables.captures import LINK_TYPES

    return ", ".join(LINK_TYPES.get(number, f"link type {number}") for number in facts.link_types) or "no interface"


def _as_text(report: Report, utc: bool) -> Iterator[str]:
    from mqpcap.cli.lines import clock

    for facts in report.files[:FILES_SHOWN]:
        snap = f"snap length {facts.snaplen}" if facts.snaplen else "no snap length"
        packed = f", {facts.compression}" if facts.compression else ""
        yield shown(facts.file)
        if facts is report.files[0]:
            yield f"  verdict       {report.verdict()}"
        yield (
            f"  format        {facts.format}{packed}, {facts.byte_order}-endian, {_precision(facts.tick_ns)}, {snap}, "
            f"{_links(facts)}"
        )
    if len(report.files) > FILES_SHOWN:
        yield f"and {plural(len(report.files) - FILES_SHOWN, 'more file')} of the same capture"
    packet_count = sum(facts.packet_count for facts in report.files)
    others = ", ".join(f"{count:,} {words}" for key, words in _PACKETS.items() if (count := report.packets.get(key, 0)))
    yield f"  packets       {packet_count:,}: {others or 'none'}"
    times = [t for facts in report.files for t in (facts.first_ts_ns, facts.last_ts_ns) if t is not None]
    if times:
        span_ns = max(times) - min(times)
        yield (
            f"  time          {clock(min(times), utc, True)} to {clock(max(times), utc, True)}, {span_ns / 1e9:,.3f} s"
        )
    dropped = report.dropped_count
    yield f"  dropped       {'the files do not say' if dropped is None else f'{dropped:,} by the capturing system'}"
    total = sum(report.connections.values())
    named = {"other": "not ours", "tls": "TLS"}
    kinds = ", ".join(f"{n:,} {named.get(name, name)}" for name, n in sorted(report.connections.items()))
    yield f"  connections   {total:,}{': ' if kinds else ''}{kinds}"
    late, one_sided = report.late_start_count, report.one_sided_count
    yield f"  of ours       started before the capture: {late:,}; captured on one side only: {one_sided:,}"
    messages = ", ".join(f"{n:,} {name}" for name, n in sorted(report.messages.items()))
    yield f"  messages      {messages or 'none'}; {report.resynced_count:,} found by search"
    flaws = ", ".join(f"{n:,} {name}" for name, n in sorted(report.flaws.items()))
    yield f"  flaws         {flaws or 'none'}"
    share = report.decoded_share
    if share is not None:
        # Rounded down: 100% means every byte.
        yield (
            f"  decoded       {int(share * 1000) / 10:.1f}% of {size(report.our_bytes)} payload; "
            f"{size(report.flawed_bytes)} in messages with a flaw, "
            f"{size(report.undecoded_bytes)} in none ({size(report.late_bytes)} late)"
        )
    yield (
        f"  missing       {size(report.gap_bytes)} in {plural(report.gap_count, 'gap')}, "
        f"{size(report.snapped_bytes)} of it by the snap length"
    )
    again = report.retransmitted_bytes + report.conflict_bytes
    yield f"  sent again    {size(again)}, {size(report.conflict_bytes)} of it with other content"
    for note in (*report.notes, *report.caps):
        yield f"  note          {shown(note)}"
    yield from _remarks_as_text(report)
    yield from _list_as_text(report)


def _remarks_as_text(report: Report) -> Iterator[str]:
    from mqpcap.cli.lines import value_text

    comments = [pair for _, one in report.remarks for pair in one.comments]
    for where, text in comments[:REMARKS_SHOWN]:
        yield f"  comment       {where}: {value_text(text, 200)}"
    names = [pair for _, one in report.remarks for pair in one.names.items()]
    for address, some in names[:REMARKS_SHOWN]:
        yield f"  name          {address} is {shown(', '.join(some))}"
    more = max(len(comments) - REMARKS_SHOWN, 0) + max(len(names) - REMARKS_SHOWN, 0)
    if more:
        yield f"  and {more:,} more comments and names; --json has them"


def _list_as_text(report: Report) -> Iterator[str]:
    """A line for each of the first connections, columns aligned."""
    from mqpcap.cli.rows import Column, text_lines

    columns = (
        Column("connection", "connection", "plain"), Column("client", "client", "plain"),
        Column("server", "server", "plain"), Column("kind", "speaks", "plain"), Column("name", "as", "plain"),
        Column("messages", "messages", "number"), Column("errors", "errors", "number"),
        Column("id", "community id", "plain", is_spare=True),
    )  # fmt: skip
    rows = [
        {
            "connection": short_name(one.number), "client": one.client, "server": one.server, "kind": one.kind,
            "name": None if one.client_name is None else shown(one.client_name[:40]),
            "messages": one.message_count, "errors": one.error_count, "id": one.community_id,
        }
        for one in report.listed[:CONNECTIONS_SHOWN]
    ]  # fmt: skip
    width = width_of(sys.stdout)
    for line in text_lines(columns, rows, room=None if width is None else width - 2):
        yield f"  {line}"
    total = sum(report.connections.values())
    if total > CONNECTIONS_SHOWN:
        yield f"  and {total - CONNECTIONS_SHOWN:,} more; --json has them"


_PACKETS = {
    "tcp": "TCP", "fragment": "fragments", "not_tcp": "other IP", "not_ip": "not IP",
    "truncated_header": "with a cut header", "bad_header": "with a bad header",
    "unknown_link_type": "of an unknown link type", "too_deep": "nested too deep",
}  # fmt: skip


def _as_json(report: Report) -> "Mapping[str, Json]":
    return {
        "files": [
            {
                "file": f.file, "format": f.format, "byte_order": f.byte_order, "compression": f.compression,
                "tick_ns": f.tick_ns, "snaplen": f.snaplen, "link_types": list(f.link_types),
                "interfaces": list(f.interfaces), "packet_count": f.packet_count, "captured_bytes": f.captured_bytes,
                "first_ts_ns": f.first_ts_ns, "last_ts_ns": f.last_ts_ns, "received_count": f.received_count,
                "drop_count": f.drop_count,
            }
            for f in report.files
        ],
        "packets": dict(sorted(report.packets.items())),
        "notes": report.notes + report.caps,
        "connections": dict(sorted(report.connections.items())),
        "late_start_count": report.late_start_count,
        "one_sided_count": report.one_sided_count,
        "messages": dict(sorted(report.messages.items())),
        "flaws": dict(sorted(report.flaws.items())),
        "resynced_count": report.resynced_count,
        "payload_bytes": report.our_bytes,
        "decoded_bytes": report.decoded_bytes,
        "flawed_bytes": report.flawed_bytes,
        "undecoded_bytes": report.undecoded_bytes,
        "late_bytes": report.late_bytes,
        "decoded_share": report.decoded_share,
        "gap_count": report.gap_count,
        "gap_bytes": report.gap_bytes,
        "snapped_bytes": report.snapped_bytes,
        "conflict_bytes": report.conflict_bytes,
        "retransmitted_bytes": report.retransmitted_bytes,
        "drop_count": report.dropped_count,
        "loss_percent": report.loss_percent,
        "strangers": dict(sorted(report.strangers.items())),
        "comments": [
            {"file": file, "of": where, "text": text} for file, one in report.remarks for where, text in one.comments
        ],
        "names": {address: names for _, one in report.remarks for address, names in one.names.items()},
        "connection_list": [
            {
                "connection": short_name(one.number), "connection_id": str(one.connection_id), "client": one.client,
                "server": one.server, "speaks": one.kind, "client_name": one.client_name,
                "messages": one.message_count, "errors": one.error_count, "community_id": one.community_id,
            }
            for one in report.listed
        ],
        "verdict": report.verdict(),
    }  # fmt: skip
