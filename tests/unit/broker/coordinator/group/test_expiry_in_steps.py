"""The expiry of many offsets in steps: what another request changes in between is respected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, cast

import pytest
from oncelog.broker.coordinator.claim import Claim, ClaimKeeper, TopicPartition
from oncelog.protocol.errors import ErrorCode
from support.group_world import GroupWorld, in_virtual_time
from support.virtual_time import LoopClock

PARTITIONS = 2_000
STEPS = 5
"""Steps after which the offsets are partly expired."""

LONGEST_STEP = 250
"""The most offsets that one step may look at or remove."""

SUBSCRIPTION = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x06orders" + b"\xff\xff\xff\xff"


async def outdated() -> GroupWorld:
    """A world with a group whose offsets are past their retention; whoever gets it enters it."""
    world = GroupWorld(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10**9)
    world.topics.change("orders", partitions=PARTITIONS)
    await world.__aenter__()
    world.commit({("orders", index): 7 for index in range(PARTITIONS)})
    await asyncio.sleep(61)
    return world


def expire(world: GroupWorld, between: Callable[[], object]) -> None:
    """Expire in steps; `between` is called after some of them."""
    steps = world.coordinator._cleanup.expiry()
    for _ in range(STEPS):
        next(steps)
    assert 0 < len(world.committed()) < PARTITIONS
    between()
    for _ in steps:
        pass


@in_virtual_time
async def test_each_step_expires_few_offsets() -> None:
    world = await outdated()
    left = PARTITIONS
    for _ in world.coordinator._cleanup.expiry():
        assert left - len(world.committed()) <= LONGEST_STEP
        left = len(world.committed())
    assert left == 0
    assert world.state() is None
    await world.coordinator.stop()


@in_virtual_time
async def test_each_step_looks_at_few_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await outdated()
    world.commit({("orders", index): 8 for index in range(PARTITIONS)})
    get = world.coordinator._offsets.get
    looks = 0

    def counted(*arguments: object) -> object:
        nonlocal looks
        looks += 1
        return get(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(world.coordinator._offsets, "get", counted)
    before = 0
    for _ in world.coordinator._cleanup.expiry():
        assert looks - before <= LONGEST_STEP
        before = looks
    assert looks == PARTITIONS
    assert len(world.committed()) == PARTITIONS
    await world.coordinator.stop()


@in_virtual_time
async def test_offsets_committed_in_between_do_not_expire() -> None:
    world = await outdated()
    expire(world, lambda: world.commit({("orders", 0): 9, ("orders", PARTITIONS - 1): 9}))
    assert world.committed() == {("orders", 0): 9, ("orders", PARTITIONS - 1): 9}
    assert world.state() == "Empty"
    await world.coordinator.stop()


@in_virtual_time
async def test_offsets_of_a_group_that_gets_members_in_between_do_not_expire() -> None:
    world = await outdated()
    left: list[int] = []

    def between() -> None:
        left.append(len(world.committed()))
        world.join(protocols=[("range", SUBSCRIPTION)], version=3)

    expire(world, between)
    assert len(world.committed()) == left[0]
    assert world.state() == "PreparingRebalance"
    await world.coordinator.stop()


@in_virtual_time
async def test_group_that_is_deleted_and_made_anew_in_between_keeps_its_offsets() -> None:
    world = await outdated()

    def between() -> None:
        world.coordinator.delete_group("g")
        assert world.commit({("orders", 0): 9, ("orders", PARTITIONS - 1): 9}) == [0, 0]

    expire(world, between)
    assert world.committed() == {("orders", 0): 9, ("orders", PARTITIONS - 1): 9}
    await world.coordinator.stop()


@in_virtual_time
async def test_offset_that_becomes_pending_in_between_does_not_expire() -> None:
    world = await outdated()
    last = ("orders", PARTITIONS - 1)
    expire(world, lambda: world.commit({last: 9}, producer=5))
    assert world.committed() == {last: 7}
    world.end(5, commit=True)
    assert world.committed() == {last: 9}
    await world.coordinator.stop()


@in_virtual_time
async def test_offsets_whose_expiry_cannot_be_written_stay_until_the_next_one() -> None:
    world = await outdated()

    def between() -> None:
        world.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR

    expire(world, between)
    assert 0 < len(world.committed()) < PARTITIONS
    world.log.refuse = None
    for _ in world.coordinator._cleanup.expiry():
        pass
    assert world.committed() == {}
    await world.coordinator.stop()


class Keeper:
    """A keeper of claims that records what is dropped."""

    def __init__(self, world: GroupWorld) -> None:
        self.dropped: list[TopicPartition] = []
        self._world = world
        world.coordinator.claim_keeper = cast(ClaimKeeper, self)

    def newest_generation(self, group_id: str) -> int:
        return 1

    def drop(self, group_id: str, partitions: Collection[TopicPartition], reason: str, *, forget: bool = False) -> None:
        self.dropped += partitions
        self._world.coordinator.change_claims(group_id, dict.fromkeys(partitions))


async def claimed() -> tuple[GroupWorld, Keeper]:
    """A world with a group whose claims are past the retention, and only the first of them has an offset."""
    world = GroupWorld(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10**9)
    world.topics.change("orders", partitions=PARTITIONS)
    await world.__aenter__()
    made_ms = LoopClock().now_ms()
    await asyncio.sleep(61)
    world.commit({("orders", 0): 7})
    world.coordinator.install_claims(
        "g", {("orders", index): Claim(1, "id", 1, made_ms) for index in range(PARTITIONS)}
    )
    return world, Keeper(world)


@in_virtual_time
async def test_each_step_looks_at_few_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    world, keeper = await claimed()
    world.commit({("orders", index): 7 for index in range(PARTITIONS)})
    is_outlived = world.coordinator._cleanup.is_outlived
    looks = 0

    def counted(*arguments: Any) -> bool:
        nonlocal looks
        looks += 1
        return is_outlived(*arguments)

    monkeypatch.setattr(world.coordinator._cleanup, "is_outlived", counted)
    before = 0
    for _ in world.coordinator._cleanup.expiry():
        assert looks - before <= LONGEST_STEP
        before = looks
    assert looks >= PARTITIONS
    assert keeper.dropped == []
    await world.coordinator.stop()


@in_virtual_time
async def test_claims_renewed_or_used_in_between_do_not_expire() -> None:
    world, keeper = await claimed()
    steps = world.coordinator._cleanup.expiry()
    for _ in range(STEPS):
        next(steps)
    assert keeper.dropped == []
    renewed, used = ("orders", 1), ("orders", 2)
    world.coordinator.change_claims("g", {renewed: Claim(1, "id", 2, LoopClock().now_ms())})
    world.commit({used: 7})
    for _ in steps:
        pass
    assert sorted(keeper.dropped) == [("orders", index) for index in range(3, PARTITIONS)]
    await world.coordinator.stop()


@in_virtual_time
async def test_claims_of_a_group_that_gets_members_in_between_do_not_expire() -> None:
    world, keeper = await claimed()
    steps = world.coordinator._cleanup.expiry()
    for _ in range(STEPS):
        next(steps)
    world.join(protocols=[("range", SUBSCRIPTION)], version=3)
    for _ in steps:
        pass
    assert keeper.dropped == []
    await world.coordinator.stop()
