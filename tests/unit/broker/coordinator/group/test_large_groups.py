"""Very many members, of one group or of many: how much happens in one turn of the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.join_group import JoinGroupResponse
from oncelog.protocol.messages.sync_group import SyncGroupResponse
from support.counted_lines import Lines
from support.group_world import SESSION_MS, GroupWorld, in_virtual_time

MEMBERS = 400

MOST_PER_TURN = 100
"""The most members that may be answered in one turn."""


class Turns:
    """Counts how many of some futures resolve in each turn of the event loop."""

    def __init__(self) -> None:
        self._turn = 0
        self._resolved: Counter[int] = Counter()

    async def of(self, futures: Iterable[asyncio.Future[Any]]) -> Counter[int]:
        """Wait for the futures; return how many of them resolved in each turn."""
        watched = list(futures)
        for future in watched:
            future.add_done_callback(lambda _: self._resolved.update([self._turn]))
        ticking = asyncio.get_running_loop().create_task(self._tick())
        await asyncio.wait(watched)
        ticking.cancel()
        return self._resolved

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._turn += 1


def _joins(world: GroupWorld, count: int = MEMBERS) -> list[asyncio.Future[JoinGroupResponse]]:
    """Let members join that need no member id first, because their JoinGroup has version 3."""
    return [world.join(version=3) for _ in range(count)]


def _leader(joined: Iterable[JoinGroupResponse]) -> JoinGroupResponse:
    return next(answer for answer in joined if answer.leader == answer.member_id)


@in_virtual_time
async def test_few_joins_are_answered_in_one_turn() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        joins = _joins(world)
        resolved = await Turns().of(joins)
        assert sum(resolved.values()) == MEMBERS
        assert max(resolved.values()) <= MOST_PER_TURN
        assert max(resolved) - min(resolved) < len(resolved), "a turn without answers was between others"
        answers = [await join for join in joins]
        assert {(answer.error_code, answer.generation_id) for answer in answers} == {(0, 1)}
        assert [len(answer.members) for answer in answers if answer.members] == [MEMBERS]


@in_virtual_time
async def test_few_syncs_are_answered_in_one_turn() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        joined = await asyncio.gather(*_joins(world))
        leader = _leader(joined)
        syncs = [world.sync(answer) for answer in joined if answer is not leader]
        syncs.append(world.sync(leader, {answer.member_id: answer.member_id.encode() for answer in joined}))
        resolved = await Turns().of(syncs)
        assert max(resolved.values()) <= MOST_PER_TURN
        assert max(resolved) - min(resolved) < len(resolved), "a turn without answers was between others"
        assert {sync.result().assignment for sync in syncs} == {answer.member_id.encode() for answer in joined}


@in_virtual_time
async def test_a_member_whose_join_is_not_answered_yet_takes_part_in_the_next_generation() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        joins = _joins(world)
        await asyncio.wait(joins, return_when=asyncio.FIRST_COMPLETED)
        early = [join.result() for join in joins if join.done()]
        assert len(early) < MEMBERS
        assert world.leave(early[1].member_id) == [0]
        late = [join for join in joins if not join.done()]
        again = [world.join(answer.member_id) for answer in early if answer is not early[1]]
        answers = await asyncio.gather(*again, *late)
        assert {(answer.error_code, answer.generation_id) for answer in answers} == {(0, 2)}


@in_virtual_time
async def test_syncs_that_are_not_answered_yet_learn_of_the_next_rebalance() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        joined = await asyncio.gather(*_joins(world))
        leader = _leader(joined)
        syncs = {answer.member_id: world.sync(answer) for answer in joined if answer is not leader}
        await world.sync(leader, {answer.member_id: b"part" for answer in joined})
        assert world.state() == "Stable"
        assert any(not sync.done() for sync in syncs.values())
        assert world.leave(leader.member_id) == [0]
        answers = await asyncio.gather(*syncs.values())
        assert {answer.error_code for answer in answers} == {0, ErrorCode.REBALANCE_IN_PROGRESS}
        assert all((answer.error_code == 0) == (answer.assignment == b"part") for answer in answers)
        assert {world.heartbeat(answer) for answer in joined if answer is not leader} == {
            ErrorCode.REBALANCE_IN_PROGRESS
        }
        again = await asyncio.gather(*[world.join(member_id) for member_id in syncs])
        assert {(answer.error_code, answer.generation_id) for answer in again} == {(0, 2)}


@in_virtual_time
async def test_a_stopping_broker_answers_every_join() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        joins = _joins(world)
        await asyncio.wait(joins, return_when=asyncio.FIRST_COMPLETED)
        await world.coordinator.stop()
        answers = await asyncio.gather(*joins)
        assert {answer.error_code for answer in answers} == {0, ErrorCode.NOT_COORDINATOR}


@in_virtual_time
async def test_by_default_a_group_has_at_most_a_thousand_members() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        answers = await asyncio.gather(*_joins(world, 1_001))
        assert Counter(answer.error_code for answer in answers) == {0: 1_000, ErrorCode.GROUP_MAX_SIZE_REACHED: 1}


def _ended(world: GroupWorld) -> int:
    """The number of groups whose members have left."""
    return sum(group.state.value == "Empty" for group in world.coordinator.groups())


async def _sleep_past(seconds: float) -> None:
    """Sleep until the timers that are due in `seconds` are about to fire."""
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(seconds - 0.01)
    loop._jumping.now += 0.02


async def _in_each_turn(action: Callable[[], bool]) -> None:
    """Call `action` in each turn of the event loop until it returns true."""
    while not action():
        await asyncio.sleep(0)


@in_virtual_time
async def test_sessions_that_end_together_end_in_successive_turns() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        for number in range(MEMBERS):
            await world.join(group=f"g-{number}", version=3)
        await _sleep_past(SESSION_MS / 1000)
        ended: Counter[int] = Counter()
        turn = 0

        def count() -> bool:
            nonlocal turn
            turn += 1
            if _ended(world) > ended.total():
                ended[turn] = _ended(world) - ended.total()
            return ended.total() == MEMBERS

        await _in_each_turn(count)
        assert max(ended.values()) <= MOST_PER_TURN
        assert max(ended) - min(ended) < len(ended), "a turn without an end was between others"


@in_virtual_time
async def test_a_heartbeat_that_arrives_between_two_portions_of_ending_sessions_is_in_time() -> None:
    loop: Any = asyncio.get_running_loop()
    broker, client = socket.socketpair()
    codes: list[ErrorCode] = []
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        for number in range(60):
            await world.join(group=f"g-{number}", version=3)
        await asyncio.sleep(0.1)
        member = await world.join(group="alive", version=3)
        await world.sync(member, {}, group="alive")

        def receive() -> None:
            broker.recv(1)
            codes.append(world.heartbeat(member, group="alive"))

        def hold_up() -> bool:
            """Let the heartbeat arrive after the first portion, and then hold the process up beyond the session."""
            if not 0 < _ended(world) < 60:
                return False
            client.send(b"x")
            loop._jumping.now += 2
            return True

        loop.add_reader(broker, receive)
        try:
            await _sleep_past(SESSION_MS / 1000 - 0.1)
            await _in_each_turn(hold_up)
            while _ended(world) < 60 or not codes:
                await asyncio.sleep(0.01)
        finally:
            loop.remove_reader(broker)
            broker.close()
            client.close()
        assert codes == [ErrorCode.NONE]


STATIC = 100
PROTOCOLS = 300
"""Many protocols are offered by one member only, so there are as many as members times these."""


def _many_protocols(number: int) -> list[tuple[str, bytes]]:
    return [*((f"{number}-{other}", b"") for other in range(PROTOCOLS - 1)), ("range", b"r")]


def _join_static(world: GroupWorld, number: int) -> asyncio.Future[JoinGroupResponse]:
    return world.join(instance=f"i-{number}", protocols=_many_protocols(number), session_ms=60_000)


@in_virtual_time
async def test_no_turn_goes_through_the_protocols_of_all_members() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        joins = [_join_static(world, number) for number in range(STATIC)]
        completion, syncing, rejoining = Lines(), Lines(), Lines()
        await completion.of(lambda: asyncio.gather(*joins))
        assert 0 < completion.longest < STATIC * PROTOCOLS
        joined = [join.result() for join in joins]
        leader = _leader(joined)
        assignments = {answer.member_id: b"part" for answer in joined}

        def sync(number: int) -> asyncio.Future[SyncGroupResponse]:
            answer = joined[number]
            return world.sync(answer, assignments if answer is leader else None, instance=f"i-{number}")

        await syncing.of(lambda: asyncio.gather(*map(sync, range(STATIC))))
        assert 0 < syncing.longest < STATIC * PROTOCOLS
        await rejoining.of(lambda: _join_static(world, 1))
        assert 0 < rejoining.longest < STATIC * PROTOCOLS
        assert world.state() == "Stable"


@in_virtual_time
async def test_group_votes_as_its_members_prefer_although_some_offer_a_protocol_twice() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        offers = [["a", "b", "c"], ["c", "b", "a", "c"], ["c", "a", "b"]]
        joins = [
            world.join(protocols=[(name, f"{name}{place}".encode()) for place, name in enumerate(names)], version=3)
            for names in offers
        ]
        joined = await asyncio.gather(*joins)
        assert {answer.protocol_name for answer in joined} == {"c"}
        assert [member.metadata for member in _leader(joined).members] == [b"c2", b"c0", b"c0"]
