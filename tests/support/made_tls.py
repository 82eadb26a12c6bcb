"""TLS conversations made by Python's ssl in memory, as captures with their key logs."""

import datetime
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from torture import ACK, SYN, Segment, pcap

CLIENT_SEQ, SERVER_SEQ = 1000, 5000
NO_ENCRYPT_THEN_MAC = 1 << 19
"""OpenSSL's SSL_OP_NO_ENCRYPT_THEN_MAC."""


def certificate(folder: Path, is_rsa: bool) -> Path:
    """A self-signed certificate with its key, in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    key = rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker.example")])
    begin = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(begin).not_valid_after(begin + datetime.timedelta(3650))
    signed = builder.sign(key, hashes.SHA256())
    path = folder / "broker.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path


class End:
    """An end of a connection, whose bytes go through memory."""

    def __init__(self, context: ssl.SSLContext, **how: object) -> None:
        self.received, self.sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.received, self.sent, **how)  # type: ignore[arg-type]

    def try_to(self, action: Callable[[], object]) -> bool:
        """Whether an action is done, not waiting for the other end."""
        try:
            action()
        except ssl.SSLWantReadError:
            return False
        return True


def contexts(
    folder: Path, version: ssl.TLSVersion, ciphers: str | None = None, is_rsa: bool = False
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a client, which writes ``keys.log``, and of a server."""
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate(folder, is_rsa))
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.keylog_filename = str(folder / "keys.log")
    for context in (client, server):
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["mq"])
        if ciphers is not None:
            context.set_ciphers(ciphers)
    return client, server


def conversation(
    client_context: ssl.SSLContext,
    server_context: ssl.SSLContext,
    turns: Sequence[tuple[bytes, bytes]],
    before: Sequence[Segment] = (),
    session: ssl.SSLSession | None = None,
) -> tuple[list[Segment], ssl.SSLSession | None]:
    """The segments of a connection: what the client and the server send in each turn, after bytes in clear."""
    client = End(client_context, server_side=False, server_hostname="broker.example", session=session)
    server = End(server_context, server_side=True)
    segments = [
        Segment(seq=CLIENT_SEQ - 1, flags=SYN),
        Segment(b"", SERVER_SEQ - 1, CLIENT_SEQ, SYN | ACK, from_server=True),
    ]
    segments += before
    seqs = [CLIENT_SEQ, SERVER_SEQ]
    for segment in before:
        seqs[segment.from_server] += len(segment.body)

    def move() -> None:
        for is_server, (source, target) in enumerate(((client, server), (server, client))):
            data = source.sent.read()
            for start in range(0, len(data), 1400):
                part = data[start : start + 1400]
                segments.append(Segment(part, seqs[is_server], seqs[1 - is_server], from_server=bool(is_server)))
                seqs[is_server] += len(part)
            target.received.write(data)

    done = [False, False]
    while not all(done):
        for i, end in enumerate((client, server)):
            done[i] = done[i] or end.try_to(end.tls.do_handshake)
            move()
    for request, reply in turns:
        for source, target, data in ((client, server, request), (server, client, reply)):
            source.tls.write(data)
            move()
            read = b""
            while len(read) < len(data):
                read += target.tls.read(len(data) - len(read))
            assert read == data
    return segments, client.tls.session


def capture(segments: Sequence[Segment], port: int = 9092) -> bytes:
    """The capture of a connection."""
    return pcap([*segments], port)
