"""`StandaloneHerder`: one worker alone, which keeps connectors in memory and offsets in a file or a topic."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from ...client.admin import Admin
from ..errors import AlreadyExistsError, BadRequestError, ConnectError, NotFoundError
from ..logging_levels import set_level
from ..settings.worker import WorkerConfig
from ..stores.config_records import RestartRequest, TargetState
from ..stores.config_store import ConfigStore
from ..stores.ids import ConnectorTaskId
from ..stores.memory_log import MemoryLog
from ..stores.offset_store import OffsetStore
from ..stores.status_records import State, Status, TopicStatus
from ..stores.status_store import StatusStore
from ..worker.worker import Worker
from . import answers, offset_requests
from .herder import Json, Put
from .validation import connector_class, raise_errors, validate_connector

log = logging.getLogger(__name__)


class StandaloneHerder:
    """A `Herder` and the `StatusListener` of its worker. Changes are made one at a time."""

    def __init__(self, config: WorkerConfig, offsets: OffsetStore, worker_id: str = "") -> None:
        self.config = config
        self.worker_id = worker_id
        self.cluster_id = ""
        self.ready: str | None = "Worker is still starting up"
        self._configs = ConfigStore(MemoryLog(), lambda change: None)
        self._statuses = StatusStore(MemoryLog())
        self._offsets = offsets
        self._worker = Worker(config, offsets, self)
        self._changing = asyncio.Lock()
        self._reconfigurations: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Reach the cluster and read the offsets; raises KafkaError, ConnectError."""
        async with Admin(self.config.client("admin")) as admin:
            self.cluster_id = (await admin.describe_cluster()).cluster_id or ""
        await self._configs.start()
        await self._statuses.start()
        await self._offsets.start()
        self.ready = None

    async def stop(self) -> None:
        """Stop all connectors and tasks."""
        for task in self._reconfigurations:
            task.cancel()
        async with self._changing:
            await self._worker.stop()
            await self._statuses.stop()
            await self._offsets.stop()
            await self._configs.stop()

    # -- StatusListener

    async def status(self, what: str | ConnectorTaskId, state: State, trace: str | None, version: str | None) -> None:
        """Note what a connector or task does."""
        await self._statuses.put(what, Status(state, self.worker_id, 0, trace, version))

    async def topic_used(self, task: ConnectorTaskId, topic: str) -> None:
        """Note that a task writes to a topic."""
        await self._statuses.put_topic(TopicStatus(topic, task.connector, task.task, int(time.time() * 1000)))

    # -- what there is

    async def connectors(self) -> list[str]:
        """Return the names of all connectors."""
        return list(self._configs.snapshot().connector_configs)

    async def connector_info(self, name: str) -> Json:
        """Return name, config, tasks and type; raises NotFoundError."""
        return answers.connector_info(self._configs.snapshot(), name)

    async def connector_status(self, name: str) -> Json:
        """Return the states of a connector and its tasks; raises NotFoundError."""
        return answers.connector_status(self._statuses, name)

    async def task_status(self, task: ConnectorTaskId) -> Json:
        """Return the state of a task; raises NotFoundError."""
        return answers.task_status(self._statuses, task)

    async def task_configs(self, name: str) -> list[Json]:
        """Return id and config of each task; raises NotFoundError."""
        return answers.task_configs(self._configs.snapshot(), name)

    async def topics(self, name: str) -> Json:
        """Return the topics that a connector has written to."""
        return {name: {"topics": [status.topic for status in self._statuses.topics(name)]}}

    async def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has written to."""
        for status in self._statuses.topics(name):
            await self._statuses.delete_topic(name, status.topic)

    async def set_logger_level(self, namespace: str, level: str) -> None:
        """Set a log level; this worker is the whole cluster."""
        set_level(namespace, level)

    # -- changes

    async def validate(self, config: Mapping[str, str | None]) -> Json:
        """Return the validation of a connector's settings; raises BadRequestError."""
        return await validate_connector(
            config,
            self._worker.table,
            exactly_once=self.config.exactly_once,
            override_policy=self.config["connector.client.config.override.policy"],
        )

    async def put_connector(
        self, name: str, config: Mapping[str, str | None], target: TargetState | None, *, replace: bool
    ) -> Put:
        """Create a connector, or change its settings, and start it; raises AlreadyExistsError, BadRequestError."""
        raise_errors(await self.validate(config))
        async with self._changing:
            exists = name in self._configs.snapshot().connector_configs
            if exists and not replace:
                raise AlreadyExistsError(f"Connector {name} already exists")
            before = len(self._configs.snapshot().tasks(name))
            if exists:
                await self._stop(name)
            await self._configs.put_connector(name, config, target)
            await self._start_connector(name)
            await self._start_tasks(name, before)
            return Put(not exists, answers.connector_info(self._configs.snapshot(), name))

    async def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> Put:
        """Change some settings, None removes one."""
        before = self._require(name, "Connector {} not found")
        changed = {**before, **patch}
        return await self.put_connector(
            name, {key: value for key, value in changed.items() if value is not None}, None, replace=True
        )

    async def delete_connector(self, name: str) -> None:
        """Stop and delete a connector; its offsets stay."""
        async with self._changing:
            self._require(name, "Connector {} not found")
            tasks = self._configs.snapshot().tasks(name)
            await self._stop(name)
            await self._configs.remove_connector(name)
            await self.reset_topics(name)
            removed: list[str | ConnectorTaskId] = [name, *tasks]
            for what in removed:
                await self.status(what, State.DESTROYED, None, None)

    async def set_target_state(self, name: str, target: TargetState) -> None:
        """Start, pause or stop a connector; a stopped one has no tasks."""
        async with self._changing:
            self._require(name, "Unknown connector {}")
            tasks = self._configs.snapshot().tasks(name)
            await self._configs.put_target_state(name, target)
            if target is TargetState.STOPPED:
                await self._worker.stop_tasks(tasks)
                await self._configs.put_task_configs(name, [])
                for task in tasks:
                    await self.status(task, State.DESTROYED, None, None)
            await self._transition(name, target)
            if target is TargetState.STARTED and not tasks:
                await self._start_tasks(name, 0)
            else:
                self._worker.set_target(name, target)

    async def restart_connector(self, name: str) -> None:
        """Restart the connector, and its tasks where their settings changed."""
        async with self._changing:
            self._require(name, "Unknown connector: {}")
            await self._restart_connector(name)

    async def restart_connector_and_tasks(self, request: RestartRequest) -> Json:
        """Restart what the request names; returns the status with what restarts."""
        async with self._changing:
            self._require(request.connector, "Unknown connector: {}")
            connector, tasks, answer = answers.restart_plan(self._statuses, request)
            if tasks:
                await self._worker.stop_tasks(tasks)
            if connector:
                await self._restart_connector(request.connector)
            for task in tasks:
                await self._start_task(task)
            return answer

    async def restart_task(self, task: ConnectorTaskId) -> None:
        """Restart a task."""
        async with self._changing:
            self._require(task.connector, "Unknown connector: {}")
            if task not in self._configs.snapshot().tasks(task.connector):
                raise NotFoundError(f"Unknown task: {task}")
            await self._worker.stop_tasks([task])
            await self._start_task(task)

    # -- offsets

    async def offsets(self, name: str) -> Json:
        """Return the committed offsets of a connector."""
        config = self._require(name, "Connector {} not found")
        return await offset_requests.listed(await self._worker.offset_stores(config), name)

    async def alter_offsets(self, name: str, offsets: Sequence[tuple[Json, Json | None]]) -> Json:
        """Set offsets of a stopped connector; returns the message."""
        if not offsets:
            raise BadRequestError("Partitions / offsets need to be provided for an alter offsets request")
        return {"message": await self._change_offsets(name, offsets, "altered")}

    async def reset_offsets(self, name: str) -> Json:
        """Forget all offsets of a stopped connector; returns the message."""
        return {"message": await self._change_offsets(name, None, "reset")}

    async def _change_offsets(self, name: str, offsets: Sequence[tuple[Json, Json | None]] | None, done: str) -> str:
        async with self._changing:
            config = self._require(name, "Connector {} not found")
            offset_requests.require_stopped(self._configs.snapshot(), name)
            stores = await self._worker.offset_stores(config)
            if offsets is None:
                known = await offset_requests.listed(stores, name)
                offsets = [(each["partition"], None) for each in known["offsets"]]
            connector = connector_class(config)()
            checked = await offset_requests.altered(connector, config, stores, name, offsets)
        if checked:
            return f"The offsets for this connector have been {done} successfully"
        return (
            f"The Connect framework-managed offsets for this connector have been {done} successfully. However, if this "
            "connector manages offsets externally, they will need to be manually "
            f"{done} in the system that the connector uses."
        )

    # -- between workers

    async def put_task_configs(self, name: str, body: bytes, signature: str | None, algorithm: str | None) -> None:
        """Raise ConnectError: a worker alone has no others."""
        raise ConnectError("Kafka Connect in standalone mode does not support externally setting task configurations.")

    async def fence_zombies(self, name: str, signature: str | None, algorithm: str | None) -> None:
        """Raise ConnectError: a worker alone has no others."""
        raise ConnectError("Kafka Connect in standalone mode does not support exactly-once source connectors' fencing.")

    # -- inside

    def _require(self, name: str, text: str) -> dict[str, str]:
        config = self._configs.snapshot().connector_configs.get(name)
        if config is None:
            raise NotFoundError(text.format(name))
        return {key: value for key, value in config.items() if value is not None}

    async def _stop(self, name: str) -> None:
        await self._worker.stop_tasks(self._configs.snapshot().tasks(name))
        await self._worker.stop_connector(name)

    async def _start_connector(self, name: str) -> None:
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

    async def _restart_connector(self, name: str) -> None:
        await self._worker.stop_connector(name)
        await self._start_connector(name)
        await self._update_tasks(name)

    async def _transition(self, name: str, target: TargetState) -> None:
        try:
            await self._worker.connector_transition(name, target)
        except ConnectError as error:
            log.error("%s", error)

    async def _reconfigure(self, name: str) -> None:
        async with self._changing:
            if name in self._configs.snapshot().connector_configs:
                await self._update_tasks(name)

    async def _update_tasks(self, name: str) -> None:
        """Ask the connector for its tasks' settings, and start the tasks anew where these have changed."""
        state = self._configs.snapshot()
        tasks = state.tasks(name)
        configs = await self._task_configs(name)
        if configs is None or configs == [dict(state.task_configs[task]) for task in tasks]:
            return
        await self._worker.stop_tasks(tasks)
        for task in tasks[len(configs) :]:
            await self.status(task, State.DESTROYED, None, None)
        await self._run_tasks(name, configs, len(tasks))

    async def _start_tasks(self, name: str, before: int) -> None:
        configs = await self._task_configs(name)
        if configs is not None:
            for number in range(len(configs), before):
                await self.status(ConnectorTaskId(name, number), State.DESTROYED, None, None)
            await self._run_tasks(name, configs, before)

    async def _task_configs(self, name: str) -> list[dict[str, str]] | None:
        if not self._worker.connector_running(name):
            return None
        try:
            return await self._worker.task_configs(name)
        except Exception as error:
            await self._worker.connector_failed(name, error)
            return None

    async def _run_tasks(self, name: str, configs: Sequence[Mapping[str, str]], before: int) -> None:
        await self._configs.put_task_configs(name, configs)
        if self.config.exactly_once and before > len(configs):  # those that go on are fenced by their successors
            await self._worker.fence_tasks(name, before, self._require(name, "Connector {} not found"))
        for task in self._configs.snapshot().tasks(name):
            await self._start_task(task)

    async def _start_task(self, task: ConnectorTaskId) -> None:
        state = self._configs.snapshot()
        config = self._require(task.connector, "Connector {} not found")
        given = {key: value for key, value in state.task_configs[task].items() if value is not None}
        await self._worker.start_task(task, config, given, state.target_state(task.connector) or TargetState.STARTED)
