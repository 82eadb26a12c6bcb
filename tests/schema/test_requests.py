"""Which reply may answer which request: a rule by names, against the same rule as tables by code."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.correlate.rules import request_groups
from mqpcap.schema.requests import CorrelationRule, RequestRule

NAMES = ("get", "put", "got", "done", "failed", "news")
some = st.frozensets(st.sampled_from(NAMES), max_size=3)
asks = st.builds(RequestRule, st.sampled_from(["always", "maybe", "ignored"]), some)
rules = st.builds(
    CorrelationRule,
    st.dictionaries(st.sampled_from(NAMES), asks, max_size=3),
    otherwise=st.none() | asks,
    errors=some,
    unasked=some,
)


@given(rules)
def test_a_reply_fits_where_the_tables_of_the_rule_say_so(rule: CorrelationRule) -> None:
    """A name that is not there, and one that the rule does not have, are among them."""
    (lane,) = request_groups(rule)
    ops = [*NAMES, "else", None]
    n = len(ops)
    table = pa.table({"direction": ["c2s"] * n + ["s2c"] * n, "op": pa.array(ops * 2, pa.string())})
    codes = lane.codes(table).tolist()

    for asked, ask in zip(ops, codes[:n], strict=True):
        for said, say in zip(ops, codes[n:], strict=True):
            assert rule.fits(asked, said) == bool(lane.tables.accepted_replies[0][ask] & lane.tables.reply_bits[say]), (
                asked,
                said,
            )


def test_what_is_no_request_has_no_answer() -> None:
    rule = CorrelationRule(asks={"get": RequestRule("always")}, unasked=frozenset({"news"}))

    assert rule.fits("get", "anything")
    assert not rule.fits("get", "news")
    assert not rule.fits("put", "anything")
    assert not rule.fits(None, "anything")


def test_columns_of_every_part_of_a_rule_are_needed_once() -> None:
    queue = CorrelationRule(asks={}, tie=("id", "part"), columns=("body",))
    rule = CorrelationRule(asks={}, tie=("id",), columns=("key",), one_way=("mode", 3), queues=(queue,))

    assert rule.needed == ("id", "key", "mode", "part", "body")
