"""Tests with names of Wireshark that stand for several columns, as tests of these columns.

In: a `Comparison` as written. Out: the tree that it means. Called by: `filter.of_tree`. Names that stand for one column
are in `filter_columns.ALIASES`.
"""

import re

from mqpcap.protocols import protocols
from mqpcap.query.filter_columns import RELATIVE_TIME
from mqpcap.query.grammar import Comparison, Logic, Tree

EITHER_END = {
    "ip.addr": ("src_ip", "dst_ip"), "ipv6.addr": ("src_ip", "dst_ip"), "ip.host": ("src_ip", "dst_ip"),
    "tcp.port": ("src_port", "dst_port"),
}  # fmt: skip
"""Names that match if either end of a message does; ``!=`` is true if neither end is equal, as in Wireshark 4."""


def columns_test(test: Comparison) -> Tree:
    """The test of columns that a test means.

    >>> columns_test(Comparison("tcp.port", "!=", ("80",)))  # doctest: +NORMALIZE_WHITESPACE
    Logic(word='and', parts=(Comparison(name='src_port', relation='!=', values=('80',)),
        Comparison(name='dst_port', relation='!=', values=('80',))))
    """
    if ends := EITHER_END.get(test.name):
        tests = tuple(Comparison(name, test.relation, test.values) for name in ends)
        return Logic("and" if test.relation == "!=" else "or", tests)
    if test.name == RELATIVE_TIME:
        values = (f"+{x}s" if isinstance(x, str) and re.fullmatch(r"\d*\.?\d+", x) else x for x in test.values)
        return Comparison("ts", test.relation, tuple(values))
    protocol, _, column = test.name.lower().partition(".")
    if protocol not in protocols():
        return test
    is_protocol = Comparison("protocol", "==", (protocol,))
    if not column and test.relation in ("is", "exists"):
        return is_protocol
    return Logic("and", (is_protocol, Comparison("op", test.relation, test.values))) if column == "op" else test
