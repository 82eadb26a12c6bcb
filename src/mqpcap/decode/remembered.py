"""Texts that a connection remembers: a message with a number alone gets the text that its side sent with it before.

In: decoded batches of the messages that a window completes. Out: the same batches, with the columns of
``MessageQueue.remembered``. Called by: `MessageDecoder`.

Rows are in order of time. If packets were captured in another order than they were sent, a text may follow a row that
needs it. All batches of such a step are read before the first is yielded.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.decode.frames import Decoded, Frames
from mqpcap.schema.fields import every_field
from mqpcap.schema.protocol import Evidence, MessageQueue, Remembered

MAX_REMEMBERED = 4096
"""Texts of a side of a connection; with more the oldest is forgotten."""
MAX_REMEMBERED_CHARS = 1024
"""Characters of a text that is remembered."""


def recalled(
    protocol: MessageQueue, parts: Sequence[Frames], batches: Iterator[Decoded], evidence_of: Callable[[int], Evidence]
) -> Iterator[Decoded]:
    """The batches of the parts with their remembered texts."""
    if not any(_has_key(protocol)[part.layout].any() for part in parts):
        return batches
    return _recalled_in_steps(protocol, parts, batches, evidence_of)


@cache
def _has_key(protocol: MessageQueue) -> NDArray[np.bool_]:
    """By layout, whether a message may have a number that stands for a text."""
    keys = {remembered.key.partition(".")[0] for remembered in protocol.remembered}
    columns = ({x.column for cls in layout.messages() for x in every_field(cls)} for layout in protocol.layouts)
    return np.array([not keys.isdisjoint(names) for names in columns], np.bool_)


def _recalled_in_steps(
    protocol: MessageQueue, parts: Sequence[Frames], batches: Iterator[Decoded], evidence_of: Callable[[int], Evidence]
) -> Iterator[Decoded]:
    steps = ([batch] for batch in batches) if _is_in_stream_order(parts) else iter([list(batches)])
    for step in steps:
        for remembered in protocol.remembered:
            step = _recalled(remembered, step, evidence_of)
        yield from step


def _is_in_stream_order(parts: Sequence[Frames]) -> bool:
    """Whether the messages of each side are in order of its stream, in one part after the other by time."""
    flow, side, offset, ts_ns, packet = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("flow", "side", "offset", "ts_ns", "first_packet")
    )
    sides = flow * 2 + side
    order = np.argsort(sides, kind="stable") if len(parts) == 1 else np.lexsort((offset, packet, ts_ns, sides))
    sides, offset = sides[order], offset[order]
    return not np.any((sides[1:] == sides[:-1]) & (offset[1:] < offset[:-1]))


def _recalled(
    remembered: Remembered, batches: Sequence[Decoded], evidence_of: Callable[[int], Evidence]
) -> list[Decoded]:
    """The batches with one column recalled. Earlier rows of their sides were recalled before."""
    entries: list[tuple[int, int, int, int, int, int | None, str | None, bool]] = []
    for number, (frames, records) in enumerate((batch.frames, batch.records) for batch in batches):
        if remembered.name not in records.table.column_names:
            continue
        rows, keys = records.remembered_keys[remembered.name]
        after_gap = (frames.gap_before > 0) | frames.resynced
        gaps = np.setdiff1d(np.flatnonzero(after_gap), rows)
        texts = records.table[remembered.name].take(pa.array(rows)).to_pylist()
        every = np.concatenate([rows, gaps])
        places = (x[every].tolist() for x in (frames.flow, frames.side, frames.offset))
        filled = [None] * len(gaps)
        values = [*keys.tolist(), *filled], [*texts, *filled], after_gap[every].tolist()
        entries += zip(*places, [number] * len(every), every.tolist(), *values, strict=True)
    empty, texts_by_batch = remembered.empty.decode(), dict[int, dict[int, str | None]]()
    for flow, side, _, number, row, key, text, is_after_gap in sorted(entries, key=lambda entry: entry[:3]):
        texts_by_key = evidence_of(flow).remembered.setdefault(f"{remembered.name} {side}", {})
        if is_after_gap:
            texts_by_key.clear()  # a number may have got another text
        if key is not None and text != empty:
            texts_by_key.pop(key, None)  # the newest is the last
            texts_by_key[key] = text if text is not None and len(text) <= MAX_REMEMBERED_CHARS else None
            if len(texts_by_key) > MAX_REMEMBERED:
                del texts_by_key[next(iter(texts_by_key))]
        elif key is not None:
            texts_by_batch.setdefault(number, {})[row] = texts_by_key.get(key)
    return [_with(remembered.name, batch, texts_by_batch.get(number, {})) for number, batch in enumerate(batches)]


def _with(name: str, batch: Decoded, texts: dict[int, str | None]) -> Decoded:
    """A batch with texts of a column, by row."""
    if not texts:
        return batch
    table = batch.records.table
    is_found = np.zeros(len(table), np.bool_)
    is_found[list(texts)] = True
    values = pa.array([texts[row] for row in sorted(texts)], pa.string())
    column = pc.replace_with_mask(table[name].combine_chunks(), is_found, values)
    table = table.set_column(table.column_names.index(name), name, column)
    return replace(batch, records=replace(batch.records, table=table))
