"""A declared rule as tables by code."""

from pathlib import Path

import pyarrow as pa
import pytest
from batches import PRINTS

from mqpcap import read
from mqpcap.correlate.rules import request_groups
from mqpcap.protocols.flymq import RULE as FLYMQ
from mqpcap.schema.requests import NO_ECHO_KEY, CorrelationRule, RequestKind, RequestRule

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
RULE = CorrelationRule(
    asks={
        "Get": RequestRule("always", frozenset({"Got"})),
        "Maybe": RequestRule("maybe", frozenset({"Got"})),
        "Put": RequestRule("ignored"),
    },
    otherwise=RequestRule("always"),
    errors=frozenset({"Error"}),
    unasked=frozenset({"Push"}),
    one_way=("mode", 3),
)


def codes(*rows: tuple[str, str, int]) -> list[int]:
    directions, ops, modes = zip(*rows, strict=True)
    table = pa.table({"direction": directions, "op": ops, "f.mode": modes})
    return [int(x) for x in request_groups(RULE)[0].codes(table)]


def test_requests_are_of_the_kind_that_is_declared() -> None:
    tables = request_groups(RULE)[0].tables
    asked = codes(("c2s", "Get", 0), ("c2s", "Maybe", 0), ("c2s", "Put", 0), ("c2s", "Strange", 0), ("c2s", "Get", 3))

    kinds = [
        RequestKind.ONE_REPLY,
        RequestKind.OPTIONAL_REPLY,
        RequestKind.ONE_WAY,
        RequestKind.ONE_REPLY,
        RequestKind.OPTIONAL_REPLY,
    ]
    assert [tables.kind[0][code] for code in asked] == kinds


def test_replies_fit_as_is_declared() -> None:
    tables = request_groups(RULE)[0].tables
    get, strange = codes(("c2s", "Get", 0), ("c2s", "Strange", 0))
    got, error, push, other = codes(("s2c", "Got", 0), ("s2c", "Error", 0), ("s2c", "Push", 0), ("s2c", "Else", 0))

    def fits(asked: int, said: int) -> bool:
        return bool(tables.accepted_replies[0][asked] & tables.reply_bits[said])

    assert [fits(get, said) for said in (got, error, push, other)] == [True, True, False, False]
    assert [fits(strange, said) for said in (got, error, push, other)] == [True, True, False, True]
    assert tables.reply_bits[push] == 0


def test_operations_with_an_order_of_their_own_have_a_lane_each() -> None:
    alone = CorrelationRule(asks={"Ping": RequestRule("always", frozenset({"Pong"}))})
    both = request_groups(CorrelationRule(asks={}, queues=(alone,)))

    assert len(both) == 2
    table = pa.table({"direction": ["c2s", "s2c", "s2c"], "op": ["Ping", "Pong", "Else"]})
    assert [both[1].tables.reply_bits[code] > 0 for code in both[1].codes(table)] == [False, True, False]


@pytest.mark.parametrize("path", sorted((PCAPS / "flymq").glob("*.pcap")), ids=lambda path: path.stem)
def test_replies_of_flymq_repeat_what_is_declared(path: Path) -> None:
    """In captures of the real server, each certain pair has the values on both sides, or one side has none."""
    repeats = {op: columns for ops, columns in FLYMQ.repeats.items() for op in ops}
    messages = {
        (row["connection_id"], row["direction"], row["stream_offset"]): row
        for row in read(path, "flymq", show_secrets=True).to_pylist()
    }
    differing = []
    for pair in read(path, "exchanges", filter="state == answered").to_pylist():
        request = messages[pair["connection_id"], "c2s", pair["request_offset"]]
        reply = messages[pair["connection_id"], "s2c", pair["reply_offset"]]
        for asked, said in repeats.get(pair["op"], {}).items():
            name, _, length = asked.partition(".")
            value = len(request[name]) if length and request[name] is not None else request[name]
            if None not in (value, reply[said]) and value != (max(reply[said], 0) if length else reply[said]):
                differing.append((pair, asked))

    assert not differing


def test_repeated_values_agree_and_what_is_missing_fits_all() -> None:
    """An empty key is answered with the length -1; an ERROR repeats nothing, nor does a reply without these columns."""
    rows = pa.table(
        {
            "direction": ["c2s", "s2c", "c2s", "s2c", "s2c", "s2c"],
            "op": ["PRODUCE", "PRODUCE", "PRODUCE", "PRODUCE", "ERROR", "PRODUCE"],
            "f.topic": ["a", "a", "b", "b", None, None],
            "f.key.length": pa.array([0, None, 3, None, None, None], pa.int32()),
            "f.value.length": pa.array([5, None, 5, None, None, None], pa.int32()),
            "f.key_size": pa.array([None, -1, None, 3, None, None], pa.int32()),
            "f.value_size": pa.array([None, 5, None, 5, None, None], pa.int32()),
        }
    )

    keys = request_groups(FLYMQ)[0].echo_keys(rows, PRINTS).tolist()

    assert keys[0] == keys[1]
    assert keys[2] == keys[3] != keys[0]
    assert keys[4:] == [NO_ECHO_KEY] * 2
