"""Captures to units of work for Spark.

A large capture is cut into shares of its connections, small ones are packed together: a Python task costs about 65 ms
whatever it does (measured), so one should have seconds of work.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mqpcap.capture import Capture, Found, captures
from mqpcap.errors import CaptureError
from mqpcap.spark import remote

PACK_BYTES = 64 << 20
"""Small captures fill a task up to this size."""
SHARE_BYTES = 32 << 20
"""A share is not made smaller than this: each one reads the headers of all packets again."""
MAX_SHARES = 12
"""More shares of one capture cost more in headers read than they give (measured in spark-notes: about 12)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One task's work: a share (k of n) of one capture, or several whole captures.

    captures are (number in the input, capture).
    """

    captures: tuple[tuple[int, Capture], ...]
    share: tuple[int, int] = (0, 1)


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
        return [Unit(((i, capture),), (k, share_count)) for i, capture in enumerate(found) for k in range(share_count)]
    each = max(sum(sizes) / max(1, slot_count), SHARE_BYTES)
    large: list[tuple[float, Unit]] = []
    small: list[tuple[int, int]] = []
    for i, capture in enumerate(found):
        n = 1 if share_count == 1 else min(MAX_SHARES, max(1, round(sizes[i] / each)))
        if n > 1 or sizes[i] >= PACK_BYTES:
            large += [(sizes[i] / n, Unit(((i, capture),), (k, n))) for k in range(n)]
        else:
            small.append((sizes[i], i))
    limit = min(PACK_BYTES, max(sum(size for size, _ in small) // max(1, slot_count), 1 << 20))
    large += [
        (sum(sizes[i] for i in pack), Unit(tuple((i, found[i]) for i in pack))) for pack in _packs(small, limit)
    ]
    return [unit for _, unit in sorted(large, key=lambda one: -one[0])]


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
