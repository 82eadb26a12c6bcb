"""Emitted rows as tables in memory."""

import pyarrow as pa
from dissection import Dissection
from table_rows import rows_of

from mqpcap.capture import Capture
from mqpcap.tables.output import Output, with_capture
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
