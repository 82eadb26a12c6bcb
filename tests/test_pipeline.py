"""What the pipeline makes of a capture, table by table."""

import gc
import struct
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from examples import one_in
from mutated_captures import capture_bytes, one_packet_windows, records
from rows import rotated

sys.path.insert(0, str(Path(__file__).parent / "bench"))

import hostile
import traffic

from mqpcap import pipeline
from mqpcap.capture import captures, windows
from mqpcap.decode.framing import Framer
from mqpcap.pipeline import OPTIONAL_TABLES, CapturePipeline, Options
from mqpcap.tables import problems
from mqpcap.tables.output import Output

PCAPS = Path(__file__).parent.parent / "pcaps"


def tables(path: Path, options: Options) -> dict[str, pa.Table]:
    """Every table of a capture, by name."""
    parts: dict[str, list[pa.Table]] = {}

    def take(output: Output) -> None:
        parts.setdefault(output.table, []).append(output.rows)
        if output.protocol is not None and output.fields is not None:
            parts.setdefault(output.protocol, []).append(output.fields)

    CapturePipeline(captures([str(path)]).captures[0], options, take).run()
    return {name: pa.concat_tables(some).unify_dictionaries() for name, some in parts.items()}


@pytest.mark.parametrize("name", ["blipmq/qos1.pcap", "flymq/pipelining.pcap", "fq/session.pcap"])
@pytest.mark.parametrize("table", [None, *sorted(OPTIONAL_TABLES)])
def test_an_unwanted_table_changes_no_other_table(name: str, table: str | None) -> None:
    every = tables(PCAPS / name, Options())
    wanted = OPTIONAL_TABLES & {table}

    made = tables(PCAPS / name, replace(Options(), optional_tables=wanted))

    assert made.keys() == every.keys() - (OPTIONAL_TABLES - wanted)
    assert all(rows.equals(every[name]) for name, rows in made.items())
    assert every.keys() >= {"messages", "connections", *OPTIONAL_TABLES}


def test_small_files_of_a_recording_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 rotated files are one step for reassembly, with the rows of 40 steps; foreign packets keep their file."""
    rotated(PCAPS / "fq/session.pcap", tmp_path, 40)
    fed: list[int] = []
    feed = Framer.feed
    monkeypatch.setattr(Framer, "feed", lambda *given: fed.append(len(given[1].flow)) or feed(*given))
    together = tables(tmp_path, Options())
    steps_together = len(fed)
    monkeypatch.setattr(pipeline, "MAX_JOINED_BYTES", 0)
    one_by_one = tables(tmp_path, Options())

    assert (steps_together, len(fed) - steps_together) == (2, 41)  # and one at the end
    assert (
        together.keys() == one_by_one.keys() == {"captures", "connections", "deliveries", "exchanges", "fq", "messages"}
    )
    for name, rows in together.items():
        assert sorted(map(str, rows.to_pylist())) == sorted(map(str, one_by_one[name].to_pylist()))
    assert together["captures"].num_rows == 40


def test_pairs_come_while_a_side_has_a_message_in_the_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages cross segments, so at the end of each window one side is behind; only the last rows wait for it."""
    monkeypatch.setattr(windows, "WINDOW_BYTES", 1 << 16)
    traffic.kokaq_pushes(tmp_path / "pushes.pcap", 4000, flow_count=1)
    given = {"messages": 0, "exchanges": 0, "connections": 0, "captures": 0}

    def take(output: Output) -> None:
        given[output.table] += output.rows.num_rows

    run = CapturePipeline(captures([str(tmp_path / "pushes.pcap")]).captures[0], Options(), take)
    late = [given["messages"] - 2 * given["exchanges"] for _ in run.steps() if run.stages.progress.stalled_sides()]

    assert len(late) > 2
    assert max(late) < 300


def test_a_packet_of_an_earlier_time_does_not_take_reading_back(tmp_path: Path) -> None:
    """The first packet comes again at the end."""
    data = (PCAPS / "blipmq/qos1.pcap").read_bytes()
    packets = records(data)[:100]
    (tmp_path / "again.pcap").write_bytes(capture_bytes(data[:24], [*packets, packets[0]]))
    seconds, microseconds = struct.unpack("<II", packets[-1][0])

    with one_packet_windows():
        run = CapturePipeline(captures([str(tmp_path / "again.pcap")]).captures[0], Options(), lambda output: None)
        times = [run.stages.newest_ns for _ in run.steps()]

    assert times == sorted(times)
    assert times[-1] == seconds * 10**9 + microseconds * 1000


def as_set(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


SAMPLES = [
    "blipmq/qos1.pcap",
    "flymq/pipelining.pcap",
    "fq/session.pcap",
    "msgq/split_session.pcap",
    "kokaq/go1_session.pcap",
]


@pytest.mark.parametrize("name", SAMPLES)
def test_rows_do_not_depend_on_the_size_of_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tables(PCAPS / name, Options())
    monkeypatch.setattr(pipeline, "PART_BYTES", 100)
    monkeypatch.setattr(pipeline, "PART_MESSAGES", 3)
    in_parts = tables(PCAPS / name, Options())

    assert in_parts.keys() == whole.keys()
    assert {name: as_set(rows) for name, rows in in_parts.items()} == {
        name: as_set(rows) for name, rows in whole.items()
    }


@pytest.mark.parametrize("name", one_in(2, sorted(path.stem for path in (PCAPS / "faults").glob("*.pcap"))))
def test_problems_are_reported_once_in_any_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind each window, or at the end of each connection."""
    capture = PCAPS / f"faults/{name}.pcap"
    whole = tables(capture, Options())
    monkeypatch.setattr(windows, "WINDOW_BYTES", 2000)
    monkeypatch.setattr(pipeline, "MAX_PROBLEMS", 0)
    monkeypatch.setattr(problems, "BLOCK_ROWS", 1)
    often = tables(capture, Options())

    assert {name: as_set(rows) for name, rows in often.items()} == {name: as_set(rows) for name, rows in whole.items()}


def test_problems_of_a_live_connection_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = hostile.Capture()
    hostile.conflicts(capture, 400)
    (tmp_path / "conflicts.pcap").write_bytes(bytes(capture))
    monkeypatch.setattr(windows, "WINDOW_BYTES", 4000)
    monkeypatch.setattr(pipeline, "MAX_PROBLEMS", 100)
    given = 0

    def take(output: Output) -> None:
        nonlocal given
        given += output.rows.num_rows * (output.table == "problems")

    run = CapturePipeline(captures([str(tmp_path / "conflicts.pcap")]).captures[0], Options(), take)
    waiting = [run.stages.assembler.unreported_count for _ in run.steps()]

    assert given > 32 * 400 // 2  # and one for the bytes that are none of ours
    assert len(waiting) > 5
    assert max(waiting) < 100


def test_a_window_of_tiny_messages_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traffic.publishes(tmp_path / "publishes.pcap", 1500)
    monkeypatch.setattr(pipeline, "PART_BYTES", 1000)
    monkeypatch.setattr(pipeline, "PART_MESSAGES", 100)
    given: list[int] = []

    def take(output: Output) -> None:
        if output.table == "messages":
            given.append(output.rows.num_rows)

    CapturePipeline(captures([str(tmp_path / "publishes.pcap")]).captures[0], Options(), take).run()

    assert sum(given) > 1500
    assert max(given) < 200


def test_a_part_has_a_byte_for_each_message_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that were held come with the few bytes that decided what their connection speaks."""
    run = pipeline.Pipeline(Options(), lambda output: None)
    window = next(captures([str(PCAPS / "fq/session.pcap")]).captures[0].windows())
    chunks = run.assembler.feed(run.dissector.segments(window))
    found = run.framer.feed(chunks, run.assembler.flows)
    monkeypatch.setattr(run.framer, "feed", lambda *given: found)
    monkeypatch.setattr(run.assembler, "retain", lambda *given: None)

    list(run._framed(replace(chunks, length=np.ones_like(chunks.length))))

    assert sum(len(frames.start) for frames in found[0]) > len(chunks.length)
    assert run._part_bytes >= pipeline.PART_MESSAGES


def test_a_finished_pipeline_leaves_memory_at_once() -> None:
    """Nothing in it refers back to it: many small captures would else be held until garbage is collected.

    Its caller may: ``show`` asks the pipeline for its first packet when it gets rows.
    """
    (capture,) = captures([str(PCAPS / "fq" / "session.pcap")]).captures

    def stages_of_a_read_capture() -> Callable[[], object]:
        def emit(output: Output) -> None:
            assert run.first_ns is not None

        run = CapturePipeline(capture, Options(), emit)
        run.run()
        return weakref.ref(run.stages)

    gc.disable()
    try:
        assert stages_of_a_read_capture()() is None
    finally:
        gc.enable()
