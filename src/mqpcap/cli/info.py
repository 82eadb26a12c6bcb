"""``mqpcap info``: what a capture is, and how far it can be trusted."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from mqpcap.cli.console import Meter, metered, plural, shown, size
from mqpcap.cli.options import Choices, common, utc_option
from mqpcap.cli.reading import Outcome, background, caps, finish, found, read, size_bytes, told_of_speed

if TYPE_CHECKING:
    import pyarrow as pa

    from mqpcap.background import Background
    from mqpcap.capture import Capture, FileFacts
    from mqpcap.pipeline import Output
    from mqpcap.tables.json_lines import Json

FILES_SHOWN = 12


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

    def end(self, capture: "Capture", counts: Mapping[str, int]) -> None:
        """Take what is known when a capture has been read to its end."""
        self.files, self.packets = list(capture.facts), dict(counts)
        self.notes, self.caps = [str(note) for note in capture.notes], caps(capture.files[0], counts)

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

        self.messages[rows["protocol"][0].as_py()] += rows.num_rows
        self.resynced_count += pc.sum(rows["resynced"]).as_py()
        flaws, lengths = rows["flaw"].cast(pa.string()), rows["frame_len"]
        sound = pc.sum(lengths.filter(pc.is_null(flaws))).as_py() or 0
        self.decoded_bytes += sound
        self.flawed_bytes += pc.sum(lengths).as_py() - sound
        for pair in pc.value_counts(flaws.drop_null()).to_pylist():
            self.flaws[pair["values"]] += pair["counts"]

    def _take_connection(self, row: Mapping[str, Any]) -> None:
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

    def verdict(self) -> str:
        """One line: whether all is there and decoded, and if not what stands against it."""
        if not any(facts.packet_count for facts in self.files):
            return "empty: there is no packet"
        if not self.our_bytes:
            return "nothing ours: no connection carries a known protocol in the clear"
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
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with an entry per capture.")
@utc_option
@common
def info(inputs: tuple[str, ...], as_json: bool, utc: bool, choices: Choices) -> None:
    """Tell what captures are and how far they can be trusted.

    Files, packets, connections and messages; then what was lost, cut, sent again or not understood, and a verdict in
    one line.
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
            if as_json:
                reports.append(report.as_json())
                continue
            with meter.aside():
                for line in _as_text(report, utc):
                    click.echo(line)
    if as_json:
        strangers = {
            name: [{"file": file, "reason": reason} for file, reason in some]
            for name, some in (("skipped", outcome.skipped), ("unreadable", outcome.unreadable))
        }
        click.echo(json_text({"captures": reports, **strangers}))
    finish(outcome)


def _report(capture: "Capture", outcome: Outcome, meter: Meter, behind: "Background") -> Report | None:
    """The numbers of a capture; None if nothing of it can be read."""
    from mqpcap.pipeline import CapturePipeline

    report = Report()

    def take(output: "Output") -> None:
        if output.table == "messages":
            outcome.take(output.rows)
        report.take(output)

    pipeline = CapturePipeline(capture, outcome.choices.dissection(only=frozenset()), take, behind)
    if not read(pipeline, outcome, meter):
        return None
    report.end(capture, pipeline.counts)
    return report


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
    yield f"  verdict       {report.verdict()}"


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
        "verdict": report.verdict(),
    }  # fmt: skip
