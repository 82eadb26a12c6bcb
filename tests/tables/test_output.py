"""Emitted rows as tables in memory, and what pairs carry of their messages."""

from itertools import repeat

import pyarrow as pa
import pytest
from dissection import Dissection
from table_rows import rows_of

from mqpcap.capture import Capture, captures
from mqpcap.correlate import waiting_rows
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.query.selection import select_rows
from mqpcap.tables.output import KNOWN_OF_ENDS, Output, end_rows, has_end, with_capture
from mqpcap.tables.schemas import TABLES


def test_rows_of_a_table_are_joined_in_order() -> None:
    dissection = Dissection(Capture(["a.pcap"]))
    fields = pa.table({"topic": ["a"]})
    for offset in (5, 3):
        dissection.add(Output("messages", rows_of("messages", {"stream_offset": offset}), "blipmq", fields))
        dissection.add(Output("problems", rows_of("problems", {"stream_offset": offset})))

    assert dissection.messages["stream_offset"].to_pylist() == [5, 3]
    assert dissection.problems["stream_offset"].to_pylist() == [5, 3]
    assert [chunk.fields for chunk in dissection.chunks] == [fields, fields]
    assert dissection.exchanges.num_rows == 0 and dissection.exchanges.schema == TABLES["exchanges"]


def test_the_name_of_the_capture_stands_in_its_place() -> None:
    rows = rows_of("exchanges", {"request_offset": 1}, {"request_offset": 2}).drop_columns("capture")

    named = with_capture("exchanges", rows, "a\udcff.pcap")

    assert named.schema == TABLES["exchanges"]
    assert named["capture"].to_pylist() == ["a\\xff.pcap"] * 2


@pytest.mark.parametrize("waiting_bytes", [0, 4 << 20])
@pytest.mark.parametrize("name", ["flymq/core", "mqtt/v5_paho", "faults/blipmq_lost"])
def test_pairs_carry_what_is_asked_of_both_messages(
    name: str, waiting_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory and from the file; servers ask, too. Each end is the message that it names."""
    monkeypatch.setattr(waiting_rows, "MAX_WAITING_BYTES", waiting_bytes)
    outputs: list[Output] = []
    asked = [("messages", x) for x in ("frame_len", "op", "src_ip", "dst_port", "ts_ns", "first_packet")]
    (capture,) = captures([f"pcaps/{name}.pcap"]).captures
    options = Options(carried=frozenset([*asked, ("flymq", "topic"), ("mqtt", "topic")]) - KNOWN_OF_ENDS)
    CapturePipeline(capture, options, outputs.append).run()
    messages = {}
    for output in outputs:
        if output.fields is not None:
            topics = output.fields["topic"].to_pylist() if output.protocol in ("flymq", "mqtt") else repeat(None)
            for row, topic in zip(output.rows.to_pylist(), topics, strict=False):
                place = row["connection_id"], row["direction"], row["stream_offset"]
                messages[place] = [*(row[column] for _, column in asked), topic]

    count = 0
    for exchanges in (output.rows for output in outputs if output.table == "exchanges" and output.rows.num_rows):
        for end in ("request", "reply"):
            ends = select_rows(end_rows(exchanges, end), has_end(exchanges, end))
            has_topic = ends.fields is not None and "topic" in ends.fields.column_names
            topics = ends.fields["topic"].to_pylist() if has_topic and ends.fields is not None else repeat(None)
            for row, topic in zip(ends.rows.to_pylist(), topics, strict=False):
                place = row["connection_id"], row["direction"], row["stream_offset"]
                assert messages[place] == [*(row[column] for _, column in asked), topic]
                count += 1
    assert count > 20


def test_exchanges_without_a_wish_have_the_columns_of_their_table() -> None:
    outputs: list[Output] = []
    (capture,) = captures(["pcaps/flymq/core.pcap"]).captures
    CapturePipeline(capture, Options(), outputs.append).run()

    assert {tuple(x.rows.column_names) for x in outputs if x.table == "exchanges"} == {tuple(TABLES["exchanges"].names)}
