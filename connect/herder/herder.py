"""`Herder`: the interface between the REST API and a standalone or distributed worker.

Methods return data in Kafka Connect's JSON formats. Failures raise the exceptions of errors.py, which the REST
interface turns into status codes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..stores.config_records import RestartRequest, TargetState
from ..stores.ids import ConnectorTaskId

Json = dict[str, Any]


class Put(NamedTuple):
    """The result of a PUT request for a connector's settings."""

    created: bool
    info: Json


class Herder(Protocol):
    """Manages connectors and their tasks in a cluster of one or more workers."""

    @property
    def cluster_id(self) -> str:
        """The id of the Kafka cluster."""

    @property
    def ready(self) -> str | None:
        """The reason why the worker cannot answer requests yet, or None if it is ready."""

    async def alive(self) -> None:
        """Wait until the worker can process a request (KIP-1017)."""

    def metrics(self) -> str:
        """Return the metrics of this worker in Prometheus' text format."""

    async def connectors(self) -> list[str]:
        """Return the names of all connectors."""

    async def expanded_connectors(self, parts: Collection[str]) -> Json:
        """Return the given parts (info, status) of all connectors, by name."""

    async def connector_info(self, name: str) -> Json:
        """Return a connector's name, config, tasks and type. Raises NotFoundError."""

    async def connector_status(self, name: str) -> Json:
        """Return the states of a connector and its tasks. Raises NotFoundError."""

    async def task_status(self, task: ConnectorTaskId) -> Json:
        """Return the state of a task. Raises NotFoundError."""

    async def task_configs(self, name: str) -> list[Json]:
        """Return the id and config of each task. Raises NotFoundError."""

    async def validate(self, config: Mapping[str, str | None]) -> Json:
        """Return the result of validating a connector's settings. Raises BadRequestError."""

    async def put_connector(
        self, name: str, config: Mapping[str, str | None], target: TargetState | None, *, replace: bool
    ) -> Put:
        """Create a connector or, if `replace` is true, change its settings. Raises AlreadyExistsError."""

    async def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> Put:
        """Change some settings of a connector; None removes a setting (KIP-477)."""

    async def delete_connector(self, name: str) -> None:
        """Stop and delete a connector; its offsets are kept."""

    async def set_target_state(self, name: str, target: TargetState) -> None:
        """Start, pause or stop a connector."""

    async def restart_connector(self, name: str) -> None:
        """Restart a connector without its tasks."""

    async def restart_connector_and_tasks(self, request: RestartRequest) -> Json:
        """Restart a connector, its tasks, or both, as the request says (KIP-745).

        Return the status of the connector and its tasks. Those that restart have the state RESTARTING in it.
        """

    async def restart_task(self, task: ConnectorTaskId) -> None:
        """Restart a task. Raises ConnectError if it cannot be set up; a later failure appears only in its status."""

    async def offsets(self, name: str) -> Json:
        """Return the committed offsets of a connector."""

    async def alter_offsets(self, name: str, offsets: Sequence[tuple[Json, Json | None]]) -> Json:
        """Set offsets of a stopped connector; None deletes an offset (KIP-875). Return the message of the response."""

    async def reset_offsets(self, name: str) -> Json:
        """Delete all offsets of a stopped connector; return the message of the response."""

    async def topics(self, name: str) -> Json:
        """Return the topics that a connector has written to (KIP-558)."""

    async def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has written to."""

    async def set_logger_level(self, namespace: str, level: str) -> None:
        """Set a log level on all workers (KIP-976)."""

    async def put_task_configs(self, name: str, body: bytes, signature: str | None, algorithm: str | None) -> None:
        """Write the task settings that another worker has sent (internal request; signed, KIP-507)."""

    async def fence_zombies(self, name: str, body: bytes, signature: str | None, algorithm: str | None) -> None:
        """Fence the producers of a connector's earlier tasks (internal request; signed, KIP-618)."""
