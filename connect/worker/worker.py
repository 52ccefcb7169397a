"""`Worker`: the connectors and tasks that run in this process.

It knows neither group nor REST interface. What it is told to start is reported to a `StatusListener`; a failure of one
task is that task's alone.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...client.admin import Admin
from ..api.connector import SourceConnector
from ..api.task import SourceTask
from ..config import ConfigDef
from ..converters.converter import Converter, HeaderConverter
from ..errors import ConnectError
from ..plugins import class_name, load_class
from ..settings.connector import ConnectorConfig, plugin, source_config_def
from ..settings.worker import WorkerConfig
from ..stores.config_records import TargetState
from ..stores.ids import ConnectorTaskId
from ..stores.kafka_log import KafkaLog
from ..stores.offset_store import OffsetStore
from ..stores.status_records import State
from ..task.at_least_once import AtLeastOnceDelivery
from ..task.boundaries import Boundary, ConnectorBoundary, IntervalBoundary, PollBoundary
from ..task.delivery import Delivery
from ..task.exactly_once import ExactlyOnceDelivery, transactional_id
from ..task.pipeline import ErrorHandling, Pipeline
from ..task.runner import TaskRunner
from ..task.topics import TopicCreator, topic_groups
from ..transforms.chain import stages
from .connector_runner import ConnectorRunner
from .offset_copies import OffsetCopies
from .offset_reader import StoredOffsets
from .task_context import TaskContext

log = logging.getLogger(__name__)

_PRODUCER_DEFAULTS = {"acks": "all", "delivery.timeout.ms": str(2**31 - 1), "max.block.ms": str(2**31 - 1)}


class StatusListener(Protocol):
    """Hears what connectors and tasks do."""

    async def status(self, what: str | ConnectorTaskId, state: State, trace: str | None, version: str | None) -> None:
        """A connector or task is in another state."""

    async def topic_used(self, task: ConnectorTaskId, topic: str) -> None:
        """A task writes to a topic for the first time."""


class Worker:
    """Starts and stops connectors and tasks. Its methods are called by one herder, one at a time."""

    def __init__(self, config: WorkerConfig, offsets: OffsetStore, listener: StatusListener) -> None:
        self.config = config
        self.offsets = offsets
        self.table: ConfigDef = source_config_def(
            {name: config[name] for name in ("key.converter", "value.converter", "header.converter")}
        )
        self._listener = listener
        self._connectors: dict[str, ConnectorRunner] = {}
        self._tasks: dict[ConnectorTaskId, tuple[TaskRunner, asyncio.Task[None]]] = {}
        self._own_offsets: dict[str, tuple[str, OffsetStore]] = {}
        self._copies = OffsetCopies(offsets)

    # -- connectors

    async def start_connector(
        self, name: str, config: Mapping[str, str], target: TargetState, reconfigure: Callable[[], None]
    ) -> None:
        """Start a connector; a failure is reported, and raised as ConnectError."""

        async def report(state: State, trace: str | None) -> None:
            await self._listener.status(name, state, trace, connector.version())

        connector: SourceConnector = plugin("connector.class", config["connector.class"], SourceConnector)
        stores = await self._stores(ConnectorConfig(self.table, config))
        runner = ConnectorRunner(name, connector, config, StoredOffsets(name, stores), report, reconfigure)
        self._connectors[name] = runner
        await runner.transition_to(target)

    async def stop_connector(self, name: str) -> None:
        """Stop a connector, without a report."""
        runner = self._connectors.pop(name, None)
        if runner is not None:
            await self._in_time(runner.close(), f"connector {name}")
        own = self._own_offsets.pop(name, None)
        if own is not None:
            await own[1].stop()

    async def connector_transition(self, name: str, target: TargetState) -> None:
        """Start or stop what a connector does on its own."""
        runner = self._connectors.get(name)
        if runner is None:
            raise ConnectError(f"connector {name} does not run on this worker")
        await runner.transition_to(target)

    def connector_running(self, name: str) -> bool:
        """Return whether a connector is started and has not failed."""
        runner = self._connectors.get(name)
        return runner is not None and runner.state is State.RUNNING

    async def connector_failed(self, name: str, error: BaseException) -> None:
        """Make a connector FAILED, for a failure outside of its own methods."""
        runner = self._connectors.get(name)
        if runner is not None:
            await runner.fail(error)

    async def offset_stores(self, config: Mapping[str, str]) -> list[OffsetStore]:
        """Return where a connector's offsets are: in its own topic, where it has one, and in the worker's."""
        return await self._stores(ConnectorConfig(self.table, config))

    async def task_configs(self, name: str) -> list[dict[str, str]]:
        """Return the settings of a connector's tasks as they go to the config topic; raises ConnectError."""
        runner = self._connectors[name]
        config = ConnectorConfig(self.table, runner.config)
        limit = config["tasks.max"]
        configs = await runner.task_configs(limit)
        if len(configs) > limit and config["tasks.max.enforce"]:
            raise ConnectError(
                f"The connector {name} has generated {len(configs)} tasks, which is greater than {limit}, the maximum "
                "number of tasks it is configured to create."
            )
        task_class = class_name(runner.connector.task_class)
        return [{**each, "task.class": task_class} for each in configs]

    # -- tasks

    async def start_task(
        self, task: ConnectorTaskId, connector: Mapping[str, str], config: Mapping[str, str], target: TargetState
    ) -> None:
        """Start a task in the background. A failure to set it up is reported as FAILED, and not raised."""
        if task in self._tasks:
            raise ConnectError(f"Task already exists in this worker: {task}")
        version = None
        try:
            runner, version = await self._runner(task, connector, config)
        except Exception as error:
            log.error("task %s could not be set up", task, exc_info=error)
            trace = "".join(traceback.format_exception(error))
            await self._listener.status(task, State.FAILED, trace, version)
            return
        runner.set_target(target)
        self._tasks[task] = runner, asyncio.create_task(runner.run(), name=f"task {task}")

    async def stop_tasks(self, tasks: list[ConnectorTaskId]) -> None:
        """Stop tasks, together, and wait for them within task.shutdown.graceful.timeout.ms."""
        stopping = [self._tasks.pop(task) for task in tasks if task in self._tasks]
        for runner, _ in stopping:
            runner.set_target(TargetState.STOPPED)
        if not stopping:
            return
        timeout_s = self.config["task.shutdown.graceful.timeout.ms"] / 1000
        _, late = await asyncio.wait({running for _, running in stopping}, timeout=timeout_s)
        for running in late:
            log.error("%s did not end in %g s and is abandoned", running.get_name(), timeout_s)
            running.cancel()
        if late:
            await asyncio.wait(late, timeout=timeout_s)

    def set_target(self, connector: str, target: TargetState) -> None:
        """Have the tasks of a connector run or pause."""
        for task, (runner, _) in self._tasks.items():
            if task.connector == connector:
                runner.set_target(target)

    def tasks(self) -> list[ConnectorTaskId]:
        """Return the tasks that were started here, failed ones among them."""
        return list(self._tasks)

    async def fence_tasks(self, connector: str, count: int, config: Mapping[str, str]) -> None:
        """Fence all producers of a connector's first `count` tasks, in parallel; raises ConnectError (KIP-618)."""
        ids = [self.transactional_id(ConnectorTaskId(connector, number)) for number in range(count)]
        if not ids:
            return
        admin = {**self.config.client("admin"), **_prefixed(config, "admin.override.")}
        async with Admin(admin) as client:
            outcomes = await client.fence_producers(ids)
        failed = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
        if failed:
            name, error = next(iter(failed.items()))
            raise ConnectError(f"could not fence {len(failed)} of {len(ids)} producers, {name} among them: {error}")

    def transactional_id(self, task: ConnectorTaskId) -> str:
        """Return the transactional id of a task."""
        return transactional_id(self.config["group.id"], task)

    async def stop(self) -> None:
        """Stop everything."""
        await self.stop_tasks(self.tasks())
        for name in list(self._connectors):
            await self.stop_connector(name)
        await self._copies.close()

    # -- inside

    async def _runner(
        self, task: ConnectorTaskId, connector: Mapping[str, str], config: Mapping[str, str]
    ) -> tuple[TaskRunner, str | None]:
        settings = ConnectorConfig(self.table, connector)
        cls = load_class(connector["connector.class"])
        version: str | None = cls.version() if issubclass(cls, SourceConnector) else None
        instance: SourceTask = plugin("task.class", config["task.class"], SourceTask)
        stores = await self._stores(settings)
        boundary = self._boundary(settings)
        transactions = boundary if self.config.exactly_once and isinstance(boundary, ConnectorBoundary) else None
        instance.context = TaskContext(dict(config), StoredOffsets(task.connector, stores), transactions)

        async def report(state: State, trace: str | None) -> None:
            await self._listener.status(task, state, trace, version)

        runner = TaskRunner(
            task,
            instance,
            dict(config),
            self._pipeline(task, settings),
            report,
            start_attempts=1 + self.config["task.restart.max.attempts"],
            start_backoff_s=self.config["task.restart.backoff.ms"] / 1000,
        )
        runner.make_delivery = lambda: self._delivery(task, settings, runner, boundary, stores)
        return runner, version

    def _pipeline(self, task: ConnectorTaskId, settings: ConnectorConfig) -> Pipeline:
        errors = ErrorHandling(
            settings["errors.retry.timeout"],
            settings["errors.retry.delay.max.ms"],
            settings["errors.tolerance"].lower() == "all",
            settings["errors.log.enable"],
            settings["errors.log.include.messages"],
        )
        key, value, header = (self._converter(settings, kind) for kind in ("key", "value", "header"))
        assert isinstance(key, Converter)
        assert isinstance(value, Converter)
        return Pipeline(task, key, value, header, stages(settings.originals), errors)

    def _converter(self, settings: ConnectorConfig, kind: str) -> HeaderConverter:
        name = f"{kind}.converter"
        own = name in settings.originals
        base = HeaderConverter if kind == "header" else Converter
        converter: HeaderConverter = plugin(name, settings[name] if own else self.config[name], base)
        given = settings.with_prefix(f"{name}.") if own else self.config.with_prefix(f"{name}.")
        given.pop("plugin.version", None)
        converter.configure({**given, "converter.type": kind})
        return converter

    def _boundary(self, settings: ConnectorConfig) -> Boundary:
        match settings.transaction_boundary:
            case "interval":
                interval_ms = settings["transaction.boundary.interval.ms"] or self.config["offset.flush.interval.ms"]
                return IntervalBoundary(interval_ms / 1000, asyncio.get_running_loop().time)
            case "connector":
                return ConnectorBoundary()
        return PollBoundary()

    def _delivery(
        self,
        task: ConnectorTaskId,
        settings: ConnectorConfig,
        runner: TaskRunner,
        boundary: Boundary,
        stores: list[OffsetStore],
    ) -> Delivery:
        client: dict[str, Any] = {
            **_PRODUCER_DEFAULTS,
            **self.config.client("producer"),
            "client.id": f"connector-producer-{task}",
            **settings.with_prefix("producer.override."),
        }
        groups = topic_groups(settings.originals) if self.config["topic.creation.enable"] else []
        admin = {**self.config.client("admin"), **settings.with_prefix("admin.override.")}

        async def used(topic: str) -> None:
            if self.config["topic.tracking.enable"]:
                await self._listener.topic_used(task, topic)

        prepare = TopicCreator(groups, admin, used)
        if self.config.exactly_once:
            own = settings["offsets.storage.topic"]
            return ExactlyOnceDelivery(
                task,
                {**client, "transactional.id": self.transactional_id(task), "enable.idempotence": "true"},
                own or self.config["offset.storage.topic"],
                boundary,
                prepare,
                runner.committed,
                keep_records=runner.keeps_records,
                after_commit=self._copies.add if own and len(stores) > 1 else _nothing,
            )
        return AtLeastOnceDelivery(
            task,
            client,
            stores[0],
            prepare,
            runner.committed,
            keep_records=runner.keeps_records,
            interval_s=self.config["offset.flush.interval.ms"] / 1000,
        )

    async def _stores(self, settings: ConnectorConfig) -> list[OffsetStore]:
        """Return where a connector's offsets are: in its own topic, where it has one, and in the worker's."""
        topic = settings["offsets.storage.topic"]
        if not topic or topic == self.config["offset.storage.topic"] or not self.config["offset.storage.topic"]:
            return [self.offsets]
        name = settings["name"]
        known = self._own_offsets.get(name)
        if known is None or known[0] != topic:
            client = {**self.config.client("consumer"), **_bootstrap(settings.with_prefix("producer.override."))}
            log_ = KafkaLog(
                topic,
                client,
                partitions=self.config["offset.storage.partitions"],
                replication_factor=self.config["offset.storage.replication.factor"],
                read_committed=self.config.exactly_once,
            )
            store = OffsetStore(log_)
            await store.start()
            known = self._own_offsets[name] = topic, store
        return [known[1], self.offsets]

    async def _in_time(self, ending: Any, what: str) -> None:
        try:
            async with asyncio.timeout(self.config["task.shutdown.graceful.timeout.ms"] / 1000):
                await ending
        except TimeoutError:
            log.error("%s did not end in time and is abandoned", what)


def _nothing(pairs: list[tuple[bytes, bytes | None]]) -> None:
    """Take what was committed where nobody else needs it."""


def _prefixed(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


def _bootstrap(overrides: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in overrides.items() if name == "bootstrap.servers"}
