"""Unmodified clients of other languages: each program runs a whole exactly-once job and prints OK."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CLIENTS = Path(__file__).resolve().parent / "clients"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: str, cwd: Path, timeout: float = 300) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{' '.join(command)[:200]}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def copied(language: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(CLIENTS / language, tmp_path / language))


def test_java_client(bootstrap: str, tmp_path: Path) -> None:
    need("java")
    need("mvn")
    from support.apache_kafka import class_path, jvm_options

    program = str(CLIENTS / "java" / "ExactlyOnce.java")
    assert "OK" in run("java", *jvm_options("256m"), "-cp", class_path(), program, bootstrap, cwd=tmp_path)


def test_go_client(bootstrap: str, tmp_path: Path) -> None:
    need("go")
    home = copied("go", tmp_path)
    run("go", "build", "-o", "program", ".", cwd=home)
    assert "OK" in run("./program", bootstrap, cwd=home)


def test_javascript_client(bootstrap: str, tmp_path: Path) -> None:
    need("npm")
    home = copied("js", tmp_path)
    run("npm", "install", "--silent", "--no-package-lock", cwd=home)
    assert "OK" in run("node", "exactly_once.js", bootstrap, cwd=home)
