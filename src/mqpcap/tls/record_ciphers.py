"""Opens single records: keys from the secrets of a session, and the ciphers of TLS 1.0 to 1.3.

In: a protected record and its sequence number. Out: its content type and plaintext, or None if it is not genuine.
All cryptography is that of the library ``cryptography``, which is loaded with the first key.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from mqpcap.errors import CaptureError
from mqpcap.tls.suites import Suite
from mqpcap.wording import extra_line

HEADER_BYTES = 5
BLOCK_BYTES = 16
PREVIOUS_BYTES = BLOCK_BYTES + 48
"""Bytes of the record before, which end with the last block of ciphertext and, where it is not encrypted, the MAC."""
MAX_FRAGMENT_BYTES = (1 << 14) + 2048  # RFC 5246, 6.2.3
TLS_1_0, TLS_1_1, TLS_1_2, TLS_1_3 = 0x0301, 0x0302, 0x0303, 0x0304
VERSION_NAMES = {0x0300: "SSL 3.0", TLS_1_0: "TLS 1.0", TLS_1_1: "TLS 1.1", TLS_1_2: "TLS 1.2", TLS_1_3: "TLS 1.3"}

Opened = tuple[int, bytes] | None
"""Content type and plaintext of a record; None if it is not genuine."""


class Shape(NamedTuple):
    """The place of the content in a protected record: bytes before it and after it.

    ``is_exact``: all bytes between are content. In TLS 1.3 and with CBC there is padding among them.
    """

    head_len: int
    tail_len: int
    is_exact: bool


def require_library() -> None:
    """Raises CaptureError if the library is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise CaptureError(f"a key log needs the library cryptography: {extra_line('tls')}") from None


def _aead(suite: Suite, key: bytes) -> tuple[Callable[[bytes, Any, Any], bytes], type[Exception]]:
    """Decrypts with a nonce, a ciphertext and associated data; and the error of a wrong tag."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305

    if suite.mode == "GCM":
        return AESGCM(key).decrypt, InvalidTag
    if suite.mode == "CHACHA20":
        return ChaCha20Poly1305(key).decrypt, InvalidTag
    return AESCCM(key, tag_len(suite)).decrypt, InvalidTag


def tag_len(suite: Suite) -> int:
    """Bytes of the tag of an AEAD cipher."""
    return 8 if suite.mode == "CCM_8" else 16


class RecordCipher:
    """The keys of one direction. ``open`` decrypts a record; ``nonce`` is what it says of its number, -1 for nothing.

    ``shape``: where the content is. ``min_record_bytes``: the shortest record.
    """

    shape: Shape
    min_record_bytes: int
    is_chained = False
    """A record needs the bytes before it."""
    updates = 0
    """Key updates before it."""

    def open(self, seq: int, record: memoryview, previous: bytes) -> Opened:
        """The record with a sequence number; ``previous``: the PREVIOUS_BYTES before it."""
        raise NotImplementedError

    def nonce(self, record: memoryview) -> int:
        """A number in the record that ascends with the sequence number, -1 without one."""
        return -1

    def updated(self) -> "RecordCipher | None":
        """The cipher after a KeyUpdate, None before TLS 1.3."""
        return None


class Tls13Cipher(RecordCipher):
    """TLS 1.3 (RFC 8446, 5.2): the content type is the last byte that is not zero."""

    def __init__(self, suite: Suite, secret: bytes, updates: int = 0) -> None:
        self.suite, self._secret, self.updates = suite, secret, updates
        self._decrypt, self._wrong_tag = _aead(suite, _expanded(suite, secret, "key", suite.key_len))
        self._iv = int.from_bytes(_expanded(suite, secret, "iv", 12))
        self.shape = Shape(HEADER_BYTES, tag_len(suite), False)
        self.min_record_bytes = HEADER_BYTES + 1 + tag_len(suite)

    def open(self, seq: int, record: memoryview, previous: bytes) -> Opened:
        """See `RecordCipher`."""
        try:
            inner = self._decrypt((self._iv ^ seq).to_bytes(12), record[HEADER_BYTES:], record[:HEADER_BYTES])
        except self._wrong_tag:
            return None
        kind = inner[-1] if inner else 0
        if kind:
            return kind, inner[:-1]
        inner = inner.rstrip(b"\0")
        return (inner[-1], inner[:-1]) if inner else (0, b"")

    def updated(self) -> "Tls13Cipher":
        """The cipher after a KeyUpdate (RFC 8446, 7.2)."""
        secret = _expanded(self.suite, self._secret, "traffic upd", hashlib.new(self.suite.prf).digest_size)
        return Tls13Cipher(self.suite, secret, self.updates + 1)


class AeadCipher(RecordCipher):
    """AEAD of TLS 1.2: GCM and CCM with an explicit nonce (RFC 5288, 6655), ChaCha20-Poly1305 without (RFC 7905)."""

    def __init__(self, suite: Suite, key: bytes, iv: bytes) -> None:
        self._decrypt, self._wrong_tag = _aead(suite, key)
        self._iv, self._is_chacha = iv, suite.mode == "CHACHA20"
        self._tag_len = tag_len(suite)
        self.shape = Shape(HEADER_BYTES + (0 if self._is_chacha else 8), self._tag_len, True)
        self.min_record_bytes = self.shape.head_len + self._tag_len

    def open(self, seq: int, record: memoryview, previous: bytes) -> Opened:
        """See `RecordCipher`."""
        head_len = self.shape.head_len
        size = len(record) - head_len - self._tag_len
        if size < 0:
            return None
        if self._is_chacha:
            nonce = (int.from_bytes(self._iv) ^ seq).to_bytes(12)
        else:
            nonce = self._iv + record[HEADER_BYTES:head_len]
        associated = seq.to_bytes(8) + record[:3] + size.to_bytes(2)
        try:
            return record[0], self._decrypt(nonce, record[head_len:], associated)
        except self._wrong_tag:
            return None

    def nonce(self, record: memoryview) -> int:
        """The explicit nonce: a counter that begins anywhere."""
        return -1 if self._is_chacha else int.from_bytes(record[HEADER_BYTES : HEADER_BYTES + 8])


class CbcCipher(RecordCipher):
    """CBC with HMAC of TLS 1.0 to 1.2 (RFC 5246, 6.2.3.2), MAC then encrypt or encrypt then MAC (RFC 7366)."""

    def __init__(self, suite: Suite, version: int, mac_first: bool, mac_key: bytes, key: bytes, iv: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.algorithms import AES

        self._algorithm, self._mac, self._mac_key, self._iv = AES(key), suite.mac, mac_key, iv
        self._mac_len, self._mac_first = hashlib.new(suite.mac).digest_size, mac_first
        self._is_explicit = version > TLS_1_0
        self.is_chained = not self._is_explicit
        self.shape = Shape(HEADER_BYTES + (BLOCK_BYTES if self._is_explicit else 0), 0, False)
        self.min_record_bytes = self.shape.head_len + BLOCK_BYTES

    def open(self, seq: int, record: memoryview, previous: bytes) -> Opened:
        """See `RecordCipher`."""
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.modes import CBC

        body = record[HEADER_BYTES:] if self._mac_first else record[HEADER_BYTES : -self._mac_len]
        if self._is_explicit:
            iv = bytes(body[:BLOCK_BYTES])
        elif previous:  # the last block of ciphertext
            end = len(previous) - (0 if self._mac_first else self._mac_len)
            iv = previous[max(end - BLOCK_BYTES, 0) : max(end, 0)]
        else:
            iv = self._iv
        ciphertext = body[BLOCK_BYTES:] if self._is_explicit else body
        if len(iv) != BLOCK_BYTES or not ciphertext or len(ciphertext) % BLOCK_BYTES:
            return None
        if not self._mac_first and not self._is_genuine(seq, record, body, record[-self._mac_len :]):
            return None
        decryptor = Cipher(self._algorithm, CBC(iv)).decryptor()
        padded = decryptor.update(ciphertext) + decryptor.finalize()
        size = len(padded) - 1 - padded[-1]
        if size < 0 or padded[size:] != bytes((padded[-1],)) * (padded[-1] + 1):
            return None
        if not self._mac_first:
            return record[0], padded[:size]
        size -= self._mac_len
        content = padded[: max(size, 0)]
        if size < 0 or not self._is_genuine(seq, record, content, padded[size : size + self._mac_len]):
            return None
        return record[0], content

    def _is_genuine(self, seq: int, record: memoryview, data: bytes | memoryview, mac: bytes | memoryview) -> bool:
        head = struct.pack(">Q3sH", seq, bytes(record[:3]), len(data))
        return hmac.compare_digest(hmac.digest(self._mac_key, head + bytes(data), self._mac), mac)


def ciphers_of_master(
    suite: Suite, version: int, encrypt_first: bool, master: bytes, client_random: bytes, server_random: bytes
) -> tuple[RecordCipher, RecordCipher]:
    """The ciphers of client and server up to TLS 1.2 (RFC 5246, 6.3)."""
    is_cbc = suite.mode == "CBC"
    mac_len = hashlib.new(suite.mac).digest_size if is_cbc else 0
    iv_len = (BLOCK_BYTES if version == TLS_1_0 else 0) if is_cbc else 12 if suite.mode == "CHACHA20" else 4
    lengths = (mac_len, mac_len, suite.key_len, suite.key_len, iv_len, iv_len)
    block = _prf(suite, version, master, b"key expansion" + server_random + client_random, sum(lengths))
    parts, begin = [], 0
    for length in lengths:
        parts.append(block[begin : begin + length])
        begin += length

    def cipher(i: int) -> RecordCipher:
        if is_cbc:
            return CbcCipher(suite, version, not encrypt_first, parts[i], parts[2 + i], parts[4 + i])
        return AeadCipher(suite, parts[2 + i], parts[4 + i])

    return cipher(0), cipher(1)


def _prf(suite: Suite, version: int, secret: bytes, seed: bytes, length: int) -> bytes:
    """The pseudo-random function (RFC 5246, 5); before TLS 1.2 of MD5 and SHA-1, a half of the secret each."""
    if version >= TLS_1_2:
        return _p_hash(suite.prf, secret, seed, length)
    half = (len(secret) + 1) // 2
    pairs = zip(_p_hash("md5", secret[:half], seed, length), _p_hash("sha1", secret[-half:], seed, length), strict=True)
    return bytes(a ^ b for a, b in pairs)


def _p_hash(name: str, secret: bytes, seed: bytes, length: int) -> bytes:
    output, a = b"", seed
    while len(output) < length:
        a = hmac.digest(secret, a, name)
        output += hmac.digest(secret, a + seed, name)
    return output[:length]


def _expanded(suite: Suite, secret: bytes, label: str, length: int) -> bytes:
    """HKDF-Expand-Label (RFC 8446, 7.1)."""
    from cryptography.hazmat.primitives.hashes import SHA256, SHA384
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    full = b"tls13 " + label.encode()
    info = struct.pack(">HB", length, len(full)) + full + b"\0"
    return HKDFExpand(SHA384() if suite.prf == "sha384" else SHA256(), length, info).derive(secret)
