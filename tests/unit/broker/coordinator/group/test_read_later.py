"""A partition of `__consumer_offsets` that cannot be read for a moment: it is read again, and its groups are served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.group_aware_world import GROUP, GroupAwareWorld
from support.group_world import GroupWorld, in_virtual_time

ORDERS = P0 = ("orders", 0)


class Failing:
    """Replays of a state log that fail `times` times with an error, before they read anything."""

    def __init__(self, world: GroupWorld, times: int, error: Exception | None = None) -> None:
        self.reads = 0
        self.in_the_middle: Callable[[], object] = lambda: None
        """Called once, when a replay has read everything and before it ends."""
        self._left = times
        self._error = error or KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")
        self._replay = world.log.replay
        world.log.replay = self._failing  # type: ignore[method-assign]

    def _failing(self, partition: int) -> Iterator[bytes]:
        self.reads += 1
        if self._left:
            self._left -= 1
            raise self._error
        return self._reading(partition)

    def _reading(self, partition: int) -> Iterator[bytes]:
        yield from self._replay(partition)
        in_the_middle, self.in_the_middle = self.in_the_middle, lambda: None
        in_the_middle()


def refusal(world: GroupWorld) -> ErrorCode:
    """The code with which the group is refused, NONE if it is served."""
    try:
        world.coordinator.group("g")
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@in_virtual_time
async def test_a_group_is_served_once_its_partition_can_be_read() -> None:
    async with GroupWorld() as world:
        leader, follower = await world.stable_group()
        world.commit({ORDERS: 7}, member=leader)
        Failing(world, 3)
        await world.restart()
        assert refusal(world) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await world.join("anyone")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(5)
        assert refusal(world) is ErrorCode.NONE
        assert world.committed(ORDERS) == {ORDERS: 7}
        assert world.state() == "Stable"
        assert world.heartbeat(leader) is ErrorCode.NONE
        await asyncio.sleep(5.1)
        assert world.heartbeat(leader) is ErrorCode.NONE
        await asyncio.sleep(2)
        assert world.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID, "its session began when the group was read"
        assert world.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


@in_virtual_time
async def test_a_marker_written_before_the_partition_is_read_again_takes_effect() -> None:
    async with GroupWorld() as world:
        world.commit({ORDERS: 7}, producer=5)
        Failing(world, 2)
        await world.restart()
        world.end(5, commit=True)
        await asyncio.sleep(5)
        assert (world.committed(ORDERS), world.pending(ORDERS)) == ({ORDERS: 7}, set())


@in_virtual_time
@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_written_while_the_partition_is_read_again_takes_effect(commit: bool) -> None:
    async with GroupWorld() as world:
        world.commit({ORDERS: 6})
        world.commit({ORDERS: 7}, producer=5)
        failing = Failing(world, 2)
        await world.restart()
        failing.in_the_middle = lambda: world.end(5, commit=commit)
        await asyncio.sleep(5)
        assert (world.committed(ORDERS), world.pending(ORDERS)) == ({ORDERS: 7 if commit else 6}, set())


@in_virtual_time
async def test_an_open_transaction_ends_after_the_partition_was_read_again() -> None:
    async with GroupWorld() as world:
        world.commit({ORDERS: 7}, producer=5)
        Failing(world, 2)
        await world.restart()
        await asyncio.sleep(5)
        assert (world.committed(ORDERS), world.pending(ORDERS)) == ({}, {ORDERS})
        world.end(5, commit=True)
        assert (world.committed(ORDERS), world.pending(ORDERS)) == ({ORDERS: 7}, set())


@in_virtual_time
async def test_offsets_of_topics_deleted_meanwhile_are_removed() -> None:
    async with GroupWorld() as world:
        world.commit({ORDERS: 7, ("payments", 1): 8})
        Failing(world, 2)
        await world.restart()
        del world.topics.topics["orders"]
        world.coordinator.on_topics_deleted(["orders"])
        await asyncio.sleep(5)
        assert world.committed() == {("payments", 1): 8}
        await world.restart()
        assert world.committed() == {("payments", 1): 8}


@in_virtual_time
async def test_a_group_that_is_too_large_begins_a_rebalance_when_it_is_read() -> None:
    async with GroupWorld() as world:
        await world.stable_group()
        world.config = type(world.config)({"group.max.size": 1})
        Failing(world, 2)
        await world.restart()
        await asyncio.sleep(5)
        assert world.state() == "PreparingRebalance"


@in_virtual_time
async def test_a_damaged_partition_is_not_read_again() -> None:
    async with GroupWorld() as world:
        world.commit({ORDERS: 7})
        failing = Failing(world, 1, ValueError("a batch is damaged"))
        await world.restart()
        await asyncio.sleep(60)
        assert failing.reads == 1
        assert refusal(world) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@in_virtual_time
async def test_a_stopped_broker_reads_nothing_again() -> None:
    async with GroupWorld() as world:
        world.commit({ORDERS: 7})
        failing = Failing(world, 1000)
        await world.restart()
        await world.coordinator.stop()
        reads = failing.reads
        await asyncio.sleep(60)
        assert failing.reads == reads


@in_virtual_time
async def test_claims_in_offsets_that_are_read_later_are_enforced() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        assert world.commit("a", P0, 7, 3) is ErrorCode.NONE
        world.end("a")
        world.log.cut(0)
        Failing(world.world, 2)
        await world.restart()
        world.world.coordinator.begin_sessions()
        await asyncio.sleep(5)
        assert world.in_force() == {P0: ("a", 3)}
        assert await world.init_code("b", 2, P0, group=GROUP) is ErrorCode.ILLEGAL_GENERATION


@in_virtual_time
async def test_recorded_claims_are_enforced_on_a_group_that_is_read_later() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        assert world.commit("a", P0, 7, 3) is ErrorCode.NONE
        world.end("a")
        await world.init("b", 4, P0)
        Failing(world.world, 2)
        await world.restart()
        world.world.coordinator.begin_sessions()
        await asyncio.sleep(5)
        assert world.in_force() == {P0: ("b", 4)}
        assert world.world.committed(P0) == {P0: 7}
