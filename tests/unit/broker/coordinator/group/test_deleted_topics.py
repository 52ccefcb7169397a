"""Topics are deleted while there are many offsets: what is removed, in which portions, and at what cost."""

from __future__ import annotations

import asyncio

import pytest
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.counted_lines import Lines
from support.group_world import GroupWorld, in_virtual_time

PARTITIONS = 2_000
GROUPS = 800

LONGEST_TURN = 10_000
"""The most lines of Python that one turn may execute: far fewer than ten for each offset."""

ORDERS, PAYMENTS = ("orders", 0), ("payments", 0)


async def deleted(world: GroupWorld, *names: str) -> None:
    """Delete these topics at the same time, each by a request of its own."""
    rest = [part for name in names if (part := world.coordinator.on_topics_deleted([name])) is not None]
    assert len(rest) == len(names)
    await asyncio.gather(*rest)


def with_large_group() -> GroupWorld:
    world = GroupWorld()
    world.topics.change("orders", partitions=PARTITIONS)
    return world


def with_many_groups(world: GroupWorld) -> None:
    for number in range(GROUPS):
        world.commit({ORDERS: 1, PAYMENTS: 2}, group=f"g-{number}")


@in_virtual_time
async def test_no_turn_goes_through_all_offsets_of_a_group() -> None:
    async with with_large_group() as world:
        world.commit({("orders", index): 7 for index in range(PARTITIONS)})
        lines = Lines()
        await lines.of(lambda: deleted(world, *(f"unused-{number}" for number in range(10))))
        assert 0 < lines.longest < LONGEST_TURN
        assert len(world.committed()) == PARTITIONS


@in_virtual_time
async def test_no_turn_goes_through_all_offsets_that_a_transaction_has_just_committed() -> None:
    async with with_large_group() as world:
        world.commit({("orders", index): 7 for index in range(PARTITIONS)}, producer=5)
        world.end(5, commit=True)
        lines = Lines()
        await lines.of(lambda: deleted(world, "unused"))
        assert 0 < lines.longest < LONGEST_TURN
        await deleted(world, "orders")
        assert world.committed() == {}


@in_virtual_time
async def test_topics_deleted_together_cost_little_more_than_one() -> None:
    async with GroupWorld() as world:
        with_many_groups(world)
        one, twenty = Lines(), Lines()
        await one.of(lambda: deleted(world, "unused"))
        await twenty.of(lambda: deleted(world, *(f"unused-{number}" for number in range(20))))
        assert one.all > 0
        assert twenty.all < 2 * one.all


@in_virtual_time
async def test_topic_deleted_while_offsets_of_another_are_removed_loses_all_of_its_offsets() -> None:
    async with GroupWorld() as world:
        with_many_groups(world)
        first = asyncio.ensure_future(deleted(world, "orders"))
        while world.committed(ORDERS, group="g-0"):
            await asyncio.sleep(0)
        assert world.committed(ORDERS, group=f"g-{GROUPS - 1}")
        second = asyncio.ensure_future(deleted(world, "payments"))
        await first
        assert not second.done()
        await second
        assert not any(world.committed(group=f"g-{number}") for number in range(GROUPS))


@pytest.mark.parametrize("commit", [True, False])
@in_virtual_time
async def test_offset_whose_transaction_ends_meanwhile_is_removed(commit: bool) -> None:
    async with GroupWorld() as world:
        with_many_groups(world)
        world.commit({ORDERS: 3}, group="open", producer=5)
        deletion = asyncio.ensure_future(deleted(world, "orders"))
        while world.committed(ORDERS, group="g-0"):
            await asyncio.sleep(0)
        world.end(5, commit=commit, group="open")
        await deletion
        assert world.committed(group="open") == {}
        await world.restart()
        assert world.committed(group="open") == {}


@in_virtual_time
async def test_only_deletions_whose_offsets_could_not_be_removed_fail() -> None:
    async with GroupWorld() as world:
        with_many_groups(world)
        world.topics.topics["third"] = world.topics.topics["orders"]
        world.commit({("third", 0): 3}, group="g-0")
        world.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
        failed, unused = await asyncio.gather(deleted(world, "third"), deleted(world, "unused"), return_exceptions=True)
        assert isinstance(failed, KafkaError)
        assert unused is None
        world.log.refuse = None
        await deleted(world, "third")
        assert world.committed(group="g-0") == {ORDERS: 1, PAYMENTS: 2}


@in_virtual_time
async def test_offset_of_an_earlier_topic_that_cannot_be_removed_does_not_count() -> None:
    async with GroupWorld() as world:
        world.commit({ORDERS: 7, PAYMENTS: 8})
        world.topics.change("orders", topic_id=b"another topic id")
        world.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
        await world.restart()
        assert world.committed() == world.committed(ORDERS, PAYMENTS) == {PAYMENTS: 8}
        world.log.refuse = None
        world.commit({ORDERS: 1})
        assert world.committed() == world.committed(ORDERS, PAYMENTS) == {ORDERS: 1, PAYMENTS: 8}


@pytest.mark.parametrize("commit", [True, False])
@in_virtual_time
async def test_offset_that_is_pending_on_a_new_topic_outlives_that_of_the_earlier_topic(commit: bool) -> None:
    async with GroupWorld() as world:
        world.commit({ORDERS: 7})
        world.topics.change("orders", topic_id=b"another topic id")
        world.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
        await world.restart()
        world.log.refuse = None
        world.commit({ORDERS: 1}, producer=5)
        await world.restart()
        assert world.pending(ORDERS) == {ORDERS}
        assert world.committed() == {}
        world.end(5, commit=commit)
        assert world.committed() == ({ORDERS: 1} if commit else {})
        await world.restart()
        assert world.committed() == ({ORDERS: 1} if commit else {})


@in_virtual_time
async def test_offset_of_an_earlier_topic_that_was_pending_when_the_topic_was_deleted_takes_no_newer_offset_along() -> (
    None
):
    async with GroupWorld() as world:
        world.commit({ORDERS: 7}, producer=4)
        world.topics.change("orders", topic_id=b"another topic id")
        await world.restart()
        world.end(4, commit=True)
        world.commit({ORDERS: 1}, producer=5)
        await world.restart()
        world.end(5, commit=True)
        assert world.committed() == {ORDERS: 1}
