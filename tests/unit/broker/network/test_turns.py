"""Shares of the event loop: a lone connection has long turns, those that compete divide a round among them."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest
from oncelog.broker.network.turns import (
    CONTENTION_S,
    LEAST_SHARE,
    LONE_TURN_WORK,
    ROUND_S,
    ROUND_WORK,
    Newcomers,
    Turns,
)


def busy_turns(count: int) -> Turns:
    """Turns in which `count` connections compete, at time 0."""
    turns = Turns()
    for connection_id in range(1, count + 1):
        turns.begin(connection_id, 0, 0.0, 0.0)
        turns.used_up(connection_id)
    return turns


def test_a_connection_that_is_alone_has_long_turns() -> None:
    turns = Turns()
    turns.begin(1, 0, 0.0, 0.0)
    assert turns.begin(1, -5, 0.0, CONTENTION_S) == LONE_TURN_WORK


@pytest.mark.parametrize("count", [1, 2, 8, 16])
def test_the_shares_of_all_that_compete_are_one_round(count: int) -> None:
    turns = busy_turns(count)
    assert count * turns.begin(99, 0, 0.0, 0.0) == ROUND_WORK


def test_a_share_is_worth_its_turn_however_many_compete() -> None:
    assert busy_turns(10_000).begin(1, 0, 0.0, 0.0) == LEAST_SHARE


def test_what_a_turn_did_too_much_is_taken_from_the_next_ones() -> None:
    turns = busy_turns(8)
    share = ROUND_WORK // 8
    left = -3 * share
    waits = 0
    while (left := turns.begin(1, left, 0.0, 0.0)) <= 0:
        waits += 1
    assert waits == 3


def test_who_pauses_pays_meanwhile_and_saves_nothing() -> None:
    turns = busy_turns(8)
    share = ROUND_WORK // 8
    assert turns.begin(1, -3 * share, 0.0, 4.5 * ROUND_S) == share
    assert turns.begin(1, share, 0.0, 4.5 * ROUND_S) == share


def test_connections_that_have_nothing_more_to_do_stop_competing() -> None:
    turns = busy_turns(8)
    now = 0.0
    for _ in range(3):
        now += CONTENTION_S
        turns.begin(1, 0, now, now)
        turns.begin(2, 0, now, now)
    assert turns.begin(1, 0, now, now) == ROUND_WORK


async def test_newcomers_wait_for_each_other_and_for_nobody_else() -> None:
    newcomers = Newcomers(3)
    called: list[tuple[int, int]] = []
    rounds = 0

    def turn(number: int) -> None:
        called.append((number, rounds))

    for number in range(10):
        newcomers.wait("192.0.2.1", partial(turn, number))
    while len(called) < 10:
        await asyncio.sleep(0)
        rounds += 1
        assert rounds < 20
    assert [number for number, _ in called] == list(range(10))
    assert max(Counter(round_ for _, round_ in called).values()) == 3


async def test_a_turn_that_fails_takes_no_turn_from_others(caplog: pytest.LogCaptureFixture) -> None:
    newcomers = Newcomers(2)
    newcomers.wait("192.0.2.1", lambda: 1 // 0)
    async with asyncio.timeout(60):
        await newcomers.turn("192.0.2.1")
        await newcomers.turn("192.0.2.1")
    assert "ZeroDivisionError" in caplog.text


async def test_a_newcomer_that_gives_up_leaves_the_queue() -> None:
    newcomers = Newcomers(1)
    waiting = [asyncio.ensure_future(newcomers.turn("192.0.2.1")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.wait(waiting, timeout=60)
    assert [task.cancelled() for task in waiting] == [False, True, False]
    assert not newcomers._waiting


async def test_networks_of_newcomers_take_turns() -> None:
    newcomers, order = Newcomers(1), list[str]()
    for number in range(3):
        newcomers.wait("2001:db8::/64", partial(order.append, f"many {number}"))
    newcomers.wait("192.0.2.1", partial(order.append, "alone"))
    while len(order) < 4:
        await asyncio.sleep(0)
    assert order == ["many 0", "alone", "many 1", "many 2"]
