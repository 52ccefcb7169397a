"""The checks before an exactly-once task starts, on a distributed and on a standalone worker (KIP-618)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ..errors import NotReadyError, SupersededError
from ..group.work import Work
from ..stores.config_records import TargetState
from ..stores.config_store import ConfigStore
from ..stores.ids import ConnectorTaskId
from .fencing import ZombieFencing
from .requests import Requests


class Confirms(Protocol):
    """The part of the worker's membership that the checks use."""

    async def confirm(self) -> bool:
        """Return whether the coordinator still counts this worker as a member of the group."""


class DistributedStartChecks:
    """The checks before one start of one task; `generation` is the generation of the task's settings."""

    def __init__(
        self,
        task: ConnectorTaskId,
        generation: int | None,
        configs: ConfigStore,
        fencing: ZombieFencing,
        requests: Requests,
        member: Confirms,
        assigned: Callable[[], Work],
    ) -> None:
        self._task, self._generation = task, generation
        self._configs, self._fencing, self._requests = configs, fencing, requests
        self._member, self._assigned = member, assigned

    async def fence_others(self) -> None:
        """Fence the tasks of earlier sets of task settings, directly or through the leader. Raises ConnectError.

        Raises NotReadyError if the group has removed this worker, because a removed worker must not fence the task's
        new owner.
        """
        await self._fencing.before_start(self._task.connector)
        if not await self._member.confirm():
            raise NotReadyError(f"the group has removed this worker, so it must not start task {self._task}")

    async def still_wanted(self) -> None:
        """Read the config topic to its end; raise SupersededError if the task must not run on this worker any more."""
        await self._configs.refresh(None)
        await self._requests.run(self._check)

    async def _check(self) -> None:
        state, connector = self._configs.snapshot(), self._task.connector
        if state.task_config_generations.get(connector) != self._generation:
            raise SupersededError("its connector has already generated a new set of task configs")
        if self._task not in state.tasks(connector) or state.target_state(connector) is TargetState.STOPPED:
            raise SupersededError("its connector was stopped or removed")
        if self._task not in self._assigned().tasks:
            raise SupersededError("it has already been revoked from this worker")


class StandaloneStartChecks:
    """The checks for all starts of the tasks of one connector, until its task settings change.

    `fence` fences all earlier tasks of the connector. It is repeated only until it has succeeded: a later call would
    fence tasks that have started in the meantime. Tasks that start at the same time share an attempt and its failure.
    """

    def __init__(self, fence: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._fence = fence
        self._attempt: asyncio.Task[None] | None = None

    async def fence_others(self) -> None:
        """Fence all earlier tasks of the connector, unless they are fenced already. Raises ConnectError."""
        attempt = self._attempt
        if attempt is None or (attempt.done() and (attempt.cancelled() or attempt.exception() is not None)):
            attempt = self._attempt = asyncio.create_task(self._fence(), name="fence earlier tasks")
            # Read the exception, so that asyncio does not warn if no task waits any more.
            attempt.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(attempt)

    async def still_wanted(self) -> None:
        """Do nothing: every start is still wanted, because only this worker starts and stops its tasks."""

    async def close(self) -> None:
        """Cancel a fencing attempt that is under way. Call this after the tasks have been stopped."""
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.gather(self._attempt, return_exceptions=True)
