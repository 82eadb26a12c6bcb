"""Derives from a filter the connections and times that can match; other packets are dropped before reassembly.

Only conditions that must be true for every row count: those that ``and`` joins at the top. A condition on an address or
a port is asked of both ends of a connection, so that no connection with a selected message is left out.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import chain
from operator import and_, or_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mqpcap.query.evaluation import Bound, Condition, conjuncts
from mqpcap.query.grammar import Logic
from mqpcap.query.values import Endpoint, Moment, Network, ValueKind
from mqpcap.tcp.muting import ConnectionTest, End

_PORTS = frozenset({"src_port", "dst_port", "client_port", "server_port"})
_MOST = 65535
_RANGES: Mapping[str, Callable[[int], tuple[int, int]]] = {
    "==": lambda port: (port, port), "in": lambda port: (port, port),
    "<": lambda port: (0, port - 1), "<=": lambda port: (0, port),
    ">": lambda port: (port + 1, _MOST), ">=": lambda port: (port, _MOST),
}  # fmt: skip
"""The ports that compare so with another."""
_HALF = (1 << 64) - 1


class _EndTest(NamedTuple):
    """An end whose port is in a range and whose address, masked, is one of some; None: any address."""

    first_port: int = 0
    last_port: int = _MOST
    version: int = 0
    netmask: int = 0
    addresses: frozenset[int] | None = None

    def mask(self, version: NDArray[np.integer], end: End) -> NDArray[np.bool_]:
        hit: NDArray[np.bool_] = (end.port >= self.first_port) & (end.port <= self.last_port)
        if self.addresses is None:
            return hit
        hi, lo = end.hi.view(np.uint64), end.lo.view(np.uint64)
        has_version = version == self.version
        if self.version == 4:
            # An IPv4 address written as IPv6 (::ffff:192.0.2.10) is inside, too.
            has_version |= (version == 6) & (hi == 0) & (lo >> np.uint64(32) == np.uint64(0xFFFF))
        low = np.array([address & _HALF for address in self.addresses], np.uint64)
        hit &= has_version & np.isin(lo & np.uint64(self.netmask & _HALF), low)
        if self.version == 6:
            rows = np.flatnonzero(hit)
            whole = (high << 64 | rest for high, rest in zip(hi[rows].tolist(), lo[rows].tolist(), strict=True))
            hit[rows] = [address & self.netmask in self.addresses for address in whole]
        return hit


def _merged(tests: Sequence[_EndTest]) -> tuple[_EndTest, ...]:
    """The same tests, those that differ only in addresses as one: its cost does not grow with their number."""
    by_rest: dict[_EndTest, set[int]] = {}
    anywhere = [test for test in tests if test.addresses is None]
    for test in tests:
        if test.addresses is not None:
            by_rest.setdefault(test._replace(addresses=None), set()).update(test.addresses)
    return (*anywhere, *(rest._replace(addresses=frozenset(addresses)) for rest, addresses in by_rest.items()))


def connection_test(bound: Bound) -> ConnectionTest | None:
    """Which connections may have selected rows, None for all; can be sent to other processes."""
    tests = [_merged(test) for part in conjuncts(bound) if (test := _tests(part)) is not None]
    return partial(_may_be, tests) if tests else None


def _may_be(
    tests: Sequence[Sequence[_EndTest]], version: NDArray[np.integer], one: End, other: End
) -> NDArray[np.bool_]:
    """Of each of several tests one must be true of an end."""
    found = (reduce(or_, (test.mask(version, end) for test in some for end in (one, other))) for some in tests)
    return reduce(and_, found)


def until(bound: Bound) -> Callable[[int], int | None] | None:
    """Maps the start of a capture to the end of the matching time range; None if the filter sets no bound."""
    times = [time for part in conjuncts(bound) for time in _times(part)]
    return partial(_first_of, times) if times else None


def _first_of(times: Sequence[tuple[Moment, bool]], first_ns: int) -> int:
    return min(moment.at(first_ns) + inclusive for moment, inclusive in times)


def _tests(bound: Bound) -> tuple[_EndTest, ...] | None:
    """Tests one of which is true of an end wherever the condition is true; None where nothing can be said."""
    if isinstance(bound, Logic) and bound.word == "or":
        each = [_tests(part) for part in bound.parts]
        known = [some for some in each if some is not None]
        return tuple(chain.from_iterable(known)) if len(known) == len(each) else None
    if not isinstance(bound, Condition) or bound.relation not in _RANGES:
        return None
    if any(place.table != "messages" for place in bound.column.places):
        return None
    ports_of = _RANGES[bound.relation] if bound.column.name in _PORTS else None
    tests = []
    for value in (value for values in bound.values.values() for value in values):
        if isinstance(value, ipaddress.IPv4Network | ipaddress.IPv6Network):
            tests.append(_network_test(value))
        elif isinstance(value, Endpoint):
            ports = () if value.port is None else (value.port, value.port)
            tests.append(_EndTest(*ports) if value.network is None else _network_test(value.network, *ports))
        elif isinstance(value, int) and ports_of is not None:
            tests.append(_EndTest(*ports_of(value)))
        else:
            return None
    return tuple(tests)


def _times(bound: Bound) -> list[tuple[Moment, bool]]:
    """Times at which selected messages have begun, True where that time itself still counts."""
    if not isinstance(bound, Condition) or bound.relation not in ("<", "<="):
        return []
    if [place.path for place in bound.column.places] != [("ts_ns",)]:
        return []
    return [(v, bound.relation == "<=") for v in bound.values[ValueKind.TIME] if isinstance(v, Moment)]


def _network_test(network: Network, first_port: int = 0, last_port: int = _MOST) -> _EndTest:
    addresses = frozenset([int(network.network_address)])
    return _EndTest(first_port, last_port, network.version, int(network.netmask), addresses)
