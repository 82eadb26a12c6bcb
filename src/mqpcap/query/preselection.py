"""What a filter says of connections and of time, asked of packets before work is spent on them.

Only conditions that must be true for every row count: those that ``and`` joins at the top. A condition on an address or
a port is asked of both ends of a connection, so that no connection with a selected message is left out.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, or_
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mqpcap.query.evaluation import Bound, Condition
from mqpcap.query.grammar import And, Or
from mqpcap.query.values import Endpoint, Kind, Moment, Network
from mqpcap.tcp.muting import End

_PORTS = frozenset({"src_port", "dst_port", "client_port", "server_port"})
_COMPARED = {"==": eq, "<": lt, "<=": le, ">": gt, ">=": ge}
_HALF = (1 << 64) - 1


class _Test(Protocol):
    def __call__(self, version: NDArray[np.integer], end: End) -> NDArray[np.bool_]: ...


@dataclass(frozen=True, slots=True)
class _AnyEnd:
    """An end is one of these."""

    endpoints: tuple[Endpoint, ...]

    def __call__(self, version: NDArray[np.integer], end: End) -> NDArray[np.bool_]:
        found = np.zeros(len(version), np.bool_)
        for one in self.endpoints:
            here = np.ones(len(version), np.bool_) if one.network is None else _inside(one.network, version, end)
            found |= here if one.port is None else here & (end.port == one.port)
        return found


@dataclass(frozen=True, slots=True)
class _PortIs:
    """The port compares so with any of these."""

    relation: str
    ports: tuple[int, ...]

    def __call__(self, version: NDArray[np.integer], end: End) -> NDArray[np.bool_]:
        if self.relation == "in":
            return np.isin(end.port, self.ports)
        found: NDArray[np.bool_] = _COMPARED[self.relation](end.port, self.ports[0])
        return found


@dataclass(frozen=True, slots=True)
class Preselection:
    """Whom a filter can select rows of; can be sent to other processes."""

    tests: "tuple[tuple[_Test, ...], ...]"
    """Of each a test must be true of an end."""
    until: tuple[tuple[Moment, bool], ...] = ()
    """Times at which selected messages have begun, True where that time itself still counts."""

    def connections(self, version: NDArray[np.integer], one: End, other: End) -> NDArray[np.bool_]:
        """Which connections may have selected rows, given both ends in either order."""
        found = [reduce(or_, (test(version, end) for test in some for end in (one, other))) for some in self.tests]
        return reduce(and_, found, np.ones(len(version), np.bool_))

    def until_ns(self, first_ns: int) -> int | None:
        """The time at which no selected message begins any more, in a capture that begins then; None for none."""
        return min((moment.at(first_ns) + inclusive for moment, inclusive in self.until), default=None)


def preselection(bound: Bound) -> Preselection | None:
    """What a filter says of connections and time, None if nothing."""
    parts = bound.parts if isinstance(bound, And) else (bound,)
    tests = tuple(test for part in parts if (test := _tests(part)) is not None)
    until = tuple(time for part in parts for time in _until(part))
    return Preselection(tests, until) if tests or until else None


def _tests(bound: Bound) -> "tuple[_Test, ...] | None":
    """Tests one of which is true of an end wherever the condition is true; None where nothing can be said."""
    if isinstance(bound, Or):
        each = [_tests(part) for part in bound.parts]
        known = [some for some in each if some is not None]
        return sum(known, ()) if len(known) == len(each) else None
    if not isinstance(bound, Condition) or bound.relation not in ("in", *_COMPARED):
        return None
    name = bound.column.name
    if name in _PORTS:
        return (_PortIs(bound.relation, _numbers(bound.values)),)
    ends: list[Endpoint] = []
    for kind, values in bound.values.items():
        if kind not in (Kind.ADDRESS, Kind.ENDPOINT, Kind.CONNECTION):
            return None
        for value in values:
            if isinstance(value, ipaddress.IPv4Network | ipaddress.IPv6Network):
                ends.append(Endpoint(value))
            elif isinstance(value, Endpoint):
                ends.append(value)
            else:
                return None
    return (_AnyEnd(tuple(ends)),) if all(place.table == "messages" for place in bound.column.places) else None


def _numbers(values: Mapping[Kind, tuple[object, ...]]) -> tuple[int, ...]:
    return tuple(value for value in values[Kind.INTEGER] if isinstance(value, int))


def _until(bound: Bound) -> list[tuple[Moment, bool]]:
    if not isinstance(bound, Condition) or bound.relation not in ("<", "<="):
        return []
    if [place.path for place in bound.column.places] != [("ts_ns",)]:
        return []
    return [(v, bound.relation == "<=") for v in bound.values[Kind.TIME] if isinstance(v, Moment)]


def _inside(network: Network, version: NDArray[np.integer], end: End) -> NDArray[np.bool_]:
    address, mask = int(network.network_address), int(network.netmask)
    hi, lo = end.hi.view(np.uint64), end.lo.view(np.uint64)
    here: NDArray[np.bool_] = version == network.version
    here &= lo & np.uint64(mask & _HALF) == np.uint64(address & _HALF)
    if network.version == 6:
        here &= hi & np.uint64(mask >> 64) == np.uint64(address >> 64)
    return here
