"""`DistributedHerder`: the herder of one worker in a group.

The config topic defines the group's connectors and tasks, and the group's leader assigns them to workers. The tick loop
makes all changes, but first takes part in a rebalance that is due. A request for another worker raises a
RequestTargetError with that worker's address, and the REST interface forwards the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ..errors import (
    AlreadyExistsError,
    ConnectError,
    NotFoundError,
    NotLeaderError,
    RebalanceNeededError,
)
from ..settings.distributed import DistributedConfig
from ..stores.cluster_config import Change
from ..stores.config_records import RestartRequest, TargetState
from ..stores.config_store import READ_WRITE_TIMEOUT_S, ConfigStore
from ..stores.ids import ConnectorTaskId
from ..stores.offset_store import OffsetStore
from ..stores.status_store import StatusStore
from ..stores.topic_log import TopicLog
from . import answers, offset_requests
from .base import BaseHerder, Outside
from .group_worker import GroupMember, GroupWorker, LeaderClient
from .herder import Json, Put
from .internal_requests import InternalRequests


class DistributedHerder(BaseHerder):
    """A `Herder` that is a member of its group: `await start()`, then `await stop()`."""

    def __init__(
        self,
        config: DistributedConfig,
        worker_id: str,
        configs: TopicLog,
        statuses: TopicLog,
        offsets: TopicLog,
        make_member: Callable[[ConfigStore], GroupMember],
        make_client: Callable[[ConfigStore], LeaderClient],
        outside: Outside | None = None,
    ) -> None:
        store = ConfigStore(configs, self._changed)
        super().__init__(config, worker_id, store, StatusStore(statuses), OffsetStore(offsets), outside or Outside())
        self._group = GroupWorker(
            config, store, self._statuses, self._worker, self, make_member(store), make_client(store)
        )
        self._internal = InternalRequests(
            self._group,
            store,
            config["inter.worker.verification.algorithms"],
            always_signed=config.rest.has_credentials,
        )
        self._started = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    # -- start and stop

    async def start(self) -> None:
        """Join the group, and wait until the first assignment is carried out. Raises KafkaError, ConnectError."""
        self._running = asyncio.create_task(self._run(), name="herder")
        started = asyncio.create_task(self._started.wait())
        await asyncio.wait({self._running, started}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._running.done():
            self._running.result()

    async def ended(self) -> None:
        """Wait until the worker has stopped; raise the error that permanently ended its group membership, if any."""
        assert self._running is not None, "not started"
        await asyncio.shield(self._running)

    async def stop(self) -> None:
        """Stop all connectors and tasks of this worker, and leave the group."""
        if self._running is None:
            return
        self._group.stop()
        if self.ready is not None:
            self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    @property
    def generation(self) -> int:
        """The group's generation after the last rebalance."""
        return self._group.leadership.generation

    async def alive(self) -> None:
        """Wait until the tick loop can process a request."""
        await self._group.requests.run(partial(asyncio.sleep, 0))

    async def settled(self) -> None:
        """Wait for a rebalance that is due; raise RebalanceNeededError if another rebalance will follow."""
        await self._group.requests.run(self._check_settled)

    def _changed(self, change: Change) -> None:
        self._group.changes.note(change)

    async def _run(self) -> None:
        try:
            await self._open()
            await self._group.run(self._first_tick_done)
        finally:
            await self._close()

    def _first_tick_done(self) -> None:
        self.ready = None
        self._started.set()

    def metrics(self) -> str:
        """Return the metrics of this worker in Prometheus' text format."""
        return self._group.metrics()

    # -- changes

    async def put_connector(
        self, name: str, config: Mapping[str, str | None], target: TargetState | None, *, replace: bool
    ) -> Put:
        """Create a connector, or change its settings. Raises AlreadyExistsError, BadRequestError, NotLeaderError."""
        await self._require_valid(name, config)

        async def put() -> Put:
            self._group.leadership.require("Only the leader can set connector configs.")
            if name in self._configs.snapshot().connector_configs and not replace:
                raise AlreadyExistsError(f"Connector {name} already exists")
            return await self._put(name, config, target)

        return await self._group.requests.run(put)

    async def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> Put:
        """Change some settings of a connector; None removes a setting.

        Raises the errors of `put_connector`, and NotFoundError.
        """

        async def present() -> dict[str, str]:
            self._group.leadership.require("Only the leader can set connector configs.")
            return self._require(name, "Connector {} not found")

        while True:
            before = await self._group.requests.run(present)
            config = {key: value for key, value in {**before, **patch}.items() if value is not None}
            await self._require_valid(name, config)

            async def put(before: Mapping[str, str] = before, config: Mapping[str, str] = config) -> Put | None:
                unchanged = await present() == before
                return await self._put(name, config, None) if unchanged else None

            if (done := await self._group.requests.run(put)) is not None:
                return done

    async def _put(self, name: str, config: Mapping[str, str | None], target: TargetState | None) -> Put:
        before = self._configs.snapshot().connector_configs.get(name)
        if config == before and target is None:
            # The tasks' settings would have to be written again as well, and this would restart all tasks.
            write = self._configs.put_restart(RestartRequest(name, only_failed=False, include_tasks=False))
        else:
            write = self._configs.put_connector(name, config, target)
        await self._group.leadership.write(write)
        return Put(before is None, answers.connector_info(self._configs.snapshot(), name))

    async def delete_connector(self, name: str) -> None:
        """Delete a connector; the following rebalance stops it. Its offsets are kept.

        Raises NotFoundError, NotLeaderError.
        """

        async def delete() -> None:
            self._group.leadership.require("Only the leader can delete connector configs.")
            self._require(name, "Connector {} not found")
            await self._group.leadership.write(self._configs.remove_connector(name))

        await self._group.requests.run(delete)

    async def set_target_state(self, name: str, target: TargetState) -> None:
        """Start, pause or stop a connector; only the leader can stop it. Raises NotFoundError, NotLeaderError."""
        if target is TargetState.STOPPED:
            await self._group.requests.run(partial(self._stop_connector, name))
            return
        self._require(name, "Unknown connector {}")
        await self._configs.put_target_state(name, target)

    async def _stop_connector(self, name: str) -> None:
        self._require(name, "Unknown connector {}")
        self._group.leadership.require("Only the leader can transition connectors to the STOPPED state.")
        # Remove the tasks first: if the leader ends in between, a started connector without tasks does no harm.
        await self._group.task_configs.write(name, [])
        await self._configs.put_target_state(name, TargetState.STOPPED)
        await self._configs.refresh()

    async def restart_connector(self, name: str) -> None:
        """Restart the connector without its tasks.

        Raises NotFoundError, RequestTargetError, RebalanceNeededError, and ConnectError if the connector does not
        start.
        """

        async def restart() -> asyncio.Task[None]:
            await self._check_settled()
            self._require(name, "Unknown connector: {}")
            self._group.require_assigned(name)
            return await self._group.work.restart_connector(name)

        starting = await self._group.requests.run(restart)
        await asyncio.wait({starting})
        if starting.cancelled() or starting.exception() is not None:
            raise ConnectError(f"Failed to start connector: {name}")

    async def restart_task(self, task: ConnectorTaskId) -> None:
        """Restart a task.

        Raises NotFoundError, RequestTargetError, RebalanceNeededError, and ConnectError if the task cannot be set up.
        """

        async def restart() -> None:
            await self._check_settled()
            self._require(task.connector, "Unknown connector: {}")
            if task not in self._configs.snapshot().task_configs:
                raise NotFoundError(f"Unknown task: {task}")
            self._group.require_assigned(task)
            await self._group.work.restart_task(task)

        await self._group.requests.run(restart)

    async def restart_connector_and_tasks(self, request: RestartRequest) -> Json:
        """Make the workers restart a connector, its tasks, or both, as the request says.

        Return the status of the connector and its tasks. Those that restart have the state RESTARTING in it. Raises
        NotFoundError, NotLeaderError, RebalanceNeededError.
        """

        async def restart() -> Json:
            await self._check_settled()
            self._require(request.connector, "Unknown connector: {}")
            self._group.leadership.require("Only the leader can process restart requests.")
            await self._group.leadership.write(self._configs.put_restart(request))
            return answers.restart_plan(self._configs.snapshot(), self._statuses, request)[2]

        return await self._group.requests.run(restart)

    async def set_logger_level(self, namespace: str, level: str) -> None:
        """Set a log level on all workers of the group."""
        await self._configs.put_logger_level(namespace, level)

    # -- between workers

    async def put_task_configs(self, name: str, body: bytes, signature: str | None, algorithm: str | None) -> None:
        """Write the task settings that another worker has sent."""
        await self._internal.put_task_configs(name, body, signature, algorithm)

    async def fence_zombies(self, name: str, body: bytes, signature: str | None, algorithm: str | None) -> None:
        """Fence the producers of a connector's earlier tasks on behalf of another worker."""
        await self._internal.fence(name, body, signature, algorithm)

    # -- internal

    async def _change_offsets(self, name: str, offsets: Sequence[tuple[Json, Json | None]] | None) -> bool:
        async def check() -> dict[str, str]:
            await self._check_settled()
            self._group.leadership.require("Only the leader can process external offsets modification requests")
            await self._configs.refresh()
            config = self._require(name, "Connector {} not found")
            offset_requests.require_stopped(self._configs.snapshot(), name)
            return config

        async def change() -> bool:
            config = await check()  # the state may have changed in the meantime
            await self._group.require_counted_in()
            async with asyncio.timeout(READ_WRITE_TIMEOUT_S):
                return await offset_requests.change(self._worker, config, name, offsets)

        await self._group.requests.run(check)
        if self.config.exactly_once:
            try:
                await self._group.fencing.fence(name)
            except NotLeaderError:
                raise
            except ConnectError as error:
                raise ConnectError(
                    "Failed to perform zombie fencing for source connector prior to modifying offsets"
                ) from error
        return await self._group.requests.run(change)

    async def _check_settled(self) -> None:
        if self._group.changes.rebalance_needed:
            raise RebalanceNeededError
