"""Values of messages by the names of filters."""

import subprocess
import sys
from decimal import Decimal

import pytest

import mqpcap
from mqpcap.errors import QueryError
from mqpcap.listing.field_values import FieldReader

CORE = "pcaps/flymq/core.pcap"


def test_values_are_those_of_the_message_its_exchange_and_its_protocol() -> None:
    """CREATE_TOPIC of packet 10, answered in packet 11: 8.086 ms later."""
    reader = FieldReader(("frame.number", "tcp.stream", "connection", "client", "server_port", "op", "topic",
                          "flymq.topic", "blipmq.topic", "state", "how", "latency", "request_packet", "reply_packet",
                          "is_reply", "ts", "reply_ts_ns"))  # fmt: skip
    (request,) = mqpcap.show(CORE, "packet == 10")
    (reply,) = mqpcap.show(CORE, "packet == 11")

    values = dict(zip(reader.names, reader.values(request), strict=True))
    assert values | {"reply_ts_ns": 0} == {
        "frame.number": 10, "tcp.stream": 0, "connection": "c1", "client": "127.0.0.1:40730", "server_port": 9092,
        "op": "CREATE_TOPIC", "topic": "orders", "flymq.topic": "orders", "blipmq.topic": None, "state": "answered",
        "how": "order", "latency": 8_086_000, "request_packet": 10, "reply_packet": 11, "is_reply": False,
        "ts": "2026-11-21T05:23:00.013153Z", "reply_ts_ns": 0,
    }  # fmt: skip
    of_reply = dict(zip(reader.names, reader.values(reply), strict=True))
    assert (of_reply["request_packet"], of_reply["reply_packet"], of_reply["is_reply"]) == (10, 11, True)
    assert of_reply["reply_ts_ns"] == reply.message["ts_ns"] == values["reply_ts_ns"]


def test_times_as_wireshark_names_them_are_seconds_and_filters_take_them() -> None:
    """Packets 10 and 11 of the capture, 8.086 ms apart."""
    names = ("frame.time_epoch", "frame.time_relative", "frame.time_delta_displayed", "ts_ns")
    reader, (first, *_) = FieldReader(names), list(mqpcap.show(CORE))
    begin_ns = first.first_ns

    rows = [reader.values(row) for row in mqpcap.show(CORE, "packet in (10, 11)")]

    for epoch, relative, _, ts_ns in rows:
        assert Decimal(str(epoch)) * 10**9 == ts_ns
        assert Decimal(str(relative)) * 10**9 == int(str(ts_ns)) - begin_ns
    assert [row[2] for row in rows] == ["0.000000000", "0.008086000"]
    for name, value in zip(names[:2], rows[1][:2], strict=True):
        assert [row["first_packet"] for row in mqpcap.show(CORE, f"{name} == {value}")] == [11]


def test_fields_in_lists_are_lists() -> None:
    values = [FieldReader(("flymq.records.offset",)).values(row)[0] for row in
              mqpcap.show("pcaps/flymq/fetch.pcap", "op == FETCH and records.offset exists")]  # fmt: skip

    assert values and all(isinstance(value, list) for value in values)


def test_only_the_columns_that_are_read_are_named() -> None:
    reader = FieldReader(("topic", "flymq.partition", "flymq.key", "records.key"))

    assert set(reader.columns("flymq")) == {"partition", "key", "records"}
    assert set(reader.columns("fq")) == set()


def test_an_unknown_name_names_its_neighbours() -> None:
    with pytest.raises(QueryError, match="did you mean"):
        FieldReader(("flymq.partitio",))


def test_names_of_json_are_looked_up_with_the_first_line() -> None:
    """Every `show` imports what makes lines; looking up a name reads the descriptions of all protocols."""
    code = """
import mqpcap.listing.field_lines
from mqpcap.query import filter_columns
print(filter_columns._protocol_fields.cache_info().currsize)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout == "0\n"
