"""``--fields``, ``--header`` and ``--csv`` of show, follow and stats."""

import csv
import json

import pytest
from running import run

CORE = "pcaps/flymq/core.pcap"
NAMES = "frame.number,op,topic,flymq.partition"


def test_show_writes_values_with_tabs_between() -> None:
    """As ``tshark -T fields -e``: no line of names unless asked, and nothing where a message has no value."""
    plain = run("show", "-q", "--fields", NAMES, CORE).stdout.splitlines()
    headed = run("show", "-q", "--fields", "frame.number,op", "--fields", "topic,flymq.partition", "--header", CORE)

    assert plain[2] == "10\tCREATE_TOPIC\torders\t"
    assert headed.stdout.splitlines() == [NAMES.replace(",", "\t"), *plain]


def test_csv_has_names_and_quotes() -> None:
    rows = list(csv.DictReader(run("show", "-q", "--csv", "--fields", "op,payload", CORE).stdout.splitlines()))
    default = list(csv.DictReader(run("show", "-q", "--csv", CORE).stdout.splitlines()))

    assert {"op": "PRODUCE", "payload": "hello"} in rows
    assert default[2]["destination"] == "orders" and default[2]["latency_ns"] == "8086000"


def test_json_has_these_fields_only() -> None:
    lines = run("show", "-q", "--json", "--fields", "op,topic,latency_ns", CORE).stdout.splitlines()

    assert json.loads(lines[2]) == {"op": "CREATE_TOPIC", "topic": "orders", "latency_ns": 8_086_000}


def test_follow_and_stats_have_them_too() -> None:
    followed = run("follow", "-q", "--connection", "c1", "--fields", NAMES, CORE).stdout
    counted = run("stats", "-q", "--fields", "op,messages", "--header", CORE).stdout

    assert followed == run("show", "-q", "--fields", NAMES, CORE).stdout
    assert counted.splitlines()[:2] == ["op\tmessages", "CONSUME\t19"]
    assert run("stats", "-q", "--csv", "--fields", "op,messages", CORE).stdout.splitlines()[1] == "CONSUME,19"


def test_secrets_are_masked() -> None:
    path = "pcaps/flymq/login.pcap"
    masked = run("show", "-q", "--fields", "flymq.password", "-Y", "flymq.password exists", path).stdout.splitlines()

    assert set(masked) == {"***"}


@pytest.mark.parametrize(
    "words",
    [("show", "--fields", "opp"), ("stats", "--fields", "opp"), ("show", "--fields", "op", "-v"),
     ("show", "--csv", "--json"), ("follow", "--raw", "c2s", "--fields", "op")],
)  # fmt: skip
def test_misuse_is_one_line_and_2(words: tuple[str, ...]) -> None:
    ended = run(*words, CORE)

    assert (ended.exit_code, ended.stderr.count("\n")) == (2, 1)
