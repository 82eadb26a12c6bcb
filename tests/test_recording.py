"""``mqpcap.read`` and ``mqpcap.open``: the tables in Python, and the way back to the packets."""

import ast
import copy
import doctest
import gzip
import io
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from dissection import dissect
from examples import one_in
from running import environment
from scapy.layers.inet import IP, TCP
from scapy.packet import Packet, Raw
from scapy.sendrecv import sniff
from scapy.utils import rdpcap

import mqpcap
from mqpcap import recording as recording_module
from mqpcap.capture import captures
from mqpcap.protocols import protocols
from mqpcap.scapy.session import MqSession
from mqpcap.spark.schemas import table_names, table_schema

ROOT = Path(__file__).resolve().parent.parent
CAPTURES = sorted((ROOT / "pcaps").glob("*/*.pcap"))
QOS1 = str(ROOT / "pcaps/blipmq/qos1.pcap")
PIPELINING = str(ROOT / "pcaps/flymq/pipelining.pcap")
KEY = ("connection_id", "direction", "stream_offset")


def test_editors_are_told_the_names_of_all_protocols() -> None:
    """A type checker sees no ``__getattr__``: it knows only the names written for it."""
    tree = ast.parse(Path(recording_module.__file__).with_suffix(".py").read_text(encoding="utf-8"))
    written = [
        field.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and node.orelse
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    ]
    assert written == sorted(protocols())


def texts(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


def test_a_filter_on_bodies_that_are_not_kept_is_refused() -> None:
    """As on the command line: it would find nothing."""
    with pytest.raises(mqpcap.QueryError, match="need whole bodies"):
        mqpcap.read(QOS1, filter='body contains "first"', bodies="none")


def test_the_package_shows_what_it_promises_and_loads_nothing() -> None:
    code = (
        "import sys, mqpcap; print(*dir(mqpcap));"
        "print(*[m for m in ('scapy', 'pyarrow', 'numpy', 'click') if m in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    ).stdout.splitlines()

    more = "report samples show stats trace wireshark"
    calls = "ask diff explain export extract fields follow info join lake live_stats messages open protocols read"
    assert said == [
        f"CaptureError MqpcapError ProgressBar QueryError Recording {calls} {more}", ""
    ]  # fmt: skip
    with pytest.raises(AttributeError, match="no attribute 'write'"):
        mqpcap.write  # noqa: B018


def test_the_examples_of_the_docstrings_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    assert doctest.testmod(recording_module) == (0, 6)


# -- tables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", one_in(5, CAPTURES), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_tables_are_those_of_a_dissection(path: Path) -> None:
    made = dissect(captures([str(path)]).captures[0])
    recording = mqpcap.open(path)

    for name in ("messages", "exchanges", "deliveries", "connections", "problems", "captures"):
        rows = recording.table(name)
        assert texts(rows) == texts(made.table(name))
        assert rows.schema == table_schema(name)
    for name in {chunk.protocol for chunk in made.chunks}:
        of_protocol = pa.concat_tables([chunk.fields for chunk in made.chunks if chunk.protocol == name])
        assert texts(recording.protocol(name)) == texts(of_protocol)


def test_properties_are_the_tables() -> None:
    recording = mqpcap.open(QOS1)

    for name in ("messages", "exchanges", "deliveries", "connections", "problems", "captures"):
        assert getattr(recording, name).equals(recording.table(name))
    assert recording.protocol("fq").num_rows == 0
    assert recording.protocol("fq").schema == table_schema("fq")


@pytest.mark.parametrize("table", table_names())
def test_batches_are_the_table(table: str) -> None:
    recording = mqpcap.open([PIPELINING, QOS1])

    batches = list(recording.batches(table))

    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert texts(pa.Table.from_batches(batches, table_schema(table))) == texts(recording.table(table))


def test_batches_come_while_the_capture_is_read() -> None:
    """Windows are made small; the first batch is there when most of the file is not read yet."""
    recording = mqpcap.open(PIPELINING)

    batches = recording.batches()
    first = next(batches)

    assert 0 < first.num_rows <= sum(batch.num_rows for batch in batches) + first.num_rows
    assert not any(index._tables for index in recording._indexes.values())  # nothing is held


def test_tables_and_the_index_take_no_memory_of_their_own() -> None:
    """They lie in a temporary file that is mapped: what Arrow has allocated does not grow by them."""
    recording = mqpcap.open(PIPELINING)
    before = pa.total_allocated_bytes()

    tables = [recording.messages, recording.exchanges, recording.protocol("flymq")]

    size = sum(table.nbytes for table in tables)
    assert size > 200_000
    assert pa.total_allocated_bytes() - before < size / 10


def test_columns_and_filters_choose() -> None:
    whole = mqpcap.open(QOS1).messages
    published = [row for row in whole.to_pylist() if row["op"] == "PUBLISH"]
    columns = ["body_len", "op"]

    by_text = mqpcap.read(QOS1, filter='op == "PUBLISH"', columns=columns)
    by_expression = mqpcap.read(QOS1, filter=pc.field("op") == "PUBLISH", columns=columns)

    assert by_text.to_pylist() == by_expression.to_pylist()
    assert by_text.to_pylist() == [{name: row[name] for name in columns} for row in published]


def test_a_text_filter_selects_rows_of_protocols_and_exchanges() -> None:
    recording = mqpcap.open(QOS1)
    polls = [x for x in recording.exchanges.to_pylist() if x["op"] == "POLL"]
    slow = [x for x in recording.exchanges.to_pylist() if (x["latency_ns"] or 0) > 50_000]

    assert texts(mqpcap.read(QOS1, "exchanges", filter='op == "POLL"')) == sorted(map(repr, polls))
    assert mqpcap.read(QOS1, "blipmq", filter='op == "POLL"').num_rows == len(polls)
    assert texts(mqpcap.read(QOS1, "exchanges", filter="latency > 50us")) == sorted(map(repr, slow))
    # Of each both messages are selected.
    assert mqpcap.read(QOS1, filter="latency > 50us").num_rows == 2 * len(slow)


def test_a_text_filter_selects_what_belongs_to_its_messages() -> None:
    recording = mqpcap.open(QOS1)
    asked = [x for x in recording.exchanges.to_pylist() if x["op"] == "POLL"]
    answered = [x for x in asked if x["latency_ns"] is not None]

    for filter, polls in (('op == "POLL"', asked), ('op == "POLL" and latency >= 0s', answered)):
        ids = {x["connection_id"] for x in polls}
        wanted = [x for x in recording.connections.to_pylist() if x["connection_id"] in ids]
        assert 0 < len(wanted) < recording.connections.num_rows
        assert texts(mqpcap.read(QOS1, "connections", filter=filter)) == sorted(map(repr, wanted))


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="'message' is no table; there are messages, "):
        mqpcap.read(QOS1, "message")
    with pytest.raises(ValueError, match="'kafka' is no protocol; there are blipmq, "):
        mqpcap.open(QOS1).protocol("kafka")
    with pytest.raises(ValueError, match="messages has no column 'size'"):
        mqpcap.read(QOS1, columns=["size"])
    with pytest.raises(mqpcap.QueryError):
        mqpcap.read(QOS1, filter="op ===")
    with pytest.raises(mqpcap.CaptureError, match=r"nothing\.pcap: no such file"):
        mqpcap.open("nothing.pcap")


def test_options_say_what_is_shown_and_how_ports_are_read(tmp_path: Path) -> None:
    handshake = ROOT / "pcaps/blipmq/handshake.pcap"
    hidden = mqpcap.read(handshake, "blipmq", columns=["api_key"])["api_key"].drop_null().unique().to_pylist()
    shown = mqpcap.read(handshake, "blipmq", columns=["api_key"], show_secrets=True)["api_key"].drop_null()

    assert hidden == ["***"]
    assert "***" not in shown.to_pylist()
    bodies = mqpcap.read(QOS1, "blipmq", filter='op == "PUBLISH"', columns=["body"], bodies=2)["body"].to_pylist()
    assert max(map(len, bodies)) == 2
    with pytest.raises(ValueError, match="'kafka' is no protocol"):
        mqpcap.open(QOS1, decode_as={1234: "kafka"})


def test_info_is_that_of_the_call() -> None:
    assert mqpcap.open([QOS1, PIPELINING]).info == [dict(x.as_json()) for x in mqpcap.info([QOS1, PIPELINING])]


def test_other_libraries_take_the_tables() -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    messages = mqpcap.read(QOS1)

    assert messages.to_pandas().groupby("op").size()["PUBLISH"] == 46
    assert duckdb.sql("SELECT count(*) FROM messages WHERE op = 'PUBLISH'").fetchall() == [(46,)]
    assert polars.from_arrow(messages).filter(polars.col("op") == "PUBLISH").height == 46


# -- packets -------------------------------------------------------------------------------------------


def are_equal(one: Packet, other: Packet) -> bool:
    return one.original == other.original and one.command() == other.command() and one.mq == other.mq


@pytest.mark.parametrize("path", one_in(8, CAPTURES), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_row_leads_to_its_message_and_packets(path: Path) -> None:
    """The message is that of MqSession; the packets, read by Scapy, carry its bytes."""
    recording = mqpcap.open(path)
    of_session = {packet.mq.key: packet for packet in sniff(offline=str(path), session=MqSession, quiet=True)}
    rows = recording.messages.to_pylist()

    assert len(rows) == len(of_session)
    for row in rows[:: max(1, len(rows) // 25)]:
        found = recording.packet(row)
        assert are_equal(found, of_session[tuple(row[name] for name in KEY)])
        for packet in recording.packets(row):
            payload = bytes(packet[TCP].payload)
            assert (packet[TCP].sport, packet[TCP].dport) == (row["src_port"], row["dst_port"])
            assert payload[:4] in found.original or found.original[:4] in payload
    for name in ("exchanges", "deliveries", "connections", "problems", "captures"):
        for row in recording.table(name).to_pylist()[:8]:
            assert recording.packets(row)
            assert recording.packet(row) is not None


def test_packets_are_those_of_the_numbers() -> None:
    """A row's packets are what Wireshark counts from ``first_packet`` to ``last_packet``, of its connection."""
    path = ROOT / "pcaps/msgq/split_cpp.pcap"
    recording, all_packets = mqpcap.open(path), rdpcap(str(path))
    row = max(recording.messages.to_pylist(), key=lambda row: row["frame_len"])
    numbered = [
        packet
        for packet in all_packets[row["first_packet"] - 1 : row["last_packet"]]
        if TCP in packet and (packet[TCP].sport, packet[TCP].dport) == (row["src_port"], row["dst_port"])
        and len(packet[TCP].payload)
    ]  # fmt: skip

    found = recording.packets(row)

    assert len(found) > 1
    assert [bytes(packet) for packet in found] == [bytes(packet) for packet in numbered]
    assert [packet.time for packet in found] == [packet.time for packet in numbered]


def test_rows_of_pairs_lead_to_both_messages() -> None:
    recording = mqpcap.open(QOS1)
    (exchange,) = [x for x in recording.exchanges.to_pylist() if x["request_packet"] == 13]
    delivery = recording.deliveries.slice(0, 1).to_pylist()[0]

    assert recording.packet(exchange).mq.op == "POLL"
    assert recording.packet(exchange, "reply").mq.first_packet == exchange["reply_packet"]
    assert [len(recording.packets(exchange)), recording.packet(delivery).mq.direction] == [2, "c2s"]
    assert recording.packet(delivery, "delivery").mq.stream_offset == delivery["deliver_offset"]
    silent = next(x for x in recording.exchanges.to_pylist() if x["reply_offset"] is None)
    with pytest.raises(LookupError, match="no reply"):
        recording.packet(silent, "reply")


@pytest.mark.parametrize(
    "name", ["blipmq/qos1", "flymq/pipelining", "fq/errors", "kokaq/go1_session", "msgq/split_cpp"]
)
def test_messages_of_rows_know_their_pair(name: str) -> None:
    """As those of a session do, whatever was read before; pickled, too."""
    recording = mqpcap.open(ROOT / f"pcaps/{name}.pcap")
    rows = recording.exchanges.to_pylist()
    answered = [row for row in rows if row["state"] == "answered"][:20]
    assert answered

    for row, other in zip(answered, [*answered[1:], answered[0]], strict=True):
        request, reply = recording.packet(row), recording.packet(row, "reply")
        assert (reply.answers(request), request.answers(reply)) == (True, False)
        assert request.mq.reply == reply.mq.key
        assert len(answered) == 1 or not recording.packet(other, "reply").answers(request)
        assert pickle.loads(pickle.dumps(request)).mq.reply == reply.mq.key
    alone = next((row for row in rows if row["state"] == "silent"), None)
    assert alone is None or recording.packet(alone).mq.reply is None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_recordings_and_comparisons_are_copied_and_pickled(copied: Any) -> None:
    recording, comparison = mqpcap.open(QOS1), mqpcap.diff(QOS1, QOS1)

    assert copied(recording).messages == recording.messages
    assert copied(comparison).as_json(every=True) == comparison.as_json(every=True)
    assert copied(comparison).notes() == comparison.notes()


def test_bytes_of_any_kind_are_read_and_what_is_missing_is_noted(tmp_path: Path) -> None:
    raw = Path(QOS1).read_bytes()
    (tmp_path / "cut.pcap").write_bytes(raw[: len(raw) // 2])
    notes: list[str] = []

    assert mqpcap.read(bytearray(raw)).num_rows == mqpcap.read(memoryview(raw)).num_rows == 242
    assert 0 < mqpcap.read(tmp_path / "cut.pcap", notes=notes).num_rows < 242
    mqpcap.read(QOS1, "exchanges", filter="op == PUBLISHX", notes=notes)

    cut, nothing = notes
    assert "the last record needs" in cut
    assert nothing.startswith("0 of 242 messages match; operations here: ACK, AUTH")


@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_what_calls_give_is_pickled_and_copied(copied: Callable[[Any], Any]) -> None:
    """A recording of bytes has a temporary file, an explanation has kinds of fields."""
    recording = mqpcap.open([QOS1, Path(QOS1).read_bytes()])
    again = copied(recording)
    rows = recording.exchanges
    recording.close()
    del recording

    assert again.exchanges == rows
    assert again.packet(again.exchanges.slice(rows.num_rows // 2, 1)).mq.op == "HELLO"
    for value in (mqpcap.explain(QOS1, at=12)[0], mqpcap.diff(QOS1, QOS1), mqpcap.explain(QOS1, pairing="c1")):
        assert copied(value).as_json() == value.as_json()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"decod_as": {}}, "'decod_as' is no option of stats; did you mean decode_as?"),
        ({"x": 1}, "'x' is no option of stats; there are path, report, by,"),
    ],
)
def test_wrong_options_are_named_as_the_user_wrote_them(options: Any, said: str) -> None:
    with pytest.raises(TypeError, match="^" + re.escape(said)):
        mqpcap.stats(QOS1, **options)


@pytest.mark.parametrize("name", ["blipmq/qos1", "faults/fq_no_syn", "faults/msgq_no_syn"])
def test_messages_say_how_certain_their_pair_is(name: str) -> None:
    """A session, ``messages`` and ``packet`` as the table has it, for request and reply; some pairs are likely."""
    path = ROOT / f"pcaps/{name}.pcap"
    recording = mqpcap.open(path)
    rows = recording.exchanges.to_pylist()
    pairs = {}
    for row in rows:
        for direction, offset in (("c2s", row["request_offset"]), ("s2c", row["reply_offset"])):
            if offset is not None:
                key = row["connection_id"], direction, offset
                pairs[key] = row["state"], row["how"], row["latency_ns"]

    for given in (sniff(offline=str(path), session=MqSession(), quiet=True), mqpcap.messages(path)):
        assert {m.mq.key: (m.mq.state, m.mq.how, m.mq.latency_ns) for m in given if m.mq.key in pairs} == pairs
    likely = next(row for row in rows if row["state"] == "likely")
    for part in ("request", "reply"):
        mq = recording.packet(likely, part).mq
        assert (mq.state, mq.how, mq.latency_ns) == ("likely", likely["how"], likely["latency_ns"])


def test_a_row_of_connections_leads_to_all_its_packets() -> None:
    recording = mqpcap.open(QOS1)

    for row in recording.connections.to_pylist():
        found = recording.packets(row)
        assert len(found) == row["packets_c2s"] + row["packets_s2c"]
        assert {packet[IP].src for packet in found} <= {row["client_ip"], row["server_ip"]}


def test_a_gap_leads_to_the_packets_on_both_sides_of_it() -> None:
    recording = mqpcap.open(ROOT / "pcaps/faults/blipmq_lost.pcap")
    row = next(x for x in recording.problems.to_pylist() if x["kind"] == "gap")

    before, behind = recording.packets(row)[:2]

    assert (behind[TCP].seq - before[TCP].seq - len(before[TCP].payload)) % 2**32 == row["length"]


def rows_of(recording: mqpcap.Recording) -> list[Any]:
    table = recording.messages
    frame = table.to_pandas()
    return [table.slice(3, 1), table.slice(3, 1).to_batches()[0], frame.iloc[3], next(frame.iloc[3:4].itertuples())]


def test_rows_of_all_kinds_are_rows() -> None:
    recording = mqpcap.open(QOS1)
    wanted = recording.packet(recording.messages.to_pylist()[3])

    assert all(are_equal(recording.packet(row), wanted) for row in rows_of(recording))
    key = {name: recording.messages[name][3].as_py() for name in KEY}
    assert are_equal(recording.packet(key), wanted)  # one capture: its name need not be said


def test_rows_without_a_message_in_the_capture_are_reported() -> None:
    recording = mqpcap.open([QOS1, PIPELINING])
    row = recording.messages.to_pylist()[0]

    with pytest.raises(LookupError, match="not of"):
        recording.packet(row | {"capture": "other.pcap"})
    with pytest.raises(LookupError, match="begins at c2s offset 3"):
        recording.packet(row | {"stream_offset": 3, "direction": "c2s"})
    with pytest.raises(LookupError, match="without stream_offset"):
        recording.packet({"capture": row["capture"], "connection_id": 1, "direction": "c2s"})
    with pytest.raises(LookupError, match="of connection 1 begins"):
        recording.packets(row | {"connection_id": 1})
    with pytest.raises(ValueError, match="one row is wanted, these are 2"):
        recording.packet(recording.messages.slice(0, 2))
    with pytest.raises(TypeError, match="int is no row"):
        recording.packet(3)  # type: ignore[arg-type]  # what is told


def test_compressed_captures_lead_to_packets_too(tmp_path: Path) -> None:
    packed = tmp_path / "qos1.pcap.gz"
    packed.write_bytes(gzip.compress(Path(QOS1).read_bytes()))
    plain, recording = mqpcap.open(QOS1), mqpcap.open(packed)

    for row, other in zip(plain.messages.to_pylist()[::20], recording.messages.to_pylist()[::20], strict=True):
        assert are_equal(plain.packet(row), recording.packet(other))


def test_a_recording_in_several_files_leads_to_packets(tmp_path: Path) -> None:
    """Cut in the middle of a message, which then has packets of both files."""
    data = Path(ROOT / "pcaps/msgq/split_cpp.pcap").read_bytes()
    whole = mqpcap.open(ROOT / "pcaps/msgq/split_cpp.pcap")
    largest = max(whole.messages.to_pylist(), key=lambda row: row["frame_len"])
    at = 24
    for _ in range(largest["first_packet"] + 2):
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    (tmp_path / "x_00001.pcap").write_bytes(data[:at])
    (tmp_path / "x_00002.pcap").write_bytes(data[:24] + data[at:])

    recording = mqpcap.open(tmp_path)

    rows, cut = whole.messages.to_pylist(), recording.messages.to_pylist()
    assert len(recording.info) == 1
    for row, other in zip(rows, cut, strict=True):
        assert whole.packet(row).original == recording.packet(other).original
        assert [bytes(x) for x in whole.packets(row)] == [bytes(x) for x in recording.packets(other)]


def test_a_file_that_became_shorter_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(Path(QOS1).read_bytes())
    recording = mqpcap.open(path)
    row = recording.messages.to_pylist()[-1]
    path.write_bytes(Path(QOS1).read_bytes()[:100])

    with pytest.raises(mqpcap.CaptureError, match="shorter than when it was read"):
        recording.packet(row)


def test_a_packet_without_a_message_stays_raw() -> None:
    recording = mqpcap.open(ROOT / "pcaps/strangers/http_5555.pcap")
    row = recording.problems.slice(0, 1)

    assert Raw in recording.packet(row)


def test_several_threads_may_use_one_recording() -> None:
    """Each begins at the same moment with a recording that has read nothing yet."""
    wanted = [packet.original for packet in map(mqpcap.open(QOS1).packet, mqpcap.open(QOS1).messages.to_pylist()[:4])]
    for _ in range(5):
        recording, begin = mqpcap.open(QOS1), threading.Barrier(4)

        def use(number: int, recording: mqpcap.Recording = recording, begin: threading.Barrier = begin) -> Any:
            begin.wait()
            table = recording.messages if number % 2 else next(recording.batches())
            row = table.slice(number, 1)
            return recording.packet(row).original, len(recording.packets(row)) > 0, len(recording.info)

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(use, range(4))) == [(raw, True, 1) for raw in wanted]


def test_threads_share_a_compressed_capture(tmp_path: Path) -> None:
    """Its packets are read from one unpacked file."""
    packed = tmp_path / "qos1.pcap.gz"
    packed.write_bytes(gzip.compress(Path(QOS1).read_bytes()))
    recording = mqpcap.open(packed)
    rows = recording.messages.to_pylist()[:60] * 5
    wanted = [recording.packet(row).original for row in rows]

    with ThreadPoolExecutor(8) as pool:
        assert [packet.original for packet in pool.map(recording.packet, rows)] == wanted


def test_data_frames_of_one_row_are_rows() -> None:
    polars = pytest.importorskip("polars")
    recording = mqpcap.open(QOS1)
    for name in ("messages", "exchanges", "deliveries", "connections", "captures", "blipmq"):
        row = recording.table(name).slice(2 if name != "captures" else 0, 1)
        wanted = recording.packets(row)
        for frame in (row.to_pandas(), polars.from_arrow(row), polars.from_arrow(row).row(0, named=True)):
            assert recording.packets(frame) == wanted
            assert recording.packet(frame).original == recording.packet(row).original
    with pytest.raises(ValueError, match="one row is wanted, these are 2"):
        recording.packet(recording.messages.slice(0, 2).to_pandas())
    with pytest.raises(ValueError, match="one row is wanted, these are 0"):
        recording.packet(polars.from_arrow(recording.messages.slice(0, 0)))


@pytest.mark.parametrize("part", ["replies", "Reply", "delivery", "message"])
def test_a_part_that_the_row_has_not_is_refused(part: Any) -> None:
    recording = mqpcap.open(QOS1)

    with pytest.raises(ValueError, match="part"):
        recording.packet(recording.exchanges.slice(0, 1), part)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bodies": -1}, "bodies is at least 0"),
        ({"bodies": "some"}, "bodies is an integer"),
        ({"bodies": True}, "bodies is at least 0"),
        ({"decode_as": {"5555": "blipmq"}}, "'5555' is not a TCP port"),
        ({"decode_as": {99999: "blipmq"}}, "99999 is not a TCP port"),
        ({"decode_as": {0: "blipmq"}}, "0 is not a TCP port"),
        ({"decode_as": {5555: "amqp"}}, "'amqp' is no protocol"),
        ({"max_memory_bytes": 0}, "max_memory_bytes is at least 1"),
        ({"show_secrets": "no"}, "show_secrets is True or False"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        mqpcap.open(QOS1, **options)


def test_bodies_are_kept_as_the_command_line_says_it() -> None:
    bodies = [mqpcap.open(QOS1, bodies=x).protocol("blipmq")["body"].to_pylist() for x in ("full", None, "none", 0)]

    assert bodies[0] == bodies[1] != bodies[2] == bodies[3]


def test_no_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no input"):
        mqpcap.open([])
    with pytest.raises(mqpcap.CaptureError, match="no capture in this directory"):
        mqpcap.open(tmp_path)


def test_bytes_and_file_objects_are_captures() -> None:
    data = Path(QOS1).read_bytes()
    wanted = mqpcap.open(QOS1)
    without = ["capture", "capture_file"]
    with open(QOS1, "rb") as file:
        recordings = [mqpcap.open(data), mqpcap.open(io.BytesIO(gzip.compress(data))), mqpcap.open(file)]

    assert [recording.files for recording in recordings] == [("<bytes>",), ("<bytes>",), (QOS1,)]
    for recording in recordings:
        assert texts(recording.messages.drop_columns(without)) == texts(wanted.messages.drop_columns(without))
        row = recording.messages.to_pylist()[3]
        assert recording.packet(row).original == wanted.packet(wanted.messages.slice(3, 1)).original
    both = mqpcap.open([data, bytearray(data)])
    assert set(both.messages["capture"].to_pylist()) == {"<bytes>", "<bytes> 2"}


def test_what_is_no_capture_is_named() -> None:
    with pytest.raises(mqpcap.CaptureError, match=r"^<bytes>: "):
        mqpcap.open(b"nothing")
    with open(__file__) as file, pytest.raises(TypeError, match="binary mode"):
        mqpcap.open(file)  # type: ignore[arg-type]  # what is refused
