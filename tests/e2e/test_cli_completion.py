"""`oncelog completion`: the scripts are accepted by the shells that are there, and complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ONCELOG = (sys.executable, "-P", "-m", "oncelog.cli")


def script(shell: str) -> str:
    done = subprocess.run([*ONCELOG, "completion", shell], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    assert f"_ONCELOG_COMPLETE={shell}_complete" in script(shell)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("oncelog top", {"topic"}),
        ("oncelog topic add", {"add-partitions"}),
        ("oncelog group reset billing --to-e", {"--to-earliest"}),
        ("oncelog completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes_commands_and_options(tmp_path: Path, words: str, completed: set[str]) -> None:
    command = tmp_path / "oncelog"
    command.write_text(f'#!/bin/sh\nexec {" ".join(ONCELOG)} "$@"\n')
    command.chmod(0o755)
    asked = (
        f"{script('bash')}\n"
        f"COMP_WORDS=({words}{' ' + repr('') if words.endswith(' ') else ''})\n"
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
        '_oncelog_completion oncelog; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", asked], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert set(done.stdout.split()) == completed, done.stderr


def test_unknown_shell_is_wrong_usage() -> None:
    done = subprocess.run([*ONCELOG, "completion", "csh"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
