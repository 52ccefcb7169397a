"""Java is installed where there is none and it may be, and otherwise it is only said; apt-get is a stand-in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from oncelog.pipeline import install_java
from oncelog.pipeline.requirements import java_problem


class Machine:
    """A PATH with nothing in it, and what was asked of its apt-get."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.asked = directory / "asked"

    def put(self, name: str, script: str) -> None:
        program = self.bin / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def apt(self, installs: str) -> None:
        """An apt-get that knows one package, which is a Java 17."""
        java = self.bin / "java"
        self.put(
            "apt-get",
            f'echo "$*" >> {self.asked}\n'
            'case "$*" in *update*|*download-only*) exit 0;; esac\n'
            f'case "$*" in *{installs}*) printf \'#!/bin/sh\\necho version \\\\"17.0.1\\\\" >&2\\n\' > {java};'
            f" /bin/chmod 755 {java};; *) echo 'E: Unable to locate package' >&2; exit 100;; esac",
        )

    def requests(self) -> list[str]:
        return self.asked.read_text().splitlines() if self.asked.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(machine.bin))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return machine


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_root_without_java_gets_it(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.apt("openjdk-17")
    install_java.main()
    assert java_problem() is None
    assert told(capsys) == [
        "oncelog: There is no Java: installing openjdk-17-jre-headless with apt-get, for the pipeline on Spark ..."
    ]
    assert machine.requests()[-1] == "-q install -y --no-install-recommends openjdk-17-jre-headless"
    install_java.main()
    assert told(capsys) == []


def test_a_newer_system_has_only_a_newer_java(machine: Machine) -> None:
    machine.apt("openjdk-21")
    install_java.main()
    assert java_problem() is None


def test_what_apt_get_cannot_do_is_said_and_no_failure(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.apt("nothing-of-this")
    install_java.main()
    last = told(capsys)[-1]
    assert last.startswith("oncelog: That has failed (E: Unable to locate package). Spark needs Java 17 or newer")
    assert last.endswith("or set JAVA_HOME. Only the pipeline needs Java.")


def test_users_are_told_only(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.apt("openjdk-17")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    install_java.main()
    assert machine.requests() == []
    (line,) = told(capsys)
    assert "install Java 17 (`apt install openjdk-17-jre-headless`)" in line


def test_a_system_without_apt_get_is_told_only(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    install_java.main()
    assert len(told(capsys)) == 1


def test_an_older_java_stays(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.apt("openjdk-17")
    machine.put("java", "echo 'version \"11.0.2\"' >&2")
    install_java.main()
    assert machine.requests() == []
    assert len(told(capsys)) == 1


def test_a_java_that_will_do_is_left_alone(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.apt("openjdk-17")
    machine.put("java", "echo 'version \"21\"' >&2")
    install_java.main()
    assert (machine.requests(), told(capsys)) == ([], [])
