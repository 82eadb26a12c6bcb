"""Derives from a filter the connections and times that can match; other packets are dropped before reassembly.

Only conditions that every selected row must meet count: those joined by ``and`` at the top level. A condition on an
address or a port is tested on both ends of a connection, so that no connection with a selected message is dropped.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import chain
from operator import and_, or_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mqpcap.query.evaluation import BoundFilter, Condition, and_parts
from mqpcap.query.grammar import Logic
from mqpcap.query.values import Endpoint, Moment, Network, ValueKind
from mqpcap.tcp.exclusion import ConnectionTest, Endpoints

_PORTS = frozenset({"src_port", "dst_port", "client_port", "server_port"})
_MAX_PORT = 65535
_RANGES: Mapping[str, Callable[[int], tuple[int, int]]] = {
    "==": lambda port: (port, port), "in": lambda port: (port, port),
    "<": lambda port: (0, port - 1), "<=": lambda port: (0, port),
    ">": lambda port: (port + 1, _MAX_PORT), ">=": lambda port: (port, _MAX_PORT),
}  # fmt: skip
"""The first and last port that match, by relation."""
_LOW_64_BITS = (1 << 64) - 1


class _EndTest(NamedTuple):
    """Tests an end: its port is in a range, and its masked address is in ``addresses`` (None: any address)."""

    first_port: int = 0
    last_port: int = _MAX_PORT
    version: int = 0
    netmask: int = 0
    addresses: frozenset[int] | None = None

    def mask(self, version: NDArray[np.integer], end: Endpoints) -> NDArray[np.bool_]:
        is_match: NDArray[np.bool_] = (end.port >= self.first_port) & (end.port <= self.last_port)
        if self.addresses is None:
            return is_match
        hi, lo = end.hi.view(np.uint64), end.lo.view(np.uint64)
        has_version = version == self.version
        if self.version == 4:
            # IPv4-mapped IPv6 addresses (::ffff:192.0.2.10) match, too.
            has_version |= (version == 6) & (hi == 0) & (lo >> np.uint64(32) == np.uint64(0xFFFF))
        low_halves = np.array([address & _LOW_64_BITS for address in self.addresses], np.uint64)
        is_match &= has_version & np.isin(lo & np.uint64(self.netmask & _LOW_64_BITS), low_halves)
        if self.version == 6:
            rows = np.flatnonzero(is_match)
            halves = zip(hi[rows].tolist(), lo[rows].tolist(), strict=True)
            is_match[rows] = [(high << 64 | low) & self.netmask in self.addresses for high, low in halves]
        return is_match


def _merged(tests: Sequence[_EndTest]) -> tuple[_EndTest, ...]:
    """Merges tests that differ only in addresses, so that the cost does not grow with the number of addresses."""
    addresses_by_test: dict[_EndTest, set[int]] = {}
    without_address = [test for test in tests if test.addresses is None]
    for test in tests:
        if test.addresses is not None:
            addresses_by_test.setdefault(test._replace(addresses=None), set()).update(test.addresses)
    merged = (test._replace(addresses=frozenset(addresses)) for test, addresses in addresses_by_test.items())
    return (*without_address, *merged)


def connection_test(tree: BoundFilter) -> ConnectionTest | None:
    """A test for connections that may have selected rows; None if all may. It can be pickled for other processes."""
    tests = [_merged(test) for part in and_parts(tree) if (test := _end_tests(part)) is not None]
    return partial(_may_match, tests) if tests else None


def _may_match(
    tests: Sequence[Sequence[_EndTest]], version: NDArray[np.integer], end: Endpoints, other_end: Endpoints
) -> NDArray[np.bool_]:
    """Whether connections pass all tests; a test passes if any of its alternatives is true of either end."""
    ends = (end, other_end)
    masks = (reduce(or_, (test.mask(version, x) for test in alternatives for x in ends)) for alternatives in tests)
    return reduce(and_, masks)


def until(tree: BoundFilter) -> Callable[[int], int | None] | None:
    """Maps the start of a capture to the end of the matching time range; None if the filter sets no bound."""
    times = [time for part in and_parts(tree) for time in _end_times(part)]
    return partial(_earliest_ns, times) if times else None


def _earliest_ns(times: Sequence[tuple[Moment, bool]], first_ns: int) -> int:
    return min(moment.time_ns(first_ns) + inclusive for moment, inclusive in times)


def _end_tests(tree: BoundFilter) -> tuple[_EndTest, ...] | None:
    """Tests of ends: where the tree is true, any of them is true of an end. None if no test can be derived."""
    if isinstance(tree, Logic) and tree.word == "or":
        part_tests = [_end_tests(part) for part in tree.parts]
        derived = [alternatives for alternatives in part_tests if alternatives is not None]
        return tuple(chain.from_iterable(derived)) if len(derived) == len(part_tests) else None
    if not isinstance(tree, Condition) or tree.relation not in _RANGES:
        return None
    if any(source.table != "messages" for source in tree.column.sources):
        return None
    port_range = _RANGES[tree.relation] if tree.column.name in _PORTS else None
    tests = []
    for value in (value for values in tree.values.values() for value in values):
        if isinstance(value, ipaddress.IPv4Network | ipaddress.IPv6Network):
            tests.append(_network_test(value))
        elif isinstance(value, Endpoint):
            ports = () if value.port is None else (value.port, value.port)
            tests.append(_EndTest(*ports) if value.network is None else _network_test(value.network, *ports))
        elif isinstance(value, int) and port_range is not None:
            tests.append(_EndTest(*port_range(value)))
        else:
            return None
    return tuple(tests)


def _end_times(tree: BoundFilter) -> list[tuple[Moment, bool]]:
    """Upper bounds on the time of selected messages; True if a message at the bound itself is selected, too."""
    if not isinstance(tree, Condition) or tree.relation not in ("<", "<="):
        return []
    if [source.path for source in tree.column.sources] != [("ts_ns",)]:
        return []
    return [(v, tree.relation == "<=") for v in tree.values[ValueKind.TIME] if isinstance(v, Moment)]


def _network_test(network: Network, first_port: int = 0, last_port: int = _MAX_PORT) -> _EndTest:
    addresses = frozenset([int(network.network_address)])
    return _EndTest(first_port, last_port, network.version, int(network.netmask), addresses)
