"""The checks before an exactly-once task starts, in a distributed and in a standalone worker (KIP-618)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

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
    """The checks for one start of one task, whose settings belong to this generation of task settings."""

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
        """Fence the tasks of earlier sets of task settings, here or through the leader; raises ConnectError.

        Raises NotReadyError if the group has removed this worker, because it must not fence the task's new owner.
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
    """The checks for the tasks of one set of task settings: `fence` is called before the first of them starts."""

    def __init__(self, fence: Callable[[], Awaitable[None]]) -> None:
        self._fence = fence
        self._fencing = asyncio.Lock()
        self._is_fenced = False

    async def fence_others(self) -> None:
        """Fence the tasks of earlier sets of task settings, unless that was done; raises ConnectError, KafkaError."""
        async with self._fencing:
            if not self._is_fenced:
                await self._fence()
                self._is_fenced = True

    async def still_wanted(self) -> None:
        """Do nothing: no other worker changes the tasks."""
