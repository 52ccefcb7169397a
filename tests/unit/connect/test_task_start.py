"""How a task starts: attempts, checks before and behind its fencing, and a stop in the midst of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.client.errors import ConfigError
from oncelog.connect.api.task import SourceTask
from oncelog.connect.converters.simple_headers import SimpleHeaderConverter
from oncelog.connect.converters.strings import StringConverter
from oncelog.connect.errors import ConnectError, FencedError, ProducerLostError, SupersededError, UnknownCommitError
from oncelog.connect.stores.config_records import TargetState
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.stores.status_records import State
from oncelog.connect.task.pipeline import Pipeline
from oncelog.connect.task.runner import TaskRunner
from support.virtual_time import VirtualTimeLoop

TASK = ConnectorTaskId("c", 0)


class Source(SourceTask):
    """Waits for ever."""

    started = stopped = False

    async def start(self, config: Any) -> None:
        self.started = True

    async def poll(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self.stopped = True


class Way:
    """A delivery whose starts end as they are told: an error, or None for success."""

    def __init__(self, *outcomes: Exception | None, hangs: bool = False) -> None:
        self.outcomes, self.hangs = list(outcomes), hangs
        self.starting = asyncio.Event()
        self.closed = 0

    async def start(self) -> None:
        self.starting.set()
        if self.hangs:
            await asyncio.Event().wait()
        if (error := self.outcomes.pop(0)) is not None:
            raise error

    async def finish(self) -> None:
        pass

    def due_in_s(self) -> None:
        return None

    async def close(self) -> None:
        self.closed += 1


class Running:
    """A task with what it has reported."""

    def __init__(self, way: Way, attempts: int = 1) -> None:
        self.states: list[State] = []
        self.running = asyncio.Event()
        self.source = Source()
        pipeline = Pipeline(TASK, StringConverter(), StringConverter(), SimpleHeaderConverter())
        self.runner = TaskRunner(
            TASK, self.source, {}, pipeline, self.report, start_attempts=attempts, start_backoff_s=1
        )

        async def delivery() -> Any:
            return way

        self.runner.make_delivery = delivery

    async def report(self, state: State, trace: str | None) -> None:
        self.states.append(state)
        if state is State.RUNNING:
            self.running.set()

    async def run_until_running_then_stop(self) -> None:
        task = asyncio.create_task(self.runner.run())
        await self.running.wait()
        self.runner.set_target(TargetState.STOPPED)
        await task


def simulate(coroutine: Any) -> float:
    """Run in simulated time; returns how long it took."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        before = runner.get_loop().time()
        runner.run(coroutine)
        return runner.get_loop().time() - before


def test_a_start_that_fails_is_repeated_with_growing_waits() -> None:
    async def scenario() -> None:
        way = Way(ConnectError("no leader"), ConnectError("no leader"), None)
        task = Running(way, attempts=3)
        await task.run_until_running_then_stop()
        assert task.states == [State.RUNNING, State.UNASSIGNED]
        assert way.closed == 3
        assert task.source.stopped

    assert simulate(scenario()) == 3


def test_a_task_is_failed_when_all_attempts_have_failed_and_never_starts_its_source() -> None:
    async def scenario() -> None:
        way = Way(ConnectError("no leader"), ConnectError("no leader"))
        task = Running(way, attempts=2)
        await task.runner.run()
        assert task.states == [State.FAILED]
        assert way.closed == 2
        assert not task.source.started

    assert simulate(scenario()) == 1


def test_settings_that_no_attempt_can_use_fail_the_task_at_once() -> None:
    async def scenario() -> None:
        way = Way(ConfigError("acks", "contradicts enable.idempotence"), None)
        task = Running(way, attempts=3)
        await task.runner.run()
        assert task.states == [State.FAILED]

    assert simulate(scenario()) == 0


def test_a_task_that_was_superseded_ends_at_once_and_says_nothing() -> None:
    async def scenario() -> None:
        way = Way(SupersededError("new settings"), None)
        task = Running(way, attempts=5)
        await task.runner.run()
        assert (task.states, way.closed, task.source.started) == ([], 1, False)

    assert simulate(scenario()) == 0


def test_a_stop_ends_a_start_that_hangs() -> None:
    async def scenario() -> None:
        way = Way(hangs=True)
        task = Running(way)
        running = asyncio.create_task(task.runner.run())
        await way.starting.wait()
        task.runner.set_target(TargetState.STOPPED)
        await running
        assert (task.states, way.closed, task.source.started) == ([State.UNASSIGNED], 1, False)

    assert simulate(scenario()) == 0


def test_a_stop_ends_the_wait_between_attempts() -> None:
    async def scenario() -> None:
        way = Way(ConnectError("no leader"), None)
        task = Running(way, attempts=2)
        running = asyncio.create_task(task.runner.run())
        await way.starting.wait()
        await asyncio.sleep(0.5)
        task.runner.set_target(TargetState.STOPPED)
        await running
        assert (task.states, way.closed, task.source.started) == ([State.UNASSIGNED], 1, False)

    assert simulate(scenario()) == 0.5


class Polled(Source):
    """Returns a batch without records, again and again."""

    async def poll(self) -> Any:
        return []


class Lost(Way):
    """A delivery that loses its producer behind the first batch."""

    error: ConnectError

    async def batch_done(self) -> None:
        raise self.error

    async def finish_failed(self, unsent: Any) -> None:
        pass


@pytest.mark.parametrize("kind", [FencedError, UnknownCommitError])
def test_a_task_that_lost_its_producer_may_start_again_only_where_this_is_known_to_be_right(
    kind: type[ProducerLostError],
) -> None:
    async def scenario(restart_after: type[ProducerLostError] | None) -> tuple[bool, list[State], int]:
        way = Lost(None)
        way.error = kind("the producer is lost")
        task = Running(way)
        task.runner._task = task.source = Polled()
        again = await task.runner.run(restart_after=restart_after)
        assert task.source.stopped
        return again, task.states, way.closed

    async def all_of_them() -> None:
        other = UnknownCommitError if kind is FencedError else FencedError
        for right in (ProducerLostError, kind):
            assert await scenario(right) == (True, [State.RUNNING], 1)
        for wrong in (None, other):
            assert await scenario(wrong) == (False, [State.RUNNING, State.FAILED], 1)

    simulate(all_of_them())


def test_a_task_waits_before_it_starts_again_and_may_be_stopped_meanwhile() -> None:
    async def scenario() -> None:
        task = Running(Way(None))
        running = asyncio.create_task(task.runner.run(delay_s=1000))
        await asyncio.sleep(5)
        task.runner.set_target(TargetState.STOPPED)
        assert await running is False
        assert task.states == [State.UNASSIGNED]

    assert simulate(scenario()) == 5


class Woken(Way):
    """A delivery that wakes its task while the task processes outcomes, as many times as `wakes` says."""

    def __init__(self, wakes: int) -> None:
        super().__init__(None)
        self.wakes, self.calls = wakes, 0
        self.runner: TaskRunner

    async def batch_done(self) -> None:
        self.calls += 1
        if self.calls <= self.wakes:
            self.runner.wake()
        else:
            self.runner.set_target(TargetState.STOPPED)
        await asyncio.sleep(1)


@pytest.mark.parametrize("state", [TargetState.STARTED, TargetState.PAUSED])
def test_outcomes_that_become_known_while_others_are_processed_are_not_left(state: TargetState) -> None:
    async def scenario() -> None:
        way = Woken(wakes=3)
        task = Running(way)
        way.runner = task.runner
        task.runner.set_target(state)
        asyncio.get_running_loop().call_later(1, task.runner.wake)
        await task.runner.run()
        assert way.calls == 4

    assert simulate(scenario()) == 5
