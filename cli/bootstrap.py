"""Provide the options, the admin client and the event loop for all commands that talk to a broker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..client.admin import Admin

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_CLIENT_CONFIG = f"{__name__}.client_config"

PATIENCE_MS = 10_000
"""Milliseconds for which a command tries to reach a broker before it fails."""


def bootstrap_option(command: F) -> F:
    """Add the options `--bootstrap HOST:PORT` and `--client-config FILE` to a command.

    The command receives the first as the argument `bootstrap`; its default is the environment variable
    ONCELOG_BOOTSTRAP, else 127.0.0.1:9092. `client_settings` returns the settings of the file.
    """
    with_file = click.option(
        "--client-config",
        envvar="ONCELOG_CLIENT_CONFIG",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        metavar="FILE",
        show_envvar=True,
        expose_value=False,
        callback=lambda context, _, file: context.meta.__setitem__(_CLIENT_CONFIG, file),
        help="File with client settings such as security.protocol: Java properties, or TOML if its name ends in .toml.",
    )
    return click.option(
        "--bootstrap",
        envvar="ONCELOG_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="Address of a broker, or several addresses separated by commas.",
    )(with_file(command))


def client_settings(bootstrap: str) -> dict[str, object]:
    """Return the settings for the running command's clients as keyword arguments.

    They are the settings in the file of `--client-config`, and the address `bootstrap`. If the user has given no
    address, an address in the file replaces the default. Raises ClickException if the file cannot be read.
    """
    context = click.get_current_context()
    file = context.meta.get(_CLIENT_CONFIG)
    settings: dict[str, object] = {}
    if file is not None:
        from ..connect.errors import ConnectError
        from ..connect.settings.files import read_settings

        try:
            settings.update((name.replace(".", "_"), value) for name, value in read_settings(file).items())
        except ConnectError as error:
            raise click.ClickException(str(error)) from None
    is_default = context.get_parameter_source("bootstrap") is click.core.ParameterSource.DEFAULT
    if not is_default or "bootstrap_servers" not in settings:
        settings["bootstrap_servers"] = bootstrap
    return settings


def connect_admin(bootstrap: str) -> Admin:
    """Return an admin client that is not started yet. Start it by `async with connect_admin(bootstrap) as admin`."""
    from ..client.admin import Admin

    return Admin({"default_api_timeout_ms": PATIENCE_MS, **client_settings(bootstrap)})


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine in a new event loop, and return its result.

    Ctrl-C cancels the coroutine, so that its clients close and its consumers leave their groups.
    """
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)
