"""`GroupWorker`: connects the parts of a distributed herder, and runs them from the first join to the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from ..errors import NotAssignedError, NotLeaderError, NotReadyError
from ..settings.distributed import DistributedConfig
from ..stores.config_store import ConfigStore
from ..stores.ids import ConnectorTaskId
from ..stores.status_store import StatusStore
from ..task.exactly_once import StartChecks
from ..worker.listener import StatusListener
from ..worker.worker import Worker
from .config_changes import ConfigChanges
from .fencing import FencesAtLeader, ZombieFencing
from .housekeeping import Housekeeping
from .leadership import Identity, Leadership
from .local_work import LocalWork
from .requests import Requests
from .start_checks import DistributedStartChecks
from .task_reconfiguration import TaskReconfiguration, WritesAtLeader
from .tick_loop import Member, TickLoop


def wall_clock_ms() -> int:
    """Return the current time in milliseconds since the epoch."""
    return int(time.time() * 1000)


class GroupMember(Member, Identity, Protocol):
    """The interface of the worker's group membership; `WorkerGroupMember` implements it."""

    def owner_url(self, owned: str | ConnectorTaskId) -> str | None:
        """As the leader, return the REST address of the worker to which a connector or task is assigned, or None."""

    async def start(self, timeout_s: float) -> None:
        """Connect to the cluster. Raises KafkaTimeoutError."""

    async def confirm(self) -> bool:
        """Return whether the coordinator still counts this worker as a member of the group."""

    async def close(self) -> None:
        """Close the connections to the cluster."""


class LeaderClient(FencesAtLeader, WritesAtLeader, Protocol):
    """Sends internal requests to the leader."""


class GroupWorker:
    """Creates and connects the parts of a distributed herder, and runs the tick loop.

    The parts are public attributes, because the actions in `requests` use them.
    """

    def __init__(
        self,
        config: DistributedConfig,
        configs: ConfigStore,
        statuses: StatusStore,
        worker: Worker,
        listener: StatusListener,
        member: GroupMember,
        client: LeaderClient,
        wall_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._config, self._configs, self._statuses = config, configs, statuses
        self._worker = worker
        self.member = member
        self._loop = TickLoop(config, configs, wall_ms)
        self.requests = Requests(self._loop.wake)
        self.leadership = Leadership(config, member, configs)
        refresh_s = config["worker.sync.timeout.ms"] / 1000
        self.fencing = ZombieFencing(configs, self.leadership, self.requests, self._fence_tasks, client, refresh_s)
        self.changes = ConfigChanges(self._loop.wake, self.fencing.new_tasks)
        self.task_configs = TaskReconfiguration(worker, configs, self.leadership, self.requests, client)
        self.work = LocalWork(worker, configs, self.task_configs.request, self._checks)
        housekeeping = Housekeeping(configs, statuses, listener, self.leadership, self.changes, self.work)
        self._loop.attach(member, self.leadership, self.requests, self.changes, self.work, housekeeping)

    async def run(self, first_tick_done: Callable[[], None]) -> None:
        """Join the group, and do this worker's part of the group's work until `stop`.

        `first_tick_done` is called after each complete tick; only the first call matters. Raises the KafkaError that
        permanently ended the membership.
        """
        await self.member.start(self._config["session.timeout.ms"] / 1000)
        try:
            await self._loop.run(first_tick_done)
        finally:
            await self._end()

    def stop(self) -> None:
        """Make `run` end."""
        self._loop.stop()

    def metrics(self) -> str:
        """Return the metrics of this worker in Prometheus' text format."""
        leadership = self.leadership
        samples = self._loop.metrics.samples(leadership.protocol, leadership.leader_url, leadership.generation)
        return self._worker.metrics(samples)

    async def require_counted_in(self) -> None:
        """Raise NotReadyError if the group has removed this worker, even if the worker has not noticed yet."""
        if not await self.member.confirm():
            raise NotReadyError("the group has removed this worker, and its work may be running on another worker")

    async def _fence_tasks(self, connector: str, count: int, config: Mapping[str, str]) -> None:
        """Fence tasks only if this worker is still in the group: otherwise, a new leader may have started the tasks."""
        await self.require_counted_in()
        await self._worker.fence_tasks(connector, count, config)

    def require_assigned(self, what: str | ConnectorTaskId) -> None:
        """Raise RequestTargetError unless this worker runs the connector or task.

        On the leader, the error contains the address of the worker to ask; on other workers, the leader's address.
        """
        if what in (self.work.assigned.connectors if isinstance(what, str) else self.work.assigned.tasks):
            return
        kind = "connector" if isinstance(what, str) else "task"
        message = f"Cannot restart {kind} since it is not assigned to this member"
        if self.leadership.is_leader:
            raise NotAssignedError(message, self.member.owner_url(what))
        raise NotLeaderError(self.leadership.leader_url, message)

    async def _end(self) -> None:
        await self.task_configs.close()
        await self.work.stop(self.work.started)
        await self._worker.stop()
        self.requests.close()
        await self.fencing.close()
        await self._statuses.flush()
        await self.member.leave("the worker stops")
        await self.member.close()

    def _checks(self, task: ConnectorTaskId, generation: int | None) -> StartChecks | None:
        if not self._config.exactly_once:
            return None
        return DistributedStartChecks(
            task, generation, self._configs, self.fencing, self.requests, self.member, lambda: self.work.assigned
        )
