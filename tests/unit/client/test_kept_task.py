"""KeptTask: a task that begins again if other code, or an exit of the program in the task, has ended it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from oncelog.client.kept_task import KeptTask


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.mark.parametrize("exit", [SystemExit, KeyboardInterrupt])
def test_a_task_begins_again_after_an_exit_that_did_not_end_the_loop(
    loop: asyncio.AbstractEventLoop, exit: type[BaseException]
) -> None:
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise exit
        again.set()

    async def begin() -> None:
        KeptTask(work, "test")
        await asyncio.sleep(60)

    again = asyncio.Event()
    with pytest.raises(exit):
        loop.run_until_complete(begin())
    loop.run_until_complete(asyncio.wait_for(again.wait(), 10))
    for task in asyncio.all_tasks(loop):
        task.cancel()
        loop.run_until_complete(asyncio.wait({task}))
