"""The fast case of a segment and the slow path are one judgement: all tables are equal without the fast case."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from combined_cases import CHANGES, LOSSES, conversation, together, write
from dissection import dissect
from mutated_captures import PCAPS, tables
from rows import merged, records
from segments import a, b, segments
from streams import HANDSHAKE
from torture import MAKERS

from mqpcap.capture import captures
from mqpcap.protocols import protocols
from mqpcap.tcp import reassembly
from mqpcap.tcp.flow_table import MAX_HOLE, FastPath, FlowTable
from mqpcap.tcp.reassembly import Reassembler

SENT = [(True, b"".join(MAKERS["blipmq"][1](k) for k in range(first, first + 2))) for first in range(0, 24, 2)]
PORT = protocols()["blipmq"].ports[0]


def only_slow(table: FlowTable) -> FastPath:
    fast_path = FastPath(table)
    fast_path.only_slow = True
    return fast_path


def differences(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """By table, the rows that only one of both ways gives."""
    (capture,) = captures([str(path)]).captures
    fast = tables(dissect(capture))
    with monkeypatch.context() as patched:
        patched.setattr(reassembly, "FastPath", only_slow)
        slow = tables(dissect(capture))
    return {name: (fast[name] - slow[name], slow[name] - fast[name]) for name in fast if fast[name] != slow[name]}


@pytest.mark.parametrize("folder", sorted({path.parent.name for path in PCAPS.glob("*/*.pcap")}))
def test_all_packets_of_all_captures_through_the_slow_path(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one capture of each link type and clock."""
    alike: dict[tuple[bytes, bytes], list[Path]] = {}
    for path in sorted(PCAPS.glob(f"{folder}/*.pcap")):
        head, _ = records(path)
        alike.setdefault((head[:4], head[20:24]), []).append(path)

    for paths in alike.values():
        assert differences(merged(paths, tmp_path / "merged.pcap"), monkeypatch) == {}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_captures_through_the_slow_path(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loss, a change, and two losses more."""
    changed = []
    for loss in LOSSES:
        dice = Random(f"{change} {loss}")
        for second in (*dice.sample([*LOSSES], 1), "nothing lost"):
            packets = CHANGES[change](LOSSES[loss](conversation(SENT), dice), dice)
            changed.append(LOSSES[second](packets, dice))
    write(tmp_path / "changed.pcap", together(changed), PORT)

    assert differences(tmp_path / "changed.pcap", monkeypatch) == {}


@pytest.mark.parametrize("lost_index", [None, 0])
def test_copies_of_a_second_tap_are_counted_to_the_last_one(lost_index: int | None, tmp_path: Path) -> None:
    """Also the last ones, which stand one byte before what the other side has acknowledged: the FIN."""
    packets = [packet for k, packet in enumerate(conversation(SENT)) if k != lost_index]
    write(tmp_path / "taps.pcap", CHANGES["a second tap later"](packets, Random(1)), PORT)
    (capture,) = captures([str(tmp_path / "taps.pcap")]).captures
    (row,) = dissect(capture).table("connections").to_pylist()

    sent = [sum(packet.from_client == side for packet in packets) for side in (True, False)]
    assert [row["duplicate_packets_c2s"], row["duplicate_packets_s2c"]] == sent


@pytest.mark.parametrize("path", [FastPath, only_slow])
def test_an_acknowledgement_of_old_bytes_counts(
    path: Callable[[FlowTable], FastPath], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of bytes more than MAX_HOLE before the last ones: far from all expected numbers, but of the connection."""
    monkeypatch.setattr(reassembly, "FastPath", path)
    size = 60_000
    end = 5000 + (2 * MAX_HOLE // size) * size
    reassembler = Reassembler()
    sent = [b(seq, bytes(size), ack=1000) for seq in range(5000, end, size)]
    chunks = reassembler.feed(segments([*HANDSHAKE, *sent, a(1000, ack=end)]))
    reassembler.retain(chunks, chunks.length)

    chunks = reassembler.feed(segments([a(1000, b"x", ack=5000 + size)]))

    assert chunks.piece_ack.tolist() == [size]
