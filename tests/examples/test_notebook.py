"""examples/notebook.ipynb in a real kernel, which has an event loop of its own, and stored without output."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.example_programs import EXAMPLES, run

NOTEBOOK = EXAMPLES / "notebook.ipynb"


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    pytest.importorskip("nbclient", reason="nbclient and ipykernel are not installed: make setup")
    executed = tmp_path / "executed.ipynb"
    run("", tmp_path, str(Path(sys.executable).with_name("jupyter-execute")), f"--output={executed}", str(NOTEBOOK))
    cells = [cell for cell in json.loads(executed.read_text())["cells"] if cell["cell_type"] == "code"]
    printed = [output["text"] for cell in cells for output in cell["outputs"]]
    assert "".join("".join(text) for text in printed).splitlines() == [
        "aborted: the sensor is broken",
        "{'Berlin': 5, 'Lagos': 32}",
        "with the aborted record: [4, 6, 4000]",
        "read_committed {'temperatures-0': 3, 'temperatures-1': 5}",
        "read_uncommitted {'temperatures-0': 3, 'temperatures-1': 5}",
    ]


def test_the_notebook_is_stored_without_output() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells if "outputs" in cell)
