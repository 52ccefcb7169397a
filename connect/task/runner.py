"""`TaskRunner`: the loop of one source task, from its start to its end.

A pause or a stop takes effect immediately, even while the task waits for its source. Records that a poll returns after
a stop are dropped. They were not acknowledged, so the next instance of the task polls them again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ...client.errors import ConfigError
from ..api.records import SourceRecord
from ..api.task import SourceTask
from ..calls import Calls
from ..errors import ProducerLostError, RetriableError, SupersededError
from ..stopping import StoppedError, unless_stopped
from ..stores.config_records import TargetState
from ..stores.ids import ConnectorTaskId
from ..stores.status_records import State
from .delivery import Acknowledged, Delivery
from .pipeline import Pipeline
from .task_metrics import TaskMetrics

log = logging.getLogger(__name__)

Report = Callable[[State, str | None], Awaitable[None]]

_RETRY_S: Final = 1.0
"""The wait, in seconds, after a poll that failed with a RetriableError."""


class TaskRunner:
    """Runs one task.

    `run` ends when the task is stopped, fails or is fenced; it reports each state and does not raise task errors.
    """

    def __init__(
        self,
        task_id: ConnectorTaskId,
        task: SourceTask,
        config: Mapping[str, str],
        pipeline: Pipeline,
        report: Report,
        *,
        start_attempts: int = 1,
        start_backoff_s: float = 1.0,
    ) -> None:
        self.id = task_id
        self._task, self._config = task, config
        self._pipeline, self._tell_state = pipeline, report
        self.metrics = TaskMetrics(pipeline.metrics)
        self._attempts, self._backoff_s = start_attempts, start_backoff_s
        self._calls = Calls(f"task {task_id}")
        self._in_thread = not inspect.iscoroutinefunction(task.poll)
        self._polling: asyncio.Future[Iterable[SourceRecord] | None] | None = None
        self._polling_since = 0.0
        self._target = TargetState.STARTED
        self._changed = asyncio.Event()
        self._woken = False
        """Whether the delivery has outcomes that `batch_done` has to process."""
        self._stopping = asyncio.Event()
        self._stop_called = False
        self._late: Acknowledged = []
        """The records for which `commit_record` must be called as soon as the task's thread is free."""
        self._commit_due = False
        self._delay_s = 0.0
        self._unsent: Sequence[SourceRecord] = ()
        """The records of a batch that were not sent, beginning with the one that failed."""
        self.has_committed = False
        """Whether records have been committed after a batch."""
        self.keeps_records = type(task).commit_record is not SourceTask.commit_record
        self.make_delivery: Callable[[], Awaitable[Delivery]]
        """Makes the delivery; called again for each attempt to start it."""
        self.delivery: Delivery

    def set_target(self, target: TargetState) -> None:
        """Make the task run, pause or stop."""
        self._target = target
        if target is TargetState.STOPPED:
            self._stopping.set()
        self._changed.set()

    @property
    def target(self) -> TargetState:
        """The state that was set last."""
        return self._target

    async def run(self, *, delay_s: float = 0.0, restart_after: type[ProducerLostError] | None = None) -> bool:
        """Wait `delay_s` seconds, then run the task until it is stopped or fails; report each of its states.

        If the task fails with `restart_after` once its delivery has started, and is not being stopped, return True
        instead of reporting FAILED.
        """
        self._delay_s = delay_s
        started = stopped = False
        try:
            started = await self._start_unless_stopped()
            if started and self._target is not TargetState.STOPPED:
                await self._calls.call(self._task.start, self._config)
                await self._loop()
                await self.delivery.finish()
            stopped = True
        except SupersededError as error:
            log.info("task %s does not start: %s", self.id, error)
        except Exception as error:
            lost = started and restart_after is not None and isinstance(error, restart_after)
            if lost and self._target is not TargetState.STOPPED:
                log.warning("task %s starts again if it still belongs to this worker: %s", self.id, error)
                return True
            log.error("task %s has failed", self.id, exc_info=error)
            if started:
                await self._finish_failed()
            await self._report(State.FAILED, "".join(traceback.format_exception(error)))
        finally:
            await self._end(started)
        if stopped:
            await self._report(State.UNASSIGNED, None)
        return False

    async def acknowledged(self, records: Acknowledged) -> None:
        """Pass acknowledged records to the task's `commit_record`, now or when the task's thread is free."""
        self._late += records
        await self._tell_if_free()

    async def committed(self) -> None:
        """Call the task's `commit` after a commit of offsets, now or when the task's thread is free."""
        self.metrics.committed()
        self._commit_due = True
        await self._tell_if_free()

    def wake(self) -> None:
        """Make the task call the delivery's `batch_done` now, even if the task is paused or waits for its source."""
        self._woken = True
        self._changed.set()

    async def _start_unless_stopped(self) -> bool:
        """Start the delivery; return False if the task is stopped before the start is complete."""
        try:
            await unless_stopped(self._start_delivery(), self._stopping, name=f"start task {self.id}")
        except StoppedError:
            return False
        except Exception as error:
            if not self._stopping.is_set():
                raise
            log.info("task %s was stopped while it was starting: %s", self.id, error)
            return False
        return True

    async def _start_delivery(self) -> None:
        await asyncio.sleep(self._delay_s)
        for attempt in range(self._attempts):
            try:
                self.delivery = await self.make_delivery()
                await self._started_or_closed(self.delivery)
                return
            except (SupersededError, ConfigError):
                raise
            except Exception as error:
                if attempt == self._attempts - 1:
                    raise
                wait_s = self._backoff_s * 2**attempt
                log.warning("task %s did not start; next attempt in %g s: %s", self.id, wait_s, error)
                await asyncio.sleep(wait_s)

    async def _started_or_closed(self, delivery: Delivery) -> None:
        try:
            await delivery.start()
        except BaseException:
            await delivery.close()
            raise

    async def _loop(self) -> None:
        reported: State | None = None
        while self._target is not TargetState.STOPPED:
            if not self._woken:
                self._changed.clear()
            state = State.RUNNING if self._target is TargetState.STARTED else State.PAUSED
            if state is State.PAUSED and reported is not state:
                await self.delivery.finish()
            if reported is not state:
                reported = state
                await self._report(state, None)
                continue  # the target may have changed in the meantime
            if state is State.PAUSED:
                await self._changed.wait()
            batch = await self._poll() if state is State.RUNNING else None
            if batch is not None:
                await self._send(batch)
            if batch is not None or self._woken:
                self._woken = False
                await self._batch_done()

    async def _send(self, batch: Iterable[SourceRecord]) -> None:
        records = iter(batch)
        for record in records:
            try:
                converted = await self._pipeline.convert(record)
                self.metrics.sent(dropped=converted is None)
                await self.delivery.send(record, converted)
            except Exception:
                self._unsent = [record, *records]
                raise

    async def _report(self, state: State, trace: str | None) -> None:
        self.metrics.state_changed(state)
        await self._tell_state(state, trace)

    async def _batch_done(self) -> None:
        if not self.metrics.pending:
            await self.delivery.batch_done()
            return
        started = time.monotonic()
        try:
            await self.delivery.batch_done()
        except Exception:
            self.metrics.commit_ended(time.monotonic() - started, success=False)
            raise
        if not self.metrics.pending:
            self.metrics.commit_ended(time.monotonic() - started, success=True)
            self.has_committed = True

    async def _poll(self) -> Iterable[SourceRecord] | None:
        """Return a batch, which may be empty; None if the target changed before a batch arrived."""
        if self._polling is None:
            self._polling = asyncio.ensure_future(self._calls.call(self._task.poll))
            self._polling_since = time.monotonic()
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {self._polling, changed}
            await asyncio.wait(waiting, timeout=self.delivery.due_in_s(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        if not self._polling.done():
            return None if self._changed.is_set() else ()
        polling, self._polling = self._polling, None
        await self._tell()
        try:
            batch = polling.result()
            records = batch if isinstance(batch, Collection) else list(batch or ())
            if records:
                self.metrics.poll_ended(len(records), time.monotonic() - self._polling_since)
            return records
        except RetriableError as error:
            log.warning("task %s: poll failed and will be repeated: %s", self.id, error)
            await asyncio.sleep(_RETRY_S)
            return ()

    async def _tell_if_free(self) -> None:
        if not (self._in_thread and self._polling is not None):
            await self._tell()

    async def _tell(self) -> None:
        """Call the task's `commit_record` and `commit` if they are due.

        Their errors are only logged, because the records are already written.
        """
        late, self._late = self._late, []
        for record, metadata in late:
            await self._hook(self._task.commit_record, record, metadata)
        if self._commit_due:
            self._commit_due = False
            if type(self._task).commit is not SourceTask.commit:
                await self._hook(self._task.commit)

    async def _hook(self, hook: Callable[..., Any], *arguments: Any) -> None:
        try:
            await self._calls.call(hook, *arguments)
        except Exception as error:
            log.error("task %s: %s() failed", self.id, hook.__name__, exc_info=error)

    async def _finish_failed(self) -> None:
        try:
            await self.delivery.finish_failed(self._unsent)
        except Exception as error:
            log.error("task %s: could not commit the records before the failure", self.id, exc_info=error)

    async def _end(self, started: bool) -> None:
        try:
            if self._polling is not None and not self._in_thread:
                self._polling.cancel()
                await asyncio.gather(self._polling, return_exceptions=True)
            elif self._polling is not None:
                aside = Calls(f"stop task {self.id}")  # the task's own thread is still in poll
                await aside.call(self._task.stop)
                aside.close()
                self._stop_called = True
                await asyncio.gather(self._polling, return_exceptions=True)
            if started:
                await self._tell()
            if started and not self._stop_called:
                self._stop_called = True
                await self._calls.call(self._task.stop)
        except Exception as error:
            log.error("task %s: stop() failed", self.id, exc_info=error)
        finally:
            self._calls.close()
            if started:
                await self.delivery.close()
