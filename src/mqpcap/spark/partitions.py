"""Captures to units of work for Spark.

A large capture is cut into shares of its connections, small ones are packed together: a Python task costs about 65 ms
whatever it does (measured), so one should have seconds of work. Few shares read all packets of their capture each; for
many the job distributes the packets first (`mqpcap.spark.distribute`).

Connections go to shares by a hash, the largest of them by their size so that the shares are even. How large they are
is guessed from the beginnings of some files; nothing depends on the guess but the time.
"""

import difflib
import heapq
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mqpcap.capture import Capture, WindowReader
from mqpcap.errors import CaptureError
from mqpcap.tcp.headers import Dissector

Item = TypeVar("Item")
_LOG = logging.getLogger(__name__)
MISSING = ("no such file", "no file matches")
"""How a search says that a path is not there."""
MAX_NAMES = 4096
"""So many names of a directory are compared with one that is not in it."""
PACK_BYTES = 64 << 20
"""Small captures fill a task up to this size."""
SHARE_BYTES = 64 << 20
"""A share is not made smaller than this."""
MAX_SHARES = 64
"""Tasks that distribute packets write so many parts side by side; small ones are slow to read."""
DISTRIBUTED_SHARES = 3
"""From so many shares on packets are distributed: the CPU of three passes over them (measured), and less reading."""

PINNED_PER_SHARE = 16
"""So many of the largest connections for each share are given to shares by their size."""
PACKET_BYTES = 66
"""What the headers of a packet count."""
LOOKS = 8
"""So many windows of a capture are looked at."""


@dataclass(frozen=True, slots=True)
class SharePlan:
    """How the connections of a capture are cut into shares.

    pinned says whose the largest are, by key. The rest go by their hash.
    """

    share_count: int
    pinned: tuple[tuple[int, int], ...] = ()

    def shares(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The share of each connection, told by its key."""
        shares = (keys.view(np.uint64) % np.uint64(self.share_count)).astype(np.int64)
        if self.pinned:
            known, share = np.array(sorted(self.pinned), np.int64).T
            at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            shares = np.where(known[at] == keys, share[at], shares)
        return shares


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """One task's work: a share, by its number, of one capture, or several whole captures.

    captures are (number in the input, capture).
    """

    captures: tuple[tuple[int, Capture], ...]
    number: int = 0
    cut: SharePlan = SharePlan(1)


def named_inputs(options: Mapping[str, str]) -> list[str]:
    """What ``load`` was given: one path, or a list of them as JSON.

    >>> named_inputs({"paths": '["a.pcap", "b"]'}), named_inputs({"path": "a.pcap"})
    (['a.pcap', 'b'], ['a.pcap'])
    """
    with suppress(ValueError):
        if isinstance(paths := json.loads(options.get("paths", "")), list):
            return [str(path) for path in paths]
    if options.get("path"):
        return [options["path"]]
    raise CaptureError('no path: load("captures") or option("paths", \'["a.pcap", "b.pcap"]\')')


def check_readable(unreadable: Sequence[tuple[str, str]], permissive: bool) -> None:
    """Raises CaptureError for a path that is not there or, unless ``permissive``, a file that cannot be read.

    A line on stderr names each file that is left out.
    """
    missing = [(name, f"{reason}{_near_file(name)}") for name, reason in unreadable if reason in MISSING]
    told = [f"{name}: {reason}" for name, reason in missing or unreadable]
    if missing or (told and not permissive):
        more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
        remedy = "" if missing else "; option mode=permissive reads what can be read"
        raise CaptureError(f"{told[0]}{more}{remedy}")
    for one in told:
        _LOG.warning("mqpcap: left out: %s", one)


def near(name: str, known: Sequence[str]) -> str:
    """What to say behind a name that is none of those known.

    >>> near("tabel", ["table", "bodies"]), near("x", ["table", "bodies"])
    (': did you mean table?', '; there are table, bodies')
    """
    names = {one.lower(): one for one in known}
    meant = difflib.get_close_matches(name.lower(), names, 1)
    return f": did you mean {names[meant[0]]}?" if meant else f"; there are {', '.join(known)}"


def _near_file(name: str) -> str:
    beside: list[str] = []
    with suppress(OSError), os.scandir(os.path.dirname(name) or ".") as found:
        beside = [entry.name for entry in islice(found, MAX_NAMES)]
    meant = difflib.get_close_matches(os.path.basename(name), beside, 1)
    return f": did you mean {meant[0]}?" if meant else ""


def written(capture: Capture) -> list[tuple[int, int]]:
    """Bytes of each file and when it was last written to (ns), 0 where that cannot be asked."""
    found = []
    for file in capture._files:
        known = getattr(file, "size_bytes", 0), getattr(file, "modified_ns", 0)  # behind a URI
        with suppress(OSError):
            status = os.stat(file.path)
            known = status.st_size, status.st_mtime_ns
        found.append(known)
    return found


def units(found: Sequence[Capture], slot_count: int, share_count: int | None = None) -> list[WorkUnit]:
    """Units of work, the largest first; ``share_count`` cuts every capture into so many, whatever its size."""
    sizes = [sum(size for size, _ in written(capture)) for capture in found]
    each = max(sum(sizes) / max(1, slot_count), SHARE_BYTES)
    large: list[tuple[float, WorkUnit]] = []
    small: list[int] = []
    for i, capture in enumerate(found):
        n = share_count or min(MAX_SHARES, max(1, round(sizes[i] / each)))
        if n > 1 or sizes[i] >= PACK_BYTES:
            how = cut(capture, n)
            large += [(sizes[i] / n, WorkUnit(((i, capture),), k, how)) for k in range(n)]
        else:
            small.append(i)
    limit = min(PACK_BYTES, max(sum(sizes[i] for i in small) // max(1, slot_count), 1 << 20))
    for pack in packed(small, sizes.__getitem__, limit):
        large.append((sum(sizes[i] for i in pack), WorkUnit(tuple((i, found[i]) for i in pack))))
    return [unit for _, unit in sorted(large, key=lambda one: -one[0])]


def packed(items: Iterable[Item], size_bytes: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Items in their order, so many together as fit; a large one is alone.

    >>> [*packed([3, 1, 1, 9, 2], int, 4)]
    [[3, 1], [1], [9], [2]]
    """
    pack: list[Item] = []
    filled = 0
    for item in items:
        if pack and filled + size_bytes(item) > limit:
            yield pack
            pack, filled = [], 0
        pack.append(item)
        filled += size_bytes(item)
    if pack:
        yield pack


def cut(capture: Capture, n: int) -> SharePlan:
    """A capture in n shares of about the same work, as far as a look at it tells."""
    shares = [(0, k) for k in range(n)]
    pinned: list[tuple[int, int]] = []
    for key, load in _loads(capture).most_common(n * PINNED_PER_SHARE) if n > 1 else ():
        least, share = shares[0]
        heapq.heapreplace(shares, (least + load, share))
        pinned.append((key, share))
    return SharePlan(n, tuple(pinned))


def _loads(capture: Capture) -> Counter[int]:
    """Bytes of connections, by key: in the beginnings of some files, the more of each the fewer there are."""
    loads: Counter[int] = Counter()
    numbers = np.unique(np.linspace(0, len(capture.files) - 1, LOOKS).astype(int)).tolist()
    for number in numbers:
        with suppress(CaptureError), closing(capture.source(number)) as source:
            for window in islice(WindowReader(capture.files[number], number, source).windows(), LOOKS // len(numbers)):
                segments = Dissector().segments(window)
                keys, place = np.unique(segments.key, return_inverse=True)
                sizes = np.bincount(place.reshape(-1), segments.length + PACKET_BYTES, len(keys)).astype(np.int64)
                loads.update(dict(zip(keys.tolist(), sizes.tolist(), strict=True)))
    return loads
