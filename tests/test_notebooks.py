"""Every notebook runs from top to bottom, and is kept without outputs."""

import os
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is in the test extra")
nbclient = pytest.importorskip("nbclient", reason="nbclient is in the test extra")

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
TOLD = {
    "first_look": "'state': 'answered'",
    "follow_a_message": "in the packets of the publisher: True",
    "at_scale": "CLUSTER_METADATA",
    "add_a_protocol": "problems: 0",
}
"""What each one has found out, in its own words."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]

    assert cells
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the interpreter of the tests, whose commands come first on the path."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(path, as_version=4)

    where = {"metadata": {"path": str(FOLDER)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()

    shown = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert not [out for out in shown if out.output_type == "error"]
    assert any("image/png" in out.get("data", {}) for out in shown)
    told = [out.get("text") or out.get("data", {}).get("text/plain", "") for out in shown]
    assert TOLD[path.stem] in "".join(told)
