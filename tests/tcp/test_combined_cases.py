"""Two faults, taps or wrappings at once: the rows are those of the capture without them."""

from pathlib import Path
from random import Random

import pytest
from combined_cases import CHANGES, CLIENT, LOSSES, Packet, conversation, together, write
from torture import MAKERS, broken_laws, read

from mqpcap.protocols import protocols

LAST = ("connection_id", "ts", "ts_ns", "end_ts_ns", "first_packet", "last_packet", "capture", "capture_file", "fields")
SENT = [(True, b"".join(MAKERS["blipmq"][1](k) for k in range(first, first + 2))) for first in range(0, 24, 2)]
PORT = protocols()["blipmq"].ports[0]


def rows(path: Path, conversations: dict[str, list[Packet]]) -> tuple[dict[str, list[object]], list[str]]:
    """What the rows of each conversation say, and the laws that they break.

    Messages without what a capture adds, and the end, the client and the missing bytes of each connection.
    """
    write(path, together(conversations.values()), PORT)
    result = read(path)
    names = {f"192.0.{2 + number}.10": name for number, name in enumerate(conversations)}
    assert names[CLIENT]
    found: dict[str, list[object]] = {name: [] for name in conversations}
    for row in sorted(result.messages, key=lambda row: (row["direction"], row["stream_offset"])):
        client_ip = row["src_ip"] if row["direction"] == "c2s" else row["dst_ip"]
        found[names[client_ip]].append({name: value for name, value in row.items() if name not in LAST})
    for c in result.connections:
        found[names[c["client_ip"]]].append((c["end_state"], c["missing_bytes_c2s"], c["missing_bytes_s2c"]))
    return found, broken_laws(result)


@pytest.mark.parametrize("change", CHANGES)
def test_two_changes_change_no_row(change: str, tmp_path: Path) -> None:
    """One change of each loss, and each of two others after it."""
    dices = {loss: Random(f"{loss} {change}") for loss in LOSSES}
    base = {loss: LOSSES[loss](conversation(SENT), dice) for loss, dice in dices.items()}
    seconds = {loss: dice.sample([*CHANGES], 2) for loss, dice in dices.items()}
    expected, _ = rows(tmp_path / "base.pcap", base)
    for k in range(2):
        changed = {
            loss: CHANGES[seconds[loss][k]](CHANGES[change](base[loss], dice), dice) for loss, dice in dices.items()
        }
        found, broken = rows(tmp_path / "changed.pcap", changed)

        assert broken == []
        assert {(loss, seconds[loss][k]) for loss in LOSSES if found[loss] != expected[loss]} == set()
