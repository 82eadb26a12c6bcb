"""Callbacks of the pipeline: observers see every row of a stage, filters leave rows out, columns are appended."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mqpcap.capture import captures
from mqpcap.hooks import StageHooks
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.tables.connections import EndedConnections
from mqpcap.tables.output import Output
from mqpcap.tcp.headers import Segments

CAPTURE = Path(__file__).parent.parent / "pcaps/blipmq/qos1.pcap"


def rows(hooks: StageHooks, table: str = "messages") -> list[dict[str, object]]:
    """The rows of a table."""
    outputs: list[Output] = []
    CapturePipeline(captures([str(CAPTURE)]).captures[0], Options(), outputs.append, hooks=hooks).run()
    return [row for output in outputs if output.table == table for row in output.rows.to_pylist()]


def test_observers_change_nothing_and_see_all() -> None:
    counts = {"packets": 0, "bytes": 0, "ended": 0, "protocols": 0}

    def count(name: str, number: int) -> None:
        counts[name] += number

    hooks = StageHooks(
        packets=lambda window, segments: count("packets", len(window.packet_number)),
        chunks=lambda chunks: count("bytes", int((chunks.offset + chunks.length).max(initial=0))),
        ended=lambda ended: count("ended", len(ended.numbers)),
        correlation=lambda protocol, correlation: count("protocols", 1),
    )

    assert rows(hooks) == rows(StageHooks())
    assert counts["packets"] == rows(StageHooks(), "captures")[0]["packets"]
    assert counts["ended"] == len(rows(StageHooks(), "connections"))
    assert counts["bytes"] > 0 and counts["protocols"] == 1


def test_segments_that_a_filter_refuses_are_not_reassembled() -> None:
    def from_server(segments: Segments) -> np.ndarray:
        return np.asarray(segments.sport == 5555)

    directions = {row["direction"] for row in rows(StageHooks(segments=from_server))}

    assert directions == {"s2c"}


def test_columns_are_appended_row_for_row() -> None:
    def clients(ended: EndedConnections) -> dict[str, pa.Array]:
        ports = ended.flows.columns(ended.numbers).ports(ended.client)
        return {"port_again": pa.array(ports)}

    hooks = StageHooks(
        message_columns=(
            lambda program, frames, records: {"offset_again": pa.array(frames.offset)},
            lambda program, frames, records: {"layout_count": pa.array([len(program.layouts)] * len(frames.offset))},
        ),
        connection_columns=clients,
    )

    assert all(row["offset_again"] == row["stream_offset"] and row["layout_count"] for row in rows(hooks))
    assert all(row["port_again"] == row["client_port"] for row in rows(hooks, "connections"))


@pytest.mark.parametrize("protocols", [frozenset(), frozenset({"fq"}), frozenset({"blipmq"}), None])
def test_messages_of_other_protocols_are_not_decoded(protocols: frozenset[str] | None) -> None:
    outputs: list[Output] = []
    CapturePipeline(captures([str(CAPTURE)]).captures[0], Options(protocols=protocols), outputs.append).run()

    tables = {output.table for output in outputs}
    assert ("messages" in tables) == (protocols is None or "blipmq" in protocols)
    assert {"connections", "captures"} <= tables
