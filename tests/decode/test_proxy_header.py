"""The PROXY header in front of a client's stream: HAProxy's proxy-protocol.txt, 2.1 and 2.2, and what clouds add."""

import struct
from functools import cache
from ipaddress import ip_address
from itertools import product
from pathlib import Path

import pytest
from torture import ACK, MAKERS, SYN, Result, Segment, broken_laws, pcap, read, read_bytes, read_together

import mqpcap
from mqpcap.capture import windows
from mqpcap.decode.proxy_header import MAX_HEADERS, ProxyHeader, consent_length, may_begin_header, proxy_header

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
V1 = b"PROXY TCP4 203.0.113.9 198.51.100.20 51234 5555\r\n"
V1_SIX = b"PROXY TCP6 2001:DB8:0:0::9 2001:db8::1 51234 5555\r\n"
LONGEST = b"PROXY UNKNOWN " + b"f" * 91 + b"\r\n"
TCP4 = ip_address("203.0.113.9").packed + ip_address("198.51.100.20").packed + struct.pack(">HH", 51234, 5555)
TCP6 = ip_address("2001:db8::9").packed + ip_address("2001:db8::1").packed + struct.pack(">HH", 51234, 5555)
AWS = b"\xea\x00\x17\x01vpce-08d2bf15fac5001c9"  # PP2_TYPE_AWS, subtype 1, the endpoint's id
GOOGLE = b"\xe0\x00\x08" + bytes(7) + b"\x2a"  # PP2_TYPE_GCP, the connection's id


def v2(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(rest)) + rest


HEADERS = {
    "v1 TCP4": (V1, ("203.0.113.9", 51234)),
    "v1 TCP6": (V1_SIX, ("2001:db8::9", 51234)),
    "v1 UNKNOWN": (b"PROXY UNKNOWN\r\n", (None, None)),
    "v1 of 107 bytes": (LONGEST, (None, None)),
    "v2 TCP4": (v2(0x21, 0x11, TCP4), ("203.0.113.9", 51234)),
    "v2 TCP6": (v2(0x21, 0x21, TCP6), ("2001:db8::9", 51234)),
    "v2 AWS": (v2(0x21, 0x11, TCP4 + AWS), ("203.0.113.9", 51234)),
    "v2 GCP": (v2(0x21, 0x11, TCP4 + GOOGLE), ("203.0.113.9", 51234)),
    "v2 4 kB of TLVs": (v2(0x21, 0x11, TCP4 + b"\x20\x0f\xa0" + bytes(4000)), ("203.0.113.9", 51234)),
    "v2 LOCAL": (v2(0x20, 0x00, b""), (None, None)),
    "v2 LOCAL with addresses": (v2(0x20, 0x11, TCP4), (None, None)),
    "v2 UNSPEC": (v2(0x21, 0x00, GOOGLE), (None, None)),
    "v2 UNIX": (v2(0x21, 0x31, bytes(216)), (None, None)),
}
NO_HEADERS = [
    b"",
    b"PROXY TCP4 203.0.113.9 198.51.100.20 51234 5555\n",
    b"PROXY TCP4 203.0.113.256 198.51.100.20 51234 5555\r\n",
    b"PROXY TCP4 2001:db8::9 2001:db8::1 51234 5555\r\n",
    b"PROXY TCP4 203.0.113.9 198.51.100.20 65536 5555\r\n",
    b"PROXY UDP4 203.0.113.9 198.51.100.20 51234 5555\r\n",
    LONGEST[:-2] + b"f\r\n",
    v2(0x11, 0x11, TCP4),  # version 1 in the binary form
    v2(0x22, 0x11, TCP4),  # no such command
    v2(0x21, 0x11, TCP4[:11]),  # shorter than its addresses
    v2(0x21, 0x41, TCP4),  # no such family
]


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_says_how_long_it_is_and_names_the_client(name: str) -> None:
    header, client = HEADERS[name]

    assert proxy_header(header + b"data") == ProxyHeader(len(header), *client)
    assert not may_begin_header(header + b"data") or header.startswith(b"PROXY")
    for size in range(1, len(header)):
        assert proxy_header(header[:size]) is None and may_begin_header(header[:size])


@pytest.mark.parametrize("data", NO_HEADERS)
def test_what_is_no_header_has_none_and_is_waited_for_no_longer(data: bytes) -> None:
    assert proxy_header(data) is None
    assert not may_begin_header(data)


def connection(protocol: str, header: bytes, size: int, with_syn: bool = True, count: int = 4) -> list[Segment]:
    """Messages of a client after a header, in segments of so many bytes; the server says nothing."""
    stream = header + b"".join(MAKERS[protocol][1](i) for i in range(count))
    syn = [Segment(seq=1000, flags=SYN), Segment(seq=5000, ack=1001, flags=SYN | ACK, from_server=True)]
    return [
        *(syn if with_syn else []),
        *(Segment(stream[i : i + size], 1001 + i, 5001) for i in range(0, len(stream), size)),
    ]


def rows(result: Result, shift: int = 0) -> list[tuple[object, ...]]:
    return [(m["direction"], m["stream_offset"] - shift, m["frame_len"], m["op"], m["flaw"]) for m in result.messages]


SIZES = ((7, True), (1400, False))
EARLIER = b"PROXY TCP4 192.0.2.1 198.51.100.20 40000 5555\r\n"
TWO_HEADERS = (EARLIER + v2(0x21, 0x11, TCP4), v2(0x21, 0x11, TCP4) + V1)


@cache
def results(protocol: str) -> dict[tuple[object, ...], Result]:
    """Connections with a header, by (port, header or its name, size, with its SYN); and without, by port alone."""
    own, parts = MAKERS[protocol][0], {}
    for port in (own, 31337):
        parts[port,] = pcap(connection(protocol, b"", 1400), port)
        for (name, (header, _)), (size, with_syn) in product(HEADERS.items(), SIZES):
            segments = connection(protocol, header, max(size, len(header) // 100), with_syn)
            parts[port, name, size, with_syn] = pcap(segments, port)
    for headers, size in product(TWO_HEADERS, (1, 7, 1400)):
        parts[own, headers, size] = pcap(connection(protocol, headers, size), own)
    return read_together(parts)


PROTOCOLS = [name for name in MAKERS if name != "toy"]


@pytest.mark.parametrize(("size", "with_syn"), SIZES)
@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_messages_after_a_proxy_header_are_read_as_without_it(
    protocol: str, name: str, size: int, with_syn: bool
) -> None:
    """On the protocol's port, and on another one; a header is the first of its stream, with a SYN and without."""
    header, client = HEADERS[name]
    for port in (MAKERS[protocol][0], 31337):
        result = results(protocol)[port, name, size, with_syn]

        (row,) = result.connections
        assert broken_laws(result) == []
        assert (row["proxied_ip"], row["proxied_port"]) == client
        assert (row["protocol"], row["client_port"]) == (protocol, 40000)
        assert rows(result, len(header)) == rows(results(protocol)[port,])
        assert not any(m["resynced"] for m in result.messages)
        problems = [(p["kind"], p["reason"], p["direction"], p["stream_offset"], p["length"]) for p in result.problems]
        assert problems == [("undecoded", "proxy protocol", "c2s", 0, len(header))]


@pytest.mark.parametrize(
    "client", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01" + bytes(600), b""]
)
def test_a_proxy_header_before_a_foreign_protocol(client: bytes) -> None:
    segments = [Segment(seq=1000, flags=SYN), Segment(V1 + client, 1001, 1)]

    result = read_bytes(pcap(segments, 5555))

    (row,) = result.connections
    assert broken_laws(result) == []
    assert (row["protocol"], row["proxied_ip"], row["proxied_port"]) == (None, "203.0.113.9", 51234)
    assert row["tls"] == ("closed" if client[:1] == b"\x16" else None)
    assert [p["length"] for p in result.problems if p["reason"] == "proxy protocol"] == [len(V1)]


def test_a_header_that_a_server_sends_or_that_stands_later_is_none() -> None:
    hello = MAKERS["blipmq"][1](0)
    syn = [Segment(seq=1000, flags=SYN), Segment(seq=5000, ack=1001, flags=SYN | ACK, from_server=True)]
    answers = [*syn, Segment(hello, 1001, 5001), Segment(V1, 5001, 1001 + len(hello), from_server=True)]
    later = [*syn, Segment(hello + V1, 1001, 5001)]

    for segments in (answers, later):
        result = read_bytes(pcap(segments, 5555))
        assert broken_laws(result) == []
        assert [(c["proxied_ip"], c["proxied_port"]) for c in result.connections] == [(None, None)]
        assert "proxy protocol" not in {p["reason"] for p in result.problems}


@pytest.mark.parametrize("cut", [5, 30, len(V1) - 1])
def test_a_header_cut_by_the_end_of_the_capture_is_no_header(cut: int) -> None:
    result = read_bytes(pcap([Segment(seq=1000, flags=SYN), Segment(V1[:cut], 1001, 1)], 5555))

    assert broken_laws(result) == []
    assert [c["proxied_ip"] for c in result.connections] == [None]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_windows_of_one_packet_change_nothing(protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(connection(protocol, HEADERS["v2 AWS"][0], 11), 31337))
    whole = read(path)

    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)

    again = read(path)
    assert (again.messages, again.connections, again.problems) == (whole.messages, whole.connections, whole.problems)


@pytest.mark.parametrize("header", [b"", V1, v2(0x21, 0x11, TCP4)])
def test_requests_after_a_proxy_header_are_paired_by_order(tmp_path: Path, header: bytes) -> None:
    """Two FlyMQ requests, whose replies name no request: all open requests are known, as no message is missing."""
    request = bytes.fromhex("af0103010000000c0006") + b"orders" + bytes.fromhex("00000003")
    reply = bytes.fromhex("af0103010000000101")  # CREATE_TOPIC, and that it succeeded
    syn = [Segment(seq=1000, flags=SYN), Segment(seq=5000, ack=1001, flags=SYN | ACK, from_server=True)]
    end = 1001 + len(header) + 2 * len(request)
    path = tmp_path / "a.pcap"
    path.write_bytes(
        pcap([*syn, Segment(header + request * 2, 1001, 5001), Segment(reply * 2, 5001, end, from_server=True)], 9092)
    )

    exchanges = mqpcap.open(str(path)).exchanges.to_pylist()

    offsets = [len(header), len(header) + len(request)]
    assert [(x["request_offset"], x["state"], x["how"]) for x in exchanges] == [
        (n, "answered", "order") for n in offsets
    ]


@pytest.mark.parametrize("size", [1, 7, 1400])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_last_of_two_headers_names_the_original_client(protocol: str, size: int) -> None:
    """The second balancer did not read the first one's header: its own names the first balancer."""
    port = MAKERS[protocol][0]
    for header in TWO_HEADERS:
        result = results(protocol)[port, header, size]

        (row,) = result.connections
        assert broken_laws(result) == []
        assert (row["proxied_ip"], row["proxied_port"], row["protocol"]) == ("203.0.113.9", 51234, protocol)
        assert rows(result, len(header)) == rows(results(protocol)[port,])
        assert [p["length"] for p in result.problems] == [len(header)]


def test_headers_in_a_row_are_bounded() -> None:
    header = proxy_header(V1 * 100)

    assert header is not None and header.length == MAX_HEADERS * len(V1)


# -- requests to a proxy -------------------------------------------------------------------------------------

GREETING, CHOICE, LOGIN, LOGGED_IN = b"\5\2\0\2", b"\5\2", b"\1\5alice\6secret", b"\1\0"
ASKED = ip_address("198.51.100.20").packed + struct.pack(">H", 5555)
BOUND = b"\5\0\0\1" + ip_address("192.0.2.1").packed + b"\x9c\x40"
HTTP = b"CONNECT broker.example:5555 HTTP/1.1\r\nHost: broker.example:5555\r\nProxy-Authorization: Basic YTpi\r\n\r\n"
REQUESTS = {
    "SOCKS 4": ([b"\4\1\x15\xb3" + ASKED[:4] + b"alice\0"], [b"\0\x5a" + bytes(6)], "198.51.100.20"),
    "SOCKS 4a": ([b"\4\1\x15\xb3\0\0\0\1\0broker.example\0"], [b"\0\x5a" + bytes(6)], "broker.example"),
    "SOCKS 5": ([b"\5\1\0", b"\5\1\0\1" + ASKED], [b"\5\0", BOUND], "198.51.100.20"),
    "SOCKS 5 with a name": ([b"\5\1\0", b"\5\1\0\3\x0ebroker.example\x15\xb3"], [b"\5\0", BOUND], "broker.example"),
    "SOCKS 5 with a login": ([GREETING, LOGIN, b"\5\1\0\1" + ASKED], [CHOICE, LOGGED_IN, BOUND], "198.51.100.20"),
    "SOCKS 5 to IPv6": (
        [b"\5\1\0", b"\5\1\0\4" + ip_address("2001:db8::1").packed + b"\x15\xb3"], [b"\5\0", BOUND], "2001:db8::1",
    ),
    "HTTP CONNECT": ([HTTP], [b"HTTP/1.1 200 Connection established\r\nVia: squid\r\n\r\n"], "broker.example"),
}  # fmt: skip


def through_proxy(asked: list[bytes], answered: list[bytes], messages: bytes, replies: bytes) -> list[Segment]:
    """A connection with its SYNs: request and consent in turn, then messages and replies."""
    segments = [Segment(seq=1000, flags=SYN), Segment(seq=5000, ack=1001, flags=SYN | ACK, from_server=True)]
    seq, ack = 1001, 5001
    for ours, theirs in zip([*asked, messages], [*answered, replies], strict=True):
        segments.append(Segment(ours, seq, ack))
        seq += len(ours)
        segments.append(Segment(theirs, ack, seq, from_server=True))
        ack += len(theirs)
    return segments


@cache
def proxied(protocol: str) -> dict[tuple[object, ...], Result]:
    """Connections through a proxy by (port, name of the request); without one, by port alone."""
    messages, parts = b"".join(MAKERS[protocol][1](i) for i in range(4)), {}
    for port in (MAKERS[protocol][0], 1080):
        parts[port,] = pcap(through_proxy([], [], messages, b""), port)
        for name, (asked, answered, _) in REQUESTS.items():
            parts[port, name] = pcap(through_proxy(asked, answered, messages, b""), port)
    return read_together(parts)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_messages_after_a_request_to_a_proxy_are_read_as_without_it(protocol: str, name: str) -> None:
    asked, answered, server = REQUESTS[name]
    shift = sum(map(len, asked))
    for port in (MAKERS[protocol][0], 1080):
        plain, result = proxied(protocol)[port,], proxied(protocol)[port, name]

        (row,) = result.connections
        assert broken_laws(result) == []
        assert (row["protocol"], row["proxied_ip"], row["proxied_port"]) == (protocol, server, 5555)
        assert rows(result, shift) == rows(plain)
        problems = {(p["reason"], p["direction"], p["stream_offset"], p["length"]) for p in result.problems}
        assert problems == {
            ("proxy protocol", "c2s", 0, shift), ("proxy protocol", "s2c", 0, sum(map(len, answered))),
        }  # fmt: skip


def test_replies_through_a_proxy_are_paired(tmp_path: Path) -> None:
    request = bytes.fromhex("af0103010000000c0006") + b"orders" + bytes.fromhex("00000003")
    reply = bytes.fromhex("af0103010000000101")
    path = tmp_path / "a.pcap"
    for asked, answered, _ in REQUESTS.values():
        path.write_bytes(pcap(through_proxy(asked, answered, request * 2, reply * 2), 1080))

        assert mqpcap.read(path, "exchanges")["state"].to_pylist() == ["answered", "answered"]


@pytest.mark.parametrize("answer", [b"\5\0\5\5\0\1" + bytes(6), b"\5\xff", b"hello"])
def test_a_refused_request_names_no_server(answer: bytes) -> None:
    asked = b"\5\1\0\5\1\0\1" + ASKED

    result = read_bytes(pcap(through_proxy([asked], [answer], b"", b""), 1080))

    assert broken_laws(result) == []
    assert [(c["protocol"], c["proxied_ip"]) for c in result.connections] == [(None, None)]


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_cut_anywhere_is_waited_for(name: str) -> None:
    asked, answered, server = REQUESTS[name]
    data, consent = b"".join(asked), b"".join(answered)

    assert all(may_begin_header(data[:size]) and proxy_header(data[:size]) is None for size in range(1, len(data)))
    header = proxy_header(data + b"data")
    assert header is not None and header[:3] == (len(data), server, 5555)
    assert consent_length(header.request, consent + b"data") == len(consent)
    assert all(consent_length(header.request, consent[:size]) == -1 for size in range(len(consent)))
