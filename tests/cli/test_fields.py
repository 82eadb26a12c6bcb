"""``mqpcap fields``: what names there are."""

import json

from running import lines_on_terminal, run


def test_fields_lists_names_with_meanings() -> None:
    ended = run("fields", "messages")

    assert ended.stdout.splitlines()[0] == "messages"
    assert "  first_packet               int64              packet with its first byte" in ended.stdout
    assert "also packet, frame.number" in " ".join(ended.stdout.split())


def test_json_has_type_unit_and_values() -> None:
    fields = {field["name"]: field for field in json.loads(run("fields", "exchanges", "--json").stdout)}

    assert fields["latency_ns"]["unit"] == "ns"
    assert fields["state"]["values"][:2] == ["answered", "likely"]
    assert not fields["request_offset"]["in_filters"]


def test_an_unknown_table_is_misuse() -> None:
    ended = run("fields", "nope")

    assert (ended.exit_code, ended.stderr.count("\n")) == (2, 1)


def test_lines_fit_a_terminal() -> None:
    assert max(map(len, lines_on_terminal(80, "fields"))) <= 80
