"""Conversations of protocols that are not ours, from their documents: length prefixes, type bytes, ids, small numbers.

A conversation is a list of (from the client, bytes), one entry a segment. Everything random comes from the dice, so a
seed names a conversation.
"""

import struct
from collections.abc import Callable, Iterator
from random import Random

from torture import ACK, SYN, Segment

Said = list[tuple[bool, bytes]]
EXCHANGES = 24
"""Requests of a conversation."""


def _word(dice: Random, least: int = 3, most: int = 24) -> bytes:
    return bytes(dice.choices(b"abcdefghijklmnopqrstuvwxyz0123456789-_./", k=dice.randint(least, most)))


def _asked(dice: Random, ask: Callable[[int], bytes], answer: Callable[[int], bytes]) -> Said:
    """One answer a request, sometimes several requests at once."""
    said: Said = []
    number = 0
    while number < EXCHANGES:
        batch = dice.choice((1, 1, 1, 2, 4))
        said += [(True, ask(number + k)) for k in range(batch)] + [(False, answer(number + k)) for k in range(batch)]
        number += batch
    return said


def modbus(dice: Random) -> Said:
    """Modbus/TCP: transaction, protocol 0, length, unit, function; a poller with few functions."""
    first, unit, function = (
        dice.randrange(1 << 16),
        dice.choice((0, 1, 1, 2, 5, 255)),
        dice.choice((1, 2, 3, 3, 4, 4, 6)),
    )
    count = dice.choice((1, 2, 4, 10, 60))
    size = (count + 7) // 8 if function < 3 else 2 * count

    def frame(number: int, pdu: bytes) -> bytes:
        return struct.pack(">HHHB", (first + number) & 0xFFFF, 0, len(pdu) + 1, unit) + pdu

    def answer(number: int) -> bytes:
        if function == 6:
            return frame(number, struct.pack(">BHH", 6, number, number))
        return frame(
            number, bytes([function, size]) + bytes(dice.choice((0, 0, 1, dice.randrange(256))) for _ in range(size))
        )

    last = count if function != 6 else 0
    return _asked(dice, lambda n: frame(n, struct.pack(">BHH", function, 100 if last else n, last or n)), answer)


def bittorrent(dice: Random) -> Said:
    """BEP 3: a handshake, then length, type: bitfield, have, request, piece."""
    hello = b"\x13BitTorrent protocol" + bytes(8) + dice.randbytes(40)
    size = dice.choice((256, 1024, 16384))
    said: Said = [(True, hello), (False, hello), (False, b"\0\0\0\x0b\5" + dice.randbytes(10))]
    said += [(True, b"\0\0\0\1\2"), (False, b"\0\0\0\1\1"), (True, b"\0\0\0\0")]
    for number in range(EXCHANGES):
        said.append((True, struct.pack(">IBIII", 13, 6, number // 4, number % 4 * size, size)))
        if dice.random() < 0.7:
            piece = struct.pack(">IBII", 9 + size, 7, number // 4, number % 4 * size) + dice.randbytes(size)
            said += [(False, piece[i : i + 1400]) for i in range(0, len(piece), 1400)]
        if dice.random() < 0.5:
            said.append(
                (dice.random() < 0.5, b"".join(struct.pack(">IBI", 5, 4, k) for k in range(dice.randint(1, 5))))
            )
    return said


def thrift(dice: Random) -> Said:
    """Framed Thrift, binary protocol: length, 80 01 00 type, name, sequence; or the old header without a version."""
    is_strict, name = dice.random() < 0.6, _word(dice, 3, 14)

    def frame(kind: int, number: int, body: bytes) -> bytes:
        if is_strict:
            data = struct.pack(">HBBI", 0x8001, 0, kind, len(name)) + name + struct.pack(">I", number) + body
        else:
            data = struct.pack(">I", len(name)) + name + bytes([kind]) + struct.pack(">I", number) + body
        return struct.pack(">I", len(data)) + data

    def struct_of(field: int) -> bytes:
        text = _word(dice)
        return (
            struct.pack(">BHI", 11, field, len(text))
            + text
            + struct.pack(">BHIBHQ", 8, 2, dice.randrange(99), 10, 3, 7)
            + b"\0"
        )

    return _asked(dice, lambda n: frame(1, n, struct_of(1)), lambda n: frame(2, n, b"\x0c\0\0" + struct_of(1) + b"\0"))


def mongodb(dice: Random) -> Said:
    """The wire protocol: length, request, response to, opcode 2013, all little-endian, and BSON."""

    def bson() -> bytes:
        key, value = _word(dice), _word(dice)
        body = b"\2" + key + b"\0" + struct.pack("<i", len(value) + 1) + value + b"\0\x10n\0" + struct.pack("<i", 1)
        return struct.pack("<i", len(body) + 5) + body + b"\0"

    def frame(number: int, answers: int) -> bytes:
        body = struct.pack("<I", 0) + b"\0" + bson()
        return struct.pack("<iiii", 16 + len(body), number, answers, 2013) + body

    first = dice.randrange(1, 1 << dice.choice((4, 8, 16, 30)))
    return _asked(dice, lambda n: frame(first + n, 0), lambda n: frame(5000 + n, first + n))


def zookeeper(dice: Random) -> Said:
    """Length, xid, type, path; answers: length, xid, zxid, error."""
    said: Said = [
        (True, struct.pack(">IIQIQI", 45, 0, 0, 30000, 0, 16) + bytes(16) + b"\0"),
        (False, struct.pack(">IIIQI", 37, 0, 30000, dice.getrandbits(60), 16) + bytes(16) + b"\0"),
    ]
    path = b"/" + _word(dice)

    def ask(number: int) -> bytes:
        if number % 4 == 3:
            return struct.pack(">IiI", 8, -2, 11)  # ping
        body = struct.pack(">iiI", number + 1, dice.choice((3, 4, 8, 12)), len(path)) + path + b"\0"
        return struct.pack(">I", len(body)) + body

    def answer(number: int) -> bytes:
        xid, data = (-2, b"") if number % 4 == 3 else (number + 1, struct.pack(">I", 40) + bytes(40))
        body = struct.pack(">iqi", xid, 0x100000000 + number, 0) + data
        return struct.pack(">I", len(body)) + body

    return said + _asked(dice, ask, answer)


def dns(dice: Random) -> Said:
    """DNS over TCP: 16 bits of length, id, flags, counts."""
    name = b"".join(bytes([len(x)]) + x for x in (_word(dice, 3, 9), b"example", b"org")) + b"\0"

    def frame(number: int, flags: int, answers: bytes) -> bytes:
        body = (
            struct.pack(">HHHHHH", (number * 7919) & 0xFFFF, flags, 1, int(bool(answers)), 0, 0)
            + name
            + b"\0\1\0\1"
            + answers
        )
        return struct.pack(">H", len(body)) + body

    record = b"\xc0\x0c\0\1\0\1\0\0\x0e\x10\0\4\xc0\0\2\x01"
    return _asked(dice, lambda n: frame(n, 0x0100, b""), lambda n: frame(n, 0x8180, record))


def numbers(dice: Random) -> Said:
    """Frames of small big-endian numbers: length, kind, id, values; the length counts itself or does not."""
    width, extra, kinds = dice.choice((2, 4, 4, 8)), dice.choice((0, 0, 4)), dice.randint(1, 12)

    def frame(number: int) -> bytes:
        count = dice.randint(1, 6)
        values = b"".join(
            struct.pack(">Q", dice.choice((0, 1, number, dice.randrange(300))))[-width:] for _ in range(count)
        )
        body = bytes([number % kinds]) + struct.pack(">Q", number)[-width:] + values
        return struct.pack(">I", len(body) + extra) + body

    return _asked(dice, frame, frame)


def kafka(dice: Random) -> Said:
    """Length, key, version, correlation id, client id."""
    client, topic = _word(dice), _word(dice)

    def ask(number: int) -> bytes:
        key, version = dice.choice(((0, 7), (1, 11), (3, 8), (9, 5), (12, 3), (18, 3)))
        body = struct.pack(">hhih", key, version, number, len(client)) + client
        body += struct.pack(">iiih", -1, 500, 1, len(topic)) + topic + dice.randbytes(dice.randint(0, 200))
        return struct.pack(">i", len(body)) + body

    def answer(number: int) -> bytes:
        body = (
            struct.pack(">iii", number, 0, 1)
            + struct.pack(">h", len(topic))
            + topic
            + struct.pack(">iihq", 1, 0, 0, number)
        )
        return struct.pack(">i", len(body)) + body

    return _asked(dice, ask, answer)


def redis(dice: Random) -> Said:
    def ask(_: int) -> bytes:
        words = [dice.choice((b"GET", b"INCR", b"LPUSH")), _word(dice), _word(dice)]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(x), x) for x in words)

    return _asked(dice, ask, lambda n: dice.choice((b"+OK\r\n", b":%d\r\n" % n, b"$5\r\nhello\r\n", b"$-1\r\n")))


def postgresql(dice: Random) -> Said:
    """Startup without a type; then type, length that counts itself."""
    start = b"\0\3\0\0user\0" + _word(dice) + b"\0database\0" + _word(dice) + b"\0\0"
    said: Said = [(True, struct.pack(">I", len(start) + 4) + start), (False, b"R\0\0\0\x08\0\0\0\0Z\0\0\0\5I")]

    def ask(_: int) -> bytes:
        text = b"SELECT " + _word(dice) + b"\0"
        return b"Q" + struct.pack(">I", len(text) + 4) + text

    def answer(number: int) -> bytes:
        row = struct.pack(">HI", 1, 4) + b"%04d" % number
        return b"D" + struct.pack(">I", len(row) + 4) + row + b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\5I"

    return said + _asked(dice, ask, answer)


def mysql(dice: Random) -> Said:
    """Three little-endian bytes of length, a sequence."""

    def frame(number: int, body: bytes) -> bytes:
        return len(body).to_bytes(3, "little") + bytes([number]) + body

    said: Said = [
        (False, frame(0, b"\x0a8.0.36\0" + dice.randbytes(60))),
        (True, frame(1, dice.randbytes(80))),
        (False, frame(2, bytes(7))),
    ]
    answer = frame(1, b"\1") + frame(2, b"\3def" + bytes(30)) + frame(3, b"\4" + b"data") + frame(4, b"\xfe\0\0\2\0")
    return said + _asked(dice, lambda _: frame(0, b"\3SELECT " + _word(dice)), lambda _: answer)


def amqp(dice: Random) -> Said:
    """AMQP 0-9-1: type, channel, size, payload, CE."""

    def frame(kind: int, body: bytes) -> bytes:
        return struct.pack(">BHI", kind, 1, len(body)) + body + b"\xce"

    said: Said = [(True, b"AMQP\0\0\x09\1"), (False, frame(1, struct.pack(">HHBB", 10, 10, 0, 9) + bytes(60)))]
    key = _word(dice)

    def ask(_: int) -> bytes:
        method = struct.pack(">HHHB", 60, 40, 0, 0) + bytes([len(key)]) + key + b"\0"
        body = _word(dice)
        return frame(1, method) + frame(2, struct.pack(">HHQH", 60, 0, len(body), 0)) + frame(3, body)

    return said + _asked(dice, ask, lambda n: frame(1, struct.pack(">HHQB", 60, 80, n + 1, 0)))


def stomp(dice: Random) -> Said:
    said: Said = [(True, b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"), (False, b"CONNECTED\nversion:1.2\n\n\0")]
    return said + _asked(
        dice,
        lambda n: b"SEND\ndestination:/q/%s\nreceipt:%d\n\n%s\0" % (_word(dice), n, _word(dice)),
        lambda n: b"RECEIPT\nreceipt-id:%d\n\n\0" % n,
    )


def ldap(dice: Random) -> Said:
    """BER: 30, length, message id, operation."""

    def frame(number: int, kind: int, body: bytes) -> bytes:
        inner = b"\2\1" + bytes([number % 100 + 1, kind, len(body)]) + body
        return b"\x30" + bytes([len(inner)]) + inner

    return _asked(
        dice,
        lambda n: frame(n, 0x63, b"\4" + bytes([3]) + b"o=x" + b"\x0a\1\2\x0a\1\0\2\1\0\2\1\0\1\1\0"),
        lambda n: frame(n, 0x64, b"\4\3o=x\x30\0") + frame(n, 0x65, b"\x0a\1\0\4\0\4\0"),
    )


def smb(dice: Random) -> Said:
    """NetBIOS session service: 0, three bytes of length; SMB2 header of 64 bytes, little-endian."""

    def frame(number: int, flags: int) -> bytes:
        head = b"\xfeSMB" + struct.pack("<HHIHHIIQ", 64, 0, 0, dice.choice((5, 8, 9, 16)), 1, flags, 0, number)
        body = head.ljust(64, b"\0") + bytes(dice.randint(8, 60)) + dice.randbytes(dice.randint(0, 80))
        return struct.pack(">I", len(body)) + body

    return _asked(dice, lambda n: frame(n, 0), lambda n: frame(n, 1))


def tpkt(dice: Random) -> Said:
    """TPKT (3, 0, length) with X.224 data, as in RDP."""

    def frame(_: int) -> bytes:
        body = b"\2\xf0\x80" + dice.randbytes(dice.randint(4, 90))
        return struct.pack(">BBH", 3, 0, len(body) + 4) + body

    return _asked(dice, frame, frame)


def cassandra(dice: Random) -> Said:
    """CQL: version, flags, stream, opcode, length."""

    def frame(version: int, number: int, opcode: int, body: bytes) -> bytes:
        return struct.pack(">BBHBI", version, 0, number, opcode, len(body)) + body

    def ask(number: int) -> bytes:
        text = b"SELECT " + _word(dice)
        return frame(4, number, 7, struct.pack(">I", len(text)) + text + b"\0\1\0")

    return _asked(dice, ask, lambda n: frame(0x84, n, 8, struct.pack(">II", 2, 4) + bytes(dice.randint(0, 60))))


def memcached(dice: Random) -> Said:
    """The binary protocol: 80 or 81, opcode, key length, extras, status, body length, opaque, CAS."""

    def frame(magic: int, number: int, key: bytes, value: bytes) -> bytes:
        size = len(key) + len(value)
        return struct.pack(">BBHBBHIIQ", magic, 0, len(key), 0, 0, 0, size, number, 0) + key + value

    return _asked(
        dice, lambda n: frame(0x80, n, _word(dice), b""), lambda n: frame(0x81, n, b"", bytes(4) + _word(dice))
    )


def http2(dice: Random) -> Said:
    """Three bytes of length, type, flags, stream; gRPC messages: a zero byte, four of length."""

    def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
        return len(body).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + body

    def data(number: int) -> bytes:
        text = _word(dice)
        body = b"\0" + struct.pack(">I", len(text) + 2) + b"\x0a" + bytes([len(text)]) + text
        return frame(1, 4, 2 * number + 1, dice.randbytes(dice.randint(6, 30))) + frame(0, 1, 2 * number + 1, body)

    opening = frame(4, 0, 0, bytes(6)) + frame(8, 0, 0, b"\0\x0f\0\1")
    said: Said = [(True, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + opening), (False, opening)]
    return said + _asked(dice, data, lambda n: data(n) + frame(6, 0, 0, bytes(8)))


def ssh(dice: Random) -> Said:
    """Two lines, then a length in front of the key exchange, then nothing but random bytes."""
    kex = b"\x14" + dice.randbytes(16) + bytes(200)
    opening = struct.pack(">IB", len(kex) + 7, 6) + kex + bytes(6)
    said: Said = [(True, b"SSH-2.0-x\r\n"), (False, b"SSH-2.0-y\r\n"), (True, opening), (False, opening)]
    return said + _asked(
        dice, lambda _: dice.randbytes(dice.randint(36, 100)), lambda _: dice.randbytes(dice.randint(36, 400))
    )


def tls(dice: Random) -> Said:
    def record(kind: int, size: int) -> bytes:
        return struct.pack(">BHH", kind, 0x0303, size) + dice.randbytes(size)

    hello = b"\x16\x03\x01\0\xc8\1\0\0\xc4\3\3" + dice.randbytes(194)
    said: Said = [(True, hello), (False, record(22, 122) + record(23, 800))]
    return said + _asked(dice, lambda _: record(23, dice.randint(20, 90)), lambda _: record(23, dice.randint(20, 900)))


def syslog(dice: Random) -> Said:
    """Octet counting, RFC 6587; the server says nothing."""

    def line() -> bytes:
        text = b"<34>1 2026-01-01T00:00:00Z host " + _word(dice) + b" - - " + _word(dice)
        return b"%d %s" % (len(text), text)

    return [(True, b"".join(line() for _ in range(dice.randint(1, 4)))) for _ in range(EXCHANGES)]


def fix(dice: Random) -> Said:
    def line(number: int) -> bytes:
        body = b"35=0\x0149=%s\x0156=%s\x0134=%d\x01" % (_word(dice), _word(dice), number)
        return b"8=FIX.4.4\x019=%d\x01%s10=%03d\x01" % (len(body), body, number % 256)

    return _asked(dice, line, line)


def nats(dice: Random) -> Said:
    said: Said = [(False, b'INFO {"server_id":"x"}\r\n'), (True, b"CONNECT {}\r\nPING\r\n"), (False, b"PONG\r\n")]
    return said + _asked(dice, lambda _: b"PUB %s 5\r\nhello\r\n" % _word(dice), lambda _: b"+OK\r\n")


def rtmp_like(dice: Random) -> Said:
    """Chunks: a byte of format and id, three of time, three of length, a type, an id."""

    def chunk(number: int) -> bytes:
        body = (
            b"\2" + struct.pack(">H", 4) + b"name\0" + struct.pack(">d", number) + dice.randbytes(dice.randint(0, 60))
        )
        return bytes([3]) + number.to_bytes(3, "big") + len(body).to_bytes(3, "big") + b"\x14" + bytes(4) + body

    return _asked(dice, chunk, chunk)


def telemetry(dice: Random) -> Said:
    """Only a client that speaks: length, type, a counter of eight bytes, zeros; nothing ever answers."""
    kind, size = dice.randint(0, 12), dice.choice((8, 9, 13, 17, 21, 64))
    counters = (struct.pack(">Q", number)[:size].ljust(size, b"\0") for number in range(EXCHANGES))
    return [(True, struct.pack(">IB", size + 1, kind) + counter) for counter in counters]


def counted_rpc(seed: int) -> Said:
    """An RPC with the header of BlipMQ: length, a kind of 1 to 5, an id that replies repeat; then any bytes."""
    dice = Random(seed)

    def frame(kind: int, number: int) -> bytes:
        body = dice.randbytes(dice.choice((0, 2, 4, 8, 12, 40)))
        return struct.pack(">IBQ", 9 + len(body), kind, number) + body

    first, said = dice.choice((1, dice.randrange(1 << 40))), []
    for number in range(first, first + dice.choice((1, 2, 8, 20))):
        kind = dice.randint(1, 5)
        said += [(True, frame(kind, number)), (False, frame(dice.choice((kind, 5)), number))]
    return said


PROTOCOLS: dict[str, Callable[[Random], Said]] = {
    maker.__name__: maker
    for maker in (
        modbus, bittorrent, thrift, mongodb, zookeeper, dns, numbers, kafka, redis, postgresql, mysql, amqp,
        stomp, ldap, smb, tpkt, cassandra, memcached, http2, ssh, tls, syslog, fix, nats, rtmp_like, telemetry,
    )
}  # fmt: skip


def segments(said: Said, client_port: int, late: bool) -> Iterator[Segment]:
    """A connection with its SYNs, or one without."""
    seq, ack = 1001, 5001
    if not late:
        yield Segment(seq=1000, flags=SYN, client_port=client_port)
        yield Segment(seq=5000, ack=1001, flags=SYN | ACK, from_server=True, client_port=client_port)
    for from_client, data in said:
        for start in range(0, len(data), 1400):
            piece = data[start : start + 1400]
            if from_client:
                yield Segment(piece, seq, ack, client_port=client_port)
                seq += len(piece)
            else:
                yield Segment(piece, ack, seq, from_server=True, client_port=client_port)
                ack += len(piece)


def conversations(name: str, seed: int, late: bool) -> Said:
    """A conversation; ``late``: what was captured of one from a random segment on."""
    dice = Random(f"{name} {seed}")
    said = PROTOCOLS[name](dice)
    return said[dice.randrange(1, len(said) - 2) :] if late else said
