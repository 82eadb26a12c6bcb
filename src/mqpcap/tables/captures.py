"""The files of a capture to rows of the table ``captures``."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import codes_of, file_text
from mqpcap.capture import Capture, Window
from mqpcap.decode.columns import gathered
from mqpcap.errors import CaptureError, one_line
from mqpcap.tables.schemas import CAPTURES, US
from mqpcap.tcp.wrappings import link_type_name, unread_text

TIMES = ("first_ts", "last_ts")


class CaptureRows:
    """Counts of the files of a capture, updated while they are read; ``messages``: counts from elsewhere."""

    def __init__(self, capture: Capture, messages: Mapping[str, int] | None = None) -> None:
        self.capture = capture
        self._messages = Counter(messages)
        self._counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._hashes = {number: [hashlib.sha256() for _ in range(5)] for number in range(len(capture.files))}

    def take(self, window: Window, counts: Mapping[str, int]) -> None:
        """Add the packets of a window to the fingerprint of their file (their times and bytes as captured).

        counts: of the window's `Segments`.
        """
        self._counts[window.file].update(counts)
        columns: tuple[NDArray[Any], ...] = (
            window.ts_ns,
            window.caplen,
            window.wirelen,
            window.link_type,
            gathered(window.buffer, window.offset, window.caplen)[0],  # without what is between packets
        )
        for fingerprint_hash, column in zip(
            self._hashes[window.file], columns, strict=True
        ):  # windows may be cut anywhere
            fingerprint_hash.update(column.data.cast("B"))

    def count_lost(self, counts: Mapping[str, int]) -> None:
        """Add fragments without their datagram, known at the end, to the last file that was read."""
        if self._counts:
            self._counts[max(self._counts)].update(counts)

    def _reason(self, number: int, failure: str | None) -> str | None:
        texts = [text for text in (failure, unread_text(self._counts[number])) if text]
        return file_text("; ".join(texts)) if texts else None

    def count(self, files: pa.ChunkedArray) -> None:
        """Count messages by the file they began in."""
        for part in files.chunks:
            counts = np.bincount(codes_of(part)).tolist()
            self._messages.update(dict(zip(part.dictionary.to_pylist(), counts, strict=False)))

    def table(self, failure: CaptureError | None) -> pa.Table:
        """A row for each file that was read."""
        notes = {note.file: str(note) for note in self.capture.notes}
        ended = None if failure is None else one_line(failure)
        rows = [
            {
                "capture": file_text(self.capture.files[0]),
                "path": file_text(facts.file),
                "fingerprint": hashlib.sha256(b"".join(x.digest() for x in self._hashes[number])).hexdigest(),
                "format": facts.format,
                "link_types": [*map(link_type_name, facts.link_types)],
                "packets": facts.packet_count,
                "bytes": facts.captured_bytes,
                "first_ts_ns": facts.first_ts_ns,
                "last_ts_ns": facts.last_ts_ns,
                "dropped": facts.drop_count,
                "status": "cut short" if facts.file in notes else "read",
                "reason": self._reason(number, notes.get(facts.file) or ended),
                "messages": self._messages[file_text(facts.file)],
            }
            for number, facts in enumerate(self.capture.facts)
        ]
        return captures_table(rows)


def captures_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The table ``captures`` of rows with all of its columns but ``first_ts`` and ``last_ts``, which follow."""
    table = pa.Table.from_pylist([*rows], CAPTURES)
    for name in TIMES:
        microseconds = pa.array([None if (ns := row.get(f"{name}_ns")) is None else ns // 1000 for row in rows], US)
        table = table.set_column(table.column_names.index(name), CAPTURES.field(name), microseconds)
    return table


def captures_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of the table ``captures`` that JSON can hold: `captures_table` makes the table of them."""
    rows: list[dict[str, Any]] = table.drop_columns([*TIMES]).to_pylist()
    return rows


def is_no_capture(reason: str) -> bool:
    """Whether a file was left out because of its content, not because it could not be read."""
    return reason.startswith(("not a", "empty", "no capture"))


def unread_files(capture: str, files: Sequence[tuple[str, str]], status: str) -> pa.Table:
    """Rows of files that could not be read or are not a capture file, with the reason."""
    rows = [
        {"capture": file_text(capture), "path": file_text(path), "status": status, "reason": file_text(reason)}
        for path, reason in files
    ]
    return captures_table(rows)
