"""A file entered in the middle gives its packets all the same, and both its ends tell its times."""

import io
import random
import struct
from collections.abc import Sequence

import pytest
from capture_files import block, enhanced, interface, option, packets, pcap, section

from mqpcap.capture import ResumePoint, WindowReader, boundaries, records_index
from mqpcap.capture.inputs import span
from mqpcap.capture.sources import PeekableStream, plain_bytes

START_NS = 1_795_000_000 * 10**9


class Counted(io.BytesIO):
    """A file that counts the bytes read of it."""

    byte_count = 0

    def readinto(self, view) -> int:  # type: ignore[override]
        count = super().readinto(view)
        self.byte_count += count
        return count


def opened(content: bytes) -> PeekableStream:
    return plain_bytes(Counted(content), len(content))


def noise(count: int, longest: int = 400, seed: int = 1) -> list[tuple[int, bytes]]:
    """Packets of random bytes, a millisecond apart."""
    chance = random.Random(seed)
    return [(START_NS + i * 1_000_000, chance.randbytes(chance.randint(1, longest))) for i in range(count)]


def pcapng(sent: Sequence[tuple[int, bytes]], order: str = "<") -> bytes:
    return section(order) + interface(order=order) + b"".join(
        enhanced(0, ts_ns // 1000, data, order) for ts_ns, data in sent
    )  # fmt: skip


def borders(content: bytes) -> list[int]:
    """Where records or blocks begin, and the end, by a walk of our own."""
    found = []
    is_little = content[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") or content[8:12] == b"\x4d\x3c\x2b\x1a"
    order = "<" if is_little else ">"
    is_pcapng = content[:4] == b"\x0a\x0d\x0d\x0a"
    at = 0 if is_pcapng else 24
    while at < len(content):
        found.append(at)
        at += struct.unpack_from(order + "I", content, at + 4)[0] if is_pcapng else (
            16 + struct.unpack_from(order + "I", content, at + 8)[0]
        )  # fmt: skip
    return [*found, len(content)]


FILES = {
    "little": pcap(noise(24)),
    "big": pcap(noise(24), order=">"),
    "nanoseconds": pcap(noise(24), tick_ns=1),
    "pcapng": pcapng(noise(24)),
    "pcapng, big": pcapng(noise(24), ">"),
}


@pytest.mark.parametrize("name", FILES)
def test_entry_is_the_next_border(name: str) -> None:
    content = FILES[name]
    true = borders(content)

    for position in range(true[2], len(content), 3):
        found = boundaries.find_boundary(name, opened(content), position)

        assert found is not None
        assert found.position == next(border for border in true if border >= position), position


@pytest.mark.parametrize("name", FILES)
def test_parts_are_the_file(name: str) -> None:
    """Cut anywhere, in a header, in a body, at a border: the packets of all parts are those of the file."""
    content = FILES[name]
    whole = packets(list(WindowReader(name, 0, opened(content)).windows()))

    for cut in range(0, len(content), 3):
        first = WindowReader(name, 0, opened(content), until=cut)
        found = packets(list(first.windows()))
        rest = WindowReader(name, 0, opened(content), first.end_point)
        found += packets(list(rest.windows()))

        assert found == whole, cut
        assert first.number_count + rest.number_count == len(whole)
        assert first.end_point.position == next(b for b in borders(content) if b >= max(cut, borders(content)[0])), cut


def test_part_ends_after_a_record_larger_than_it() -> None:
    sent = [(START_NS, b"a"), (START_NS, bytes(300_000)), (START_NS, b"b")]
    content = pcap(sent)

    first = WindowReader("x", 0, opened(content), until=100)
    found = packets(list(first.windows()))

    assert [len(data) for _, data, _, _ in found] == [1, 300_000]
    assert first.end_point.position == 24 + 17 + 300_016


def test_note_of_a_part_says_where_it_is_in_the_file() -> None:
    content = pcap(noise(3))[:-5]
    whole = WindowReader("x", 0, opened(content))
    list(whole.windows())

    part = WindowReader("x", 0, opened(content), ResumePoint(borders(pcap(noise(3)))[1]))
    list(part.windows())

    assert [str(note) for note in part.notes] == [str(note) for note in whole.notes] != []


def test_capture_within_a_packet_is_no_border() -> None:
    """A chain must be longer than a packet: that of a pcap in a body breaks off where the body ends."""
    inner = pcap(noise(500, 100, seed=2))[:-50]
    content = pcap([*noise(40), (START_NS, inner), *noise(4000, seed=3)])
    border = next(b for b in borders(content) if content[b + 16 : b + 16 + len(inner)] == inner)

    found = boundaries.find_boundary("x", opened(content), border + 1000)

    assert found is not None and found.position == border + 16 + len(inner)


def test_search_ends_where_nothing_is_found() -> None:
    content = pcap(noise(1)) + random.Random(4).randbytes(3 << 20)
    file = Counted(content)

    assert boundaries.find_boundary("x", plain_bytes(file, len(content)), 1000) is None
    assert file.byte_count < records_index.SEARCH_BYTES + records_index.CHAIN_BYTES + 2 * boundaries.HEAD_BYTES


def test_search_is_bounded_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of one byte make each of their borders a chain of all that follow, up to the one that breaks it."""
    content = pcap([(START_NS, b"x")] * 2000) + struct.pack("<IIII", START_NS // 10**9, 0, 1 << 30, 1)
    content += bytes(3 << 20)
    monkeypatch.setattr(boundaries, "CHAIN_STEPS", 50_000)

    assert boundaries.find_boundary("x", opened(content), 100) is None


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_times_are_those_of_both_ends(make) -> None:
    sent = noise(9000)
    content = make(sent)
    file = Counted(content)

    found = boundaries.first_and_last_ns("x", plain_bytes(file, len(content)))

    assert found == (sent[0][0], sent[-1][0])
    assert file.byte_count < len(content) * 3 // 4
    assert span("x", lambda: opened(content)) == found


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_end_of_a_file_is_read_as_the_whole_would_be(make) -> None:
    """Cut off, or with a packet at its end that is the end of a capture itself."""
    sent = noise(9000)
    cut_off = make(sent)[:-3]
    inner = make([(ts_ns + 10**9, data) for ts_ns, data in noise(3)])
    carried = make([*sent, (sent[-1][0] + 1, inner + bytes(-len(inner) % 4))])

    for content, last_ns in ((cut_off, sent[-2][0]), (carried, (sent[-1][0] + 1) // 1000 * 1000)):
        assert boundaries.first_and_last_ns("x", opened(content)) == (sent[0][0], last_ns)
        assert span("x", lambda content=content: opened(content)) == (sent[0][0], last_ns)


def test_record_within_a_packet_that_reaches_to_the_end_is_not_the_last_one() -> None:
    sent, inner = noise(9000), pcap(noise(3, seed=9))[24:]
    room = records_index.LONGEST_BYTES // 2
    outer = pcap([*sent[:8000], (sent[8000][0], bytes(room) + inner)])
    rest = pcap(sent[8001:])[24:]
    reaching = struct.pack("<IIII", START_NS // 10**9, 0, len(inner) - 16 + len(rest), 1)
    content = outer[: -len(inner)] + reaching.ljust(len(inner), b"\0") + rest

    assert boundaries.first_and_last_ns("x", opened(content)) == (sent[0][0], sent[-1][0])
    assert span("x", lambda: opened(content)) == (sent[0][0], sent[-1][0])


def test_last_packet_without_a_time_or_after_an_interface() -> None:
    """A simple packet has the time of the one before. Interfaces are counted from the first, so the file is read."""
    sent = noise(9000)
    simple = pcapng(sent) + block(3, struct.pack("<I", 4) + b"abcd")
    late = pcapng(sent) + interface(options=option(9, b"\x09")) + enhanced(1, START_NS + 10**10, b"x")

    assert boundaries.first_and_last_ns("x", opened(simple)) == (sent[0][0], sent[-1][0])
    assert boundaries.first_and_last_ns("x", opened(late)) is None
    assert span("x", lambda: opened(late)) == (sent[0][0], START_NS + 10**10)


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_end_that_is_no_record_is_not_believed(make) -> None:
    sent = noise(9000)
    content = make(sent) + random.Random(5).randbytes(boundaries.TAIL_BYTES)

    assert boundaries.first_and_last_ns("x", opened(content)) is None


@pytest.mark.parametrize("size", [0, 10, 24, 100])
def test_tiny_and_compressed_files_are_read_whole(size: int) -> None:
    import gzip

    assert boundaries.first_and_last_ns("x", opened(pcap(noise(1))[:size].ljust(min(size, 24), b"\0"))) is None
    assert opened(gzip.compress(pcap(noise(2)))).size_bytes is None
