"""The secrets of TLS sessions, from key logs as clients write them (NSS key log format).

In: the lines of a key log, and secrets in pcapng files. Out: the secrets of a session, by its client random. A key log
may grow while a capture is read. The secrets are never printed, and never pickled: a copy reads the file again.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Iterable
from itertools import chain

from mqpcap.errors import CaptureError
from mqpcap.tls.record_ciphers import require_library

MASTER = "CLIENT_RANDOM"
TRAFFIC = 2
"""The generation of keys that application data begins with: later ones follow by key updates."""
LABELS = tuple(
    (f"CLIENT_{name}", f"SERVER_{name}")
    for name in ("EARLY_TRAFFIC_SECRET", "HANDSHAKE_TRAFFIC_SECRET", "TRAFFIC_SECRET_0")
)
"""The labels of TLS 1.3, by generation of keys and side (client, server)."""
_LABEL = "|".join((MASTER, *chain(*LABELS))).encode()
_LINE = re.compile(rb"\s*(%b)\s+([0-9a-fA-F]{64})\s+([0-9a-fA-F]{96}|[0-9a-fA-F]{64})\s*$" % _LABEL)
MAX_SESSIONS = 1 << 18
"""Sessions whose secrets are kept; beyond it the oldest are forgotten."""
MAX_RESUMABLE = 1 << 16
"""Session ids and tickets that are remembered."""
MAX_ALL_LATE_TRIALS = 1 << 20
"""Keys and sequence numbers that are tried in a run for connections without hellos, or without a line of their own."""
MAX_LINE_BYTES = 1024
"""A longer line of a key log holds no secret; it is read in parts."""


class KeyLog:
    """The secrets by client random; ``path``: a key log file, None if all come from elsewhere.

    ``grows``: lines may be appended while a capture is read, so a missing secret may come.
    ``resumable``: by session id or hash of a ticket, the client random of the session that a client may resume. In TLS
    1.2 it resumes with the same master secret, and some clients write no line for it.
    ``has_traffic``: there are secrets of TLS 1.3.
    """

    def __init__(self, path: str | None = None, grows: bool = False) -> None:
        self.path, self.grows = path, grows
        self.resumable: OrderedDict[bytes, bytes] = OrderedDict()
        self._sessions: OrderedDict[bytes, dict[str, bytes]] = OrderedDict()  # a dict looks for its first key
        self.late_trials = MAX_ALL_LATE_TRIALS
        self.has_traffic = False
        self.forgotten_count = self._size_bytes = self._read_bytes = 0
        self.refresh()

    @classmethod
    def opened(cls, path: str | None) -> "KeyLog":
        """A key log for reading captures. Raises CaptureError if it cannot be read, or the library is not there."""
        require_library()
        return cls(path)

    def __repr__(self) -> str:
        return f"KeyLog({self.path!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled without secrets: whoever loads it reads the file."""
        return KeyLog, (self.path, self.grows)

    def refresh(self) -> bool:
        """Read the lines that were appended to the file; whether there were any. The last may not be whole."""
        if self.path is None:
            return False
        try:
            size = os.stat(self.path).st_size
            if size == self._size_bytes:
                return False
            # A file that is not longer was written anew.
            self._read_bytes, self._size_bytes = self._read_bytes if size > self._size_bytes else 0, size
            with open(self.path, "rb") as file:
                file.seek(self._read_bytes)
                while line := file.readline(MAX_LINE_BYTES):
                    self.add([line])
                    if line.endswith(b"\n") or len(line) == MAX_LINE_BYTES:
                        self._read_bytes += len(line)
        except OSError as error:
            if self.grows and isinstance(error, FileNotFoundError):
                return False  # the client creates it with its first session
            raise CaptureError(f"the key log {self.path} cannot be read: {error.strerror}") from None
        return True

    def add(self, lines: Iterable[bytes]) -> None:
        """Add the secrets of lines; other lines are ignored."""
        for match in filter(None, map(_LINE.match, lines)):
            label, random, secret = match[1].decode(), bytes.fromhex(match[2].decode()), match[3].decode()
            self._sessions.setdefault(random, {})[label] = bytes.fromhex(secret)
            self.has_traffic |= label == LABELS[TRAFFIC][0]
            if len(self._sessions) > MAX_SESSIONS:
                self.forgotten_count += 1
                self._sessions.popitem(last=False)

    def secrets(self, random: bytes) -> dict[str, bytes]:
        """The secrets of the session with a client random; empty if there are none."""
        return self._sessions.get(random, {})

    def randoms(self, label: str) -> Iterable[bytes]:
        """The client randoms of the sessions with a secret, the newest first."""
        return (random for random, secrets in reversed(self._sessions.items()) if label in secrets)

    def remember(self, name: bytes, random: bytes) -> None:
        """Note that clients may resume the session with a client random by a session id or the hash of a ticket."""
        self.resumable[name] = random
        if len(self.resumable) > MAX_RESUMABLE:
            self.resumable.popitem(last=False)
