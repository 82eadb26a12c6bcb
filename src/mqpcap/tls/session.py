"""One TLS connection: its hellos, and the keys that follow from them.

A side asks here for its ciphers. They follow each other as *generations*: early data, the handshake, application data
(`TRAFFIC`, alone before TLS 1.3), and another generation with each key update. Nothing is given
out before its first record was opened: with wrong keys it is read as if there were none.
"""

from itertools import islice, product

from mqpcap.records import dataclass
from mqpcap.tcp.derived_streams import State
from mqpcap.tls import handshake
from mqpcap.tls.handshake import Hello
from mqpcap.tls.key_log import LABELS, MASTER, TRAFFIC, KeyLog
from mqpcap.tls.record_ciphers import TLS_1_0, TLS_1_3, VERSION_NAMES, RecordCipher, cipher_of_master, tls_1_3_cipher
from mqpcap.tls.suites import Suite, suite, suite_name

EARLY, HANDSHAKE, _NOTHING = 0, 1, memoryview(b"")
MAX_TRIED_MASTERS = 1 << 12
"""Master secrets that are tried for a resumed session whose first handshake was not captured."""
MAX_LATE_SESSIONS = 1 << 10
"""Sessions of the key log, the newest, that are tried for a connection whose hellos were not captured."""
MAX_LATE_TRIALS = 1 << 15
"""Pairs of a key and a sequence number that are tried for such a connection; each record gets half of the rest."""
LATE_RECORDS = 1 << 12
"""Records that the other side of such a connection may have sent before the first that was captured."""
_LATE_SUITES = 0x1302, 0x1301, 0x1303
"""The size of a session's secrets is that of the first, or of the others: four ciphers of two sides at most."""


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

    def add_choices(self, hello: Hello) -> None:
        """Add what the server chose in its hello."""
        self.version = VERSION_NAMES.get(hello.version, f"0x{hello.version:04X}")
        self.cipher, self.alpn = suite_name(hello.cipher), hello.alpn


class Session:
    """The keys of a connection up to its end.

    ``client``: the side of the client. ``is_late``: the ServerHello was not captured, so all sessions of the key log
    are tried. ``offers_early``: the client sent early data. ``takes_early``: the server takes it, None if not known.
    ``suite``: None until the keys are known.
    """

    def __init__(self, keys: KeyLog | None, is_late: bool = False) -> None:
        self.state = State.CLOSED if keys is None else State.HELD
        self.why_closed, self.facts, self.client = "", TlsFacts(), -1
        self.client_hello, self.server_hello = Hello(), Hello()
        self.is_late, self.has_retry, self.offers_early = is_late, False, False
        self.takes_early: bool | None = None
        self.suite: Suite | None = None
        self._keys, self._late_trials = KeyLog() if keys is None else keys, MAX_LATE_TRIALS
        self._root = b""
        """The client random of the line in the key log; a resumed session has that of an earlier session."""

    def __getstate__(self) -> dict[str, object]:
        """The state without keys."""
        return self.__dict__ | {"_keys": None}

    def use_keys(self, keys: KeyLog | None) -> None:
        """Go on with a key log, after the state was loaded."""
        self._keys = KeyLog() if keys is None else keys
        if keys is None and self.state is not State.CLOSED:
            self.state, self.why_closed = State.CLOSED if self.state is State.HELD else State.OPENED, "tls_secrets_gone"

    # -- messages ------------------------------------------------------------------------------------------

    def note(self, side: int, kind: int, body: bytes) -> None:
        """Note a handshake message of a side."""
        if kind in (handshake.CLIENT_HELLO, handshake.SERVER_HELLO):
            self._note_hello(side, kind, handshake.hello(kind, body))
        elif side != self.client and kind == handshake.ENCRYPTED_EXTENSIONS:
            self.facts.alpn, self.takes_early = handshake.encrypted_extensions(body)
        elif side != self.client and kind == handshake.FINISHED:
            self.takes_early = self.takes_early is not False
        elif kind == handshake.NEW_TICKET and self._root and not self.is_1_3:
            self._keys.remember(handshake.ticket_hash(body), self._root)

    def _note_hello(self, side: int, kind: int, hello: Hello) -> None:
        facts, self.has_retry = self.facts, self.has_retry or hello.random == handshake.RETRY_RANDOM
        if kind == handshake.CLIENT_HELLO and hello.random:
            self.client, self.client_hello, facts.server_name = side, hello, hello.server_name
            self.offers_early |= hello.has_early_data
        elif hello.random not in (b"", handshake.RETRY_RANDOM) and not self.server_hello.random:
            self.client, self.server_hello = 1 - side, hello
            facts.add_choices(hello)
        self.find_keys()

    @property
    def has_hellos(self) -> bool:
        """Whether both hellos were captured."""
        return bool(self.client_hello.random and self.server_hello.random)

    @property
    def has_keys(self) -> bool:
        """Whether the keys are known or, before TLS 1.3, each record of either side can be tried with all."""
        return self.suite is not None and bool(self._root or self.client_hello.random)

    @property
    def is_1_3(self) -> bool:
        """Whether the version is TLS 1.3; False while it is not known."""
        return self.is_late or self.server_hello.version == TLS_1_3

    def awaits_answer(self, side: int) -> bool:
        """Whether the server has not said yet if it takes the early data that a side may have sent."""
        return side == self.client and self.offers_early and self.takes_early is None and not self.has_retry

    def close(self, why: str = "") -> None:
        """No record can be opened: the connection is read as if there was no key log."""
        reason = "tls_no_hello" if not self.has_hellos else "tls_wrong_keys" if self._root else "tls_no_key"
        self.state, self.why_closed = State.CLOSED, self.why_closed or why or reason

    # -- keys ----------------------------------------------------------------------------------------------

    def find_keys(self, is_final: bool = False) -> None:
        """Look for the keys once both hellos were read; they may come later in a key log that grows.

        ``is_final``: no ClientHello will come. Before TLS 1.3 all master secrets are tried without one.
        """
        keys, client, server = self._keys, self.client_hello, self.server_hello
        is_lost = is_final and bool(server.random) and not client.random and not self.is_1_3
        if self.state is not State.HELD or not (self.has_hellos or is_lost) or self.suite is not None:
            return
        chosen = suite(server.cipher)
        if chosen is None or not TLS_1_0 <= server.version <= TLS_1_3:
            self.close("tls_cipher")
            return
        randoms, needed = [client.random], {*LABELS[HANDSHAKE], *LABELS[TRAFFIC]} if self.is_1_3 else {MASTER}
        if not self.is_1_3:
            randoms += [keys.resumable.get(name, b"") for name in (client.ticket, server.session_id) if name]
        if not any(needed <= keys.secrets(random).keys() for random in randoms):
            keys.refresh()
        self._root = next((random for random in randoms if needed <= keys.secrets(random).keys()), b"")
        is_resumed = server.session_id and (server.session_id == client.session_id or client.ticket)
        if self._root or is_lost or (is_resumed and not self.is_1_3):  # without a root all are tried
            self.suite = chosen
        elif not keys.grows:
            self.close("tls_no_key")
        if self._root and server.session_id and not self.is_1_3:
            keys.remember(server.session_id, self._root)

    def loaded_cipher(self, side: int, generation: int, record: memoryview) -> tuple[int, RecordCipher | None]:
        """A generation and its cipher; of -1 those that a side begins with, None if they are not known yet."""
        if generation >= 0:
            return generation, self.cipher(side, generation)
        keys, hello = self._keys, self.client_hello
        if not self._root and self.suite is not None and (hello.random or side != self.client):
            for self._root in islice(keys.randoms(MASTER), min(MAX_TRIED_MASTERS, keys.late_trials)):
                keys.late_trials -= 1
                cipher = self.cipher(side, TRAFFIC)
                if cipher is not None and cipher.open(0, record, _NOTHING) is not None:
                    for name in filter(None, (hello.ticket, self.server_hello.session_id)):
                        keys.remember(name, self._root)
                    return TRAFFIC, cipher
            self._root = b""
            self.close("tls_no_key")
        first_generation = EARLY if side == self.client and self.offers_early and not self.has_retry else HANDSHAKE
        for generation in range(first_generation if self.is_1_3 and not self.is_late else TRAFFIC, TRAFFIC + 1):
            if (cipher := self.cipher(side, generation)) is not None:
                return generation, cipher
        return -1, None

    def cipher(self, side: int, generation: int) -> RecordCipher | None:
        """The cipher of a side and generation; None without keys."""
        server, is_server = self.server_hello, side != self.client
        label = LABELS[min(generation, TRAFFIC)][is_server] if self.is_1_3 else MASTER
        secret = self._keys.secrets(self._root).get(label)
        if self.suite is None or secret is None:
            return None
        if not self.is_1_3:
            randoms = server.random + (self.client_hello.random or self._root)
            return cipher_of_master(self.suite, server.version, server.encrypts_first, secret, randoms, is_server)
        cipher: RecordCipher | None = tls_1_3_cipher(self.suite, secret)
        for _ in range(generation - TRAFFIC):
            cipher = cipher and cipher.updated()
        return cipher

    def open_late(self, side: int, record: memoryview) -> int:
        """The sequence number of a record of TLS 1.3 whose session is found by trial; -1 if no key opens it."""
        keys, client, unchanged = self._keys, self.client_hello, (self.client, self.is_late, self.suite, self._root)
        randoms = [client.random] if client.random else [*islice(keys.randoms(LABELS[TRAFFIC][0]), MAX_LATE_SESSIONS)]
        count = min(self._late_trials // 2, keys.late_trials) // max(len(randoms) * 4, 1)
        self.is_late = not self.server_hello.random
        for self._root, code, self.client in product(randoms, _LATE_SUITES, (0, 1)):
            self.suite = suite(code)
            cipher, size = self.cipher(side, TRAFFIC), len(keys.secrets(self._root).get(LABELS[TRAFFIC][0], b""))
            for seq in range(count if cipher is not None and size == 48 - 16 * (code != 0x1302) else 0):
                self._late_trials, keys.late_trials = self._late_trials - 1, keys.late_trials - 1
                if cipher is not None and cipher.open(seq, record, _NOTHING) is not None:
                    self.facts.version, self.facts.cipher = VERSION_NAMES[TLS_1_3], suite_name(code)
                    return seq
        self.client, self.is_late, self.suite, self._root = unchanged
        return -1
