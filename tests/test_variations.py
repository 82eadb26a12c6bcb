"""A matrix: the begin of every sample capture and ways to read it give the same rows.

Windows of one packet read each capture, and each other variation every fourth one; MQPCAP_EXAMPLES=4 tries all pairs.

The variations are windows of few packets, messages paired in pieces, a pickled state, and compressed
files. The same is held by
``test_mutated_captures.py`` for damaged captures, by ``test_parallel_export.py`` for threads and processes, by
``test_uncompiled.py`` for pure Python, and by ``spark/test_share.py`` for Spark's shares.
"""

import gzip
import lzma
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from dissection import Dissection, dissect
from examples import one_in
from mutated_captures import PCAPS, capture_bytes, records, tables

from mqpcap import pipeline
from mqpcap.capture import captures, windows
from mqpcap.decode import columns
from mqpcap.pipeline import Options, Pipeline

FIRST_PACKETS = 24
"""Packets of a capture that are read."""
SAMPLES = sorted(PCAPS.glob("*/*.pcap"))
CAPTURES = [pytest.param(path, number, id=f"{path.parent.name}-{path.stem}") for number, path in enumerate(SAMPLES)]
Rows = dict[str, Counter[str]]


def rows_of(path: Path) -> Rows:
    (capture,) = captures([str(path)]).captures
    return tables(dissect(capture))


def windows_of(packets: int) -> Callable[[Path, pytest.MonkeyPatch, Path], Rows]:
    def read(path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Rows:
        monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", packets)
        return rows_of(path)

    return read


def paired_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Rows:
    """If inflated fields pass the bound, the messages read until then are paired, as if the window ended there."""
    monkeypatch.setattr(pipeline, "MAX_PAIRED_BYTES", 0)
    monkeypatch.setattr(columns, "BATCH_ROWS", 50)
    return rows_of(path)


def pickled_between_windows(path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Rows:
    """The state of all stages is dumped and loaded after each window."""
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 7)
    (capture,) = captures([str(path)]).captures
    rows = Dissection(capture)
    stages = Pipeline(Options(), rows.add, capture.files[0], lambda index: capture.files[index])
    for window in capture.windows():
        stages.feed(window)
        stages = pickle.loads(pickle.dumps(stages))
        stages.emit, stages.file_name = rows.add, lambda index: capture.files[index]
    stages.lost_fragments()
    list(stages.finish())
    return tables(rows)


def compressed(compress: Callable[[bytes], bytes]) -> Callable[[Path, pytest.MonkeyPatch, Path], Rows]:
    def read(path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Rows:
        """Under its own name, which is in the rows."""
        (folder / path.name).write_bytes(compress(path.read_bytes()))
        return renamed(rows_of(folder / path.name), folder / path.name, path)

    return read


def renamed(rows: Rows, name: Path, original: Path) -> Rows:
    return {table: Counter({row.replace(str(name), str(original)): n for row, n in some.items()})
            for table, some in rows.items()}  # fmt: skip


VARIATIONS: dict[str, Callable[[Path, pytest.MonkeyPatch, Path], Rows]] = {
    "windows of 1 packet": windows_of(1),
    "windows of 2 packets": windows_of(2),
    "windows of 7 packets": windows_of(7),
    "paired in pieces": paired_in_pieces,
    "pickled between windows": pickled_between_windows,
    "gzip": compressed(gzip.compress),
    "xz": compressed(lzma.compress),
}


@pytest.mark.parametrize(("sample", "number"), CAPTURES)
def test_rows_are_the_same(sample: Path, number: int, tmp_path: Path) -> None:
    data, path, other = sample.read_bytes(), tmp_path / "capture.pcap", tmp_path / "other"
    path.write_bytes(capture_bytes(data[:24], records(data)[:FIRST_PACKETS]))
    other.mkdir()
    expected, differing = rows_of(path), {}
    first, *others = VARIATIONS
    for name in (first, *one_in(4, others, number)):
        read = VARIATIONS[name]
        with pytest.MonkeyPatch.context() as monkeypatch:
            rows = read(path, monkeypatch, other)
        wrong = {table: (expected[table] - rows[table], rows[table] - expected[table]) for table in rows}
        if any(map(any, wrong.values())):
            differing[name] = {table: pair for table, pair in wrong.items() if any(pair)}

    assert differing == {}
