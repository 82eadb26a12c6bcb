"""A row as a line of JSON."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
from exports import RECORDS

from mqpcap.tables.json_lines import json_object, json_text, json_time, with_exact_numbers


def one_line(**columns: pa.Array) -> str:
    (row,) = pa.RecordBatch.from_pydict(columns).to_pylist()
    return json_text(json_object(row))


def test_line_holds_text_numbers_times_and_bytes() -> None:
    time = datetime(2026, 11, 21, 7, 0, 0, 120, tzinfo=UTC)

    line = one_line(
        ts=pa.array([time], pa.timestamp("us", tz="UTC")),
        tag=pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)),
        text=pa.array(["zażółć\n"]),
        body=pa.array([b"plain\ttext"]),
        binary=pa.array([b"\x00\xff"]),
        control=pa.array([b"\x1b[31m"]),
        nothing=pa.array([None], pa.binary()),
        hops=pa.array([["10.0.0.1"]]),
        records=pa.array([[{"offset": 1, "key": None, "value": b"\xfe"}]], RECORDS),
    )

    assert line == (
        '{"ts":"2026-11-21T07:00:00.000120Z","tag":18446744073709551615,"text":"zażółć\\n",'
        '"body":"plain\\ttext","binary_hex":"00ff","control":"\\u001b[31m",'
        '"hops":["10.0.0.1"],"records":[{"offset":1,"value_hex":"fe"}]}'
    )


def test_numbers_that_readers_would_round_are_strings() -> None:
    """jq 1.6 and JavaScript keep 53 bits of an integer."""
    line = one_line(
        ts_ns=pa.array([1795238649420215001]), first_ts_ns=pa.array([1]), reply_ts_ns=pa.array([2]),
        publish_connection_id=pa.array([2**62]), latency_ns=pa.array([43599000]), start_ns=pa.array([3]),
    )  # fmt: skip

    assert line == (
        '{"ts_ns":"1795238649420215001","first_ts_ns":"1","reply_ts_ns":"2","publish_connection_id":'
        '"4611686018427387904","latency_ns":43599000,"start_ns":"3"}'
    )
    nested = {"captures": [{"first_ts_ns": 7, "files": ({"last_ts_ns": 8, "tick_ns": 1, "ts_ns": None},)}]}
    assert with_exact_numbers(nested) == {
        "captures": [{"first_ts_ns": "7", "files": [{"last_ts_ns": "8", "tick_ns": 1, "ts_ns": None}]}]
    }


def test_a_time_has_nine_digits_where_the_capture_has_nanoseconds() -> None:
    assert json_time(1_795_238_649_420_215_000) == "2026-11-21T05:24:09.420215Z"
    assert json_time(1_795_238_649_420_215_001) == "2026-11-21T05:24:09.420215001Z"


def test_no_character_that_a_terminal_obeys_is_in_a_line() -> None:
    hostile = "".join(map(chr, range(0xA0))) + "\u202e\u2028\u2066"

    line = one_line(text=pa.array([hostile]))

    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or ord(char) > 0x2000 for char in line)
    assert json.loads(line) == {"text": hostile}
