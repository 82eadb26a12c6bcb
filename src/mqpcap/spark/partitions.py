"""Plans the units of work for Spark: shares of large captures, groups of small captures.

A large capture is split into shares of its connections, and small captures are grouped. A Python task costs about 65 ms
whatever it does (measured), so each task should have seconds of work. The job reads a large capture once and brings
the packets to their shares (`mqpcap.spark.ranges`); in ``format("mqpcap")`` each share reads all of its packets.

A hash assigns connections to shares. The largest connections are assigned by size, so that shares are even. Sizes are
estimated from the first windows of some files; only the running time depends on the estimate.
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
from mqpcap.decode.detection import DecodeAs
from mqpcap.errors import CaptureError
from mqpcap.tcp.headers import Dissector

Item = TypeVar("Item")
_LOG = logging.getLogger(__name__)
MISSING = ("no such file", "no file matches")
"""Reasons that a search gives for a path that does not exist."""
MAX_NAMES = 4096
"""Names of a directory that are compared with a missing name."""
PACK_BYTES = 64 << 20
"""Small captures fill a task up to this size."""
SHARE_BYTES = 64 << 20
"""A share is not made smaller than this."""
MAX_SHARES = 64
"""Shares of a capture: each task that reads a range makes a part for each share, and small parts are slow."""
PINNED_PER_SHARE = 16
"""Largest connections per share that are assigned by size."""
PACKET_BYTES = 66
"""Cost of a packet beside its payload, in bytes of payload."""
SAMPLED_WINDOWS = 8
"""Windows of a capture that are read to estimate sizes."""


@dataclass(frozen=True, slots=True)
class SharePlan:
    """Assigns the connections of a capture to shares.

    pinned: key and share of the largest connections. A hash of the key assigns all others.
    rules: those of Decode As.
    """

    share_count: int
    pinned: tuple[tuple[int, int], ...] = ()
    rules: tuple[DecodeAs, ...] = ()

    def shares(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The share of each connection, by the keys of connections."""
        shares = (keys.view(np.uint64) % np.uint64(self.share_count)).astype(np.int64)
        if self.pinned:
            pinned_keys, share = np.array(sorted(self.pinned), np.int64).T
            index = np.minimum(np.searchsorted(pinned_keys, keys), len(pinned_keys) - 1)
            shares = np.where(pinned_keys[index] == keys, share[index], shares)
        return shares


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """The work of one task: a share of one capture, or several whole captures.

    captures: (number in the input, capture). number: number of the share.
    """

    captures: tuple[tuple[int, Capture], ...]
    number: int = 0
    plan: SharePlan = SharePlan(1)


def named_inputs(options: Mapping[str, str]) -> list[str]:
    """The paths given to ``load``: a path, or a list of paths as JSON.

    >>> named_inputs({"paths": '["a.pcap", "b"]'}), named_inputs({"path": "a.pcap"})
    (['a.pcap', 'b'], ['a.pcap'])
    """
    with suppress(ValueError):
        if isinstance(paths := json.loads(options.get("paths", "")), list):
            return [str(path) for path in paths]
    if options.get("path"):
        return [options["path"]]
    raise CaptureError(
        'no path: load("captures"), option("paths", \'["a.pcap", "b.pcap"]\'), or in SQL '
        "CREATE TEMPORARY VIEW name USING mqpcap OPTIONS (path 'captures'); CREATE TABLE does not pass options on"
    )


def check_readable(unreadable: Sequence[tuple[str, str]], permissive: bool) -> None:
    """Raises CaptureError for a path that does not exist and, unless ``permissive``, for a file that cannot be read.

    A line on stderr names each file that is left out.
    """
    missing = [(name, f"{reason}{_near_file(name)}") for name, reason in unreadable if reason in MISSING]
    lines = [f"{name}: {reason}" for name, reason in missing or unreadable]
    if missing or (lines and not permissive):
        rest_note = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        remedy = "" if missing else "; option mode=permissive reads what can be read"
        raise CaptureError(f"{lines[0]}{rest_note}{remedy}")
    for line in lines:
        _LOG.warning("mqpcap: left out: %s", line)


def nearest_name(name: str, names: Sequence[str]) -> str:
    """The end of an error message about an unknown name: the most similar name, or all names.

    >>> near("tabel", ["table", "bodies"]), near("x", ["table", "bodies"])
    (': did you mean table?', '; there are table, bodies')
    """
    name_by_lower = {known_name.lower(): known_name for known_name in names}
    meant = difflib.get_close_matches(name.lower(), name_by_lower, 1)
    return f": did you mean {name_by_lower[meant[0]]}?" if meant else f"; there are {', '.join(names)}"


def _near_file(name: str) -> str:
    beside: list[str] = []
    with suppress(OSError), os.scandir(os.path.dirname(name) or ".") as entries:
        beside = [entry.name for entry in islice(entries, MAX_NAMES)]
    meant = difflib.get_close_matches(os.path.basename(name), beside, 1)
    return f": did you mean {meant[0]}?" if meant else ""


def size_of(capture: Capture) -> int:
    """Bytes of all files of a capture; 0 for a file that is gone."""
    size_bytes = 0
    for file in capture.inputs:
        with suppress(OSError):  # the size is set for the file of a URI
            size_bytes += getattr(file, "size_bytes", 0) or os.stat(file.path).st_size
    return size_bytes


def plan_units(
    inputs: Sequence[Capture], slot_count: int, share_count: int | None = None, rules: tuple[DecodeAs, ...] = ()
) -> list[WorkUnit]:
    """Units of work, the largest first; ``share_count`` is the number of shares of every capture, None: by its size."""
    sizes = [size_of(capture) for capture in inputs]
    each = max(sum(sizes) / max(1, slot_count), SHARE_BYTES)
    large: list[tuple[float, WorkUnit]] = []
    small: list[int] = []
    for i, capture in enumerate(inputs):
        n = share_count or min(MAX_SHARES, max(1, round(sizes[i] / each)))
        if n > 1 or sizes[i] >= PACK_BYTES:
            plan = make_plan(capture, n, rules)
            large += [(sizes[i] / n, WorkUnit(((i, capture),), k, plan)) for k in range(n)]
        else:
            small.append(i)
    limit = min(PACK_BYTES, max(sum(sizes[i] for i in small) // max(1, slot_count), 1 << 20))
    for group in pack(small, sizes.__getitem__, limit):
        large.append((sum(sizes[i] for i in group), WorkUnit(tuple((i, inputs[i]) for i in group))))
    return [unit for _, unit in sorted(large, key=lambda sized: -sized[0])]


def pack(items: Iterable[Item], size_bytes: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Groups items in their order up to ``limit`` bytes; a larger item is a group of its own.

    >>> [*pack([3, 1, 1, 9, 2], int, 4)]
    [[3, 1], [1], [9], [2]]
    """
    group: list[Item] = []
    filled = 0
    for item in items:
        if group and filled + size_bytes(item) > limit:
            yield group
            group, filled = [], 0
        group.append(item)
        filled += size_bytes(item)
    if group:
        yield group


def make_plan(capture: Capture, n: int, rules: tuple[DecodeAs, ...] = ()) -> SharePlan:
    """A plan that splits a capture into n shares of about equal size."""
    shares = [(0, k) for k in range(n)]
    pinned: list[tuple[int, int]] = []
    for key, load in _loads(capture, rules).most_common(n * PINNED_PER_SHARE) if n > 1 else ():
        least, share = shares[0]
        heapq.heapreplace(shares, (least + load, share))
        pinned.append((key, share))
    return SharePlan(n, tuple(pinned), rules)


def _loads(capture: Capture, rules: tuple[DecodeAs, ...]) -> Counter[int]:
    """Bytes of connections by key, in the first windows of some files; few files: more windows of each."""
    loads: Counter[int] = Counter()
    numbers = np.unique(np.linspace(0, len(capture.files) - 1, SAMPLED_WINDOWS).astype(int)).tolist()
    for number in numbers:
        # The task that reads the file reports what is wrong with it.
        with suppress(Exception), closing(capture.source(number)) as source:
            for window in islice(
                WindowReader(capture.files[number], number, source).windows(), SAMPLED_WINDOWS // len(numbers)
            ):
                segments = Dissector(rules).segments(window)
                keys, index = np.unique(segments.key, return_inverse=True)
                sizes = np.bincount(index.reshape(-1), segments.length + PACKET_BYTES, len(keys)).astype(np.int64)
                loads.update(dict(zip(keys.tolist(), sizes.tolist(), strict=True)))
    return loads
