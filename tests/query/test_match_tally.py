"""Which messages: -Y and the shortcuts, in the commands that have them."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from running import ROOT, run

from mqpcap.query import MatchTally, match_tally, query
from mqpcap.tables.output import Output

QOS1 = "pcaps/blipmq/qos1.pcap"
CORE = "pcaps/flymq/core.pcap"
SESSION = "pcaps/fq/session.pcap"


def keys(*arguments: object) -> list[tuple[object, ...]]:
    """What ``show --json`` shows, by place in the stream, in its order."""
    result = run("show", "-q", "--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [(row["capture"], row["connection_id"], row["direction"], row["stream_offset"]) for row in rows]


def tally_of(*inputs: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in run("show", "-q", "--json", *inputs).stdout.splitlines()]


@pytest.mark.parametrize(
    ("shortcut", "text"),
    [
        (("--op", "publish", "--op", "POLL"), "op in (PUBLISH, POLL)"),
        (("--topic", "q1"), "topic == q1"),
        (("--topic", "f*", "--topic", "?1"), "topic matches '^f' or topic matches '^.1$'"),
        (("--client", "127.0.0.1:39304"), "(src_port == 39304 or dst_port == 39304)"),
        (("--client", "127.0.0.0/8"), "src_ip == 127.0.0.1"),
        (("--server", ":5555"), "src_port == 5555 or dst_port == 5555"),
        (("--status", "error"), "status == error"),
        (("--grep", "first"), "blipmq.body contains first"),
        (("--flawed",), "flaw exists"),
        (("--protocol", "fq"), "protocol == fq"),
        (("--slower-than", "40ms"), "is_request and latency > 40ms"),
        (("--unanswered",), "is_request and state == unanswered"),
        (("--since", "+1s", "--until", "+500ms"), "ts >= +1s and ts < +1.5s"),
        (("-u", "--since", "05:24:10", "--until", "05:24:10.3"), "ts >= 2026-11-21T05:24:10Z and ts < 05:24:10.3Z"),
        (("--op", "POLL", "-Y", "latency > 1ms"), "op == POLL and latency > 1ms"),
    ],
)
def test_shortcuts_are_filters(shortcut: tuple[str, ...], text: str) -> None:
    assert keys(*shortcut, QOS1, SESSION) == keys("-Y", text, QOS1, SESSION)


def test_filters_select_what_the_json_says() -> None:
    rows = tally_of(QOS1, CORE, SESSION)
    for text, is_wanted in {
        "op == PUBLISH and body_len >= 5": lambda r: r["op"] == "PUBLISH" and r.get("body_len", 0) >= 5,
        "latency > 1ms": lambda r: r.get("exchange", {}).get("latency_ns", 0) > 1_000_000,
        "state == silent or key exists": lambda r: r.get("exchange", {}).get("state") == "silent" or bool(
            {"key", "key_hex"} & r["fields"].keys()),
        "not state == answered and client_name == alice": lambda r: r.get("client_name") == "alice" and r.get(
            "exchange", {}).get("state", "answered") != "answered",
    }.items():  # fmt: skip
        wanted = [(r["capture"], r["connection_id"], r["direction"], r["stream_offset"]) for r in rows if is_wanted(r)]  # type: ignore[no-untyped-call]

        assert sorted(keys("-Y", text, QOS1, CORE, SESSION)) == sorted(wanted)
        assert wanted


def test_export_writes_what_show_shows(tmp_path: Path) -> None:
    text = "op in (PUBLISH, PRODUCE, message) and body_len > 1"
    result = run("export", "-q", QOS1, CORE, SESSION, "-Y", text, "--jobs", "2", "--out", tmp_path / "out")

    assert result.exit_code == 0, result.stderr
    stored = ds.dataset(tmp_path / "out" / "messages").to_table().to_pylist()
    names = ("capture", "connection_id", "direction", "stream_offset")
    assert sorted(tuple(str(row[x]) for x in names) for row in stored) == sorted(
        tuple(map(str, key)) for key in keys("-Y", text, QOS1, CORE, SESSION)
    )
    fields = [ds.dataset(tmp_path / "out" / name).count_rows() for name in ("blipmq", "flymq", "fq")]
    assert sum(fields) == len(stored)
    captures = ds.dataset(tmp_path / "out" / "captures").to_table().to_pylist()
    assert sum(row["messages"] for row in captures) == len(stored)


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        (("--op", "PUBLIS"), "0 of 242 messages match; operations here: ACK, AUTH, HELLO, NACK, PING, POLL, PONG, "
                             "PUBLISH, SUBSCRIBE"),
        (("-Y", "protocol == fq"), "0 of 242 messages match; protocols here: blipmq"),
        (("--topic", "orders.*"), '0 of 242 messages match; topics here: "", again, col, fanout'),
        (("--since", "+1h"), "0 of 242 messages match; messages here are from 2026-11-21 05:24:09.419323Z to "
                             "2026-11-21 05:24:16.038789Z"),
        (("--op", "ACK", "--topic", "q1"), "0 of 242 messages match"),
        (("--connection", "c99"), "0 of 242 messages match; connections here: c1, c2, c3, c4, c5, c6"),
        (("--client", "10.9.9.9"), "no connection matches; here are clients 127.0.0.1:39290, 127.0.0.1:39304"),
    ],
)  # fmt: skip
def test_nothing_is_a_note_that_says_what_there_is(arguments: tuple[str, ...], note: str, tmp_path: Path) -> None:
    shown = run("show", *arguments, QOS1)
    exported = run("export", *arguments, QOS1, "--out", tmp_path / "out")

    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr.startswith(f"note: {note}")
    assert len(shown.stderr.splitlines()) == 1
    assert f"note: {note}" in exported.stderr
    assert exported.exit_code == 0
    assert run("show", "-q", *arguments, QOS1).stderr == ""


def test_a_connection_that_is_not_there_is_a_line_with_those_that_are() -> None:
    ended = run("explain", QOS1, "--connection", "c99", "--direction", "c2s", "--offset", "0")

    assert ended.exit_code == 1
    assert "connection c99 c2s holds offset 0: 0 of 242 messages match; connections here: c1, c2, c3" in ended.stderr
    assert (
        "connections here"
        not in run("explain", QOS1, "--connection", "c1", "--direction", "c2s", "--offset", "9999").stderr
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-Y", "topci == x"), "-Y: there is no column 'topci'; did you mean topic or topics?"),
        (("-Y", "op ="), "-Y: '==' is wanted after 'op', not '='"),
        (("-Y", ""), "-Y: a name is wanted, but it ends"),
        (("-Y", "topic matches '['"), "-Y: topic: '[' is no regular expression: missing ]: ["),
        (
            ("--client", "x"),
            "--client: 'x' is no address like 10.0.0.7, 10.0.0.0/8 or fd00::1; names are in client_name",
        ),
        (
            ("--since", "later"),
            "--since: 'later' is no time like 05:24:10, +30s, -5m, 2026-11-21T05:24:10Z or 2026-11-21, or "
            "seconds since 1970",
        ),
        (("--since", "05:25", "--until", "05:25"), "--until is not later than --since: nothing is between them"),
        (
            ("--since", "2026-11-22", "--until", "2026-11-21"),
            "--until is not later than --since: nothing is between them",
        ),
        (("--until", "+x"), "--until: 'x' is no time like 50ms; the units are ns, us, ms, s, min and h"),
        (("--connection", "x"), "--connection: 'x' is no connection; say c7, IP:PORT or a connection_id"),
        (("-Y", "op == \x1b[31mx y"), "-Y: 'and', 'or' or the end is wanted after 'op == \\x1b[31mx', not 'y'"),
    ],
)
def test_a_wrong_filter_is_one_line_and_misuse(arguments: tuple[str, ...], said: str) -> None:
    for command in (("show",), ("export", "--out", "/nonexistent"), ("follow",)):
        result = run(*command, *arguments, QOS1)

        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"mqpcap: {said}\n"


def test_bodies_that_are_cut_cannot_be_searched() -> None:
    for arguments in (("--grep", "x"), ("-Y", "payload contains x")):
        result = run("show", *arguments, "--bodies", "none", QOS1)

        assert (result.exit_code, result.stdout) == (2, "")
        assert "leave --bodies out" in result.stderr


def test_a_filter_is_no_way_to_ask_for_secrets() -> None:
    assert keys("-Y", "api_key == 'dev-key'", QOS1) == []
    assert keys("-Y", "api_key == 'dev-key'", "--show-secrets", QOS1) != []
    assert len(keys("-Y", "api_key == '***'", QOS1)) == len(keys("-Y", "api_key exists", QOS1)) > 0


def test_an_until_before_since_is_the_next_day() -> None:
    assert keys("-u", "--since", "05:24:09", "--until", "05:24:08", QOS1) == keys(QOS1)


def test_times_of_day_are_local_without_u() -> None:
    said = run("show", "-q", "--json", "--until", "10:24:10", QOS1, TZ="Asia/Karachi")  # five hours ahead

    assert len(said.stdout.splitlines()) == len(keys("-u", "--until", "05:24:10", QOS1))


def test_strict_counts_flaws_of_all_messages() -> None:
    flawed = "pcaps/blipmq/errors.pcap"
    clean = next(row for row in tally_of(flawed) if "flaw" not in row)

    result = run("show", "-q", "--strict", "--client", f"{clean['src_ip']}:{clean['src_port']}", flawed)

    assert result.exit_code == 1


def test_rows_come_while_a_pipe_is_open_with_a_filter_too() -> None:
    data = (ROOT / QOS1).read_bytes()

    assert len(run("show", "-q", "--op", "PING", "-", stdin=data).stdout.splitlines()) == len(
        keys("--op", "PING", QOS1)
    )


def test_ends_of_connections_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends packets chooses how many connections there are."""
    monkeypatch.setattr(match_tally, "MAX_WORDS", 3)
    tally = MatchTally(query("client == 10.0.0.99"))
    for port in range(10):
        ends = {
            f"{end}_{what}": [value] for end in ("client", "server") for what, value in (("ip", "::1"), ("port", port))
        }
        tally.look(Output("connections", pa.table({"protocol": ["fq"], **ends})), 0)

    assert (
        tally.note
        == "no connection matches; here are clients [::1]:0, [::1]:1, [::1]:2, servers [::1]:0, [::1]:1, [::1]:2"
    )
