"""Multipath TCP: subflows are one connection, with the rows of the same dialogue captured plainly.

mptcp_two_blipmq (``captures``): a BlipMQ client with two subflows, of a real kernel.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from dissection import Dissection, dissect
from mutated_captures import Record, capture_bytes, differences, records
from running import run

from mqpcap.capture import captures
from mqpcap.tcp import multipath
from mqpcap.tcp.multipath import _dss

SOURCE = Path(__file__).parent / "captures" / "mptcp_two_blipmq.pcap"
DATA = SOURCE.read_bytes()
PACKETS = records(DATA)
SECOND = bytes([10, 10, 0, 1])
"""The client's address on the second subflow."""


def read(folder: Path, packets: Sequence[Record]) -> Dissection:
    (folder / "capture.pcap").write_bytes(capture_bytes(DATA[:24], packets))
    (capture,) = captures([str(folder / "capture.pcap")]).captures
    return dissect(capture)


def pairs(found: Dissection) -> dict[tuple[str, int], tuple[str, int | None]]:
    """By direction and offset of a request, its state and the offset of its reply."""
    return {
        (row["request_direction"], row["request_offset"]): (row["state"], row["reply_offset"])
        for row in found.exchanges.to_pylist()
    }


def test_two_subflows_are_one_connection(tmp_path: Path) -> None:
    """POLL 9 in packet 25 is answered by packet 27; 4 to 8 wait for nothing."""
    found = read(tmp_path, PACKETS)
    first, second = found.connections.to_pylist()

    assert len(found.messages) == 30
    answered = [row for row in found.exchanges.to_pylist() if row["state"] == "answered"]
    assert (25, 27) in [(row["request_packet"], row["reply_packet"]) for row in answered]
    assert "unanswered" not in {state for state, _ in pairs(found).values()}
    assert (second["client_ip"], second["protocol"], second["subflow_of"]) == (
        "10.10.0.1",
        None,
        first["connection_id"],
    )
    assert (first["subflow_of"], first["end_state"], first["closed_by"]) == (None, "closed", "c2s")
    # The last data acknowledgements, of the DATA_FIN: ...2412 - ...1873 - 1, and ...6889 - ...6726 - 1.
    assert (first["bytes_c2s"], first["bytes_s2c"]) == (538, 162)
    assert [first[f"{name}_{d}"] for name in ("missing_bytes", "conflict_bytes") for d in ("c2s", "s2c")] == [0] * 4
    assert (second["bytes_c2s"], second["missing_bytes_c2s"], second["tcp_state"]) == (0, 0, "opened")


def test_the_count_of_subflows_is_noted() -> None:
    """The capture has two subflows; the first is the connection."""
    said = run("show", SOURCE).stderr

    assert "note: subflows of Multipath TCP, read with the first one of their connection: 1" in said.splitlines()


def plain_pairs(tmp_path: Path) -> dict[tuple[str, int], tuple[str, int | None]]:
    return pairs(read(tmp_path, PACKETS))


def check_no_contradiction(found: Dissection, plain: dict[tuple[str, int], tuple[str, int | None]]) -> None:
    answers = {place: reply for place, (state, reply) in plain.items() if state == "answered"}
    for place, (state, reply) in pairs(found).items():
        if state == "answered":
            assert answers[place] == reply
        if state == "unanswered":
            assert place not in answers


@pytest.mark.parametrize("seed", range(12))
def test_lost_packets_make_no_false_pair(seed: int, tmp_path: Path) -> None:
    """One to three packets of the dialogue are lost, handshakes excluded."""
    plain, dice = plain_pairs(tmp_path), Random(seed)
    lost = {dice.randrange(4, len(PACKETS)) for _ in range(1 + seed % 3)}
    found = read(tmp_path, [packet for k, packet in enumerate(PACKETS) if k not in lost])

    check_no_contradiction(found, plain)
    assert len(found.connections) <= 2 + len(lost)


@pytest.mark.parametrize("lost", [0, 1, 2, 7, 8])
def test_a_lost_packet_of_a_handshake_makes_no_false_pair(lost: int, tmp_path: Path) -> None:
    plain = plain_pairs(tmp_path)

    found = read(tmp_path, PACKETS[:lost] + PACKETS[lost + 1 :])

    check_no_contradiction(found, plain)
    if lost in (0, 1, 2):
        assert len(found.messages) == 30


@pytest.mark.parametrize("words", [[], ["--connections"], ["--split", "connection"]])
@pytest.mark.parametrize("has_ends", [True, False])
def test_an_extracted_connection_has_its_subflows(words: list[str], has_ends: bool, tmp_path: Path) -> None:
    """Read again it gives the same rows, also where no subflow ends."""
    kept = [packet for packet in PACKETS if has_ends or not packet[2][20 + 20 + 13] & 1]
    found = read(tmp_path, kept)
    out = tmp_path / "out"
    assert (
        run("extract", str(tmp_path / "capture.pcap"), "--connection", "c1", *words, "--out", str(out)).exit_code == 0
    )
    (capture,) = captures([str(out / "c1.pcapng" if "--split" in words else out)]).captures
    again = dissect(capture)
    names = ["direction", "stream_offset", "frame_len", "op", "flaw"]

    assert again.messages.select(names).to_pylist() == found.messages.select(names).to_pylist()
    assert pairs(again) == pairs(found)
    assert len(again.connections) == 2


def test_a_second_subflow_alone_is_said(tmp_path: Path) -> None:
    """Nothing of it can be paired, as the replies came on the first."""
    found = read(tmp_path, [packet for packet in PACKETS if SECOND in packet[2]])

    assert "answered" not in {state for state, _ in pairs(found).values()}
    assert "unanswered" not in {state for state, _ in pairs(found).values()}


def test_the_first_subflow_alone_has_gaps(tmp_path: Path) -> None:
    plain = plain_pairs(tmp_path)
    found = read(tmp_path, [packet for packet in PACKETS if SECOND not in packet[2]])

    check_no_contradiction(found, plain)
    assert found.connections["missing_bytes_c2s"].to_pylist()[0] > 0


@pytest.mark.parametrize("seed", range(4))
def test_windows_of_one_packet_give_the_same_rows(seed: int, tmp_path: Path) -> None:
    """And no byte is lost; a few packets are missing but for the first seed."""
    dice = Random(seed)
    packets = [packet for packet in PACKETS if not seed or dice.random() > 0.05]
    (tmp_path / "some.pcap").write_bytes(capture_bytes(DATA[:24], packets))

    assert differences(tmp_path / "some.pcap") == {}


def test_forgotten_subflows_are_not_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipath, "MAX_SUBFLOWS", 0)
    found = read(tmp_path, PACKETS)

    assert found.connections["subflow_of"].null_count == len(found.connections)


def test_few_mappings_make_no_false_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's packets of the second subflow are in the capture from the last to the first."""
    monkeypatch.setattr(multipath, "MAX_MAPPINGS", 1)
    plain = plain_pairs(tmp_path)
    of_client = [k for k, packet in enumerate(PACKETS) if k > 10 and SECOND in packet[2][-80:][:44]]
    order = dict(zip(of_client, reversed(of_client), strict=True))

    check_no_contradiction(read(tmp_path, [PACKETS[order.get(k, k)] for k in range(len(PACKETS))]), plain)


def test_options_that_are_cut_or_hostile_do_not_raise() -> None:
    dice = Random(1)
    for _ in range(2000):
        _dss(bytes(dice.randrange(256) for _ in range(dice.randrange(28))))
    assert _dss(b"\x20\x05" + bytes(4) + b"\0\0\0\7").ack == 0


@pytest.mark.parametrize("seed", range(4))
def test_changed_options_do_not_raise(seed: int, tmp_path: Path) -> None:
    dice = Random(seed)
    changed = []
    for ts, wire, frame in PACKETS:
        place = dice.randrange(60, max(61, min(len(frame), 100)))
        byte = dice.randrange(256) if dice.random() < 0.3 else frame[place]
        changed.append((ts, wire, frame[:place] + bytes([byte]) + frame[place + 1 :]))

    assert read(tmp_path, changed).connections.num_rows >= 1
