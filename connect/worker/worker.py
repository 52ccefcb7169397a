"""`Worker`: runs connectors and tasks in this process.

The worker does not depend on the group or the REST interface. It reports states to a `StatusListener`. A failure of one
task does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from ...client.admin import Admin
from ...client.errors import KafkaError
from ..api.connector import SourceConnector
from ..api.records import SourceOffset, SourcePartition
from ..config import ConfigDef
from ..errors import ConnectError, ProducerLostError, TooManyTasksError
from ..plugin_versions import require
from ..plugins import class_name
from ..settings.connector import ConnectorConfig, plugin, source_config_def, storage_problem
from ..settings.overrides import ignored
from ..settings.secrets import Secrets
from ..settings.worker import WorkerConfig
from ..stores.config_records import TargetState
from ..stores.ids import ConnectorTaskId
from ..stores.offset_store import OffsetStore
from ..stores.status_records import State
from ..task.exactly_once import StartChecks, transactional_id
from ..task.runner import Report, TaskRunner
from ..task.topics import topic_groups
from ..transforms.chain import enriched
from .clients import client_settings
from .connector_runner import ConnectorRunner
from .listener import StatusListener
from .metrics import Sample, Starts, exposition
from .offset_reader import StoredOffsets
from .offset_stores import OffsetStores
from .task_factory import TaskFactory

log = logging.getLogger(__name__)


class Worker:
    """Starts and stops connectors and tasks. A single herder calls its methods, one at a time."""

    def __init__(self, config: WorkerConfig, offsets: OffsetStore, listener: StatusListener) -> None:
        self.config = config
        self.table: ConfigDef = source_config_def(
            {name: config[name] for name in ("key.converter", "value.converter", "header.converter")}
        )
        self._listener = listener
        self._stores = OffsetStores(config, offsets)
        self._factory = TaskFactory(config, self.table, self._stores, listener)
        self._connectors: dict[str, ConnectorRunner] = {}
        self._tasks: dict[ConnectorTaskId, tuple[TaskRunner, asyncio.Task[None]]] = {}
        self._connector_starts, self._task_starts = Starts(), Starts()

    def metrics(self, others: Iterable[Sample] = ()) -> str:
        """Return the metrics of all connectors and tasks on this worker, and `others`, in Prometheus' text format."""
        tasks = {task: runner.metrics for task, (runner, _) in self._tasks.items()}
        return exposition(self._connectors.values(), tasks, self._connector_starts, self._task_starts, others)

    @contextmanager
    def resolved(self, config: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """Provide the settings of a connector with the values of their variables.

        Errors that the block raises show the variables instead of the values. Raises ConfigValueError for a variable
        without a value.
        """
        secrets = Secrets(self.config.secrets)
        settings = self.config.providers.resolved(config, secrets)
        with secrets.hidden_in_errors():
            yield settings

    # -- connectors

    async def start_connector(
        self, name: str, config: Mapping[str, str], target: TargetState, reconfigure: Callable[[], None]
    ) -> None:
        """Start a connector; report a failure and raise it as ConnectError."""
        with self._connector_starts.attempt():
            await self._start_connector(name, config, target, reconfigure)

    async def _start_connector(
        self, name: str, stored: Mapping[str, str], target: TargetState, reconfigure: Callable[[], None]
    ) -> None:
        version = None
        secrets = Secrets(self.config.secrets)

        async def report(state: State, trace: str | None) -> None:
            await self._listener.status(name, state, trace and secrets.hidden(trace), version)

        try:
            config = self.config.providers.resolved(stored, secrets)
            connector: SourceConnector = plugin("connector.class", config["connector.class"], SourceConnector)
            version = connector.version()
            require(class_name(type(connector)), config.get("connector.plugin.version"), version)
            settings = ConnectorConfig(enriched(self.table, config), config)
            for setting, reason in ignored(config).items():
                log.warning("connector %s ignores %s: %s", name, setting, reason)
            if self.config["topic.creation.enable"]:
                topic_groups(config)
            stores = await self._stores.of(name, settings)
        except Exception as error:
            await report(State.FAILED, "".join(traceback.format_exception(error)))
            raise ConnectError(secrets.hidden(f"connector {name} could not be set up: {error}")) from error
        runner = ConnectorRunner(name, connector, config, stored, StoredOffsets(name, stores), report, reconfigure)
        self._connectors[name] = runner
        with secrets.hidden_in_errors():
            await runner.transition_to(target)

    async def stop_connector(self, name: str) -> None:
        """Stop a connector, within task.shutdown.graceful.timeout.ms."""
        runner = self._connectors.pop(name, None)
        if runner is not None:
            await self._in_time(runner.close(), f"connector {name}")
        if not any(task.connector == name for task in self._tasks):
            await self._stores.forget(name)

    async def connector_transition(self, name: str, target: TargetState) -> None:
        """Start or stop a connector's own activity; its tasks are not affected. Raises ConnectError."""
        runner = self._connectors.get(name)
        if runner is None:
            raise ConnectError(f"connector {name} is not running on this worker")
        await runner.transition_to(target)

    def connector_running(self, name: str) -> bool:
        """Return whether a connector is started and has not failed."""
        runner = self._connectors.get(name)
        return runner is not None and runner.state is State.RUNNING

    async def connector_failed(self, name: str, error: BaseException) -> None:
        """Make a connector FAILED after a failure outside its own methods."""
        runner = self._connectors.get(name)
        if runner is not None:
            await runner.fail(error)

    def connectors(self) -> list[str]:
        """Return the names of the connectors that were started on this worker, including failed connectors."""
        return list(self._connectors)

    async def task_configs(self, name: str) -> list[dict[str, str]]:
        """Return the settings of a connector's tasks as the config topic stores them. Raises ConnectError."""
        runner = self._connectors[name]
        config = ConnectorConfig(self.table, runner.config)
        limit = config["tasks.max"]
        configs = await runner.task_configs(limit)
        if len(configs) > limit and config["tasks.max.enforce"]:
            raise TooManyTasksError(
                f"The connector {name} has generated {len(configs)} tasks, which is greater than {limit}, the maximum "
                "number of tasks it is configured to create."
            )
        task_class = class_name(runner.connector.task_class)
        with_variables = self.config.providers.with_variables
        stored = [{**with_variables(each, runner.stored), "task.class": task_class} for each in configs]
        for number, each in enumerate(stored):
            if (problem := storage_problem(each)) is not None:
                raise ConnectError(f"the connector {name} gave task {number} settings that cannot be stored. {problem}")
        return stored

    # -- offsets

    async def offset_stores(self, name: str, config: Mapping[str, str]) -> list[OffsetStore]:
        """Return a connector's offset stores: that of its own topic, if it has one, and the worker's."""
        with self.resolved(config) as settings:
            return await self._stores.of(name, ConnectorConfig(self.table, settings))

    async def keep_offsets_of(self, connectors: Collection[str]) -> None:
        """Stop reading the own offsets topics of all other connectors. They are opened again when they are used."""
        await self._stores.keep_only(connectors)

    async def write_offsets(
        self, name: str, config: Mapping[str, str], offsets: Iterable[tuple[SourcePartition, SourceOffset | None]]
    ) -> None:
        """Write offsets of a connector that has no tasks.

        With exactly-once delivery, the write uses the transactional id of the connector's first task, which it fences.
        """
        first = ConnectorTaskId(name, 0)
        with self.resolved(config) as resolved:
            settings = ConnectorConfig(self.table, resolved)
            client = self._factory.transactional_client(first, settings) if self.config.exactly_once else None
            await self._stores.write(name, settings, offsets, client)

    # -- tasks

    async def start_task(
        self,
        task: ConnectorTaskId,
        connector: Mapping[str, str],
        config: Mapping[str, str],
        target: TargetState,
        checks: StartChecks | None = None,
        *,
        restart_after: type[ProducerLostError] = ProducerLostError,
    ) -> bool:
        """Start a task in the background. If it cannot be set up, report FAILED, and return False.

        A task with checks starts again after it has failed with `restart_after`. This is safe, because the checks end
        the task if it does not belong to this worker any more.

        Raises ConnectError if the task is already running on this worker.
        """
        if task in self._tasks:
            raise ConnectError(f"Task already exists in this worker: {task}")
        version = None
        secrets = Secrets(self.config.secrets)

        async def report(state: State, trace: str | None) -> None:
            starting.ended(success=state is not State.FAILED)
            await self._listener.status(task, state, trace and secrets.hidden(trace), version)

        def make() -> TaskRunner:
            return self._factory.runner(task, settings, own, report, checks)

        starting = self._task_starts.begin()
        try:
            settings, own = (self.config.providers.resolved(each, secrets) for each in (connector, config))
            version = self._factory.version(settings)
            runner = make()
        except Exception as error:
            log.error("task %s could not be set up", task, exc_info=error)
            await report(State.FAILED, "".join(traceback.format_exception(error)))
            return False
        runner.set_target(target)
        running = self._run(task, runner, make, report, restart_after if checks is not None else None)
        self._tasks[task] = runner, asyncio.create_task(running, name=f"task {task}")
        return True

    async def task_failed(self, task: ConnectorTaskId, error: ConnectError) -> None:
        """Report a task as FAILED because the herder cannot start it; `error` says why."""
        log.error("task %s was not started: %s", task, error)
        self._task_starts.begin().ended(success=False)
        await self._listener.status(task, State.FAILED, "".join(traceback.format_exception(error)), None)

    async def _run(
        self,
        task: ConnectorTaskId,
        runner: TaskRunner,
        again: Callable[[], TaskRunner],
        report: Report,
        restart_after: type[ProducerLostError] | None,
    ) -> None:
        """Run a task to its end. If it fails with `restart_after`, run it again with the runner that `again` makes.

        Report FAILED if `again` fails.
        """
        attempts, backoff_s = self.config["task.restart.max.attempts"], self.config["task.restart.backoff.ms"] / 1000
        left, delay_s = attempts, 0.0
        while await runner.run(delay_s=delay_s, restart_after=restart_after if left > 0 else None):
            left, delay_s = (attempts if runner.has_committed else left) - 1, backoff_s
            ended = runner
            try:
                runner = again()
            except Exception as error:
                log.error("task %s could not be set up to start again", task, exc_info=error)
                ended.metrics.state_changed(State.FAILED)
                await report(State.FAILED, "".join(traceback.format_exception(error)))
                return
            runner.set_target(ended.target)
            known = self._tasks.get(task)
            if known is not None and known[0] is ended:
                self._tasks[task] = runner, known[1]

    async def stop_tasks(self, tasks: Collection[ConnectorTaskId]) -> None:
        """Stop tasks in parallel and wait for them.

        After task.shutdown.graceful.timeout.ms, cancel the remaining tasks.
        """
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
        """Make a connector's tasks run, pause or stop."""
        for task, (runner, _) in self._tasks.items():
            if task.connector == connector:
                runner.set_target(target)

    def tasks(self) -> list[ConnectorTaskId]:
        """Return the tasks that were started on this worker, including failed tasks."""
        return list(self._tasks)

    async def fence_tasks(self, connector: str, count: int, config: Mapping[str, str]) -> None:
        """Fence all producers of a connector's first `count` tasks, in parallel (KIP-618).

        Raises ConnectError, KafkaError.
        """
        await self._fence(connector, range(count), config)

    async def _fence(self, connector: str, numbers: Iterable[int], config: Mapping[str, str]) -> None:
        ids = [transactional_id(self.config["group.id"], ConnectorTaskId(connector, number)) for number in numbers]
        if not ids:
            return
        with self.resolved(config) as settings:
            async with self._admin(settings) as client:
                outcomes = await client.fence_producers(ids)
        failed = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
        if failed:
            name, error = next(iter(failed.items()))
            raise ConnectError(f"could not fence {len(failed)} of {len(ids)} producers, for example {name}: {error}")

    async def fence_listed_tasks(self, connector: str, config: Mapping[str, str]) -> None:
        """Fence the producers of all tasks of a connector, as far as the cluster knows them. Raises ConnectError.

        The cluster lists these producers by their transactional ids, so it does not matter which worker ran the tasks.
        """
        prefix = transactional_id(self.config["group.id"], ConnectorTaskId(connector, 0)).removesuffix("0")
        try:
            with self.resolved(config) as settings:
                async with self._admin(settings) as client:
                    listed = [each.transactional_id for each in await client.list_transactions()]
            numbers = [name.removeprefix(prefix) for name in listed if name.startswith(prefix)]
            await self._fence(connector, sorted({int(each) for each in numbers if each.isdecimal()}), config)
        except KafkaError as error:
            raise ConnectError(f"could not fence the earlier tasks of connector {connector}: {error}") from error

    async def stop(self) -> None:
        """Stop all connectors and tasks, then close the offset stores."""
        await self.stop_tasks(self.tasks())
        for name in self.connectors():
            await self.stop_connector(name)
        await self._stores.close()

    def _admin(self, settings: Mapping[str, str]) -> Admin:
        return Admin(client_settings(self.config, ConnectorConfig(self.table, settings), "admin"))

    async def _in_time(self, ending: Awaitable[None], what: str) -> None:
        try:
            async with asyncio.timeout(self.config["task.shutdown.graceful.timeout.ms"] / 1000):
                await ending
        except TimeoutError:
            log.error("%s did not end in time and is abandoned", what)
