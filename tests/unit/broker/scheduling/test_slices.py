"""Long work leaves the event loop to others after every slice."""

import asyncio

from oncelog.broker.scheduling.slices import in_slices


async def test_others_run_after_every_slice() -> None:
    turns: list[int] = []
    done: list[int] = []

    async def neighbour() -> None:
        while len(done) < 10:
            turns.append(len(done))
            await asyncio.sleep(0)

    beside = asyncio.create_task(neighbour())
    async for item in in_slices(range(10), 3):
        done.append(item)  # noqa: PERF401 (the neighbour watches it grow)
    await beside

    assert done == list(range(10))
    assert turns == [3, 6, 9]
