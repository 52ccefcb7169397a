"""What surrounds the code stays true: workflows, forms, hooks, `make help`, the changelog."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def parsed(path: Path) -> dict[Any, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def commands(workflow: Path) -> list[str]:
    return [step.get("run", "") for job in parsed(workflow)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("github-workflows", [f".github/workflows/{path.name}" for path in WORKFLOWS]),
        ("dependabot", [".github/dependabot.yml"]),
        ("github-issue-config", [".github/ISSUE_TEMPLATE/config.yml"]),
        ("github-issue-forms", [".github/ISSUE_TEMPLATE/bug_report.yml", ".github/ISSUE_TEMPLATE/feature_request.yml"]),
    ],
)
def test_files_of_the_host_follow_its_schemas(schema: str, names: list[str]) -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed: make setup")
    check = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", f"vendor.{schema}", *names]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_run_targets_that_exist() -> None:
    lines = " ".join(command for path in WORKFLOWS for command in commands(path))
    named = {word for line in re.findall(r"make ([a-z -]+)", lines) for word in line.split()}
    heavy = parsed(ROOT / ".github" / "workflows" / "heavy.yml")["jobs"]["suite"]["strategy"]["matrix"]["target"]
    assert {"test", "lint", "types", "coverage", "site"} <= named
    assert named | set(heavy) <= TARGETS


def test_tests_run_on_every_python_that_is_named() -> None:
    matrix = parsed(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    prefix = "Programming Language :: Python :: 3."
    classified = [name.removeprefix(prefix) for name in PROJECT["classifiers"] if name.startswith(prefix)]
    assert [f"3.{minor}" for minor in classified] == matrix
    assert PROJECT["requires-python"] == f">={matrix[0]}"


def test_workflows_may_only_read_unless_a_job_says_more() -> None:
    for path in WORKFLOWS:
        assert parsed(path)["permissions"] == {"contents": "read"}, path.name
        assert all("timeout-minutes" in job for job in parsed(path)["jobs"].values()), path.name


def test_hooks_use_tools_that_are_installed() -> None:
    (repository,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    for hook in repository["hooks"]:
        for tool in re.findall(r"\.venv/bin/([a-z-]+)", hook["entry"]):
            assert Path(sys.executable).with_name(tool).exists(), hook["id"]


def test_make_help_lists_every_target_in_a_group() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    groups = shown.strip().split("\n\n")
    assert len(groups) >= 4
    listed = {line.split()[0] for group in groups for line in group.splitlines()[1:]}
    assert listed == TARGETS


def test_the_changelog_has_the_layout_that_it_names() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    kinds = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for version in versions:
        name = version.split("]")[0].lstrip("[")
        assert re.search(rf"^\[{re.escape(name)}\]: https://", text, re.MULTILINE), f"{name} has no link"
