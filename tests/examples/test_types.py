"""The examples, and with them the public names, under two strict type checkers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.example_programs import EXAMPLES, notebook_source

ROOT = EXAMPLES.parent
SOURCE = ROOT / ".build" / "src"
TOOLS = Path(sys.executable).parent
MISSPELT = "import oncelog\n\nproducer = oncelog.Prodducer()\n"


def checked(*command: str) -> subprocess.CompletedProcess[str]:
    # The root folder is the package: through this link a type checker sees it under its own name.
    SOURCE.mkdir(parents=True, exist_ok=True)
    if not (SOURCE / "oncelog").is_symlink():
        (SOURCE / "oncelog").symlink_to(Path("..", ".."))
    environment = os.environ | {"MYPYPATH": str(SOURCE)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


def mypy(*paths: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("starlette", reason="starlette is not installed: make setup")
    return checked(str(TOOLS / "mypy"), "--strict", "--config-file", "pyproject.toml", *map(str, paths))


def pyright(*paths: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("pyright", reason="pyright is not installed: make setup")
    return checked(str(TOOLS / "pyright"), "--pythonpath", sys.executable, *map(str, paths))


@pytest.fixture(params=[mypy, pyright])
def checker(request: pytest.FixtureRequest) -> Callable[..., subprocess.CompletedProcess[str]]:
    check: Callable[..., subprocess.CompletedProcess[str]] = request.param
    return check


@pytest.mark.timeout(300)
def test_examples_pass(checker: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.py"
    notebook.write_text(notebook_source(EXAMPLES / "notebook.ipynb"))
    done = checker(*sorted(EXAMPLES.glob("*.py")), notebook)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_a_misspelt_name_is_an_error(checker: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    (tmp_path / "misspelt.py").write_text(MISSPELT)
    done = checker(tmp_path / "misspelt.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Prodducer" in done.stdout
