"""Define `oncelog connect`: run Kafka Connect workers, and manage connectors."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from .connectors import COMMANDS
from .standard_streams import LogLines, announce, log_writer, write_last_line
from .stop_signals import stop_signals

if TYPE_CHECKING:
    from asyncio import Event


@click.group(short_help="Run Kafka Connect workers, and manage their connectors.")
def connect() -> None:
    """Run Kafka Connect workers for source connectors, with any Kafka cluster, and manage their connectors.

    `standalone` and `distributed` run a worker, and need an extra: pip install 'oncelog[connect]'. All other commands
    send requests to a worker's REST interface, whose address is --url or $ONCELOG_CONNECT_URL. They work with Apache
    Kafka Connect's workers as well.

    \b
    oncelog connect distributed worker.properties     run a worker
    oncelog connect create lines.properties           create a connector
    oncelog connect status lines                      states of the connector and its tasks
    oncelog connect offsets lines                     how far the connector has read its source
    """


for command in COMMANDS:
    connect.add_command(command)


@connect.command(short_help="Run a standalone worker.")
@click.argument("worker", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("connectors", type=click.Path(dir_okay=False, path_type=Path), nargs=-1)
def standalone(worker: Path, connectors: tuple[Path, ...]) -> int:
    """Run a standalone worker with the connectors of the given files, until SIGTERM, SIGINT or SIGHUP.

    WORKER is a .properties or .toml file with Kafka Connect's settings. CONNECTORS are .properties, .toml or .json
    files. JSON with {"name", "config"} may contain an "initial_state". The command prints the line `ready URL` when the
    REST interface answers and the connectors are started. Log lines go to stderr.

    \b
    oncelog connect standalone worker.properties file-source.json
    curl http://127.0.0.1:8083/connectors/file-source/status
    """
    return _run(
        "standalone", lambda process, ready, stopping: process.run_standalone(worker, connectors, ready, stopping)
    )


@connect.command(short_help="Run a worker that belongs to a group.")
@click.argument("worker", type=click.Path(dir_okay=False, path_type=Path))
def distributed(worker: Path) -> int:
    """Run a worker that shares connectors and tasks with the other workers of its group.id.

    The command runs until SIGTERM, SIGINT or SIGHUP.

    WORKER is a .properties or .toml file with Kafka Connect's settings. The command prints the line `ready URL` when
    the worker has joined its group and the REST interface answers. Log lines go to stderr.

    \b
    oncelog connect distributed worker.properties
    curl http://127.0.0.1:8083/connectors
    """
    return _run("distributed", lambda process, ready, stopping: process.run_distributed(worker, ready, stopping))


def _run(name: str, work: Callable[[ModuleType, Callable[[str], None], Event], Coroutine[Any, Any, None]]) -> int:
    """Run a worker until a signal stops it. Return the exit code: 0 after a signal, 2 for wrong settings, 1 for other
    errors.
    """
    import gc

    gc.disable()  # imports create tens of thousands of objects, but hardly any garbage that a collection could free
    import asyncio
    import logging

    import uvloop

    try:
        from ..connect import process
    except ModuleNotFoundError as error:
        if error.name != "h11":
            raise
        write_last_line(log_writer(), "oncelog connect: the REST interface needs h11: pip install 'oncelog[connect]'")
        return 1
    from ..client.errors import KafkaError
    from ..connect.errors import ConfigValueError, ConnectError

    async def run() -> int:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, stopping.set)
        try:
            await work(process, lambda url: announce(f"ready {url}"), stopping)
        except (ConnectError, KafkaError) as error:
            write_last_line(log_writer(), f"oncelog connect {name}: {error}")
            return 2 if isinstance(error, ConfigValueError) else 1
        return 0

    gc.freeze()
    gc.enable()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", handlers=[LogLines()]
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())
