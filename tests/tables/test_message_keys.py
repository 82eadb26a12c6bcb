"""A message has the same number in every table."""

import pyarrow as pa

from mqpcap.tables.message_keys import NO_KEY, message_keys, reply_keys, request_keys

MESSAGES = pa.table(
    {
        "connection_id": [7, 7, 7, -(1 << 63)],
        "stream_offset": [0, 0, 40, (1 << 62) - 1],
        "direction": ["c2s", "s2c", "c2s", "c2s"],
    }
)


def test_messages_of_any_place_have_different_numbers() -> None:
    assert len(set(message_keys(MESSAGES).tolist())) == 4


def test_an_exchange_has_the_numbers_of_its_messages() -> None:
    exchanges = pa.table(
        {
            "connection_id": [7, 7, 7],
            "request_direction": ["c2s", "c2s", "s2c"],
            "request_offset": pa.array([0, 40, 0], pa.int64()),
            "reply_offset": pa.array([0, None, None], pa.int64()),
        }
    )
    asked, said, later, _ = message_keys(MESSAGES).tolist()

    assert request_keys(exchanges).tolist() == [asked, later, said]  # the last was asked by the server
    assert reply_keys(exchanges).tolist() == [said, NO_KEY, NO_KEY]
