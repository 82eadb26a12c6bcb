"""Small captures that are read together have the rows that each has if it is read by itself."""

import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from examples import one_in
from mutated_captures import capture_bytes, records
from rows import Rows, of_export

from mqpcap import small_captures
from mqpcap.capture import captures
from mqpcap.options import Options
from mqpcap.parallel_export import export_captures
from mqpcap.reading import Choices, Outcome, find_captures
from mqpcap.small_captures import read_together, rows_of, small_groups
from mqpcap.tables.output import Output

PCAPS = Path(__file__).parents[1] / "pcaps"
SAMPLES = one_in(2, sorted(PCAPS.glob("*/*.pcap")))


def read_all(folder: Path, out: Path) -> tuple[Rows, Outcome]:
    outcome = Outcome(Choices(jobs=1))
    export_captures(find_captures([str(folder)], outcome), out, outcome, lambda count: None, allow_missing=True)
    return of_export(out), outcome


def copied(folder: Path, contents: dict[str, bytes]) -> Path:
    """The captures in a folder, each in one of its own: none is a part of another."""
    for name, content in contents.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "capture.pcap").write_bytes(content)
    return folder


def over_ipv6(record: tuple[bytes, int, bytes]) -> tuple[bytes, int, bytes]:
    """A packet (Ethernet, IPv4, TCP) with other addresses, in IPv6."""
    stamp, _, packet = record
    begin = 14 + (packet[14] & 15) * 4
    tcp = bytearray(packet[begin : 14 + struct.unpack_from(">H", packet, 16)[0]])
    ends = b"".join(b"\x20\x01\x0d\xb8" + bytes(8) + packet[offset : offset + 4] for offset in (26, 30))
    tcp[16:18] = b"\0\0"
    padded = ends + struct.pack(">II", len(tcp), 6) + bytes(tcp) + bytes(len(tcp) % 2)
    total = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    total = (total & 0xFFFF) + (total >> 16)
    tcp[16:18] = struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF)
    packet = packet[:12] + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, len(tcp), 6, 64) + ends + bytes(tcp)
    return stamp, len(packet), packet


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function after which each capture is read by itself."""
    return lambda: monkeypatch.setattr(small_captures, "MIN_CAPTURES", 1 << 30)


def test_rows_and_notes_are_those_of_captures_read_one_by_one(tmp_path: Path, alone: Callable[[], None]) -> None:
    """The first packets of every second sample, twice: copies have the same servers, ids, keys and bodies.

    Beside them later packets: connections whose protocol the server of another capture would tell. Then IPv6.
    """
    contents = {}
    for k, path in enumerate(SAMPLES):
        data = path.read_bytes()
        if data[:4] == b"\xd4\xc3\xb2\xa1":
            packets = records(data)
            begin = capture_bytes(data[:24], packets[:40])
            contents |= {f"{k:03}-begin": begin, f"{k:03}-copy": begin}
            contents[f"{k:03}-late"] = capture_bytes(data[:24], packets[20:50])
    data = (PCAPS / "blipmq" / "qos1.pcap").read_bytes()
    ipv6 = capture_bytes(data[:24], [*map(over_ipv6, records(data)[:40])])
    contents |= {"ipv6": ipv6, "ipv6-copy": ipv6}
    contents["cut"] = (PCAPS / "flymq" / "core.pcap").read_bytes()[:-7]
    folder = copied(tmp_path / "captures", contents)

    rows, outcome = read_all(folder, tmp_path / "together")
    alone()
    rows_alone, outcome_alone = read_all(folder, tmp_path / "alone")

    assert rows == rows_alone
    assert sum("2001:db8::" in row for row in rows["messages"]) > 20
    assert Counter(outcome.notes) == Counter(outcome_alone.notes)
    assert any("several publishes" in note for note in outcome.notes)
    for name in ("dissected_count", "messages", "flaws", "problem_bytes", "started_inside", "unreadable", "skipped"):
        assert getattr(outcome, name) == getattr(outcome_alone, name)


def test_whole_captures_are_read_in_one_step_and_odd_ones_by_themselves(tmp_path: Path) -> None:
    """The odd ones: a packet is missing, a login of fq is shared, the last record is cut, NAT has two sides."""
    data = (PCAPS / "blipmq" / "qos1.pcap").read_bytes()
    lossy = [packet for k, packet in enumerate(records(data)[:60]) if k != 20]
    odd = {
        "lossy": capture_bytes(data[:24], lossy),
        "shared": (PCAPS / "fq" / "session.pcap").read_bytes(),
        "cut": data[:-7],
        "nat": (Path(__file__).parent / "tcp" / "captures" / "nat_both_sides_flymq.pcap").read_bytes(),
    }
    whole = {f"whole{k}": (PCAPS / "blipmq" / "handshake.pcap").read_bytes() for k in range(8)}
    found = captures([str(copied(tmp_path, whole | odd))]).captures
    emitted: list[Output] = []

    (group,) = small_groups(found)
    left = read_together(group, Options(), emitted.append, lambda part: None)

    assert sorted(Path(capture.files[0]).parent.name for capture in left) == sorted(odd)
    assert Counter(output.table for output in emitted)["messages"] < len(whole)
    assert len({name for output in emitted for name in output.rows["capture"].to_pylist()}) == len(whole)


def test_group_that_fails_is_tried_again_in_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One capture breaks each group that it is in: the others are still read together."""
    content = (PCAPS / "blipmq" / "handshake.pcap").read_bytes()
    found = captures([str(copied(tmp_path, {f"{k:02}": content for k in range(32)}))]).captures

    def broken(group, *options):  # type: ignore[no-untyped-def]
        if any("/05/" in part.capture.files[0] for part in group.parts):
            raise ValueError("a fault")
        return rows_of(group, *options)

    monkeypatch.setattr(small_captures, "rows_of", broken)
    emitted: list[Output] = []
    left = read_together(found, Options(), emitted.append, lambda part: None)

    # 32, 16 and 8 captures fail; the last group is too small to be tried in halves.
    assert len(left) == small_captures.MIN_CAPTURES
    assert sum(output.table == "captures" for output in emitted) == 32 - len(left)


def test_groups_keep_the_order_and_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (PCAPS / "blipmq" / "handshake.pcap").read_bytes()
    found = captures([str(copied(tmp_path, {f"{k:02}": content for k in range(10)}))]).captures

    monkeypatch.setattr(small_captures, "MAX_CAPTURES", 4)
    assert [len(group) for group in small_groups(found)] == [4, 4, 2]
    monkeypatch.setattr(small_captures, "MAX_JOINED_BYTES", 3 * len(content))
    groups = [*small_groups(found)]
    assert [len(group) for group in groups] == [3, 3, 3, 1]
    assert [capture for group in groups for capture in group] == found
