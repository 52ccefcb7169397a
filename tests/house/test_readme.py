"""What the README shows works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


PRINTED = ["b'alice' b'42 apples'\n", "1 in, 1 out, each exactly once\n"]
"""What each Python example prints, in their order."""


@pytest.mark.timeout(120)
def test_the_python_examples_run(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    for number, (example, printed) in enumerate(zip(examples, PRINTED, strict=True)):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "example.py").write_text(example)
        done = subprocess.run(
            [sys.executable, "example.py"], cwd=directory, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout == printed


@pytest.mark.timeout(120)
def test_the_commands_run(tmp_path: Path) -> None:
    from support.broker import BrokerProcess

    commands = re.findall(
        r"^(?:echo 'hello' \| )?oncelog (?:topic|produce|consume|group) .*$", README.read_text(), re.MULTILINE
    )
    assert len(commands) == 4
    with BrokerProcess(tmp_path) as broker:
        printed = []
        for command in commands:
            line = command.replace("oncelog ", f"{Path(sys.executable).parent}/oncelog ", 1)
            done = subprocess.run(
                line,
                shell=True,
                env={"ONCELOG_BOOTSTRAP": broker.address, "PATH": "/usr/bin:/bin"},
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            printed.append(done.stdout)
    assert "hello" in printed[2]
