"""Groups capture files that are pieces of one recording (file sets).

In: names and times of files. Out: groups of their indices, in order of time. Called by: ``inputs`` and ``rotation``.
Files of one directory are one capture if their names differ only in a counter or a time, as
tcpdump, dumpcap and editcap write them, and if their times ascend. Borders may overlap by some packets, as those of
several queues do. All else stays apart.

The recognised names, each with or without the ending of a compressor:

    tcpdump -C          broker.pcap, broker.pcap1, broker.pcap2 (with -W: broker.pcap00)
    tcpdump -G          broker-20261121064644.pcap, broker_2026-11-21_06:46:44.pcap1, broker-1795243604.pcap
    dumpcap, editcap    broker_00003_20261121064644.pcapng, broker_20261121064644_00003.pcapng,
                        broker_00003.pcapng
    tcpdump -G          broker-Mon.pcap, broker_Tuesday.pcap (%a, %A)
    Arkime              broker-261121-00000012.pcap
    stenographer        1795243604123456 (microseconds since 1970)
    Suricata            log.pcap.1795243604.123456, with threads log.2.1795243604.pcap: a recording for each thread
    n2disk              1795243604.507696.pcap
    FMADIO              broker_20261121_064644.123.456.789.pcap, broker_20261121_06-46-44.123456789.pcap,
                        broker_2026-11-21_06:46:44+09:00.pcap, broker_1795243604-1795243664.pcap

A ring of files (-W) starts anew at its first name, so files are ordered by their times and not by counters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby

from mqpcap.records import dataclass

TimeSpan = tuple[int, int]
"""Times of a file's first and last packet, ns."""
MAX_BORDER_NS = 1_000_000_000
"""Borders of files overlap by less, and by less than a tenth of each file: BORDER_DIVISOR."""
BORDER_DIVISOR = 10

_COMPRESSOR = re.compile(r"\.(gz|bz2|xz|zst|zstd|lz4|z)$", re.IGNORECASE)

# Longest first: a date with a time, a date, a time with separators, seconds since 1970.
_YEAR, _MONTH, _DAY = r"(?:19|20)\d\d", r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"
_HOUR, _SIXTY = r"(?:[01]\d|2[0-3])", r"[0-5]\d"
_DATE = rf"{_YEAR}(?P<d>[-_.]?){_MONTH}(?P=d){_DAY}"
_CLOCK = rf"{_HOUR}(?P<c>[-_.:h]?){_SIXTY}(?:(?P=c){_SIXTY}(?:\.\d{{9}}|(?:\.\d{{3}}){{3}})?|m{_SIXTY})?s?"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)?"
_CLOCK_ALONE = rf"{_HOUR}(?P<e>[-_.:]){_SIXTY}(?P=e){_SIXTY}"
# Seconds, milliseconds, microseconds, nanoseconds; seconds and microseconds, the latter without zeros in front.
_EPOCH = r"[12]\d{9}(?:\d{3}|\d{6}|\d{9}|\.\d{1,6}|-[12]\d{9})?"
_SHORT_DATE = rf"\d\d{_MONTH}{_DAY}(?=-\d{{8}}\.)"
_WEEKDAY = r"(?<![a-zA-Z])(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?(?![a-zA-Z])"
_TIME = re.compile(
    rf"(?<!\d)(?:(?<!\d\.)(?:{_DATE}(?:[-_.T @]?{_CLOCK}{_ZONE})?|{_CLOCK_ALONE}|{_SHORT_DATE}|{_WEEKDAY})"
    rf"|{_EPOCH})(?!\d)(?!\.\d)"
)
_RING = re.compile(r"^(?P<stem>.+)(?:_|(?<=\0)-)(?P<counter>\d{5,9})(?P<rest>(?:_\0)?(?:\.[^.]*)?)$")
# The counter of tcpdump -C is the very end of the name. After a digit and a dot the number could be part of an address.
_LAST_COUNTER = re.compile(r"^(?P<stem>.*\D)(?<!\d\.)(?P<counter>\d{1,9})$", re.DOTALL)


def is_border(earlier: TimeSpan, later: TimeSpan) -> bool:
    """Whether two files overlap by no more than the borders of rotated files do."""
    shorter_ns = min(earlier[1] - earlier[0], later[1] - later[0])
    return earlier[1] - later[0] < min(MAX_BORDER_NS, shorter_ns / BORDER_DIVISOR)


@dataclass(frozen=True, slots=True)
class RotatedName:
    """A file name without what rotation changes in it.

    times and counters are what was taken out, in order, for ordering files that hold no packets.
    """

    key: str
    times: tuple[str, ...]
    counter: int


def rotated_name(name: str) -> RotatedName:
    """The file name (no directory) without its counter and time.

    >>> rotated_name("broker.pcap12")
    RotatedName(key='broker.pcap', times=(), counter=12)
    """
    name = _COMPRESSOR.sub("", name).replace("\0", "")
    times = tuple(match.group() for match in _TIME.finditer(name))
    name = _TIME.sub("\0", name)
    if ring := _RING.match(name):
        return RotatedName(f"{ring['stem']}_\1{ring['rest']}", times, int(ring["counter"]))
    if last_match := _LAST_COUNTER.match(name):
        return RotatedName(last_match["stem"], times, int(last_match["counter"]))
    return RotatedName(name, times, -1)


def file_sets(places: Sequence[tuple[str, str]], span: Callable[[int], TimeSpan | None]) -> list[list[int]]:
    """Indices of the files, grouped into captures, each in order of time; captures in order of first mention.

    places: (directory, file name) of each file. span: the times of a file by its index, None if it holds no packet.
    It is called only for files whose names differ in a counter or a time.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    names = [rotated_name(name) for _, name in places]
    for index, (directory, _) in enumerate(places):
        groups.setdefault((directory, names[index].key), []).append(index)
    sets: list[list[int]] = []
    for members in groups.values():
        if len(members) == 1:
            sets.append(members)
            continue
        ordered = sorted(members, key=lambda index: (names[index].times, names[index].counter, places[index][1]))
        sets.extend(_runs(_timed(ordered, span)))
    return sorted(sets, key=min)


_Timed = tuple[int, int, int]
"""Times of a file's first and last packet, and its index."""


def _timed(ordered: Sequence[int], span: Callable[[int], TimeSpan | None]) -> list[_Timed]:
    """Files in order of time; a file without packets keeps its place by name, after its neighbour."""
    spans = [span(index) for index in ordered]
    known_spans = [each for each in spans if each is not None]
    place = min(known_spans)[0] if known_spans else 0
    timed: list[_Timed] = []
    for index, each in zip(ordered, spans, strict=True):
        if each is None:
            timed.append((place, place, index))
        else:
            place = each[1]
            timed.append((*each, index))
    return sorted(timed, key=lambda file: file[:2])


def _runs(timed: Sequence[_Timed]) -> list[list[int]]:
    """Split where times overlap: files that overlap stand alone, what is before and after them are captures."""
    clusters: list[list[int]] = []
    latest = (0, 0)
    for first_ns, last_ns, index in timed:
        span = first_ns, last_ns
        if clusters and latest[1] > first_ns and not is_border(latest, span):
            clusters[-1].append(index)
            latest = max(latest, span, key=lambda times: times[1])
        else:
            clusters.append([index])
            latest = span
    runs: list[list[int]] = []
    for is_alone, group in groupby(clusters, key=lambda cluster: len(cluster) == 1):
        indices = [index for cluster in group for index in cluster]
        runs += [indices] if is_alone else [[index] for index in indices]
    return runs
