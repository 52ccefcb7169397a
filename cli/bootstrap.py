"""What all commands that talk to a broker share: the --bootstrap option and the event loop they run in."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
PATIENCE_MS = 10_000
"""How long a command tries to reach a broker before it says that it can't."""


def bootstrap_option(command: F) -> F:
    """Adds `--bootstrap HOST:PORT` ($ONCELOG_BOOTSTRAP, else 127.0.0.1:9092) as the argument `bootstrap`."""
    return click.option(
        "--bootstrap",
        envvar="ONCELOG_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="A broker to start from; several with commas.",
    )(command)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end; Ctrl-C cancels it, so that clients close and groups are left."""
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)
