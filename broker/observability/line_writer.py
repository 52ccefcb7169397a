"""Write lines to a file descriptor or a file in a separate thread, so that callers never wait and never fail.

Lines wait in a queue whose size in bytes is limited. If the queue is full or the descriptor refuses a line, the line is
lost, and the loss is counted. The count is written when no line has arrived for `QUIET_S` seconds, at the latest after
`LATEST_S` seconds, or by `flush` or `close`. Queued lines are also lost if the process is killed; `flush` waits for
them at an orderly end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

MAX_QUEUED_BYTES: Final = 1 << 20
QUIET_S: Final = 1.0
"""Seconds without a line after which notices are written."""

LATEST_S: Final = 10.0
"""Seconds after which notices are written even if lines arrive all the time."""

EXIT_S: Final = 1.0
"""Seconds for which the end of the process waits for lines that are not written yet."""

Notices = Callable[[int], Iterable[str]]
"""A function that returns notices about lines that were not written; its argument is the number of lost lines."""


class LineWriter:
    """A queue of lines and the thread that writes them, which starts with the first line."""

    def __init__(self, descriptor: int, notices: Notices, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        """Create a writer to `descriptor`, which no other code may close."""
        self._descriptor = descriptor
        self._notices = notices
        self._max_bytes = max_bytes
        self._lines: queue.SimpleQueue[bytes | threading.Event | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._queued = 0
        self._lost = 0
        self._reminded = False
        self._closed = False
        self._torn = False
        self._thread: threading.Thread | None = None
        atexit.register(self.flush, EXIT_S)

    def put(self, line: str) -> None:
        """Queue `line` to be written, or count it as lost."""
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:
            if self._closed or self._queued + len(data) > self._max_bytes or not self._started():
                self._lost += 1
                return
            self._queued += len(data)
        self._lines.put(data)

    def remind(self) -> None:
        """Request the notices (`Notices`). They are written when no line has arrived for `QUIET_S` seconds, at the
        latest after `LATEST_S` seconds.
        """
        with self._lock:
            if self._reminded or not self._started():
                return
            self._reminded = True
        self._lines.put(b"")

    def flush(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds until all queued lines are written; return whether all were written."""
        if self._thread is None or not self._thread.is_alive():
            return self._lines.empty()
        written = threading.Event()
        self._lines.put(written)
        return written.wait(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Let the thread write the queued lines and then close the descriptor; later lines are lost.

        Wait for the thread at most `timeout_s` seconds.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.flush)
        if self._thread is None or not self._thread.is_alive():
            os.close(self._descriptor)
            return
        self._lines.put(None)
        self._thread.join(timeout_s)

    def _started(self) -> bool:
        if self._thread is None or not self._thread.is_alive():  # a forked process does not have its parent's threads
            thread = threading.Thread(target=self._run, name="oncelog-log", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no thread left; the next line tries again
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        latest: float | None = None
        """When the notices are written although lines arrive; None without notices."""
        while True:
            wanted = bool(self._lost or self._reminded)
            if not wanted:
                latest = None
            elif latest is None:
                latest = time.monotonic() + LATEST_S
            elif time.monotonic() >= latest:
                self._write_notices()
                latest = None
                continue
            try:
                item = self._lines.get(timeout=QUIET_S if wanted else None)
            except queue.Empty:
                self._write_notices()
                continue
            if item is None or isinstance(item, threading.Event):
                if self._lost or self._reminded:
                    self._write_notices()
                if item is None:
                    os.close(self._descriptor)
                    return
                item.set()
                continue
            taken = self._write(item)
            with self._lock:
                self._queued -= len(item)
                self._lost += not taken

    def _write_notices(self) -> None:
        with self._lock:
            lost, self._lost, self._reminded = self._lost, 0, False
        for notice in self._notices(lost):
            if not self._write(notice.encode("utf-8", "backslashreplace") + b"\n"):
                with self._lock:
                    self._lost += lost
                return

    def _write(self, data: bytes) -> bool:
        """Write all bytes; return False if the descriptor refuses them."""
        rest = memoryview(b"\n" + data if self._torn else data)
        size = len(rest)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # another owner of the descriptor made it non-blocking
                    select.select([], [self._descriptor], [])
        except (OSError, ValueError):
            self._torn = self._torn or len(rest) < size
            return False
        self._torn = False
        return True


class FileWriter(LineWriter):
    """A writer that appends to the file at a path. If the file was moved or removed, the writer creates a new one."""

    def __init__(self, path: str, notices: Notices, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        """Open the file; if it is created, only its owner may read it. Raises OSError."""
        self._path = path
        super().__init__(_opened(path), notices, max_bytes)

    def _write(self, data: bytes) -> bool:
        try:
            self._follow()
        except OSError:
            return False
        return super()._write(data)

    def _follow(self) -> None:
        """Open the file again if the path no longer leads to it, for example after a log rotation. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self._path), os.fstat(self._descriptor)):
                return
        former, self._descriptor = self._descriptor, _opened(self._path)
        self._torn = False
        os.close(former)


def _opened(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def own_copy(descriptor: int) -> int | None:
    """Return a duplicate of the descriptor that no other code closes, or None if the descriptor is not open."""
    with contextlib.suppress(OSError):
        return os.dup(descriptor)
    return None
