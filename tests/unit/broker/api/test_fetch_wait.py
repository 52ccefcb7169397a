"""Very many waiting fetches: each of them ends, and no turn of the event loop looks at all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from oncelog.broker.api.fetch_wait import LOOKED_AT_PER_TURN, UNWATCHED_PER_TURN, FetchPurgatory, FetchWait
from oncelog.broker.log import Log

LONG_S = 3600.0


class ALog:
    """As much of a log as waits need."""

    def __init__(self) -> None:
        self.listeners: dict[Callable[[Any], None], None] = {}
        self.end = 0

    def add_listener(self, listener: Callable[[Any], None]) -> None:
        self.listeners[listener] = None

    def remove_listener(self, listener: Callable[[Any], None]) -> None:
        turns.count("unwatched")
        self.listeners.pop(listener, None)

    def advance(self) -> None:
        self.end += 1
        for listener in list(self.listeners):
            listener(self)


class Turns:
    """Counts what happens in each turn of the event loop."""

    def __init__(self) -> None:
        self.number = 0
        self.counts: dict[str, Counter[int]] = {}

    def count(self, what: str) -> None:
        self.counts.setdefault(what, Counter())[self.number] += 1

    def most(self, what: str) -> int:
        return max(self.counts[what].values())

    async def run(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            await asyncio.sleep(0)


turns = Turns()


@pytest.fixture(autouse=True)
def _new_turns() -> None:
    turns.__init__()  # type: ignore[misc]


class World:
    """A purgatory, and the waits in it."""

    def __init__(self) -> None:
        self.purgatory = FetchPurgatory()
        self.connection: Any = SimpleNamespace(closed=asyncio.get_running_loop().create_future())

    def wait(self, logs: Iterable[ALog], enough: int = 1, max_wait_s: float = LONG_S) -> FetchWait:
        """A wait that ends when one of `logs` has advanced `enough` times."""

        def is_enough(log: Log) -> bool:
            turns.count("looked")
            return bool(cast(Any, log).end >= enough)

        wait = self.purgatory.wait(is_enough, max_wait_s, self.connection)
        wait.done.add_done_callback(lambda _: turns.count("woken"))
        for log in logs:
            wait.watch(cast(Any, log))
        return wait


def ended(waits: list[FetchWait]) -> int:
    return sum(wait.done.done() for wait in waits)


@pytest.mark.parametrize("count", [1, LOOKED_AT_PER_TURN])
async def test_a_few_waits_end_as_soon_as_their_log_advances(count: int) -> None:
    world, log = World(), ALog()
    waits = [world.wait([log]) for _ in range(count)]
    log.advance()
    assert ended(waits) == count
    assert not world.purgatory.waiting
    assert not log.listeners


async def test_each_of_very_many_waits_ends_when_their_log_advances_and_no_turn_looks_at_all() -> None:
    world, log = World(), ALog()
    waits = [world.wait([log]) for _ in range(3_000)]
    log.advance()
    assert ended(waits) <= LOOKED_AT_PER_TURN
    await turns.run(100)
    assert ended(waits) == len(waits)
    assert turns.most("looked") <= LOOKED_AT_PER_TURN
    assert turns.most("woken") <= 2 * LOOKED_AT_PER_TURN
    assert not world.purgatory.waiting
    assert not log.listeners


async def test_many_logs_that_advance_in_one_turn_share_it() -> None:
    world, logs = World(), [ALog() for _ in range(500)]
    waits = [world.wait([log]) for log in logs]
    for log in logs:
        log.advance()
    assert ended(waits) <= LOOKED_AT_PER_TURN
    await turns.run(50)
    assert ended(waits) == len(waits)
    assert turns.most("looked") <= LOOKED_AT_PER_TURN


async def test_waits_that_do_not_have_enough_are_looked_at_again_if_the_log_has_advanced_meanwhile() -> None:
    world, log = World(), ALog()
    waits = [world.wait([log], enough=3) for _ in range(1_000)]
    log.advance()
    await turns.run(3)
    log.advance()
    log.advance()
    await turns.run(50)
    assert ended(waits) == len(waits)
    assert turns.counts["looked"].total() <= 2 * len(waits), "the second and third advance are looked at together"


async def test_a_wait_of_another_log_ends_soon_while_very_many_are_looked_at() -> None:
    world, busy, other = World(), ALog(), ALog()
    for _ in range(3_000):
        world.wait([busy], enough=1_000_000)
    busy.advance()
    await turns.run(1)
    wait = world.wait([other])
    other.advance()
    for _ in range(3):
        busy.advance()
        await turns.run(1)
    assert wait.done.done()


async def test_a_wait_that_begins_while_very_many_are_looked_at_is_looked_at_when_the_log_advances_again() -> None:
    world, log = World(), ALog()
    for _ in range(1_000):
        world.wait([log], enough=1_000_000)
    log.advance()
    await turns.run(2)
    late = world.wait([log], enough=2)
    log.advance()
    await turns.run(30)
    assert late.done.done()


async def test_waits_that_end_while_they_are_due_are_not_looked_at() -> None:
    world, log = World(), ALog()
    waits = [world.wait([log]) for _ in range(1_000)]
    log.advance()
    for wait in waits:
        wait.release()
    await turns.run(50)
    assert turns.counts["looked"].total() <= LOOKED_AT_PER_TURN
    assert not log.listeners
    assert not world.purgatory._due
    assert not world.purgatory._postponed


async def test_each_of_very_many_waits_ends_when_its_time_is_up_or_its_connection_closes() -> None:
    world, log = World(), ALog()
    waits = [world.wait([log], max_wait_s=0) for _ in range(1_000)]
    while ended(waits) < len(waits):
        await turns.run(1)
    assert turns.most("woken") <= 2 * LOOKED_AT_PER_TURN
    waits = [world.wait([log]) for _ in range(1_000)]
    world.connection.closed.set_result(None)
    await turns.run(50)
    assert ended(waits) == len(waits)
    assert turns.most("woken") <= 2 * LOOKED_AT_PER_TURN
    assert not log.listeners


async def test_all_waits_end_when_the_broker_stops() -> None:
    world, log = World(), ALog()
    waits = [world.wait([log]) for _ in range(1_000)]
    world.purgatory.release_all()
    await turns.run(50)
    assert ended(waits) == len(waits)
    later = world.wait([log])
    await later.done


@pytest.mark.parametrize("count", [1, 10])
async def test_no_turn_takes_a_wait_out_of_all_of_its_many_logs(count: int) -> None:
    world, logs = World(), [ALog() for _ in range(20_000 // count)]
    waits = [world.wait(logs) for _ in range(count)]
    logs[-1].advance()
    assert ended(waits) == count
    await turns.run(100)
    assert not any(log.listeners for log in logs)
    assert turns.most("unwatched") <= UNWATCHED_PER_TURN
    assert not any(wait.logs for wait in waits)


async def test_an_error_of_one_look_does_not_keep_the_others_from_theirs() -> None:
    world, log = World(), ALog()
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    waits = [world.wait([log]) for _ in range(500)]
    waits[150]._is_enough = lambda log: 1 // 0 > 0
    log.advance()
    await turns.run(50)
    assert ended(waits) == len(waits) - 1
    assert [type(error) for error in errors] == [ZeroDivisionError]
