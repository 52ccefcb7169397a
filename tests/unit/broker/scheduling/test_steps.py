"""Steps: run at once, in slices, and waiting for what is not at hand."""

from __future__ import annotations

import asyncio

import pytest
from oncelog.broker.scheduling.steps import SLICE, Steps, run_at_once, run_in_slices, run_slice, waited


def counted(number: int) -> Steps[int]:
    for _ in range(number):
        yield 1
    return number


def waiting(future: asyncio.Future[str]) -> Steps[str]:
    yield 1
    return "got " + (yield from waited(future))


async def test_others_run_after_each_slice() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(others())
        assert await run_in_slices(counted(3 * SLICE)) == 3 * SLICE
        task.cancel()
    assert turns == 3


async def test_steps_that_wait_go_on_with_the_result() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    steps = waiting(future)
    assert run_slice(steps) is None
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_in_slices(steps))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
        future.set_result("it")
        assert await task == "got it"


async def test_steps_that_wait_for_what_fails_fail() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_exception, OSError("no"))
    with pytest.raises(OSError, match="no"):
        await run_in_slices(waiting(future))


async def test_cancelled_steps_leave_alone_what_they_wait_for() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.get_running_loop().create_task(run_in_slices(waiting(future)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not future.cancelled()


async def test_what_is_there_is_not_waited_for() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    future.set_result("it")
    assert run_at_once(waiting(future)) == "got it"
