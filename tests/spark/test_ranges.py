"""The packets of shares are those of the capture, wherever its files are cut into ranges."""

import gzip
import random
import shutil
import struct
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
from dissection import dissect
from in_process_spark import InProcessSpark
from opened_tls import capture_with_secrets
from rows import fragmented, of_dissections, of_export, records, rotated

from mqpcap.capture import Capture, Window, captures, windows
from mqpcap.errors import CaptureError
from mqpcap.pipeline import Options
from mqpcap.spark import job, partitions, ranges
from mqpcap.spark.partitions import SharePlan
from mqpcap.spark.ranges import FileRange, RangeReader, ShareCapture, SharePackets
from mqpcap.spark.shuffle import read_table, table_bytes
from mqpcap.tcp.headers import connections_of, keys_of

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
Packet = tuple[int, int, int, bytes, int, int]


def packets(window: Window, rows: Sequence[int]) -> list[Packet]:
    """File, number, time, bytes, wire length and link type of some packets."""
    return [
        (
            window.file, int(window.packet_number[i]), int(window.ts_ns[i]),
            window.buffer[window.offset[i] : window.offset[i] + window.caplen[i]].tobytes(),
            int(window.wirelen[i]), int(window.link_type[i]),
        )
        for i in rows
    ]  # fmt: skip


def expected(capture: Capture, cut: SharePlan) -> list[list[Packet]]:
    """The packets of each share, by a look at every packet of the capture."""
    found: list[list[Packet]] = [[] for _ in range(cut.share_count)]
    for window in capture.windows():
        rows, ends, fragments = connections_of(window)
        shares = cut.shares(keys_of(ends))
        for k in range(cut.share_count):
            found[k] += packets(window, sorted([*rows[shares == k].tolist(), *fragments.tolist()]))
    return found


def shared(capture: Capture, cut: SharePlan) -> tuple[list[list[Packet]], int]:
    """The packets of each share, as tasks read ranges and shares take them; and how often ranges were read."""
    todo = [file_range for pack in ranges.plan_ranges(capture) for file_range in pack]
    for turn in count(1):  # noqa: B007  # returned
        readers = [ranges.RangeReader(capture, file_range, cut) for file_range in todo]
        batches = [(i, batch) for i, reader in enumerate(readers) for batch in reader.packets()]
        borders = ranges.check_borders([reader.result for reader in readers])
        if not borders.corrected:
            break
        todo = borders.corrected
    parts = [
        [
            SharePackets(*borders.valid[i], read_table(table_bytes(batch[k])))
            for i, batch in batches
            if i in borders.valid
        ]
        for k in range(cut.share_count)
    ]
    shares = [ShareCapture(capture.inputs, packets=iter(part)) for part in parts]
    return [
        [p for window in share.windows() for p in packets(window, range(len(window.offset)))] for share in shares
    ], turn


def cut_at(monkeypatch: pytest.MonkeyPatch, *borders: int) -> None:
    """Ranges with these borders in each file."""

    def plan(capture: Capture) -> list[tuple[FileRange, ...]]:
        return [
            (FileRange(file, begin, until),)
            for file in range(len(capture.files))
            for begin, until in zip([0, *borders], [*borders, None], strict=True)
        ]

    monkeypatch.setattr(ranges, "plan_ranges", plan)


def first_packets(path: Path, out: Path, count: int) -> Path:
    head, found = records(path)
    out.write_bytes(head + b"".join(found[:count]))
    return out


def only(path: Path) -> Capture:
    (capture,) = captures([str(path)]).captures
    return capture


def pcapng(path: Path, out: Path, order: str = "<", count: int = 30) -> Path:
    """Packets of a pcap in two sections; of the first, one has no time and one is of an interface described late, with
    a finer clock."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        length = struct.pack(order + "I", len(body) + 12)
        return struct.pack(order + "I", kind) + length + body + length

    def enhanced(interface: int, ticks: int, data: bytes) -> bytes:
        head = struct.pack(order + "IIIII", interface, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
        return block(6, head + data)

    section = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    interface = block(1, struct.pack(order + "HHI", 1, 0, 0))
    finer = block(1, struct.pack(order + "HHI", 1, 0, 0) + struct.pack(order + "HH", 9, 1) + b"\x09\0\0\0")
    made = section + interface
    for i, record in enumerate(records(path)[1][:count]):
        seconds, micros = struct.unpack_from("<II", record)
        ticks, data = seconds * 1_000_000 + micros, record[16:]
        if i == count // 3:
            made += block(0xBAD, b"of somebody") + finer + enhanced(1, ticks * 1000, data)
        elif i == count // 2:
            made += block(3, struct.pack(order + "I", len(data)) + data)
        elif i == 2 * count // 3:
            made += section + interface + finer + enhanced(1, ticks * 1000, data)
        else:
            made += enhanced(0, ticks, data)
    out.write_bytes(made)
    return out


def test_cut_at_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a header, in a body, at a border, after the end: numbers, times and bytes are those of the capture."""
    capture = only(first_packets(PCAPS / "kokaq/go1_session.pcap", tmp_path / "x.pcap", 11))
    cut = SharePlan(2)
    whole = expected(capture, cut)
    assert all(whole)

    for border in range(1, (tmp_path / "x.pcap").stat().st_size + 2, 3):
        cut_at(monkeypatch, border)

        assert shared(capture, cut)[0] == whole, border


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_cut_at_every_block_and_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """Interfaces, sections and times that a span cannot know are found out, and the span is read again."""
    capture = only(pcapng(PCAPS / "flymq/core.pcap", tmp_path / "x.pcapng", order))
    size = (tmp_path / "x.pcapng").stat().st_size
    whole = expected(capture, SharePlan(2))
    most = 0

    for border in range(4, size, 26):
        cut_at(monkeypatch, border, border + (size - border) // 2)
        found, turns = shared(capture, SharePlan(2))

        assert found == whole, border
        most = max(most, turns)
    assert most > 1


def test_cut_off_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is distributed."""
    path = first_packets(PCAPS / "fq/session.pcap", tmp_path / "x.pcap", 9)
    content = path.read_bytes()
    for size in range(13, len(content), 5):
        path.write_bytes(content[:size])
        capture = only(path)
        whole = expected(capture, SharePlan(2))
        cut_at(monkeypatch, size // 2, size * 3 // 4)

        found, _ = shared(capture, SharePlan(2))

        assert found == whole, size


def test_nothing_after_a_damaged_record_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, found = records(PCAPS / "fq/session.pcap")
    damaged = bytearray(found[9])
    damaged[8:12] = b"\xff" * 4
    (tmp_path / "x.pcap").write_bytes(head + b"".join([*found[:9], bytes(damaged), *found[10:30]]))
    capture = only(tmp_path / "x.pcap")
    whole = expected(capture, SharePlan(2))
    cut_at(monkeypatch, 200, 400, 2500, 3000)

    found_, _ = shared(capture, SharePlan(2))

    assert found_ == whole


def carrier(path: Path, out: Path) -> Path:
    """A capture in which a packet carries a capture that ends where the packet ends, and one a few bytes before."""
    head, found = records(path)
    inner = b"".join(found[:12])
    for data in (inner, inner + b"behind"):
        packet = bytearray(found[8]) + data
        packet[8:16] = struct.pack("<II", len(packet) - 16, len(packet) - 16)
        found.insert(9, bytes(packet))
    out.write_bytes(head + b"".join(found[:20]))
    return out


def test_what_only_looks_like_records_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search goes wrong within a packet that carries records; the span before it knows better."""
    path = carrier(PCAPS / "fq/session.pcap", tmp_path / "x.pcap")
    capture = only(path)
    whole = expected(capture, SharePlan(2))
    turns = set()

    for border in range(30, path.stat().st_size, 37):
        cut_at(monkeypatch, border)
        found, turn = shared(capture, SharePlan(2))

        assert found == whole, border
        turns.add(turn)
    assert turns == {1, 2}


def test_file_in_which_nothing_is_found_is_read_on_from_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each packet is a month after the one before it: no chain."""
    head, found = records(PCAPS / "fq/session.pcap")
    far = [struct.pack("<I", i * 2_600_000) + record[4:] for i, record in enumerate(found)]
    (tmp_path / "x.pcap").write_bytes(head + b"".join(far))
    capture = only(tmp_path / "x.pcap")
    cut_at(monkeypatch, *range(1000, 10_000, 500))

    made, turns = shared(capture, SharePlan(2))

    assert made == expected(capture, SharePlan(2))
    assert turns == 2


def test_record_larger_than_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, found = records(PCAPS / "fq/session.pcap")
    large = bytearray(found[5]) + random.Random(5).randbytes(5000)
    large[8:16] = struct.pack("<II", len(large) - 16, len(large) - 16)
    (tmp_path / "x.pcap").write_bytes(head + b"".join([*found[:5], bytes(large), *found[6:12]]))
    capture = only(tmp_path / "x.pcap")
    cut_at(monkeypatch, *range(100, 7000, 300))

    assert shared(capture, SharePlan(3))[0] == expected(capture, SharePlan(3))


def test_chain_with_a_compressed_file_and_small_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed files are one span; what is held is written when it is much; windows are small or span several."""
    (tmp_path / "in").mkdir()
    files = rotated(PCAPS / "fq/session.pcap", tmp_path / "in", 4)
    packed = files[1].with_name(files[1].name + ".gz")
    packed.write_bytes(gzip.compress(files[1].read_bytes()))
    files[1].unlink()
    (capture,) = captures([str(tmp_path / "in")]).captures
    assert len(capture.files) == 4
    cut = partitions.make_plan(capture, 3)
    assert cut.pinned

    for range_bytes, window_bytes, packet_count in (
        (700, 1, 9),
        (3000, 400, 9),
        (1 << 20, 1 << 20, 7),
        (9000, 9000, 99),
    ):
        monkeypatch.setattr(ranges, "RANGE_BYTES", range_bytes)
        monkeypatch.setattr(ranges, "BUFFERED_BYTES", range_bytes // 2)
        monkeypatch.setattr(ranges, "WINDOW_BYTES", window_bytes)
        monkeypatch.setattr(ranges, "WINDOW_PACKETS", packet_count)

        assert shared(capture, cut)[0] == expected(capture, cut), range_bytes


def test_spans_of_small_files_make_a_task_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rotated(PCAPS / "fq/session.pcap", tmp_path, 6)
    (capture,) = captures([str(tmp_path)]).captures
    size = (tmp_path / "part.pcap").stat().st_size
    monkeypatch.setattr(ranges, "RANGE_BYTES", size * 5 // 2)

    packs = ranges.plan_ranges(capture)

    assert [span.file for pack in packs for span in pack] == [0, 1, 2, 3, 4, 5]
    assert max(map(len, packs)) == 2


def test_file_that_is_gone_fails_its_capture(tmp_path: Path) -> None:
    shutil.copy(PCAPS / "fq/session.pcap", tmp_path / "x.pcap")
    capture = only(tmp_path / "x.pcap")
    (tmp_path / "x.pcap").unlink()

    with pytest.raises(CaptureError, match="cannot be read"):
        ranges.plan_ranges(capture)


@pytest.mark.parametrize("share_count", [1, 3])
def test_export_by_spans_is_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_count: int) -> None:
    """Pcap and pcapng, fragments, rotated files, carried captures, one cut short: every table, row for row."""
    inputs = tmp_path / "in"
    (inputs / "rotated").mkdir(parents=True)
    fragmented(PCAPS / "fq/session.pcap", inputs / "fragments.pcap")
    fragmented(PCAPS / "blipmq/qos1.pcap", inputs / "blipmq.pcap")
    pcapng(PCAPS / "flymq/core.pcap", inputs / "flymq.pcapng", count=400)
    carrier(PCAPS / "flymq/fetch.pcap", inputs / "carrier.pcap")
    rotated(PCAPS / "msgq/split_session.pcap", inputs / "rotated", 5)
    (inputs / "short.pcap").write_bytes((PCAPS / "kokaq/go1_session.pcap").read_bytes()[:-7])
    found = captures([str(inputs)]).captures
    whole = of_dissections([dissect(capture) for capture in found])
    monkeypatch.setattr(ranges, "RANGE_BYTES", 3000)
    done: list[FileRange] = []
    read = RangeReader.packets
    monkeypatch.setattr(RangeReader, "packets", lambda reader: (done.append(reader.file_range), read(reader))[1])

    made = job.export(InProcessSpark(), found, str(tmp_path / "tables"), Options(), share_count=share_count)

    assert of_export(tmp_path / "tables") == whole
    assert len([note for note in made.notes if "short.pcap: at byte" in note]) == 1
    assert (len(done) > 2 * len(found)) == (share_count > 1)


@pytest.mark.parametrize("before_packet", [0, 60])
def test_secrets_in_a_capture_reach_every_share_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_packet: int
) -> None:
    """Of two connections one begins before packet 60. The secrets are at the end of a range, at its begin or inside."""
    path = capture_with_secrets("t13_aes256_gcm", tmp_path / "x.pcapng", before_packet, 125)
    found = captures([str(path)]).captures
    secrets_at = path.read_bytes().index(b"CLIENT_HANDSHAKE_TRAFFIC")
    monkeypatch.setattr(ranges, "WINDOW_PACKETS", 1)
    monkeypatch.setattr(ranges, "WINDOW_BYTES", 1)
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)
    (dissection,) = map(dissect, found)
    whole = of_dissections([dissection])
    opened_count = dissection.table("connections")["tls"].to_pylist().count("opened")

    assert opened_count == (2 if before_packet == 0 else 1)
    for border in (secrets_at - 200, secrets_at + 1, secrets_at + 3000):
        cut_at(monkeypatch, border)
        job.export(InProcessSpark(), found, str(tmp_path / f"tables{border}"), Options(), share_count=3)
        assert of_export(tmp_path / f"tables{border}") == whole, border


def test_range_whose_border_was_wrong_is_read_again_for_its_capture_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two captures, one carries records in a packet, and a border lies there."""
    path = carrier(PCAPS / "fq/session.pcap", tmp_path / "carrier.pcap")
    shutil.copy(PCAPS / "flymq/core.pcap", tmp_path / "core.pcap")
    found = captures([str(path), str(tmp_path / "core.pcap")]).captures
    whole = of_dissections([dissect(capture) for capture in found])
    for border in range(30, path.stat().st_size, 37):
        cut_at(monkeypatch, border)
        if shared(found[0], SharePlan(2))[1] == 2:
            break
    done: list[str] = []
    read = RangeReader.packets
    monkeypatch.setattr(
        RangeReader, "packets", lambda reader: (done.append(Path(reader.capture.files[0]).name), read(reader))[1]
    )

    job.export(InProcessSpark(), found, str(tmp_path / "tables"), Options(), share_count=2)

    assert of_export(tmp_path / "tables") == whole
    assert (done.count("core.pcap"), done.count("carrier.pcap")) == (2, 4)
