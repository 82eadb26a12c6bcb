"""One TLS connection: its hellos, its keys, and what its two sides wait for.

A side asks here for its cipher. It waits until both hellos were read, or until none of them can come. Nothing of the
connection is given out before its first record was opened: with wrong keys it is read as if there were none.
"""

from collections.abc import Iterator
from enum import IntEnum
from itertools import islice

from mqpcap.records import dataclass
from mqpcap.tls import handshake
from mqpcap.tls.handshake import Hello
from mqpcap.tls.key_log import EARLY, HANDSHAKE, MASTER, TRAFFIC, KeyLog, Secrets
from mqpcap.tls.record_ciphers import (
    TLS_1_0,
    TLS_1_3,
    VERSION_NAMES,
    RecordCipher,
    Tls13Cipher,
    ciphers_of_master,
)
from mqpcap.tls.suites import Suite, suite, suite_name

MAX_TRIED_MASTERS = 1 << 12
"""Master secrets that are tried for a resumed session whose first handshake was not captured."""
MAX_LATE_SESSIONS = 1 << 10
"""Sessions of the key log, the newest, that are tried for a connection whose hellos were not captured."""
MAX_LATE_TRIALS = 1 << 15
"""Pairs of a key and a sequence number that are tried for such a connection; each record gets half of the rest."""
LATE_RECORDS = 1 << 12
"""Records that the other side of such a connection may have sent before the first that was captured."""
_LATE_SUITES = {48: (0x1302,), 32: (0x1301, 0x1303)}
"""The suites of TLS 1.3 by the size of their secrets."""


class State(IntEnum):
    """The knowledge of the keys of a connection."""

    HELD = 0
    OPENED = 1
    CLOSED = 2


@dataclass(slots=True)
class TlsFacts:
    """The facts that a connection negotiated, as far as captured. ``overhead_bytes``: by side, if it is opened."""

    is_opened: bool = False
    version: str | None = None
    cipher: str | None = None
    server_name: str | None = None
    alpn: str | None = None
    """The protocol that the server chose; its choice is encrypted in TLS 1.3."""
    overhead_bytes: tuple[int, int] = (0, 0)


class Session:
    """The keys of a connection up to its end, and what decides how they follow each other.

    ``client``: the side of the client. ``takes_early``: whether the server takes early data, None if not known yet.
    """

    def __init__(self, keys: KeyLog | None) -> None:
        self._keys = keys
        self.state = State.CLOSED if keys is None else State.HELD
        self.why_closed = ""
        self.facts = TlsFacts()
        self.client = -1
        self.client_hello: Hello | None = None
        self.server_hello: Hello | None = None
        self.takes_early: bool | None = None
        self.has_retry = False
        self.offers_early = False
        self._early: RecordCipher | None = None
        self._secrets: Secrets = {}
        self._suite: Suite | None = None
        self._ciphers: tuple[RecordCipher, RecordCipher] | None = None
        """The ciphers of client and server, up to TLS 1.2."""
        self.is_late = False
        """Its hellos were not captured, so all sessions of the key log are tried."""
        self._late_trials = MAX_LATE_TRIALS
        self._root = b""
        """The client random of the session with the same master secret."""

    def __getstate__(self) -> dict[str, object]:
        """The state without keys."""
        return self.__dict__ | {"_keys": None, "_secrets": {}, "_ciphers": None, "_early": None}

    def use_keys(self, keys: KeyLog | None) -> None:
        """Go on with a key log, after the state was loaded."""
        self._keys, chosen, self._suite = keys, self._suite, None
        if keys is None and self.state is State.HELD:
            self.close("tls_no_key")
        elif keys is not None and self.client_hello is not None and self.server_hello is not None:
            if chosen is not None and self._root in keys:
                self._set_master(chosen, keys.secrets(self._root)[MASTER], self.client_hello, self.server_hello)
            elif self.state is not State.CLOSED:
                self._find_keys(self.client_hello, self.server_hello)

    # -- messages ------------------------------------------------------------------------------------------

    def note(self, side: int, kind: int, body: bytes) -> None:
        """Note a handshake message of a side."""
        if kind in (handshake.CLIENT_HELLO, handshake.SERVER_HELLO):
            self._note_hello(side, kind, handshake.hello(kind, body))
        elif kind == handshake.ENCRYPTED_EXTENSIONS and side != self.client:
            alpn, self.takes_early = handshake.encrypted_extensions(body)
            self.facts.alpn = next(iter(alpn), None)
        elif kind == handshake.NEW_TICKET and self._root and not self.is_1_3 and self._keys is not None:
            self._keys.remember(handshake.ticket_hash(body), self._root)

    def _note_hello(self, side: int, kind: int, hello: Hello | None) -> None:
        if hello is None or (kind == handshake.SERVER_HELLO and hello.is_retry):
            self.has_retry |= hello is not None
        elif kind == handshake.CLIENT_HELLO:
            self.client, self.client_hello = side, hello
            self.offers_early |= hello.has_early_data
            self.facts.server_name = hello.server_name
        elif self.server_hello is None:
            self.client, self.server_hello = 1 - side, hello
            self.facts.version = VERSION_NAMES.get(hello.version, f"0x{hello.version:04X}")
            self.facts.cipher = suite_name(hello.cipher)
            self.facts.alpn = next(iter(hello.alpn), None)
        if self.state is State.HELD and self.client_hello is not None and self.server_hello is not None:
            self._find_keys(self.client_hello, self.server_hello)

    @property
    def is_1_3(self) -> bool:
        """Whether the version is TLS 1.3; False while it is not known."""
        return self.is_late or (self.server_hello is not None and self.server_hello.version == TLS_1_3)

    # -- keys ----------------------------------------------------------------------------------------------

    def close(self, why: str) -> None:
        """No record can be opened: the connection is read as if there was no key log."""
        self.state, self.why_closed = State.CLOSED, self.why_closed or why

    def retry(self) -> None:
        """Look again for keys that may have come with more lines of the key log."""
        if self._suite is None and self.client_hello is not None and self.server_hello is not None:
            self._find_keys(self.client_hello, self.server_hello)

    def _find_keys(self, client: Hello, server: Hello) -> None:
        keys, chosen = self._keys, suite(server.cipher)
        assert keys is not None
        if chosen is None or not TLS_1_0 <= server.version <= TLS_1_3:
            self.close("tls_cipher")
            return
        if server.version == TLS_1_3:
            needed = {*HANDSHAKE, *TRAFFIC}
            secrets = keys.secrets(client.random)
            if not needed <= secrets.keys() and keys.refresh():
                secrets = keys.secrets(client.random)
            if needed <= secrets.keys():
                self._suite, self._secrets = chosen, secrets
        else:
            self._root = self._found_root(keys, client, server)
            if self._root:
                self._set_master(chosen, keys.secrets(self._root)[MASTER], client, server)
                if server.session_id:
                    keys.remember(server.session_id, self._root)
            elif server.session_id and (server.session_id == client.session_id or client.ticket):
                self._suite = chosen  # resumed: all master secrets are tried
        if self._suite is None and not keys.grows and self.state is State.HELD:
            self.close("tls_no_key")

    def _found_root(self, keys: KeyLog, client: Hello, server: Hello) -> bytes:
        """The client random in the line of the master secret."""
        for is_second in (False, True):
            names = (client.ticket, server.session_id)
            randoms = (client.random, *(keys.resumable.get(name, b"") for name in names if name))
            found = next((random for random in randoms if MASTER in keys.secrets(random)), b"")
            if found or is_second or not keys.refresh():
                return found
        return b""

    def _set_master(self, chosen: Suite, master: bytes, client: Hello, server: Hello) -> None:
        self._suite = chosen
        self._ciphers = ciphers_of_master(
            chosen, server.version, server.encrypts_first, master, client.random, server.random
        )

    def ciphers(self, side: int, record: memoryview) -> Iterator[RecordCipher]:
        """The ciphers of a side in order: the first opens its first protected record. None without keys."""
        if self._suite is None:
            return
        is_server = side != self.client
        if self.is_1_3:
            labels = [TRAFFIC[is_server]] if self.is_late else [HANDSHAKE[is_server], TRAFFIC[is_server]]
            if not is_server and self.offers_early and not self.has_retry and EARLY in self._secrets:
                labels.insert(0, EARLY)
            size = 48 if self._suite.prf == "sha384" else 32
            ciphers = [Tls13Cipher(self._suite, self._secrets[x]) for x in labels if len(self._secrets[x]) == size]
            if labels[0] == EARLY:
                self._early = ciphers[0]
            yield from ciphers
            return
        if self._ciphers is None:
            self._try_masters(is_server, record)
        if self._ciphers is not None:
            yield self._ciphers[is_server]

    def _try_masters(self, is_server: bool, record: memoryview) -> None:
        """Find the master secret of a resumed session by its first protected record."""
        keys, chosen, client, server = self._keys, self._suite, self.client_hello, self.server_hello
        assert keys is not None and chosen is not None and client is not None and server is not None
        masters = ((random, secrets[MASTER]) for random, secrets in keys.sessions() if MASTER in secrets)
        for (random, master), _ in zip(masters, range(MAX_TRIED_MASTERS), strict=False):
            self._set_master(chosen, master, client, server)
            assert self._ciphers is not None
            if self._ciphers[is_server].open(0, record, b"") is not None:
                self._root = random
                keys.remember(server.session_id, random)
                return
        self._ciphers = None
        self.close("tls_no_key")

    def open_late(self, side: int, record: memoryview) -> int:
        """The sequence number of a record of TLS 1.3 whose session is found by trial; -1 if no key opens it."""
        keys, client = self._keys, self.client_hello
        if keys is None:
            return -1
        sessions = keys.sessions() if client is None else [(client.random, keys.secrets(client.random))]
        ciphers = [
            (Tls13Cipher(chosen, secrets[label]), code, random, is_server)
            for random, secrets in islice(sessions, MAX_LATE_SESSIONS)
            for is_server, label in enumerate(TRAFFIC)
            if {*TRAFFIC} <= secrets.keys()
            for code in _LATE_SUITES[len(secrets[label])]
            if (chosen := suite(code)) is not None
        ]
        most = min(self._late_trials // 2, keys.late_trials)
        for seq in range(most // max(len(ciphers), 1)):
            self._late_trials -= len(ciphers)
            keys.late_trials -= len(ciphers)
            for cipher, code, random, is_server in ciphers:
                if cipher.open(seq, record, b"") is not None:
                    self.client = 1 - side if is_server else side
                    self.is_late, self._suite, self._secrets = True, cipher.suite, keys.secrets(random)
                    self.facts.version, self.facts.cipher = VERSION_NAMES[TLS_1_3], suite_name(code)
                    return seq
        return -1

    @property
    def has_keys(self) -> bool:
        """Whether a side may ask for ciphers."""
        return self._suite is not None

    # -- early data ----------------------------------------------------------------------------------------

    def awaits_answer_to_early_data(self, cipher: RecordCipher, side: int) -> bool:
        """Whether the server has not said yet if it takes a record of early data."""
        return cipher is self._early and self.takes_early is None

    def is_taken(self, cipher: RecordCipher) -> bool:
        """Whether the peer takes the data that a cipher opens: a server may refuse early data."""
        return cipher is not self._early or self.takes_early is not False
