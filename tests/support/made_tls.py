"""TLS conversations made by Python's ssl in memory, as captures with their key logs."""

import datetime
import select
import socket
import ssl
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
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
    ends: bool = False,
) -> tuple[list[Segment], ssl.SSLSession | None]:
    """The segments of a connection: what the client and the server send in each turn, after bytes in clear.

    ``ends``: both sides close it; a server forgets the session of a connection that is not closed.
    """
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
    done = [not ends, not ends]
    while not all(done):
        for i, end in enumerate((client, server)):
            done[i] = done[i] or end.try_to(end.tls.unwrap)
            move()
    assert session is None or client.tls.session_reused
    return segments, client.tls.session


def capture(segments: Sequence[Segment], port: int = 9092) -> bytes:
    """The capture of a connection."""
    return pcap([*segments], port)


class Recorder:
    """A relay on the loopback between ``openssl s_client`` and ``openssl s_server``."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self._listener = socket.create_server(("127.0.0.1", 0))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._server_port = free.getsockname()[1]
        self._server = subprocess.Popen(
            ["openssl", "s_server", "-accept", str(self._server_port), "-cert", certificate(folder, True), *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert self._server.stdout is not None
        while b"ACCEPT" not in (line := self._server.stdout.readline()):
            assert line, "openssl s_server did not start"

    def close(self) -> None:
        """End the server."""
        self._server.kill()
        self._server.communicate()
        self._listener.close()

    def connect(self, typed: Sequence[bytes], *options: str) -> list[Segment]:
        """The segments of a connection whose client types lines, each when the one before was answered."""
        port = str(self._listener.getsockname()[1])
        client = subprocess.Popen(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-keylogfile", self.folder / "keys.log", *options],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert client.stdin is not None
        ours, _ = self._listener.accept()
        theirs = socket.create_connection(("127.0.0.1", self._server_port))
        passed, lines, ends = list[tuple[bool, bytes]](), [*typed], {ours: theirs, theirs: ours}
        while ends:
            ready, _, _ = select.select([*ends], [], [], 0.3)
            if not ready and lines:
                client.stdin.write(lines.pop(0))
                client.stdin.flush()
            elif not ready:
                ends = ends if client.poll() is None else {}
                client.stdin.close()
            for end in (end for end in ready if end in ends):
                data = end.recv(65536)
                if data:
                    passed.append((end is theirs, data))
                    ends[end].sendall(data)
                else:
                    with suppress(OSError):
                        ends[end].shutdown(socket.SHUT_WR)
                    ends = {} if end is theirs else {theirs: ours}
        ours.close()
        theirs.close()
        client.wait(10)
        return segments_of(passed)


def segments_of(passed: Sequence[tuple[bool, bytes]], size: int = 1400) -> list[Segment]:
    """A connection with these bytes, in segments of a size."""
    segments = [
        Segment(seq=CLIENT_SEQ - 1, flags=SYN),
        Segment(b"", SERVER_SEQ - 1, CLIENT_SEQ, SYN | ACK, from_server=True),
    ]
    seqs = [CLIENT_SEQ, SERVER_SEQ]
    for is_server, data in passed:
        for start in range(0, len(data), size):
            part = data[start : start + size]
            segments.append(Segment(part, seqs[is_server], seqs[1 - is_server], from_server=is_server))
            seqs[is_server] += len(part)
    return segments
