"""Connections that a filter cannot select are left out before the work on them, and no selected row changes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from capture_files import pcap
from examples import one_in

from mqpcap import pipeline
from mqpcap.capture import Capture, captures, windows
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.query import FilterInput, Query, exchanges_of, prefilter, query
from mqpcap.tables.messages import RowPolicy
from mqpcap.tables.output import Output
from mqpcap.tcp import exclusion
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.headers import Segments

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = one_in(10, sorted(str(path.relative_to(ROOT)) for path in (ROOT / "pcaps").rglob("*.pcap")))


class Counted(CapturePipeline):
    """A pipeline that counts the segments and the messages on which work was spent."""

    segment_count = message_count = 0

    def __init__(self, capture: Capture, options: Options) -> None:
        super().__init__(capture, options, self.collect)
        self._feed, self.stages.assembler.feed = self.stages.assembler.feed, self.count_and_feed  # type: ignore[method-assign]
        self.messages_: list[Output] = []
        self.exchanges: list[pa.Table] = []

    def collect(self, output: Output) -> None:
        if output.fields is not None:
            self.messages_.append(output)
            self.message_count += output.rows.num_rows
        elif output.table == "exchanges":
            self.exchanges.append(output.rows)

    def count_and_feed(self, segments: Segments) -> StreamChunks:
        self.segment_count += len(segments.key)
        return self._feed(segments)


def rows(asked: Query, path: str, preselected: bool) -> tuple[list[dict[str, object]], Counted]:
    """The selected rows of all tables of messages, with their exchanges, and what was done for them."""
    (capture,) = captures([str(ROOT / path)]).captures
    options = Options(policy=RowPolicy(seeds=(1 << 29, 1 << 29)))
    made = Counted(capture, replace(options, connections=asked.connections if preselected else None))
    made.run()
    return sorted(_selected(asked, made), key=repr), made


def _selected(asked: Query, made: Counted) -> Iterator[dict[str, object]]:
    from mqpcap.tables.schemas import TABLES

    exchanges = pa.concat_tables([TABLES["exchanges"].empty_table(), *made.exchanges])
    for output in made.messages_:
        assert output.protocol is not None and output.fields is not None
        beside = exchanges_of(output.rows, exchanges)
        mask = pa.array(
            asked.selects(FilterInput(output.protocol, output.rows, output.fields, beside), made.first_ns or 0)
        )
        tables = [table.filter(mask).to_pylist() for table in (output.rows, output.fields, beside)]
        for row, fields, exchange in zip(*tables, strict=True):
            yield {**row, "fields": {k: v for k, v in fields.items() if v is not None}, "exchange": exchange}


def ends(path: str) -> list[str]:
    """An address and port of a client and of a server of the capture."""
    (capture,) = captures([str(ROOT / path)]).captures
    made = Counted(capture, Options())
    made.run()
    found: dict[str, None] = {}
    for output in made.messages_:
        for row in output.rows.select(["src_ip", "src_port"]).slice(0, 400).to_pylist():
            ip = f"[{row['src_ip']}]" if ":" in row["src_ip"] else row["src_ip"]
            found[f"{ip}:{row['src_port']}"] = None
    return [*list(found)[:1], *list(found)[-1:]]


@pytest.mark.parametrize("path", SAMPLES)
def test_rows_are_the_same_with_and_without(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # So that there are windows after the one that tells.
    monkeypatch.setattr(windows, "WINDOW_BYTES", max((ROOT / path).stat().st_size // 8, 500))
    for end in ends(path):
        asked = query(f"connection == {end}")

        with_, spared = rows(asked, path, preselected=True)
        without, _ = rows(asked, path, preselected=False)

        assert with_ == without
        assert with_
        assert spared.message_count == len(with_)


def test_packets_of_other_connections_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", 2000)
    path = "pcaps/fq/session.pcap"
    few = query(f"client == {ends(path)[0]}")

    _, spared = rows(few, path, preselected=True)
    _, whole = rows(few, path, preselected=False)

    assert spared.segment_count < whole.segment_count


def test_keys_that_collide_leave_no_wanted_connection_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", 2000)
    path = "pcaps/blipmq/qos1.pcap"
    asked = query(f"client == {ends(path)[-1]}")
    without, _ = rows(asked, path, preselected=False)
    every = exclusion.ExcludedConnections.add

    def all_keys(self: exclusion.ExcludedConnections, of: object) -> None:
        every(self, of)  # type: ignore[arg-type]
        self._keys = self._all

    (capture,) = captures([str(ROOT / path)]).captures
    dissector = CapturePipeline(capture, Options(), lambda output: None).stages.dissector
    keys = {key for window in capture.windows() for key in dissector.segments(window).key.tolist()}
    monkeypatch.setattr(exclusion.ExcludedConnections, "_all", pa.array(sorted(keys)).to_numpy(), raising=False)
    monkeypatch.setattr(exclusion.ExcludedConnections, "add", all_keys)

    assert rows(asked, path, preselected=True)[0] == without


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("client == 10.0.0.1", True),
        ("op == x and src_port in (1, 2)", True),
        ("src_ip == 10.0.0.1 or dst_ip == 10.0.0.1", True),
        ("src_port < 1024", True),
        ("connection == 10.0.0.1:5", True),
        ("src_ip == 10.0.0.1 or op == x", False),
        ("not src_ip == 10.0.0.1", False),
        ("src_ip != 10.0.0.1", False),
        ("connection == 77", False),
        ("connection == c7", False),
        ("connection in (10.0.0.1:5, 77)", False),
        ("client_name == x", False),
        ("events.client_ip == x", False),
    ],
)
def test_only_what_every_row_must_meet_counts(text: str, says: bool) -> None:
    assert (query(text).connections is not None) == says


@pytest.mark.parametrize("path", SAMPLES)
def test_reading_may_end_with_the_time_that_is_asked_for(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In windows of few packets, without a margin: every message that began before is there."""
    monkeypatch.setattr(windows, "WINDOW_BYTES", max((ROOT / path).stat().st_size // 10, 500))
    monkeypatch.setattr(pipeline, "MAX_DISORDER_NS", 0)
    (capture,) = captures([str(ROOT / path)]).captures
    whole = Counted(capture, Options())
    whole.run()
    times = sorted(time for output in whole.messages_ for time in output.rows["ts_ns"].to_pylist())
    for place in (0.3, 0.6):
        until_ns = times[int(len(times) * place)] if times else 0
        asked = query(f"ts < {until_ns}")

        early = Counted(capture, Options(until=asked.until))
        early.run()

        assert _messages(early, until_ns) == _messages(whole, until_ns)


def _messages(made: Counted, until_ns: int) -> list[str]:
    rows = (row for output in made.messages_ for row in output.rows.to_pylist())
    return sorted(repr(row) for row in rows if row["ts_ns"] < until_ns)


def test_reading_ends_early() -> None:
    path = ROOT / "pcaps/blipmq/qos1.pcap"
    asked = query("ts < +1s")
    read = []
    for until in (asked.until, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(windows, "WINDOW_BYTES", 2000)
            (capture,) = captures([str(path)]).captures
            made = Counted(capture, Options(until=until))
            made.run()
            read.append(made.segment_count)

    assert read[0] < read[1] // 2


def test_times_before_which_rows_begin() -> None:
    found = prefilter.until(query("ts < +3s and ts_ns <= +2s and op == x and ts > +1s").tree)

    assert found is not None
    assert found(1000) == 2_000_000_000 + 1000 + 1


def test_an_ipv4_client_is_found_where_it_is_written_as_ipv6(tmp_path: Path) -> None:
    """A server that listens on both families is captured so behind NAT64 and on BSD."""
    data, at, packets = (ROOT / "pcaps/blipmq/qos1.pcap").read_bytes(), 24, []
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "little")
        frame, at = data[at + 16 : at + 16 + size], at + 16 + size
        mapped = b"".join(bytes(10) + b"\xff\xff" + frame[start : start + 4] for start in (26, 30))
        tcp = frame[34 : 14 + int.from_bytes(frame[16:18], "big")]
        head = b"\x60\0\0\0" + len(tcp).to_bytes(2, "big") + b"\6\x40"
        packets.append((len(packets) * 1000, frame[:12] + b"\x86\xdd" + head + mapped + tcp))
    path = tmp_path / "mapped.pcap"
    path.write_bytes(pcap(packets))

    for address, is_client in (
        ("127.0.0.1", True),
        ("127.0.0.0/8", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
    ):
        some, _ = rows(query(f"client_ip == {address}"), str(path), True)
        every, _ = rows(query(f"client_ip == {address}"), str(path), False)

        assert some == every and bool(some) == is_client
    assert {row["src_ip"] for row in rows(query("op == PUBLISH"), str(path), True)[0]} == {"::ffff:127.0.0.1"}
