"""Run the real broker on a disk that loses power, with simulated threads and connections, and without sockets.

`SimulatedBroker` outlives its crashes: each start creates a new `Broker` on the content of the disk.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from oncelog.broker.config import BrokerConfig
from oncelog.broker.coordinator.transaction import decisions, metadata, state
from oncelog.broker.coordinator.transaction.state import MAX_PRODUCER_EPOCH
from oncelog.broker.log import (
    aborted,
    cleaner,
    data_directory,
    disk_space,
    episodes,
    flusher,
    journal,
    journal_redo,
    log_loader,
    log_manager,
    partition_log,
    producer_state_manager,
    retention,
    segment,
)
from oncelog.broker.log.cleaner import MAX_KEY_BYTES
from oncelog.broker.log.index_cache import DEFAULT_BYTES
from oncelog.broker.metadata.features import group_aware
from oncelog.broker.network import listeners as listeners_module
from oncelog.broker.network.listener import Listener
from oncelog.broker.node import BrokerNode, BrokerStartError
from support.faulty_filesystem import FaultyFileSystem, _Node
from support.virtual_time import LoopClock

from .threads import Schedule, SimulatedThreads

DATA = "/data"
AGAIN_S = 0.1
"""The pause before a start is repeated."""
DEFAULT_SCHEDULE = Schedule(lambda: 0.001, pieces=0.0)
_EPOCHS = (decisions, metadata, state)
_LOGGING = (
    cleaner,
    data_directory,
    disk_space,
    episodes,
    flusher,
    journal,
    journal_redo,
    log_loader,
    log_manager,
    aborted,
    partition_log,
    producer_state_manager,
    retention,
    segment,
)


class Silent:
    """A logger that prints nothing, but stores the errors that must not happen."""

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
    """Random ids that depend on a seed only."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def uuid(self) -> bytes:
        return self._rng.randbytes(16)


class PowerCut(BaseException):
    """The power fails while the broker starts. Nothing that the broker does after this has any effect."""


class SocketlessListener(Listener):
    """A listener without a socket, which only `SimulatedBroker.listener` can reach."""

    def bind(self) -> None:
        self.port = 9092

    async def accept(self) -> None:
        pass


@contextmanager
def simulated_parts(log: Silent, max_epoch: int = MAX_PRODUCER_EPOCH) -> Iterator[None]:
    """Give brokers that are created and started in this context simulated sockets.

    Their producer epochs end at `max_epoch`.
    """
    with mock.patch.object(listeners_module, "Listener", SocketlessListener):
        before = [module.logger for module in _LOGGING]
        for module in _EPOCHS:
            module.MAX_PRODUCER_EPOCH = max_epoch  # type: ignore[attr-defined]
        for module in _LOGGING:
            module.logger = log  # type: ignore[attr-defined]
        try:
            yield
        finally:
            for module in _EPOCHS:
                module.MAX_PRODUCER_EPOCH = MAX_PRODUCER_EPOCH  # type: ignore[attr-defined]
            for module, logger in zip(_LOGGING, before, strict=True):
                module.logger = logger  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Memory:
    """The memory in bytes for the keys of one compaction, and for the indexes of finished segments."""

    key_bytes: int = MAX_KEY_BYTES
    index_bytes: int = DEFAULT_BYTES


AMPLE = Memory()


class SimulatedBroker:
    """A broker that can crash and start again, for use inside `simulated_parts`.

    `note` gets a line for each event in a thread.
    """

    def __init__(
        self,
        fs: FaultyFileSystem,
        config: BrokerConfig,
        rng: random.Random,
        log: Silent,
        schedule: Schedule = DEFAULT_SCHEDULE,
        note: Callable[[str], None] = lambda _: None,
        memory: Memory = AMPLE,
    ) -> None:
        self.fs = fs
        self.log = log
        self.clock = LoopClock()
        self.lives = 0
        self._stopping = False
        self._config = config
        self.has_extension = group_aware(config)
        """Whether the current broker, or the last one, has the feature group.aware.transaction."""
        self.next_config: Callable[[], BrokerConfig] | None = None
        """Returns the settings of the next start, if they change."""
        self._memory = memory
        self._rng = rng
        self._thread_rng = random.Random(rng.getrandbits(32))
        self._schedule = schedule
        self._note = note
        self._threads: SimulatedThreads | None = None
        self._operations_left: int | None = None
        self._power_fails = asyncio.Event()
        self._broker: BrokerNode | None = None
        fs.before = self._operation

    @property
    def up(self) -> bool:
        """Whether connections are accepted."""
        return self._broker is not None and self._broker._listeners is not None and not self._stopping

    @property
    def broker(self) -> BrokerNode:
        """The current broker."""
        assert self._broker is not None
        return self._broker

    @property
    def listener(self) -> Any:
        """The listener of the current broker, to which connections belong."""
        assert self.broker._listeners is not None
        return self.broker._listeners.first

    async def start(self) -> None:
        """Start a broker on the content of the disk. A start that a full disk refuses is repeated until it has room."""
        while True:
            try:
                await self._start()
            except BrokerStartError:
                self._broker = None
                if self.fs.capacity is None:
                    raise
            else:
                return
            await asyncio.sleep(AGAIN_S)

    async def _start(self) -> None:
        self.lives += 1
        if self.next_config is not None:
            self._config = self.next_config()
            self.has_extension = group_aware(self._config)
        self.fs.heal_operations()
        self._threads = SimulatedThreads(self._thread_rng, self._schedule, self._note)
        made = self._broker = BrokerNode(
            DATA,
            self._config,
            fs=self.fs,
            clock=self.clock,
            ids=SeededIds(self._rng),
            threads=self._threads,
            logger=self.log,
        )
        made.log_manager._cleaner._max_key_bytes = self._memory.key_bytes
        made.log_manager._indexes.max_bytes = self._memory.index_bytes
        await made.start()
        if made._warm_up is not None:
            made._warm_up.cancel()

    async def start_and_crash(self, after: int) -> None:
        """Start, and let the power fail at operation number `after` of any thread, or at the end of the start."""
        self._operations_left = after
        self._power_fails.clear()
        starting = asyncio.ensure_future(self.start())
        failing = asyncio.ensure_future(self._power_fails.wait())
        await asyncio.wait({starting, failing}, return_when=asyncio.FIRST_COMPLETED)
        failing.cancel()
        await self.crash(power=True)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        self._operations_left = None

    def _operation(self, name: str, path: str) -> None:
        if self._threads is not None:
            self._threads.operation(name, path)
        if self._operations_left is not None:
            self._operations_left -= 1
            if self._operations_left < 0:
                self._power_fails.set()
                raise PowerCut

    async def crash(self, *, power: bool) -> None:
        """End the process. With `power`, unsynced data is lost. The caller has to break the connections."""
        broker, self._broker = self._broker, None
        assert broker is not None
        assert self._threads is not None
        self._threads.end()
        if power:
            self.fs.crash(self._rng)
        else:
            self.fs.kill()
        if broker.log_manager._cleaning is not None:
            broker.log_manager._cleaning.cancel()
        for deletion in broker.metadata._drops.values():
            deletion.cancel()
        broker.log_manager.abandon()
        for part in ("transaction_coordinator", "group_coordinator"):
            if part in broker.__dict__:
                await getattr(broker, part).stop()
        if broker._listeners is not None:
            broker._listeners.stop_accepting()
            # Requests that are executed although their connection is lost end with the process.
            for connection in sorted(broker._listeners.first._connections, key=lambda connection: connection.id):
                connection.give_up()

    async def stop(self) -> None:
        """Stop the broker cleanly."""
        broker = self._broker
        if broker is not None and not self._stopping:
            self._stopping = True
            try:
                await broker.stop()
            finally:
                self._stopping = False
            self._broker = None


def copy_of(fs: FaultyFileSystem) -> FaultyFileSystem:
    """Return another disk with the same content, all of it synced."""
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


async def new_disk(
    config: BrokerConfig, topics: dict[str, int], configs: Mapping[str, dict[str, str]] | None = None
) -> FaultyFileSystem:
    """Return a disk with a data directory that has these topics, some with configs, and was cleanly stopped."""
    fs = FaultyFileSystem()
    log = Silent()
    with simulated_parts(log):
        broker = SimulatedBroker(fs, config, random.Random(0), log)
        await broker.start()
        await asyncio.gather(
            *[broker.broker.metadata.create_topic(name, n, (configs or {}).get(name, {})) for name, n in topics.items()]
        )
        await broker.stop()
    assert not log.alarms, log.alarms
    return fs
