"""What connections of a protocol know of each other by a key that both show, as fq's data connections do."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from mqpcap.schema.protocol import Evidence

MAX_SHARED_KEYS = 1 << 16
"""Keys remembered; beyond it the oldest go first."""
MAX_SHARED_SERVERS = 16
"""Addresses remembered for one key: a broker may have several."""
MAX_SHARED_TIMES = 64
"""Facts remembered of a key at one address."""
Fact = tuple[str, str, int, int, Any, int]
"""A key (hashed: it may be a secret), address and port of the server, when it was told, what, by which connection."""


@dataclass(slots=True)
class SharedFacts:
    """The facts of one protocol; ``asked``: hashes of the keys that were asked for."""

    asked: set[str] = field(default_factory=set)
    _facts: dict[str, dict[tuple[str, int], list[Fact]]] = field(default_factory=dict)

    def tell(self, key: bytes, by: Evidence, ts_ns: int, what: Any) -> None:
        """Remember what a connection showed with a key."""
        self.take((_hashed(key), by.server_ip, by.server_port, ts_ns, what, by.connection_id))

    def take(self, fact: Fact) -> None:
        """Remember a fact, from here or from another share of the capture; facts come in order of time."""
        key, server = fact[0], (fact[1], fact[2])
        at = self._facts.setdefault(key, {})
        at[server] = [*at.pop(server, ())[-MAX_SHARED_TIMES + 1 :], fact]
        if len(at) > MAX_SHARED_SERVERS:
            del at[next(iter(at))]
        if len(self._facts) > MAX_SHARED_KEYS:
            del self._facts[next(iter(self._facts))]

    def find(self, key: bytes, by: Evidence, ts_ns: int) -> Any:
        """The last fact of a key by that time, at the connection's own server if there is one; None without any."""
        fact = self.nearest(key, by, ts_ns)
        return None if fact is None else fact[4]

    def nearest(self, key: bytes, by: Evidence, ts_ns: int) -> Fact | None:
        """The same with who told it, and when."""
        hashed = _hashed(key)
        if len(self.asked) < MAX_SHARED_KEYS:
            self.asked.add(hashed)
        told = [fact for at in self._facts.get(hashed, {}).values() for fact in at if fact[3] <= ts_ns]
        here = [fact for fact in told if fact[1:3] == (by.server_ip, by.server_port)]
        return max(here or told, key=lambda fact: fact[3], default=None)

    def told(self) -> list[Fact]:
        """All facts, in order of time."""
        return sorted((f for at in self._facts.values() for facts in at.values() for f in facts), key=lambda f: f[3])

    def forget(self, connection_ids: set[int]) -> None:
        """Drop the facts of these connections, and what was asked."""
        self.asked.clear()
        left = [fact for fact in self.told() if fact[5] not in connection_ids]
        self._facts.clear()
        for fact in left:
            self.take(fact)


def _hashed(key: bytes) -> str:
    return hashlib.blake2b(key, digest_size=16).hexdigest()
