"""Timers fire after the requests that wait in the sockets, however the process was held up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from oncelog.broker.scheduling.patient_timers import AFTER_DELAY_S, AFTER_STANDSTILL_S, STANDSTILL_S, PatientTimers
from support.group_aware_world import Lines
from support.virtual_time import JumpingSelector, VirtualTimeLoop


class StoppedSelector(JumpingSelector):
    """A selector whose process may be stopped while it waits. Like epoll, it then returns without an event."""

    stopped_s = 0.0
    meanwhile: Callable[[], object] = staticmethod(lambda: None)
    """Called while the process is stopped."""

    def select(self, timeout: float | None = None) -> Any:
        if not (self.stopped_s and timeout):
            return super().select(timeout)
        self.now += timeout + self.stopped_s
        self.stopped_s = 0.0
        self.meanwhile()
        return []


class StoppedLoop(VirtualTimeLoop):
    selector = StoppedSelector
    _jumping: StoppedSelector


class EarlyLoop(StoppedLoop):
    """An event loop that runs a timer up to 2 ms early, as uvloop does."""

    def call_at(self, when: float, *arguments: Any, **context: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        left_s = when - self.time()
        early_s = 0.002 if left_s > 0.05 else 0.001 if left_s > 0.0015 else 0.0
        return super().call_at(when - early_s, *arguments, **context)


class Scene:
    """Timers, and a socket whose bytes are requests. `happened` contains what was executed, in order."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StoppedLoop)
        self.loop = loop
        self.happened: list[str] = []
        self.lines = Lines()
        self.timers = PatientTimers(self.lines)
        self.broker, self.client = socket.socketpair()
        loop.add_reader(self.broker, self._read)
        loop._jumping.meanwhile = lambda: self.client.send(b"x")

    def _read(self) -> None:
        self.happened += ["request"] * len(self.broker.recv(100))

    def after(self, delay_s: float, name: str = "timer") -> Any:
        return self.timers.call_at(self.loop.time() + delay_s, self.loop.time, lambda _: self.happened.append(name))

    def stop(self, seconds: float) -> None:
        """Stop the process for this time after the next timer is due."""
        self.loop._jumping.stopped_s = seconds

    def close(self) -> None:
        self.loop.remove_reader(self.broker)
        self.broker.close()
        self.client.close()


def play(scene: Callable[[Scene], Awaitable[None]], loop: type[StoppedLoop] = StoppedLoop) -> None:
    """Run a scene in virtual time."""

    async def body() -> None:
        made = Scene()
        try:
            await scene(made)
        finally:
            made.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(body())


@pytest.mark.parametrize("seconds", [0.001, 0.02, 0.4, 3.0])
def test_a_request_that_arrived_before_a_timer_fires_is_executed_first(seconds: float) -> None:
    async def scene(made: Scene) -> None:
        made.after(1)
        made.stop(seconds)
        await asyncio.sleep(5)
        assert made.happened == ["request", "timer"]
        assert bool(made.lines.said("process_stood_still")) == (seconds > STANDSTILL_S)

    play(scene)


def test_a_standstill_is_reported_once_and_holds_up_all_timers() -> None:
    async def scene(made: Scene) -> None:
        for number in range(3):
            made.after(1 + number / 10, str(number))
        made.stop(3)
        await asyncio.sleep(1)
        await asyncio.sleep(AFTER_STANDSTILL_S / 2)
        assert made.happened == ["request"]
        await asyncio.sleep(1)
        assert made.happened[0] == "request"
        assert sorted(made.happened[1:]) == ["0", "1", "2"]
        assert len(made.lines.said("process_stood_still")) == 1

    play(scene)


def test_an_action_gets_the_time_before_a_standstill_that_the_timer_did_not_wait_for() -> None:
    async def scene(made: Scene) -> None:
        times: list[float] = []
        due = made.loop.time() + 1
        made.timers.call_at(due, made.loop.time, times.append)
        made.after(2)
        made.loop.stand_still(due, 3, lambda: made.client.send(b"x"))
        await asyncio.sleep(5)
        assert times == [due]
        assert made.happened == ["request", "timer"]

    play(scene)


def test_a_timer_can_be_cancelled_until_it_fires() -> None:
    async def scene(made: Scene) -> None:
        timer = made.after(1)
        made.stop(0.4)
        await asyncio.sleep(1)
        timer.cancel()
        await asyncio.sleep(5)
        assert made.happened == ["request"]

    play(scene)


def test_a_standstill_that_the_timer_did_not_wait_for_is_reported_and_holds_up_the_others() -> None:
    async def scene(made: Scene) -> None:
        began = made.loop.time()
        made.after(1, "first")
        made.loop.stand_still(began + 1, 3)
        await asyncio.sleep(1.1)
        assert made.happened == ["first"]
        made.after(0, "second")
        await asyncio.sleep(AFTER_STANDSTILL_S - 0.1)
        assert made.happened == ["first"]
        await asyncio.sleep(0.2)
        assert made.happened == ["first", "second"]
        assert len(made.lines.said("process_stood_still")) == 1

    play(scene)


def test_a_process_that_stands_still_again_and_again_still_fires_its_timers() -> None:
    async def scene(made: Scene) -> None:
        turns = 0

        def stand_still() -> None:
            nonlocal turns
            turns += 1
            made.loop._jumping.now += 3
            if turns < 20 and not made.happened:
                made.loop.call_soon(stand_still)

        made.after(1)
        stand_still()
        await asyncio.sleep(100)
        assert made.happened == ["timer"]
        assert turns < 20

    play(scene)


def test_timers_that_fire_early_do_not_use_up_the_waits_for_a_standstill() -> None:
    async def scene(made: Scene) -> None:
        just_before_the_end = made.loop.time() + 1 + 3 + AFTER_STANDSTILL_S - 0.0035

        def stop_again() -> None:
            if made.loop.time() > just_before_the_end:
                made.stop(3)
                made.loop._jumping.jumped = lambda: None

        made.after(1)
        made.stop(3)
        made.loop._jumping.jumped = stop_again
        await asyncio.sleep(20)
        assert made.happened == ["request", "request", "timer"]
        assert len(made.lines.said("process_stood_still")) == 2

    play(scene, EarlyLoop)


def test_an_event_loop_that_is_always_late_still_fires_its_timers() -> None:
    async def scene(made: Scene) -> None:
        fired: list[float] = []

        def again(_: float) -> None:
            fired.append(made.loop.time())
            made.timers.call_at(made.loop.time(), made.loop.time, again)

        def busy() -> None:
            made.loop._jumping.now += 0.06
            made.loop.call_soon(busy)

        began = made.loop.time()
        again(began)
        busy()
        await asyncio.sleep(10)
        assert len(fired) >= 10 / (AFTER_DELAY_S + 5 * 0.06)
        assert max(late - early for early, late in zip([began, *fired], fired, strict=False)) < 1

    play(scene)
