"""What a stream remembers from batch to batch: connections that are over are told once and forgotten."""

import os
import pickle
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

from pyspark.sql.pandas.types import to_arrow_schema
from rows import of_dissections, rotated, texts

from mqpcap.capture import captures
from mqpcap.delta.recordings import STATE_HEADER, load_state
from mqpcap.errors import CaptureError
from mqpcap.pipeline import dissect
from mqpcap.spark import schemas, streaming
from mqpcap.spark.source import CaptureSource
from mqpcap.spark.streaming import StreamState

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
START_US = 1_795_238_649 * 1_000_000
SECOND_US, HOUR_US, DAY_US = 1_000_000, 3_600_000_000, 25 * 3_600_000_000  # the longest day
SYN, RST, FIN_ACK, ACK, SYN_ACK = 2, 4, 17, 16, 18
HELLO_BLIPMQ = struct.pack(">IBQ", 11, 1, 1) + b"\0\1"
PCAP_HEAD = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)

Client = tuple[str, int]


def client(number: int) -> Client:
    """An address and port that no other number has."""
    return f"10.1.{number >> 8 & 255}.{number & 255}", 20_000 + (number >> 16)


def publish(number: int, body: bytes = b"once") -> bytes:
    """A BlipMQ message; its number comes out as correlation_id."""
    payload = b"\0\0\6orders" + body
    return struct.pack(">IBQ", 9 + len(payload), 3, number) + payload


class Files:
    """Files of a rotating capture of connections to one server, as they are written one after the other."""

    def __init__(self, folder: Path, server: Client = ("10.9.0.1", 5555)) -> None:
        self.folder, self.server = folder, server
        self.now_us = START_US
        self.count = 0
        self.packets: list[bytes] = []
        self.sent: dict[Client, list[int]] = {}

    def packet(self, who: Client, from_client: bool, flags: int, body: bytes = b"") -> None:
        seq = self.sent.setdefault(who, [1000, 5000])
        ends = (who, self.server) if from_client else (self.server, who)
        me = 0 if from_client else 1
        ports = struct.pack(">HH", ends[0][1], ends[1][1])
        tcp = ports + struct.pack(">IIBBHHH", seq[me], seq[1 - me], 0x50, flags, 65_535, 0, 0)
        addresses = b"".join(bytes(map(int, ip.split("."))) for ip, _ in ends)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(body), 0, 0, 64, 6, 0) + addresses
        frame = bytes(12) + b"\x08\0" + ip + tcp + body
        seconds, rest = divmod(self.now_us, SECOND_US)
        self.packets.append(struct.pack("<IIII", seconds, rest, len(frame), len(frame)) + frame)
        self.now_us += 5
        seq[me] = (seq[me] + len(body) + (1 if flags & 3 else 0)) & 0xFFFFFFFF

    def open(self, who: Client) -> None:
        self.sent[who] = [1000 + self.now_us % 1_000_003, 5000]
        self.packet(who, True, SYN)
        self.packet(who, False, SYN_ACK)

    def close(self, who: Client) -> None:
        self.packet(who, True, FIN_ACK)
        self.packet(who, False, FIN_ACK)
        self.packet(who, True, ACK)

    def short(self, who: Client, number: int) -> None:
        """A connection of one message."""
        self.open(who)
        self.packet(who, True, ACK, HELLO_BLIPMQ)
        self.packet(who, True, ACK, publish(number))
        self.close(who)

    def rotate(self, after_us: int = 100 * SECOND_US) -> None:
        """Write the file; the next begins so much later."""
        path = self.folder / f"part.pcap{self.count or ''}"
        path.write_bytes(PCAP_HEAD + b"".join(self.packets))
        self.finish(path)
        self.packets = []
        self.now_us += after_us

    def finish(self, path: Path) -> None:
        """Let this be the next file that was written."""
        os.utime(path, (1e9 + self.count, 1e9 + self.count))
        self.count += 1


class Stream:
    """A stream without Spark: each micro-batch by a reader of its own, as after a restart."""

    def __init__(self, folder: Path, state: Path, table: str) -> None:
        self.folder, self.state, self.table = folder, state, table
        self.read_count = 0

    def batch(self, file_count: int) -> pa.Table:
        """The rows of the next files, so many at most."""
        type_ = schemas.table_schema(self.table)
        given = {"path": str(self.folder), "table": self.table, "stateDir": str(self.state), "idleSeconds": "0"}
        source = CaptureSource(given)
        reader = source.streamReader(source.schema())
        before = {"files": self.read_count}
        there = reader.latestOffset(before, reader.getDefaultReadLimit())["files"]
        after = {"files": min(there, self.read_count + file_count)}
        found = [batch for part in reader.partitions(before, after) for batch in reader.read(part)]
        reader.commit(after)
        self.read_count = after["files"]
        return pa.Table.from_batches(found, to_arrow_schema(reader.schema, timezone="UTC")).cast(type_)

    def rest(self, file_count: int = 1) -> pa.Table:
        """The rows of all other files."""
        found = []
        while (before := self.read_count) >= 0:
            rows = self.batch(file_count)
            if self.read_count == before:
                return pa.concat_tables(found)
            found.append(rows)
        raise AssertionError

    def kept(self) -> tuple[StreamState, int]:
        """What it remembers, and in how many bytes."""
        content = (self.state / self.table / f"state/{self.read_count:08d}.pickle").read_bytes()
        (one,) = load_state(content).values()
        return one, len(content)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "captures").mkdir()
    return Files(tmp_path / "captures")


def stream(files: Files, table: str = "messages", name: str = "state") -> Stream:
    return Stream(files.folder, files.folder.parent / name, table)


def numbers(table: pa.Table) -> list[int]:
    """Which messages are among the rows."""
    return sorted(int(x) for x in table["correlation_id"].to_pylist())


def clients(table: pa.Table) -> "Counter[Client]":
    """Which connections are among the rows, how often."""
    return Counter(zip(table["client_ip"].to_pylist(), table["client_port"].to_pylist(), strict=True))


@pytest.mark.parametrize("table", ["messages", "connections"])
def test_state_does_not_grow_with_connections_ever_seen(files: Files, table: str) -> None:
    """Each file has new connections, closed more than a minute before the next file ends."""
    sizes = []
    reader = stream(files, table)
    found = []
    for turn in range(8):
        for k in range(turn * 150, turn * 150 + 150):
            files.short(client(k), k)
        files.rotate()
        found.append(reader.batch(1))
        kept, size = reader.kept()
        sizes.append(size)
        assert (len(kept.pipeline.assembler.live), len(kept.pipeline.framer.connections)) == (150, 150)
    files.short(client(9999), 9999)
    files.rotate(after_us=2 * HOUR_US)
    files.short(client(10_000), 10_000)
    files.rotate()
    rows = pa.concat_tables([*found, reader.rest()])

    assert max(sizes) < 1.02 * sizes[0]
    ever = [*range(8 * 150), 9999, 10_000]
    if table == "messages":
        assert numbers(rows) == sorted([1] * len(ever) + ever)  # the hello of each is its message 1
    else:
        assert clients(rows) == Counter(map(client, ever[:-1]))
        assert len({*rows["connection_id"].to_pylist()}) == len(ever) - 1


@pytest.mark.parametrize(("table", "bytes_per_publish"), [("exchanges", 0), ("deliveries", 6 * 8)])
def test_of_connections_that_closed_only_the_keys_of_publishes_stay(
    files: Files, table: str, bytes_per_publish: int
) -> None:
    """A publish is six numbers: its key, when it began and was whole, connection and offset, and a note."""
    sizes = []
    reader = stream(files, table)
    for turn in range(6):
        for k in range(turn * 150, turn * 150 + 150):
            files.short(client(k), k)
        files.rotate()
        reader.batch(1)
        sizes.append(reader.kept()[1])

    assert sizes[-1] - sizes[0] < 5 * 150 * bytes_per_publish + 5_000  # what the first turns settle to


def test_publish_is_found_when_its_connection_is_long_forgotten(files: Files) -> None:
    """A broker keeps what it was given; so the keys of publishes outlive their connections."""
    files.open(client(1))
    files.packet(client(1), True, ACK, HELLO_BLIPMQ + publish(7, b"wanted"))
    files.close(client(1))
    for turn in range(2):
        files.rotate(after_us=HOUR_US)
        files.short(client(10 + turn), 8 + turn)
    files.rotate(after_us=HOUR_US)
    files.open(client(2))
    files.packet(client(2), True, ACK, HELLO_BLIPMQ)
    files.packet(client(2), False, ACK, publish(7, b"wanted"))
    files.close(client(2))
    files.rotate(after_us=SECOND_US)
    files.short(client(20), 30)  # a delivery waits until 0.2 s more of the capture are there
    files.rotate()
    reader = stream(files, "deliveries")

    (found,) = reader.rest().to_pylist()

    assert 0 < found["latency_ns"] - 3 * HOUR_US * 1000 < HOUR_US * 1000
    assert len(reader.kept()[0].pipeline.assembler.live) == 2  # those that closed in the last minute


def test_half_open_connections_are_forgotten(files: Files) -> None:
    """A flood of SYNs, more than a table of connections has room for at first; and one of a single sender."""
    reader = stream(files, "connections")
    for turn in range(3):
        for k in range(turn * 700, turn * 700 + 700):
            files.packet(client(k), True, SYN)
        files.rotate(after_us=10 * SECOND_US)
        reader.batch(1)
        assert len(reader.kept()[0].pipeline.assembler.live) == 700 * (turn + 1)
    for turn in range(300):
        files.sent[client(9999)] = [turn << 20, 0]
        files.packet(client(9999), True, SYN)
    files.rotate(after_us=70 * SECOND_US)
    files.short(client(9998), 9998)
    files.rotate(after_us=HOUR_US)
    files.short(client(9997), 9997)
    files.rotate()
    rows = pa.concat_tables([reader.batch(1), (soon := reader.batch(1)), reader.batch(1)])

    # 299 were told to be over by the next SYN of their sender; the last waits for its answer.
    assert clients(soon) == Counter({client(9999): 299})
    assert clients(rows) == Counter([*map(client, range(2100)), *[client(9999)] * 300, client(9998)])
    assert len({*rows["connection_id"].to_pylist()}) == rows.num_rows
    assert len(reader.kept()[0].pipeline.assembler.live) == 1


def test_flood_is_forgotten_after_an_hour_beside_connections_that_spoke(files: Files) -> None:
    """Some of the flood were answered; those that spoke go on, and are told after a day."""
    flood, spoke = [*map(client, range(500))], [*map(client, range(500, 520))]
    for k, who in enumerate(flood):
        files.packet(who, True, SYN)
        if k % 2:
            files.packet(who, False, SYN_ACK)
    for who in spoke:
        files.open(who)
        files.packet(who, True, ACK, HELLO_BLIPMQ)
    later = [client(1000 + k) for k in range(3)]
    for who, after_us in zip(later, (HOUR_US - SECOND_US, 2 * SECOND_US, DAY_US), strict=True):
        files.rotate(after_us)
        files.short(who, 7)
    files.rotate()
    reader = stream(files, "connections")
    told = []
    held = []
    for _ in range(4):
        told.append(clients(reader.batch(1)))
        held.append(len(reader.kept()[0].pipeline.assembler.live))

    assert told == [Counter(), Counter(), Counter(flood), Counter([*spoke, *later[:2]])]
    assert held == [520, 521, 22, 1]


def test_consumer_that_is_silent_for_hours_goes_on(files: Files) -> None:
    """The same connection before and after three hours without a packet, while others come and go."""
    who = client(1)
    files.open(who)
    files.packet(who, True, ACK, HELLO_BLIPMQ)
    files.packet(who, False, ACK, publish(100))
    for k in range(3):
        files.rotate(after_us=HOUR_US)
        files.short(client(2 + k), 7)
    files.packet(who, False, ACK, publish(101))
    files.close(who)
    files.rotate()
    files.short(client(9), 7)
    files.rotate()
    rows = stream(files).rest()
    messages = [row for row in rows.to_pylist() if row["connection_id"] == rows["connection_id"][0].as_py()]
    connections = stream(files, "connections").rest()
    (mine,) = [row for row in connections.to_pylist() if row["client_ip"] == who[0]]

    assert [int(row["correlation_id"]) for row in messages] == [1, 100, 101]
    assert [row["resynced"] for row in messages] == [False] * 3
    assert numbers(rows) == sorted([1, 100, 101, *[1, 7] * 4])
    assert mine["connection_id"] == messages[0]["connection_id"]
    assert (mine["packets_c2s"], mine["packets_s2c"], mine["syn_seen"]) == (4, 4, True)


def test_half_closed_connection_goes_on(files: Files) -> None:
    """A client that closed its side still gets messages: only a day without any ends the connection."""
    who = client(1)
    files.open(who)
    files.packet(who, True, ACK, HELLO_BLIPMQ)
    files.packet(who, True, FIN_ACK)
    for k in range(5):
        files.rotate(after_us=DAY_US // 2)
        files.packet(who, False, ACK, publish(100 + k))
    files.rotate()
    reader = stream(files)
    rows = reader.rest()

    assert numbers(rows) == [1, 100, 101, 102, 103, 104]
    assert len({*rows["connection_id"].to_pylist()}) == 1


def test_packet_of_a_forgotten_connection_begins_a_new_one(files: Files) -> None:
    """A FIN sent again an hour later, and a message: nothing captured is lost, and no id is given twice."""
    who = client(1)
    files.short(who, 7)
    files.rotate(after_us=HOUR_US)
    files.short(client(2), 8)
    files.rotate()
    files.sent[who][0] -= 1
    files.packet(who, True, FIN_ACK)
    files.rotate(after_us=HOUR_US * 2)
    files.short(client(3), 9)
    files.rotate()
    reader = stream(files, "connections")
    rows = reader.rest()
    mine = rows.filter(pa.array([x == who[0] for x in rows["client_ip"].to_pylist()]))

    assert clients(rows) == Counter({who: 2, client(2): 1})
    assert mine["packets_c2s"].to_pylist() == [5, 1]
    assert mine["syn_seen"].to_pylist() == [True, False]
    assert len({*rows["connection_id"].to_pylist()}) == 3


def test_message_that_was_never_completed_comes_when_its_connection_is_over(files: Files) -> None:
    """With the file it began in, days before, and a flaw; its bytes are in no other row."""
    who = client(1)
    files.open(who)
    files.packet(who, True, ACK, HELLO_BLIPMQ)
    files.packet(who, True, ACK, publish(7, bytes(100))[:60])
    for k in range(3):
        files.rotate(after_us=DAY_US)
        files.short(client(2 + k), 8)
    files.rotate()
    reader = stream(files)
    first = reader.batch(1)
    rows = reader.rest()
    late = rows.filter(pa.array([x == 7 for x in map(int, rows["correlation_id"].to_pylist())]))

    assert numbers(first) == [1]
    assert late.select(["flaw", "frame_len", "capture_file"]).to_pylist() == [
        {"flaw": "truncated", "frame_len": 60, "capture_file": str(files.folder / "part.pcap")}
    ]


def _mixed(files: Files, turns: int = 6) -> Iterator[int]:
    """Short connections beside one with a message across each border of files; the numbers of all messages."""
    steady, other = client(60_000), client(60_001)
    for who in (steady, other):
        files.open(who)
        files.packet(who, True, ACK, HELLO_BLIPMQ)
        yield 1
    for turn in range(turns):
        for k in range(turn * 20, turn * 20 + 20):
            files.short(client(k), 100 + k)
            yield from (1, 100 + k)
        whole = publish(10_000 + turn, bytes(500))
        files.packet(steady, True, ACK, whole[:200])
        files.rotate()
        files.packet(steady, True, ACK, whole[200:])
        files.packet(other, True, ACK, publish(20_000 + turn))
        yield from (10_000 + turn, 20_000 + turn)
    files.rotate()


def test_connections_beside_forgotten_ones_are_read_as_before(files: Files) -> None:
    sent = [*_mixed(files)]
    expected = of_dissections([dissect(captures([str(files.folder)]).captures[0])])["messages"]

    rows = stream(files).rest()

    assert numbers(rows) == sorted(sent)
    assert texts([rows]) == expected


@pytest.mark.parametrize("table", ["messages", "connections", "problems", "exchanges", "deliveries"])
def test_rows_are_the_same_wherever_a_stream_is_taken_up(files: Files, table: str) -> None:
    """All files in one batch, one a batch, and the last states lost."""
    for _ in _mixed(files):
        pass
    at_once = texts([stream(files, table, "one").rest(file_count=100)])
    one_by_one = texts([stream(files, table, "two").rest()])
    again = stream(files, table, "three")
    before = again.batch(4)
    for state in (again.state / table / "state").iterdir():
        state.unlink()
    after = again.rest(2)

    assert at_once == one_by_one == texts([before, after])
    assert bool(at_once) == (table not in ("problems", "deliveries"))


def test_batch_done_again_gives_the_same_rows(files: Files) -> None:
    for _ in _mixed(files):
        pass
    reader = stream(files)
    reader.batch(3)
    first = reader.batch(2)
    reader.read_count = 3

    assert texts([reader.batch(2)]) == texts([first])


@pytest.mark.parametrize("path", sorted((PCAPS / "faults").glob("*.pcap")), ids=lambda path: path.stem)
def test_stream_over_faults_tells_what_a_batch_tells(files: Files, path: Path) -> None:
    """Four files and a SYN two days later: all connections are over. Messages where none is read by later evidence."""
    for file in rotated(path, files.folder, 4):
        files.finish(file)
    expected = of_dissections([dissect(captures([str(files.folder)]).captures[0])])
    files.now_us = START_US + 48 * HOUR_US
    files.packet(client(1), True, SYN)
    files.rotate()

    for table in ("connections", "problems", *(("messages", "flymq", "exchanges") if "flymq" in path.name else ())):
        assert texts([stream(files, table).rest()]) == expected.get(table, []), table


@pytest.mark.parametrize("name", ["flymq/fetch", "flymq/pipelining", "msgq/split_session", "blipmq/qos1", "fq/session"])
def test_exchanges_and_deliveries_of_a_stream_are_those_of_a_batch(files: Files, name: str) -> None:
    """Pairs whose halves are in different files among them, and requests that closed connections leave open."""
    for file in rotated(PCAPS / f"{name}.pcap", files.folder, 5):
        files.finish(file)
    expected = of_dissections([dissect(captures([str(files.folder)]).captures[0])])
    files.now_us = START_US + 48 * HOUR_US
    files.packet(client(1), True, SYN)
    files.rotate()

    assert expected["deliveries"]
    for table in ("exchanges", "deliveries"):
        reader = stream(files, table)
        early = reader.batch(2)
        assert early.num_rows or table == "deliveries"
        assert texts([early, reader.rest()]) == expected[table], table


KEY = bytes(range(1, 128))
S16_KEY = b"\0\x7f" + KEY


def _log_in(files: Files, who: Client, key: bytes) -> None:
    """An fq command connection: the login of alice."""
    login = b"\xcc\x50\xca\xfe" + b"\xaa\xaa\0\0\0\5alice\0\x09inbox\0mem\0\6nopass"
    files.open(who)
    files.packet(who, True, ACK, login)
    files.packet(who, False, ACK, b"\xaa\0\0\x7f" + key)


def _frame(number: int) -> bytes:
    """An fq message to a subscriber."""
    return b"\2ex\3a.b" + number.to_bytes(16, "big") + b"\3bob\1\x7f\0\0\1" + b"\0\0\0\5hello"


def test_login_stays_as_long_as_a_data_connection_needs_it(tmp_path: Path) -> None:
    """The command connection is closed or idle and forgotten; rows of the data connection still name its user."""
    (tmp_path / "captures").mkdir()
    files = Files(tmp_path / "captures", ("10.9.0.1", 8765))
    command, data = client(1), client(2)
    _log_in(files, command, KEY)
    files.open(data)
    files.packet(data, True, ACK, b"\xcc\x50\xfa\xce\0\x7f" + KEY)
    files.close(command)
    for k in range(40):
        _log_in(files, client(100 + k), bytes([k + 1]) * 127)
        files.packet(client(100 + k), True, RST)
    reader = stream(files)
    for turn in range(4):
        files.packet(data, False, ACK, _frame(turn))
        files.rotate()
    rows = reader.rest()
    kept, _ = reader.kept()
    of_data = rows.filter(pa.array([x is not None for x in rows["message_id"].to_pylist()]))

    assert of_data["client_name"].to_pylist() == ["alice"] * 4
    assert of_data["group_name"].to_pylist() == ["inbox"] * 4
    assert len(kept.pipeline.framer.connections) == 1
    assert kept.pipeline.evidence.shared["fq"].facts() == []

    files.packet(data, True, RST)
    files.rotate()
    files.packet(client(3), True, SYN)
    files.rotate()
    reader.rest()

    assert reader.kept()[0].pipeline.framer.connections == {}


def test_servers_stay_known_when_their_connections_are_forgotten(tmp_path: Path) -> None:
    """On a port of nobody's, content tells the first connection; a late one is taken by its server, hours later."""
    (tmp_path / "captures").mkdir()
    files = Files(tmp_path / "captures", ("10.9.0.1", 7777))
    for k in range(30):
        files.short(client(k), k)
    files.rotate(after_us=3 * HOUR_US)
    reader = stream(files)
    files.short(client(99), 99)
    files.rotate()
    reader.rest()

    kept, _ = reader.kept()
    assert set(kept.pipeline.framer.detector.servers) == {("blipmq", "10.9.0.1", 7777)}
    assert len(kept.pipeline.framer.connections) == 1


def test_clock_that_is_wrong_for_one_file_harms_no_other(files: Files) -> None:
    """One packet of a year to come: connections go on when the clock is right again."""
    who = client(1)
    files.open(who)
    files.packet(who, True, ACK, HELLO_BLIPMQ)
    files.rotate(after_us=SECOND_US)
    right = files.now_us
    files.now_us += 30_000 * HOUR_US
    files.packet(client(2), True, SYN)
    files.now_us = right
    for k in range(3):
        files.packet(who, True, ACK, publish(100 + k))
        files.rotate(after_us=SECOND_US)
    rows = stream(files).rest()

    assert numbers(rows) == [1, 100, 101, 102]
    assert len({*rows["connection_id"].to_pylist()}) == 1


@pytest.mark.parametrize("content", [pickle.dumps({}), b"", STATE_HEADER[:-2] + b"0\n" + pickle.dumps({})])
def test_state_of_another_release_is_refused(content: bytes) -> None:
    with pytest.raises(CaptureError, match="another release") as refusal:
        streaming._states_of(content)

    assert "\n" not in str(refusal.value)
