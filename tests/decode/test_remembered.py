"""Which messages have a number that stands for a text. What is remembered is tested with MQTT's topic aliases."""

from dataclasses import replace

import numpy as np
import pytest
from shapes import message, protocol

from mqpcap.decode.columns import ColumnReader, Spans
from mqpcap.schema.fields import U8, Array, If, Text
from mqpcap.schema.protocol import ANY, Remembered

TOY = protocol(
    toy=message(
        "toy",
        Text("topic", prefix=1),
        Array("tags", message("tag", U8("kind"), If(U8("n"), when="kind", unless=9)), prefix=1),
        If(U8("alias"), left=1),
    )
)
FRAMES = (b"\1a\0\7", b"\0\0", b"\0\2\1\5\2\6", b"\1b\3\x09\2\6\2\7\x08", b"\0\1\x09")


@pytest.mark.parametrize(
    ("remembered", "rows", "keys"),
    [
        (Remembered("topic", key="alias"), [0, 3], [7, 8]),
        (Remembered("topic", key="tags.n"), [2, 3], [5, 6]),
        (Remembered("topic", key="tags.n", item=("kind", 2)), [2, 3], [6, 6]),
        (Remembered("topic", key="tags.n", item=("kind", 1)), [2], [5]),
        (Remembered("topic", key="tags.n", item=("kind", 3)), [], []),
    ],
)
@pytest.mark.parametrize("made", [None, ("resolved_topic",)])
def test_the_first_item_that_has_the_number_counts(
    remembered: Remembered, rows: list[int], keys: list[int], made: tuple[str, ...] | None
) -> None:
    n, ends = len(FRAMES), np.cumsum([len(frame) for frame in FRAMES])
    spans = Spans(
        np.frombuffer(b"".join(FRAMES), np.uint8), ends - [len(frame) for frame in FRAMES], ends, np.zeros(n, np.int32),
        np.full(n, ANY, np.int64), np.zeros(n, np.uint8),
    )  # fmt: skip

    records = ColumnReader(replace(TOY, remembered=(remembered,)), made).records(spans)

    found = records.remembered_keys["resolved_topic"]
    assert records.flaw.tolist() == [0] * n
    assert [x.tolist() for x in found] == [rows, keys]
    assert records.table["resolved_topic"].to_pylist() == ["a", "", "", "b", ""]
