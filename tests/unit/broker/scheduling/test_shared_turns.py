"""Tasks that begin together share the turns of the event loop, in order, and none of them is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from oncelog.broker.scheduling.shared_turns import SharedTurns
from oncelog.broker.scheduling.steps import SLICE, Steps


class Worker:
    """Counts the units of work in each turn of the event loop."""

    def __init__(self) -> None:
        self.turns = SharedTurns()
        self.turn = 0
        self.units: Counter[int] = Counter()
        self.finished: list[str] = []

    async def watch(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    def steps(self, name: str, count: int, cost: int) -> Steps[str]:
        for _ in range(count):
            self.units[self.turn] += cost
            yield cost
        self.finished.append(name)
        return name


@pytest.fixture
def worker() -> Worker:
    return Worker()


async def test_many_tasks_together_do_about_a_slice_in_each_turn(worker: Worker) -> None:
    watching = asyncio.create_task(worker.watch())
    small = [worker.turns.run_in_slices(worker.steps(f"s{number}", 3, 10), 30) for number in range(200)]
    large = [worker.turns.run_in_slices(worker.steps(f"l{number}", 300, 10), 3000) for number in range(10)]
    results = await asyncio.gather(*small, *large)
    watching.cancel()
    assert results == [f"s{number}" for number in range(200)] + [f"l{number}" for number in range(10)]
    assert worker.finished[:200] == results[:200], "in the order in which they asked"
    assert max(worker.units.values()) <= 3 * SLICE
    assert len(worker.units) < 3 * sum(worker.units.values()) / SLICE, "hardly any turn is wasted"


async def test_a_task_on_its_own_runs_at_once(worker: Worker) -> None:
    running = worker.turns.run_in_slices(worker.steps("alone", 3, 10), 30)
    with pytest.raises(StopIteration) as end:
        running.send(None)
    assert end.value.value == "alone"


async def test_a_task_that_expects_too_little_work_ends_nevertheless(worker: Worker) -> None:
    assert await worker.turns.run_in_slices(worker.steps("more", 2000, 1), 1) == "more"
    assert await worker.turns.run_in_slices(worker.steps("nothing", 0, 1), 0) == "nothing"


async def test_a_task_that_is_cancelled_while_it_waits_holds_up_nobody(worker: Worker) -> None:
    tasks = [asyncio.create_task(worker.turns.take(SLICE)) for _ in range(5)]
    await asyncio.sleep(0)
    for task in tasks[1:4]:
        task.cancel()
    async with asyncio.timeout(5):
        await tasks[4]
        await worker.turns.take(1)
    assert [task.cancelled() for task in tasks] == [False, True, True, True, False]


async def test_steps_that_fail_hold_up_nobody(worker: Worker) -> None:
    def failing() -> Steps[None]:
        yield SLICE
        raise ValueError("a bug")

    async with asyncio.timeout(5):
        with pytest.raises(ValueError, match="a bug"):
            await worker.turns.run_in_slices(failing(), SLICE)
        assert await worker.turns.run_in_slices(worker.steps("next", 1, SLICE), SLICE) == "next"


async def test_an_obstacle_holds_up_all_who_wait_and_is_looked_for_before_each_turn() -> None:
    loop = asyncio.get_running_loop()
    obstacle: asyncio.Future[None] | None = loop.create_future()
    turns = SharedTurns(lambda: obstacle)
    done: list[int] = []

    async def work(number: int) -> None:
        nonlocal obstacle
        await turns.wait(SLICE)
        done.append(number)
        if number == 1:
            obstacle = loop.create_future()

    tasks = [asyncio.create_task(work(number)) for number in range(5)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert done == []
    first, obstacle = obstacle, None
    assert first is not None
    first.set_result(None)
    for _ in range(20):
        await asyncio.sleep(0)
    assert done in ([0, 1], [0, 1, 2]), "the next turn may have been given already"
    assert obstacle is not None
    second, obstacle = obstacle, None
    second.set_result(None)
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)
        await turns.take(1)
    assert done == [0, 1, 2, 3, 4]
