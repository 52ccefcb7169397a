"""The memory that connections share: who gets it, who waits, and who loses its connection when it is short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from oncelog.broker.network.answer_memory import COUNTED_BYTES, AnswerMemory
from oncelog.broker.network.request_memory import GRACE_S, OVERTAKEN, RequestMemory
from support.virtual_time import VirtualTimeLoop

LIMIT = 128 << 20
LARGE = 100_000_000
SMALL = 500_000


def in_virtual_time(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test())

    run.__name__ = test.__name__
    return run


class Holder:
    """A connection: `rate` is that of its frame, `kept` whether it would give its memory back."""

    def __init__(self, memory: RequestMemory, rate: float | None = 0.0) -> None:
        self.memory = memory
        self.rate = rate
        self.kept = False
        self.served = False
        self.answered = False
        self.closed = ""

    def ask(self, count: int) -> bool:
        self.served = self.memory.reserve(self, count)
        return self.served

    def memory_available(self) -> None:
        self.served = True

    def give_back(self) -> None:
        if self.kept:
            self.kept = False
            self.memory.reserve(self, 0)

    def frame_rate(self, now: float) -> float | None:
        return self.rate

    def evict(self, reason: str) -> None:
        self.closed = reason
        self.memory.leave(self)


@in_virtual_time
async def test_small_frames_have_memory_while_large_ones_wait() -> None:
    memory = RequestMemory(LIMIT)
    large = [Holder(memory) for _ in range(100)]
    assert [holder.ask(LARGE) for holder in large] == [True] + [False] * 99
    small = [Holder(memory) for _ in range(50)]
    assert all(holder.ask(SMALL) for holder in small)
    assert memory.used < LIMIT
    memory.stop()


@in_virtual_time
async def test_one_frame_larger_than_all_memory_is_let_through_and_small_ones_beside_it() -> None:
    memory = RequestMemory(1 << 20)
    first, second = Holder(memory), Holder(memory)
    assert first.ask(LARGE)
    assert not second.ask(LARGE)
    assert Holder(memory).ask(30_000)
    memory.leave(first)
    assert second.served
    memory.stop()


@in_virtual_time
async def test_frames_of_which_much_has_arrived_before_they_wait_do_not_wait_for_each_other() -> None:
    memory = RequestMemory(LIMIT)
    former = Holder(memory)
    assert former.ask(LARGE)
    arrived = LIMIT // 16  # more than a small frame
    rest = [Holder(memory, None) for _ in range(3)]
    for holder in rest:
        assert not holder.ask(LARGE)
        memory._set(holder, 0, arrived)  # the size of its buffer at that time
    memory.leave(former)
    for _ in range(3):
        (served,) = [holder for holder in rest if holder.served]
        memory.leave(served)
        rest.remove(served)
    assert not rest
    memory.stop()


@in_virtual_time
async def test_frames_of_known_connections_come_first_then_small_ones_then_early_ones() -> None:
    memory = RequestMemory(LIMIT)
    first, *rest = [Holder(memory, None) for _ in range(5)]
    early, late, small, known = rest
    known.answered = True
    assert first.ask(LARGE)
    sizes = (LARGE, LARGE, LARGE // 2, LARGE)
    assert not any(holder.ask(size) for holder, size in zip(rest, sizes, strict=True))
    order = []
    for _ in rest:
        memory.leave(first)
        (first,) = [holder for holder in rest if holder.served and holder not in order]
        order.append(first)
    assert order == [known, small, early, late]
    memory.stop()


async def _pass_by(memory: RequestMemory, passing: list[Holder], size: int, until: Callable[[], bool]) -> None:
    """Let frames of this size arrive and be executed, so that there are always some, until a condition holds."""
    for number in range(100 * OVERTAKEN):
        if until():
            return
        memory.leave(passing[number % len(passing)])
        passing[number % len(passing)] = Holder(memory, None)
        passing[number % len(passing)].answered = True
        passing[number % len(passing)].ask(size)
    raise AssertionError("the condition never holds")


@in_virtual_time
async def test_a_large_frame_is_not_overtaken_forever() -> None:
    memory = RequestMemory(LIMIT)
    passing = [Holder(memory, None) for _ in range(3)]
    assert all(holder.ask(LIMIT // 5) for holder in passing)
    large = Holder(memory, None)
    large.answered = True
    assert not large.ask(LARGE)
    await _pass_by(memory, passing, LIMIT // 5, lambda: large.served)
    assert memory.used <= LIMIT + LARGE
    memory.stop()


@in_virtual_time
async def test_frames_that_were_overtaken_exceed_the_limit_one_at_a_time() -> None:
    memory = RequestMemory(LIMIT)
    passing = [Holder(memory, None) for _ in range(3)]
    assert all(holder.ask(LIMIT // 5) for holder in passing)
    large = [Holder(memory, None) for _ in range(3)]
    large[1].answered = True
    for holder in large:
        assert not holder.ask(LARGE)
    order = []
    for _ in large:
        await _pass_by(memory, passing, LIMIT // 5, lambda: any(holder.served for holder in large))
        (first,) = [holder for holder in large if holder.served]
        await _pass_by(memory, passing, LIMIT // 5, iter([False] * 3 * OVERTAKEN + [True]).__next__)
        assert [holder for holder in large if holder.served] == [first]
        order.append(large.index(first))
        first.served = False
        memory.leave(first)
    assert order == [1, 0, 2]
    memory.stop()


@in_virtual_time
async def test_frames_that_stopped_make_room_together() -> None:
    memory = RequestMemory(LIMIT)
    stopped = [Holder(memory, 0.0) for _ in range(128)]
    assert all(holder.ask(1 << 20) for holder in stopped)
    waiting = [Holder(memory, None) for _ in range(20)]
    assert not any(holder.ask(1 << 20) for holder in waiting)
    await asyncio.sleep(0.001)
    assert all(holder.served for holder in waiting)
    assert sum(bool(holder.closed) for holder in stopped) == 20
    memory.stop()


@in_virtual_time
async def test_a_holder_that_leaves_while_it_waits_is_forgotten() -> None:
    memory = RequestMemory(LIMIT)
    first, second, third = (Holder(memory, None) for _ in range(3))
    assert first.ask(LARGE)
    assert not second.ask(LARGE)
    assert not third.ask(LARGE)
    memory.leave(second)
    memory.leave(first)
    assert (second.served, third.served) == (False, True)
    memory.leave(third)
    assert memory.used == 0
    memory.stop()


@in_virtual_time
async def test_buffers_that_are_only_kept_go_before_any_frame() -> None:
    memory = RequestMemory(LIMIT)
    idle = [Holder(memory) for _ in range(64)]
    for holder in idle:
        assert holder.ask(2 << 20)
        holder.kept, holder.rate = True, None
    newcomer = Holder(memory)
    assert not newcomer.ask(2 << 20)
    await asyncio.sleep(0.001)
    assert newcomer.served
    assert not any(holder.closed for holder in idle)
    memory.stop()


@in_virtual_time
async def test_the_slowest_frame_loses_its_connection_while_another_waits() -> None:
    memory = RequestMemory(LIMIT)
    fast = [Holder(memory, 1e6) for _ in range(40)]
    slow, slower, young = Holder(memory, 1000), Holder(memory, 10), Holder(memory, None)
    assert all(holder.ask(3 << 20) for holder in (*fast, slow, slower))
    while young.ask(3 << 20) and (young := Holder(memory, None)):
        pass
    await asyncio.sleep(0.001)
    assert young.served
    assert slower.closed
    assert not slow.closed
    assert not any(holder.closed for holder in fast)
    memory.stop()


@in_virtual_time
async def test_nobody_is_closed_while_nobody_waits() -> None:
    memory = RequestMemory(LIMIT)
    holder = Holder(memory, 0.0)
    assert holder.ask(LARGE)
    await asyncio.sleep(100 * GRACE_S)
    assert not holder.closed


class Debtor:
    """A connection with `unsent` bytes for its peer."""

    def __init__(self, memory: AnswerMemory) -> None:
        self.memory = memory
        self.unsent = 0
        self.closed = ""

    def answer(self, count: int) -> None:
        self.unsent += count
        self.memory.owes(self, self.unsent)

    def evict(self, reason: str) -> None:
        self.closed = reason
        self.memory.leave(self)


@in_virtual_time
async def test_an_answer_may_have_half_of_what_is_left() -> None:
    memory = AnswerMemory(LIMIT, 10)
    debtors = [Debtor(memory) for _ in range(40)]
    for debtor in debtors:
        left = LIMIT - memory.used
        assert memory.allowance == left // 2
        debtor.answer(memory.allowance)
    assert memory.used <= LIMIT
    debtors[0].unsent = 0
    await asyncio.sleep(1)
    assert memory.allowance >= LIMIT // 4, "what a peer took is free again"
    memory.stop()


@in_virtual_time
async def test_peers_that_take_nothing_are_closed_when_memory_is_short_and_only_then() -> None:
    memory = AnswerMemory(LIMIT, 10)
    stalled, reading = Debtor(memory), Debtor(memory)
    stalled.answer(LIMIT // 2)
    await asyncio.sleep(60)
    assert not stalled.closed
    reading.answer(LIMIT)
    for _ in range(30):
        reading.unsent -= 100
        await asyncio.sleep(1)
    assert stalled.closed
    assert not reading.closed
    memory.leave(reading)
    assert memory.used == 0
    memory.stop()


@in_virtual_time
async def test_the_longest_stalled_peers_are_closed_until_memory_is_enough() -> None:
    memory = AnswerMemory(LIMIT, 10)
    debtors = [Debtor(memory) for _ in range(5)]
    for debtor in debtors:
        debtor.answer(LIMIT // 4)
        await asyncio.sleep(1)
    await asyncio.sleep(10)
    assert [bool(debtor.closed) for debtor in debtors] == [True, False, False, False, False]
    memory.stop()


@in_virtual_time
async def test_a_peer_that_took_its_answers_is_not_counted() -> None:
    memory = AnswerMemory(LIMIT, 10)
    debtor = Debtor(memory)
    debtor.answer(10 * COUNTED_BYTES)
    debtor.unsent = 0
    await asyncio.sleep(1)
    assert memory.used == 0
