"""One protocol, one place: a module with all that a description can say reaches every command and Scapy.

The module is put into the folder of the protocols of a program that is otherwise ours; nothing else knows it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import depot
import pyarrow.dataset as ds
import pytest

OPS = [
    "LOGIN", "WELCOME", "STORE", "STORED", "STORE", "STORED", "LOGIN", "WELCOME", "TAKE", "TAKEN", "TAKE", "REFUSED",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program in ``src`` and the capture."""
    made = tmp_path_factory.mktemp("depot")
    depot.program(made / "src")
    depot.capture(made)
    return made


def run(folder: Path, *arguments: str) -> str:
    path = os.pathsep.join([str(folder / "src"), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def mqpcap(folder: Path, *arguments: str) -> str:
    return run(folder, "-m", "mqpcap", *arguments)


def lines(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in mqpcap(folder, "show", "--json", *arguments, "depot.pcap").splitlines()]


@pytest.fixture(scope="module")
def shown(folder: Path) -> list[dict[str, Any]]:
    return lines(folder)


@pytest.fixture(scope="module")
def tables(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of an export, by table."""
    mqpcap(folder, "export", "-q", "depot.pcap", "--out", "tables")
    names = [path.name for path in (folder / "tables").iterdir() if path.is_dir()]
    read = {name: ds.dataset(folder / "tables" / name, partitioning="hive").to_table().to_pylist() for name in names}
    return {name: sorted(rows, key=lambda row: row.get("ts_ns", 0)) for name, rows in read.items()}


def test_it_is_listed_with_its_ports_and_operations(folder: Path) -> None:
    (listed,) = [x for x in json.loads(mqpcap(folder, "protocols", "--json")) if x["name"] == "depot"]

    assert listed["ports"] == [5100]
    assert listed["dialects"] == ["narrow", "wide"]


def test_messages_have_what_the_envelope_says(shown: list[dict[str, Any]]) -> None:
    assert [x["op"] for x in shown] == OPS
    assert [x.get("destination") for x in shown if x["op"] in ("STORE", "TAKE", "TAKEN")] == ["nuts"] * 4 + ["void"]
    assert [x.get("body_len") for x in shown if x["op"] in ("STORE", "TAKEN")] == [5, 6, 5]
    assert [x.get("correlation_id") for x in shown if x["op"] == "TAKE"] == ["1", "2"]
    assert (shown[-1]["status"], shown[-1]["error_code"], shown[-1]["error_text"]) == ("error", 4, "nothing there")


def test_the_dialect_is_that_of_the_variant(shown: list[dict[str, Any]]) -> None:
    assert [x["dialect"] for x in shown if x["op"] == "STORE"] == ["narrow", "wide"]
    assert {x["dialect"] for x in shown if x["op"] != "STORE"} == {"narrow"}


def test_the_login_names_the_client_of_its_connection(shown: list[dict[str, Any]]) -> None:
    assert [x["client_name"] for x in shown] == ["ann"] * 6 + ["bea"] * 6


def test_fields_are_shown_under_their_own_names(shown: list[dict[str, Any]]) -> None:
    assert shown[2]["fields"] == {"ticket": 1, "shelf": "nuts", "labels": ["dry"], "goods": "hazel", "weight": 5}


def test_secrets_are_hidden_unless_asked_for(folder: Path, shown: list[dict[str, Any]]) -> None:
    hidden = json.dumps(shown)
    asked = json.dumps(lines(folder, "--show-secrets"))

    assert [secret for secret in depot.SECRETS if secret in hidden] == []
    assert [secret for secret in depot.SECRETS if secret not in asked] == []


def test_the_text_for_people_has_the_body(folder: Path) -> None:
    text = mqpcap(folder, "show", "depot.pcap")

    assert [line.count('"hazel"') for line in text.splitlines() if "  STORE  " in line] == [1, 0]
    assert len(text.splitlines()) == len(depot.DIALOGUE)


def test_explain_knows_the_fields_and_keeps_the_secret(folder: Path) -> None:
    login = mqpcap(folder, "explain", "depot.pcap", "--at", "5")  # after four packets of the handshakes
    wide = mqpcap(folder, "explain", "depot.pcap", "--at", "9")

    assert "Depot / Depot LOGIN" in login and 'user = "ann"' in login
    assert "open sesame" not in login and b"open sesame".hex() not in login
    assert "Depot STORE, wide" in wide and "goods" in wide


def test_an_export_has_its_table(tables: dict[str, list[dict[str, Any]]]) -> None:
    assert [row["goods"] for row in tables["depot"] if row["goods"] is not None] == [b"hazel", b"walnut", b"hazel"]
    assert [row["weight"] for row in tables["depot"] if row["weight"] is not None] == [5, 6, 5]
    assert {row["pass_phrase"] for row in tables["depot"]} == {None, "***"}
    assert {row["protocol"] for row in tables["messages"]} == {"depot"}


def test_requests_have_their_answers(tables: dict[str, list[dict[str, Any]]]) -> None:
    found = sorted((x["client_name"], x["op"], x["state"], x["status"], x["latency_ns"]) for x in tables["exchanges"])

    assert found == [
        ("ann", "LOGIN", "answered", "ok", 1_000_000),
        ("ann", "STORE", "answered", "ok", 1_000_000),
        ("ann", "STORE", "answered", "ok", 1_000_000),
        ("bea", "LOGIN", "answered", "ok", 1_000_000),
        ("bea", "TAKE", "answered", "error", 1_000_000),
        ("bea", "TAKE", "answered", "ok", 1_000_000),
    ]


def test_a_delivery_has_its_publish(tables: dict[str, list[dict[str, Any]]]) -> None:
    (delivery,) = tables["deliveries"]
    (stored, _) = (x for x in tables["messages"] if x["op"] == "STORE")
    (taken,) = (x for x in tables["messages"] if x["op"] == "TAKEN")

    assert (delivery["destination"], delivery["key"], delivery["how"]) == ("nuts", "nuts", "shelf_and_goods")
    assert (delivery["publish_offset"], delivery["deliver_offset"]) == (stored["stream_offset"], taken["stream_offset"])
    assert delivery["latency_ns"] == 7_000_000  # packets 7 and 14, a millisecond apart each


def test_bodies_are_cut_in_its_own_column(folder: Path) -> None:
    mqpcap(folder, "export", "-q", "--bodies", "3", "depot.pcap", "--out", "cut")
    rows = ds.dataset(folder / "cut" / "depot").to_table().sort_by("ts_ns").to_pylist()

    assert [row["goods"] for row in rows if row["goods"] is not None] == [b"haz", b"wal", b"haz"]
    assert [row["weight"] for row in rows if row["weight"] is not None] == [5, 6, 5]


def test_scapy_has_its_layers_sessions_and_answers(folder: Path) -> None:
    told = json.loads(run(folder, "-c", SCAPY))

    assert told["layers"] == [f"Depot {op}" + ", wide" * (i == 4) for i, op in enumerate(OPS)]
    assert told["goods"] == ["hazel", "walnut", "hazel"]
    assert told["answers"] == [[1, 0], [3, 2], [5, 4], [7, 6], [9, 8], [11, 10]]
    assert told["built"] == depot.DIALOGUE[2][2].hex()


SCAPY = """
import json
from scapy.all import sniff
from mqpcap.scapy import *

found = [p.getlayer(Depot) for p in sniff(offline="depot.pcap", session=MqSession, quiet=True) if Depot in p]
stores = [p.payload for p in found if hasattr(p.payload, "goods")]
pairs = [[i, j] for i, a in enumerate(found) for j, b in enumerate(found) if i > j and a.answers(b)]
built = Depot() / DepotStore(ticket=1, shelf="nuts", labels=["dry"], goods=b"hazel")
print(json.dumps({
    "layers": [p.payload.name for p in found],
    "goods": [p.goods.decode() for p in stores],
    "answers": pairs,
    "built": bytes(built).hex(),
}))
"""
