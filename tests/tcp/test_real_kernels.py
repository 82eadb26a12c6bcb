"""Captures of real kernels (``captures``): the rows are those of the same dialogue, captured plainly.

corrupt_small: netem damaged packet 28 on its way; it was never acknowledged, and came again.
"""

from pathlib import Path
from typing import Any

from combined_cases import conversation, write
from mutated_captures import capture_bytes, records
from torture import MAKERS, Result, read

from mqpcap.protocols import protocols

CAPTURES = Path(__file__).parent / "captures"
PORT = protocols()["blipmq"].ports[0]
NUMBERS = ("capture", "capture_file", "connection_id", "first_packet", "last_packet")


def without_numbers(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what depends on other packets of the file."""
    return {
        name: without_numbers(value) if isinstance(value, dict) else value
        for name, value in row.items()
        if name not in NUMBERS
    }


def plain(result: Result) -> list[dict[str, Any]]:
    return [without_numbers(row) for row in result.messages]


def test_a_damaged_segment_gives_way_where_the_card_makes_the_checksums(tmp_path: Path) -> None:
    source = CAPTURES / "corrupt_small.pcap"
    data = source.read_bytes()
    packets = records(data)
    (tmp_path / "good.pcap").write_bytes(capture_bytes(data[:24], packets[:27] + packets[28:]))
    damaged, good = read(source), read(tmp_path / "good.pcap")

    assert plain(damaged) == plain(good)
    assert [row["op"] for row in damaged.messages if row["first_packet"] in (29, 51)] == ["heartbeat", "bind"]
    assert damaged.problems == []
    assert damaged.connections[0]["conflict_bytes_s2c"] == 0


def test_a_packet_with_a_damaged_ip_header_opens_no_connection(tmp_path: Path) -> None:
    """The 20th packet again, with one bit of its sender's address changed on the way; a note has the count."""
    body = b"".join(MAKERS["blipmq"][1](k) for k in range(4))
    write(tmp_path / "plain.pcap", conversation([(True, body), (False, body)] * 10), PORT)
    data = (tmp_path / "plain.pcap").read_bytes()
    packets = records(data)
    ts, wire, frame = packets[19]
    ghost = frame[:29] + bytes([frame[29] ^ 4]) + frame[30:]
    ghosts = [*packets[:19], (ts, wire, ghost), *packets[19:]]
    (tmp_path / "ghost.pcap").write_bytes(capture_bytes(data[:24], ghosts))
    # All headers wrong: rewritten by a program, not damaged.
    wrong = [(ts, wire, frame[:24] + bytes([frame[24] ^ 0x55]) + frame[25:]) for ts, wire, frame in packets]
    (tmp_path / "wrong.pcap").write_bytes(capture_bytes(data[:24], wrong))
    base, seen, rewritten = (read(tmp_path / f"{name}.pcap") for name in ("plain", "ghost", "wrong"))

    assert plain(seen) == plain(base) == plain(rewritten)
    assert (len(seen.connections), seen.counts["damaged_strays"]) == (1, 1)
    assert [len(base.messages), len(base.connections), len(rewritten.connections)] == [80, 1, 1]
