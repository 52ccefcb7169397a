"""The interpreter's exit waits for clients of `oncelog.sync`, but not for a program that blocks their event loop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from oncelog.sync import background
from oncelog.sync.background import BLOCKED_LOOP_S, EXIT_TIMEOUT_S, BackgroundLoop


class Clock:
    """Time that passes only while a thread waits for a lock or for the end of another thread."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def lock(self) -> Any:
        lock = threading.Lock()

        def acquire(timeout: float = -1) -> bool:
            if lock.acquire(blocking=False):
                return True
            self.now_s += timeout
            return False

        return SimpleNamespace(acquire=acquire, release=lock.release)

    def thread(self, **arguments: Any) -> Any:
        thread = threading.Thread(**arguments)

        def join(timeout: float) -> None:
            self.now_s += timeout

        return SimpleNamespace(start=thread.start, is_alive=thread.is_alive, join=join, real=thread)


def test_one_deadline_limits_the_whole_exit_if_the_event_loop_is_blocked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    monkeypatch.setattr(background, "time", clock)
    simulated = SimpleNamespace(Lock=clock.lock, Thread=clock.thread, current_thread=threading.current_thread)
    monkeypatch.setattr(background, "threading", simulated)
    loop = BackgroundLoop()
    blocked, released = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        released.wait()

    loop._loop.call_soon_threadsafe(block)
    assert blocked.wait(10)
    try:
        loop.shut_down()
        assert clock.now_s == pytest.approx(EXIT_TIMEOUT_S + BLOCKED_LOOP_S)
        assert caplog.messages == ["clients of oncelog.sync could not be closed within 5 s"]
    finally:
        released.set()
        loop._thread.real.join(10)  # type: ignore[attr-defined]
        loop._loop.run_until_complete(asyncio.sleep(0))  # ends the task that could not begin
        loop._loop.close()
