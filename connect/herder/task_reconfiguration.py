"""`TaskReconfiguration`: asks connectors for the settings of their tasks, and has the leader write them.

Failed attempts are repeated until one succeeds. The wait between them grows from BACKOFF_S to BACKOFF_MAX_S, as in
Kafka Connect. A new request, for example after the connector's settings have changed, ends the wait. A connector that
returns too many tasks becomes FAILED instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from ..errors import BadRequestError, ConnectError, NotFoundError, NotLeaderError, TooManyTasksError
from ..stores.config_records import TargetState
from ..stores.config_store import ConfigStore
from ..worker.worker import Worker
from .answers import task_configs_changed
from .leadership import Leadership
from .requests import Requests

log = logging.getLogger(__name__)

BACKOFF_S: Final = 0.25
BACKOFF_MAX_S: Final = 60.0


class WritesAtLeader(Protocol):
    """Sends task settings to the leader."""

    async def put_task_configs(self, leader_url: str, connector: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Ask the leader to write the settings of a connector's tasks. Raises LeaderRequestError."""


class TaskReconfiguration:
    """The reconfigurations of connectors that run on this worker, at most one per connector at a time."""

    def __init__(
        self,
        worker: Worker,
        configs: ConfigStore,
        leadership: Leadership,
        requests: Requests,
        leader: WritesAtLeader,
    ) -> None:
        self._worker, self._configs = worker, configs
        self._leadership, self._requests, self._leader = leadership, requests, leader
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._waits: dict[str, asyncio.Event] = {}

    def request(self, connector: str) -> None:
        """Ask a connector for its task settings in the background.

        If a request is already under way, ask once more after it.
        """
        running = self._running.get(connector)
        if running is not None and not running.done():
            self._again.add(connector)
            if connector in self._waits:
                self._waits[connector].set()
            return
        self._running[connector] = asyncio.create_task(self._run(connector), name=f"reconfigure {connector}")

    async def close(self) -> None:
        """Cancel all reconfigurations."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def write(self, connector: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Write the settings of a connector's tasks as the leader. Called in the tick loop.

        Raises NotLeaderError, NotFoundError, ConnectError, and BadRequestError for tasks of a stopped connector.
        """
        self._leadership.require("Only the leader may write task configurations.")
        state = self._configs.snapshot()
        if connector not in state.connector_configs:
            raise NotFoundError(f"Connector {connector} not found")
        if configs and state.target_state(connector) is TargetState.STOPPED:
            raise BadRequestError(f"Cannot submit non-empty set of task configs for stopped connector {connector}")
        await self._leadership.write(self._configs.put_task_configs(connector, configs))

    async def _run(self, connector: str) -> None:
        wait_s = BACKOFF_S
        while True:
            self._again.discard(connector)
            try:
                await self._reconfigure(connector)
            except TooManyTasksError as error:
                await self._worker.connector_failed(connector, error)
            except Exception as error:
                if connector in self._again:
                    wait_s = BACKOFF_S
                log.warning(
                    "tasks of connector %s were not configured; next attempt in %g s: %s", connector, wait_s, error
                )
                wait_s = BACKOFF_S if await self._requested(connector, wait_s) else min(2 * wait_s, BACKOFF_MAX_S)
                continue
            if connector not in self._again:
                return
            wait_s = BACKOFF_S

    async def _requested(self, connector: str, wait_s: float) -> bool:
        """Wait for `wait_s` seconds or for another request; return whether a request ended the wait."""
        requested = self._waits[connector] = asyncio.Event()
        try:
            async with asyncio.timeout(wait_s):
                return await requested.wait()
        except TimeoutError:
            return False
        finally:
            del self._waits[connector]

    async def _reconfigure(self, connector: str) -> None:
        if not self._wanted(connector):
            return
        configs = await self._worker.task_configs(connector)
        if not self._wanted(connector) or not task_configs_changed(self._configs.snapshot(), connector, configs):
            return
        try:
            await self._requests.run(partial(self.write, connector, configs))
        except NotLeaderError as error:
            if error.url is None:
                raise ConnectError(
                    "the settings of tasks cannot be written because the leader of the group is not known yet"
                ) from error
            await self._leader.put_task_configs(error.url, connector, configs)

    def _wanted(self, connector: str) -> bool:
        """Return whether a connector runs on this worker and needs tasks."""
        state = self._configs.snapshot()
        started = connector in state.connector_configs and state.target_state(connector) is TargetState.STARTED
        return started and self._worker.connector_running(connector)
