"""The examples, and with them the public names, under two strict type checkers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.example_programs import EXAMPLES, notebook_source

ROOT = EXAMPLES.parent
SOURCE = ROOT / ".build" / "src"
TOOLS = Path(sys.executable).parent
WRONG = {
    "a class": ("oncelog.Prodducer()", "Prodducer"),
    "a producer's setting": ("oncelog.Producer(lingr_ms=5)", "lingr_ms"),
    "a consumer's setting": ("oncelog.Consumer(topics=['t'], grup_id='g')", "grup_id"),
    "an admin's setting": ("oncelog.Admin(bootstrap_server='localhost:9092')", "bootstrap_server"),
    "a processor's setting": ("oncelog.Processor(group_id='g', acks='most')", "acks"),
    "a pool's setting": ("oncelog.TransactionalProducerPool(prefix='p', transactional_id='x')", "transactional_id"),
    "a broker's setting": ("oncelog.Broker(num_partitons=3)", "num_partitons"),
    "a type": ("oncelog.Producer(linger_ms='soon')", "linger_ms|str"),
    "a choice": ("oncelog.Producer(compression_type='zip')", "compression_type|zip"),
    "a blocking client's setting": ("oncelog.sync.Producer(lingr_ms=5)", "lingr_ms"),
}
"""What is misspelt or wrong: the expression, and what the checkers name."""
RIGHT = """import oncelog
import oncelog.sync

oncelog.Producer(bootstrap_servers=["a:1", "b:2"], acks="all", linger_ms=5, transactional_id="id")
oncelog.Producer({"linger.ms": "5"}, compression_type="zstd")
oncelog.Consumer(topics=["t"], group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
oncelog.Admin(bootstrap_servers="a:1,b:2")
oncelog.TransactionalProducerPool(prefix="p", size=2, linger_ms=0)
oncelog.Broker(num_partitions=3, durability="os", log_retention_ms=1000)
"""


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
def test_wrong_names_and_settings_are_errors(
    checker: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    module = tmp_path / "wrong.py"
    module.write_text(RIGHT + "".join(f"{expression}\n" for expression, _ in WRONG.values()))
    done = checker(module)
    first = RIGHT.count("\n") + 1
    problems = re.findall(r"wrong\.py:(\d+).*?error: (.*)", done.stdout)
    by_line = {line: [text for number, text in problems if int(number) == line] for line in map(int, dict(problems))}
    assert done.returncode == 1, done.stdout + done.stderr
    assert sorted(by_line) == list(range(first, first + len(WRONG))), done.stdout
    for line, (_, named) in enumerate(WRONG.values(), first):
        assert any(re.search(named, text) for text in by_line[line]), done.stdout
