"""What is missing is said in one sentence, with the remedy, before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from oncelog.cli.pipeline import pipeline
from oncelog.pipeline import requirements

REMEDY = "install Java 17 (`apt install openjdk-17-jre-headless`) or set JAVA_HOME."


def java(directory: Path, told: str, code: int = 0) -> Path:
    (directory / "bin").mkdir()
    program = directory / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return directory


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert requirements.java_problem() == f"Spark needs Java 17 or newer, but no java was found: {REMEDY}"


def test_java_home_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert requirements.java_problem() == f"JAVA_HOME is {tmp_path}, which has no executable bin/java: {REMEDY}"


@pytest.mark.parametrize(
    ("told", "number"),
    [('openjdk version "11.0.2"', 11), ('java version "1.8.0_281"', 8), ('openjdk version "16"', 16)],
)
def test_java_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str, number: int) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, told)))
    problem = requirements.java_problem()
    assert problem == f"Spark needs Java 17 or newer, but {tmp_path}/bin/java is Java {number}: {REMEDY}"


@pytest.mark.parametrize("told", ['openjdk version "17.0.15"', 'openjdk version "21"', "something of its own"])
def test_java_that_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, told)))
    assert requirements.java_problem() is None


def test_java_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, "x", 3)))
    problem = requirements.java_problem()
    assert problem is not None
    assert problem.startswith(f"{tmp_path}/bin/java does not run")


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "_PACKAGES", ("click", "no_such_package"))
    with pytest.raises(requirements.RequirementError) as missing:
        requirements.require_spark()
    assert str(missing.value) == (
        "The pipeline needs no_such_package: install the extra with `pip install 'oncelog[pipeline]'`."
    )


def test_the_command_says_it_in_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    job = tmp_path / "job.toml"
    job.write_text('name = "j"\ncheckpoint = "c"\n[[source]]\nname = "s"\n[[sink]]\nname = "k"\nfrom = "s"\n')
    done = CliRunner().invoke(pipeline, ["run", str(job)])
    assert done.exit_code == 1
    assert done.output == f"oncelog: Spark needs Java 17 or newer, but no java was found: {REMEDY}\n"
    done = CliRunner().invoke(pipeline, ["run", str(tmp_path / "none.toml")])
    assert done.output == f"oncelog: {tmp_path}/none.toml: No such file or directory\n"
