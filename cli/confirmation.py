"""Ask the user before a command deletes data, and provide the `--yes` option that skips the question."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(command: F) -> F:
    """Add the option `--yes` to a command, which receives it as the argument `yes`."""
    return click.option(
        "--yes",
        is_flag=True,
        help="Do not ask for confirmation. The command never asks when stdin is not a terminal.",
    )(command)


def confirm(question: str, *, yes: bool) -> None:
    """Ask the user `question` on stderr, and abort the command unless the answer is yes.

    Ask nothing if `yes` is set or if stdin is not a terminal.
    """
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)
