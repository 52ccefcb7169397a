"""`Herder`: what the REST interface asks of a standalone or a distributed worker.

Data comes back in the JSON shapes of Kafka Connect. What cannot be done is an exception of errors.py, which the REST
interface turns into a status code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..stores.config_records import RestartRequest, TargetState
from ..stores.ids import ConnectorTaskId

Json = dict[str, Any]


class Put(NamedTuple):
    """What a PUT of a connector's settings has done."""

    created: bool
    info: Json


class Herder(Protocol):
    """Connectors and their tasks, in a cluster of one or more workers."""

    @property
    def cluster_id(self) -> str:
        """The id of the Kafka cluster."""

    @property
    def ready(self) -> str | None:
        """Why the worker cannot answer yet, or None."""

    async def alive(self) -> None:
        """Return as soon as the worker has time for a request (KIP-1017)."""

    def metrics(self) -> str:
        """Return the metrics of this worker, as Prometheus reads them."""

    async def connectors(self) -> list[str]:
        """Return the names of all connectors."""

    async def connector_info(self, name: str) -> Json:
        """Return name, config, tasks and type; raises NotFoundError."""

    async def connector_status(self, name: str) -> Json:
        """Return the states of a connector and its tasks; raises NotFoundError."""

    async def task_status(self, task: ConnectorTaskId) -> Json:
        """Return the state of a task; raises NotFoundError."""

    async def task_configs(self, name: str) -> list[Json]:
        """Return id and config of each task; raises NotFoundError."""

    async def validate(self, config: Mapping[str, str | None]) -> Json:
        """Return the validation of a connector's settings; raises BadRequestError."""

    async def put_connector(
        self, name: str, config: Mapping[str, str | None], target: TargetState | None, *, replace: bool
    ) -> Put:
        """Create a connector, or change its settings; raises AlreadyExistsError unless it may `replace`."""

    async def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> Put:
        """Change some settings, None removes one (KIP-477)."""

    async def delete_connector(self, name: str) -> None:
        """Stop and delete a connector; its offsets stay."""

    async def set_target_state(self, name: str, target: TargetState) -> None:
        """Start, pause or stop a connector."""

    async def restart_connector(self, name: str) -> None:
        """Restart the connector alone."""

    async def restart_connector_and_tasks(self, request: RestartRequest) -> Json:
        """Restart what the request names; returns the status with what restarts (KIP-745)."""

    async def restart_task(self, task: ConnectorTaskId) -> None:
        """Restart a task."""

    async def offsets(self, name: str) -> Json:
        """Return the committed offsets of a connector."""

    async def alter_offsets(self, name: str, offsets: Sequence[tuple[Json, Json | None]]) -> Json:
        """Set offsets of a stopped connector, None forgets one (KIP-875); returns the message."""

    async def reset_offsets(self, name: str) -> Json:
        """Forget all offsets of a stopped connector; returns the message."""

    async def topics(self, name: str) -> Json:
        """Return the topics that a connector has written to (KIP-558)."""

    async def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has written to."""

    async def set_logger_level(self, namespace: str, level: str) -> None:
        """Set a log level on all workers (KIP-976)."""

    async def put_task_configs(self, name: str, body: bytes, signature: str | None, algorithm: str | None) -> None:
        """Take the settings of tasks from another worker (internal; signed, KIP-507)."""

    async def fence_zombies(self, name: str, body: bytes, signature: str | None, algorithm: str | None) -> None:
        """Fence the producers of a connector's earlier tasks (internal; signed, KIP-618)."""
