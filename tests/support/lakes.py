"""Rows of lakes, and captures that grow file by file."""

import os
import time
from pathlib import Path

import pyarrow.parquet as pq
from rows import Rows, texts

from mqpcap.delta import tables as delta_tables
from mqpcap.delta.growth import Lake
from mqpcap.reading import Choices, Outcome


def of_lake(folder: Path) -> Rows:
    """All tables of a lake that have rows, as `rows.of_export` gives those of an export."""
    rows_by_table: Rows = {}
    for name in delta_tables.table_names(folder):
        table = delta_tables.opened(folder, name)
        assert table is not None
        paths = [folder / name / path for path, _ in delta_tables._active(table)]
        if rows := texts(pq.ParquetFile(path).read() for path in paths):
            rows_by_table[name] = rows
    return rows_by_table


def age(path: Path, seconds: float = 3600) -> Path:
    """The file, as if nobody had written to it for a time."""
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def add(folder: Path, *inputs: Path, finish: bool = False, rebuild: bool = False, **choices: object) -> Outcome:
    """One run that adds inputs to a lake."""
    outcome = Outcome(Choices(jobs=1, **choices))  # type: ignore[arg-type]  # fields of Choices
    with Lake(folder, outcome.choices.dissection()) as lake:
        additions = lake.sort_out([str(path) for path in inputs], outcome, all_now=finish, rebuild=rebuild)
        lake.add(additions, outcome, lambda _: None, finish)
    return outcome
