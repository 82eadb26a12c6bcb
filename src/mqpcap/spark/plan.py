"""Captures to units of work for Spark.

A large capture is cut into shares of its connections, small ones are packed together: a Python task costs about 65 ms
whatever it does (measured), so one should have seconds of work. Few shares read all packets of their capture each; for
many the job deals the packets out first (`mqpcap.spark.dealing`).
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mqpcap.capture import Capture, Found, captures
from mqpcap.errors import CaptureError
from mqpcap.packets import Dissector
from mqpcap.spark import remote

PACK_BYTES = 64 << 20
"""Small captures fill a task up to this size."""
SHARE_BYTES = 64 << 20
"""A share is not made smaller than this."""
MAX_SHARES = 64
"""Tasks that deal packets out write so many parts side by side; small ones are slow to read."""
DEALT_SHARES = 3
"""From so many shares on packets are dealt out: as much CPU as three passes over them (measured), and less reading."""

PINNED_PER_SHARE = 16
"""A connection is dealt out by its size if it is more than this part of a share."""
PACKET_BYTES = 66
"""What the headers of a packet count."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the connections of a capture are cut into shares: pinned says whose the largest are, by key; the others go by
    their hash, as in `mqpcap.dissection.shared`."""

    share_count: int
    pinned: tuple[tuple[int, int], ...] = ()

    def shares(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The share of each connection, told by its key."""
        shares = (keys.view(np.uint64) % np.uint64(self.share_count)).astype(np.int64)
        if not self.pinned:
            return shares
        pinned = np.array(sorted(self.pinned), np.int64)
        at = np.minimum(np.searchsorted(pinned[:, 0], keys), len(pinned) - 1)
        return np.where(pinned[at, 0] == keys, pinned[at, 1], shares)


@dataclass(frozen=True, slots=True)
class Unit:
    """One task's work: a share (k of n) of one capture, or several whole captures.

    captures are (number in the input, capture); pinned as in `Cut`.
    """

    captures: tuple[tuple[int, Capture], ...]
    share: tuple[int, int] = (0, 1)
    pinned: tuple[tuple[int, int], ...] = ()

    @property
    def cut(self) -> Cut:
        """What it is a share of."""
        return Cut(self.share[1], self.pinned)

    @property
    def is_dealt(self) -> bool:
        """Whether a job deals its packets out first."""
        return self.share[1] >= DEALT_SHARES


def named_inputs(options: Mapping[str, str]) -> list[str]:
    """What ``load`` was given: one path, or a list of them as JSON.

    >>> named_inputs({"paths": '["a.pcap", "b"]'}), named_inputs({"path": "a.pcap"})
    (['a.pcap', 'b'], ['a.pcap'])
    """
    if options.get("paths"):
        try:
            paths = json.loads(options["paths"])
        except ValueError:
            paths = options["paths"].split(",")
        return [str(path) for path in (paths if isinstance(paths, list) else [paths])]
    if options.get("path"):
        return [options["path"]]
    raise CaptureError('no path: load("captures") or option("paths", \'["a.pcap", "b.pcap"]\')')


def found(inputs: Sequence[str]) -> Found:
    """The captures in files, directories, globs and URIs that pyarrow.fs knows, in the order given."""
    if any(remote.is_remote(name) for name in inputs):
        return remote.captures(inputs)
    return captures(inputs)


def size_bytes(capture: Capture) -> int:
    """Bytes of the capture's files, as far as they can be asked."""
    total = 0
    for file in capture._files:
        known: int | None = getattr(file, "size_bytes", None)
        with suppress(OSError):
            total += os.stat(file.path).st_size if known is None else known
    return total


def units(found: Sequence[Capture], slot_count: int, share_count: int | None = None) -> list[Unit]:
    """Units of work, the largest first; ``share_count`` cuts every capture into so many, whatever its size."""
    sizes = [size_bytes(capture) for capture in found]
    if share_count is not None and share_count > 1:
        return [unit for i, capture in enumerate(found) for unit in _shares(i, capture, share_count)]
    each = max(sum(sizes) / max(1, slot_count), SHARE_BYTES)
    large: list[tuple[float, Unit]] = []
    small: list[tuple[int, int]] = []
    for i, capture in enumerate(found):
        n = 1 if share_count == 1 else min(MAX_SHARES, max(1, round(sizes[i] / each)))
        if n > 1 or sizes[i] >= PACK_BYTES:
            large += [(sizes[i] / n, unit) for unit in _shares(i, capture, n)]
        else:
            small.append((sizes[i], i))
    limit = min(PACK_BYTES, max(sum(size for size, _ in small) // max(1, slot_count), 1 << 20))
    large += [
        (sum(sizes[i] for i in pack), Unit(tuple((i, found[i]) for i in pack))) for pack in _packs(small, limit)
    ]
    return [unit for _, unit in sorted(large, key=lambda one: -one[0])]


def _shares(number: int, capture: Capture, n: int) -> list[Unit]:
    pinned = pins(capture, n) if n > 1 else ()
    return [Unit(((number, capture),), (k, n), pinned) for k in range(n)]


def pins(capture: Capture, n: int) -> tuple[tuple[int, int], ...]:
    """Shares for the connections that had most bytes in the first packets: a hash deals a few large ones out badly."""
    loads = np.zeros(n)
    try:
        window = next(capture.windows(), None)
    except CaptureError:
        return ()
    if window is None:
        return ()
    segments = Dissector().segments(window)
    keys, place = np.unique(segments.key, return_inverse=True)
    weights = np.bincount(place.reshape(-1), segments.length + PACKET_BYTES, len(keys))
    order = np.argsort(-weights, kind="stable")
    order = order[weights[order] >= weights.sum() / n / PINNED_PER_SHARE]
    small = np.ones(len(keys), np.bool_)
    small[order] = False
    np.add.at(loads, (keys[small].view(np.uint64) % np.uint64(n)).astype(np.int64), weights[small])
    found = []
    for one in order.tolist():
        share = int(loads.argmin())
        loads[share] += weights[one]
        found.append((int(keys[one]), share))
    return tuple(found)


def _packs(small: Sequence[tuple[int, int]], limit: int) -> Iterator[list[int]]:
    pack: list[int] = []
    filled = 0
    for size, i in small:
        if pack and filled + size > limit:
            yield pack
            pack, filled = [], 0
        pack.append(i)
        filled += size
    if pack:
        yield pack
