"""A recording that is read file by file, in as many runs as its files come, with the rows of one reading.

In: the next files of a recording and the state of its pipeline after the files before. Out: rows, and the next state.
Called by: ``growth``. A run ends after the last window of its last file and closes nothing, so the next run continues
as if it had read on. Memory, and so the state, has the bounds of one reading.

A state holds captured bytes that may be secrets, so only its owner may read it.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mqpcap.background import Background
from mqpcap.capture import Capture, Window
from mqpcap.capture.inputs import InputFile
from mqpcap.delta.states import dump_state, load_state
from mqpcap.errors import CaptureError
from mqpcap.options import Options
from mqpcap.pipeline import CapturePipeline
from mqpcap.tables.captures import CaptureRows, captures_rows
from mqpcap.tables.output import Emit


class NextFiles:
    """The next files of a recording, numbered after those of earlier runs."""

    is_pipe = False
    next_file = None

    def __init__(self, earlier: Sequence[str], capture: Capture) -> None:
        self.earlier, self.capture = tuple(earlier), capture

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all files of the recording."""
        return self.earlier + self.capture.files

    def __getattr__(self, name: str) -> Any:
        if name in ("earlier", "capture"):  # not there while it is loaded
            raise AttributeError(name)
        return getattr(self.capture, name)

    def windows(self) -> Iterator[Window]:
        """The packets of the next files."""
        for window in self.capture.windows():
            yield replace(window, file=window.file + len(self.earlier))


class _NextRows(CaptureRows):
    """Counts of the next files, and of messages by the name of the file that they begin in."""

    def __init__(self, files: NextFiles) -> None:
        super().__init__(files.capture)
        self._first = len(files.earlier)

    def take(self, window: Window, counts: Mapping[str, int]) -> None:
        """Add the packets of a window."""
        super().take(replace(window, file=window.file - self._first), counts)

    @property
    def messages(self) -> Counter[str]:
        """The number of messages that begin in each file."""
        return self._messages


class RecordingPipeline(CapturePipeline):
    """The pipeline of the next files of a recording, from the state that the files before left.

    ``ends``: the recording ends with these files; else everything that is open stays open.
    """

    def __init__(
        self, state: bytes | None, capture: Capture, options: Options, emit: Emit, worker: Background, *, ends: bool
    ) -> None:
        stages, earlier = (None, ()) if state is None else load_state(state)
        packets, stages = (stages, None) if isinstance(stages, tuple) else (None, stages)
        files = NextFiles(earlier, capture)
        super().__init__(files, options, emit, worker)  # type: ignore[arg-type]  # a capture of all files
        self._next_rows = self.rows = _NextRows(files)
        self._ends = ends
        if stages is not None:
            stages.emit, stages.file_name, stages.background = self._count_and_emit, self.stages.file_name, worker
            stages.use_keys(options.keys)
            self.stages = stages
        if packets is not None:
            self._replay(_window(packets))

    def _replay(self, window: Window) -> None:
        """Read the packets of a small capture again, whose rows were emitted: see `small_captures.read_together`."""
        stages = self.stages
        emit, stages.emit, worker, stages.background = stages.emit, lambda output: None, stages.background, Background()
        for parts in stages.frames(window):
            newest_ns, stages.newest_ns = stages.newest_ns, 0
            deque(stages.rows(parts), 0)
            stages.newest_ns = newest_ns
        stages.emit, stages.background = emit, worker

    def state(self) -> bytes:
        """The state for the next files."""
        return dump_state((self.stages, self.capture.files))

    def rows_of_files(self) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """The rows of ``captures`` for the next files, and by name the messages that begin in any file."""
        rows = captures_rows(self._next_rows.table(self.failure)) if self.capture.facts else []
        return rows, dict(self._next_rows.messages)

    def _finish(self) -> Iterator[None]:
        if self._ends:
            yield from super()._finish()
        self.stages.background.wait()


def full_fingerprint(path: str) -> str:
    """The fingerprint of all packets of a file, as ``captures`` has it."""
    capture = Capture((InputFile(path, path),))
    rows = CaptureRows(capture)
    for window in capture.windows():
        rows.take(window, {})
    return str(rows.table(None)["fingerprint"][0].as_py())


_COLUMNS = ("buffer", "offset", "caplen", "wirelen", "ts_ns", "link_type", "packet_number")
_TYPES = (np.uint8, np.int64, np.int64, np.int64, np.int64, np.int32, np.int64)


def state_of_packets(window: Window, files: Sequence[str]) -> bytes:
    """The state of a small recording: its packets, which are read again if it goes on. That costs less than a state."""
    return dump_state((tuple(getattr(window, name) for name in _COLUMNS), tuple(files)))


def _window(packets: tuple[Any, ...]) -> Window:
    """The packets of a state. Raises CaptureError if they are damaged."""
    columns = dict(zip(_COLUMNS, packets, strict=False))
    are_typed = [getattr(x, "dtype", None) for x in packets] == [*map(np.dtype, _TYPES)]
    if are_typed and {x.shape for x in packets[1:]} == {(len(packets[-1]),)} and packets[0].ndim == 1:
        window = Window(**columns, file=0)
        if ((window.offset >= 0) & (window.caplen >= 0) & (window.caplen <= len(window.buffer) - window.offset)).all():
            return window
    raise CaptureError("its state is damaged (packets); export its captures to a new lake")
