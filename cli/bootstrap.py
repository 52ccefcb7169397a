"""Provide the options, the admin client and the event loop for all commands that talk to a broker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from .environment import Variable
from .failures import Terminated
from .option_files import file_option, option_file

if TYPE_CHECKING:
    from ..client.admin import Admin
    from .profiles import Client

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

PATIENCE_MS = 10_000
"""Milliseconds for which a command tries to reach a broker before it fails."""

_PROFILE: Final = f"{__name__}.profile"


def bootstrap_option(command: F) -> F:
    """Add the options `--bootstrap HOST:PORT`, `--client-config FILE` and `--profile NAME` to a command.

    The command receives the address as the argument `bootstrap`. The default is the environment variable
    ONCELOG_BOOTSTRAP, else 127.0.0.1:9092. `client_settings` returns the settings of the file or profile.
    """
    with_profile = click.option(
        "--profile",
        envvar=Variable.PROFILE,
        metavar="NAME",
        show_envvar=True,
        expose_value=False,
        callback=_keep_profile,
        help="Table of client settings in the file $ONCELOG_PROFILES, by default ~/.config/oncelog/profiles.toml.",
    )
    with_file = file_option(
        "--client-config",
        Variable.CLIENT_CONFIG,
        "File with client settings such as security.protocol: Java properties, or TOML if its name ends in .toml.",
    )
    return click.option(
        "--bootstrap",
        envvar=Variable.BOOTSTRAP,
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="Address of a broker, or several addresses separated by commas.",
    )(with_file(with_profile(command)))


def _keep_profile(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Keep the name of the profile for `client_settings`."""
    context.meta[_PROFILE] = value


def client_settings(bootstrap: str, client: Client) -> dict[str, object]:
    """Return the settings for a client of the running command as keyword arguments.

    They are those settings of `--client-config` or `--profile` that this client has, and an address. The address is the
    first of these that is given: `--bootstrap`; the address in a file or profile that the command line names;
    ONCELOG_BOOTSTRAP; the address in a file or profile that the environment names; the default. The argument
    `bootstrap` is the value of the option: `--bootstrap`, ONCELOG_BOOTSTRAP or the default. Raises ClickException if
    the file or the profile cannot be read, and ConfigError if it has a setting that no client has.
    """
    context = click.get_current_context()
    settings, source = _given_settings(context, client)
    own = context.get_parameter_source("bootstrap")
    weaker = {ParameterSource.DEFAULT}
    if source is ParameterSource.COMMANDLINE:
        weaker.add(ParameterSource.ENVIRONMENT)
    if own not in weaker or "bootstrap_servers" not in settings:
        settings["bootstrap_servers"] = bootstrap
    return settings


def _given_settings(context: click.Context, client: Client) -> tuple[dict[str, object], ParameterSource | None]:
    """Return the client's settings in the file or profile, and whether the command line or the environment names it."""
    file = option_file("client_config")
    profile: str | None = context.meta.get(_PROFILE)
    if file is None and profile is None:
        return {}, None
    by_file, by_profile = map(context.get_parameter_source, ("client_config", "profile"))
    if file is not None and profile is not None:
        if by_file is by_profile:
            raise click.UsageError("Give either --client-config or --profile, and not both.", context)
        if by_file is ParameterSource.COMMANDLINE:  # the command line wins over the environment
            profile = None
        else:
            file = None

    from ..connect.errors import ConnectError
    from . import profiles

    try:
        if profile is not None:
            read, source = profiles.named(profile), by_profile
        else:
            assert file is not None
            read, source = profiles.of_file(file.path()), by_file
    except ConnectError as error:
        raise click.ClickException(str(error)) from None
    return profiles.settings_of(client, read), source


def connect_admin(bootstrap: str) -> Admin:
    """Return an admin client that is not started yet. Start it with `async with connect_admin(bootstrap) as admin`."""
    from ..client.admin import Admin

    return Admin({"default_api_timeout_ms": PATIENCE_MS, **client_settings(bootstrap, "admin")})


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine in a new event loop, and return its result.

    Ctrl-C, SIGTERM and SIGHUP cancel the coroutine, so that its clients close, its consumers leave their groups and its
    transactions are aborted. Then this function raises KeyboardInterrupt, or Terminated for the other signals. A second
    signal ends the process at once.
    """
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_until_signal(coroutine))


async def _until_signal(coroutine: Coroutine[Any, Any, T]) -> T:
    import asyncio
    import signal
    import threading

    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(coroutine)
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        running.cancel()
        for each in handled:
            loop.remove_signal_handler(each)

    handled = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if threading.current_thread() is threading.main_thread() and signal.getsignal(number) is signal.SIG_DFL
    ]  # a command that runs under nohup continues to ignore SIGHUP
    for number in handled:
        loop.add_signal_handler(number, end, number)
    try:
        return await running
    except asyncio.CancelledError:
        if received:
            raise Terminated(received[0]) from None
        raise
