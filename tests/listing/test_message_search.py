"""The message that ``explain`` is asked for: found, or why not."""

import json
from pathlib import Path

import pytest
from message_rows import capture_of, merged
from rows import rotated
from running import run
from torture import SYN, Segment, blipmq_message, pcap

from mqpcap.listing import message_search
from mqpcap.listing.message_search import PacketSearch, PlaceSearch
from mqpcap.reading import Choices, Outcome

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_explain_finds_a_message_by_its_place_in_the_stream() -> None:
    one = json.loads(run("explain", "-q", "--json", QOS1, "--at", "12").stdout)
    place = ["--connection", str(one["connection_id"]), "--direction", "c2s", "--offset", str(one["stream_offset"] + 5)]

    assert json.loads(run("explain", "-q", "--json", QOS1, *place).stdout) == one


@pytest.mark.parametrize(("packet", "said"), [("1", "has no TCP payload"), ("99999", "there is no packet 99999")])
def test_explain_says_why_a_packet_has_no_message(packet: str, said: str) -> None:
    result = run("explain", "-q", QOS1, "--at", packet)

    assert result.exit_code == 1
    assert said in result.stderr


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
def test_explain_names_the_foreign_protocol_of_a_packet(capture: str, said: str) -> None:
    explained = run("explain", f"pcaps/{capture}.pcap", "--at", "4")

    assert explained.exit_code == 1
    assert explained.stderr == f"mqpcap: pcaps/{capture}.pcap: packet 4 is of a connection that {said}\n"


def places_of_messages(search: PlaceSearch | PacketSearch, name: Path | str) -> list[tuple[object, object]]:
    """Direction and offset of the messages that are found."""
    search.run(capture_of(name), Outcome(Choices()), lambda count: None)
    return sorted((row.message["direction"], row.message["stream_offset"]) for row in search.rows())


MESSAGES = [blipmq_message(i) for i in range(4)]
BEGINS = [sum(map(len, MESSAGES[:i])) for i in range(4)]


PRODUCE = bytes.fromhex("af010100 00000010 000174 00000000 00000001 76 ffffffff")
"""A request of FlyMQ, which is read at once."""


def session(folder: Path) -> Path:
    """Packet 2 has the first message and the begin of the second, 3 the rest and the third, 4 comes again, 5 is new."""
    stream, cuts = b"".join(MESSAGES), (0, BEGINS[1] + 5, BEGINS[3])
    parts = [(cuts[0], cuts[1]), (cuts[1], cuts[2]), (cuts[0], cuts[1]), (cuts[2], len(stream))]
    path = folder / "session.pcap"
    path.write_bytes(pcap([Segment(seq=0, flags=SYN), *(Segment(stream[a:b], 1 + a) for a, b in parts)], 5555))
    return path


@pytest.mark.parametrize(("packet", "numbers"), [(1, []), (2, [0, 1]), (3, [1, 2]), (4, []), (5, [3]), (6, [])])
def test_the_messages_of_a_packet_are_those_with_bytes_of_it(packet: int, numbers: list[int], tmp_path: Path) -> None:
    assert places_of_messages(PacketSearch(0, packet, ["session.pcap"]), session(tmp_path)) == [
        ("c2s", BEGINS[i]) for i in numbers
    ]


@pytest.mark.parametrize(
    ("packet", "said"),
    [
        (1, "packet 1 has no TCP payload"),
        (4, "no message has bytes of packet 4; export has it in problems, or it is a retransmission"),
        (6, "there is no packet 6"),
    ],
)
def test_a_packet_without_a_message_gives_the_reason(packet: int, said: str, tmp_path: Path) -> None:
    search = PacketSearch(0, packet, ["session.pcap"])

    assert (places_of_messages(search, session(tmp_path)), search.miss) == ([], said)


def test_a_packet_of_a_rotated_capture_is_named_with_its_file(tmp_path: Path) -> None:
    """The files end after packets 2 and 4: message 1 is in packet 2 of the first and packet 1 of the second."""
    (tmp_path / "parts").mkdir()
    parts = rotated(session(tmp_path), tmp_path / "parts", 3)
    keys = {(i, packet): run("explain", "--json", tmp_path / "parts", "--at", f"{parts[i].name}#{packet}")
            for i in range(3) for packet in (1, 2)}  # fmt: skip

    def offsets(key: tuple[int, int]) -> list[object]:
        return [json.loads(line)["stream_offset"] for line in keys[key].stdout.splitlines()]

    assert offsets((0, 2)) == BEGINS[:2]
    assert offsets((1, 1)) == BEGINS[1:3]
    assert offsets((2, 1)) == BEGINS[3:]
    both = run("explain", tmp_path / "parts", "--at", "1").stdout
    assert f"{parts[1]}#" in both and f"{parts[2]}#1" in both
    missing = run("explain", tmp_path / "parts", "--at", "other.pcap#1")
    assert (missing.exit_code, missing.stderr) == (1, f"mqpcap: {tmp_path / 'parts'}: there is no file other.pcap\n")


def test_a_packet_of_each_file_is_compared_with_few_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packet 2 of each of n files: a file's messages are not compared with the packets of all files before it."""
    comparisons: list[str] = []
    is_in = message_search.is_in
    monkeypatch.setattr(
        message_search, "is_in", lambda column, *values: comparisons.append("") or is_in(column, *values)
    )
    counts = []
    for n in (20, 40):
        folder = tmp_path / f"{n}"
        folder.mkdir()
        begins = [len(PRODUCE) * i for i in range(2 * n - 1)]
        sent = [Segment(PRODUCE, 1 + begin) for begin in begins]
        (folder / "all").write_bytes(pcap([Segment(seq=0, flags=SYN), *sent], 9092))
        parts = rotated(folder / "all", folder, n)
        (folder / "all").unlink()
        comparisons.clear()

        messages = places_of_messages(PacketSearch(0, 2, [str(part) for part in parts]), folder)

        assert messages == [("c2s", begin) for begin in begins[::2]]
        counts.append(len(comparisons))

    assert counts[1] < 2.2 * counts[0]


def test_a_message_is_found_by_each_of_its_bytes(tmp_path: Path) -> None:
    path = session(tmp_path)
    end = BEGINS[3] + len(MESSAGES[3])
    for offset in (0, BEGINS[1] - 1, BEGINS[1], BEGINS[2] - 1, BEGINS[3], end - 1):
        begin = max(x for x in BEGINS if x <= offset)
        assert places_of_messages(PlaceSearch(0, " c1", "c2s", offset), path) == [("c2s", begin)]

    behind, other_side = PlaceSearch(0, "c1", "c2s", end), PlaceSearch(0, "c1", "s2c", 0)
    assert places_of_messages(behind, path) == places_of_messages(other_side, path) == []
    assert behind.miss == f"no message of connection c1 c2s holds offset {end}"


def test_every_message_is_found_by_its_first_packet() -> None:
    for row in merged("flymq/core")[:20]:
        place = row.message["direction"], row.message["stream_offset"]
        assert place in places_of_messages(
            PacketSearch(0, int(str(row.message["first_packet"])), ["core.pcap"]), "flymq/core"
        )
