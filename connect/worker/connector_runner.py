"""`ConnectorRunner`: starts, pauses and stops one connector, and reports its state."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping

from ..api.connector import SourceConnector
from ..api.offsets import OffsetReader
from ..calls import Calls
from ..errors import ConnectError
from ..stores.config_records import TargetState
from ..stores.status_records import State

log = logging.getLogger(__name__)

_STATES = {
    TargetState.STARTED: State.RUNNING,
    TargetState.PAUSED: State.PAUSED,
    TargetState.STOPPED: State.STOPPED,
}


class ConnectorRunner:
    """Runs one connector, and is the connector's `SourceConnectorContext`."""

    def __init__(
        self,
        name: str,
        connector: SourceConnector,
        config: Mapping[str, str],
        stored: Mapping[str, str],
        offsets: OffsetReader,
        report: Callable[[State, str | None], Awaitable[None]],
        reconfigure: Callable[[], None],
    ) -> None:
        """Set up the runner. `stored` contains the settings as stored; in `config`, their variables are replaced."""
        self.name, self.connector, self.config, self.stored = name, connector, config, stored
        self._offsets, self._report, self._reconfigure = offsets, report, reconfigure
        self._calls = Calls(f"connector {name}")
        self._loop = asyncio.get_running_loop()
        self._running = False
        self._reports: set[asyncio.Task[None]] = set()
        self.state = State.UNASSIGNED
        connector.context = self

    @property
    def offsets(self) -> OffsetReader:
        """The connector's committed offsets."""
        return self._offsets

    def request_task_reconfiguration(self) -> None:
        """Make the herder ask the connector for its task settings again."""
        self._loop.call_soon_threadsafe(self._reconfigure)

    def raise_error(self, error: BaseException) -> None:
        """Make the connector FAILED. May be called from any thread."""

        def fail() -> None:
            task = self._loop.create_task(self.fail(error))
            self._reports.add(task)
            task.add_done_callback(self._reports.discard)

        self._loop.call_soon_threadsafe(fail)

    async def transition_to(self, target: TargetState) -> None:
        """Start or stop the connector; report a failure and raise it as ConnectError."""
        if self.state is State.FAILED and target is TargetState.STARTED:
            raise ConnectError(f"connector {self.name} has failed: restart it")
        try:
            if target is TargetState.STARTED and not self._running:
                await self._start()
            elif target is not TargetState.STARTED and self._running:
                self._running = False
                await self._calls.call(self.connector.stop)
        except Exception as error:
            await self.fail(error)
            raise ConnectError(f"connector {self.name} could not be {target.value.lower()}: {error}") from error
        self.state = _STATES[target]
        await self._report(self.state, None)

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return the settings that the connector gives to each of its tasks. Raises the connector's errors."""
        return [dict(each) for each in await self._calls.call(self.connector.task_configs, max_tasks)]

    async def close(self) -> None:
        """Stop the connector permanently, and report it as UNASSIGNED."""
        try:
            if self._running:
                self._running = False
                await self._calls.call(self.connector.stop)
        except Exception as error:
            log.error("connector %s: stop() failed", self.name, exc_info=error)
        finally:
            self._calls.close()
        self.state = State.UNASSIGNED
        await self._report(State.UNASSIGNED, None)

    async def _start(self) -> None:
        self._running = True  # if the start is cancelled, a stop follows
        try:
            await self._calls.call(self.connector.start, dict(self.config))
        except Exception:
            self._running = False
            raise

    async def fail(self, error: BaseException) -> None:
        """Make the connector FAILED, and report the reason."""
        log.error("connector %s has failed", self.name, exc_info=error)
        self.state = State.FAILED
        await self._report(State.FAILED, "".join(traceback.format_exception(error)))
