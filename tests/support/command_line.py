"""Run the `oncelog` command as users do: one process per command, against one broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from .forked_commands import CAN_FORK, run_forked

ONCELOG = (sys.executable, "-P", "-m", "oncelog.cli")
Run = Callable[..., subprocess.CompletedProcess[str]]


def command_line(bootstrap: str) -> Run:
    """Return a function `run("topic", "list")` that runs the command against a broker. `lines` go to its stdin."""

    def run(*arguments: str, lines: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return run_command(*arguments, lines=lines, timeout=timeout, ONCELOG_BOOTSTRAP=bootstrap)

    return run


def run_command(
    *arguments: str, lines: str = "", timeout: float = 60, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command with further variables in its environment."""
    changed = os.environ | environment
    if CAN_FORK:
        return run_forked(arguments, lines, timeout, changed)
    words = [*ONCELOG, *arguments]
    return subprocess.run(words, input=lines, capture_output=True, text=True, timeout=timeout, check=False, env=changed)


def done(result: subprocess.CompletedProcess[str]) -> str:
    """Check that a command has succeeded, and return its stdout."""
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout


def done_json(result: subprocess.CompletedProcess[str]) -> Any:
    """Check that a command has succeeded, and return the JSON that it printed."""
    return json.loads(done(result))


def failed(result: subprocess.CompletedProcess[str], *words: str, code: int = 1) -> None:
    """Check that a command has failed with the exit code `code`, and with an error message that contains `words`."""
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr
