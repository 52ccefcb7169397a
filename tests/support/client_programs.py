"""Build and run the programs in tests/interop/clients."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CLIENTS = Path(__file__).resolve().parents[1] / "interop" / "clients"


def run(*command: str, cwd: Path, timeout: float = 300) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{' '.join(command)[:200]}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def copied(language: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(CLIENTS / language, tmp_path / language))
