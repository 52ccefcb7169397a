"""`DistributedStartChecks`: what has to hold for an exactly-once task of a distributed worker to start (KIP-618)."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import SupersededError
from ..group.work import Work
from ..stores.config_records import TargetState
from ..stores.config_store import ConfigStore
from ..stores.ids import ConnectorTaskId
from .fencing import ZombieFencing
from .requests import Requests


class DistributedStartChecks:
    """The checks of one start of one task, with the generation of task settings that it starts from."""

    def __init__(
        self,
        task: ConnectorTaskId,
        generation: int | None,
        configs: ConfigStore,
        fencing: ZombieFencing,
        requests: Requests,
        assigned: Callable[[], Work],
    ) -> None:
        self._task, self._generation = task, generation
        self._configs, self._fencing, self._requests = configs, fencing, requests
        self._assigned = assigned

    async def fence_others(self) -> None:
        """Fence the tasks of earlier sets of task settings, here or at the leader; raises ConnectError."""
        await self._fencing.before_start(self._task.connector)

    async def still_wanted(self) -> None:
        """Read the config topic to its end, and raise SupersededError where the task is not to run here any more."""
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
