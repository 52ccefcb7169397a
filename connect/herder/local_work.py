"""`LocalWork`: starts and stops the connectors and tasks that are assigned to this worker.

Connectors and tasks start in the background, so that no call waits for a start. Stopping a connector or task ends a
start that is under way. A connector and its tasks are independent of each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable

from ..errors import ConnectError
from ..group.work import Work
from ..stores.config_records import TargetState
from ..stores.config_store import ConfigStore
from ..stores.ids import ConnectorTaskId
from ..task.exactly_once import StartChecks
from ..worker.worker import Worker

log = logging.getLogger(__name__)

MakeChecks = Callable[[ConnectorTaskId, int | None], StartChecks | None]
"""A function of (task, generation of its connector's task settings) that returns the checks before the task starts."""


class LocalWork:
    """Starts and stops connectors and tasks as assignments and settings change.

    Only the tick loop calls its methods.
    """

    def __init__(
        self, worker: Worker, configs: ConfigStore, reconfigure: Callable[[str], None], checks: MakeChecks
    ) -> None:
        self._worker, self._configs = worker, configs
        self._reconfigure, self._checks = reconfigure, checks
        self._jobs: defaultdict[str, set[asyncio.Task[None]]] = defaultdict(set)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.assigned = Work()
        self.started = Work()

    async def follow(self, assigned: Work) -> None:
        """Start assigned work that is not running, and stop reading the offsets topics of other connectors."""
        self.assigned = assigned
        await self.start(assigned - self.started)
        await self._worker.keep_offsets_of(self.started.connectors | {task.connector for task in self.started.tasks})

    async def start(self, work: Work) -> None:
        """Start those connectors and tasks of the work that are not yet running on this worker."""
        for connector in sorted(work.connectors):
            self._start_connector(connector)
        for task in sorted(work.tasks):
            await self._start_task(task)

    async def stop(self, work: Work) -> None:
        """Cancel starts of the connectors and stop the tasks, all in parallel. Then stop the connectors in parallel.

        Tasks write their last offsets to the connector's own offsets topic while they stop. This topic is closed once
        the connector and all its tasks have stopped.
        """
        await asyncio.gather(self._worker.stop_tasks(work.tasks), *map(self._end_jobs, work.connectors))
        await asyncio.gather(*(self._stop_connector(connector) for connector in work.connectors))
        self.started -= work

    async def restart_connector(self, connector: str) -> asyncio.Task[None]:
        """Stop a connector, and start it again in the background.

        The returned task raises ConnectError if the start fails.
        """
        await self._stop_connector(connector)
        return self._start_connector(connector)

    async def follow_settings(self, connectors: Iterable[str]) -> None:
        """Restart those of the connectors that run on this worker. If a connector was removed, only stop it."""
        configured = self._configs.snapshot().connector_configs
        for connector in sorted(set(connectors) & self.started.connectors):
            if connector in configured:
                await self.restart_connector(connector)
            else:
                await self._stop_connector(connector)

    def set_target(self, connector: str) -> None:
        """Apply a connector's target state to the connector and to its tasks, if they run on this worker."""
        target = self._configs.snapshot().target_state(connector)
        if target is None:
            return
        self._worker.set_target(connector, target)

        async def transition() -> None:
            wanted = self._configs.snapshot().target_state(connector)
            if wanted is None:
                return
            await self._worker.connector_transition(connector, wanted)
            if wanted is TargetState.STARTED:
                self._reconfigure(connector)

        if connector in self.started.connectors:
            self._in_background(connector, transition)

    async def stop_tasks_of(self, connectors: Iterable[str]) -> None:
        """Stop the tasks of these connectors. The next rebalance starts those that are still assigned."""
        names = set(connectors)
        await self.stop(Work.of((), (task for task in self.started.tasks if task.connector in names)))

    async def restart_task(self, task: ConnectorTaskId) -> None:
        """Stop a task of this worker and start it again. Raises ConnectError if the task cannot be set up."""
        await self._worker.stop_tasks([task])
        if not await self._start_task(task):
            raise ConnectError(f"Failed to start task: {task}")

    def _start_connector(self, connector: str) -> asyncio.Task[None]:
        self.started |= Work.of([connector], ())

        async def start() -> None:
            state = self._configs.snapshot()
            config = state.connector_configs.get(connector)
            if config is None:
                return  # the connector was removed, and a rebalance is due
            target = state.target_state(connector) or TargetState.STARTED
            settings = {name: value for name, value in config.items() if value is not None}
            await self._worker.start_connector(connector, settings, target, lambda: self._reconfigure(connector))
            if target is TargetState.STARTED:
                self._reconfigure(connector)

        return self._in_background(connector, start)

    async def _start_task(self, task: ConnectorTaskId) -> bool:
        """Start a task in the background; return False if it cannot be set up."""
        state = self._configs.snapshot()
        connector, config = state.connector_configs.get(task.connector), state.task_configs.get(task)
        if connector is None:
            return False  # the connector was removed, and a rebalance is due
        self.started |= Work.of((), [task])
        if config is None:  # the leader knows the task, but this worker has read a compacted topic (KAFKA-17719)
            unknown = f"this worker found no settings of task {task} in the config topic; restart the connector"
            await self._worker.task_failed(task, ConnectError(unknown))
            return False
        return await self._worker.start_task(
            task,
            {name: value for name, value in connector.items() if value is not None},
            {name: value for name, value in config.items() if value is not None},
            state.target_state(task.connector) or TargetState.STARTED,
            self._checks(task, state.task_config_generations.get(task.connector)),
        )

    async def _stop_connector(self, connector: str) -> None:
        await self._end_jobs(connector)
        await self._worker.stop_connector(connector)
        self.started -= Work.of([connector], ())

    async def _end_jobs(self, connector: str) -> None:
        jobs = self._jobs.pop(connector, set())
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    def _in_background(self, connector: str, action: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        async def run() -> None:
            async with self._locks[connector]:
                await action()

        def ended(job: asyncio.Task[None]) -> None:
            self._jobs.get(connector, set()).discard(job)
            if not job.cancelled() and (error := job.exception()) is not None:
                known = isinstance(error, ConnectError)
                log.error("connector %s: %s", connector, error, exc_info=None if known else error)

        job = asyncio.create_task(run(), name=f"connector {connector}")
        self._jobs[connector].add(job)
        job.add_done_callback(ended)
        return job
