"""Opens single records: keys from the secrets of a session, and the ciphers of TLS 1.0 to 1.3.

In: a protected record and its sequence number. Out: its content type and plaintext, or None if it is not genuine.
Ciphers and key derivation are those of the library ``cryptography``, which is loaded with the first key.
"""

import hashlib
import hmac
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import accumulate, pairwise
from typing import Any

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


def require_library() -> None:
    """Raises CaptureError if the library is not installed."""
    if find_spec("cryptography") is None:
        raise CaptureError(f"a key log needs the library cryptography: {extra_line('tls')}")


class RecordCipher:
    """The keys of one direction.

    ``head_len``, ``tail_len``: bytes of a record before and after its content. ``is_exact``: all bytes between are
    content; in TLS 1.3 and with CBC there is padding among them. ``min_record_bytes``: the shortest record.
    """

    head_len, tail_len, is_exact, min_record_bytes = HEADER_BYTES, 0, False, HEADER_BYTES

    def open(self, seq: int, record: memoryview, previous: memoryview) -> Opened:
        """The record with a sequence number; ``previous``: up to PREVIOUS_BYTES before it."""
        raise NotImplementedError

    def nonce(self, record: memoryview) -> int:
        """A number in the record that ascends with the sequence number, -1 without one."""
        return -1

    def updated(self) -> "RecordCipher | None":
        """The cipher after a KeyUpdate, None before TLS 1.3."""
        return None


class AeadCipher(RecordCipher):
    """AEAD of TLS 1.2 and 1.3.

    The nonce is the sequence number (RFC 8446, 5.3 and RFC 7905), or in the record (RFC 5288 and 6655). In TLS 1.3 the
    content type is the last byte that is not zero (RFC 8446, 5.2).
    """

    def __init__(self, suite: Suite, key: bytes, iv: bytes, secret: bytes = b"") -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305

        self.suite, self._secret = suite, secret
        tag_len, self._wrong_tag = 8 if suite.mode == "CCM_8" else 16, InvalidTag
        ciphers: dict[str, Callable[[bytes], Any]] = {"GCM": AESGCM, "CHACHA20": ChaCha20Poly1305}
        self._decrypt = ciphers.get(suite.mode, partial(AESCCM, tag_length=tag_len))(key).decrypt
        self._salt, self._iv = iv, int.from_bytes(iv)
        self.head_len, self.tail_len, self.is_exact = HEADER_BYTES + 12 - len(iv), tag_len, not secret
        self.min_record_bytes = self.head_len + tag_len + bool(secret)

    def open(self, seq: int, record: memoryview, previous: memoryview) -> Opened:
        """See `RecordCipher`."""
        size = len(record) - self.head_len - self.tail_len
        if size < 0:
            return None
        is_counted = self.head_len == HEADER_BYTES
        nonce = (self._iv ^ seq).to_bytes(12) if is_counted else self._salt + record[HEADER_BYTES : self.head_len]
        associated = seq.to_bytes(8) + record[:3] + size.to_bytes(2) if self.is_exact else record[:HEADER_BYTES]
        try:
            content = self._decrypt(nonce, record[self.head_len :], associated)
        except self._wrong_tag:
            return None
        if self.is_exact:
            return record[0], content
        content = content if content[-1:] > b"\0" else content.rstrip(b"\0")
        return (content[-1], content[:-1]) if content else (0, b"")

    def nonce(self, record: memoryview) -> int:
        """The explicit nonce: a counter that begins anywhere."""
        return int.from_bytes(record[HEADER_BYTES : self.head_len]) if self.head_len > HEADER_BYTES else -1

    def updated(self) -> "AeadCipher | None":
        """The cipher after a KeyUpdate (RFC 8446, 7.2)."""
        secret = _expanded(self.suite, self._secret, "traffic upd", len(self._secret)) if self._secret else b""
        return tls_1_3_cipher(self.suite, secret) if secret else None


class CbcCipher(RecordCipher):
    """CBC with HMAC of TLS 1.0 to 1.2 (RFC 5246, 6.2.3.2), MAC then encrypt or encrypt then MAC (RFC 7366)."""

    def __init__(self, suite: Suite, mac_first: bool, mac_key: bytes, key: bytes, iv: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._decryptor: Callable[[Any], Any] = lambda iv: Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
        self._mac, self._mac_key, self._iv = suite.mac, mac_key, iv
        self._mac_first, self._tail_len = mac_first, 0 if mac_first else len(mac_key)
        # From TLS 1.1 on the record begins with its IV; before, it is the last block of the record before.
        self.head_len = HEADER_BYTES + (0 if iv else BLOCK_BYTES)
        self.min_record_bytes = self.head_len + BLOCK_BYTES

    def open(self, seq: int, record: memoryview, previous: memoryview) -> Opened:
        """See `RecordCipher`."""
        body, begin = record[HEADER_BYTES : len(record) - self._tail_len], self.head_len - HEADER_BYTES
        last_block = previous[: len(previous) - self._tail_len][-BLOCK_BYTES:]
        iv = body[:begin] if begin else memoryview(self._iv) if seq == 0 else last_block
        if len(iv) != BLOCK_BYTES or len(body) <= begin or len(body) % BLOCK_BYTES:
            return None
        if not self._mac_first and not self._is_genuine(seq, record, body, record[-self._tail_len :]):
            return None
        decryptor = self._decryptor(iv)
        padded = decryptor.update(body[begin:]) + decryptor.finalize()
        size = len(padded) - 1 - padded[-1]
        if size < 0 or padded[size:] != padded[-1:] * (padded[-1] + 1):
            return None
        if self._mac_first:
            mac, size = padded[max(size - len(self._mac_key), 0) : size], size - len(self._mac_key)
            if size < 0 or not self._is_genuine(seq, record, padded[:size], mac):
                return None
        return record[0], padded[:size]

    def _is_genuine(self, seq: int, record: memoryview, data: bytes | memoryview, mac: bytes | memoryview) -> bool:
        head = seq.to_bytes(8) + record[:3] + len(data).to_bytes(2)
        return hmac.compare_digest(hmac.digest(self._mac_key, head + data, self._mac), mac)


def tls_1_3_cipher(suite: Suite, secret: bytes) -> AeadCipher:
    """The cipher of a traffic secret of TLS 1.3 (RFC 8446, 7.3)."""
    return AeadCipher(suite, _expanded(suite, secret, "key", suite.key_len), _expanded(suite, secret, "iv", 12), secret)


def cipher_of_master(
    suite: Suite, version: int, encrypts_first: bool, master: bytes, randoms: bytes, is_server: bool
) -> RecordCipher:
    """The cipher of a side up to TLS 1.2 (RFC 5246, 6.3). ``randoms``: of the server, then of the client."""
    is_cbc = suite.mode == "CBC"
    mac_len = hashlib.new(suite.mac).digest_size if is_cbc else 0
    iv_len = (BLOCK_BYTES if version == TLS_1_0 else 0) if is_cbc else 12 if suite.mode == "CHACHA20" else 4
    ends = [*accumulate((mac_len, mac_len, suite.key_len, suite.key_len, iv_len, iv_len), initial=0)]
    block = _prf(suite, version, master, b"key expansion" + randoms, ends[-1])
    mac_key, key, iv = [block[begin:end] for begin, end in pairwise(ends)][is_server::2]
    return CbcCipher(suite, not encrypts_first, mac_key, key, iv) if is_cbc else AeadCipher(suite, key, iv)


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

    info = length.to_bytes(2) + bytes([6 + len(label)]) + f"tls13 {label}\0".encode()
    return HKDFExpand(SHA384() if suite.prf == "sha384" else SHA256(), length, info).derive(secret)
