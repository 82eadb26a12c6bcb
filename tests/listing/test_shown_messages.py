"""The columns that a list of messages keeps."""

from message_rows import capture_of

from mqpcap.listing.shown_messages import ShownMessages
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.query import query
from mqpcap.tables.output import Output


def test_columns_that_neither_the_list_nor_the_filter_uses_are_dropped() -> None:
    outputs: list[Output] = []
    CapturePipeline(capture_of("blipmq/qos1"), Options(), outputs.append).run()
    messages = next(output for output in outputs if output.table == "messages")

    kept = ShownMessages(query("blipmq.qos == 1"), lambda protocol: ("body",)).drop_unused_columns(messages)

    assert kept.fields is not None and set(kept.fields.column_names) == {"op", "body", "qos"}
    assert kept.fields.num_rows == messages.rows.num_rows
