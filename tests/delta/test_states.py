"""States of recordings: data that reads back as it was written, whoever wrote it; nothing in it runs."""

import ast
import json
import os
import pickle
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (extra lake)")
from examples import multiplied
from lakes import add, age
from rows import rotated

from mqpcap.background import Background
from mqpcap.capture import captures
from mqpcap.delta import catalog, growth
from mqpcap.delta.recordings import RecordingPipeline
from mqpcap.delta.states import STATE_HEADER, dump_state, load_state
from mqpcap.errors import CaptureError, OutputError
from mqpcap.pipeline import Options
from mqpcap.tables.output import Output

ROOT = Path(__file__).resolve().parents[2]
PCAPS = ROOT / "pcaps"
UNPICKLING = {
    "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads", "shelve.open", "dill.loads",
    "joblib.load", "cloudpickle.load", "cloudpickle.loads", "np.load", "numpy.load", "pd.read_pickle",
}  # fmt: skip
"""Calls that run what a file says."""
FROM_THIS_JOB = {"src/mqpcap/spark/shuffle.py", "src/mqpcap/spark/tasks.py"}
"""They unpickle what tasks of the same Spark job sent through Spark's own shuffle, which Spark unpickles, too."""


class Attack:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def state_of(name: str, folder: Path) -> bytes:
    """The state of a sample after the first of three files."""
    (capture,) = captures([str(rotated(PCAPS / name, folder, 3)[0])]).captures
    pipeline = RecordingPipeline(None, capture, Options(), _ignore, Background(), ends=False)
    pipeline.run()
    return pipeline.state()


def _ignore(output: Output) -> None:
    pass


def begun_lake(folder: Path) -> tuple[Path, Path]:
    """A lake with an open recording, and the file of its state."""
    (folder / "captures").mkdir()
    first, *_ = rotated(PCAPS / "blipmq" / "qos1.pcap", folder / "captures", 3)
    add(folder / "lake", age(first))
    (state,) = (folder / "lake" / catalog.FOLDER).glob("*.state")
    return folder / "lake", state


def test_containers_and_shared_objects_read_back() -> None:
    inner: list[Any] = [1, None, "a\udcff", 1.5, b"bytes", {(1, 2): {3, 4}}]
    inner.append(inner)

    first, second = load_state(dump_state((inner, inner)))

    assert first is second and first[-1] is first
    assert first[:-1] == inner[:-1]


def test_pickle_of_an_earlier_release_is_refused_in_one_line_and_not_read(tmp_path: Path) -> None:
    lake, state = begun_lake(tmp_path)
    state.write_bytes(b"mqpcap state 5\n" + pickle.dumps(Attack(tmp_path / "made")))
    age(tmp_path / "captures" / "part.pcap1")

    with pytest.raises(OutputError, match="another release of mqpcap; --finish with that release, or a new lake") as it:
        add(lake, tmp_path / "captures" / "part.pcap1")

    assert "\n" not in str(it.value)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "entry",
    [
        ["made", "os:mkdir", [1]], ["object", "os:mkdir", {}], ["made", "mqpcap.delta.states:import_module", [1]],
        ["object", "mqpcap.tables.spilled_rows:SpilledRows", {}], ["state", "mqpcap.tcp.flows:np", [1]],
        ["ndarray", "|O", [1], 0, 8],
        ["compiled", "mqpcap.correlate.alignment:Alignment", 0, [1]], ["bytes", 0, 10], ["bytes", -1, 1],
    ],
)  # fmt: skip
def test_what_no_state_has_is_refused(entry: list[Any]) -> None:
    text = json.dumps([["tuple", [1]], entry, ["list", "x"]]).encode()
    with pytest.raises(CaptureError, match="its state is damaged"):
        load_state(STATE_HEADER + len(text).to_bytes(8, "little") + text + bytes(8))


@pytest.mark.parametrize("name", ["fq/session.pcap", "flymq/pipelining.pcap", "msgq/json_session.pcap"])
def test_damaged_state_is_one_error(tmp_path: Path, name: str) -> None:
    state, rnd = state_of(name, tmp_path), random.Random(name)
    for _ in range(multiplied(60)):
        changed = bytearray(state)
        for _ in range(rnd.randint(1, 4)):
            changed[rnd.randrange(len(STATE_HEADER), len(changed))] = rnd.randrange(256)
        with suppress(CaptureError):  # any other error fails the test
            load_state(bytes(changed))


def test_state_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, state = begun_lake(tmp_path)
    os.truncate(state, 600 << 20)
    monkeypatch.setattr(growth, "MAX_STATE_BYTES", 0)

    with pytest.raises(OutputError, match="its state has 629145600 bytes, more than 536870912"):
        add(lake, age(tmp_path / "captures" / "part.pcap1"))


def test_nothing_is_unpickled_that_comes_from_a_file() -> None:
    calls = {
        (path.relative_to(ROOT).as_posix(), ast.unparse(node))
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in UNPICKLING)
        or (isinstance(node, ast.ImportFrom) and node.module in {"pickle", "marshal", "shelve"})
        or (isinstance(node, ast.keyword) and node.arg == "allow_pickle")
    }

    assert {path for path, _ in calls} == FROM_THIS_JOB, calls
