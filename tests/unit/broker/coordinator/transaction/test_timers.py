"""When the coordinator looks for transactions past their timeout."""

from __future__ import annotations

import asyncio
from typing import Any

from oncelog.broker.coordinator.transaction.timers import TransactionTimers
from oncelog.broker.scheduling.patient_timers import PatientTimers
from oncelog.broker.scheduling.steps import SLICE, Steps
from support.group_world import Silent, in_virtual_time
from support.virtual_time import LoopClock

INTERVAL_MS = 10_000


class Looks:
    """Timers whose looks take `cost_s` and find another transaction that ends at once; `times` is when they were.

    Not `busy`, they find none. Each is made in so many `slices`.
    """

    def __init__(self, cost_s: float, *, busy: bool = True, slices: int = 1) -> None:
        self.cost_s = cost_s
        self.busy = busy
        self.slices = slices
        self.begun = asyncio.Event()
        self.times: list[float] = []
        self.busy_s = 0.0
        self.portions = 0
        self.now_ms = 0
        """The time that the last look was given."""
        self.clock = LoopClock()
        self.timers = TransactionTimers(
            self.clock,
            PatientTimers(Silent()),
            Silent(),
            abort_interval_ms=INTERVAL_MS,
            expiry_interval_ms=3_600_000,
            clock_settle_ms=600_000,
            abort_timed_out=self._look,
            remove_expired=self._expire,
        )

    def _expire(self, now_ms: int) -> bool:
        self.portions -= 1
        return self.portions > 0

    def _look(self, now_ms: int) -> Steps[int | None]:
        self.begun.set()
        self.now_ms = now_ms
        for _ in range(self.slices - 1):
            yield SLICE
        if not self.busy:
            return None
        loop: Any = asyncio.get_running_loop()
        self.times.append(loop.time())
        loop._jumping.now += self.cost_s
        self.busy_s += self.cost_s
        loop.call_soon(lambda: self.timers.expect(self.clock.now_ms() + 1))
        return now_ms + 1


@in_virtual_time
async def test_a_look_is_made_when_the_first_transaction_ends() -> None:
    looks = Looks(0)
    looks.timers.start()
    began = asyncio.get_running_loop().time()
    looks.timers.expect(looks.clock.now_ms() + 500)
    await asyncio.sleep(0.502)
    assert round(looks.times[0] - began, 3) == 0.501
    await looks.timers.stop()


@in_virtual_time
async def test_however_short_the_timeouts_looks_leave_time_for_everything_else() -> None:
    looks = Looks(0.05)
    looks.timers.start()
    looks.timers.expect(looks.clock.now_ms())
    await asyncio.sleep(20)
    await looks.timers.stop()
    assert 30 <= len(looks.times) <= 41
    assert looks.busy_s <= 2.1, "a tenth"


@in_virtual_time
async def test_others_come_in_between_a_look() -> None:
    looks = Looks(0, slices=10)
    looks.timers.start()
    looks.timers.expect(looks.clock.now_ms())
    await looks.begun.wait()
    turns = 0
    while not looks.times:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 8
    await looks.timers.stop()


@in_virtual_time
async def test_a_transaction_that_begins_during_a_look_is_not_forgotten() -> None:
    looks = Looks(0, busy=False, slices=10)
    looks.timers.start()
    looks.timers.expect(looks.clock.now_ms())
    await looks.begun.wait()
    looks.timers.expect(looks.clock.now_ms() + 50)
    looks.begun.clear()
    async with asyncio.timeout(0.06):
        await looks.begun.wait()
    await looks.timers.stop()


@in_virtual_time
async def test_what_one_portion_of_an_expiry_leaves_comes_soon_and_not_an_interval_later() -> None:
    looks = Looks(0, busy=False)
    looks.portions = 4
    looks.timers.start()
    await asyncio.sleep(3600 + 0.35)
    assert looks.portions == 0
    await asyncio.sleep(3500)
    assert looks.portions == 0, "then at the interval again"
    await looks.timers.stop()


@in_virtual_time
async def test_a_clock_that_is_set_back_does_not_put_off_the_next_look() -> None:
    looks = Looks(0.01)
    looks.timers.start()
    looks.timers.expect(looks.clock.now_ms() + 500)
    await looks.begun.wait()
    looks.busy = False
    await asyncio.sleep(INTERVAL_MS / 1000 + 1)
    looks.clock.ahead_ms -= 3_600_000
    looks.begun.clear()
    looks.timers.expect(looks.clock.now_ms() + 500)
    async with asyncio.timeout(0.502):
        await looks.begun.wait()
    await looks.timers.stop()


@in_virtual_time
async def test_requests_that_wait_are_executed_before_a_look_after_a_standstill() -> None:
    looks = Looks(0, busy=False)
    looks.timers.start()
    looks.timers.expect(looks.clock.now_ms() + 500)
    loop: Any = asyncio.get_running_loop()
    loop._jumping.now += 3
    for _ in range(5):
        await asyncio.sleep(0)  # timers fire before the requests that wait are read
    assert not looks.begun.is_set()
    async with asyncio.timeout(1):
        await looks.begun.wait()
    await looks.timers.stop()


@in_virtual_time
async def test_a_look_counts_no_time_after_the_requests_that_waited_were_read() -> None:
    looks = Looks(0, busy=False)
    looks.timers.start()
    deadline_ms = looks.clock.now_ms() + 500
    looks.timers.expect(deadline_ms)
    loop: Any = asyncio.get_running_loop()
    loop.stand_still(loop.time() + 0.4, 3)
    await looks.begun.wait()
    assert deadline_ms < looks.now_ms < deadline_ms + 100
    assert looks.clock.now_ms() >= deadline_ms + 3000
    await looks.timers.stop()
