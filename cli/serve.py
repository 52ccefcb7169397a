"""Define `oncelog serve`: run a broker as a process.

The command prints the line `ready HOST:PORT` to stdout when the broker answers requests. The exit code is 0 after
SIGTERM, SIGINT or SIGHUP, 1 if the broker cannot start or loses its data directory, and 2 for invalid settings.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .environment import Variable
from .standard_streams import announce, write_last_line
from .stop_signals import stop_signals

if TYPE_CHECKING:
    from ..auth.scram_credentials import ScramCredential
    from ..broker.config import BrokerConfig

DEFAULTS = {"log.dirs": "data", "listeners": "PLAINTEXT://127.0.0.1:9092"}
"""Defaults that differ from the broker's: data in the current directory, not in /tmp, and a port on 127.0.0.1."""


@click.command(short_help="Run a broker.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="TOML file with settings that have Kafka's names.",
)
@click.option("--data-dir", metavar="DIR", help="Data directory (log.dirs).  [default: data]")
@click.option(
    "--listen",
    multiple=True,
    metavar="[NAME://]HOST:PORT",
    help="Address of a listener; may be repeated. SSL://HOST:PORT is encrypted. Port 0 selects a free port."
    "  [default: 127.0.0.1:9092]",
)
@click.option(
    "--durability",
    type=click.Choice(["flush", "os"]),
    help="When writes are acknowledged. flush: when they are on disk. os: when the operating system has them, as in"
    " Kafka.  [default: flush]",
)
@click.option(
    "--add-scram",
    multiple=True,
    metavar="NAME:HASH",
    help="Add a user who logs in with SCRAM, unless the user already has a password; may be repeated. `oncelog user"
    " hash NAME` prints the value. Kafka's form is accepted as well: SCRAM-SHA-256=[name=alice,password=...].",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set any setting; may be repeated.")
def serve(
    config_file: Path | None,
    data_dir: str | None,
    listen: tuple[str, ...],
    durability: str | None,
    add_scram: tuple[str, ...],
    settings: tuple[str, ...],
) -> int:
    """Run a broker until SIGTERM, SIGINT or SIGHUP.

    The command prints the line `ready HOST:PORT` when the broker answers requests, with the address of the first
    listener. Log lines go to stderr.

    Settings have Kafka's names. Flags override environment variables (ONCELOG_NUM_PARTITIONS=3), which override the
    file of --config.

    \b
    oncelog serve                                                 data in ./data, on 127.0.0.1:9092
    oncelog serve --data-dir /var/lib/oncelog --listen 0.0.0.0:9092
    oncelog serve --listen 127.0.0.1:0                            a free port, which the ready line names
    oncelog serve --set num.partitions=3 --set log.segment.bytes=104857600
    oncelog serve --config broker.toml --durability os            acknowledge writes in the page cache, as Kafka does
    """
    import gc

    from .lean_structlog import import_structlog_without_rich

    # A start creates hundreds of thousands of objects, but hardly any garbage: collections would free nothing.
    gc.disable()  # until `Garbage` starts
    import_structlog_without_rich()
    from ..broker.config import load
    from ..broker.observability.logging import standard_error
    from ..settings import ConfigError

    flags = list(settings)
    if data_dir is not None:
        flags.append(f"log.dirs={data_dir}")
    if listen:
        addresses = (item if "://" in item else f"PLAINTEXT://{item}" for item in listen)
        flags.append(f"listeners={','.join(addresses)}")
    if durability is not None:
        flags.append(f"durability={durability}")
    of_commands = frozenset(Variable)
    environment = {name: value for name, value in os.environ.items() if name not in of_commands}
    try:
        config, ignored = load(config_file, environment, flags)
        flags += [f"{name}={value}" for name, value in DEFAULTS.items() if name not in config.explicit]
        config, ignored = load(config_file, environment, flags)
    except ConfigError as error:
        write_last_line(standard_error(), f"oncelog serve: {error}")
        return 2
    return _run(config, ignored, _users(add_scram))


def _users(texts: tuple[str, ...]) -> dict[tuple[str, str], ScramCredential]:
    """Return the credentials of --add-scram by user and mechanism.

    Raises click.UsageError for an invalid text. The message does not contain the text, which may be secret.
    """
    if not texts:
        return {}
    from ..auth.scram_users import parse_scram_user

    users = {}
    for number, text in enumerate(texts, 1):
        try:
            name, hashed = parse_scram_user(text)
        except ValueError as error:
            raise click.UsageError(f"--add-scram: value {number} {error}") from None
        users[name, hashed.mechanism.name] = hashed.credential
    return users


def _run(config: BrokerConfig, ignored: list[str], users: dict[tuple[str, str], ScramCredential]) -> int:
    import asyncio
    import logging

    import uvloop

    from ..broker.node import BrokerNode, BrokerStartError
    from ..broker.observability.logging import StandardLogging, standard_error
    from ..broker.system.descriptors import raise_limit
    from .garbage import Garbage

    async def serve_until_stopped() -> int:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, stopping.set)
        raise_limit()
        broker = BrokerNode(config=config)
        broker.initial_users = users
        logging.getLogger().addHandler(StandardLogging(broker.log))
        if ignored:
            broker.log.info("settings without effect", settings=ignored)
        try:
            await broker.start()
        except BrokerStartError as error:
            write_last_line(standard_error(), f"oncelog serve: {error}")
            return 1
        failed = asyncio.ensure_future(broker.wait_failed())
        failed.add_done_callback(lambda _: stopping.set())
        try:
            garbage = Garbage(lambda: broker.log_manager.open_logs, loop.call_soon_threadsafe)
            garbage.start()
            announce(f"ready {broker.address}")
            await stopping.wait()
        finally:
            failed.cancel()
            await broker.stop()
        if broker.failure is not None:
            write_last_line(standard_error(), f"oncelog serve: {broker.failure.message}")
            return 1
        return 0

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve_until_stopped())
