"""`BaseHerder`: the part that the herders of standalone and distributed workers share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Container, Mapping, Sequence
from contextlib import suppress

from ...client.admin import Admin
from ..errors import BadRequestError, ForbiddenError, NotFoundError
from ..settings.connector import storage_problem
from ..settings.worker import WorkerConfig
from ..stores.config_store import ConfigStore
from ..stores.ids import ConnectorTaskId
from ..stores.offset_store import OffsetStore
from ..stores.status_records import State, Status, TopicStatus
from ..stores.status_store import StatusStore
from ..worker.listener import StatusListener
from ..worker.worker import Worker
from . import answers, offset_requests
from .herder import Json
from .validation import raise_errors, validate_connector


class Outside:
    """Creates the worker of a herder, and looks up the id of the Kafka cluster. Tests replace this class."""

    def worker(self, config: WorkerConfig, offsets: OffsetStore, listener: StatusListener) -> Worker:
        """Return the worker that runs connectors and tasks."""
        return Worker(config, offsets, listener)

    async def cluster_id(self, config: WorkerConfig) -> str:
        """Return the id of the Kafka cluster. Raises KafkaError if the cluster cannot be reached."""
        async with Admin(config.client("admin")) as admin:
            return (await admin.describe_cluster()).cluster_id or ""


class BaseHerder:
    """The requests that both herders handle in the same way, and the `StatusListener` of a herder's worker."""

    def __init__(
        self,
        config: WorkerConfig,
        worker_id: str,
        configs: ConfigStore,
        statuses: StatusStore,
        offsets: OffsetStore,
        outside: Outside,
    ) -> None:
        self.config = config
        self.worker_id = worker_id
        self.cluster_id = ""
        self.ready: str | None = "Worker is still starting up"
        self._configs = configs
        self._statuses = statuses
        self._offsets = offsets
        self._outside = outside
        self._worker = outside.worker(config, offsets, self)

    @property
    def generation(self) -> int:
        """The generation of the group, which each status contains; 0 for a standalone worker."""
        return 0

    async def settled(self) -> None:
        """Wait until the assignment of work is known.

        Raises RebalanceNeededError if a rebalance is about to change the assignment.
        """

    async def alive(self) -> None:
        """Wait until the worker can process a request."""

    async def _open(self) -> None:
        self.cluster_id = await self._outside.cluster_id(self.config)
        stores = self._configs, self._statuses, self._offsets
        starts = [asyncio.create_task(store.start(), name="read an internal topic") for store in stores]
        try:
            await asyncio.gather(*starts)
        finally:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)

    async def _close(self) -> None:
        await self._statuses.stop()
        await self._offsets.stop()
        await self._configs.stop()

    def metrics(self) -> str:
        """Return the metrics of this worker in Prometheus' text format."""
        return self._worker.metrics()

    # -- StatusListener

    async def status(self, what: str | ConnectorTaskId, state: State, trace: str | None, version: str | None) -> None:
        """Report the state of a connector or task.

        FAILED and UNASSIGNED are dropped if a newer generation has reported a status, because another worker may
        already run the connector or task.
        """
        safe = state in (State.FAILED, State.UNASSIGNED)
        await self._statuses.put(what, Status(state, self.worker_id, self.generation, trace, version), safe=safe)

    def topic_used(self, task: ConnectorTaskId, topic: str) -> None:
        """Record that a task has written to a topic."""
        self._statuses.put_topic(TopicStatus(topic, task.connector, task.task, int(time.time() * 1000)))

    def topics_in_use(self, connector: str) -> Container[str]:
        """Return a live view of the names of the topics that a connector writes to."""
        return self._statuses.topics_in_use(connector)

    # -- connectors and tasks

    async def connectors(self) -> list[str]:
        """Return the names of all connectors."""
        return list(self._configs.snapshot().connector_configs)

    async def expanded_connectors(self, parts: Collection[str]) -> Json:
        """Return the given parts (info, status) of all connectors; leave out connectors that lack a part."""
        state = self._configs.snapshot()
        known: Json = {}
        for name in state.connector_configs:
            with suppress(NotFoundError):  # the connector was just created, and has no status yet
                info = {"info": answers.connector_info(state, name)} if "info" in parts else {}
                status = {"status": answers.connector_status(state, self._statuses, name)} if "status" in parts else {}
                known[name] = info | status
        return known

    async def connector_info(self, name: str) -> Json:
        """Return a connector's name, config, tasks and type. Raises NotFoundError."""
        await self.settled()
        return answers.connector_info(self._configs.snapshot(), name)

    async def connector_status(self, name: str) -> Json:
        """Return the states of a connector and its tasks. Raises NotFoundError."""
        return answers.connector_status(self._configs.snapshot(), self._statuses, name)

    async def task_status(self, task: ConnectorTaskId) -> Json:
        """Return the state of a task. Raises NotFoundError."""
        return answers.task_status(self._statuses, task)

    async def task_configs(self, name: str) -> list[Json]:
        """Return the id and config of each task. Raises NotFoundError."""
        await self.settled()
        return answers.task_configs(self._configs.snapshot(), name)

    async def topics(self, name: str) -> Json:
        """Return the topics that a connector has written to. Raises ForbiddenError if topics are not tracked."""
        self._require_tracking()
        return {name: {"topics": [status.topic for status in self._statuses.topics(name)]}}

    async def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has written to. Raises ForbiddenError if the settings forbid this."""
        self._require_tracking()
        if not self.config["topic.tracking.allow.reset"]:
            raise ForbiddenError("Topic tracking reset is disabled.")
        await self._forget_topics(name)

    def _require_tracking(self) -> None:
        if not self.config["topic.tracking.enable"]:
            raise ForbiddenError("Topic tracking is disabled.")

    async def _forget_topics(self, name: str) -> None:
        for status in self._statuses.topics(name):
            self._statuses.delete_topic(name, status.topic)

    async def validate(self, config: Mapping[str, str | None]) -> Json:
        """Return the result of validating a connector's settings. Raises BadRequestError."""
        return await validate_connector(
            config,
            self._worker.table,
            exactly_once=self.config.exactly_once,
            override_policy=self.config.override_policy,
            providers=self.config.providers,
            creates_topics=self.config["topic.creation.enable"],
        )

    async def _require_valid(self, name: str, config: Mapping[str, str | None]) -> None:
        """Raise BadRequestError unless a connector's settings are valid and can be stored."""
        problem = storage_problem({"name": name}) or storage_problem(config)
        if problem is not None:
            raise BadRequestError(problem)
        raise_errors(await self.validate(config))

    # -- offsets

    async def offsets(self, name: str) -> Json:
        """Return the committed offsets of a connector. Raises NotFoundError."""
        config = self._require(name, "Connector {} not found")
        return await offset_requests.listed(await self._worker.offset_stores(name, config), name)

    async def alter_offsets(self, name: str, offsets: Sequence[tuple[Json, Json | None]]) -> Json:
        """Set offsets of a stopped connector; return the message of the response."""
        if not offsets:
            raise BadRequestError("Partitions / offsets need to be provided for an alter offsets request")
        offset_requests.require_storable(offsets)
        checked = await self._change_offsets(name, offsets)
        return {"message": offset_requests.message("altered", checked)}

    async def reset_offsets(self, name: str) -> Json:
        """Delete all offsets of a stopped connector; return the message of the response."""
        checked = await self._change_offsets(name, None)
        return {"message": offset_requests.message("reset", checked)}

    async def _change_offsets(self, name: str, offsets: Sequence[tuple[Json, Json | None]] | None) -> bool:
        raise NotImplementedError

    def _require(self, name: str, text: str) -> dict[str, str]:
        """Return a connector's settings; raise NotFoundError with this text if the connector does not exist."""
        config = self._configs.snapshot().connector_configs.get(name)
        if config is None:
            raise NotFoundError(text.format(name))
        return {key: value for key, value in config.items() if value is not None}
