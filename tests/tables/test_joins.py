"""The joins that the README names, on engines that read the tables."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

import mqpcap

ROOT = Path(__file__).resolve().parents[2]
CONDITION = re.search(r"`(messages\.correlation_id = .*?)`", (ROOT / "README.md").read_text(encoding="utf-8"))
QUESTION = "SELECT count(*) AS n FROM messages JOIN blipmq ON {} AND messages.stream_offset = blipmq.stream_offset "
KEY = "messages.connection_id = blipmq.connection_id AND messages.direction = blipmq.direction"


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_text_of_messages_is_joined_with_numbers_of_protocols(engine: str) -> None:
    """Both types are the contract's: text for the ids of all protocols, and decimal(20, 0) for 64 bits without sign."""
    library = pytest.importorskip(engine, reason=f"{engine} is in the test extra")
    capture = mqpcap.open(ROOT / "pcaps" / "blipmq" / "qos1.pcap")
    messages, blipmq = capture.messages, capture.blipmq
    assert (messages.schema.field("correlation_id").type, blipmq.schema.field("correlation_id").type) == (
        pa.string(), pa.decimal128(20, 0),
    )  # fmt: skip
    assert CONDITION is not None
    question = QUESTION.format(CONDITION[1]) + f"AND {KEY}"

    if engine == "duckdb":
        count = library.connect().sql(question).fetchall()[0][0]
    else:
        tables = {"messages": library.from_arrow(messages), "blipmq": library.from_arrow(blipmq)}
        count = library.SQLContext(tables).execute(question).collect()["n"].item()

    assert count == messages.num_rows == 242
