"""Enumerations in protocol tables: the name of a number is in the column beside it.

Expected names come from truth files and from the tables of the protocols' documents.
"""

import json
from collections import Counter
from pathlib import Path

import mqpcap
import mqpcap.protocols
from mqpcap.tables.schemas import protocol_schema

ROOT = Path(__file__).parents[2]


def events(name: str) -> list[dict[str, object]]:
    truth = json.loads((ROOT / f"tests/truth/{name}.truth.json").read_text())
    return [
        event for connection in truth["connections"] for event in connection.get("events", connection.get("frames"))
    ]


def test_types_of_kokaq_have_the_names_of_the_truth() -> None:
    expected = Counter(str(event["message_type_name"]).lower() for event in events("kokaq/go1_session"))

    table = mqpcap.open(ROOT / "pcaps/kokaq/go1_session.pcap").protocol("kokaq")

    assert Counter(name.as_py().lower() for name in table["message_type_name"]) == expected
    assert set(zip(table["tag"].to_pylist(), table["tag_name"].to_pylist(), strict=True)) <= {
        (0, None), (1, "Metadata"), (2, "Payload"), (None, None),
    }  # fmt: skip


def test_qos_has_the_names_of_the_document() -> None:
    sent = [event["fields"]["qos"] for event in events("blipmq/qos1") if event["type_name"] == "PUBLISH"]  # type: ignore[index]

    rows = mqpcap.read(
        ROOT / "pcaps/blipmq/qos1.pcap", table="blipmq", filter='op == "PUBLISH"', columns=["qos", "qos_name"]
    ).to_pylist()

    assert Counter(row["qos"] for row in rows) == Counter(sent)
    assert {(row["qos"], row["qos_name"]) for row in rows} == {(0, "AtMostOnce"), (1, "AtLeastOnce")}


def test_names_select_and_group_messages() -> None:
    capture = ROOT / "pcaps/fq/session.pcap"

    (row,) = mqpcap.stats(capture, by=["bind_flags_name"], filter="bind_flags_name == permanent").to_pylist()

    assert (row["bind_flags_name"], row["messages"]) == ("permanent", 1)
    assert [m.message["op"] for m in mqpcap.show(capture, "bind_flags == 0x110")] == ["bind_request"]


def test_a_column_of_names_is_beside_its_numbers() -> None:
    columns = protocol_schema(mqpcap.protocols.protocols()["fq"]).names

    assert columns.index("bind_flags_name") == columns.index("bind_flags") + 1
    assert "binding_id_name" not in columns  # one number has a name, which the metadata have
