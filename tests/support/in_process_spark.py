"""What the bulk job asks of Spark, done in this process: a test of its stages needs no JVM.

Rows that move are pickled and put in order as Spark does it; whether Spark does it so is for the tests with a session.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

Batches = Iterator[pa.RecordBatch]


@dataclass
class InProcessSpark:
    """A session with two slots."""

    slots: int = 2

    @property
    def sparkContext(self) -> SimpleNamespace:
        return SimpleNamespace(defaultParallelism=self.slots, master="local[2]")

    def range(self, start: int, end: int, step: int, partitions: int) -> "Frame":
        assert (start, step, partitions) == (0, 1, end)
        return Frame([pa.table({"id": [i]}) for i in range(end)])


@dataclass
class Frame:
    """A data frame: its rows by partition."""

    parts: list[pa.Table]

    def mapInArrow(self, work: Callable[[Batches], Batches], schema: str) -> "Frame":
        names = [column.split()[0] for column in schema.split(",")]
        made = [[*work(iter(part.to_batches()))] for part in self.parts]
        empty = pa.table({name: pa.array([], pa.binary() if name == "content" else pa.int64()) for name in names})
        return Frame([pa.Table.from_batches(batches) if batches else empty for batches in made])

    def repartitionById(self, count: int, column: str) -> "Frame":
        rows = pa.concat_tables(self.parts, promote_options="permissive")
        places = np.array(rows[column], np.int64) % count
        # In no order: Spark's partitions fetch from all tasks at once.
        return Frame([rows.take(np.flatnonzero(places == k)[::-1]) for k in range(count)])

    def sortWithinPartitions(self, *columns: str) -> "Frame":
        return Frame([part.sort_by([(column, "ascending") for column in columns]) for part in self.parts])

    def where(self, condition: str) -> "Frame":
        code = re.sub(r"in \((.*?)\)", r"in (\1,)", condition).replace(" = ", " == ")
        return Frame([part.filter(_mask(part, code)) for part in self.parts])

    def union(self, other: "Frame") -> "Frame":
        return Frame([*self.parts, *other.parts])

    def select(self, *columns: str) -> "Frame":
        return Frame([part.select(columns) for part in self.parts])

    def persist(self, level: object) -> "Frame":
        return self

    def unpersist(self) -> None:
        self.parts = []

    def collect(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(**row) for part in self.parts for row in part.to_pylist()]


def _mask(part: pa.Table, code: str) -> pa.Array:
    return pa.array([eval(code, {}, row) for row in part.to_pylist()], pa.bool_())
