"""What needs all offsets of a group right after a large transaction: no turn moves them all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from unittest.mock import Mock

import pytest
from oncelog.broker.coordinator.group.coordinator import Commit
from oncelog.broker.coordinator.group.group_offsets import GroupOffsets
from oncelog.broker.scheduling.steps import Steps, run_in_slices
from support.group_world import GroupWorld, in_virtual_time

PARTITIONS = 3_000
MOST_AT_ONCE = 300
"""The most offsets that one turn may move."""


async def read(world: GroupWorld) -> None:
    await run_in_slices(world.coordinator.settle_offsets("g"))
    assert len(world.committed()) == PARTITIONS


async def expire(world: GroupWorld) -> None:
    await world.coordinator._cleanup.expire()
    assert len(world.committed()) == PARTITIONS


async def delete(world: GroupWorld) -> None:
    await run_in_slices(world.coordinator.delete_group_in_steps("g"))
    assert world.state() is None


async def end_a_small_transaction(world: GroupWorld) -> None:
    world.commit({("payments", 0): 3}, producer=6)
    world.end(6, commit=True)
    await asyncio.sleep(0)
    assert world.committed(("payments", 0)) == {("payments", 0): 3}


@pytest.mark.parametrize("work", [read, expire, delete, end_a_small_transaction])
@in_virtual_time
async def test_no_turn_moves_all_offsets_of_a_transaction(
    work: Callable[[GroupWorld], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with GroupWorld() as world:
        world.topics.change("orders", partitions=PARTITIONS)
        world.commit({("orders", index): 7 for index in range(PARTITIONS)}, producer=5)
        world.end(5, commit=True)
        put, moved, longest = GroupOffsets.put, 0, 0

        def counted(*arguments: object) -> None:
            nonlocal moved
            moved += 1
            put(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(GroupOffsets, "put", counted)
        working = asyncio.ensure_future(work(world))
        while not working.done():
            before = moved
            await asyncio.sleep(0)
            longest = max(longest, moved - before)
        await working
        assert longest <= MOST_AT_ONCE


@in_virtual_time
async def test_offsets_that_are_to_be_replaced_are_moved_while_the_commit_is_prepared() -> None:
    async with GroupWorld() as world:
        world.topics.change("orders", partitions=PARTITIONS)
        everything = {("orders", index): 7 for index in range(PARTITIONS)}
        world.commit(everything, producer=5)
        world.end(5, commit=True)
        commits = [Commit(partition, 8, 0, None) for partition in everything]
        left = len(world.coordinator._offsets.unmoved("g"))
        for _ in world.coordinator.prepare_commit("g", commits):
            assert left - len(world.coordinator._offsets.unmoved("g")) <= MOST_AT_ONCE
            left = len(world.coordinator._offsets.unmoved("g"))
        assert left == 0
        assert world.committed() == everything


@in_virtual_time
async def test_markers_of_many_large_transactions_move_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = ("orders", 0), ("orders", PARTITIONS - 1)
    async with GroupWorld() as world:
        world.topics.change("orders", partitions=PARTITIONS)
        for producer in range(20):
            world.commit({("orders", index): producer for index in range(PARTITIONS)}, producer=producer)
        put = Mock(side_effect=AssertionError("an offset was moved"))
        with monkeypatch.context() as patched:
            patched.setattr(GroupOffsets, "put", put)
            for producer in range(20):
                world.end(producer, commit=producer != 19)
        assert world.committed(first, last) == {first: 18, last: 18}
        assert world.pending(first, last) == set()
        assert set(world.committed().values()) == {18}


@in_virtual_time
async def test_offsets_decided_while_a_group_is_settled_are_settled_too() -> None:
    async with GroupWorld() as world:
        world.topics.change("orders", partitions=PARTITIONS)
        everything = {("orders", index): 7 for index in range(PARTITIONS)}
        for producer in (5, 6):
            world.commit(everything, producer=producer)
        world.end(5, commit=False)
        steps = world.coordinator.settle_offsets("g")
        next(steps)
        world.end(6, commit=True)
        _run(steps)
        assert not world.coordinator._offsets.unmoved("g")
        assert world.committed() == everything


@in_virtual_time
async def test_group_whose_transaction_ends_while_its_deletion_is_prepared_is_deleted_with_all_offsets() -> None:
    async with GroupWorld() as world:
        world.topics.change("orders", partitions=PARTITIONS)
        world.commit({("orders", index): 7 for index in range(PARTITIONS)}, producer=5)
        steps = world.coordinator.delete_group_in_steps("g")
        next(steps)
        world.end(5, commit=True)
        _run(steps)
        assert world.state() is None
        await world.restart()
        assert world.committed() == {}


def _run(steps: Steps[None]) -> None:
    for _ in steps:
        pass
