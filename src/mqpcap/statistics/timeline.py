"""Counts messages over time: in total, and in steps that grow with the length of the capture."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import factorize, is_in
from mqpcap.tables.output import of_messages

FIRST_STEP_NS = 1_000_000
MAX_STEPS = 1 << 12
"""Steps from the first message to the last; beyond it pairs of steps are merged."""


class Total:
    """The number of messages, and the times of the first and the last."""

    reads = of_messages("ts_ns")

    def __init__(self) -> None:
        self.messages = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def take_messages(self, rows: pa.Table) -> None:
        """Count rows of ``messages``, and keep their times."""
        self.messages += rows.num_rows
        if rows.num_rows:
            first_ns, last_ns = pc.min_max(rows["ts_ns"]).as_py().values()
            self.first_ns = first_ns if self.first_ns is None else min(first_ns, self.first_ns)
            self.last_ns = last_ns if self.last_ns is None else max(last_ns, self.last_ns)


class Timeline:
    """Messages and errors by step."""

    reads = of_messages("ts_ns", "status")

    def __init__(self) -> None:
        self.step_ns = FIRST_STEP_NS
        self._steps: dict[int, NDArray[np.int64]] = {}

    def take_messages(self, rows: pa.Table) -> None:
        """Count rows of ``messages``."""
        if not rows.num_rows:
            return
        steps, place = factorize(rows["ts_ns"].to_numpy() // self.step_ns)
        failed = is_in(rows["status"], "error")
        sums = [np.bincount(place, weights) for weights in (None, failed)]
        for step, amounts in zip(steps.tolist(), np.array(sums).T.astype(np.int64), strict=True):
            self._steps[step] = self._steps.get(step, 0) + amounts
        self._widen()

    def _widen(self) -> None:
        while self._steps and max(self._steps) - min(self._steps) >= MAX_STEPS:
            self.step_ns *= 2
            wider: dict[int, NDArray[np.int64]] = {}
            for step, amounts in self._steps.items():
                wider[step // 2] = wider.get(step // 2, 0) + amounts
            self._steps = wider

    @property
    def first_ns(self) -> int:
        """The start of the first step."""
        return min(self._steps, default=0) * self.step_ns

    def series(self, max_steps: int) -> tuple[int, NDArray[np.int64]]:
        """The length of a step, and messages and errors by step from the first message: (2, n), n <= ``max_steps``."""
        if not self._steps:
            return self.step_ns, np.zeros((2, 0), np.int64)
        first_step, last_step = min(self._steps), max(self._steps)
        together = -(-(last_step - first_step + 1) // max_steps)
        sums = np.zeros((2, (last_step - first_step) // together + 1), np.int64)
        for step, amounts in self._steps.items():
            sums[:, (step - first_step) // together] += amounts
        return together * self.step_ns, sums
