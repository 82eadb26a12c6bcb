"""Facts that connections of one protocol share through a key that both send.

Example: fq's login, which names its data connections.
"""

import hashlib
from dataclasses import field
from typing import Any

from mqpcap.records import dataclass
from mqpcap.schema.protocol import Evidence

MAX_SHARED_KEYS = 1 << 16
"""Keys stored; beyond it the oldest are dropped."""
MAX_SHARED_SERVERS = 16
"""Addresses stored for a key: a broker may have several."""
MAX_SHARED_TIMES = 64
"""Facts stored for a key at one address."""
SharedFact = tuple[str, str, int, int, Any, int]
"""Key (hashed: it may be a secret), address and port of the server, time, value, id of the connection that sent it."""


@dataclass(slots=True)
class SharedFacts:
    """The facts of one protocol; ``lookups``: hashes of the keys that were looked up."""

    lookups: set[str] = field(default_factory=set)
    _facts: dict[str, dict[tuple[str, int], list[SharedFact]]] = field(default_factory=dict)

    def add_fact(self, key: bytes, evidence: Evidence, ts_ns: int, value: Any) -> None:
        """Store a value that a connection showed with a key."""
        self.add((_hashed(key), evidence.server_ip, evidence.server_port, ts_ns, value, evidence.connection_id))

    def add(self, fact: SharedFact) -> None:
        """Store a fact, of this or another share of the capture; facts come in order of time.

        A repeated fact is not stored, so that a client with many logins does not replace the first.
        """
        key, server = fact[0], (fact[1], fact[2])
        facts_by_server = self._facts.setdefault(key, {})
        last_fact = facts_by_server[server][-1] if server in facts_by_server else None
        if last_fact is not None and last_fact[3] <= fact[3] and last_fact[4] == fact[4]:
            return
        facts_by_server[server] = [*facts_by_server.pop(server, ())[-MAX_SHARED_TIMES + 1 :], fact]
        if len(facts_by_server) > MAX_SHARED_SERVERS:
            del facts_by_server[next(iter(facts_by_server))]
        if len(self._facts) > MAX_SHARED_KEYS:
            del self._facts[next(iter(self._facts))]

    def lookup_fact(self, key: bytes, evidence: Evidence, ts_ns: int) -> SharedFact | None:
        """The last fact of a key by that time, at the connection's own server if there is one; None without any."""
        hashed = _hashed(key)
        if len(self.lookups) < MAX_SHARED_KEYS:
            self.lookups.add(hashed)
        facts_by_server = self._facts.get(hashed, {})
        own_facts = facts_by_server.get((evidence.server_ip, evidence.server_port), [])
        for facts in ([own_facts], facts_by_server.values()):
            earlier = [fact for server_facts in facts for fact in server_facts if fact[3] <= ts_ns]
            if earlier:
                return max(earlier, key=lambda fact: fact[3])
        return None

    def facts(self) -> list[SharedFact]:
        """All facts, in order of time."""
        return sorted(
            (f for servers in self._facts.values() for facts in servers.values() for f in facts), key=lambda f: f[3]
        )


def _hashed(key: bytes) -> str:
    return hashlib.blake2b(key, digest_size=16).hexdigest()
