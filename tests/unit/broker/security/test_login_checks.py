"""The order of password checks: addresses take turns, few checks wait, and a client that has gone frees its place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from oncelog.broker.security.login import LoginNotChecked
from oncelog.broker.security.login_checks import LoginChecks
from oncelog.broker.system.ports import Lane
from support.inline_threads import InlineThreads

T = TypeVar("T")


class HeldThreads(InlineThreads):
    """Threads in which each job waits until the test ends it."""

    def __init__(self) -> None:
        self.begun: list[tuple[Callable[[], object], asyncio.Future[object]]] = []

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        assert lane is Lane.LOGIN
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.begun.append((job, future))  # type: ignore[arg-type]
        return future


class World:
    """Checks with names, in the order in which they run: `answers` gives their results."""

    def __init__(self, most: int = 100, most_of_host: int = 100) -> None:
        self.threads = HeldThreads()
        self.checks = LoginChecks(self.threads, most, most_of_host)
        self.ran: list[str] = []

    def begin(self, host: str, name: str, result: bool | Exception = False) -> asyncio.Task[bool]:
        def check() -> bool:
            self.ran.append(name)
            if isinstance(result, Exception):
                raise result
            return result

        return asyncio.create_task(self.checks.in_turn(host, check))

    async def settle(self) -> None:
        """Let all tasks go on as far as they can."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def end_one(self) -> None:
        (job, future), *self.threads.begun = self.threads.begun
        try:
            future.set_result(job())
        except Exception as error:
            future.set_exception(error)
        await self.settle()

    async def run_all(self) -> list[str]:
        await self.settle()
        while self.threads.begun:
            assert len(self.threads.begun) == 1, "one check at a time"
            await self.end_one()
        return self.ran


async def test_addresses_take_turns() -> None:
    world = World()
    tasks = [world.begin("a", f"a{number}") for number in range(4)]
    tasks += [world.begin("b", "b0", True), world.begin("c", "c0"), world.begin("b", "b1")]
    assert await world.run_all() == ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]
    assert [await task for task in tasks] == [False] * 4 + [True, False, False]


@pytest.mark.parametrize(
    ("most", "most_of_host", "setting"),
    [
        (100, 3, "sasl.server.max.waiting.logins.per.ip = 3"),
        (3, 100, "sasl.server.max.waiting.logins = 3"),
    ],
)
async def test_a_check_beyond_a_limit_is_refused_until_another_has_run(
    most: int, most_of_host: int, setting: str
) -> None:
    world = World(most, most_of_host)
    tasks = [world.begin("a", f"a{number}") for number in range(4)]  # one of them runs
    refused = world.begin("a", "too many")
    await world.settle()
    with pytest.raises(LoginNotChecked, match=setting):
        await refused
    await world.end_one()
    tasks.append(world.begin("a", "again"))
    await world.run_all()
    assert [await task for task in tasks] == [False] * 5
    assert "too many" not in world.ran


async def test_other_addresses_wait_beside_one_that_has_reached_its_limit() -> None:
    world = World(100, 1)
    tasks = [world.begin("a", f"a{number}") for number in range(5)] + [world.begin("b", "b0", True)]
    assert await world.run_all() == ["a0", "a1", "b0"]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [bool, bool] + [LoginNotChecked] * 3 + [bool]


async def test_addresses_that_fill_all_places_keep_no_other_address_out() -> None:
    world = World(4, 2)
    tasks = [world.begin(host, f"{host}{number}") for host in "abc" for number in range(2)]
    tasks += [world.begin(host, host) for host in ("victim", "another")]
    ran = await world.run_all()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [number for number, result in enumerate(results) if isinstance(result, LoginNotChecked)]
    assert "victim" in ran
    assert "another" in ran
    assert len(ran) == 5
    assert len(refused) == 3


async def test_the_check_of_a_client_that_has_gone_neither_runs_nor_counts() -> None:
    world = World(100, 2)
    first, second, third = (world.begin("a", f"a{number}") for number in range(3))
    await world.settle()
    first.cancel()  # runs already
    second.cancel()
    await world.settle()
    fourth = world.begin("a", "a3")
    assert await world.run_all() == ["a0", "a2", "a3"]
    assert (first.cancelled(), second.cancelled(), await third, await fourth) == (True, True, False, False)


async def test_a_client_goes_in_the_moment_in_which_its_turn_comes() -> None:
    world = World()
    tasks = [world.begin("a", f"a{number}") for number in range(4)]
    await world.settle()
    (job, running), *world.threads.begun = world.threads.begun
    tasks[1].cancel()  # before its turn
    running.set_result(job())
    await asyncio.sleep(0)
    tasks[2].cancel()  # after its turn has come, before it runs
    assert await world.run_all() == ["a0", "a3"]
    assert not await tasks[3]


async def test_an_error_of_a_check_is_raised_and_the_next_one_runs() -> None:
    world = World()
    bad, gone, good = world.begin("a", "a0", OSError("no file")), world.begin("b", "b0"), world.begin("b", "b1", True)
    await world.settle()
    gone.cancel()
    assert await world.run_all() == ["a0", "b1"]
    with pytest.raises(OSError, match="no file"):
        await bad
    assert await good
    assert not world.threads.begun


async def test_the_addresses_of_an_ipv6_network_have_the_turns_of_one() -> None:
    world = World(most_of_host=2)
    first = world.begin("2001:db8::1", "first")
    tasks = [world.begin(f"2001:db8::{last}", f"second {last}") for last in (2, 3, 4)]
    other = world.begin("192.0.2.1", "other")
    await world.settle()
    with pytest.raises(LoginNotChecked, match=r"per\.ip"):
        await tasks[2]
    for _ in range(4):
        await world.end_one()
    await asyncio.gather(first, *tasks[:2], other)
    assert world.ran == ["first", "second 2", "other", "second 3"]
