"""Unmodified clients of other languages: each program runs a whole exactly-once job and prints OK."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.client_programs import CLIENTS, copied, need, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


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
