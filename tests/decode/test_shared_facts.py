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


def test_oldest_facts_make_room_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any key and server: by age alone."""
    monkeypatch.setattr(shared_facts, "MAX_SHARED_FACTS", 3)
    shared = SharedFacts()
    for k in range(5):
        shared.add_fact(b"%d" % (k % 2), evidence_at(k % 3), k, k)

    assert [fact[4] for fact in shared.facts()] == [2, 3, 4]
    assert (shared.forgotten_count, value(shared, b"0", evidence_at(9), 1)) == (2, None)


def test_key_of_many_servers_loses_none() -> None:
    """Copied and replayed sessions have one key."""
    shared = SharedFacts()
    for port in range(100):
        shared.add_fact(b"key", evidence_at(port), port, port)

    assert [value(shared, b"key", evidence_at(port), 1000) for port in range(100)] == [*range(100)]


def test_order_in_which_facts_come_does_not_matter() -> None:
    facts = [(b"key", evidence_at(k % 4), k // 4, k) for k in range(12)]
    forward, backward = SharedFacts(), SharedFacts()
    for fact in facts:
        forward.add_fact(*fact)
    for fact in reversed(facts):
        backward.add_fact(*fact)

    assert forward.facts() == backward.facts()
    for port, ts_ns in ((port, ts_ns) for port in range(5) for ts_ns in range(4)):
        assert value(forward, b"key", evidence_at(port), ts_ns) == value(backward, b"key", evidence_at(port), ts_ns)


def test_a_repeated_fact_does_not_replace_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_facts, "MAX_SHARED_FACTS", 3)
    shared = SharedFacts()
    for k in range(6):
        shared.add_fact(b"key", evidence_at(1), 100 + k, "login")

    assert value(shared, b"key", evidence_at(1), 100) == "login"
    assert value(shared, b"key", evidence_at(1), 99) is None
