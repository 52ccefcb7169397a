"""`oncelog connect`: run Kafka Connect workers."""

from __future__ import annotations

from pathlib import Path

import click

from .standard_streams import announce, open_missing


@click.group(short_help="Run Kafka Connect workers for source connectors.")
def connect() -> None:
    """Run Kafka Connect workers for source connectors, on any Kafka.

    Needs the extra: pip install 'oncelog[connect]'.
    """


@connect.command(short_help="Run a worker alone.")
@click.argument("worker", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("connectors", type=click.Path(dir_okay=False, path_type=Path), nargs=-1)
def standalone(worker: Path, connectors: tuple[Path, ...]) -> int:
    """Run a worker alone until SIGTERM or SIGINT, with the connectors of these files.

    WORKER has Kafka Connect's settings, as .properties or .toml; CONNECTORS are .properties or .json files. Prints the
    line `ready URL` when the REST interface answers and the connectors are started. Log lines go to stderr.

    \b
    oncelog connect standalone worker.properties file-source.json
    curl http://127.0.0.1:8083/connectors/file-source/status
    """
    import asyncio
    import logging
    import signal

    import uvloop

    try:
        from ..connect.process import run_standalone
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("aiohttp", "yarl"):
            raise
        click.echo("oncelog connect: the REST interface needs aiohttp: pip install 'oncelog[connect]'", err=True)
        return 1
    from ..connect.errors import ConfigValueError, ConnectError

    async def run() -> int:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        try:
            await run_standalone(worker, connectors, lambda url: announce(f"ready {url}"), stopping)
        except ConnectError as error:
            click.echo(f"oncelog connect standalone: {error}", err=True)
            return 2 if isinstance(error, ConfigValueError) else 1
        return 0

    open_missing()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())
