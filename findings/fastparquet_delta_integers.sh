#!/usr/bin/env bash
# fastparquet 2026.9.0 reads 64-bit integers wrongly, without an error, if they are stored as DELTA_BINARY_PACKED and
# the differences of neighbours take 31 bits or more.
#
# A good engineer would guess that a reader either decodes an encoding or refuses it. The encoding is part of the
# Parquet specification, and the file is valid: pyarrow 21.0.0 reads the same file exactly. Times in nanoseconds meet
# this as soon as two rows are about a second apart.
#
# Seen on 2026-11-28 with fastparquet 2026.9.0, pyarrow 21.0.0, pandas 2.3.3, numpy 2.4.6, Python 3.11: of 1,000 values
# with random differences below 2**28 none is wrong, below 2**31 997, below 2**42 998; the first two are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'fastparquet==2026.9.0' 'pyarrow==21.0.0' 'pandas==2.3.3' 'numpy==2.4.6'
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import random

import fastparquet
import pyarrow as pa
import pyarrow.parquet as pq

draw = random.Random(1)
wrong_by_bits = {}
for bits in (16, 28, 31, 42):
    times = [1_795_238_649_419_323_000]
    while len(times) < 1_000:
        times.append(times[-1] + draw.randrange(1 << bits))
    pq.write_table(
        pa.table({"ts_ns": times}), "times.parquet", use_dictionary=False,
        column_encoding={"ts_ns": "DELTA_BINARY_PACKED"},
    )
    assert pq.read_table("times.parquet")["ts_ns"].to_pylist() == times
    read = fastparquet.ParquetFile("times.parquet").to_pandas()["ts_ns"].tolist()
    wrong = [row for row in range(len(times)) if read[row] != times[row]]
    wrong_by_bits[bits] = len(wrong)
    print(f"differences below 2**{bits}: {len(wrong)} of {len(times)} values wrong", wrong[:1])
assert wrong_by_bits[16] == wrong_by_bits[28] == 0
assert wrong_by_bits[31] > 900 and wrong_by_bits[42] > 900, "fastparquet reads them now"
PYTHON
