"""The files of a capture to rows of the table ``captures``."""

import hashlib
from collections import Counter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.capture import Capture, Window
from mqpcap.decode.columns import span_array
from mqpcap.errors import CaptureError, one_line
from mqpcap.tables.schemas import CAPTURES

LINK_TYPES = {
    0: "BSD loopback", 1: "Ethernet", 9: "PPP", 12: "raw IP", 101: "raw IP", 108: "BSD loopback", 113: "Linux cooked",
    228: "IPv4", 229: "IPv6", 276: "Linux cooked 2",
}  # fmt: skip


class CaptureRows:
    """What is counted of the files of one capture while they are read."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self._messages: Counter[str] = Counter()
        # One of each column, so that the windows in which packets come change nothing.
        self._hashes = {number: [hashlib.sha256() for _ in range(5)] for number in range(len(capture.files))}

    def take(self, window: Window) -> None:
        """Take the packets of a window into the fingerprint of their file: their times and bytes as captured."""
        columns = self._hashes[window.file]
        for made, column in zip(columns, (window.ts_ns, window.caplen, window.wirelen, window.link_type), strict=False):
            made.update(memoryview(np.ascontiguousarray(column)).cast("B"))
        columns[-1].update(memoryview(_packets(window)))

    def count(self, files: pa.ChunkedArray) -> None:
        """Count messages by the file they began in."""
        for pair in files.value_counts().to_pylist():
            self._messages[pair["values"]] += pair["counts"]

    def table(self, failure: CaptureError | None) -> pa.Table:
        """The rows, one a file that was read."""
        notes = {note.file: str(note) for note in self.capture.notes}
        rows = [
            {
                "capture": self.capture.files[0],
                "path": facts.file,
                "fingerprint": hashlib.sha256(b"".join(one.digest() for one in self._hashes[number])).hexdigest(),
                "format": facts.format,
                "link_types": [LINK_TYPES.get(link, f"link type {link}") for link in facts.link_types],
                "packets": facts.packet_count,
                "bytes": facts.captured_bytes,
                "first_ts_ns": facts.first_ts_ns,
                "last_ts_ns": facts.last_ts_ns,
                "dropped": facts.drop_count,
                "status": "cut short" if facts.file in notes else "read",
                "reason": notes.get(facts.file) or (None if failure is None else one_line(failure)),
                "messages": self._messages[facts.file],
            }
            for number, facts in enumerate(self.capture.facts)
        ]
        return pa.Table.from_pylist(rows, CAPTURES)


def _packets(window: Window) -> NDArray[np.uint8]:
    """The packets' bytes as captured, without what is between them."""
    rows = np.arange(len(window.offset), dtype=np.int32)
    gathered = span_array(window.buffer, len(rows), rows, window.offset, window.caplen, pa.binary())
    return np.frombuffer(gathered.buffers()[2] or b"", np.uint8)
