"""Two faults, taps or wrappings at once: the rows are those of the capture without them."""

from pathlib import Path
from random import Random

import pytest
from combined_cases import CHANGES, LOSSES, Packet, conversation, write
from torture import MAKERS, Result, broken_laws, read

from mqpcap.protocols import protocols

LAST = ("connection_id", "ts", "ts_ns", "end_ts_ns", "first_packet", "last_packet", "capture", "capture_file", "fields")
SENT = [(True, b"".join(MAKERS["blipmq"][1](k) for k in range(first, first + 2))) for first in range(0, 24, 2)]
PORT = protocols()["blipmq"].ports[0]


def rows(path: Path, packets: list[Packet]) -> tuple[list[dict[str, object]], list[tuple[object, ...]], Result]:
    """Messages without what a capture adds, and the end, the client and the missing bytes of each connection."""
    write(path, packets, PORT)
    result = read(path)
    messages = [{name: value for name, value in row.items() if name not in LAST} for row in result.messages]
    sums = [
        (c["end_state"], c["client_ip"], c["missing_bytes_c2s"], c["missing_bytes_s2c"]) for c in result.connections
    ]
    return sorted(messages, key=lambda row: (row["direction"], row["stream_offset"])), sums, result


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("change", CHANGES)
def test_two_changes_change_no_row(change: str, loss: str, tmp_path: Path) -> None:
    """One change, and each of two others after it."""
    dice = Random(f"{loss} {change}")
    base = LOSSES[loss](conversation(SENT), dice)
    expected = rows(tmp_path / "base.pcap", base)
    for second in dice.sample([*CHANGES], 2):
        changed = CHANGES[second](CHANGES[change](base, dice), dice)
        messages, sums, result = rows(tmp_path / "changed.pcap", changed)

        assert broken_laws(result) == []
        assert (messages, sums) == expected[:2], second
