"""`ZombieFencing`: fences the producers of a connector's earlier tasks before those of a new set start (KIP-618).

Only the leader does that, in rounds, one per connector at a time. The record of a task count behind the settings of
tasks says that their predecessors are fenced: then, or where one task follows one, there is nothing to fence, as a task
fences its own predecessor by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ..errors import ConflictError, ConnectError, NotFoundError, NotLeaderError, NotReadyError
from ..stores.config_store import ConfigStore
from .leadership import Leadership
from .requests import Requests

log = logging.getLogger(__name__)

FenceProducers = Callable[[str, int, Mapping[str, str]], Awaitable[None]]
"""(connector, number of tasks, the connector's settings): fences all their producers, or raises ConnectError."""


class FencesAtLeader(Protocol):
    """Asks the leader."""

    async def fence(self, leader_url: str, connector: str) -> None:
        """Have the leader fence; raises LeaderRequestError."""


@dataclass
class _Round:
    fenced: int
    """Tasks whose producers are fenced."""
    recorded: int
    """Tasks whose producers are to be fenced next time."""
    generation: int
    outdated: bool = False
    """Whether the connector has other tasks by now."""
    outcome: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the round fences nobody any more."""

    def fail(self, error: ConnectError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class ZombieFencing:
    """The rounds of this worker while it is the leader, and its way to the leader while it is not."""

    def __init__(
        self,
        configs: ConfigStore,
        leadership: Leadership,
        requests: Requests,
        fence_producers: FenceProducers,
        leader: FencesAtLeader,
        refresh_timeout_s: float,
    ) -> None:
        self._configs, self._leadership, self._requests = configs, leadership, requests
        self._fence_producers, self._leader = fence_producers, leader
        self._refresh_timeout_s = refresh_timeout_s
        self._rounds: dict[str, _Round] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def before_start(self, connector: str) -> None:
        """Fence before a task of this worker starts, here or at the leader; raises ConnectError."""
        try:
            await self.fence(connector)
        except NotLeaderError as error:
            if error.url is None:
                raise NotReadyError("the leader of the group, who fences, is not known yet") from error
            await self._leader.fence(error.url, connector)

    async def fence(self, connector: str) -> None:
        """Fence the producers of a connector's earlier tasks, as the leader.

        Raises NotLeaderError, NotFoundError, ConflictError, ConnectError.
        """
        while (active := await self._requests.run(partial(self._begin, connector))) is not None:
            if not active.outdated:
                await asyncio.shield(active.outcome)
                return
            await active.over.wait()  # it could still fence the producers of the new tasks

    def new_tasks(self, connector: str) -> None:
        """Fail a round whose connector has other tasks by now: what it would record is not true any more."""
        active = self._rounds.get(connector)
        if active is not None:
            active.outdated = True
            active.fail(
                ConflictError("Failed to complete zombie fencing because a new set of task configs was generated")
            )

    async def close(self) -> None:
        """End all rounds."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _begin(self, connector: str) -> _Round | None:
        """Return the round to wait for; None where there is nothing to fence."""
        self._leadership.require("Only the leader may perform zombie fencing.")
        if connector not in self._configs.snapshot().connector_configs:
            raise NotFoundError(f"Connector {connector} not found")
        await self._refresh("before performing zombie fencing")
        state = self._configs.snapshot()
        if connector not in state.pending_fencing:
            return None
        count, record = len(state.tasks(connector)), state.task_count_records.get(connector)
        if record is None or (record == 1 and count == 1):
            await self._leadership.write(self._configs.put_task_count(connector, count))
            return None
        active = self._rounds.get(connector)
        if active is None:
            active = _Round(record, count, state.task_config_generations.get(connector, -1))
            self._rounds[connector] = active
            active.outcome.add_done_callback(lambda outcome: outcome.exception())  # maybe nobody waits any more
            settings = {name: value for name, value in state.connector_configs[connector].items() if value is not None}
            task = asyncio.create_task(self._run(connector, active, settings), name=f"fence {connector}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return active

    async def _run(self, connector: str, active: _Round, settings: Mapping[str, str]) -> None:
        log.info("fencing the producers of %d earlier tasks of connector %s", active.fenced, connector)
        try:
            await self._fence_producers(connector, active.fenced, settings)
            await self._requests.run(partial(self._record, connector, active))
        except Exception as error:
            log.warning("could not fence the earlier tasks of connector %s: %s", connector, error)
            if not isinstance(error, ConnectError):
                error = ConnectError(f"Failed to perform zombie fencing: {error}")
            active.fail(error)
        finally:
            del self._rounds[connector]
            active.over.set()
            active.fail(ConnectError("Worker is shutting down"))

    async def _record(self, connector: str, active: _Round) -> None:
        await self._refresh("after zombie fencing")
        state = self._configs.snapshot()
        if active.outdated:
            return
        if state.task_config_generations.get(connector, -1) > active.generation:
            raise ConflictError("Fencing failed because new task configurations were generated for the connector")
        self._leadership.require("Only the leader may perform zombie fencing.")
        await self._leadership.write(self._configs.put_task_count(connector, active.recorded))
        if not active.outcome.done():
            active.outcome.set_result(None)

    async def _refresh(self, when: str) -> None:
        try:
            await self._configs.refresh(self._refresh_timeout_s)
        except TimeoutError as error:
            raise ConnectError(f"Failed to read to end of config topic {when}") from error
