"""`WorkerProcesses`: starts worker processes, restarts those that die, and ends them together.

When `run` returns or raises an exception, no child process is left. A child that dies is started again, which is safe
because its consumer group and its transactional id fence the dead process and abort its open transaction. If a child
dies after the maximum number of restarts, or if its factory fails, the other children are stopped and WorkerDiedError
gives the reason. Children end when their parent is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import pickle
import signal
import threading
from collections import deque
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Final

from ...protocol.errors import ErrorCode
from ..backoff import ExponentialBackoff
from ..errors import ConfigError, FatalError
from ..validation import count_setting, duration_setting
from .worker_process import Report, Stage, main

log = logging.getLogger(__name__)

RESTART_BACKOFF_MS: Final = 100
RESTART_BACKOFF_MAX_MS: Final = 5_000


class WorkerDiedError(FatalError):
    """A worker process has died, and is not restarted. The message names the worker, its exit code and last error."""

    remedy = "see the worker's own log, correct the cause, and start the processes again"

    def __init__(self, message: str, worker: int, exit_code: int | None) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.worker = worker
        self.exit_code = exit_code


class _Child:
    """A worker, and the process that runs it now."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: SpawnProcess | None = None
        self.pipe: Connection | None = None
        self.died = asyncio.Event()
        self.restarts = 0
        self.report = Report(Stage.STARTING)


class WorkerProcesses:
    """Runs workers in processes: `await WorkerProcesses("jobs:make_processor", workers=4).run()`

    `factory` names a callable as module:callable. Each process calls it with the worker's number, from 0 to workers -
    1, and with `arguments` as keyword arguments. Their values must be picklable. The factory returns a Processor, which
    the process runs; its transactional_id must contain the number. `run` returns after `stop()`, SIGTERM or SIGINT,
    when all workers have finished their transactions. Workers that take longer than `stop_timeout_s` are killed, and
    their transactions time out. All workers together are restarted at most `restarts` times within `restart_window_s`.
    """

    def __init__(
        self,
        factory: str,
        *,
        workers: int = 1,
        arguments: Mapping[str, object] | None = None,
        restarts: int = 5,
        restart_window_s: float = 60.0,
        stop_timeout_s: float = 30.0,
    ) -> None:
        workers = count_setting(workers, "workers")
        restarts = count_setting(restarts, "restarts", at_least=0)
        if duration_setting(restart_window_s, "restart_window_s") == 0:
            raise ConfigError("restart_window_s", "is 0: give a number of seconds above 0")
        stop_timeout_s = duration_setting(stop_timeout_s, "stop_timeout_s")
        self._factory = factory
        self._arguments = dict(arguments or {})
        try:
            pickle.dumps(self._arguments)
        except Exception as error:
            raise ConfigError("arguments", f"cannot be sent to another process: {error}") from None
        self._restarts = restarts
        self._window_s = restart_window_s
        self._stop_timeout_s = stop_timeout_s
        self._children = [_Child(number) for number in range(workers)]
        self._restarted: deque[float] = deque()
        self._stopping = asyncio.Event()
        self._backoff = ExponentialBackoff(RESTART_BACKOFF_MS, RESTART_BACKOFF_MAX_MS)

    @property
    def pids(self) -> dict[int, int]:
        """The process id of each running worker, by the worker's number."""
        return {
            child.number: child.process.pid
            for child in self._children
            if child.process is not None and child.process.pid is not None and not child.died.is_set()
        }

    def stop(self) -> None:
        """Make all workers finish their transactions and end. May be used as a signal handler of the event loop."""
        self._stopping.set()

    async def run(self) -> None:
        """Run the workers until `stop()`, or until all of them have ended with exit code 0.

        Raises WorkerDiedError if a worker dies after the maximum number of restarts, or if its factory fails.
        """
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
        for signum in signals:
            loop.add_signal_handler(signum, self.stop)
        try:
            async with asyncio.TaskGroup() as keepers:
                for child in self._children:
                    keepers.create_task(self._keep(child), name=f"worker process {child.number}")
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            for signum in signals:
                loop.remove_signal_handler(signum)

    # -- one child

    async def _keep(self, child: _Child) -> None:
        """Run a worker until it is stopped or ends with exit code 0. If its process dies, start a new one."""
        try:
            while not self._stopping.is_set():
                self._start(child)
                code = await self._until_dead_or_stopped(child)
                if self._stopping.is_set():
                    return
                if code == 0:
                    log.info("worker %d ended with exit code 0: it is not started again", child.number)
                    return
                self._check_budget(child, code)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._backoff(child.restarts)):
                        await self._stopping.wait()
                child.restarts += 1
        finally:
            await self._end(child)

    def _start(self, child: _Child) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=main,
            args=(self._factory, child.number, self._arguments, theirs),
            name=f"oncelog-worker-{child.number}",
        )
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()  # only the child may hold its end of the pipe: then each process notices that the other died
        child.report = Report(Stage.STARTING)
        child.died.clear()
        child.process, child.pipe = process, ours
        asyncio.get_running_loop().add_reader(child.process.sentinel, self._notice, child, child.process.sentinel)

    def _notice(self, child: _Child, sentinel: int) -> None:
        asyncio.get_running_loop().remove_reader(sentinel)
        child.died.set()

    async def _until_dead_or_stopped(self, child: _Child) -> int | None:
        died, stopped = asyncio.ensure_future(child.died.wait()), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({died, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            died.cancel()
            stopped.cancel()
        return self._reap(child) if child.died.is_set() else None

    def _check_budget(self, child: _Child, code: int | None) -> None:
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        text = f": {child.report.text}" if child.report.text else ""
        what = f"worker {child.number} {how}{text}"
        if child.report.stage is Stage.UNUSABLE:
            raise WorkerDiedError(f"{what} ({self._factory} cannot be used)", child.number, code)
        now = asyncio.get_running_loop().time()
        while self._restarted and self._restarted[0] <= now - self._window_s:
            self._restarted.popleft()
        if len(self._restarted) >= self._restarts:
            raise WorkerDiedError(
                f"{what}, after {len(self._restarted)} restarts within {self._window_s:g} s", child.number, code
            )
        self._restarted.append(now)
        log.warning("%s: it is started again", what)

    async def _end(self, child: _Child) -> None:
        """Ask the process to end, wait for `stop_timeout_s`, and kill it if it has not ended."""
        process = child.process
        if process is None:
            return
        try:
            if not child.died.is_set():
                process.terminate()
                async with asyncio.timeout(self._stop_timeout_s):
                    await child.died.wait()
        except TimeoutError:
            log.warning("worker %d did not end within %g s and is killed", child.number, self._stop_timeout_s)
        finally:
            if not child.died.is_set():
                asyncio.get_running_loop().remove_reader(process.sentinel)
                process.kill()
            self._reap(child)

    def _reap(self, child: _Child) -> int | None:
        process, child.process = child.process, None
        pipe, child.pipe = child.pipe, None
        if process is None or pipe is None:
            return None
        process.join()
        code = process.exitcode
        try:
            while pipe.poll():
                child.report = pipe.recv()
        except (EOFError, OSError):
            pass  # the process died while it sent its last report, or before it sent any
        pipe.close()
        process.close()
        return code
