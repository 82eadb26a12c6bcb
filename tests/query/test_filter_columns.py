"""The names of filters: what each stands for, and which is meant by one that is not there."""

import pytest

from mqpcap.errors import QueryError
from mqpcap.protocols import protocols
from mqpcap.query.filter_columns import bodies, column, names
from mqpcap.query.values import ValueKind
from mqpcap.tables.schemas import MESSAGES, protocol_schema


def places(name: str) -> set[tuple[str, tuple[str, ...]]]:
    return {(source.table, source.path) for source in column(name).sources}


def test_every_column_of_messages_is_a_name_and_its_own() -> None:
    """What exchanges have, too, is the message's; a time is that in nanoseconds."""
    for field in MESSAGES:
        assert places(field.name) == {("messages", ("ts_ns" if field.name == "ts" else field.name,))}
    assert places("exchange.status") == {("exchanges", ("status",))}
    assert places("latency") == places("latency_ns") == {("exchanges", ("latency_ns",))}
    assert places("exchange.state") == places("state") == {("exchanges", ("state",))}


def test_a_field_is_of_every_protocol_that_has_it() -> None:
    assert places("flymq.topic") == {("flymq", ("topic",))}
    assert places("topic") == {("messages", ("destination",))}  # what each calls its topic
    assert {("flymq", ("key",))} == places("key")
    with_body = {name for name, protocol in protocols().items() if "body" in protocol_schema(protocol).names}
    assert {table for table, _ in places("body")} == with_body > {"fq", "mqtt"}
    assert places("body") == {place for name in with_body for place in places(f"{name}.body")}


def test_fields_inside_of_lists_are_reached_by_their_path() -> None:
    assert places("records.value") == {("flymq", ("records", "value"))}
    assert column("records.value").kinds == {ValueKind.BYTES}
    assert column("fq.hops").kinds == {ValueKind.TEXT}


def test_payload_is_the_column_that_users_send_under_any_name() -> None:
    """The contract: body, value, inner_value, data, records.value, msg, and a document with its body."""
    found = {path for _, path in places("payload")}

    assert {("body",), ("value",), ("data",), ("records", "value"), ("msg",)} <= found
    assert found == {path for name in protocols() for path, _ in bodies(name)}
    assert not found & {("password",), ("api_key",), ("client_key",), ("key",)}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("connection_id", ValueKind.CONNECTION), ("connection", ValueKind.CONNECTION), ("client", ValueKind.ENDPOINT),
        ("server_port", ValueKind.INTEGER), ("src_ip", ValueKind.ADDRESS), ("end_ts_ns", ValueKind.TIME),
        ("latency", ValueKind.DURATION), ("op", ValueKind.WORD), ("client_name", ValueKind.TEXT),
        ("resynced", ValueKind.TRUTH), ("is_request", ValueKind.TRUTH), ("flymq.offset", ValueKind.INTEGER),
        ("blipmq.body", ValueKind.BYTES),
    ],
)  # fmt: skip
def test_values_are_of_the_kind_of_their_column(name: str, kind: ValueKind) -> None:
    assert column(name).kinds == {kind}


@pytest.mark.parametrize(
    ("name", "near"),
    [("destinaton", "destination"), ("FLYMQ.KYE", "flymq.key"), ("exchange.stat", "exchange.state")],
)
def test_a_name_that_is_not_there_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(QueryError, match=f"there is no column '{name}'; did you mean .*{near}"):
        column(name)


def test_a_name_like_none_says_what_names_are() -> None:
    with pytest.raises(QueryError, match="no column 'zzzzzz'; names are columns of messages and exchanges, and fields"):
        column("zzzzzz")


def test_hidden_columns_are_no_names() -> None:
    hidden = {f"{name}.{x.name}" for name, protocol in protocols().items() for x in protocol.derived if x.hidden}
    read = {f"{name}.{x}" for name, protocol in protocols().items() for x in protocol.hidden}
    made = {f"{name}.{x.name}" for name, protocol in protocols().items() for x in protocol.derived if not x.hidden}

    assert hidden and read - made
    assert (hidden | (read - made)).isdisjoint(names())
