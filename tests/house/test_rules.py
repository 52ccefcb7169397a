"""Rules that matter run with the tests: style, import directions, compose file, make targets."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str, cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"


def tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def test_ruff_finds_nothing() -> None:
    run(tool("ruff"), "check", ".")
    run(tool("ruff"), "format", "--check", ".")


def test_imports_go_only_downwards() -> None:
    run(tool("lint-imports"), "--no-cache")


def test_the_broker_knows_logs_by_their_protocols_alone() -> None:
    """Only `node.py`, which puts the parts together, names the classes that keep logs in files."""
    allowed = {
        "AT_ONCE_BYTES", "AppendOrigin", "AppendResult", "CorruptLog", "DataDirectoryError", "Inspection",
        "InvalidRecords", "IsolationLevel", "Log", "LogConfig", "LogRead", "Logs", "ProducerStateEntry", "Producers",
    }  # fmt: skip
    modules = {"results", "log_config"}
    wrong = []
    for path in sorted((ROOT / "broker").rglob("*.py")):
        if path.parent.name == "log" or path == ROOT / "broker" / "node.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level and f".{node.module or ''}.".find(".log.") >= 0:
                inner = (node.module or "").partition("log.")[2]
                names = {alias.name for alias in node.names}
                if inner not in modules and (inner or not names <= allowed):
                    wrong.append(f"{path.relative_to(ROOT)}: {', '.join(sorted(names))}")
    assert not wrong, wrong


def test_the_broker_knows_metadata_by_its_protocol_alone() -> None:
    """Only `node.py` names the class that keeps metadata in a log."""
    wrong = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "broker").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("metadata.store")
    ]
    assert wrong == ["broker/node.py"]


def test_every_package_folder_is_shipped() -> None:
    import tomllib

    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    tracked = subprocess.run(
        ["git", "ls-files", "*__init__.py", "__init__.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    folders = {Path(line).parent for line in tracked.stdout.split()}
    found = {
        ".".join(("oncelog", *folder.parts)) for folder in folders if folder.parts[:1] not in [("tests",), ("bench",)]
    }
    assert found == listed


def test_compose_file_is_valid_and_runs_commands_that_exist() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    broker = compose["services"]["broker"]
    assert "9092:9092" in broker["ports"]
    assert broker["volumes"] == ["broker-data:/var/lib/oncelog/data"]
    assert "broker-data" in compose["volumes"]
    profiles = {profile for service in compose["services"].values() for profile in service.get("profiles", [])}
    assert profiles == {"kafka", "spark"}
    command, *options = broker["command"]
    known = subprocess.run([tool("oncelog"), command, "--help"], capture_output=True, text=True, check=True).stdout
    for option in options:
        assert option.split("=")[0] in known
    probe = broker["healthcheck"]["test"]
    assert probe[:2] == ["CMD", "oncelog"]
    first_option = next(index for index, part in enumerate(probe) if part.startswith("--"))
    probed = [tool("oncelog"), *probe[2:first_option], "--help"]
    known = subprocess.run(probed, capture_output=True, text=True, check=True).stdout
    for option in [part for part in probe if part.startswith("--")]:
        assert option in known
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert json.dumps(probe[1:]) in dockerfile, "Dockerfile and compose file probe the broker's health in two ways"


@pytest.mark.parametrize(
    "target",
    [
        "setup",
        "run",
        "demo",
        "test",
        "test-kafka",
        "crash",
        "crash-pipeline",
        "hostile",
        "bench",
        "lint",
        "types",
        "docs",
        "site",
        "site-serve",
    ],
)
def test_make_target_exists(target: str) -> None:
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_generated_docs_are_fresh() -> None:
    from oncelog.cli.docs import pages

    for name, text in pages().items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, f"{name} is stale: run `make docs`"
