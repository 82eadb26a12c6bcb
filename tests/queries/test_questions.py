"""The sixteen questions, answered by DuckDB and by reading the truth files in plain Python.

Where a truth file has no times, they come from the packets of the capture, read here by a walk of twenty lines.
"""

import bisect
import datetime
import functools
import itertools
import json
import re
import shutil
import statistics
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra lake)")

import made_flymq
from combined_cases import conversation, write
from rows import merged

from mqpcap import queries
from mqpcap.cli import main
from mqpcap.errors import QueryError
from mqpcap.protocols import protocols
from mqpcap.schema.requests import CorrelationRule, RequestRule, Roles

ROOT = Path(__file__).resolve().parents[2]
LOST = sorted(path.stem.removesuffix("_lost") for path in (ROOT / "pcaps" / "faults").glob("*_lost.pcap"))
Row = dict[str, Any]


class Tables:
    """The tables of one capture, in a database of their own."""

    def __init__(self, folder: Path) -> None:
        self.con = duckdb.connect()
        queries.tables(self.con, folder)

    def select(self, sql: str) -> list[Row]:
        """The rows of a statement."""
        return rows_of(self.con.sql(sql))

    def ask(self, question: str, **parameters: Any) -> list[Row]:
        """The answer as dictionaries."""
        return rows_of(queries.run(question, self.con, **parameters))


def made_tables(folder: Path, *connections: Sequence[made_flymq.Call]) -> Tables:
    """The tables of a capture made by hand."""
    path = made_flymq.capture(folder / "made.pcap", *connections)
    assert CliRunner().invoke(main, ["export", str(path), "--out", str(folder / "tables"), "-q"]).exit_code == 0
    return Tables(folder / "tables")


def rows_of(answer: Any) -> list[Row]:
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]


Export = Callable[[str], Tables]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Exports a sample capture once."""
    base = tmp_path_factory.mktemp("tables")

    @functools.cache
    def exported(name: str) -> Tables:
        out = base / name
        done = CliRunner().invoke(main, ["export", str(ROOT / "pcaps" / f"{name}.pcap"), "--out", str(out), "-q"])
        assert done.exit_code == 0, done.output
        return Tables(out)

    return exported


def truth(name: str) -> Any:
    return json.loads((ROOT / "tests" / "truth" / f"{name}.truth.json").read_text())


def packets(name: str, client_port: int) -> dict[str, list[tuple[int, int, int]]]:
    """By direction (end offset in the stream, time in ns, packet number) of every segment with data, in order."""
    content = (ROOT / "pcaps" / f"{name}.pcap").read_bytes()
    found: dict[str, list[tuple[int, int, int]]] = {"c2s": [], "s2c": []}
    base: dict[str, int] = {}
    at, number = 24, 0
    while at < len(content):
        number += 1
        seconds, micros, caplen = struct.unpack_from("<III", content, at)
        frame = content[at + 16 : at + 16 + caplen]
        at += 16 + caplen
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        header = 14 + (frame[14] & 15) * 4
        source, target, seq, _, offset, flags = struct.unpack_from(">HHIIBB", frame, header)
        if client_port not in (source, target):
            continue
        direction = "c2s" if source == client_port else "s2c"
        length = struct.unpack_from(">H", frame, 16)[0] - (header - 14) - (offset >> 4) * 4
        if flags & 2:
            base[direction] = seq + 1
        elif length:
            end = (seq - base[direction]) % 2**32 + length
            found[direction].append((end, (seconds * 1_000_000 + micros) * 1000, number))
    return found


def arrival(segments: list[tuple[int, int, int]], offset: int) -> tuple[int, int]:
    """Time in ns and number of the packet that holds the byte at an offset."""
    at = bisect.bisect_right([end for end, _, _ in segments], offset)
    return segments[at][1:]


def flymq_calls(name: str, number: int = 0) -> list[Row]:
    """Requests and replies of a FlyMQ connection that asks and waits, with the times of their first and last bytes."""
    connection = truth(name)["connections"][number]
    segments = packets(name, connection["client_port"])
    position = {"c2s": 0, "s2c": 0}
    timed = []
    for event in connection["events"]:
        direction, length = event["dir"], 8 + event["payload_len"]
        first = position[direction]
        position[direction] += length
        timed.append(
            event
            | {
                "first": arrival(segments[direction], first),
                "last": arrival(segments[direction], first + length - 1),
            }
        )
    return [{"request": a, "reply": b} for a, b in zip(timed[::2], timed[1::2], strict=True)]


def calls(connection: Row) -> list[tuple[Row, Row]]:
    """Requests and replies of a FlyMQ connection that asks and waits."""
    events = [e for e in connection["events"] if "op_name" in e]
    return list(zip(events[::2], events[1::2], strict=True))


def nonzero(counts: Counter[Any]) -> dict[Any, int]:
    return {key: value for key, value in counts.items() if value}


# What was sent and received, by (destination, flow), as the truth files of the five protocols say.


def fq_carried(said: Row) -> Counter[tuple[str, str]]:
    lists = said["messages"]
    found = Counter((m["exchange"], "in") for m in lists["client_to_server"]["bob"])
    found.update((m["exchange"], "in") for m in lists["client_to_server"]["linesender"])
    found.update((m["exchange"], "out") for m in lists["server_to_client"]["alice_printed_by_client"])
    # Both are bound to "events" alone.
    found["events", "out"] += lists["server_to_client"]["watcher_expected"]["count"]
    found["events", "out"] += lists["server_to_client"]["tail_expected"]["count"]
    return found


def kokaq_carried(said: Row) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for connection in said["connections"]:
        for asked, answered in ((connection["events"][a], connection["events"][b]) for a, b in connection["pairs"]):
            queue = f"{asked.get('namespace')}/{asked.get('queue')}"
            if asked["opcode_name"] == "Push":
                found[queue, "in"] += 1
            if asked["opcode_name"] in ("Pop", "Peek") and answered.get("payload_len") is not None:
                found[queue, "out"] += 1
    return found


def flymq_carried(said: Row) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for connection in said["connections"]:
        for request, reply in calls(connection):
            fields = request.get("fields") or {}
            if request["op_name"] == "PRODUCE":
                found[fields["topic"], "in"] += 1
            if reply["op_name"] in ("FETCH", "FETCH_BINARY"):
                found[fields["topic"], "out"] += len(reply["fields"]["messages"])
            if reply["op_name"] == "CONSUME":
                found[fields["topic"], "out"] += 1
    return found


def blipmq_carried(said: Row) -> Counter[tuple[str, str]]:
    return Counter(
        (e["fields"]["topic"], "in" if e["dir"] == "c2s" else "out")
        for c in said["connections"]
        for e in c["events"]
        if e["type_name"] == "PUBLISH"
    )


def group_of(event: Row) -> str:
    group = event["header"]["group"]
    # Bytes that are no text in the truth file's eyes are text in the column if they are UTF-8: this one is a NUL.
    text = group if isinstance(group, str) else json.dumps(group, separators=(",", ":"))
    return text.replace('{"hex":"00"}', '"\\u0000"')


def msgq_carried(said: Row) -> Counter[tuple[str, str]]:
    return Counter(
        (group_of(e), "in" if e["dir"] == "sent" else "out")
        for e in said["events"]
        if e.get("header", {}).get("type") == "send"
    )


CARRIED = {
    "fq/session": fq_carried,
    "kokaq/go1_session": kokaq_carried,
    "flymq/groups": flymq_carried,
    "blipmq/qos1": blipmq_carried,
    "msgq/split_session": msgq_carried,
}


def expected_carried(name: str) -> dict[tuple[str, str], int]:
    """Of kokaq only what names a whole queue: the rest has a name that is half null."""
    found = nonzero(CARRIED[name](truth(name)))
    return {key: n for key, n in found.items() if "None" not in key[0]}


# 1


@pytest.mark.parametrize("name", CARRIED)
def test_who_talks_counts_what_each_destination_was_sent_and_gave(export: Export, name: str) -> None:
    rows = export(name).ask("who_talks")

    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        found[row["destination"], "in" if row["role"] == "producer" else "out"] += row["messages"]
    expected = expected_carried(name)
    assert {key: n for key, n in nonzero(found).items() if key in expected or name != "kokaq/go1_session"} == expected


def test_who_talks_knows_fq_users_and_their_queues(export: Export) -> None:
    said = truth("fq/session")["messages"]

    rows = export("fq/session").ask("who_talks")

    talked = {(r["client_name"], r["role"], r["destination"]): r for r in rows}
    bob = Counter(m["exchange"] for m in said["client_to_server"]["bob"])
    sizes: Counter[str] = Counter()
    for m in said["client_to_server"]["bob"]:
        sizes[m["exchange"]] += m["payload_len"]
    for exchange, count in bob.items():
        row = talked["bob", "producer", exchange]
        assert (row["messages"], row["requests"], row["body_bytes"]) == (count, count, sizes[exchange])
    assert talked["watcher", "consumer", "events"]["messages"] == said["server_to_client"]["watcher_expected"]["count"]
    assert talked["watcher", "consumer", "events"]["group_name"] == "watchq"
    # Bound twice to "events", once to "metrics".
    assert talked["alice", "consumer", "events"]["requests"] == 2
    assert talked["alice", "consumer", "metrics"]["group_name"] == "inbox"


def test_who_talks_knows_flymq_users_and_groups(export: Export) -> None:
    login = {(r["client_name"], r["role"], r["destination"]) for r in export("flymq/login").ask("who_talks")}
    groups = [
        r for r in export("flymq/groups").ask("who_talks") if r["destination"] == "jobs" and r["role"] == "consumer"
    ]

    # The first produce is refused: not logged in. Those after it are by admin, also after a failed second login.
    assert {x for x in login if x[1] == "producer"} == {(None, "producer", "orders"), ("admin", "producer", "orders")}
    assert [(r["group_name"], r["groups"]) for r in groups] == [("g1", 2)]


def test_who_talks_knows_msgq_names(export: Export) -> None:
    said = truth("msgq/json_session")
    names = {c["name"]: c["lname"] for c in said["connections"]}

    rows = export("msgq/json_session").ask("who_talks")

    sent = Counter(
        (names[e["conn"]], group_of(e))
        for e in said["events"]
        if e["dir"] == "sent" and e.get("header", {}).get("type") == "send"
    )
    assert {
        (r["client_name"], r["destination"]): r["messages"]
        for r in rows
        if r["role"] == "producer" and r["client_name"] in names.values()
    } == sent


# 2


@pytest.mark.parametrize("name", CARRIED)
@pytest.mark.parametrize("window_s", [0.5, 86400.0])
def test_rates_add_up_to_what_was_carried(export: Export, name: str, window_s: float) -> None:
    rows = export(name).ask("rates", window_ns=round(window_s * 1e9), top=1000)

    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        found[row["destination"], row["flow"]] += row["messages"]
        assert row["messages_per_s"] == pytest.approx(row["messages"] / window_s)
        assert row["window_start_ns"] % round(window_s * 1e9) == 0
    expected = expected_carried(name)
    assert {key: n for key, n in nonzero(found).items() if key in expected or name != "kokaq/go1_session"} == expected


def test_rates_give_the_busiest_only(export: Export) -> None:
    totals: Counter[str] = Counter()
    for (destination, _), count in expected_carried("msgq/split_session").items():
        totals[destination] += count

    rows = export("msgq/split_session").ask("rates", top=1)

    assert {r["destination"] for r in rows} == {totals.most_common(1)[0][0]}


# 3


def test_latency_of_every_flymq_call_is_that_of_its_packets(export: Export) -> None:
    taken = defaultdict(list)
    for call in flymq_calls("flymq/core"):
        taken[call["request"]["op_name"]].append((call["reply"]["first"][0] - call["request"]["first"][0]) / 1000)
    refused = Counter(
        c["request"]["op_name"] for c in flymq_calls("flymq/core") if c["reply"]["op_name"] == "ERROR"
    )  # fmt: skip

    rows = {r["op"]: r for r in export("flymq/core").ask("latency")}

    assert set(rows) == set(taken)
    for op, times in taken.items():
        row = rows[op]
        assert (row["requests"], row["answered"], row["errors"]) == (len(times), len(times), refused[op])
        assert row["p50_us"] == pytest.approx(statistics.median(times))
        assert row["max_us"] == max(times)


def test_latency_counts_what_fq_answers_and_what_not(export: Export) -> None:
    said = truth("fq/session")
    asked, answered = said["commands"]["client_to_server"], said["commands"]["server_to_client"]

    rows = {r["op"]: r for r in export("fq/session").ask("latency")}

    for op, reply in {"auth": "auth_response", "bind_request": "bind", "status_request": "status"}.items():
        assert (rows[op]["requests"], rows[op]["answered"]) == (asked[op], answered[reply])
    assert rows["message"]["not_expected"] == said["messages"]["client_to_server"]["count"]
    assert rows["message"]["p50_us"] is None


@pytest.mark.parametrize("name", ["kokaq/go1_session", "kokaq/doc_session"])
def test_latency_counts_the_pairs_of_kokaq(export: Export, name: str) -> None:
    said = truth(name)
    pairs = Counter(
        c["events"][a]["opcode_name"] for c in said["connections"] for a, _ in c["pairs"]
    )  # fmt: skip

    rows = export(name).ask("latency")

    assert {r["op"]: r["answered"] for r in rows if r["answered"]} == pairs


def test_latency_percentiles_are_exact() -> None:
    # 1 to 1000 us: the p-quantile lies at 1 + 999 p.
    con = duckdb.connect()
    con.sql(
        "CREATE TABLE exchanges AS SELECT 'x' AS capture, 1 AS connection_id, 'flymq' AS protocol, 'PRODUCE' AS op, "
        "1 AS request_ts_ns, range * 1000 AS latency_ns, IF(range > 600, 'likely', 'answered') AS state, "
        "'ok' AS status, "
        "'c2s' AS request_direction, range AS request_offset, range AS reply_offset, 'd' AS destination, "
        "'c' AS client_name, 1 AS server_port, 1 AS client_port, 'a' AS server_ip, 'b' AS client_ip FROM range(1, 1001)"
    )

    (row,) = rows_of(queries.run("latency", con))

    assert row["p50_us"] == pytest.approx(500.5)
    assert row["p95_us"] == pytest.approx(950.05)
    assert row["p99_us"] == pytest.approx(990.01)
    assert row["p999_us"] == pytest.approx(999.001)
    assert (row["max_us"], row["likely"]) == (1000, 400)


# 4


def test_slowest_are_proven_by_their_packets(export: Export) -> None:
    timed = sorted(
        flymq_calls("flymq/core"), key=lambda c: c["request"]["first"][0] - c["reply"]["first"][0]
    )[:5]  # fmt: skip

    rows = export("flymq/core").ask("slowest", n=5)

    assert [
        (r["op"], r["latency_us"], r["request_first_packet"], r["reply_first_packet"], r["reply_last_packet"])
        for r in rows
    ] == [
        (
            c["request"]["op_name"],
            (c["reply"]["first"][0] - c["request"]["first"][0]) / 1000,
            c["request"]["first"][1],
            c["reply"]["first"][1],
            c["reply"]["last"][1],
        )
        for c in timed
    ]
    assert [r["request_len"] for r in rows] == [8 + c["request"]["payload_len"] for c in timed]
    assert all(r["capture_file"].endswith("core.pcap") for r in rows)


# 5


def test_where_the_time_goes_cuts_each_exchange_at_its_packets(export: Export) -> None:
    timed = flymq_calls("flymq/core")
    sending = [c["request"]["last"][0] - c["request"]["first"][0] for c in timed]
    waiting = [c["reply"]["first"][0] - c["request"]["last"][0] for c in timed]
    receiving = [c["reply"]["last"][0] - c["reply"]["first"][0] for c in timed]
    thinking = [
        b["request"]["first"][0] - a["reply"]["last"][0] for a, b in itertools.pairwise(timed)
    ]  # fmt: skip

    (row,) = export("flymq/core").ask("where_the_time_goes")

    assert row["exchanges"] == len(timed)
    for name, times in {"sending": sending, "waiting": waiting, "receiving": receiving, "thinking": thinking}.items():
        assert row[f"{name}_p50_us"] == pytest.approx(statistics.median(times) / 1000)
    assert row["rtt_at_most_us"] == min(waiting) / 1000
    sums = {"client": sum(thinking), "broker": sum(waiting), "transfer": sum(sending) + sum(receiving)}
    assert row["transfer_us"] == sums["transfer"] / 1000
    assert row["mostly"] == max(sums, key=lambda k: sums[k])
    assert (row["server_port"], row["retransmitted_bytes"], row["missing_bytes"]) == (9092, 0, 0)


def test_time_with_a_closed_window_is_that_of_the_side_that_closed_it(export: Export, tmp_path: Path) -> None:
    """For half of the longest answer the client had no room, for half of the longest request the server."""
    timed = flymq_calls("flymq/core")
    answers = [c["reply"]["last"][0] - c["request"]["last"][0] for c in timed]
    receiving = [c["reply"]["last"][0] - c["reply"]["first"][0] for c in timed]
    ends = [0, *(c["reply"]["last"][0] for c in timed)]
    requests = [c["request"]["last"][0] - (ends[k] or c["request"]["first"][0]) for k, c in enumerate(timed)]
    (before,) = export("flymq/core").ask("where_the_time_goes")
    path = str(ROOT / "pcaps" / "flymq" / "core.pcap")
    assert CliRunner().invoke(main, ["export", path, "--out", str(tmp_path / "tables"), "-q"]).exit_code == 0
    tables = Tables(tmp_path / "tables")
    answer_ns, request_ns = max(answers) // 2, max(requests) // 2
    tables.con.execute(f"""CREATE TABLE closed AS SELECT * REPLACE (
        {answer_ns} AS closed_window_ns_s2c, {request_ns} AS closed_window_ns_c2s) FROM connections""")
    tables.con.execute("CREATE OR REPLACE TEMP VIEW connections AS SELECT * FROM closed")

    (row,) = tables.ask("where_the_time_goes")

    received_ns = receiving[answers.index(max(answers))]
    assert received_ns < answer_ns
    assert row["broker_us"] - before["broker_us"] == pytest.approx((request_ns - answer_ns + received_ns) / 1000)
    assert sum(row[f"{x}_us"] - before[f"{x}_us"] for x in ("broker", "client", "transfer")) == pytest.approx(0)


# 6


def test_transit_counts_every_fq_message_that_came_out(export: Export) -> None:
    delivered = {d: n for (d, flow), n in fq_carried(truth("fq/session")).items() if flow == "out"}

    rows = export("fq/session").ask("transit")

    assert {r["destination"]: r["deliveries"] for r in rows} == delivered
    assert {r["how"] for r in rows} == {"message_id"}
    assert all(0 < r["min_us"] <= r["p50_us"] <= r["p999_us"] <= r["max_us"] for r in rows)


def test_transit_counts_flymq_records_whose_produce_was_seen(export: Export) -> None:
    said = truth("flymq/groups")
    produced, read = set(), []
    for connection in said["connections"]:
        for request, reply in calls(connection):
            if reply["op_name"] == "PRODUCE":
                produced.add((reply["fields"]["topic"], reply["fields"]["partition"], reply["fields"]["offset"]))
            if reply["op_name"] == "FETCH":
                where = (request["fields"]["topic"], request["fields"]["partition"])
                read += [(*where, m["offset"]) for m in reply["fields"]["messages"]]
    found = [key for key in read if key in produced]

    rows = export("flymq/groups").ask("transit")

    assert [(r["destination"], r["deliveries"], r["published"]) for r in rows] == [
        ("jobs", len(found), len(set(found)))
    ]


# 7


def test_backlog_of_flymq_groups_is_that_of_the_broker_and_of_the_offsets(export: Export) -> None:
    broker, committed, produced, read = {}, {}, {}, {}
    for connection in truth("flymq/groups")["connections"]:
        for request, reply in calls(connection):
            if reply["op_name"] == "ERROR" or not request.get("fields"):
                continue
            asked, said = request["fields"], reply["fields"]
            where = (asked.get("topic"), asked.get("partition"))
            if reply["op_name"] == "PRODUCE":
                spot = (said["topic"], said["partition"])
                produced[spot] = max(produced.get(spot, 0), said["offset"] + 1)
            elif reply["op_name"] == "GET_LAG":
                broker[*where, asked["group_id"]] = (said["latest_offset"], said["committed_offset"], said["lag"])
            elif reply["op_name"] == "COMMIT" or (reply["op_name"] == "RESET_OFFSET" and asked["mode"] == "offset"):
                committed[*where, asked["group_id"]] = asked["offset"]
            elif reply["op_name"] == "GET_OFFSET":
                committed[*where, asked["group_id"]] = said["offset"]
            elif reply["op_name"] == "FETCH":
                read[*where, f"127.0.0.1:{connection['client_port']}"] = said["next_offset"]

    rows = export("flymq/groups").ask("backlog")

    def found(how: str) -> dict[Any, Any]:
        return {
            (r["destination"], r["partition_id"], r["consumer"]): (r["produced"], r["consumed"], r["backlog"])
            for r in rows
            if r["how"] == how
        }

    assert found("broker") == broker
    assert found("commit") == {k: (produced[k[:2]], v, produced[k[:2]] - v) for k, v in committed.items()}
    assert found("read") == {k: (produced[k[:2]], v, produced[k[:2]] - v) for k, v in read.items()}
    assert all(isinstance(r["backlog"], Decimal) for r in rows)


def test_backlog_of_kokaq_is_pushes_less_pops(export: Export) -> None:
    balance: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    for c in truth("kokaq/go1_session")["connections"]:
        for asked, answered in ((c["events"][a], c["events"][b]) for a, b in c["pairs"]):
            queue = (c["server_port"], f"{asked.get('namespace')}/{asked.get('queue')}")
            if answered["status_name"] == "Success" and "None" not in queue[1]:
                balance[queue][0] += asked["opcode_name"] == "Push"
                balance[queue][1] += asked["opcode_name"] == "Pop" and answered.get("payload_len") is not None
    expected = {queue: (p, q, p - q) for queue, (p, q) in balance.items() if p or q}

    rows = export("kokaq/go1_session").ask("backlog")

    found = {(r["server_port"], r["destination"]): (r["produced"], r["consumed"], r["backlog"]) for r in rows}
    # Pops without names are answered from 0/0, which nothing was pushed to by that name but once.
    assert {k: v for k, v in found.items() if k in expected and k[1] != "0/0"} == {
        k: v for k, v in expected.items() if k[1] != "0/0"
    }


def test_backlog_of_blipmq_is_what_a_subscriber_was_not_sent(export: Export) -> None:
    topics: Counter[str] = Counter()
    expected = {}
    for c in truth("blipmq/qos1")["connections"]:
        published: Counter[str] = Counter()
        offered: Counter[str] = Counter()
        tags = defaultdict(set)
        for i, e in enumerate(c["events"]):
            if e["type_name"] == "SUBSCRIBE":
                offered[e["fields"]["topic"]] -= published[e["fields"]["topic"]]
                topics[e["fields"]["topic"]] += 1
            elif e["type_name"] == "PUBLISH" and e["dir"] == "c2s":
                published[e["fields"]["topic"]] += 1
            elif e["type_name"] == "PUBLISH":
                tags[e["fields"]["topic"]].add(e["id"] if e["fields"]["qos"] else f"at {i}")
        for topic in offered:
            count = offered[topic] + published[topic]
            consumer = f"127.0.0.1:{c['client_port']}"
            expected[topic, consumer] = (count, len(tags[topic]), count - len(tags[topic]))
    # A topic that several connections use has no order of events across them in the truth file.
    used: dict[str, set[int]] = defaultdict(set)
    for c in truth("blipmq/qos1")["connections"]:
        for e in c["events"]:
            if e["type_name"] in ("PUBLISH", "SUBSCRIBE"):
                used[e["fields"]["topic"]].add(c["client_port"])
    expected = {k: v for k, v in expected.items() if len(used[k[0]]) == 1 and topics[k[0]] == 1}

    rows = export("blipmq/qos1").ask("backlog")

    found = {(r["destination"], r["consumer"]): (r["produced"], r["consumed"], r["backlog"]) for r in rows}
    assert len(expected) >= 8
    assert {k: found[k] for k in expected} == expected


def test_backlog_of_an_fq_queue_is_nothing_when_all_was_delivered(export: Export) -> None:
    said = truth("fq/session")["messages"]
    sent = sum(m["exchange"] == "metrics" for m in said["client_to_server"]["bob"])
    got = sum(m["exchange"] == "metrics" for m in said["server_to_client"]["alice_printed_by_client"])

    rows = export("fq/session").ask("backlog")

    assert [
        (r["consumer"], r["produced"], r["consumed"], r["backlog"]) for r in rows if r["destination"] == "metrics"
    ] == [("inbox", sent, got, sent - got)]


def test_backlog_of_made_positions(tmp_path: Path) -> None:
    """A committed -1, positions beyond the log, and a reader that was sent nothing."""
    made = [
        *(call for k in range(5) for call in made_flymq.produce("orders", b"x", k)),
        *made_flymq.commit("orders", "none", -1),
        *made_flymq.commit("orders", "some", 2),
        *made_flymq.commit("orders", "beyond", 400),
        *made_flymq.fetch("orders", 900),
    ]
    reader = [*made_flymq.fetch("orders", 1, b"x", b"x"), *made_flymq.fetch("orders", 700)]
    filtered = made_flymq.fetch("orders", 0, next_offset=4)

    rows = made_tables(tmp_path, made, reader, filtered).ask("backlog")

    found = {(r["how"], r["consumer"]): (r["produced"], r["consumed"], r["backlog"]) for r in rows}
    assert found == {
        ("commit", "none"): (5, -1, 5), ("commit", "some"): (5, 2, 3), ("commit", "beyond"): (5, 400, 0),
        ("read", "192.0.2.10:40002"): (5, 3, 2), ("read", "192.0.2.10:40003"): (5, 4, 1),
    }  # fmt: skip


def test_backlog_of_a_log_whose_producers_were_not_captured_is_up_to_what_was_read(tmp_path: Path) -> None:
    made = [*made_flymq.commit("orders", "slow", 10), *made_flymq.fetch("orders", 40, b"x", b"x")]

    rows = made_tables(tmp_path, made).ask("backlog")

    assert {r["how"]: (r["produced"], r["consumed"], r["backlog"]) for r in rows} == {
        "commit": (42, 10, 32), "read": (42, 42, 0),
    }  # fmt: skip


# 8


def test_unanswered_are_the_kokaq_requests_its_server_closes_on(export: Export) -> None:
    alone = [
        (c["events"][0]["opcode_name"], f"{c['events'][0]['opaque']}:{c['events'][0]['op_opaque']}")
        for c in truth("kokaq/go1_session")["connections"]
        if not c["pairs"]
    ]

    tables = export("kokaq/go1_session")
    rows = tables.ask("unanswered")

    messages = tables.select("SELECT connection_id, correlation_id FROM messages WHERE direction = 'c2s'")
    asked = {r["connection_id"]: r["correlation_id"] for r in messages}
    # Where the connection ends without the server's FIN, nobody can know whether an answer was under way.
    unknown = tables.select("SELECT op, connection_id FROM exchanges WHERE state = 'unknown'")
    found = [(r["op"], asked[r["connection_id"]]) for r in rows] + [
        (r["op"], asked[r["connection_id"]]) for r in unknown
    ]
    assert sorted(found) == sorted(alone)
    assert {r["state"] for r in rows} <= {"unanswered"}


def test_unanswered_fq_commands_are_those_without_a_reply(export: Export) -> None:
    commands = truth("fq/errors")["commands"]
    asked, answered = commands["client_to_server"], commands["server_to_client"]

    rows = export("fq/errors").ask("unanswered")

    found = Counter(r["op"] for r in rows if r["state"] == "unanswered")
    assert found["bind_request"] == asked["bind_request"] - answered["bind"]
    assert found["unbind_request"] == asked["unbind_request"] - answered["unbind"]


# 9


@pytest.mark.parametrize("name", ["flymq/core", "flymq/groups"])
def test_errors_of_flymq_by_operation_and_text(export: Export, name: str) -> None:
    expected = Counter(
        (request["op_name"], (request.get("fields") or {}).get("topic"), reply["fields"]["message"])
        for c in truth(name)["connections"]
        for request, reply in calls(c)
        if reply["op_name"] == "ERROR"
    )

    rows = export(name).ask("errors")

    assert {(r["op"], r["destination"], r["error_text"]): r["errors"] for r in rows} == expected


def test_errors_of_blipmq_by_code_and_text(export: Export) -> None:
    expected = Counter(
        (e["fields"]["code"], e["fields"]["text"])
        for c in truth("blipmq/errors")["connections"]
        for e in c["events"]
        if e["dir"] == "s2c" and e["type_name"] == "NACK"
    )

    rows = export("blipmq/errors").ask("errors")

    found: Counter[tuple[int, str]] = Counter()
    for r in rows:
        found[r["error_code"], r["error_text"]] += r["errors"]
    assert found == expected


def test_errors_of_kokaq_by_operation_and_reason(export: Export) -> None:
    expected = Counter(
        (e["opcode_name"], e["reason"])
        for c in truth("kokaq/go1_session")["connections"]
        for e in c["events"]
        if e["dir"] == "s2c" and e["status_name"] == "Fail"
    )

    rows = export("kokaq/go1_session").ask("errors")

    found: Counter[tuple[str, int]] = Counter()
    for r in rows:
        found[r["op"], r["error_code"]] += r["errors"]
    assert found == expected


def test_errors_of_fq_are_error_frames_and_refused_binds_and_unbinds(export: Export) -> None:
    said = truth("fq/errors")
    frames = said["error_frames_from_server"]
    refused = [e for e in said["bind_unbind_results_printed"] if 4294967295 in (e.get("result"), e.get("route_id"))]

    rows = export("fq/errors").ask("errors")

    assert sum(r["errors"] for r in rows if r["error_text"] not in (None, "refused")) == (
        frames["by_libfq_clients_auth_refused"] + frames["heartbeat_timeout"] + frames["handmade"]
    )
    assert sum(r["errors"] for r in rows if r["op"] == "bind_request" and r["error_text"] == "refused") == sum(
        e["ev"] == "bind" for e in refused
    )
    # Too long a user name is found by the client itself and never sent.
    printed = {t.strip() for case in said["libfq_cases"].values() for t in case["errors_printed"]}
    assert printed - {str(r["error_text"]).strip() for r in rows} <= {"user name is too long"}


# 10


def test_repeats_of_blipmq_are_redeliveries(export: Export) -> None:
    came: Counter[tuple[str, str]] = Counter()
    for c in truth("blipmq/qos1")["connections"]:
        again = Counter(
            (e["fields"]["topic"], str(e["id"])) for e in c["events"] if e["dir"] == "s2c" and e.get("redelivery")
        )
        came.update({key: n + 1 for key, n in again.items()})

    rows = export("blipmq/qos1").ask("repeats")

    assert {(r["destination"], r["repeat_key"]): r["times"] for r in rows} == came
    assert {r["kind"] for r in rows} == {"delivered again"}


def test_repeats_of_flymq_are_offsets_read_again(export: Export) -> None:
    read: Counter[tuple[int, str, str]] = Counter()
    for c in truth("flymq/fetch")["connections"]:
        for request, reply in calls(c):
            asked, port = request.get("fields") or {}, c["client_port"]
            if reply["op_name"] in ("FETCH", "FETCH_BINARY"):
                for m in reply["fields"]["messages"]:
                    read[port, asked["topic"], f"{asked['partition']}:{m['offset']}"] += 1
            elif reply["op_name"] in ("CONSUME", "CONSUME_ZERO_COPY"):
                read[port, asked["topic"], f"{asked['partition']}:{asked['offset']}"] += 1
    expected = sorted((topic, key, n) for (_, topic, key), n in read.items() if n > 1)

    rows = export("flymq/fetch").ask("repeats")

    assert sorted((r["destination"], r["repeat_key"], r["times"]) for r in rows) == expected
    assert expected


def test_repeats_of_msgq_are_numbers_used_again(export: Export) -> None:
    said = truth("msgq/json_session")
    used = Counter(
        (e["conn"], e["dir"], e["header"]["group"], f"{e['header']['from']}:{e['header']['seq']}")
        for e in said["events"]
        if e.get("header", {}).get("type") == "send"
    )
    kinds = {"sent": "sent again", "received": "delivered again"}
    expected = sorted((kinds[d], group, key, n) for (_, d, group, key), n in used.items() if n > 1)

    rows = export("msgq/json_session").ask("repeats")

    assert sorted((r["kind"], r["destination"], r["repeat_key"], r["times"]) for r in rows) == expected


def test_repeats_of_kokaq_are_locks_put_back(export: Export) -> None:
    put_back = Counter(
        f"{e['namespace']}/{e['queue']}"
        for c in truth("kokaq/go1_session")["connections"]
        for e in c["events"]
        if e["opcode_name"] == "ReleasePeekLock"
    )

    rows = export("kokaq/go1_session").ask("repeats")

    # Every request of that session has opaques of its own.
    assert {(r["kind"], r["destination"]): r["times"] for r in rows} == {
        ("put back", q): n for q, n in put_back.items()
    }


def test_nothing_repeats_in_an_fq_session(export: Export) -> None:
    assert export("fq/session").ask("repeats") == []


def test_repeats_find_what_a_producer_publishes_again_on_its_next_connection(tmp_path: Path) -> None:
    """FlyMQ has no ids of messages: equal bodies on a connection that began after another had ended."""
    first = [*made_flymq.produce("orders", b"paid 17", 0), *made_flymq.produce("orders", b"paid 18", 1)]
    second = [*made_flymq.produce("orders", b"paid 18", 2), *made_flymq.produce("orders", b"paid 19", 3)]
    at_once = [*made_flymq.produce("other", b"twice", 0), *made_flymq.produce("other", b"twice", 1)]

    tables = made_tables(tmp_path, first, second, at_once)
    rows = tables.ask("repeats")

    ids = [r["connection_id"] for r in tables.select("SELECT connection_id FROM connections ORDER BY client_port")]
    assert [(r["kind"], r["destination"], r["repeat_key"], r["times"]) for r in rows] == [
        ("sent on reconnect", "orders", "7 bytes", 2)
    ]
    assert [rows[0]["first_connection_id"], rows[0]["last_connection_id"]] == ids[:2]


def test_undelivered_are_publishes_that_nobody_read(tmp_path: Path) -> None:
    published = [call for k in range(4) for call in made_flymq.produce("orders", b"x", k)]

    rows = made_tables(tmp_path, published, made_flymq.fetch("orders", 1, b"x", b"x")).ask("undelivered")

    # Packets of a call: the request, its ACK, the reply, its ACK; three of the handshake come first.
    assert [(r["destination"], r["op"], r["first_packet"], r["open_deliveries"]) for r in rows] == [
        ("orders", "PRODUCE", 4, 0), ("orders", "PRODUCE", 16, 0),
    ]  # fmt: skip


def test_undelivered_says_how_many_deliveries_fit_several_publishes(tmp_path: Path) -> None:
    """BlipMQ has no ids of messages: equal bodies to one topic cannot be told from each other."""

    def frame(kind: int, number: int, payload: bytes) -> bytes:
        return struct.pack(">IBQ", 9 + len(payload), kind, number) + payload

    path, publish = tmp_path / "equal.pcap", b"\0\0\1torder"
    said = [
        (True, frame(1, 1, b"\0\1")), (False, frame(5, 1, bytes(8))),
        (True, frame(2, 2, b"\0\3key")), (False, frame(5, 2, bytes(8))),
        (True, frame(4, 3, b"\0\1t\0")), (False, frame(5, 3, b"\0\0\0\0\0\0\0\2")),
        (True, frame(3, 4, publish)), (True, frame(3, 5, publish)),
        (True, frame(9, 6, b"\0\0\0\0\0\0\0\2")), (False, frame(3, 6, publish)),
    ]  # fmt: skip
    write(path, conversation(said), 5555)
    done = CliRunner().invoke(main, ["export", str(path), "--out", str(tmp_path / "tables")])

    rows = Tables(tmp_path / "tables").ask("undelivered")

    assert "1 delivery fits several publishes" in done.stderr
    assert [(r["destination"], r["body_len"], r["open_deliveries"]) for r in rows] == [("t", 5, 1), ("t", 5, 1)]


# 11


def test_acks_of_blipmq_are_those_the_broker_took(export: Export) -> None:
    due: Counter[str] = Counter()
    acked: Counter[str] = Counter()
    for c in truth("blipmq/qos1")["connections"]:
        polled = {e["fields"]["subscription_id"] for e in c["events"] if e["type_name"] == "POLL" and e["fields"]}
        acknowledged = {
            e["fields"]["subscription_id"] for e in c["events"] if e["type_name"] == "ACK" and e["dir"] == "c2s"
        }
        if len(polled | acknowledged) != 1:
            continue
        last: dict[int, str] = {}
        for e in c["events"]:
            if e["type_name"] == "PUBLISH" and e["dir"] == "s2c" and e["fields"]["qos"] == 1:
                due[e["fields"]["topic"]] += 1
                last[e["id"]] = e["fields"]["topic"]
            elif e["type_name"] == "ACK" and e["dir"] == "c2s" and e.get("silent") and e["id"] in last:
                acked[last.pop(e["id"])] += 1

    rows = {r["destination"]: r for r in export("blipmq/qos1").ask("acks")}

    assert len(due) >= 6
    assert {t: rows[t]["due"] for t in due} == due
    assert {t: rows[t]["acked"] for t in due if rows[t]["acked"]} == nonzero(acked)


def test_acks_of_flymq_are_commits_which_lag_the_fetches(export: Export) -> None:
    reads, commits, furthest = 0, 0, []
    for c in truth("flymq/groups")["connections"]:
        reached: dict[tuple[str, int], int] = {}
        for request, reply in calls(c):
            asked = request.get("fields") or {}
            if reply["op_name"] == "FETCH" and reply["fields"]["messages"]:
                reads += 1
                reached[asked["topic"], asked["partition"]] = reply["fields"]["next_offset"]
            if reply["op_name"] == "COMMIT":
                commits += 1
                if (where := (asked["topic"], asked["partition"])) in reached:
                    furthest.append(reached[where] - asked["offset"])

    (row,) = export("flymq/groups").ask("acks")

    assert (row["kind"], row["destination"], row["due"], row["acked"]) == ("commit", "jobs", reads, commits)
    assert row["most_outstanding"] == max(furthest)
    assert 0 < row["p50_us"] <= row["max_us"]


def test_acks_of_kokaq_are_locks_given_back(export: Export) -> None:
    taken = [
        c["events"][0]
        for c in truth("kokaq/go1_session")["connections"]
        for a, b in c["pairs"]
        if c["events"][a]["opcode_name"] == "AcquirePeekLock" and c["events"][b]["status_name"] == "Success"
    ]

    rows = export("kokaq/go1_session").ask("acks")

    # One lock, refused once more while held, then released.
    assert [(r["kind"], r["destination"], r["due"], r["acked"], r["most_outstanding"]) for r in rows] == [
        ("peek lock", f"{e['namespace']}/{e['queue']}", 1, 1, 1) for e in taken
    ]


# 12


def test_churn_of_fq_counts_logins_and_heartbeats(export: Export) -> None:
    said = truth("fq/session")
    asked = said["commands"]["client_to_server"]

    (row,) = export("fq/session").ask("churn")

    assert row["connections"] == said["server_log_counts"]["tcp_accepts"]
    assert (row["logins"], row["failed_logins"], row["heartbeats"]) == (asked["auth"], 0, asked["heartbeat"])
    assert row["version_mismatches"] == 0


def test_churn_of_flymq_counts_refused_logins(export: Export) -> None:
    said = truth("flymq/login")["connections"]
    logins = [(a, b) for c in said for a, b in calls(c) if a["op_name"] == "AUTH"]
    refused = [b for _, b in logins if b["op_name"] == "ERROR" or not b["fields"]["success"]]

    (row,) = export("flymq/login").ask("churn")

    assert (row["connections"], row["logins"], row["failed_logins"]) == (len(said), len(logins), len(refused))


def test_churn_of_blipmq_counts_wrong_keys_and_versions(export: Export) -> None:
    said = truth("blipmq/handshake")
    refusals = Counter(
        (e["fields"]["code"], e["fields"]["text"])
        for c in said["connections"]
        for e in c["events"]
        if e["dir"] == "s2c" and e["type_name"] == "NACK"
    )

    (row,) = export("blipmq/handshake").ask("churn")

    assert (row["connections"], row["logins"]) == (len(said["connections"]), said["counts"]["c2s"]["AUTH"])
    assert row["failed_logins"] == refusals[401, "invalid API key"]
    assert row["version_mismatches"] == sum(n for (code, _), n in refusals.items() if code == 426)
    assert row["heartbeats"] == said["counts"]["c2s"]["PING"]


def test_churn_of_kokaq_counts_a_connection_for_each_request(export: Export) -> None:
    ports = Counter(c["server_port"] for c in truth("kokaq/go1_session")["connections"])

    rows = export("kokaq/go1_session").ask("churn")

    assert {r["server_port"]: r["connections"] for r in rows} == ports
    assert {r["server_port"]: r["reconnects"] + 1 for r in rows} == ports


def test_churn_of_msgq_counts_names_asked_for(export: Export) -> None:
    said = truth("msgq/split_session")
    asked = sum(
        e["dir"] == "sent" and e.get("header", {}).get("type") == "getlname" for e in said["events"]
    )  # fmt: skip

    (row,) = export("msgq/split_session").ask("churn")

    assert (row["connections"], row["logins"]) == (len(said["connections"]), asked)


# 13


def test_polling_of_flymq_counts_empty_fetches_and_records(export: Export) -> None:
    expected: dict[str, Counter[str]] = defaultdict(Counter)
    for c in truth("flymq/fetch")["connections"]:
        for request, reply in calls(c):
            if (op := request["op_name"]) not in ("FETCH", "FETCH_BINARY", "CONSUME", "CONSUME_ZERO_COPY"):
                continue
            expected[op]["requests"] += 1
            if reply["op_name"] == "ERROR":
                expected[op]["empty" if reply["fields"]["message"] == "EOF" else "refused"] += 1
                continue
            count = len(reply["fields"]["messages"]) if op.startswith("FETCH") else 1
            expected[op]["empty"] += count == 0
            expected[op]["messages"] += count

    rows = export("flymq/fetch").ask("polling")

    found: dict[str, Counter[str]] = defaultdict(Counter)
    for r in rows:
        if r["kind"] == "poll":
            found[r["op"]].update({k: r[k] for k in ("requests", "empty", "refused", "messages")})
    assert {op: nonzero(n) for op, n in found.items()} == {op: nonzero(n) for op, n in expected.items()}


def test_polling_counts_compressed_publishes(export: Export) -> None:
    produced = [
        e["flags"]
        for c in truth("flymq/gzip")["connections"]
        for e in c["events"]
        if e["dir"] == "c2s" and e["op_name"] == "PRODUCE" and e.get("fields")
    ]

    rows = export("flymq/gzip").ask("polling")

    publishes = [r for r in rows if r["op"] == "PRODUCE"]
    assert sum(r["requests"] for r in publishes) == len(produced)
    assert sum(r["compressed"] for r in publishes) == sum(flags & 0x0E != 0 for flags in produced)


def test_polling_of_kokaq_counts_the_messages_of_pops_and_peeks(export: Export) -> None:
    expected: dict[str, Counter[str]] = defaultdict(Counter)
    for c in truth("kokaq/go1_session")["connections"]:
        for asked, answered in ((c["events"][a], c["events"][b]) for a, b in c["pairs"]):
            if asked["opcode_name"] in ("Pop", "Peek"):
                expected[asked["opcode_name"]]["requests"] += 1
                expected[asked["opcode_name"]]["refused"] += answered["status_name"] == "Fail"
                expected[asked["opcode_name"]]["messages"] += answered.get("payload_len") is not None
                expected[asked["opcode_name"]]["body_bytes"] += answered.get("payload_len") or 0

    rows = export("kokaq/go1_session").ask("polling")

    found: dict[str, Counter[str]] = defaultdict(Counter)
    for r in rows:
        if r["kind"] == "poll":
            found[r["op"]].update({k: r[k] for k in ("requests", "refused", "messages", "body_bytes")})
    assert found == expected


def test_polling_of_blipmq_never_takes_silence_it_cannot_prove_for_empty(export: Export) -> None:
    said = truth("blipmq/qos1")["connections"]
    polls = [e for c in said for e in c["events"] if e["type_name"] == "POLL"]
    brought = sum(
        c["events"][e["answers"]]["type_name"] == "POLL"
        for c in said
        for e in c["events"]
        if e["type_name"] == "PUBLISH" and e["dir"] == "s2c" and e["answers"] is not None
    )
    silent = sum(bool(e.get("silent")) for e in polls)

    rows = [r for r in export("blipmq/qos1").ask("polling") if r["op"] == "POLL"]

    total = Counter()
    for r in rows:
        total.update({k: r[k] for k in ("requests", "empty", "messages", "unknown", "refused")})
    assert total["requests"] == len(polls)
    assert total["messages"] <= brought
    assert total["empty"] <= silent
    assert total["messages"] + total["empty"] + total["unknown"] + total["refused"] == len(polls)


# 14


def test_what_did_is_the_client_s_own_sequence(export: Export) -> None:
    events = truth("flymq/core")["connections"][0]["events"]

    rows = export("flymq/core").ask("what_did", client="127.0.0.1:40730")

    assert [(r["direction"], r["op"]) for r in rows] == [(e["dir"], e["op_name"]) for e in events]
    assert {(r["client_ip"], r["client_port"]) for r in rows} == {("127.0.0.1", 40730)}


def test_what_did_begins_and_ends_at_the_moments_given(export: Export) -> None:
    timed = flymq_calls("flymq/core")
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    start, end = (
        epoch + datetime.timedelta(microseconds=timed[n]["request"]["first"][0] // 1000) for n in (2, 5)
    )  # fmt: skip

    rows = export("flymq/core").ask("what_did", client="127.0.0.1", start=start, end=end)

    assert [r["op"] for r in rows] == [c[k]["op_name"] for c in timed[2:5] for k in ("request", "reply")]


def test_what_did_finds_both_connections_of_an_fq_user(export: Export) -> None:
    said = truth("fq/session")["messages"]["client_to_server"]

    rows = export("fq/session").ask("what_did", client="linesender")

    assert sum(r["op"] == "message" for r in rows) == len(said["linesender"])
    assert sum(r["op"] == "connect" for r in rows) == 2
    assert [r["ts_ns"] for r in rows] == sorted(r["ts_ns"] for r in rows)


# 15


def fault(name: str) -> Row:
    return json.loads((ROOT / "tests" / "truth" / "faults.json").read_text())[name]  # type: ignore[no-any-return]


def test_trust_in_a_whole_capture(export: Export) -> None:
    said = truth("kokaq/doc_session")["connections"]

    (row,) = export("kokaq/doc_session").ask("trust")

    assert row["connections"] == len(said)
    assert row["bytes"] == sum(c["bytes_c2s"] + c["bytes_s2c"] for c in said) == row["decoded_bytes"]
    assert (row["decoded_share"], row["gap_bytes"], row["flawed"], row["is_whole"]) == (1.0, 0, 0, True)


@pytest.mark.parametrize("protocol", LOST)
def test_trust_says_what_was_lost(export: Export, protocol: str) -> None:
    rows = export(f"faults/{protocol}_lost").ask("trust")

    (row,) = [r for r in rows if r["protocol"] == protocol]
    assert (row["gap_bytes"], row["is_whole"]) == (fault(f"{protocol}_lost")["length"], False)


def test_trust_says_what_came_twice_with_other_bytes(export: Export) -> None:
    (row,) = [r for r in export("faults/flymq_conflict").ask("trust") if r["protocol"] == "flymq"]

    assert (row["conflict_bytes"], row["is_whole"]) == (fault("flymq_conflict")["length"], False)


def test_trust_says_what_was_encrypted_and_what_began_before(export: Export) -> None:
    encrypted = [c for c in truth("flymq/tls")["connections"] if c.get("tls")]
    midstream = truth("fq/midstream")["connections"]

    tls = export("flymq/tls").ask("trust")
    (late,) = export("fq/midstream").ask("trust")

    (row,) = [r for r in tls if r["protocol"] is None]
    assert row["connections"] == len(encrypted)
    assert row["encrypted_bytes"] == row["bytes"] == row["undecoded_bytes"] > 0
    assert late["begun_before"] == late["connections"] == midstream["command"] + midstream["data"]


def test_bytes_are_either_decoded_or_not(export: Export) -> None:
    for name in ("faults/msgq_lost", "faults/blipmq_lost", "flymq/tls"):
        for row in export(name).ask("trust"):
            assert row["bytes"] == row["decoded_bytes"] + row["undecoded_bytes"]


# All of them


def test_there_are_sixteen_questions_each_in_a_sentence() -> None:
    assert len(queries.questions()) == 16
    assert all(text.endswith("?") for text in queries.questions().values())


@pytest.mark.parametrize("question", queries.questions())
def test_every_column_and_parameter_is_named_in_the_explanation(export: Export, question: str) -> None:
    given = {"client": "127.0.0.1"} if question == "what_did" else {}
    text = queries.statement(question)

    columns = queries.run(question, export("flymq/groups").con, **given).columns

    assert [name for name in queries.PARAMETERS.get(question, {}) if f":{name}" not in text] == []
    assert len(columns) == len(set(columns))


@pytest.mark.parametrize("name", [*queries.questions(), *queries.VIEWS])
def test_no_statement_names_a_protocol(name: str) -> None:
    view = Path(queries.__file__).parent / "views" / f"{name}.sql"
    text = view.read_text() if view.exists() else queries.statement(name)

    assert [protocol for protocol in protocols() if protocol in text.lower()] == []


@pytest.mark.parametrize("name", [*queries.questions(), *queries.VIEWS])
def test_joins_that_keep_rows_are_by_equality(name: str) -> None:
    """Polars compares all pairs of rows else: 41,420 messages took longer than a minute."""
    view = Path(queries.__file__).parent / "views" / f"{name}.sql"
    text = view.read_text() if view.exists() else queries.statement(name)
    conditions = re.findall(
        r"(?:LEFT|FULL) JOIN.*?\bON\b(.*?)(?=\bJOIN\b|\bLEFT\b|\bWHERE\b|\bGROUP\b|\bORDER\b|\)|$)", text, re.S
    )

    assert [condition for condition in conditions if re.search("<|>", condition)] == []


def test_the_slowest_exchange_of_a_connection_is_one_also_among_equally_slow_ones() -> None:
    """Engines number equal rows as they like, so the time with a closed window was that of either."""
    statement = (Path(queries.__file__).parent / "where_the_time_goes.sql").read_text()

    assert statement.count("DESC, sent_ns, replied_ns)") == statement.count("_ns DESC") == 2


@pytest.mark.parametrize("question", queries.questions())
def test_rows_without_a_value_come_last_on_every_engine(question: str) -> None:
    keys = re.split(r",(?![^(]*\))", queries.statement(question).rpartition("\nORDER BY ")[2].partition("\nLIMIT")[0])

    assert [key for key in keys if not key.rstrip().endswith("NULLS LAST")] == []


@pytest.mark.parametrize(
    ("question", "given", "reason"),
    [
        ("slow", {}, "no question 'slow'"), ("slowest", {"top": 3}, "no parameter top"),
        ("what_did", {}, "needs the parameter client"), ("what_did", {"client": "a", "start": "noon"}, "not a time"),
    ],
)  # fmt: skip
def test_wrong_questions_are_one_line(export: Export, question: str, given: Row, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        export("flymq/groups").ask(question, **given)


def test_folder_without_tables_and_other_connections_are_refused(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="no tables of an export"):
        queries.tables(duckdb.connect(), tmp_path)
    with pytest.raises(QueryError, match="no DuckDB connection"):
        queries.run("slowest", object())


def test_text_of_a_parameter_is_never_sql(export: Export) -> None:
    assert export("flymq/groups").ask("what_did", client="x' OR '1' = '1") == []


def test_answers_count_the_pairs_that_are_only_likely(export: Export) -> None:
    """The capture begins in the middle of its connections, so nothing proves where the first replies belong."""
    tables = export("faults/msgq_no_syn")
    (expected,) = tables.select("SELECT COUNT(*) AS likely FROM exchanges WHERE state = 'likely'")

    assert expected["likely"] > 0
    for question in ("latency", "trust", "where_the_time_goes"):
        assert sum(r["likely"] for r in tables.ask(question)) == expected["likely"], question


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, Tables]:
    """A capture of some protocols, and two copies of it under other names, so that connection ids are shared."""
    folder = tmp_path_factory.mktemp("twice")
    names = ("fq/session", "kokaq/go1_session", "flymq/fetch", "blipmq/qos1", "msgq/json_session")
    merged([ROOT / "pcaps" / f"{name}.pcap" for name in names], folder / "one.pcap")
    made = []
    for name, copies in {"once": ["a/one.pcap"], "both": ["a/one.pcap", "b/two.pcap"]}.items():
        for copy in copies:
            (folder / name / copy).parent.mkdir(parents=True)
            shutil.copy(folder / "one.pcap", folder / name / copy)
        done = CliRunner().invoke(main, ["export", str(folder / name), "--out", str(folder / f"of_{name}"), "-q"])
        assert done.exit_code == 0, done.output
        made.append(Tables(folder / f"of_{name}"))
    return made[0], made[1]


SUMS = {
    "who_talks": ["requests", "messages", "body_bytes"], "rates": ["messages", "body_bytes"],
    "latency": ["requests", "answered", "errors"], "where_the_time_goes": ["exchanges", "broker_us", "client_us"],
    "transit": ["deliveries", "published"], "errors": ["errors"], "acks": ["due", "acked"],
    "churn": ["connections", "reconnects", "logins", "failed_logins", "heartbeats"],
    "polling": ["requests", "empty", "messages", "body_bytes"],
    "trust": ["connections", "bytes", "decoded_bytes", "undecoded_bytes", "messages", "backward_in_time"],
}  # fmt: skip
"""What the answers count, as it adds up over captures."""
A_ROW_A_CAPTURE = ("slowest", "unanswered", "undelivered", "repeats", "what_did")


@pytest.mark.parametrize("question", [*SUMS, *A_ROW_A_CAPTURE, "backlog"])
def test_captures_that_share_connection_ids_are_counted_each_for_itself(
    twice: tuple[Tables, Tables], question: str
) -> None:
    given: Row = {
        "what_did": {"client": "127.0.0.1"}, "rates": {"top": 1000}, "slowest": {"n": 100_000},
    }.get(question, {})  # fmt: skip
    once, both = (tables.ask(question, **given) for tables in twice)

    if question in SUMS:
        assert len(both) == len(once)
        for name in SUMS[question]:
            assert sum(r[name] for r in both) == 2 * sum(r[name] for r in once), name
    elif question in A_ROW_A_CAPTURE:
        assert len({repr(r) for r in both}) == len(both) == 2 * len(once)
    else:
        counted = [[r for r in rows if r["how"] == "counts" and r["produced"] is not None] for rows in (once, both)]
        assert sum(r["backlog"] for r in counted[1]) == 2 * sum(r["backlog"] for r in counted[0])
        assert [r for r in both if r["how"] != "counts"] == [r for r in once if r["how"] != "counts"]
    assert once


def test_questions_about_a_new_protocol_are_answered_from_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = replace(
        protocols()["kokaq"],
        name="toy",
        layouts=(),  # its classes stay kokaq's
        rule=CorrelationRule(asks={"HELLO": RequestRule("always", frozenset({"WELCOME"}))}),
        details={"compressed": "level > 0"},
        roles=Roles(
            publish=frozenset({"GIVE"}), poll=frozenset({"LOOK", "TAKE"}), peek=frozenset({"LOOK"}),
            login=frozenset({"HELLO"}), denied=frozenset({"it's \\not you"}),
        ),
    )  # fmt: skip
    monkeypatch.setattr(queries, "protocols", lambda: {"toy": toy})
    con = duckdb.connect()
    con.sql(
        "CREATE TABLE messages AS SELECT 'x.pcap' AS capture, 'x.pcap' AS capture_file, 1 AS connection_id, "
        "'toy' AS protocol, direction, op, status, client_name, since AS stream_offset, since AS ts_ns, "
        "IF(op IN ('GIVE', 'TAKE') AND since <> 160, 7, NULL) AS body_len, NULL::VARCHAR AS flaw, 1 AS first_packet, "
        "'orders' AS destination, NULL::VARCHAR AS group_name, "
        "IF(direction = 'c2s', '10.0.0.1', '10.0.0.2') AS src_ip, "
        "IF(direction = 'c2s', '10.0.0.2', '10.0.0.1') AS dst_ip, 5000 AS src_port, 5000 AS dst_port, 9 AS frame_len, "
        "0 AS partition_id, NULL::VARCHAR AS message_id, NULL::VARCHAR AS correlation_id, NULL::VARCHAR AS error_text "
        "FROM (VALUES ('c2s', 'HELLO', 0, 'ok', 'me'), ('s2c', 'WELCOME', 60, 'ok', 'me'), "
        "('c2s', 'GIVE', 100, NULL, NULL), ('c2s', 'TAKE', 160, NULL, NULL), ('s2c', 'TAKE', 200, 'ok', NULL)) "
        "AS r(direction, op, since, status, client_name)"
    )
    con.sql("CREATE TABLE toy AS SELECT capture, connection_id, direction, stream_offset, 3 AS level FROM messages")

    talkers = rows_of(queries.run("who_talks", con))
    publishes = [row for row in rows_of(queries.run("polling", con)) if row["kind"] == "publish"]

    assert [(r["role"], r["client_name"], r["requests"], r["messages"], r["body_bytes"]) for r in talkers] == [
        ("consumer", "me", 1, 1, 7), ("producer", "me", 1, 1, 7),
    ]  # fmt: skip
    assert [(row["requests"], row["compressed"]) for row in publishes] == [(1, 1)]
    rows = queries.roles().to_pylist()
    assert ("it's \\not you", "denied", None) in {(r["error_text"], r["role"], r["op"]) for r in rows}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Captures of all five protocols in one export."""
    names = ("fq/errors", "kokaq/go1_session", "flymq/fetch", "flymq/groups", "blipmq/qos1", "msgq/json_session")
    out = tmp_path_factory.mktemp("everything") / "tables"
    paths = [str(ROOT / "pcaps" / f"{name}.pcap") for name in names]
    done = CliRunner().invoke(main, ["export", *paths, "--out", str(out), "-q"])
    assert done.exit_code == 0, done.output
    return Tables(out)


@pytest.mark.parametrize(
    ("question", "protocols"),
    [
        ("who_talks", "fq kokaq flymq blipmq msgq"),
        ("rates", "fq kokaq flymq blipmq msgq"),
        ("latency", "fq kokaq flymq blipmq msgq"),
        ("slowest", "fq kokaq flymq blipmq msgq"),
        ("where_the_time_goes", "fq kokaq flymq blipmq msgq"),
        ("transit", "flymq blipmq msgq"),
        ("backlog", "fq kokaq flymq blipmq"),
        ("undelivered", "fq msgq"),
        ("errors", "fq kokaq flymq blipmq"),
        ("repeats", "kokaq flymq blipmq msgq"),
        ("acks", "kokaq flymq blipmq"),
        ("churn", "fq kokaq flymq blipmq msgq"),
        ("polling", "fq kokaq flymq blipmq msgq"),
        ("what_did", "fq kokaq flymq blipmq msgq"),
        ("trust", "fq kokaq flymq blipmq msgq"),
    ],
)
def test_question_is_answered_for_every_protocol_that_can(everything: Tables, question: str, protocols: str) -> None:
    """fq has no deliveries here, for its messages went nowhere; ``transit`` of it is above."""
    given: Row = {
        "what_did": {"client": "127.0.0.1"},
        "rates": {"top": 1000},
        "slowest": {"n": 5000},
    }.get(question, {})

    rows = everything.ask(question, **given)

    assert {r["protocol"] for r in rows} - {None} == set(protocols.split())
