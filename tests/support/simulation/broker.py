"""The real broker on a disk that loses power and on simulated connections; one process, no threads, no sockets.

`SimulatedBroker` outlives its crashes: each start is a new `Broker` over what the disk still has.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from oncelog.broker import broker as broker_module
from oncelog.broker.broker import Broker
from oncelog.broker.config import BrokerConfig
from oncelog.broker.coordinator.transaction import decisions, metadata, state
from oncelog.broker.coordinator.transaction.state import MAX_PRODUCER_EPOCH
from oncelog.broker.log import (
    cleaner,
    data_directory,
    disk_space,
    episodes,
    flusher,
    log_loader,
    log_manager,
    partition_log,
    producer_state_manager,
    retention,
    segment,
)
from oncelog.broker.network.listener import Listener
from support.faulty_filesystem import FaultyFileSystem, _Node
from support.virtual_time import LoopClock

from .disk import SimulatedFlusher

DATA = "/data"
_EPOCHS = (decisions, metadata, state)
_LOGGING = (
    cleaner,
    data_directory,
    disk_space,
    episodes,
    flusher,
    log_loader,
    log_manager,
    partition_log,
    producer_state_manager,
    retention,
    segment,
)


class Silent:
    """A logger that says nothing, but remembers what must not happen."""

    def __init__(self) -> None:
        self.alarms: list[str] = []
        self.events: set[str] = set()

    def bind(self, **_: object) -> Silent:
        return self

    def debug(self, event: str, **_: object) -> None: ...

    def info(self, event: str, **_: object) -> None:
        self.events.add(event)

    def warning(self, event: str, **_: object) -> None: ...

    def error(self, event: str, **fields: object) -> None:
        self.alarms.append(f"{event} {fields}")

    exception = error


class SeededIds:
    """Random ids that a seed gives."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def uuid(self) -> bytes:
        return self._rng.randbytes(16)


class PowerCut(BaseException):
    """The power fails while the broker starts: whatever it does about that, it is not there any more."""


class SocketlessListener(Listener):
    """A listener that nobody can reach but by `SimulatedBroker.listener`."""

    async def start(self) -> None:
        self.port = 9092


@contextmanager
def simulated_parts(latency: Callable[[], float], log: Silent, max_epoch: int = MAX_PRODUCER_EPOCH) -> Iterator[None]:
    """While brokers are made and started: their flush thread and their sockets are simulated ones, and producer epochs
    end where the history wants it."""

    def simulated_flusher(fs: Any, on_failure: Any) -> SimulatedFlusher:
        return SimulatedFlusher(fs, on_failure, latency)

    with (
        mock.patch.object(log_manager, "LogFlusher", simulated_flusher),
        mock.patch.object(broker_module, "ListeningSocket", SocketlessListener),
    ):
        before = [module.logger for module in _LOGGING]
        for module in _EPOCHS:
            module.MAX_PRODUCER_EPOCH = max_epoch  # type: ignore[misc]
        for module in _LOGGING:
            module.logger = log
        try:
            yield
        finally:
            for module in _EPOCHS:
                module.MAX_PRODUCER_EPOCH = MAX_PRODUCER_EPOCH  # type: ignore[misc]
            for module, logger in zip(_LOGGING, before, strict=True):
                module.logger = logger


class SimulatedBroker:
    """Use inside of `simulated_parts`."""

    def __init__(self, fs: FaultyFileSystem, config: BrokerConfig, rng: random.Random, log: Silent) -> None:
        self.fs = fs
        self.log = log
        self.clock = LoopClock()
        self.lives = 0
        self._stopping = False
        self._config = config
        self._rng = rng
        self._broker: Broker | None = None

    @property
    def up(self) -> bool:
        """Whether connections are accepted."""
        return self._broker is not None and self._broker._listener is not None and not self._stopping

    @property
    def broker(self) -> Broker:
        """The life in hand."""
        assert self._broker is not None
        return self._broker

    @property
    def listener(self) -> Any:
        """Where connections belong."""
        return self.broker._listener

    async def start(self) -> None:
        """Start on what is on disk."""
        self.lives += 1
        self.fs.heal_operations()
        made = Broker(DATA, self._config, fs=self.fs, clock=self.clock, ids=SeededIds(self._rng), logger=self.log)
        self._broker = made
        await made.start()
        if made._warm_up is not None:
            made._warm_up.cancel()

    async def start_and_crash(self, after: int) -> None:
        """The power fails with the operation `after` so many, or as soon as it has started."""
        left = after

        def count_down(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerCut

        self.fs.before = count_down
        try:
            with contextlib.suppress(PowerCut):
                await self.start()
        finally:
            self.fs.before = None
        await self.crash(power=True)

    async def crash(self, *, power: bool) -> None:
        """The process ends; with `power` what was not synced is lost. Its connections are the caller's to break."""
        broker, self._broker = self._broker, None
        assert broker is not None
        if power:
            self.fs.crash(self._rng)
        else:
            self.fs.kill()
        if broker.log_manager._cleaning is not None:
            broker.log_manager._cleaning.cancel()
        broker.log_manager.abandon()
        for part in ("transaction_coordinator", "group_coordinator"):
            if part in broker.__dict__:
                await getattr(broker, part).stop()
        if broker._listener is not None:
            broker._listener.stop_accepting()

    async def stop(self) -> None:
        """Stop in order."""
        broker = self._broker
        if broker is not None and not self._stopping:
            self._stopping = True
            try:
                await broker.stop()
            finally:
                self._stopping = False
            self._broker = None


def copy_of(fs: FaultyFileSystem) -> FaultyFileSystem:
    """Another disk with the same content, all of it synced."""
    made = FaultyFileSystem()
    made.root = _copy(fs.root)
    return made


def _copy(node: _Node) -> _Node:
    made = _Node(directory=node.directory)
    made.data = bytearray(node.data)
    made.disk = bytes(node.data)
    made.names = {name: _copy(child) for name, child in node.names.items()}
    made.names_on_disk = dict(made.names)
    made.modified_ms = node.modified_ms
    return made


async def new_disk(config: BrokerConfig, topics: dict[str, int]) -> FaultyFileSystem:
    """A data directory with these topics, cleanly stopped."""
    fs = FaultyFileSystem()
    log = Silent()
    with simulated_parts(lambda: 0.001, log):
        broker = SimulatedBroker(fs, config, random.Random(0), log)
        await broker.start()
        await asyncio.gather(*[broker.broker.metadata.create_topic(name, n, {}) for name, n in topics.items()])
        await broker.stop()
    assert not log.alarms, log.alarms
    return fs
