"""The secrets of TLS sessions, from key logs as clients write them (NSS key log format).

In: the lines of a key log, and secrets in pcapng files. Out: the secrets of a session, by its client random. A key log
may grow while a capture is read. The secrets are never printed, and never pickled: a copy reads the file again.
"""

import os
from collections import OrderedDict
from collections.abc import Iterable

from mqpcap.errors import CaptureError
from mqpcap.tls.record_ciphers import require_library

EARLY, MASTER = "CLIENT_EARLY_TRAFFIC_SECRET", "CLIENT_RANDOM"
HANDSHAKE = "CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET"
TRAFFIC = "CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"
LABELS = {label.encode(): label for label in (EARLY, MASTER, *HANDSHAKE, *TRAFFIC)}
MAX_SESSIONS = 1 << 18
"""Sessions whose secrets are kept; beyond it the oldest are forgotten."""
MAX_RESUMABLE = 1 << 16
"""Session ids and tickets that are remembered."""
MAX_ALL_LATE_TRIALS = 1 << 20
"""Pairs of a key and a sequence number that are tried in a run for connections whose hellos were not captured."""
MAX_LINE_BYTES = 1024
"""A longer line of a key log holds no secret."""
BLOCK_BYTES = 1 << 20

Secrets = dict[str, bytes]


class KeyLog:
    """The secrets by client random; ``path``: a key log file, None if all come from elsewhere.

    ``grows``: lines may be appended while a capture is read, so a missing secret may come.
    ``resumable``: by session id or hash of a ticket, the client random of the session that a client may resume. In TLS
    1.2 it resumes with the same master secret, and some clients write no line for it.
    """

    def __init__(self, path: str | None = None, grows: bool = False) -> None:
        self.path, self.grows = path, grows
        self.resumable: OrderedDict[bytes, bytes] = OrderedDict()
        self._sessions: OrderedDict[bytes, Secrets] = OrderedDict()  # a dict looks for its first key
        self.late_trials = MAX_ALL_LATE_TRIALS
        self._has_traffic = False
        self._read_bytes = 0
        self._rest = b""
        self.forgotten_count = 0
        if path is not None:
            self.refresh()

    @classmethod
    def opened(cls, path: str | None) -> "KeyLog":
        """A key log for reading captures. Raises CaptureError if it cannot be read, or the library is not there."""
        require_library()
        return cls(path)

    def __repr__(self) -> str:
        return f"KeyLog({self.path!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyLog) and (self.path, self.grows) == (other.path, other.grows)

    def __hash__(self) -> int:
        return hash(self.path)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled without secrets: whoever loads it reads the file."""
        return _opened, (self.path, self.grows)

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def has_traffic(self) -> bool:
        """Whether there are secrets of TLS 1.3."""
        return self._has_traffic

    def __contains__(self, random: bytes) -> bool:
        return random in self._sessions

    def refresh(self) -> bool:
        """Read the lines that were appended to the file; whether there were any."""
        if self.path is None:
            return False
        try:
            size = os.stat(self.path).st_size
            if size == self._read_bytes:
                return False
            if size < self._read_bytes:  # written anew
                self._read_bytes, self._rest = 0, b""
            with open(self.path, "rb") as file:
                file.seek(self._read_bytes)
                while block := file.read(BLOCK_BYTES):
                    self._read_bytes += len(block)
                    *lines, rest = (self._rest + block).split(b"\n")
                    self._rest = rest if len(rest) <= MAX_LINE_BYTES else rest[:1]
                    self.add(lines)
        except OSError as error:
            if self.grows and isinstance(error, FileNotFoundError):
                return False  # the client creates it with its first session
            raise CaptureError(f"the key log {self.path} cannot be read: {error.strerror}") from None
        self.add([self._rest])  # the last line may have no end
        return True

    def add(self, lines: Iterable[bytes]) -> None:
        """Add the secrets of lines; other lines are ignored."""
        sessions = self._sessions
        for line in lines:
            words = line.split() if len(line) <= MAX_LINE_BYTES else []
            label = LABELS.get(words[0]) if len(words) == 3 else None
            if label is None or len(words[1]) != 64 or len(words[2]) not in (64, 96):
                continue
            try:
                random, secret = bytes.fromhex(words[1].decode()), bytes.fromhex(words[2].decode())
            except ValueError:
                continue
            secrets = sessions.get(random)
            if secrets is None:
                secrets = sessions[random] = {}
                if len(sessions) > MAX_SESSIONS:
                    self.forgotten_count += 1
                    sessions.popitem(last=False)
            secrets[label] = secret
            self._has_traffic |= label == TRAFFIC[0]

    def secrets(self, random: bytes) -> Secrets:
        """The secrets of the session with a client random; empty if there are none."""
        found = self._sessions.get(random)
        return {} if found is None else found

    def sessions(self) -> Iterable[tuple[bytes, Secrets]]:
        """The secrets of all sessions, the newest first."""
        return reversed(self._sessions.items())

    def remember(self, name: bytes, random: bytes) -> None:
        """Note that clients may resume the session with a client random by a session id or the hash of a ticket."""
        self.resumable[name] = random
        if len(self.resumable) > MAX_RESUMABLE:
            self.resumable.popitem(last=False)


def _opened(path: str | None, grows: bool) -> KeyLog:
    return KeyLog(path, grows)
