"""Pairs with the columns of their messages."""

import doctest
from pathlib import Path

import pytest

import mqpcap
from mqpcap.tables import joining
from mqpcap.tables.joining import KEY, PREFIXES, Part

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


@pytest.fixture(scope="module")
def capture() -> mqpcap.Recording:
    return mqpcap.open([PCAPS / "blipmq/qos1.pcap", PCAPS / "flymq/core.pcap"])


@pytest.mark.parametrize("table", ["exchanges", "deliveries"])
def test_each_pair_has_its_message(capture: mqpcap.Recording, table: str) -> None:
    pairs = capture.table(table)
    messages = {tuple(m[name] for name in KEY): m for m in capture.messages.to_pylist()}
    parts: tuple[Part, ...] = ("request", "reply") if table == "exchanges" else ("publish", "delivery")

    for part in parts:
        prefix = PREFIXES[part]
        rows = mqpcap.join(pairs, capture.messages, part)

        assert rows.select(pairs.column_names) == pairs
        for row in rows.to_pylist():
            if table == "exchanges":
                asked = row["request_direction"]
                key = row["connection_id"], asked if part == "request" else {"c2s": "s2c", "s2c": "c2s"}[asked]
            else:
                key = row[f"{prefix}connection_id"], "c2s" if part == "publish" else "s2c"
            found = messages.get((row["capture"], *key, row[f"{prefix}offset"]))
            assert row[f"{prefix}frame_len"] == (None if found is None else found["frame_len"])


def test_columns_of_a_protocol_join_as_well(capture: mqpcap.Recording) -> None:
    rows = mqpcap.join(mqpcap.join(capture.exchanges, capture.messages), capture.protocol("flymq"), "reply")

    assert {"request_op", "reply_partition", "reply_topic"} <= set(rows.column_names)


def test_other_rows_are_refused(capture: mqpcap.Recording) -> None:
    with pytest.raises(ValueError, match="have no 'publish'"):
        mqpcap.join(capture.exchanges, capture.messages, "publish")
    with pytest.raises(ValueError, match="have no 'publish'"):
        mqpcap.join(capture.connections, capture.messages)
    with pytest.raises(ValueError, match="rows without direction are no messages"):
        mqpcap.join(capture.exchanges, capture.messages.drop_columns("direction"))


def test_a_recording_is_a_context_manager_and_reads_again() -> None:
    with mqpcap.open(PCAPS / "blipmq/qos1.pcap") as capture:
        rows = capture.messages

    assert capture.messages == rows


def test_examples_give_what_they_say() -> None:
    assert doctest.testmod(joining) == (0, 4)  # an ACK has 21 bytes: 4 + 1 + 8 of the header, 8 of the subscription
