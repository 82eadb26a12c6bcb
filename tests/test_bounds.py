"""The table "What is bounded" of `src/mqpcap/README.md`: its numbers, the test of each, and all roads to them."""

import importlib
import re
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torture import ACK, SYN, Segment, pcap

from mqpcap import pipeline as pipeline_module
from mqpcap.background import Background
from mqpcap.capture import captures, windows
from mqpcap.correlate import deliveries, exchanges, named_matcher, waiting_rows
from mqpcap.decode import detection, evidence
from mqpcap.pipeline import CapturePipeline, Options, Pipeline
from mqpcap.tables.output import Output

ROOT = Path(__file__).parent.parent
PCAPS = ROOT / "pcaps"
PAGE = (ROOT / "src/mqpcap/README.md").read_text()
TABLE = PAGE[PAGE.index("## What is bounded") : PAGE.index("## Threads and processes")]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.splitlines() if line.startswith("| ")][1:]
BOUND = re.compile(r"(\d[\d,]*)( [kM]B)?[^|(\d]*\([^()`]*`([A-Z_]+)`")
UNITS = {"": 1, " kB": 1 << 10, " MB": 1 << 20}
ROADS = "test_bounds.py::test_no_road_passes_a_bound"
TESTS = {
    "capture.windows.WINDOW_BYTES": "capture/test_windows.py::test_windows_change_no_row",
    "capture.windows.MAX_WINDOW_PACKETS": ROADS,
    "tcp.headers.MAX_HEADERS": "tcp/test_wrappings.py::test_headers_of_one_packet_are_limited",
    "tcp.headers.MAX_KINDS": "tcp/test_wrappings.py::test_packets_of_more_kinds_than_are_named_are_counted",
    "tcp.fragments.MAX_FRAGMENT_BYTES": "tcp/test_headers.py::test_bytes_of_unfinished_datagrams_are_bounded",
    "tcp.fragments.MAX_FRAGMENT_DATAGRAMS": "tcp/test_headers.py::test_number_of_unfinished_datagrams_is_bounded",
    "tcp.fragments.MAX_FRAGMENTS_PER_DATAGRAM": "tcp/test_fragments.py::test_pieces_of_one_datagram_are_bounded",
    "pipeline.PART_MESSAGES": "test_pipeline.py::test_a_window_of_tiny_messages_is_read_in_parts",
    "pipeline.MAX_PAIRED_BYTES":
        "listing/test_time_merge.py::test_messages_that_inflate_to_much_are_emitted_before_their_window_ends",
    "decode.columns.BATCH_BYTES": "decode/test_columns.py::test_batches_have_a_number_of_rows_and_bytes",
    "decode.columns.INFLATED_BYTES": "decode/test_columns.py::test_what_is_inflated_at_once_is_bounded",
    "decode.columns.BATCH_ROWS": "decode/test_columns.py::test_batches_have_a_number_of_rows_and_bytes",
    "decode.columns.MAX_TAPE_ENTRIES": "decode/test_columns.py::test_entries_of_the_tape_are_bounded",
    "tcp.reassembly.MAX_BYTES": "tcp/test_out_of_order.py::test_the_memory_cap_gives_up_the_oldest_holes",
    "tcp.out_of_order.MAX_BUFFERED_BYTES": "tcp/test_out_of_order.py::test_a_full_buffer_gives_the_hole_up",
    "tcp.out_of_order.MAX_BUFFERED_SEGMENTS": "tcp/test_out_of_order.py::test_a_full_buffer_gives_the_hole_up",
    "tcp.out_of_order.MAX_COPIES": "tcp/test_whose_bytes.py::test_copies_beyond_the_limit_leave_the_first_one",
    "tcp.out_of_order.LOOKAHEAD_NS": "tcp/test_out_of_order.py::test_a_hole_waits_until_it_is_acknowledged_and_settled",
    "tcp.out_of_order.SETTLE_PACKETS":
        "tcp/test_out_of_order.py::test_a_hole_waits_until_it_is_acknowledged_and_settled",
    "tcp.out_of_order.LOOKAHEAD_BYTES": "tcp/test_out_of_order.py::test_an_acknowledged_hole_does_not_wait_for_ever",
    "continued_files.END_BYTES": "test_continued_files.py::test_large_files_are_looked_at_from_both_ends",
    "continued_files.MAX_CANDIDATES": "test_continued_files.py::test_the_latest_of_many_files_is_continued",
    "tcp.multipath.MAX_MAPPINGS": "tcp/test_multipath.py::test_few_mappings_make_no_false_pair",
    "tcp.multipath.MAX_SUBFLOWS": "tcp/test_multipath.py::test_forgotten_subflows_are_not_put_together",
    "tcp.views.MAX_VIEWS": "tcp/test_real_kernels.py::test_a_forgotten_handshake_has_no_other_view",
    "decode.proxy_header.MAX_BEHIND":
        "test_proxies.py::test_connections_behind_a_proxy_beyond_the_limit_are_forgotten",
    "decode.side.MAX_PARTIAL_BYTES": "decode/test_side.py::test_bytes_of_messages_with_a_hole_are_bounded",
    "decode.side.HEAD_BYTES": "decode/test_side.py::test_bytes_of_messages_with_a_hole_are_bounded",
    "tcp.gaps.MAX_GAP_TIMES": "tcp/test_gaps.py::test_times_of_gaps_are_bounded",
    "pipeline.FLOW_BYTES": "test_eviction.py::test_nothing_is_lost_where_open_connections_have_to_leave",
    "pipeline.FRAMED_BYTES": "test_eviction.py::test_a_connection_counts_as_what_it_holds",
    "pipeline.PAIRED_BYTES": "test_eviction.py::test_a_connection_counts_as_what_it_holds",
    "pipeline.QUEUE_BYTES": "test_eviction.py::test_sides_that_wait_and_hellos_of_tls_count_besides",
    "pipeline.DERIVED_BYTES": "test_eviction.py::test_sides_that_wait_and_hellos_of_tls_count_besides",
    "pipeline.PACKET_BYTES":
        "test_eviction.py::test_a_small_memory_reads_few_packets_at_once_and_changes_no_row",
    "small_captures.MAX_JOINED_BYTES": "test_small_captures.py::test_groups_keep_the_order_and_are_bounded",
    "small_captures.MAX_CAPTURES": "test_small_captures.py::test_groups_keep_the_order_and_are_bounded",
    "pipeline.MAX_JOINED_BYTES": "test_pipeline.py::test_small_files_of_a_recording_are_read_together",
    "pipeline.CLOSED_DIVISOR": "test_eviction.py::test_connections_that_closed_may_leave_memory_at_once",
    "pipeline.OPEN_DIVISOR": "test_eviction.py::test_nothing_is_lost_where_open_connections_have_to_leave",
    "pipeline.MAX_PROBLEMS": ROADS,
    "tls.key_log.MAX_SESSIONS": "tls/test_hostile_tls.py::test_sessions_of_a_key_log_are_bounded",
    "tls.key_log.MAX_RESUMABLE": "tls/test_hostile_tls.py::test_sessions_of_a_key_log_are_bounded",
    "tls.key_log.MAX_ALL_LATE_TRIALS": "tls/test_hostile_tls.py::test_trials_for_a_late_start_are_bounded",
    "tcp.derived_streams.MAX_HELD_BYTES": "tls/test_hostile_tls.py::test_a_hello_without_an_end_is_not_held_for_ever",
    "tcp.derived_streams.MAX_ALL_HELD_BYTES": "tls/test_hostile_tls.py::test_held_bytes_of_all_connections_are_bounded",
    "tcp.derived_streams.MAX_RETAINED_BYTES": "tls/test_hostile_tls.py::test_opened_bytes_that_wait_are_bounded",
    "websocket.MAX_HEAD_BYTES": "test_websocket.py::test_an_upgrade_without_an_end_is_not_held",
    "tls.handshake.MAX_MESSAGE_BYTES": "tls/test_hostile_tls.py::test_a_long_handshake_message_is_passed_over",
    "tls.session.MAX_TRIED_MASTERS": "tls/test_hostile_tls.py::test_tried_master_secrets_are_bounded",
    "tls.session.MAX_LATE_TRIALS": "tls/test_hostile_tls.py::test_trials_for_a_late_start_are_bounded",
    "tls.side.MAX_TRIAL_BYTES": "tls/test_hostile_tls.py::test_trials_after_a_gap_are_bounded",
    "tls.side.MAX_KEY_UPDATES": "tls/test_hostile_tls.py::test_trials_after_a_gap_are_bounded",
    "decode.detection.OPENING_BYTES": "decode/test_detection.py::test_unclaimed_bytes_are_buffered_and_then_foreign",
    "decode.detection.MAX_PENDING_BYTES": ROADS,
    "decode.detection.MAX_SERVERS": ROADS,
    "decode.shared_facts.MAX_SHARED_FACTS": "decode/test_shared_facts.py::test_oldest_facts_make_room_and_are_counted",
    "decode.remembered.MAX_REMEMBERED": "protocols/test_mqtt.py::test_aliases_are_bounded",
    "decode.remembered.MAX_REMEMBERED_CHARS": "protocols/test_mqtt.py::test_aliases_are_bounded",
    "decode.evidence.MAX_UNRESOLVED_MESSAGES": "decode/test_evidence.py::test_unresolved_messages_are_bounded",
    "decode.evidence.MAX_UNRESOLVED_BYTES": "decode/test_evidence.py::test_unresolved_messages_are_bounded",
    "decode.evidence.MAX_UNRESOLVED_TOTAL_BYTES": ROADS,
    "correlate.matcher.MAX_OPEN_REQUESTS": "correlate/test_matcher.py::test_open_requests_of_one_side_are_bounded",
    "correlate.named_matcher.MAX_OPEN_REQUESTS": ROADS,
    "correlate.span_alignment.MAX_PLACES":
        "correlate/test_span_alignment.py::test_places_of_a_span_are_bounded",
    "correlate.tcp_order.MAX_WAITING": "correlate/test_matcher.py::test_open_requests_of_one_side_are_bounded",
    "correlate.exchanges.MAX_OPEN_BYTES": ROADS,
    "correlate.waiting_rows.MAX_WAITING_BYTES": ROADS,
    "correlate.deliveries.MAX_PUBLISHES": ROADS,
    "correlate.deliveries.MAX_EVICTED_KEYS": ROADS,
    "correlate.deliveries.MAX_DOUBTFUL_TIMES": "correlate/test_deliveries.py::test_many_doubtful_times_become_fewer",
    "correlate.deliveries.MAX_SERVERS":
        "correlate/test_deliveries.py::test_servers_beyond_the_bound_share_a_doubtful_time",
    "correlate.deliveries.MAX_WAITING_DELIVERIES":
        "correlate/test_deliveries.py::test_deliveries_that_are_too_many_to_wait_are_looked_up_and_counted",
    "correlate.deliveries.MAX_WAITING_BYTES":
        "correlate/test_deliveries.py::test_deliveries_that_are_too_many_to_wait_are_looked_up_and_counted",
    "listing.reorder_buffer.MAX_BUFFERED_ROWS":
        "listing/test_reorder_buffer.py::test_rows_that_are_too_many_are_not_looked_at_for_each_window",
    "listing.reorder_buffer.MAX_BUFFERED_BYTES":
        "listing/test_reorder_buffer.py::test_a_row_of_more_bytes_than_the_bound_is_buffered_alone",
    "statistics.groups.MAX_GROUPS": "cli/test_stats.py::test_groups_beyond_the_bound_are_one_row_and_a_note",
    "statistics.groups.MAX_TIME_GROUPS": "cli/test_stats.py::test_groups_beyond_the_bound_are_one_row_and_a_note",
    "statistics.groups.MAX_KEY_CHARS": "statistics/test_groups.py::test_texts_of_keys_are_bounded_as_their_number_is",
    "delta.states.MAX_STATE_BYTES": "delta/test_states.py::test_state_that_is_too_large_is_not_read",
    "tables.parquet.MAX_GROUP_ROW_COUNT":
        "tables/test_parquet.py::test_a_batch_of_a_whole_table_becomes_even_row_groups",
    "tables.parquet.MAX_GROUP_BYTES": "tables/test_parquet.py::test_row_groups_are_bounded_by_bytes",
    "tables.parquet.MAX_BUFFERED_BYTES": "tables/test_parquet.py::test_waiting_rows_are_bounded_by_bytes",
    "tables.parquet.MAX_OPEN_FILES": "tables/test_parquet.py::test_open_files_are_bounded_and_no_row_is_lost",
    "tables.parquet.MAX_OPEN_DAYS":
        "tables/test_parquet.py::test_open_days_are_bounded_and_a_day_that_comes_again_gets_a_file_more",
}  # fmt: skip


def _named_bounds() -> list[tuple[str, int]]:
    """The constants that the table names, with their modules, and the numbers it gives them."""
    named = []
    for _, where, *cells in ROWS:
        modules = [name.removesuffix(".py").replace("/", ".") for name in re.findall(r"`([a-z_/]+\.py)`", where)]
        for number, unit, constant in BOUND.findall(" ".join(cells)):
            named += [(f"{module}.{constant}", int(number.replace(",", "")) * UNITS[unit]) for module in modules]
    return named


def test_the_numbers_of_the_table_are_those_of_the_code() -> None:
    for name, number in _named_bounds():
        module, _, constant = name.rpartition(".")
        assert getattr(importlib.import_module(f"mqpcap.{module}"), constant) == number, name


def test_every_row_names_its_bound() -> None:
    for what, _, *cells in ROWS:
        assert BOUND.search(" ".join(cells)), what
    assert len(re.findall(r"`[A-Z_]{4,}`", TABLE)) == sum(len(BOUND.findall(" ".join(row[2:]))) for row in ROWS)


def test_every_bound_has_a_test() -> None:
    assert {name for name, _ in _named_bounds()} == set(TESTS)
    for name, test in TESTS.items():
        file, _, function = test.partition("::")
        assert re.search(rf"^def {function}\b", (ROOT / "tests" / file).read_text(), re.MULTILINE), name


# -- all roads -----------------------------------------------------------------------------------------------------


def _kokaq_push(number: int) -> bytes:
    return bytes.fromhex("04200106") + struct.pack(">I", number) + bytes.fromhex(
        "07000002 02042000 06040005 6f7264657273 66617374 68656c6c6f"
    )  # fmt: skip


def _opened(port: int, server_port: int) -> list[Segment]:
    return [
        Segment(b"", 999, 0, SYN, client_port=port),
        Segment(b"", 4999, 1000, SYN | ACK, from_server=True, client_port=port),
    ]


def one_sided() -> bytes:
    """Kokaq: 20 connections with 10 requests each and no reply."""
    segments = [segment for k in range(20) for segment in _opened(20_000 + k, 9090)]
    size = len(_kokaq_push(0))
    for number in range(10):
        segments += [
            Segment(_kokaq_push(20 * number + k), 1000 + number * size, 5000, client_port=20_000 + k) for k in range(20)
        ]
    return pcap(segments, 9090)


def strangers() -> bytes:
    """20 connections that nobody recognises yet, 200 bytes each."""
    segments = [segment for k in range(20) for segment in _opened(20_000 + k, 7777)]
    for part in range(10):
        segments += [
            Segment(b"\x04\x20" + bytes([part]) * 18, 1000 + 20 * part, 5000, client_port=20_000 + k) for k in range(20)
        ]
    return pcap(segments, 7777)


def gaps() -> bytes:
    """FlyMQ: replies with a damaged frame between two good ones, 40 times."""
    good = struct.pack(">BBBBI", 0xAF, 1, 1, 0, 12) + struct.pack(">QI", 5, 0)
    bad = b"\xaf\x09bad framing"
    segments = _opened(20_000, 9092)
    request = struct.pack(">BBBBI", 0xAF, 1, 1, 0, 16) + b"\0\1t" + bytes(4) + struct.pack(">I", 1) + b"v" + b"\xff" * 4
    segments.append(Segment(request, 1000, 5000, client_port=20_000))
    data = good * 2 + bad
    segments += [
        Segment(data, 5000 + k * len(data), 1000 + len(request), from_server=True, client_port=20_000)
        for k in range(40)
    ]
    return pcap(segments, 9092)


def sample(name: str) -> Callable[[], bytes]:
    return lambda: (PCAPS / f"{name}.pcap").read_bytes()


def _open_bytes(stages: Pipeline) -> int:
    return sum(one._exchanges.results.open_bytes for one in stages.pairing.correlations.values())


def _open_requests(stages: Pipeline) -> int:
    matchers = [
        m
        for one in stages.pairing.correlations.values()
        for by_flow in one._exchanges._matchers
        for m in by_flow.values()
    ]
    return max([m.held_bytes for m in matchers], default=0)


def _waiting_bytes(stages: Pipeline) -> int:
    return sum(
        block.size_bytes
        for one in stages.pairing.correlations.values()
        for block in one._exchanges._rows._blocks.values()
    )


def _problem_count(stages: Pipeline) -> int:
    return stages.assembler.unreported_count + stages.framer.output.problem_count


def _server_count(stages: Pipeline) -> int:
    return max(len(stages.framer.detector.servers), len(stages.framer.detector.missing_servers))


MESSAGE = 256 + 64
"""An open request and its name."""
BOUNDS: list[tuple[ModuleType, str, int, Callable[[], bytes], Callable[[Pipeline], int], int]] = [
    (exchanges, "MAX_OPEN_BYTES", 40 * MESSAGE, one_sided, _open_bytes, 40 * MESSAGE),
    (named_matcher, "MAX_OPEN_REQUESTS", 4, one_sided, _open_requests, 4 * 256 + 20 * 64),
    (waiting_rows, "MAX_WAITING_BYTES", 1, one_sided, _waiting_bytes, 1),
    (pipeline_module, "MAX_PROBLEMS", 8, gaps, _problem_count, 8),
    (detection, "MAX_PENDING_BYTES", 9000, strangers, lambda stages: stages.framer.detector._pending_bytes, 9000),
    (detection, "MAX_SERVERS", 1, sample("flymq/core"), _server_count, 1),
    (evidence, "MAX_UNRESOLVED_TOTAL_BYTES", 10_000, one_sided, lambda s: s.evidence.unresolved_bytes, 100_000),
    (deliveries, "MAX_PUBLISHES", 4, sample("blipmq/qos1"), lambda stages: 0, 0),
    (deliveries, "MAX_EVICTED_KEYS", 4, sample("blipmq/qos1"), lambda stages: 0, 0),
]  # fmt: skip


def largest_windows(path: Path, seen: Callable[[Pipeline], None]) -> list[Output]:
    """The capture in as few windows as there are."""
    outputs: list[Output] = []
    run = CapturePipeline(captures([str(path)]).captures[0], Options(), outputs.append)
    for _ in run.steps():
        seen(run.stages)
    return outputs


def threads(path: Path, seen: Callable[[Pipeline], None]) -> list[Output]:
    """With a thread that makes rows while the next window is read."""
    outputs: list[Output] = []
    with ThreadPoolExecutor(1) as pool:
        background = Background(pool)
        run = CapturePipeline(captures([str(path)]).captures[0], Options(), outputs.append, background=background)
        for _ in run.steps():
            background.wait()
            seen(run.stages)
    return outputs


def stream(path: Path, seen: Callable[[Pipeline], None]) -> list[Output]:
    """What waits for more evidence is flushed after each window, as a stream of Spark does after each file."""
    outputs: list[Output] = []
    stages = Pipeline(Options(), outputs.append)
    for window in captures([str(path)]).captures[0].windows():
        stages.feed(window)
        stages.flush_unresolved(stages.progress.unresolved_flows())
        stages.evict(1 << 14, 1 << 17)
        seen(stages)
    for _ in stages.finish():
        pass
    return outputs


@pytest.mark.parametrize("road", [largest_windows, threads, stream])
@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: f"{bound[0].__name__}.{bound[1]}")
def test_no_road_passes_a_bound(bound: Any, road: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In windows of few packets no more is held than a small bound allows, and no captured byte is lost by it."""
    module, name, value, make, held, most = bound
    path = tmp_path / "capture.pcap"
    path.write_bytes(make())
    monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 7)
    amounts: list[int] = []

    outputs = road(path, lambda stages: amounts.append(held(stages)))

    assert len(amounts) > 3
    assert max(amounts) <= most
    bytes_read = sum(sum(o.rows["frame_len"].to_pylist()) for o in outputs if o.table == "messages")
    problems = [row for o in outputs if o.table == "problems" for row in o.rows.to_pylist()]
    bytes_read += sum(row["length"] for row in problems if row["kind"] == "undecoded")
    connections = [row for o in outputs if o.table == "connections" for row in o.rows.to_pylist()]
    assert bytes_read == sum(row["bytes_c2s"] + row["bytes_s2c"] for row in connections) > 0
