"""The command line: exit codes, what goes where, and that no secret is ever shown unasked."""

import fcntl
import gzip
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from running import COMMAND, ROOT, Ended, environment, run, script
from torture import SYN, Segment, pcap

from mqpcap.cli import main
from mqpcap.cli.console import shown
from mqpcap.cli.lines import value_text
from mqpcap.cli.options import common
from mqpcap.tables.schemas import KEYS, MESSAGES

QOS1 = "pcaps/blipmq/qos1.pcap"


def lines(text: str) -> list[str]:
    return text.splitlines()


def objects(result: Ended) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines(result.stdout)]


def row_count(out: Path, table: str) -> int:
    return sum(pq.read_metadata(path).num_rows for path in (out / table).rglob("*.parquet"))


# -- exit codes ------------------------------------------------------------------------------------------


def test_nothing_to_do_is_misuse() -> None:
    assert run("show").exit_code == 2
    assert run("nonsense").exit_code == 2
    assert run("export", QOS1).exit_code == 2


@pytest.mark.parametrize(
    "rule", ["9092,flymq", "tcp.port==9092", "udp.port==1,flymq", "tcp.port==0,flymq", "tcp.port==70000,flymq"]
)
def test_a_rule_that_is_none_is_misuse(rule: str) -> None:
    result = run("show", "-d", rule, QOS1)

    assert result.exit_code == 2
    assert result.stdout == ""


def test_an_unknown_protocol_is_misuse_and_the_known_are_named() -> None:
    result = run("show", "-d", "tcp.port==9092,kafka", QOS1)

    assert result.exit_code == 2
    assert "'kafka' is no protocol" in result.stderr
    assert "flymq" in result.stderr


@pytest.mark.parametrize(
    "option",
    [("--bodies", "some"), ("--bodies", "-1"), ("--max-memory", "lots"), ("--max-memory", "1k"), ("--jobs", "0")],
)
def test_a_value_that_is_none_is_misuse(option: tuple[str, str]) -> None:
    assert run("show", *option, QOS1).exit_code == 2


def bad_inputs(folder: Path) -> dict[str, Path]:
    (folder / "empty.pcap").write_bytes(b"")
    (folder / "text.pcap").write_text("this is no capture")
    (folder / "nothing").mkdir()
    (folder / "nothing" / "notes.txt").write_text("no capture here")
    return {
        "empty": folder / "empty.pcap",
        "text": folder / "text.pcap",
        "directory": folder / "nothing",
        "missing": folder / "missing.pcap",
        "pattern": folder / "*.nothing",
    }


@pytest.mark.parametrize("kind", ["empty", "text", "directory", "missing", "pattern"])
def test_a_named_input_that_is_no_capture_is_one_line_and_exit_1_after_the_others(kind: str, tmp_path: Path) -> None:
    name = bad_inputs(tmp_path)[kind]

    result = run("show", "-q", name, QOS1)

    assert result.exit_code == 1
    assert len(lines(result.stdout)) == 242
    assert len(lines(result.stderr)) == 1
    assert str(name) in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_one_line_and_exit_1(tmp_path: Path) -> None:
    closed = tmp_path / "closed.pcap"
    closed.write_bytes((ROOT / QOS1).read_bytes())
    closed.chmod(0)

    result = run("show", "-q", closed)

    assert (result.exit_code, len(lines(result.stderr))) == (1, 1)


def test_strangers_in_a_directory_are_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "capture").write_bytes((ROOT / QOS1).read_bytes())
    (tmp_path / "notes.txt").write_text("no capture")

    result = run("show", tmp_path)
    strict = run("show", "--strict", tmp_path)

    assert result.exit_code == 0
    assert "skipped 1 file" in result.stderr
    assert len(lines(result.stdout)) == 242
    assert strict.exit_code == 1
    assert "1 skipped file" in strict.stderr


def test_a_flaw_is_exit_1_only_when_strict() -> None:
    flawed = "pcaps/blipmq/errors.pcap"

    assert run("show", "-q", flawed).exit_code == 0
    assert run("info", "-q", flawed).exit_code == 0
    strict = run("show", "-q", "--strict", flawed)
    assert strict.exit_code == 1
    assert "with a flaw" in strict.stderr
    assert run("show", "-q", "--strict", QOS1).exit_code == 0


def test_a_capture_cut_short_is_a_note_and_exit_0(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes((ROOT / QOS1).read_bytes()[:5000])

    result = run("show", cut)

    assert result.exit_code == 0
    assert f"note: {cut}" in result.stderr
    assert result.stdout


def test_a_record_that_claims_four_gigabytes_ends_the_file_with_a_note(tmp_path: Path) -> None:
    whole = (ROOT / QOS1).read_bytes()
    claiming = tmp_path / "claim.pcap"
    claiming.write_bytes(whole + struct.pack("<IIII", 1, 1, 0xFFFFFFFF, 0xFFFFFFFF) + b"x" * 100)

    result = run("show", claiming)

    assert result.exit_code == 0
    assert len(lines(result.stdout)) == 242
    assert "note: " in result.stderr


def test_a_gzip_cut_short_gives_what_is_in_it(tmp_path: Path) -> None:
    packed = gzip.compress((ROOT / QOS1).read_bytes())
    cut = tmp_path / "cut.pcap.gz"
    cut.write_bytes(packed[: len(packed) // 2])

    result = run("show", cut)

    assert result.exit_code == 0
    assert "note: " in result.stderr
    assert 0 < len(lines(result.stdout)) < 242


# -- show ------------------------------------------------------------------------------------------------


def test_json_has_what_the_tables_have_without_nulls(tmp_path: Path) -> None:
    inputs = ["pcaps/blipmq/qos1.pcap", "pcaps/flymq/core.pcap", "pcaps/fq/session.pcap"]
    out = tmp_path / "tables"
    assert run("export", "-q", *inputs, "--out", out).exit_code == 0
    stored = {name: ds.dataset(out / name).to_table().to_pylist() for name in ("messages", "blipmq", "flymq", "fq")}
    key = ("capture", "connection_id", "direction", "stream_offset")

    rows = objects(run("show", "--json", "-q", *inputs))

    assert len(rows) == len(stored["messages"])
    said = {tuple(str(row[name]) for name in key): row for row in rows}
    for message in stored["messages"]:
        row = said[tuple(str(message[name]) for name in key)]
        assert set(row) - {"fields", "exchange"} == {name for name, value in message.items() if value is not None}
        assert row["connection_id"] == str(message["connection_id"])
        assert row["body_len"] == message["body_len"] if message["body_len"] is not None else "body_len" not in row
    for name in ("blipmq", "flymq", "fq"):
        for values in stored[name]:
            row = said[tuple(str(values[name]) for name in key)]
            there = {name for name, value in values.items() if value is not None and name not in KEYS}
            told = {field.removesuffix("_hex") for field in row["fields"]}  # type: ignore[attr-defined]
            assert told <= there
            assert all(str(row[field]) == str(values[field]) for field in there - told)


def test_json_says_bytes_as_text_or_as_hex() -> None:
    rows = objects(run("show", "--json", "-q", "--op", "message", "pcaps/fq/session.pcap"))
    bodies = [row["fields"] for row in rows]

    assert {"a": 1} in [json.loads(x["body"]) for x in bodies if x.get("body", "").startswith("{")]  # type: ignore[attr-defined, index]
    assert "4d165bf267d1287beab8" in [x.get("body_hex") for x in bodies]  # type: ignore[attr-defined]


def test_rows_come_in_order_of_time_over_all_captures() -> None:
    times = [row["ts_ns"] for row in objects(run("show", "--json", "-q", "pcaps/flymq/core.pcap", QOS1, "pcaps/fq"))]

    assert times == sorted(times)  # type: ignore[type-var]


def test_threads_change_nothing() -> None:
    one = run("show", "-q", "--json", "--jobs", "1", "pcaps/blipmq")

    assert run("show", "-q", "--json", "--jobs", "4", "pcaps/blipmq").stdout == one.stdout


def test_a_line_says_who_what_and_how_it_went() -> None:
    said = lines(run("show", "-q", "-u", "--op", "nack", QOS1).stdout)[0]

    assert re.match(r"05:24:[\d.]+Z  #\d+ +c1 +127\.0\.0\.1:\d+ <- 127\.0\.0\.1:5555  blipmq/v1  NACK  id=\d+", said)
    assert "error 404" in said


def test_a_flaw_is_said_in_words() -> None:
    said = run("show", "-q", "pcaps/blipmq/errors.pcap").stdout

    assert "[flaw: malformed]" in said
    assert "\x1b" not in said


def test_filters_and_count() -> None:
    rows = objects(
        run("show", "-q", "--json", "--protocol", "BlipMQ", "--op", "publish", "-c", "3", "pcaps/blipmq", "pcaps/fq")
    )
    one = str(rows[0]["connection_id"])

    assert [row["op"] for row in rows] == ["PUBLISH"] * 3
    assert {
        row["connection_id"] for row in objects(run("show", "-q", "--json", "--connection", one, "pcaps/blipmq"))
    } == {rows[0]["connection_id"]}


def test_only_messages_with_a_flaw() -> None:
    rows = objects(run("show", "-q", "--json", "--flawed", "--op", "POLL", "pcaps/faults/blipmq_snapped.pcap"))

    assert [(row["op"], row["flaw"]) for row in rows] == [("POLL", "truncated")] * 2


def test_bodies_can_be_cut_or_left_out_and_their_length_stays() -> None:
    def bodies(keep: str) -> list[tuple[object, object]]:
        rows = objects(run("show", "-q", "--json", "--bodies", keep, "--op", "PUBLISH", "-c", "1", QOS1))
        return [(row["fields"].get("body"), row["body_len"]) for row in rows]  # type: ignore[attr-defined]

    assert bodies("full") == [("first", 5)]
    assert bodies("2") == [("fi", 5)]
    assert bodies("none") == [(None, 5)]


def test_standard_input_is_an_input_also_when_bytes_are_wanted() -> None:
    data = (ROOT / QOS1).read_bytes()

    assert len(lines(run("show", "-q", "-", stdin=data).stdout)) == 242
    assert "00 00 00 0b 01" in run("show", "-q", "-x", "-c", "1", "-", stdin=data).stdout


def test_hex_shows_the_bytes_of_the_message() -> None:
    said = lines(run("show", "-q", "-x", "-c", "1", QOS1).stdout)

    assert said[1] == "    0000  00 00 00 0b 01 00 00 00  00 00 00 00 01 00 01     ..............."


def test_verbose_shows_the_fields_that_are_there() -> None:
    said = lines(run("show", "-q", "-v", "-c", "1", QOS1).stdout)

    assert said[1:] == ["    correlation_id: 1", "    protocol_version: 1"]


def test_decode_as_reads_a_port_that_is_not_the_protocols() -> None:
    # qos1 with the server on port 7777, and its connections' begins taken away so that only the port can tell.
    data = bytearray((ROOT / "pcaps/faults/blipmq_no_syn.pcap").read_bytes())
    at = 24
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        tcp = at + 16 + 14 + 20
        for port in (tcp, tcp + 2):
            if data[port : port + 2] == (5555).to_bytes(2, "big"):
                data[port : port + 2] = (7777).to_bytes(2, "big")
        at += 16 + length

    found = run("show", "-q", "-d", "tcp.port==7777,blipmq", "-", stdin=bytes(data))
    original = run("show", "-q", "pcaps/faults/blipmq_no_syn.pcap")

    assert len(lines(found.stdout)) == len(lines(original.stdout)) > 0
    assert ":7777" in found.stdout


# -- secrets ---------------------------------------------------------------------------------------------

SECRETS = {
    QOS1: [b"dev-key"],
    "pcaps/fq/session.pcap": [b"watchpw", b"pw-of-bob"],
    "pcaps/flymq/login.pcap": [b"adminpw-1"],
}


@pytest.mark.parametrize("name", SECRETS)
def test_no_command_shows_a_secret_unasked(name: str, tmp_path: Path) -> None:
    assert any(secret in (ROOT / name).read_bytes() for secret in SECRETS[name])
    packets = sorted({int(str(row["first_packet"])) for row in objects(run("show", "-q", "--json", name))
                      if "auth" in str(row["op"]).lower()})[:3]  # fmt: skip
    said = [
        run("show", "-q", "-v", "-x", name).stdout,
        run("show", "-q", "--json", name).stdout,
        *(run("explain", "-q", *form, "--at", str(p), name).stdout for p in packets for form in ([], ["--json"])),
    ]
    run("export", "-q", name, "--out", tmp_path / "t")
    stored = b"".join(path.read_bytes() for path in (tmp_path / "t").rglob("*.parquet"))

    for secret in SECRETS[name]:
        for text in said:
            digits = "".join(re.findall(r"  ((?:[0-9a-f]{2} {1,2})+)", text)).replace(" ", "")
            assert secret.decode() not in text
            assert secret.hex() not in digits
            assert secret.hex() not in text
        assert secret not in stored
    assert "***" in said[0]


def test_secrets_are_shown_when_asked() -> None:
    assert "dev-key" in run("show", "-q", "-v", "--show-secrets", QOS1).stdout
    assert "65 76 2d 6b 65 79" in run("show", "-q", "-x", "--show-secrets", QOS1).stdout.replace("  ", " ")


def test_a_login_that_does_not_decode_is_hidden_whole() -> None:
    # FlyMQ AUTH: a name, then a password whose length claims more than there is.
    data = "af017001" + "0000000e" + "000461626364" + "00ff" + b"secret".hex()

    result = run("explain", "--hex", data, "--protocol", "flymq", "--direction", "c2s")

    assert result.exit_code == 0
    assert "secret" not in result.stdout
    assert b"secret".hex() not in result.stdout


# -- export ----------------------------------------------------------------------------------------------


def test_export_writes_the_tables_and_says_so_on_stderr(tmp_path: Path) -> None:
    out = tmp_path / "tables"

    result = run("export", QOS1, "pcaps/strangers", "--out", out)

    assert result.exit_code == 0
    assert result.stdout == ""
    assert {path.name for path in out.iterdir() if path.is_dir()} >= {"messages", "connections", "problems", "blipmq"}
    assert row_count(out, "messages") == row_count(out, "blipmq") == 242
    assert "242 rows" in result.stderr
    assert (out / "messages" / "date=2026-11-21").is_dir()
    assert ds.dataset(out / "messages", partitioning=None).schema.names == MESSAGES.names


def test_export_refuses_what_is_not_ours(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")

    refused = run("export", "-q", QOS1, "--out", out)

    assert refused.exit_code == 1
    assert "thesis.txt" in refused.stderr
    assert len(lines(refused.stderr)) == 1
    assert (out / "thesis.txt").exists()
    assert run("export", "-q", QOS1, "--out", out, "--overwrite").exit_code == 2


def test_export_replaces_an_earlier_export(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    assert run("export", "-q", "pcaps/fq/session.pcap", "--out", out).exit_code == 0

    assert run("export", "-q", QOS1, "--out", out).exit_code == 0

    assert not (out / "fq").exists()
    assert row_count(out, "blipmq") == 242


def test_export_of_nothing_leaves_the_earlier_one(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    run("export", "-q", QOS1, "--out", out)

    result = run("export", "-q", tmp_path / "missing.pcap", "--out", out)

    assert result.exit_code == 1
    assert row_count(out, "messages") == 242


def test_a_killed_export_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    fifo = tmp_path / "slow.pcap"
    os.mkfifo(fifo)
    exporting = subprocess.Popen(
        [*COMMAND, "export", "-q", QOS1, str(fifo), "--jobs", "1", "--out", str(out)], cwd=ROOT, env=environment()
    )
    with fifo.open("wb") as feeding:
        feeding.write((ROOT / QOS1).read_bytes()[:4000])
        feeding.flush()
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".tables*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        exporting.send_signal(signal.SIGKILL)
        exporting.wait(timeout=30)

    assert not out.exists()
    assert run("export", "-q", QOS1, "--out", out).exit_code == 0
    assert not list(tmp_path.glob(".tables*"))


def test_an_interrupted_export_ends_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    fifo = tmp_path / "slow.pcap"
    os.mkfifo(fifo)
    # Tests that a shell runs in the background ignore SIGINT, and so would what they start.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    heeding += "; from mqpcap.cli import main; main()"
    exporting = subprocess.Popen(
        [sys.executable, "-c", heeding, "export", "-q", str(fifo), "--out", str(tmp_path / "tables")], cwd=ROOT,
        env=environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with fifo.open("wb") as feeding:
        feeding.write((ROOT / QOS1).read_bytes()[:4000])
        feeding.flush()
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".tables*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        exporting.send_signal(signal.SIGINT)
        assert exporting.wait(timeout=30) == 1

    assert exporting.stderr is not None
    assert exporting.stderr.read() == "mqpcap: interrupted\n"
    exporting.stderr.close()
    assert {path.name for path in tmp_path.iterdir()} == {"slow.pcap"}


def test_a_name_that_is_no_text_is_read_and_shown(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9.pcap")
    odd.write_bytes((ROOT / QOS1).read_bytes())

    said = subprocess.run([*COMMAND, "show", "-q", "--json", "-c", "1", os.fsencode(odd)], cwd=ROOT, env=environment(),
                          capture_output=True, check=False)  # fmt: skip

    assert (said.returncode, said.stderr) == (0, b"")
    assert json.loads(said.stdout)["capture_file"].endswith(".pcap")


# -- info, protocols, explain ----------------------------------------------------------------------------


def test_info_tells_a_whole_capture_from_a_damaged_one() -> None:
    assert "verdict       whole" in run("info", "-q", QOS1).stdout
    assert "with care: 21 B were never captured" in run("info", "-q", "pcaps/faults/blipmq_lost.pcap").stdout
    assert "snap length cut" in run("info", "-q", "pcaps/faults/fq_snapped.pcap").stdout
    assert "nothing ours" in run("info", "-q", "pcaps/strangers/http_5555.pcap").stdout


def test_info_counts_other_content_among_what_was_sent_again() -> None:
    """A segment of 33 bytes comes again, the last 17 changed (pcaps/faults.py)."""
    told = run("info", "-q", "pcaps/faults/blipmq_conflict.pcap").stdout

    assert "sent again    33 B, 17 B of it with other content" in told


def test_info_as_json_agrees_with_the_capture() -> None:
    said = json.loads(run("info", "-q", "--json", QOS1).stdout)["captures"][0]

    assert said["files"][0]["format"] == "pcap"
    assert said["files"][0]["packet_count"] == 382
    assert said["connections"] == {"blipmq": 15}
    assert said["messages"] == {"blipmq": 242}
    assert said["decoded_bytes"] == said["payload_bytes"] > 0


def test_protocols_are_listed() -> None:
    said = json.loads(run("protocols", "--json").stdout)

    assert {p["name"]: p["ports"] for p in said}["flymq"] == [9092]
    assert "5555" in run("protocols").stdout
    assert {"PUBLISH", "NACK"} <= set(next(p for p in said if p["name"] == "blipmq")["operations"])


def test_explain_says_offset_length_hex_name_and_value_of_each_field() -> None:
    said = json.loads(run("explain", "-q", "--json", QOS1, "--at", "12").stdout)
    fields = {f["name"]: f for f in said["fields"]}

    assert said["fits"] is True
    assert (said["op"], said["destination"], said["stream_offset"]) == ("PUBLISH", "q1", 55)
    assert {k: fields["topic"][k] for k in ("offset", "length", "hex", "value")} == {
        "offset": 16, "length": 2, "hex": "7131", "value": "q1",
    }  # fmt: skip
    assert fields["frame_type"]["meaning"] == "PUBLISH"
    assert sum(f["length"] for f in said["fields"]) == said["frame_len"] == 23


def test_explain_finds_a_message_by_its_place_in_the_stream() -> None:
    one = json.loads(run("explain", "-q", "--json", QOS1, "--at", "12").stdout)
    place = ["--connection", str(one["connection_id"]), "--direction", "c2s", "--offset", str(one["stream_offset"] + 5)]

    assert json.loads(run("explain", "-q", "--json", QOS1, *place).stdout) == one


@pytest.mark.parametrize(("packet", "said"), [("1", "has no TCP payload"), ("99999", "there is no packet 99999")])
def test_explain_says_why_a_packet_has_no_message(packet: str, said: str) -> None:
    result = run("explain", "-q", QOS1, "--at", packet)

    assert result.exit_code == 1
    assert said in result.stderr


def test_explain_reads_bytes_and_says_why_other_readings_do_not_fit() -> None:
    # FlyMQ CREATE_TOPIC reply in the document's form: success and an empty message.
    result = run("explain", "--hex", "af 01 03 01 00000003 01 0000", "--protocol", "flymq", "--direction", "s2c",
                 "--readings")  # fmt: skip

    assert result.exit_code == 0
    assert "CREATE_TOPIC reply of the document" in result.stdout
    assert "not: " in result.stdout


def test_explain_of_bytes_that_fit_nothing_is_an_answer() -> None:
    result = run("explain", "--hex", "ff", "--protocol", "blipmq")

    assert result.exit_code == 0
    assert "does not fit" in result.stdout
    assert run("explain", "--strict", "--hex", "ff", "--protocol", "blipmq").exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [QOS1],
        ["--hex", "00"],
        ["--hex", "0g", "--protocol", "blipmq"],
        ["--hex", "00", "--protocol", "kafka"],
        ["--hex", "00", "--protocol", "blipmq", "--dialect", "v9"],
        [QOS1, "--at", "1", "--offset", "3"],
        [QOS1, "--connection", "1"],
        [QOS1, "--at", "1", "--protocol", "blipmq"],
    ],
)
def test_explain_without_one_clear_message_is_misuse(arguments: list[str]) -> None:
    assert run("explain", *arguments).exit_code == 2


def test_explanation_and_tables_agree_on_every_message() -> None:
    names = ["pcaps/blipmq/errors.pcap", "pcaps/fq/session.pcap", "pcaps/flymq/core.pcap"]
    from mqpcap.capture import captures
    from mqpcap.explain import explanation
    from mqpcap.numbered_pipeline import BytesPipeline
    from mqpcap.pipeline import Options, Output
    from mqpcap.protocols import protocols

    wrong = []

    def look(output: Output) -> None:
        for message in output.rows.to_pylist() if output.table == "messages" else []:
            assert len(message["bytes"]) == message["frame_len"]
            told = explanation(protocols()[message["protocol"]], message["bytes"], message["direction"])
            if (told.best is not None and told.best.fits) != (message["flaw"] is None):
                wrong.append((message["protocol"], message["op"], message["flaw"], told.best and told.best.why))

    for capture in captures(names).captures:
        BytesPipeline(capture, Options(), look).run()

    assert wrong == []


# -- the terminal ----------------------------------------------------------------------------------------


def test_help_of_every_command_ends_with_an_example_that_runs() -> None:
    for name, command in main.commands.items():
        said = run(name, "--help").stdout
        example = re.search(r"Example: mqpcap (.+)\Z", said, re.DOTALL)  # may take two lines
        assert example, name
        if name in ("export", "extract", "report", "spark"):
            continue  # tests/cli/test_readme.py, test_extract.py, test_report.py and tests/spark/test_job.py run them
        assert run(*example[1].split()).exit_code == 0
        assert command.help


def test_help_of_the_command_below_spark_ends_with_the_same_example() -> None:
    whole, below = (run(*words, "--help").stdout for words in (("spark",), ("spark", "export")))

    assert whole.splitlines()[-1] == below.splitlines()[-1] != ""


def test_the_script_is_the_module() -> None:
    """What pip makes of the entry point in pyproject.toml: the command under its own name."""
    code = "import sys; sys.argv[0] = 'mqpcap'; from mqpcap.__main__ import main; main()"
    said = subprocess.run([sys.executable, "-c", code, "show", "-u", QOS1], cwd=ROOT, env=environment(),
                          capture_output=True, text=True, check=True)  # fmt: skip

    assert said.stdout == run("show", "-u", QOS1).stdout != ""


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from mqpcap.cli import main; "
        "CliRunner().invoke(main, ['export', '--help']); "
        "print([m for m in ('scapy', 'pyarrow', 'numpy', 'rich') if m in sys.modules]); "
        "print([m for m in sys.modules if m.startswith('mqpcap.') and m.split('.')[1] not in ('cli', 'errors')])"
    )

    said = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)

    assert lines(said.stdout) == ["[]", "[]"]


def test_a_reader_that_has_enough_is_no_error() -> None:
    showing = subprocess.Popen(
        [*COMMAND, "show", "-q", "--json", *["pcaps/blipmq", "pcaps/fq"]], cwd=ROOT, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert showing.stdout is not None and showing.stderr is not None
    showing.stdout.readline()
    showing.stdout.close()

    said = showing.stderr.read()
    assert (showing.wait(timeout=60), said) == (0, b"")
    showing.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        said = subprocess.run([*COMMAND, "show", "-q", QOS1], cwd=ROOT, env=environment(), stdout=full,
                              stderr=subprocess.PIPE, text=True, check=False)  # fmt: skip

    assert said.returncode == 1
    assert lines(said.stderr) == ["mqpcap: No space left on device"]


def test_output_of_a_process_is_plain_and_quiet_is_quiet() -> None:
    said = run("show", "-q", "-c", "2", QOS1)

    assert (said.exit_code, said.stderr) == (0, "")
    assert len(lines(said.stdout)) == 2
    assert "\x1b" not in said.stdout


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert shown("a\x1b[31m\u202eb") == "a\\x1b[31m\\u202eb"
    assert value_text(b"\x1b]0;title\x07") == "hex " + b"\x1b]0;title\x07".hex()
    assert value_text("two\nlines") == '"two\\nlines"'


def test_uncompiled_loops_are_said_once() -> None:
    from mqpcap.decode.bytecode import COMPILED

    said = run("show", "-c", "0", QOS1, "pcaps/fq").stderr

    assert said.count("not compiled") == (0 if COMPILED else 1)


def test_every_command_that_reads_captures_has_the_common_options() -> None:
    assert common
    for name in ("export", "show", "stats", "diff", "report", "info", "explain"):
        options = {o for p in main.commands[name].params for o in p.opts}
        assert {"-d", "--show-secrets", "--bodies", "--jobs", "--max-memory", "--strict", "-q"} <= options


# -- as a process of its own -------------------------------------------------------------------------------


def screen(data: str) -> list[str]:
    """What a terminal shows of these bytes: the escapes that a progress bar uses, and lines longer than no screen."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", data):
        if part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            rows[row] = ""
        elif not part.startswith("\x1b"):
            rows[row] = rows[row][:column].ljust(column) + part + rows[row][column + len(part) :]
            column += len(part)
    return rows


def on_terminal(*arguments: str, **variables: str) -> str:
    """What a command of its own writes to a pseudo-terminal of 120 columns, its stdout and stderr."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    env = environment(TERM="xterm", **variables)
    command = subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    # On Linux reading a terminal that nobody writes to any more is an error.
    with suppress(OSError):
        while some := os.read(ours, 65536):
            said += some
    os.close(ours)
    assert command.wait(60) == 0
    return said.decode()


def test_nothing_of_the_bar_stays_in_reports_on_a_terminal() -> None:
    """The progress bar is drawn in between."""
    names = ("pcaps/faults/blipmq_lost.pcap", QOS1, "pcaps/fq/session.pcap")

    said = on_terminal("info", *names)

    assert "reading" in said
    without = screen(on_terminal("info", "-q", *names))
    assert "\n".join(screen(said)).rstrip("\n") == "\n".join(without).rstrip("\n")
    assert all(any(line.startswith(name) for line in without) for name in names)


@pytest.mark.parametrize(
    "arguments", [("show", QOS1), ("info", QOS1), ("protocols",), ("--help",), ("show", "--help")], ids=" ".join
)
@pytest.mark.parametrize("stdout", [">&-", ">/dev/full"])
def test_a_stdout_that_takes_nothing_is_one_line(arguments: tuple[str, ...], stdout: str) -> None:
    command = ["sh", "-c", f'exec "$@" {stdout}', "sh", *COMMAND, *arguments]

    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)

    assert (done.returncode, len(lines(done.stderr))) == (1, 1), done.stderr
    assert done.stderr.startswith("mqpcap: ")


def test_an_export_needs_no_standard_streams(tmp_path: Path) -> None:
    """A file that is opened must not get the number of one of them: what is said would be written into it."""
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND, "export", QOS1, "--out", str(tmp_path / "out")]

    assert subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode == 0
    assert row_count(tmp_path / "out", "messages") == 242


def test_a_command_that_is_terminated_leaves_nothing(tmp_path: Path) -> None:
    """It waits for the rest of a capture on standard input."""
    command = subprocess.Popen(
        [*COMMAND, "show", "-x", "-"], cwd=ROOT, env=environment(TMPDIR=str(tmp_path)), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert command.stdin is not None and command.stdout is not None
    command.stdin.write((ROOT / QOS1).read_bytes())
    command.stdin.flush()
    assert b"HELLO" in command.stdout.readline()

    command.terminate()

    assert command.communicate(timeout=30)[1] == b"mqpcap: terminated\n"
    assert (command.returncode, list(tmp_path.iterdir())) == (1, [])


def test_an_export_that_is_terminated_leaves_nothing(tmp_path: Path) -> None:
    """A pipe that gives no more holds it up when its folder is there."""
    pipe = tmp_path / "pipe.pcap"
    os.mkfifo(pipe)
    command = subprocess.Popen(
        [*COMMAND, "export", str(pipe), "--out", str(tmp_path / "out")], cwd=ROOT, env=environment(),
        stderr=subprocess.PIPE,
    )  # fmt: skip
    with pipe.open("wb", buffering=0) as writer:
        writer.write((ROOT / QOS1).read_bytes()[:20_000])
        deadline_s = time.monotonic() + 30
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert len(list(tmp_path.iterdir())) == 2

        command.terminate()

        assert command.communicate(timeout=30)[1] == b"mqpcap: terminated\n"
    assert (command.returncode, list(tmp_path.iterdir())) == (1, [pipe])


# -- words and times in lines ------------------------------------------------------------------------------


def line_of(topic: str) -> str:
    """The line of a PUBLISH to a topic."""
    payload = b"\0" + struct.pack(">H", len(topic.encode())) + topic.encode() + b"x"
    hello = struct.pack(">IBQH", 11, 1, 1, 1)
    publish = struct.pack(">IBQ", 9 + len(payload), 3, 2) + payload
    parts = [(hello + publish)[i : i + 1400] for i in range(0, len(hello + publish), 1400)]
    segments = [Segment(b"", 1000, 0, SYN), *(Segment(part, 1001 + 1400 * i, 5001) for i, part in enumerate(parts))]
    return lines(run("show", "-q", "-", stdin=pcap(segments, 5555)).stdout)[-1]


def test_a_topic_with_a_blank_and_a_control_character_is_escaped_once() -> None:
    assert '  "a b\\x1b[31m"  ' in line_of("a b\x1b[31m")
    assert '  "a \\"b\\" \\\\ c"  ' in line_of('a "b" \\ c')
    assert "  a\\x1b[31m  " in line_of("a\x1b[31m")


def test_a_long_topic_is_cut_and_its_length_told() -> None:
    said = line_of("t" * 65_535)

    assert f"  {'t' * 120}... (65,535 characters)  " in said
    assert len(said) < 400


def test_one_rule_for_times() -> None:
    """Local time with how far it is ahead; with -u UTC, marked Z. India is 5:30 ahead, and 2026-11-21 has no other."""
    for zone, option, time_of_day in (
        ("Asia/Kolkata", (), "10:54:09.420161+05:30"),
        ("Etc/GMT-1", (), "06:24:09.420161+01"),
        ("Asia/Kolkata", ("-u",), "05:24:09.420161Z"),
    ):
        shown_ = run("show", "-q", *option, "--op", "PUBLISH", "-c", "1", QOS1, TZ=zone)
        assert shown_.stdout.startswith(f"{time_of_day}  #12 ")
        explained = run("explain", "-q", *option, "--at", "4", QOS1, TZ=zone).stdout
        assert re.match(rf"2026-11-21 {time_of_day[:8]}\.\d{{6}}{re.escape(time_of_day[15:])}  #4 ", explained)
        about = run("info", "-q", *option, QOS1, TZ=zone).stdout
        assert f"2026-11-21 {time_of_day[:5]}" in about
        assert time_of_day[15:] + " to 2026-11-21 " in about


REFUSED = """
import errno, os, sys
from mqpcap.cli import main

def refused(path):
    raise PermissionError(errno.EACCES, "Permission denied", str(path))

os.scandir = refused
main(sys.argv[1:])
"""


def test_a_directory_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    """Root may read every directory, so here none can be."""
    result = script(REFUSED, "show", "-q", tmp_path)

    assert (result.exit_code, result.stderr) == (1, f"mqpcap: {tmp_path}: Permission denied\n")


# -- notes instead of silence ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tls_9092", "kafka_9092", "http_5555", "grpc_9944"])
def test_a_capture_of_strangers_says_so(name: str) -> None:
    said = run("show", f"pcaps/strangers/{name}.pcap")

    assert (said.exit_code, said.stdout, said.stderr) == (0, "", "note: nothing of ours; see info\n")
    assert run("show", "-q", f"pcaps/strangers/{name}.pcap").stderr == ""


def test_decode_as_the_wrong_protocol_says_so() -> None:
    wrong = run("show", "-d", "tcp.port==5555,flymq", QOS1)
    nowhere = run("show", "-d", "tcp.port==5556,flymq", QOS1)

    note = "note: -d tcp.port==5555,flymq: nothing of 15 connections decodes so; is it flymq?\n"
    assert (wrong.exit_code, wrong.stderr) == (0, note)
    assert nowhere.stderr == "note: -d tcp.port==5556,flymq: no connection of that server port\n"
    assert run("show", "-d", "tcp.port==5555,blipmq", QOS1).stderr == ""


@pytest.mark.parametrize(
    ("capture", "said"),
    [
        ("strangers/tls_9092", "is TLS: encrypted, so nothing of it can be read"),
        ("flymq/tls", "is TLS: encrypted, so nothing of it can be read"),
        ("strangers/kafka_9092", "is Kafka, not ours"),
        ("strangers/http_8765", "is HTTP/1, not ours"),
        ("strangers/grpc_9944", "is gRPC, not ours"),
    ],
)
def test_explain_says_what_a_packet_of_a_stranger_is_of(capture: str, said: str) -> None:
    explained = run("explain", f"pcaps/{capture}.pcap", "--at", "4")

    assert explained.exit_code == 1
    assert explained.stderr == f"mqpcap: pcaps/{capture}.pcap: packet 4 is of a connection that {said}\n"


# -- connections by name -----------------------------------------------------------------------------------


def test_a_connection_has_three_names() -> None:
    """qos1: the third connection by its first packet is that of port 39314."""
    by_short, by_end = (
        run("show", "-q", "-u", "--connection", name, QOS1).stdout for name in ("c3", "127.0.0.1:39314")
    )
    ids = {
        json.loads(x)["connection_id"] for x in lines(run("show", "-q", "--json", "--connection", "c3", QOS1).stdout)
    }
    by_id = run("show", "-q", "-u", "--connection", ids.pop(), QOS1).stdout

    assert by_short == by_end == by_id != ""
    assert all(" c3   127.0.0.1:39314 " in line for line in lines(by_short))
    assert len(lines(run("show", "-q", "--connection", "c3", "--connection", "c1", QOS1).stdout)) > len(lines(by_id))
    assert run("show", "--connection", "seven", QOS1).exit_code == 2
    place = ("--connection", "c1", "--direction", "c2s", "--offset", "3")
    assert "HELLO" in run("explain", QOS1, *place).stdout


# -- info --------------------------------------------------------------------------------------------------


def test_info_lists_connections_with_what_they_speak() -> None:
    """handshake.truth and qos1: 15 connections, 242 messages; the capture's own file counts them."""
    (report,) = json.loads(run("info", "--json", QOS1).stdout)["captures"]
    listed = report["connection_list"]

    assert [one["connection"] for one in listed] == [f"c{k}" for k in range(1, 16)]
    assert sum(one["messages"] for one in listed) == 242
    assert listed[0]["client"] == "127.0.0.1:39290" and listed[0]["server"] == "127.0.0.1:5555"
    shown = lines(run("info", QOS1).stdout)
    assert shown[1].startswith("  verdict       whole: ")
    assert [one.split()[0] for one in shown[-15:]] == [f"c{k}" for k in range(1, 16)]
    assert len({one.index("1:") for one in shown[-15:]}) == 1, "columns align"


def test_info_knows_client_names_and_errors() -> None:
    """fq: the login names the user of both connections; BlipMQ: a NACK is an error."""
    (fq,) = json.loads(run("info", "--json", "pcaps/fq/session.pcap").stdout)["captures"]
    (refused,) = json.loads(run("info", "--json", "pcaps/blipmq/errors.pcap").stdout)["captures"]
    rows = [json.loads(x) for x in lines(run("show", "-q", "--json", "pcaps/blipmq/errors.pcap").stdout)]

    assert {"watcher", "alice"} <= {one["client_name"] for one in fq["connection_list"]}
    answers = [x for x in rows if x["op"] == "NACK" and x["direction"] == "s2c"]
    assert sum(one["errors"] for one in refused["connection_list"]) == len(answers) > 0


def test_info_names_strangers() -> None:
    names = {
        "tls_9092": "TLS",
        "http_5555": "HTTP/1",
        "http_8765": "HTTP/1",
        "kafka_9092": "Kafka",
        "grpc_9944": "gRPC",
    }
    for file, name in names.items():
        (report,) = json.loads(run("info", "--json", f"pcaps/strangers/{file}.pcap").stdout)["captures"]
        assert report["strangers"] == {name: 1}
        assert report["verdict"] == f"nothing ours: connections are 1 {name}"


def test_max_loss_is_an_exit_code() -> None:
    """blipmq_lost: 21 bytes missing beside 5,185 captured, 0.4034 %."""
    lost = "pcaps/faults/blipmq_lost.pcap"
    said = run("info", "--max-loss", "0.1", lost)

    assert (said.exit_code, said.stderr) == (1, f"mqpcap: {lost}: 0.403 % lost, more than --max-loss 0.1\n")
    assert said.stdout == run("info", lost).stdout
    assert run("info", "--max-loss", "0.5", lost).exit_code == 0
    assert run("info", "--max-loss", "0", QOS1).exit_code == 0
    assert run("info", "--max-loss", "101", QOS1).exit_code == 2


def pcapng(order: str) -> bytes:
    """A section with a comment, an interface with one, a block of names, and two packets, the second with a comment."""

    def option(code: int, data: bytes) -> bytes:
        return struct.pack(order + "HH", code, len(data)) + data + bytes(-len(data) % 4)

    def block(kind: int, body: bytes) -> bytes:
        size = struct.pack(order + "I", len(body) + 12)
        return struct.pack(order + "I", kind) + size + body + size

    head = struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)
    names = struct.pack(order + "HH", 1, 11) + bytes([10, 0, 0, 1]) + b"broker\0" + b"\0" + bytes(4)
    packet = struct.pack(order + "IIIII", 0, 0, 0, 60, 60) + bytes(60)
    return b"".join(
        [
            block(0x0A0D0D0A, head + option(1, "début".encode()) + option(0, b"")),
            block(1, struct.pack(order + "HHI", 1, 0, 0) + option(1, b"tap") + option(0, b"")),
            block(4, names),
            block(6, packet),
            block(6, packet + option(1, b"odd\x1b[31m") + option(0, b"")),
        ]
    )


@pytest.mark.parametrize("order", ["<", ">"])
def test_info_shows_comments_and_names(order: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(pcapng(order))

    said = lines(run("info", path).stdout)
    (report,) = json.loads(run("info", "--json", path).stdout)["captures"]

    assert [one for one in said if one.startswith(("  comment", "  name"))] == [
        '  comment       file: "début"', '  comment       interface: "tap"', '  comment       packet 2: "odd\\x1b[31m"',
        "  name          10.0.0.1 is broker",
    ]  # fmt: skip
    assert [one["text"] for one in report["comments"]] == ["début", "tap", "odd\x1b[31m"]
    assert report["names"] == {"10.0.0.1": ["broker"]}
    path.write_bytes(pcapng(order)[:-9])
    assert run("info", path).exit_code == 0
