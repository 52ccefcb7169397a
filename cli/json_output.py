"""Provide the `--json` option, and print results as JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """Add the option `--json` to a command, which receives it as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(value: object) -> None:
    """Print `value` as one indented JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def report(sentence: str, result: object, *, as_json: bool) -> None:
    """Print the outcome of a command: `result` as JSON if `as_json` is set, else `sentence`."""
    if as_json:
        print_json(result)
    else:
        click.echo(sentence)
