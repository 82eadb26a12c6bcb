"""The reference of a protocol: fields in wire order with type, condition, column and values, and what answers them."""

import json

import pytest
from running import run

import mqpcap
from mqpcap.schema.fields import U8, U32, Array, Bytes, GreedyBytes, If, Text
from mqpcap.schema.message import message_class
from mqpcap.schema.reference import fields_of

EXAMPLE = message_class(
    __name__, "ReferenceExample", "example", "A message.",
    U8("kind", names={1: "one"}), If(U32("ttl", unit="ms"), when="kind", equals=1),
    Text("key", prefix=2, secret=True), Array("ids", U32("id"), count="kind"), Bytes("mark", size=4, column=None),
    GreedyBytes("payload_", body=True),
)  # fmt: skip


def test_fields_have_what_the_class_says() -> None:
    rows = {row["field"]: row for row in fields_of(EXAMPLE)}

    assert list(rows) == ["kind", "ttl", "key", "ids", "mark", "payload_"]
    assert rows["kind"]["values"] == {"1": "one"}
    assert (rows["ttl"]["when"], rows["ttl"]["about"]) == ("kind is 1", "in ms")
    assert (rows["key"]["type"], rows["key"]["about"]) == ("Text (length of 2 bytes in front)", "secret")
    assert rows["ids"]["type"] == "Array of U32 (count in kind)"
    assert (rows["mark"]["type"], rows["mark"]["column"]) == ("Bytes (size 4)", None)
    assert (rows["payload_"]["column"], rows["payload_"]["about"]) == ("payload", "body")


@pytest.mark.parametrize("entry", mqpcap.protocols(), ids=lambda entry: entry["name"])
def test_every_operation_of_every_protocol_is_listed(entry: dict[str, object]) -> None:
    name = str(entry["name"])
    said = json.loads(run("protocols", name.upper(), "--json").stdout)

    assert said == json.loads(json.dumps(mqpcap.protocols(name)))
    assert {message["operation"] for message in said[0]["messages"]} >= set(said[0]["operations"])
    assert run("protocols", name).stdout.startswith(f"{name}: {entry['title']}\n")
    assert run("protocols", name, "--markdown").stdout.count("\n## ") == len(said[0]["messages"])


def test_other_name_is_refused_by_command_and_call() -> None:
    with pytest.raises(ValueError, match="no protocol") as refused:
        mqpcap.protocols("nats")
    said = run("protocols", "nats")
    assert (said.exit_code, said.stderr) == (2, f"mqpcap: {refused.value}\n")
    assert run("protocols", "--markdown").exit_code == 2


def test_masks_of_bits_are_those_of_the_whole_number() -> None:
    """MQTT 5.0, 2.1.1: the type of a packet is the upper half of the first byte."""
    (mqtt,) = mqpcap.protocols("mqtt")
    types = {row["field"]: row["type"] for row in mqtt["messages"][0]["fields"]}
    assert types["packet_type"] == "Bits (of first_byte, mask 0xf0)"
    assert types["qos"] == "Bits (of first_byte, mask 0x6)"
