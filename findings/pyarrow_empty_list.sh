#!/usr/bin/env bash
# pyarrow 26.0.1 has no single answer to an empty Python list of rows or values: it is an array of type null, and
# each call decides by itself whether null will do.
#
# A good engineer would guess that no row taken is no row, and that nothing is in an empty list, as in numpy, pandas and
# SQL. A list that is empty only for some inputs then fails there and nowhere else. It met us where all rows of a table
# had the same key, and one of two partitions took the rows [].
#
# Seen on 2026-11-29 with pyarrow 26.0.1, numpy 2.4.6, Python 3.11: `Table.take([])` raises ArrowNotImplementedError,
# `dataset.take([])` of the same table gives 0 rows; `isin([])` is false for each integer and raises ArrowTypeError for
# text. A typed array, or numpy's of integers, works everywhere.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'pyarrow==26.0.1' 'numpy==2.4.6'
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

table = pa.table({"number": [1, 2], "text": ["a", "b"]})
calls = {
    "table.take([])": lambda: table.take([]).num_rows,
    "dataset(table).take([])": lambda: ds.dataset(table).take([]).num_rows,
    "table.take(np.array([], int))": lambda: table.take(np.array([], int)).num_rows,
    "filter(number isin [])": lambda: table.filter(pc.field("number").isin([])).num_rows,
    "filter(text isin [])": lambda: table.filter(pc.field("text").isin([])).num_rows,
    "filter(text isin an empty array of text)": lambda: table.filter(
        pc.field("text").isin(pa.array([], pa.string()))
    ).num_rows,
}
seen = {}
for name, call in calls.items():
    try:
        seen[name] = call()
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        seen[name] = type(error).__name__
    print(f"{name}: {seen[name]}")
assert list(seen.values()) == ["ArrowNotImplementedError", 0, 0, 0, "ArrowTypeError", 0], "pyarrow answers otherwise now"
PYTHON
