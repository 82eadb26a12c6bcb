"""What connections tell each other by a key."""

import pytest

from mqpcap.decode import shared_facts
from mqpcap.decode.shared_facts import SharedFacts
from mqpcap.schema.protocol import Evidence


def evidence_at(port: int, connection_id: int = 1) -> Evidence:
    return Evidence(connection_id, "10.0.0.1", port, 0)


def value(shared: SharedFacts, key: bytes, evidence: Evidence, ts_ns: int) -> object:
    """What the fact says that a connection gets for a key, None without one."""
    fact = shared.lookup_fact(key, evidence, ts_ns)
    return None if fact is None else fact[4]


def test_the_last_earlier_fact_of_the_own_server_counts() -> None:
    shared = SharedFacts()
    for port, ts_ns, what in ((1, 100, "one"), (2, 200, "two"), (1, 300, "three")):
        shared.add_fact(b"key", evidence_at(port), ts_ns, what)

    assert [value(shared, b"key", evidence_at(1), ts_ns) for ts_ns in (99, 100, 299, 300)] == [
        None,
        "one",
        "one",
        "three",
    ]
    assert value(shared, b"key", evidence_at(3), 250) == "two"  # nobody told it there: the last anywhere
    assert value(shared, b"other", evidence_at(1), 400) is None


def test_keys_are_not_kept_as_they_are() -> None:
    shared = SharedFacts()
    shared.add_fact(b"a secret", evidence_at(1), 1, "what")
    shared.lookup_fact(b"another one", evidence_at(1), 1)

    assert not any("secret" in str(fact) for fact in shared.facts())
    assert len(shared.lookups) == 1 and "another one" not in shared.lookups


@pytest.mark.parametrize(
    ("limit", "keys", "ports"),
    [("MAX_SHARED_KEYS", 5, 1), ("MAX_SHARED_SERVERS", 1, 5), ("MAX_SHARED_TIMES", 1, 1)],
)
def test_each_limit_lets_the_oldest_go(monkeypatch: pytest.MonkeyPatch, limit: str, keys: int, ports: int) -> None:
    monkeypatch.setattr(shared_facts, limit, 3)
    shared = SharedFacts()
    for k in range(5):
        shared.add_fact(b"%d" % (k % keys), evidence_at(k % ports), k, k)

    assert [fact[4] for fact in shared.facts()] == [2, 3, 4]


def test_a_repeated_fact_does_not_replace_the_first() -> None:
    shared = SharedFacts()
    for k in range(2 * shared_facts.MAX_SHARED_TIMES):
        shared.add_fact(b"key", evidence_at(1), 100 + k, "login")

    assert value(shared, b"key", evidence_at(1), 100) == "login"
    assert value(shared, b"key", evidence_at(1), 99) is None
