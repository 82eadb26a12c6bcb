"""``mqpcap show``: what became of each request, and the filters that ask for it."""

import json
import re
import struct
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import running
from running import ROOT, Ended
from table_rows import rows_of

from mqpcap.listing import reorder_buffer
from mqpcap.listing.shown_messages import ShownMessages
from mqpcap.tables.output import Output

TRUTH = ROOT / "tests" / "truth"
CORE = "pcaps/flymq/core.pcap"
QOS1 = "pcaps/blipmq/qos1.pcap"
LINE = re.compile(
    r"(?P<clock>[\d:.]{15})Z  (?P<packet>\S+) +c\d+ +(?P<client>\S+) (?P<way>->|<-) \S+  \S+  (?P<op>\S+)"
)


def run(*arguments: str | Path) -> Ended:
    return running.run("show", "-q", *arguments)


def shown(*arguments: str | Path) -> list[str]:
    result = run("-u", *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def parts(line: str) -> re.Match[str]:
    found = LINE.match(line)
    assert found is not None, line
    return found


def between_us(first: str, last: str) -> int:
    """From one line's time of day to another's."""
    times = [datetime.strptime(parts(line)["clock"], "%H:%M:%S.%f") for line in (first, last)]
    return round((times[1] - times[0]).total_seconds() * 1_000_000)


def packed(time_us: int) -> str:
    return f"{time_us // 1000}.{time_us % 1000:03d} ms"


# -- lines ---------------------------------------------------------------------------------------------


def test_request_and_reply_name_each_other_as_the_client_logged_them() -> None:
    (connection,) = json.loads((TRUTH / "flymq/core.truth.json").read_text())["connections"]
    calls = [event["op_name"] for event in connection["events"] if event["dir"] == "c2s"]

    said = shown(CORE)

    requests = [line for line in said if parts(line)["way"] == "->"]
    replies = [line for line in said if parts(line)["way"] == "<-"]
    assert [parts(line)["op"] for line in requests] == calls
    # The server answers one request after the other: the k-th reply is the k-th request's.
    for request, reply in zip(requests, replies, strict=True):
        status = re.search(r"  (ok|error(?: -?\d+)?)(?: \".*\")?  <= ", reply)
        assert status is not None
        went = f"  => {parts(reply)['packet']} {status[1]} in {packed(between_us(request, reply))}"
        assert request.split(", server ")[0].endswith(went)
        came = f"  <= {parts(request)['packet']} in {packed(between_us(request, reply))}"
        assert reply.split(", server ")[0].endswith(came)


def test_success_that_is_silence_is_said_so() -> None:
    # qos1, connection 1: PUBLISH id 4 gets no answer, PING id 51 behind it does (PROTOCOL.md).
    (publish, *_) = shown("--op", "PUBLISH", "-c", "1", QOS1)

    assert publish.endswith('"first"  => silent')


def test_a_refused_request_says_the_error() -> None:
    # qos1: the second ACK of delivery 1 is refused, NACK 404.
    refused = [line for line in shown("--op", "ACK", QOS1) if "error" in line]

    assert re.search(r"ACK  id=1  => #\d+ error 404 in \d+\.\d{3} ms$", refused[0])


def test_where_no_answer_is_expected_the_line_ends_as_before() -> None:
    messages = shown("--op", "message", "pcaps/fq/session.pcap")

    assert messages
    assert not [line for line in messages if "=>" in line or "<=" in line]


def test_a_reply_whose_request_was_not_captured_says_so() -> None:
    first = shown("-c", "1", "pcaps/faults/flymq_no_syn.pcap")[0]

    assert parts(first)["way"] == "<-"
    assert first.endswith("  <= request not captured")


def test_a_partner_in_another_file_is_named_with_it(tmp_path: Path) -> None:
    whole = (ROOT / CORE).read_bytes()
    packets, at = [], 24
    while at < len(whole):
        end = at + 16 + struct.unpack_from("<I", whole, at + 8)[0]
        packets.append(whole[at:end])
        at = end
    said = shown(CORE)
    asked = next(line for line in said if parts(line)["op"] == "LIST_TOPICS")
    first = int(parts(asked)["packet"][1:])
    (tmp_path / "a.pcap1").write_bytes(whole[:24] + b"".join(packets[:first]))
    (tmp_path / "a.pcap2").write_bytes(whole[:24] + b"".join(packets[first:]))

    request, reply = shown("-c", "2", tmp_path / "a.pcap1", tmp_path / "a.pcap2")

    n = int(parts(said[1])["packet"][1:]) - first
    assert f"  => {tmp_path}/a.pcap2#{n} ok in " in request
    assert f"  <= {tmp_path}/a.pcap1#{first} in " in reply


# -- filters -------------------------------------------------------------------------------------------


def test_unanswered_shows_requests_that_the_client_got_nothing_for() -> None:
    cases = json.loads((TRUTH / "fq/errors.truth.json").read_text())["handmade_cases"]
    wanted = {"bind with 128-byte exchange": "bind_request", "unbind with 128-byte exchange": "unbind_request"}
    # What came back is the answer to the login alone: two bytes of code, a length and the key.
    ports = {}
    for case in cases:
        if case["case"] in wanted:
            received = bytes.fromhex(case["received_hex"])
            assert received[:2] == b"\xaa\x00" and len(received) <= 2 + 2 + int.from_bytes(received[2:4], "big") + 4
            ports[f"127.0.0.1:{case['client_port']}"] = wanted[case["case"]]
    assert len(ports) == 2

    said = shown("--unanswered", "pcaps/fq/errors.pcap")

    assert {parts(line)["client"]: parts(line)["op"] for line in said}.items() >= ports.items()
    assert all(line.endswith("  => UNANSWERED") for line in said)
    for port, op in ports.items():
        assert [parts(line)["client"] for line in said if parts(line)["op"] == op] == [port]


def test_a_client_that_got_every_answer_has_none_unanswered() -> None:
    assert shown("--unanswered", CORE) == []


def test_slower_than_is_the_requests_that_took_longer() -> None:
    said = shown(CORE)
    requests = [line for line in said if parts(line)["way"] == "->"]
    replies = [line for line in said if parts(line)["way"] == "<-"]
    took_us = [between_us(q, r) for q, r in zip(requests, replies, strict=True)]
    middle_us = sorted(took_us)[len(took_us) // 2]

    found = shown("--slower-than", f"{middle_us}us", CORE)

    assert found == [q for q, us in zip(requests, took_us, strict=True) if us > middle_us]
    assert 0 < len(found) < len(requests)


@pytest.mark.parametrize("word", ["1ms", "1 ms", "1000us", "1000µs", "1000000ns", "0.001s", "1.0MS"])
def test_units_of_time(word: str) -> None:
    assert run("-u", "--slower-than", word, CORE).stdout == run("-u", "--slower-than", "1ms", CORE).stdout


def test_filters_combine() -> None:
    slow = shown("--slower-than", "0ns", QOS1)

    found = shown("--slower-than", "0ns", "--op", "poll", "--protocol", "blipmq", "-c", "3", QOS1)

    assert found == [line for line in slow if parts(line)["op"] == "POLL"][:3]
    assert len(found) == 3
    assert shown("--slower-than", "0ns", "--protocol", "fq", QOS1) == []


def test_json_has_the_exchange_on_both_sides() -> None:
    rows = [json.loads(line) for line in shown("--json", CORE)]
    by_packet = {row["first_packet"]: row for row in rows}

    for row in rows:
        asks = row["direction"] == "c2s"
        other = by_packet[row["exchange"].pop("reply_packet" if asks else "request_packet")]
        assert 0 < row["exchange"].pop("server_ns") <= row["exchange"]["latency_ns"]
        assert row["exchange"] == {"state": "answered", "latency_ns": abs(int(other["ts_ns"]) - int(row["ts_ns"]))}
        assert other["direction"] != row["direction"]


def test_json_of_a_filtered_request_is_that_request() -> None:
    rows = [json.loads(line) for line in shown("--json", "--slower-than", "0ns", CORE)]

    assert len(rows) == len(shown("--slower-than", "0ns", CORE)) > 0
    assert {row["direction"] for row in rows} == {"c2s"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("50m", "'m' is no unit"),
        ("fast", "no time like 50ms"),
        ("-1ms", "no time like 50ms"),
        ("", "no time like 50ms"),
        ("9" * 30 + "s", "292 years"),
    ],
)
def test_a_time_that_is_none_is_misuse_and_says_what_would_do(word: str, said: str) -> None:
    result = run(f"--slower-than={word}", CORE)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.split())


def test_unanswered_and_slower_than_exclude_each_other() -> None:
    result = run("--unanswered", "--slower-than", "1ms", CORE)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "--unanswered and --slower-than" in result.stderr


def test_an_exchange_is_looked_for_among_messages_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not among all that wait: each output of many files would be compared with the messages of all."""
    noted = []
    monkeypatch.setattr(reorder_buffer._Run, "note", lambda part, exchanges: noted.append(part.ts_ns.tolist()))
    rows = reorder_buffer.ReorderBuffer(0, ShownMessages(), 1)
    for k in range(40):
        messages = rows_of("messages", {"ts_ns": 100 * k}, {"ts_ns": 100 * k + 50, "stream_offset": 10})
        rows.add(Output("messages", messages, "flymq", messages.select(["op"])), 0)

    exchange = {"request_ts_ns": 750, "reply_ts_ns": 800, "request_offset": 10}
    rows.add(Output("exchanges", rows_of("exchanges", exchange)), 0)
    rows.add(Output("exchanges", rows_of("exchanges", {"request_ts_ns": 760, "request_offset": 10})), 0)

    assert noted == [[700, 750], [800, 850]]


def test_rows_that_are_too_many_are_not_looked_at_for_each_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """More go than must, so that the next windows find room; parts with nothing due are not touched."""
    monkeypatch.setattr(reorder_buffer, "MAX_BUFFERED_ROWS", 160)
    partition, sizes = np.partition, []
    monkeypatch.setattr(np, "partition", lambda times, k: sizes.append(len(times)) or partition(times, k))
    rows = reorder_buffer.ReorderBuffer(0, ShownMessages(), 1)
    written: list[int] = []
    for k in range(260):
        messages = rows_of("messages", {"ts_ns": k})
        rows.add(Output("messages", messages, "flymq", messages.select(["op"])), 0)
        until_ns = rows.release_before_ns(k)
        written += [row.message["ts_ns"] for some in rows.pop_until(until_ns) for row in some]
        assert len(rows) == k + 1 - len(written) <= 160

    assert written == list(range(len(written)))
    assert len(sizes) == (260 - 160) // 11 + 1  # ten more than the one too many
    assert [row.message["ts_ns"] for some in rows.pop_until(1 << 62) for row in some] == list(range(len(written), 260))
    assert len(rows) == 0


def test_a_row_of_more_bytes_than_the_bound_is_buffered_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder_buffer, "MAX_BUFFERED_BYTES", 1)
    rows = reorder_buffer.ReorderBuffer(0, ShownMessages(), 1)
    messages = rows_of("messages", {"ts_ns": 5})
    rows.add(Output("messages", messages, "flymq", messages.select(["op"])), 0)

    assert rows.release_before_ns(5) <= 5
    assert len([row for some in rows.pop_until(6) for row in some]) == 1


def test_a_request_that_took_long_to_send_names_the_time_of_the_server() -> None:
    """Packet 62 has 8 bytes of a PRODUCE, packet 65 the last ones, packet 66 the reply."""
    (line,) = [line for line in shown(CORE) if "#62 " in line and "=>" in line]
    assert line.endswith("=> #66 ok in 43.028 ms, server 0.144 ms")

    rows = running.objects(run("--json", CORE))
    (row,) = [row for row in rows if row["first_packet"] == 62]
    exchange = row["exchange"]
    assert isinstance(exchange, dict)
    assert (exchange["latency_ns"], exchange["server_ns"]) == (43_028_000, 144_000)
