"""A declared rule as tables by code."""

import pyarrow as pa

from mqpcap.correlate.rules import request_groups
from mqpcap.schema.requests import CorrelationRule, RequestKind, RequestRule

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
