"""What all commands that talk to a broker share: the --bootstrap option, the admin client, and the event loop."""

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
"""How long a command tries to reach a broker before it fails."""


def bootstrap_option(command: F) -> F:
    """Add `--bootstrap HOST:PORT` ($ONCELOG_BOOTSTRAP, else 127.0.0.1:9092) as the argument `bootstrap`."""
    return click.option(
        "--bootstrap",
        envvar="ONCELOG_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="Address of a broker, or several with commas.",
    )(command)


def connect_admin(bootstrap: str) -> Admin:
    """Return an admin client that is not started yet: `async with connect_admin(bootstrap) as admin`."""
    from ..client.admin import Admin

    return Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_MS)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end. Ctrl-C cancels it: clients close, and consumers leave their groups."""
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)
