"""`Housekeeping`: updates the status topic around rebalances, and carries out restart requests (KIP-745)."""

from __future__ import annotations

import logging

from ..errors import NotFoundError
from ..group.work import Work
from ..stores.config_records import RestartRequest
from ..stores.config_store import ConfigStore
from ..stores.ids import ConnectorTaskId
from ..stores.status_records import State
from ..stores.status_store import StatusStore
from ..worker.listener import StatusListener
from .answers import restart_plan
from .config_changes import ConfigChanges
from .leadership import Leadership
from .local_work import LocalWork

log = logging.getLogger(__name__)


class Housekeeping:
    """Does the part of the tick loop's work that involves the status topic."""

    def __init__(
        self,
        configs: ConfigStore,
        statuses: StatusStore,
        listener: StatusListener,
        leadership: Leadership,
        changes: ConfigChanges,
        work: LocalWork,
    ) -> None:
        self._configs, self._statuses, self._listener = configs, statuses, listener
        self._leadership, self._changes, self._work = leadership, changes, work

    async def before_rebalance(self) -> None:
        """Write the queued statuses.

        After the rebalance, another worker may write statuses of the same connectors and tasks.
        """
        await self._statuses.flush()

    async def rebalanced(self) -> None:
        """As the leader, delete the entries about removed connectors and tasks from the status topic.

        The entries are their states, and the names of the topics to which the connectors wrote.
        """
        if not self._leadership.is_leader:
            return
        await self._statuses.refresh()  # other workers reported their stopped connectors and tasks before they joined
        state = self._configs.snapshot()
        for connector in self._statuses.connectors():
            remaining = set(state.tasks(connector))
            gone: list[str | ConnectorTaskId] = [
                task for task, _ in self._statuses.of_tasks(connector) if task not in remaining
            ]
            if connector not in state.connector_configs:
                gone.append(connector)
            for what in gone:
                await self._listener.status(what, State.DESTROYED, None, None)
        for connector in self._statuses.connectors_with_topics():
            if connector not in state.connector_configs:
                for topic in self._statuses.topics(connector):
                    self._statuses.delete_topic(connector, topic.topic)

    async def restart_requested(self) -> None:
        """Restart the connectors and tasks of this worker for which the config topic contains restart requests."""
        for request in self._changes.take_restarts():
            try:
                await self._restart(request)
            except NotFoundError as error:
                log.info("connector %s is not restarted: %s", request.connector, error)

    async def _restart(self, request: RestartRequest) -> None:
        restarts, planned, _ = restart_plan(self._configs.snapshot(), self._statuses, request)
        connectors = self._work.started.connectors & ({request.connector} if restarts else set())
        restarted = Work(connectors, self._work.started.tasks & frozenset(planned))
        if not restarted:
            return
        log.info("restarting %s", restarted)
        await self._work.stop(restarted)
        stopped: list[str | ConnectorTaskId] = [*restarted.connectors, *restarted.tasks]
        for what in stopped:
            await self._listener.status(what, State.RESTARTING, None, None)
        await self._work.start(restarted)
