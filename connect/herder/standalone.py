"""`StandaloneHerder`: the herder of a standalone worker, with connectors in memory and offsets in a file or a topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from ..errors import AlreadyExistsError, ConnectError, NotFoundError, NotReadyError, UnknownCommitError
from ..logging_levels import set_level
from ..settings.worker import WorkerConfig
from ..stores.config_records import RestartRequest, TargetState
from ..stores.config_store import ConfigStore
from ..stores.ids import ConnectorTaskId
from ..stores.memory_log import MemoryLog
from ..stores.offset_store import OffsetStore
from ..stores.status_records import State
from ..stores.status_store import StatusStore
from . import answers, offset_requests
from .base import BaseHerder, Outside
from .herder import Json, Put
from .start_checks import StandaloneStartChecks

log = logging.getLogger(__name__)


class StandaloneHerder(BaseHerder):
    """A `Herder` whose worker is the whole cluster. Changes are made one at a time."""

    def __init__(
        self, config: WorkerConfig, offsets: OffsetStore, worker_id: str, outside: Outside | None = None
    ) -> None:
        configs = ConfigStore(MemoryLog(), lambda change: None)
        super().__init__(config, worker_id, configs, StatusStore(MemoryLog()), offsets, outside or Outside())
        self._lock = asyncio.Lock()
        self._limit: asyncio.Timeout | None = None
        """The time limit of the change that is under way."""
        self._stopped = False
        self._reconfigurations: set[asyncio.Task[None]] = set()
        self._checks: dict[str, StandaloneStartChecks] = {}
        """The start checks of each connector's current tasks; empty without exactly-once delivery."""

    async def start(self) -> None:
        """Connect to the cluster and read the offsets. Raises KafkaError, ConnectError."""
        await self._open()
        self.ready = None

    async def stop(self) -> None:
        """Stop all connectors and tasks, and close the stores.

        A change that is under way is abandoned after task.shutdown.graceful.timeout.ms.
        """
        self._stopped = True
        for task in self._reconfigurations:
            task.cancel()
        if self._limit is not None:
            graceful_s = self.config["task.shutdown.graceful.timeout.ms"] / 1000
            self._limit.reschedule(asyncio.get_running_loop().time() + graceful_s)
        async with self._lock:
            await self._worker.stop()
            for name in list(self._checks):
                await self._end_checks(name)
            await self._close()

    async def set_logger_level(self, namespace: str, level: str) -> None:
        """Set a log level in this process."""
        set_level(namespace, level)

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """Run the `with` block after all earlier changes.

        Raises NotReadyError if the worker stops before the block ends.
        """
        async with self._lock:
            if self._stopped:
                raise NotReadyError("Worker is shutting down")
            try:
                async with asyncio.timeout(None) as self._limit:
                    yield
            except TimeoutError as error:
                if self._limit is None or not self._limit.expired():
                    raise
                raise NotReadyError("Worker is shutting down, and has abandoned the change") from error
            finally:
                self._limit = None

    # -- changes

    async def put_connector(
        self, name: str, config: Mapping[str, str | None], target: TargetState | None, *, replace: bool
    ) -> Put:
        """Create a connector or change its settings, and start it. Raises AlreadyExistsError, BadRequestError."""
        await self._require_valid(name, config)
        async with self._change():
            if name in self._configs.snapshot().connector_configs and not replace:
                raise AlreadyExistsError(f"Connector {name} already exists")
            return await self._put(name, config, target)

    async def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> Put:
        """Change some settings of a connector; None removes a setting."""
        async with self._change():
            before = self._require(name, "Connector {} not found")
            config = {key: value for key, value in {**before, **patch}.items() if value is not None}
            await self._require_valid(name, config)
            return await self._put(name, config, None)

    async def _put(self, name: str, config: Mapping[str, str | None], target: TargetState | None) -> Put:
        exists = name in self._configs.snapshot().connector_configs
        before = len(self._configs.snapshot().tasks(name))
        if exists:
            await self._stop(name)
        await self._configs.put_connector(name, config, target)
        await self._start_connector(name)
        await self._start_tasks(name, before)
        return Put(not exists, answers.connector_info(self._configs.snapshot(), name))

    async def delete_connector(self, name: str) -> None:
        """Stop and delete a connector; its offsets are kept."""
        async with self._change():
            self._require(name, "Connector {} not found")
            tasks = self._configs.snapshot().tasks(name)
            await self._stop(name)
            await self._end_checks(name)
            await self._configs.remove_connector(name)
            await self._forget_topics(name)
            removed: list[str | ConnectorTaskId] = [name, *tasks]
            for what in removed:
                await self.status(what, State.DESTROYED, None, None)

    async def set_target_state(self, name: str, target: TargetState) -> None:
        """Start, pause or stop a connector; stopping removes its tasks."""
        async with self._change():
            self._require(name, "Unknown connector {}")
            tasks = self._configs.snapshot().tasks(name)
            await self._configs.put_target_state(name, target)
            if target is TargetState.STOPPED:
                await self._worker.stop_tasks(tasks)
                await self._configs.put_task_configs(name, [])
                for task in tasks:
                    await self.status(task, State.DESTROYED, None, None)
            await self._transition(name, target)
            if target is TargetState.STARTED:
                # If its settings changed while it was stopped, the connector has no tasks yet.
                await self._update_tasks(name)
            self._worker.set_target(name, target)

    async def restart_connector(self, name: str) -> None:
        """Restart the connector, and its tasks if their settings have changed.

        Raises ConnectError if the connector does not start.
        """
        async with self._change():
            self._require(name, "Unknown connector: {}")
            if not await self._restart_connector(name):
                raise ConnectError(f"Failed to start connector: {name}")

    async def restart_connector_and_tasks(self, request: RestartRequest) -> Json:
        """Restart a connector, its tasks, or both, as the request says.

        Return the status of the connector and its tasks. Those that restart have the state RESTARTING in it.
        """
        async with self._change():
            self._require(request.connector, "Unknown connector: {}")
            connector, tasks, answer = answers.restart_plan(self._configs.snapshot(), self._statuses, request)
            if tasks:
                await self._worker.stop_tasks(tasks)
            if connector:
                await self._restart_connector(request.connector)
            await self._start_idle(request.connector)
            return answer

    async def restart_task(self, task: ConnectorTaskId) -> None:
        """Restart a task. Raises ConnectError if it cannot be set up."""
        async with self._change():
            self._require(task.connector, "Unknown connector: {}")
            if task not in self._configs.snapshot().tasks(task.connector):
                raise NotFoundError(f"Unknown task: {task}")
            await self._worker.stop_tasks([task])
            if not await self._start_task(task):
                raise ConnectError(f"Failed to start task: {task}")

    async def _change_offsets(self, name: str, offsets: Sequence[tuple[Json, Json | None]] | None) -> bool:
        async with self._change():
            config = self._require(name, "Connector {} not found")
            offset_requests.require_stopped(self._configs.snapshot(), name)
            if self.config.exactly_once:
                try:
                    await self._worker.fence_listed_tasks(name, config)
                except ConnectError as error:
                    raise ConnectError(
                        "Failed to perform zombie fencing for source connector prior to modifying offsets"
                    ) from error
            return await offset_requests.change(self._worker, config, name, offsets)

    # -- between workers

    async def put_task_configs(self, name: str, body: bytes, signature: str | None, algorithm: str | None) -> None:
        """Raise ConnectError, because a standalone worker receives no requests from other workers."""
        raise ConnectError("Kafka Connect in standalone mode does not support externally setting task configurations.")

    async def fence_zombies(self, name: str, body: bytes, signature: str | None, algorithm: str | None) -> None:
        """Raise ConnectError, because a standalone worker receives no requests from other workers."""
        raise ConnectError("Kafka Connect in standalone mode does not support exactly-once source connectors' fencing.")

    # -- internal

    async def _stop(self, name: str) -> None:
        await self._worker.stop_tasks(self._configs.snapshot().tasks(name))
        await self._worker.stop_connector(name)

    async def _start_connector(self, name: str) -> bool:
        """Start a connector; return False if it does not start."""
        state = self._configs.snapshot()
        config = self._require(name, "Connector {} not found")
        target = state.target_state(name) or TargetState.STARTED

        def reconfigure() -> None:
            task = asyncio.create_task(self._reconfigure(name), name=f"reconfigure {name}")
            self._reconfigurations.add(task)
            task.add_done_callback(self._reconfigurations.discard)

        try:
            await self._worker.start_connector(name, config, target, reconfigure)
        except ConnectError as error:
            log.error("connector %s was not started: %s", name, error)
            return False
        return True

    async def _restart_connector(self, name: str) -> bool:
        await self._worker.stop_connector(name)
        started = await self._start_connector(name)
        await self._update_tasks(name)
        return started

    async def _transition(self, name: str, target: TargetState) -> None:
        try:
            await self._worker.connector_transition(name, target)
        except ConnectError as error:
            log.error("%s", error)

    async def _reconfigure(self, name: str) -> None:
        with suppress(NotReadyError):  # the worker is stopping
            async with self._change():
                if name in self._configs.snapshot().connector_configs:
                    try:
                        await self._update_tasks(name)
                    except Exception as error:
                        await self._worker.connector_failed(name, error)

    async def _update_tasks(self, name: str) -> None:
        """Ask the connector for its task settings.

        If these settings have changed, restart all tasks; otherwise, start the tasks that are not running.
        """
        state = self._configs.snapshot()
        tasks = state.tasks(name)
        configs = await self._task_configs(name)
        if configs is None:
            return
        if not answers.task_configs_changed(state, name, configs):
            await self._start_idle(name)
            return
        await self._worker.stop_tasks(tasks)
        for task in tasks[len(configs) :]:
            await self.status(task, State.DESTROYED, None, None)
        await self._run_tasks(name, configs)

    async def _start_tasks(self, name: str, before: int) -> None:
        configs = await self._task_configs(name)
        if configs is not None:
            for number in range(len(configs), before):
                await self.status(ConnectorTaskId(name, number), State.DESTROYED, None, None)
            await self._run_tasks(name, configs)

    async def _task_configs(self, name: str) -> list[dict[str, str]] | None:
        if not self._worker.connector_running(name):
            return None
        try:
            return await self._worker.task_configs(name)
        except Exception as error:
            await self._worker.connector_failed(name, error)
            return None

    async def _run_tasks(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Start new tasks in place of those that were stopped."""
        await self._end_checks(name)
        await self._configs.put_task_configs(name, configs)
        await self._start_idle(name)

    def _checks_of(self, name: str) -> StandaloneStartChecks | None:
        if not self.config.exactly_once:
            return None
        if name not in self._checks:

            async def fence() -> None:
                await self._worker.fence_listed_tasks(name, self._require(name, "Connector {} not found"))

            self._checks[name] = StandaloneStartChecks(fence)
        return self._checks[name]

    async def _end_checks(self, name: str) -> None:
        checks = self._checks.pop(name, None)
        if checks is not None:
            await checks.close()

    async def _start_idle(self, name: str) -> None:
        """Start the tasks of a connector that are not running."""
        started = set(self._worker.tasks())
        for task in self._configs.snapshot().tasks(name):
            if task not in started:
                await self._start_task(task)

    async def _start_task(self, task: ConnectorTaskId) -> bool:
        state = self._configs.snapshot()
        config = self._require(task.connector, "Connector {} not found")
        given = {key: value for key, value in state.task_configs[task].items() if value is not None}
        return await self._worker.start_task(
            task,
            config,
            given,
            state.target_state(task.connector) or TargetState.STARTED,
            self._checks_of(task.connector),
            restart_after=UnknownCommitError,  # a task that was fenced would fence the worker that has taken over
        )
