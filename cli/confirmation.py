"""Questions before something is lost: the `--yes` option."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(command: F) -> F:
    """Add `--yes` to a command, as the argument `yes`."""
    return click.option("--yes", is_flag=True, help="Do not ask; also skipped when stdin is not a terminal.")(command)


def confirm(question: str, *, yes: bool) -> None:
    """Ask, and end the command unless the answer is yes."""
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)
