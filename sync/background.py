"""The event loop that all blocking clients of a process share, and the daemon thread in which the loop runs.

Invariants: a call of a client's method returns only when its coroutine has ended, by success, failure or
cancellation. An interrupt of the waiting thread cancels the coroutine first. Only the process that made a loop uses it.
After a fork, the child process makes its own loop, and clients that the parent started raise an error in the child.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ..client.cancellation import is_cancelling
from ..client.errors import ErrorCode, FatalError, IllegalStateError
from ..client.threads import call_for, current_caller

T = TypeVar("T")
log = logging.getLogger(__name__)

EXIT_TIMEOUT_S: Final = 5.0
"""Maximum seconds for which the interpreter's exit waits to close clients that were left open."""

BLOCKED_LOOP_S: Final = 1.0
"""Seconds that the exit waits beyond EXIT_TIMEOUT_S if a function of the program blocks the event loop."""

NOT_CLOSED: Final = "clients of oncelog.sync could not be closed within %g s"
"""The warning if some clients are not closed in time at the interpreter's exit."""

SIGNAL_CHECK_S: Final = 0.5
"""Maximum seconds from the arrival of a signal to the call of its handler, while a thread waits for a call.

Usually a signal interrupts the wait at once. A signal that arrives just before the wait begins, or in another thread,
does not: Python calls its handler only when the wait ends, after SIGNAL_CHECK_S at the latest.
"""


@dataclass(frozen=True, slots=True)
class Registration:
    """A client that is closed with `close` when the interpreter exits, if it was left open."""

    close: Callable[[], Awaitable[object]]
    is_open: Callable[[], bool]
    """Returns False once a call has begun to close the client."""
    is_broker: bool = False
    """Whether the client is a broker, which clients that were started later may need until they are closed."""


class BackgroundLoop:
    """An event loop in a daemon thread, for one process. `background_loop()` returns the shared loop."""

    def __init__(self) -> None:
        import uvloop

        self._pid = os.getpid()
        self._loop = uvloop.new_event_loop()
        self._open: dict[object, Registration] = {}
        """The clients to close at the interpreter's exit, oldest first."""
        self._closing: dict[asyncio.Task[Any], object] = {}
        """Calls that close a client, with the client; the interpreter's exit waits for them."""
        self._is_shut_down = False
        self._thread = threading.Thread(target=self._run_loop, name="oncelog-sync", daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        """Run the loop until `shut_down`. SystemExit in a callback or a task ends `run_forever`; it must not end the
        loop, because calls wait for it.
        """
        while not self._is_shut_down:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                log.exception("%s in the event loop of oncelog.sync does not end the program", type(error).__name__)

    def check_process(self) -> None:
        """Raise IllegalStateError in a process that was forked from the process that made this loop."""
        if os.getpid() != self._pid:
            raise IllegalStateError(
                f"this client was made in process {self._pid}, and its connections and thread do not survive a fork:"
                " make a new one in this process"
            )

    def run(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        undo: Callable[[T], object] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> T:
        """Call `work` in the loop, wait until its coroutine has ended, and return the result or raise the exception.

        If the waiting thread is interrupted, for example by KeyboardInterrupt, the coroutine is cancelled, and the
        exception is raised when the coroutine has ended. If the coroutine returned a result nevertheless, `undo` is
        called in the loop with this result. The coroutine is made in the loop, so that an interrupt cannot come between
        its creation and its start.

        Raises IllegalStateError in the loop's own thread, and after a fork. Raises FatalError if the loop ends
        meanwhile. After `timeout_s`, cancels the coroutine and raises TimeoutError, even if a function of the program
        blocks the loop. Warns, once in a process, if the waiting thread has a running event loop, which the call
        blocks; does not warn in a notebook.
        """
        self.check_process()
        if threading.current_thread() is self._thread:
            raise IllegalStateError(
                "a blocking client was called in its own event loop, where it would wait for itself: call it from"
                " another thread, or use the asyncio client there"
            )
        _warn_in_event_loop()
        call = _Call(self._loop, self._thread, work, timeout_s)
        try:
            self._loop.call_soon_threadsafe(call.start)
            call.wait()
            return call.result()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # the loop is closed; then `wait` raises an error
                self._loop.call_soon_threadsafe(call.cancel)
            call.wait()
            if undo is not None:
                self._loop.call_soon_threadsafe(call.undo, undo)
            raise

    def opened(self, client: object, registration: Registration) -> None:
        """Register a client, to be closed when the interpreter exits."""
        self._open[client] = registration

    def close(self, client: object, closing: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Call `closing`, which closes a client, and wait as `run` does. The interpreter's exit waits for it, too."""
        self.run(lambda: self._close(client, closing()))

    async def _close(self, client: object, closing: Awaitable[object]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._closing[task] = client
        try:
            await closing
        finally:
            del self._closing[task]
            # The call may have closed nothing, for example if it had a wrong argument or only waited for another call.
            registration = self._open.get(client)
            if registration is not None and not registration.is_open() and client not in self._closing.values():
                del self._open[client]

    def shut_down(self) -> None:
        """Close the clients that are still open, and wait for those that other threads are closing. Give up after
        EXIT_TIMEOUT_S, or BLOCKED_LOOP_S later if a function of the program blocks the loop. Then end the thread.
        """
        timeout_s = EXIT_TIMEOUT_S + BLOCKED_LOOP_S
        deadline = time.monotonic() + timeout_s
        try:
            self.run(self._close_all, timeout_s=timeout_s)
        except TimeoutError:
            log.warning(NOT_CLOSED, EXIT_TIMEOUT_S)
        finally:
            self._is_shut_down = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(max(deadline - time.monotonic(), 0.0))
            if not self._thread.is_alive():
                self._loop.close()

    async def _close_all(self) -> None:
        """Close the clients, newest first, because a client may need another that was started before it.

        Each client gets a share of EXIT_TIMEOUT_S. A client that needs longer goes on closing while the next one begins
        to close. Before a broker is closed, the clients that are still closing get one more share together.
        """
        if left := len(self._open.keys() - self._closing.values()):
            log.warning("%d client(s) of oncelog.sync were not closed before exit: use `with`", left)
        try:
            async with asyncio.timeout(EXIT_TIMEOUT_S) as scope, asyncio.TaskGroup() as group:
                deadline = scope.when()
                assert deadline is not None
                while self._open:
                    client, registration = list(self._open.items())[-1]
                    needing = [task for task, other in self._closing.items() if other is not client]
                    if registration.is_broker and needing:
                        await asyncio.wait(needing, timeout=self._share_s(deadline))
                    share_s = self._share_s(deadline)
                    self._open.pop(client, None)
                    await asyncio.wait({group.create_task(self._close_at_exit(client, registration))}, timeout=share_s)
                while self._closing:  # a thread may close a client whose start has failed
                    await asyncio.wait([*self._closing])
        except TimeoutError:
            log.warning(NOT_CLOSED, EXIT_TIMEOUT_S)

    def _share_s(self, deadline: float) -> float:
        """Return the next client's share of the remaining time, in seconds. All further clients get an equal share, and
        one more is left at the end for clients that are still closing.
        """
        return max(deadline - self._loop.time(), 0.0) / (len(self._open) + 1)

    async def _close_at_exit(self, client: object, registration: Registration) -> None:
        """Wait for the calls that close a client. If it is still open then, close it."""
        try:
            while closing := [task for task, closed in self._closing.items() if closed is client]:
                await asyncio.wait(closing)
            if registration.is_open():
                await self._close(client, registration.close())
        except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelling():  # the time is over
                raise
            log.error("a client of oncelog.sync could not be closed: %s", str(error) or type(error).__name__)


class ExitedError(Exception):
    """A coroutine or a function of the program raised SystemExit or KeyboardInterrupt, which is `cause`.

    The task raises this error in place of `cause`, which would end the loop. The call that waits for the task raises
    `cause`.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause


class _Call(Generic[T]):
    """A coroutine that runs in the loop, and the thread that waits for its end.

    The thread waits for a plain lock, and not for a concurrent future, an event or a condition. Each of those acquires
    an inner lock for a moment, and an interrupt in that moment would leave the inner lock locked forever. The loop
    would then wait for the inner lock when it sets the outcome.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        loop_thread: threading.Thread,
        work: Callable[[], Coroutine[Any, Any, T]],
        timeout_s: float | None,
    ) -> None:
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._loop = loop
        self._loop_thread = loop_thread
        self._work = work
        self._caller = current_caller()
        self._task: asyncio.Task[T] | None = None
        self._has_ended = False
        self._running = threading.Lock()
        self._running.acquire()

    # ---- in the waiting thread

    def wait(self) -> None:
        """Wait until the coroutine has ended; may be called again if it was interrupted. Raises FatalError if the
        loop's thread has ended, and TimeoutError after the timeout.
        """
        while not self._has_ended and not self._running.acquire(timeout=self._wait_s()):
            if not self._loop_thread.is_alive() and not self._has_ended:
                raise FatalError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, "the event loop of oncelog.sync ended while the call waited"
                )
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise TimeoutError

    def _wait_s(self) -> float:
        """Return the seconds until the next check for a signal, or until the deadline if it is earlier."""
        if self._deadline is None:
            return SIGNAL_CHECK_S
        return min(max(self._deadline - time.monotonic(), 0.0), SIGNAL_CHECK_S)

    def result(self) -> T:
        """Return the ended coroutine's result, or raise its exception."""
        assert self._task is not None
        if self._task.cancelled():
            raise CancelledError  # concurrent.futures' error, which does not cancel the caller's task
        try:
            return self._task.result()
        except ExitedError as exited:
            raise exited.cause from None

    # ---- in the loop's thread

    def start(self) -> None:
        """Start the coroutine."""
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._end)

    async def _run(self) -> T:
        try:
            return await call_for(self._caller, self._work)
        except (SystemExit, KeyboardInterrupt) as error:
            raise ExitedError(error) from None

    def cancel(self) -> None:
        """Cancel the coroutine, or end the call if it was not started."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._set_ended()

    def undo(self, undo: Callable[[T], object]) -> None:
        """Call `undo` with the coroutine's result, if it has one."""
        task = self._task
        if task is not None and not task.cancelled() and task.exception() is None:
            undo(task.result())

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # if no one retrieves it, as after an interrupt of the thread, asyncio logs an error
        self._set_ended()

    def _set_ended(self) -> None:
        self._has_ended = True
        self._running.release()


_warned = False


def _warn_in_event_loop() -> None:
    global _warned
    if _warned:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if "ipykernel" in sys.modules:
        return  # a notebook's own loop waits for the cell in any case
    _warned = True
    warnings.warn(
        "a blocking client of oncelog.sync was called in a thread with a running event loop, which is blocked until"
        " the call returns: use the asyncio clients of oncelog there, or asyncio.to_thread",
        RuntimeWarning,
        stacklevel=_depth_of_caller(),
    )


def _depth_of_caller() -> int:
    """Return the number of frames from the caller of this function to the first caller outside of this package, for
    `stacklevel`.
    """
    frame = sys._getframe(1)
    depth = 1
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame, depth = frame.f_back, depth + 1
    return depth


_lock = threading.Lock()
_shared: BackgroundLoop | None = None
_of_parents: list[BackgroundLoop] = []
"""Loops of the processes from which this process was forked. They are kept, because a destructor would change resources
that the parent uses.
"""


def background_loop() -> BackgroundLoop:
    """Return the loop that all clients of this process share; the first call starts it."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = BackgroundLoop()
        return _shared


def _after_fork_in_child() -> None:
    global _shared, _lock
    _lock = threading.Lock()  # another thread of the parent may have held the lock at the fork
    if _shared is not None:
        _of_parents.append(_shared)
        _shared = None


def _at_exit() -> None:
    if _shared is not None:
        _shared.shut_down()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
