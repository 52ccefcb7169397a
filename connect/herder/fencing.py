"""`ZombieFencing`: fences the producers of a connector's earlier tasks before a new set of tasks starts (KIP-618).

Only the leader fences. It does so in rounds, at most one per connector at a time. Fencing is not needed in three cases:

- If the config topic has a task count record after the task settings and after the creation of the connector, all
  earlier tasks are fenced already, including those of a deleted connector with the same name.
- If the topic has no task count record of the connector, no earlier set of tasks has started with exactly-once
  delivery.
- If a single task replaces a single task, the new task fences its own predecessor.
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
"""A function of (connector, number of tasks, connector's settings). It fences all producers or raises an error."""


class FencesAtLeader(Protocol):
    """Sends fencing requests to the leader."""

    async def fence(self, leader_url: str, connector: str) -> None:
        """Ask the leader to fence. Raises LeaderRequestError."""


@dataclass
class _Round:
    fenced: int
    """The number of tasks whose producers this round fences."""
    recorded: int
    """The number of tasks whose producers the next round must fence."""
    generation: int
    outdated: bool = False
    """Whether the connector's tasks have changed since the round began."""
    outcome: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the round has stopped fencing."""

    def fail(self, error: ConnectError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class ZombieFencing:
    """Runs the fencing rounds on the leader; on other workers, asks the leader to fence."""

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
        """Fence earlier tasks, directly or through the leader, before a task starts here. Raises ConnectError."""
        try:
            await self.fence(connector)
        except NotLeaderError as error:
            if error.url is None:
                raise NotReadyError(
                    "the tasks cannot be fenced because the leader of the group is not known yet"
                ) from error
            await self._leader.fence(error.url, connector)

    async def fence(self, connector: str) -> None:
        """Fence the producers of a connector's earlier tasks, as the leader.

        Raises NotLeaderError, NotFoundError, ConflictError, ConnectError.
        """
        while (active := await self._requests.run(partial(self._begin, connector))) is not None:
            if not active.outdated:
                await asyncio.shield(active.outcome)
                return
            await active.over.wait()  # the outdated round could still fence the producers of the new tasks

    def new_tasks(self, connector: str) -> None:
        """Fail the running round of a connector whose tasks have changed: the round would record a wrong count."""
        active = self._rounds.get(connector)
        if active is not None:
            active.outdated = True
            active.fail(
                ConflictError("Failed to complete zombie fencing because a new set of task configs was generated")
            )

    async def close(self) -> None:
        """Cancel all rounds."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _begin(self, connector: str) -> _Round | None:
        """Return the round to wait for, or None if nothing needs fencing."""
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
            # Read the exception, so that asyncio does not warn if no caller waits any more.
            active.outcome.add_done_callback(lambda outcome: outcome.exception())
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
