"""Runs a processor's workers as processes: `python -m oncelog.client.processor module:callable --workers 4`."""

from __future__ import annotations

import asyncio
import sys

import click

from ..errors import ConfigError
from .processes import WorkerDiedError, WorkerProcesses


def _argument(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, object]:
    arguments: dict[str, object] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{value!r} is not of the form name=value")
        arguments[name] = text
    return arguments


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("factory")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--set", "arguments", metavar="NAME=VALUE", multiple=True, callback=_argument, help="Given to FACTORY.")
@click.option(
    "--restarts", type=click.IntRange(min=0), default=5, show_default=True, help="Restarts within the window."
)
@click.option("--restart-window", type=click.FloatRange(min=0.001), default=60.0, show_default=True, help="Seconds.")
@click.option(
    "--stop-timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds for workers to finish their transactions.",
)
def command(
    factory: str,
    workers: int,
    arguments: dict[str, object],
    restarts: int,
    restart_window: float,
    stop_timeout: float,
) -> None:
    """Run FACTORY, given as module:callable, in each of several processes until SIGTERM or SIGINT.

    The callable receives the worker's number and the arguments given with --set. It must return a Processor.
    """

    async def run() -> None:
        await WorkerProcesses(
            factory,
            workers=workers,
            arguments=arguments,
            restarts=restarts,
            restart_window_s=restart_window,
            stop_timeout_s=stop_timeout,
        ).run()

    try:
        asyncio.run(run())
    except (WorkerDiedError, ConfigError) as error:
        click.echo(f"oncelog: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    command(prog_name="python -m oncelog.client.processor")
