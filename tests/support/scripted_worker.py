"""A distributed herder in a scripted group: without brokers and without HTTP, in simulated time.

`Cluster` has the internal topics. `Herder` is one worker, whose rebalances the test determines. Its connectors and
tasks only record that they run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from oncelog.client.errors import ProducerFencedError
from oncelog.connect.api.connector import SourceConnector
from oncelog.connect.api.task import SourceTask
from oncelog.connect.config import ConfigDef, ConfigValue
from oncelog.connect.errors import ConnectError
from oncelog.connect.group.protocol import CONFIG_MISMATCH, Assignment, Change, ConnectProtocol
from oncelog.connect.group.work import Work
from oncelog.connect.herder.base import Outside
from oncelog.connect.herder.distributed import DistributedHerder
from oncelog.connect.herder.group_member import Rebalance
from oncelog.connect.settings.distributed import DistributedConfig
from oncelog.connect.settings.worker import WorkerConfig
from oncelog.connect.stores.config_records import TargetState
from oncelog.connect.stores.config_store import ConfigStore
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.stores.offset_store import OffsetStore
from oncelog.connect.stores.status_records import State
from oncelog.connect.stores.topic_log import Apply, LogRecord
from oncelog.connect.worker.listener import StatusListener
from oncelog.connect.worker.worker import Worker
from oncelog.protocol.errors import ErrorCode

from .virtual_time import VirtualTimeLoop

WORKER = {
    "group.id": "g",
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "statuses",
    "exactly.once.source.support": "enabled",
    "scheduled.rebalance.max.delay.ms": "6000",
}


def simulate(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario in simulated time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(asyncio.wait_for(scenario, 100_000))


class Scripted(SourceConnector):
    """A connector that never starts. Its methods are coroutines, because threads do not know simulated time."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    async def validate(self, config: Mapping[str, str]) -> list[ConfigValue]:
        return []

    @property
    def task_class(self) -> type[SourceTask]:  # type: ignore[override]
        return SourceTask

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return []

    async def alter_offsets(self, config: Mapping[str, str], offsets: Any) -> bool:
        return False


class SharedTopic:
    """A topic of several workers. All of them read an append at once, except while the topic is unreadable."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.readers: list[tuple[ScriptedLog, Apply]] = []
        self.owner: ScriptedLog | None = None
        """The worker's log that may make fenced appends."""
        self.claims = 0
        self.fenced_appends: list[list[str]] = []
        """The keys of each fenced append."""
        self.readable = asyncio.Event()
        self.readable.set()
        self.read_error: Exception | None = None
        """The error of a read while the topic is unreadable; None if the read hangs."""

    def keys(self) -> list[str]:
        return [record.key.decode() for record in self.records]

    def append(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> None:
        for key, value in pairs:
            record = LogRecord(key, value, 0, self.records[-1].offset + 1 if self.records else 0)
            self.records.append(record)
            for _, apply in self.readers:
                apply(record)

    def compact(self) -> None:
        """Keep the last record of each key, and no tombstones."""
        last = {record.key: record for record in self.records}
        self.records = [each for each in self.records if each is last[each.key] and each.value is not None]


class ScriptedLog:
    """One worker's view of a topic."""

    def __init__(self, topic: SharedTopic) -> None:
        self.topic = topic

    async def start(self, apply: Apply) -> None:
        for record in self.topic.records:
            apply(record)
        self.topic.readers.append((self, apply))

    async def stop(self) -> None:
        self.topic.readers = [reader for reader in self.topic.readers if reader[0] is not self]

    async def read_to_end(self, timeout_s: float | None = None) -> None:
        if not self.topic.readable.is_set() and self.topic.read_error is not None:
            raise self.topic.read_error
        async with asyncio.timeout(timeout_s):
            await self.topic.readable.wait()

    def places(self, key: bytes) -> dict[int, int]:
        return {}

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        self.topic.append(records)

    async def append_fenced(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        if self.topic.owner is not self:
            raise ProducerFencedError(ErrorCode.PRODUCER_FENCED, "another leader has claimed it")
        self.topic.fenced_appends.append([key.decode() for key, _ in records])
        self.topic.append(records)

    async def claim(self) -> None:
        self.topic.claims += 1
        self.topic.owner = self


class ScriptedMember:
    """A group membership whose rebalances the test determines with `Herder.assign`."""

    stops_before_joining = False

    def __init__(self, configs: ConfigStore, member_id: str) -> None:
        self.configs, self.member_id = configs, member_id
        self.rebalances: deque[Rebalance] = deque()
        self.reasons: list[str] = []
        self.left: list[str] = []
        self.counted_in = True
        self.owners: dict[str | ConnectorTaskId, str] = {}
        self._due = asyncio.Event()
        self._given = asyncio.Event()
        self._due.set()

    @property
    def rejoin_due(self) -> bool:
        return self._due.is_set()

    def give(self, rebalance: Rebalance) -> None:
        self.rebalances.append(rebalance)
        self._given.set()
        self._due.set()

    def request_rejoin(self, reason: str) -> None:
        self.reasons.append(reason)
        self._due.set()

    def owner_url(self, owned: str | ConnectorTaskId) -> str | None:
        return self.owners.get(owned)

    async def start(self, timeout_s: float) -> None:
        pass

    async def wait(self) -> None:
        await self._due.wait()

    async def confirm(self) -> bool:
        return self.counted_in

    async def join(self) -> Rebalance:
        while not self.rebalances:
            self._given.clear()
            await self._given.wait()
        rebalance = self.rebalances.popleft()
        if not self.rebalances:
            self._due.clear()
        if rebalance.received.error:
            self._due.set()
        return rebalance

    async def leave(self, reason: str, *, still_running: bool = False) -> None:
        self.left.append(reason)

    def stopped_everything(self) -> None:
        self.left.append("stopped everything")

    async def close(self) -> None:
        pass


class ScriptedClient:
    """Requests to the leader. `outcomes` has the outcome of each: an exception, or None for success."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, ...]] = []
        self.outcomes: deque[Exception | None] = deque()

    async def fence(self, leader_url: str, connector: str) -> None:
        self._end("fence", leader_url, connector)

    async def put_task_configs(self, leader_url: str, connector: str, configs: Sequence[Mapping[str, str]]) -> None:
        self._end("tasks", leader_url, connector, str(len(configs)))

    def _end(self, *request: str) -> None:
        self.sent.append(request)
        outcome = self.outcomes.popleft() if self.outcomes else None
        if outcome is not None:
            raise outcome


class ScriptedWork:
    """The connectors and tasks of one worker. All calls are recorded in `done`."""

    def __init__(self, config: WorkerConfig, offsets: OffsetStore, listener: StatusListener) -> None:
        self.herder = listener
        self.table = Worker(config, offsets, listener).table
        self.done: list[str] = []
        self.running: set[str] = set()
        self.checks: dict[ConnectorTaskId, Any] = {}
        self.offsets_of: set[str] = set()
        self.configs: dict[str, list[dict[str, str]]] = {}
        """The task configs that each connector returns."""
        self.fencing = asyncio.Event()
        self.fencing.set()
        self.fence_error: ConnectError | None = None
        self.failed: list[str] = []
        self.unfit = False
        """Whether connectors do not start, and tasks cannot be set up."""
        self.tasks_started: dict[ConnectorTaskId, None] = {}
        self.reconfigure: dict[str, Any] = {}
        self.restart_after: Any = None
        self.stopping_s = 0.0
        """The duration of a stop of tasks."""

    def forget(self) -> list[str]:
        done, self.done = self.done, []
        return done

    async def keep_offsets_of(self, connectors: Any) -> None:
        self.offsets_of = set(connectors)

    async def start_connector(self, name: str, config: Any, target: TargetState, reconfigure: Any) -> None:
        self.done.append(f"start {name}")
        self.reconfigure[name] = reconfigure
        if self.unfit:
            await self.herder.status(name, State.FAILED, None, None)
            raise ConnectError("unfit")
        if target is TargetState.STARTED:
            self.running.add(name)
        await self.herder.status(name, State.RUNNING, None, None)

    async def stop_connector(self, name: str) -> None:
        self.done.append(f"stop {name}")
        self.running.discard(name)

    async def connector_transition(self, name: str, target: TargetState) -> None:
        self.done.append(f"{target.value.lower()} {name}")
        (self.running.add if target is TargetState.STARTED else self.running.discard)(name)

    def connector_running(self, name: str) -> bool:
        return name in self.running

    async def connector_failed(self, name: str, error: BaseException) -> None:
        self.failed.append(name)

    async def task_configs(self, name: str) -> list[dict[str, str]]:
        return self.configs.get(name, [])

    async def start_task(
        self,
        task: ConnectorTaskId,
        connector: Any,
        config: Any,
        target: TargetState,
        checks: Any = None,
        *,
        restart_after: Any = None,
    ) -> bool:
        self.done.append(f"start {task}")
        self.checks[task] = checks
        self.tasks_started[task] = None
        self.restart_after = restart_after
        await self.herder.status(task, State.FAILED if self.unfit else State.RUNNING, None, None)
        return not self.unfit

    async def task_failed(self, task: ConnectorTaskId, error: ConnectError) -> None:
        await self.herder.status(task, State.FAILED, str(error), None)

    async def stop_tasks(self, tasks: Any) -> None:
        if self.stopping_s:
            await asyncio.sleep(self.stopping_s)
        self.done += [f"stop {task}" for task in sorted(tasks)]
        for task in tasks:
            self.tasks_started.pop(task, None)

    def tasks(self) -> list[ConnectorTaskId]:
        return list(self.tasks_started)

    def set_target(self, connector: str, target: TargetState) -> None:
        self.done.append(f"{target.value.lower()} tasks of {connector}")

    async def fence_tasks(self, connector: str, count: int, config: Any) -> None:
        await self._fence(f"fence {count} of {connector}")

    async def fence_listed_tasks(self, connector: str, config: Any) -> None:
        await self._fence(f"fence listed tasks of {connector}")

    async def _fence(self, what: str) -> None:
        self.done.append(what)
        await self.fencing.wait()
        if self.fence_error is not None:
            raise self.fence_error

    async def write_offsets(self, name: str, config: Any, offsets: Any) -> None:
        self.done.append(f"write {len(list(offsets))} offsets")

    async def offset_stores(self, name: str, config: Any) -> list[Any]:
        return []

    @contextmanager
    def resolved(self, config: Any) -> Iterator[Any]:
        yield config

    async def stop(self) -> None:
        self.done.append("stop")


class ScriptedOutside(Outside):
    """The environment of a herder: scripted work, and a cluster with a fixed id."""

    def worker(self, config: WorkerConfig, offsets: OffsetStore, listener: StatusListener) -> Any:
        return ScriptedWork(config, offsets, listener)

    async def cluster_id(self, config: WorkerConfig) -> str:
        return "cluster"


class Cluster:
    """The internal topics of a group."""

    def __init__(self) -> None:
        self.configs, self.statuses, self.offsets = SharedTopic(), SharedTopic(), SharedTopic()
        self.generation = 0

    async def worker(self, name: str, settings: Mapping[str, str] | None = None) -> Herder:
        """Start a worker, which then waits for its first assignment."""
        herder = Herder(self, name, {**WORKER, **(settings or {})})
        await herder.begin()
        return herder


class Herder:
    """A worker with its scripted parts."""

    def __init__(self, cluster: Cluster, name: str, settings: Mapping[str, str]) -> None:
        self.cluster, self.name, self.url = cluster, name, f"http://{name}/"
        self.member: ScriptedMember
        self.client = ScriptedClient()
        self.log = ScriptedLog(cluster.configs)
        self._running: Assignment | None = None

        def member(configs: ConfigStore) -> ScriptedMember:
            self.member = ScriptedMember(configs, name)
            return self.member

        self.herder = DistributedHerder(
            DistributedConfig(settings),
            name,
            self.log,
            ScriptedLog(cluster.statuses),
            ScriptedLog(cluster.offsets),
            make_member=member,
            make_client=lambda configs: self.client,
            outside=ScriptedOutside(),
        )
        self.work = cast(ScriptedWork, self.herder._worker)

    async def begin(self) -> None:
        self._starting = asyncio.create_task(self.herder.start())
        await asyncio.sleep(0.001)

    def assign(
        self,
        connectors: Sequence[str] = (),
        tasks: Sequence[ConnectorTaskId] = (),
        *,
        leader: Herder | None = None,
        revoked: Work | None = None,
        offset: int | None = None,
        error: bool = False,
        protocol: ConnectProtocol = ConnectProtocol.SESSIONED,
    ) -> None:
        """Determine the outcome of the next rebalance.

        `connectors` and `tasks` are all that the worker runs afterwards, or with `error` what it ran before.
        """
        lead = leader or self
        self.cluster.generation += 1
        offset = self.member.configs.offset if offset is None else offset
        received = Assignment(
            lead.name,
            lead.url,
            offset,
            Change(tuple(connectors), tuple(tasks)),
            Change.of(revoked or Work()),
            error=CONFIG_MISMATCH if error else 0,
        )
        if not error or self._running is None:
            self._running = Assignment(lead.name, lead.url, offset, Change(tuple(connectors), tuple(tasks)))
        self.member.give(Rebalance(self.cluster.generation, protocol, lead is self, received, self._running))

    async def settle(self) -> list[str]:
        """Let the worker do everything that it can do now. Return what it did with connectors and tasks."""
        await asyncio.sleep(0.01)
        return self.work.forget()

    async def stop(self) -> None:
        await self.herder.stop()
