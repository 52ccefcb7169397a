"""JSON on stdout, for scripts: the `--json` option, and how its output is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """Add `--json` to a command, as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(value: object) -> None:
    """Print one JSON document, indented."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def report(sentence: str, result: object, *, as_json: bool) -> None:
    """Print what a command has done: as a sentence, or `result` as JSON."""
    if as_json:
        print_json(result)
    else:
        click.echo(sentence)
