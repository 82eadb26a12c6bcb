"""Facts that connections of one protocol share through a key that both send.

Example: fq's login, which names its data connections.
"""

import hashlib
from bisect import bisect_right, insort
from collections import deque
from dataclasses import field
from typing import Any

from mqpcap.records import dataclass
from mqpcap.schema.protocol import Evidence

MAX_SHARED_FACTS = 1 << 17
"""Facts stored, about 400 bytes each; beyond it the oldest are forgotten and counted."""
MAX_LOOKUPS = 1 << 16
"""Recorded keys of lookups."""
SharedFact = tuple[str, str, int, int, Any, int]
"""Key (hashed: it may be a secret), address and port of the server, time, value, id of the connection that sent it."""


@dataclass(slots=True)
class SharedFacts:
    """The facts of one protocol; ``lookups``: hashes of the keys that were looked up."""

    lookups: set[str] = field(default_factory=set)
    forgotten_count: int = 0
    """Facts that were forgotten to make room."""
    _by_age: deque[SharedFact] = field(default_factory=deque)
    _by_key: dict[tuple[object, ...], list[SharedFact]] = field(default_factory=dict)
    """In order of time: the facts of a key, and those of a key at a server."""

    def add_fact(self, key: bytes, evidence: Evidence, ts_ns: int, value: Any) -> None:
        """Store a value that a connection showed with a key."""
        self.add((_hashed(key), evidence.server_ip, evidence.server_port, ts_ns, value, evidence.connection_id))

    def add(self, fact: SharedFact) -> None:
        """Store a fact of this or another share of the capture. A fact that repeats the last value is not stored."""
        before = self._last(fact[:3], fact[3])
        if before is not None and before[4] == fact[4]:
            return
        self._by_age.append(fact)
        for key in (fact[:1], fact[:3]):
            insort(self._by_key.setdefault(key, []), fact, key=_order)
        if len(self._by_age) > MAX_SHARED_FACTS:
            self.forgotten_count += 1
            oldest = self._by_age.popleft()
            for key in (oldest[:1], oldest[:3]):
                self._by_key[key].remove(oldest)
                if not self._by_key[key]:
                    del self._by_key[key]

    def lookup_fact(self, key: bytes, evidence: Evidence, ts_ns: int) -> SharedFact | None:
        """The last fact of a key by that time, at the connection's own server if there is one; None without any."""
        hashed = _hashed(key)
        if len(self.lookups) < MAX_LOOKUPS:
            self.lookups.add(hashed)
        own_fact = self._last((hashed, evidence.server_ip, evidence.server_port), ts_ns)
        return own_fact if own_fact is not None else self._last((hashed,), ts_ns)

    def _last(self, key: tuple[object, ...], ts_ns: int) -> SharedFact | None:
        facts = self._by_key.get(key, [])
        count = bisect_right(facts, ts_ns, key=lambda fact: fact[3])
        return facts[count - 1] if count else None

    def facts(self) -> list[SharedFact]:
        """All facts, in order of time."""
        return sorted(self._by_age, key=_order)


def _order(fact: SharedFact) -> tuple[int, str, int]:
    """The time of a fact, then its server."""
    return fact[3], fact[1], fact[2]


def _hashed(key: bytes) -> str:
    return hashlib.blake2b(key, digest_size=16).hexdigest()
