"""Anonymised captures: the same messages without addresses, bodies, names and secrets."""

import ipaddress
import json
import re
import sys
import tempfile
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from scapy.layers.inet import IP, TCP
from scapy.utils import PcapNgReader
from torture import ACK, FIN, SYN, Segment, pcap

import mqpcap
from mqpcap.listing.anonymisation import AddressMap, Anonymisation, Masker
from mqpcap.protocols import protocols

ROOT = Path(__file__).resolve().parents[2]
KEY = bytes(range(32))
SAME = [
    "direction", "stream_offset", "frame_len", "ts_ns", "end_ts_ns", "src_port", "dst_port", "protocol", "dialect",
    "op_code", "op", "partition_id", "body_len", "status", "error_code", "flaw", "gap_before_bytes", "resynced",
]  # fmt: skip
"""Columns of ``messages`` with neither addresses nor text of users."""
CAPTURES = [
    "blipmq/qos1", "fq/session", "fq/peers", "flymq/groups", "flymq/login", "kokaq/doc_session", "msgq/flat_typed",
    "faults/fq_snapped", "faults/blipmq_lost",
]  # fmt: skip


def anonymised(capture: str, folder: Path, **how: object) -> str:
    out = folder / "out.pcapng"
    out.write_bytes(anonymised_bytes(capture, **how))
    return str(out)


@cache
def anonymised_bytes(capture: str, **how: object) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.pcapng"
        mqpcap.extract(ROOT / "pcaps" / f"{capture}.pcap", out, connections=True, anonymise=Anonymisation(KEY, **how))  # type: ignore[arg-type]  # of both
        return out.read_bytes()


def rows(path: str, table: str, columns: list[str]) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in mqpcap.read(path, table).select(columns).to_pylist()), key=str)


@pytest.mark.parametrize("capture", CAPTURES)
def test_rows_are_the_same_but_for_what_is_replaced(capture: str, tmp_path: Path) -> None:
    before, after = str(ROOT / "pcaps" / f"{capture}.pcap"), anonymised(capture, tmp_path)

    assert rows(after, "messages", SAME) == rows(before, "messages", SAME)
    for table, columns in (
        ("exchanges", ["op", "state", "how", "request_ts_ns", "reply_ts_ns"]),
        ("deliveries", ["how", "publish_ts_ns", "deliver_ts_ns"]),
    ):
        assert rows(after, table, columns) == rows(before, table, columns)


def texts(value: object) -> list[bytes]:
    """The texts of six bytes and more in a value of a row."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [text for item in inner for text in texts(item)]
    data = value.encode() if isinstance(value, str) else value
    return [data] if isinstance(data, bytes) and len(data) >= 6 else []


@pytest.mark.parametrize("capture", CAPTURES)
def test_no_text_of_a_user_and_no_address_is_in_the_file(capture: str, tmp_path: Path) -> None:
    before = ROOT / "pcaps" / f"{capture}.pcap"
    written = packets(Path(anonymised(capture, tmp_path)).read_bytes(), tmp_path)
    raw = b"\n".join(bytes(packet[TCP].payload) for packet in written)  # without the comment, which has words of ours
    own = set(mqpcap.read(str(before)).column_names) | {"op", "dialect", "document", "connection_kind", "status_values"}
    own.add("bind_flags_name")  # of ours, and a word of queue types
    connections = mqpcap.read(str(before), "connections").to_pylist()
    addresses = {row[f"{end}_ip"] for row in connections for end in ("client", "server")}

    for name in set(mqpcap.read(str(before))["protocol"].to_pylist()):
        words = protocols()[name].words
        for row in mqpcap.read(str(before), name, show_secrets=True).to_pylist():
            found = [(column, text) for column, value in row.items() if column not in own for text in texts(value)]
            own_words = {column: pattern.encode() for column, pattern in words.items()}
            users = [text for column, text in found if not re.fullmatch(own_words.get(column, b"(?!)"), text)]
            assert [text for text in users if text in raw] == []
    for address in addresses:
        assert address.encode() not in raw
        assert not any(ipaddress.ip_address(address) in ends(packet) for packet in written)


def packets(raw: bytes, folder: Path) -> list[IP]:
    (folder / "copy.pcapng").write_bytes(raw)
    with PcapNgReader(str(folder / "copy.pcapng")) as reader:
        return [IP(bytes(packet)) for packet in reader]


def ends(packet: IP) -> set[object]:
    return {ipaddress.ip_address(packet.src), ipaddress.ip_address(packet.dst)}


def test_checksums_are_right(tmp_path: Path) -> None:
    """Scapy computes them anew."""
    seen = packets(Path(anonymised("fq/session", tmp_path)).read_bytes(), tmp_path)

    for packet in seen:
        again = packet.copy()
        del again.chksum, again[TCP].chksum
        again = IP(bytes(again))
        assert (again.chksum, again[TCP].chksum) == (packet.chksum, packet[TCP].chksum)
    assert len(seen) > 100


def shared_bits(a: bytes, b: bytes) -> int:
    differing = int.from_bytes(a) ^ int.from_bytes(b)
    return 8 * len(a) - differing.bit_length()


def test_addresses_share_as_many_first_bits_as_before() -> None:
    mapped = AddressMap(KEY).mapped
    for names in (
        ["10.0.0.1", "10.0.0.2", "10.0.1.1", "10.9.0.1", "192.168.0.1", "127.0.0.1"],
        ["2001:db8::1", "2001:db8::2", "2001:db8:1::1", "fe80::1"],
    ):
        addresses = [ipaddress.ip_address(name).packed for name in names]
        for a, b in pairwise(addresses):
            assert shared_bits(mapped(a), mapped(b)) == shared_bits(a, b)
        assert len({mapped(a) for a in addresses}) == len(addresses)
    assert AddressMap(KEY).mapped(addresses[0]) == mapped(addresses[0]) != AddressMap(KEY[::-1]).mapped(addresses[0])


def test_values_keep_their_length_and_form() -> None:
    masker = Masker(Anonymisation(KEY))
    body = b'{"user": "anna", "n": [10, -2.5e3, true, null], "t": "a\\u00e9\\n"}'
    masked = masker.body(body)

    assert len(masked) == len(body)
    assert [type(x) for x in json.loads(masked).values()] == [str, list, str]
    assert b"anna" not in masked
    assert masker.body(b"hello fq") == masker.body(b"hello fq") != masker.body(b"hello fr")
    assert masker.body(b"hello fq").isalnum()
    assert masker.name(b"orders.eu-1") == masker.name(b"orders") + b"." + masker.name(b"eu") + b"-" + masker.name(b"1")
    assert masker.name(b"no topic orders.eu-1")[-11:] == masker.name(b"orders.eu-1")
    assert masker.opaque(b"\1\2\0\3\0\0")[-2:] == bytes(2)
    assert min(masker.opaque(bytes(range(1, 256)))) >= 0x80
    assert Masker(Anonymisation(KEY, "mask")).body(b"hello") == b"xxxxx"
    assert Masker(Anonymisation(KEY, "mask")).body(b'["\\u0041", 1]') == b'["xxxxxx", ' + masker.number(b"1") + b"]"


@pytest.mark.parametrize("text", ["-0.125", "1000", "1e308", "-4.5E-300", "0", "0.5e1234567", "-0"])
def test_a_number_becomes_another_of_its_size(text: str) -> None:
    masked = Masker(Anonymisation(KEY)).number(text.encode()).decode()

    assert len(masked) == len(text)
    assert re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", masked)


def test_kept_names_have_no_address() -> None:
    """A time of day and a list of words with colons are none."""
    name = Masker(Anonymisation(KEY, names="keep")).name

    assert name(b"orders at 10.0.0.7:9092") == b"orders at xx.x.x.x:9092"
    assert (
        name(b"from [2001:db8::7]:9092, ::1, ::2: at 10.0.0.7.") == b"from [xxxx:xxx::x]:9092, ::x, ::x: at xx.x.x.x."
    )
    assert name(b"12:30:45 dead:beef:cafe a.b 1.2.3 1.2.3.4.5 300.1.1.1") == (
        b"12:30:45 dead:beef:cafe a.b 1.2.3 1.2.3.4.5 300.1.1.1"
    )


def test_bodies_and_names_are_kept_on_request_but_no_secret(tmp_path: Path) -> None:
    raw = Path(anonymised("fq/session", tmp_path, bodies="keep", names="keep")).read_bytes()

    assert b"hello fq" in raw
    assert b"events" in raw
    assert b"watchpw" not in raw


def test_compressed_bodies_are_compressed_again(tmp_path: Path) -> None:
    """Replaced, in gzip streams of the same length; one body of 100 equal letters does not get as short."""
    before, after = "pcaps/flymq/gzip.pcap", anonymised("flymq/gzip", tmp_path)
    flaws = [Counter(mqpcap.read(path)["flaw"].to_pylist()) for path in (str(ROOT / before), after)]

    lengths = [mqpcap.read(path)["frame_len"].to_pylist() for path in (str(ROOT / before), after)]
    assert lengths[0] == lengths[1]
    assert flaws[1].total() == flaws[0].total()
    assert (flaws[1] - flaws[0]).total() <= 1
    values = mqpcap.read(after, "flymq")["value"].to_pylist()
    assert b"small" not in values
    assert pa.array(values).null_count < len(values)


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 203.0.113.9 198.51.100.20 51234 5555\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x09\xc6\x33\x64\x14\xc8\x22\x15\xb3",
    ],
)
def test_a_proxy_header_names_no_client_any_more(header: bytes, tmp_path: Path) -> None:
    """HELLO and its ACK after a header of version 1 or 2: 203.0.113.9 is cb 00 71 09."""
    hello, ack = bytes.fromhex("0000000b0100000000000000010001"), bytes.fromhex("00000011050000000000000001" + 16 * "0")
    segments = [Segment(b"", 99, 0, SYN), Segment(b"", 499, 100, SYN | ACK, True), Segment(header + hello, 100, 500)]
    segments += [Segment(ack, 500, 100 + len(header + hello), from_server=True)]
    before, after = tmp_path / "before.pcap", tmp_path / "after.pcapng"
    before.write_bytes(pcap(segments, 5555))
    mqpcap.extract(before, after, connections=True, anonymise=KEY)

    assert rows(str(after), "messages", SAME) == rows(str(before), "messages", SAME) != []
    assert mqpcap.read(str(before), "connections")["proxied_ip"].to_pylist() == ["203.0.113.9"]
    assert mqpcap.read(str(after), "connections")["proxied_ip"].to_pylist() == [None]
    assert b"203.0.113.9" not in after.read_bytes()
    assert b"\xcb\0\x71\x09" not in after.read_bytes()


def test_a_retransmission_with_other_bytes_stays_one(tmp_path: Path) -> None:
    """The row of the conflict has the same place; neither copy is in the output."""
    hello = bytes.fromhex("0000000b0100000000000000010001")
    topic, other = b"secretly", b"sECRETlY"
    publish = bytes.fromhex("00000018 03 0000000000000002 00 0008") + topic + b"body"
    segments = [Segment(b"", 99, 0, SYN), Segment(b"", 499, 100, SYN | ACK, True), Segment(hello + publish, 100, 500)]
    ack = bytes.fromhex("00000011050000000000000001" + 16 * "0")
    segments += [Segment(ack, 500, 100 + len(hello + publish), from_server=True)]
    segments += [Segment(hello + publish.replace(topic, other), 100, 500 + len(ack))]
    before, after = tmp_path / "before.pcap", tmp_path / "after.pcapng"
    before.write_bytes(pcap(segments, 5555))
    mqpcap.extract(before, after, connections=True, anonymise=KEY)
    columns = ["direction", "stream_offset", "length", "kind", "reason", "first_packet"]

    offset = len(hello) + 16
    reason = "retransmitted with other bytes"
    conflicts = [("c2s", offset + start, length, "conflict", reason, 5) for start, length in ((1, 5), (7, 1))]
    assert rows(str(before), "problems", columns) == rows(str(after), "problems", columns) == conflicts
    assert not any(x in after.read_bytes() for x in (topic, other, b"ECRET"))


def test_the_connection_of_a_packet_is_found_without_a_walk_over_all_of_its_ports(tmp_path: Path) -> None:
    """Twice the connections take twice as long, not four times: lines are counted that look for one."""
    hello, ack = bytes.fromhex("0000000b0100000000000000010001"), bytes.fromhex("00000011050000000000000001" + 16 * "0")
    segments = []
    for start in range(0, 60_000, 1000):
        client, server = start + 1, start + 501
        segments += [Segment(b"", client - 1, 0, SYN), Segment(b"", server - 1, client, SYN | ACK, True)]
        segments += [Segment(hello, client, server), Segment(ack, server, client + len(hello), from_server=True)]
        segments += [Segment(b"", client + len(hello), server + len(ack), FIN | ACK)]
        segments += [Segment(b"", server + len(ack), client + len(hello) + 1, FIN | ACK, True)]
    (tmp_path / "before.pcap").write_bytes(pcap(segments, 5555))
    lines = Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if not code.co_filename.endswith("anonymisation.py") or code.co_qualname.split(".")[1:2] != ["_side"]:
            return None
        lines[event] += 1
        return count

    sys.settrace(count)
    try:
        mqpcap.extract(tmp_path / "before.pcap", tmp_path / "after.pcapng", connections=True, anonymise=KEY)
    finally:
        sys.settrace(None)

    assert len(mqpcap.read(str(tmp_path / "after.pcapng"), "connections")) == 60
    assert lines["call"] >= 120
    assert lines["line"] <= 12 * lines["call"]
