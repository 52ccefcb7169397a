"""Provide the `--bootstrap` option, the admin client and the event loop for all commands that talk to a broker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..client.admin import Admin

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
PATIENCE_MS = 10_000
"""Milliseconds for which a command tries to reach a broker before it fails."""


def bootstrap_option(command: F) -> F:
    """Add the option `--bootstrap HOST:PORT` to a command, which receives it as the argument `bootstrap`.

    The default is the environment variable ONCELOG_BOOTSTRAP, else 127.0.0.1:9092.
    """
    return click.option(
        "--bootstrap",
        envvar="ONCELOG_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="Address of a broker, or several addresses separated by commas.",
    )(command)


def connect_admin(bootstrap: str) -> Admin:
    """Return an admin client that is not started yet. Start it by `async with connect_admin(bootstrap) as admin`."""
    from ..client.admin import Admin

    return Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_MS)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine in a new event loop, and return its result.

    Ctrl-C cancels the coroutine, so that its clients close and its consumers leave their groups.
    """
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)
