"""Groups with as many producers as partitions: what one claim costs, and what is kept of ids that come and go."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
from oncelog.broker.coordinator.transaction.events import Cause
from oncelog.broker.coordinator.transaction.transaction_log import decode_key
from oncelog.broker.scheduling.steps import SLICE
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.transaction_log import GroupAssignmentKey
from support.batch_limit import limit_batches
from support.counted_lines import lines_of
from support.group_aware_world import GROUP, GroupAwareWorld
from support.group_world import Topics, in_virtual_time

E = ErrorCode
FEW, MANY = 40, 400


def partition(index: int) -> tuple[str, int]:
    return "orders", index


def kept(world: GroupAwareWorld) -> set[tuple[str, str]]:
    """(group, transactional id) of what compaction would leave in the log."""
    newest: dict[bytes, bool] = {}
    for _, record in world.log.records:
        assert record.key is not None
        newest[record.key] = record.value is not None
    keys = [decode_key(key) for key, has_value in newest.items() if has_value]
    return {(key.group_id, key.transactional_id) for key in keys if isinstance(key, GroupAssignmentKey)}


async def calls_of(work: Awaitable[object]) -> int:
    """How many functions are called meanwhile, those of C included: time that no other process disturbs."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        await work
    finally:
        sys.setprofile(None)
    return calls


async def crowd(count: int) -> GroupAwareWorld:
    """A group where each of the partitions has a producer of its own."""
    world = GroupAwareWorld()
    world.world.topics = Topics(orders=MANY + 1)
    world.world.coordinator = world.world._make()
    await world.__aenter__()
    for index in range(count):
        await world.init(f"id-{index}", 5, partition(index))
    return world


@in_virtual_time
async def test_what_a_claim_costs_does_not_grow_with_the_group() -> None:
    costs = []
    for count in (FEW, MANY):
        world = await crowd(count)
        await world.init("new", 5, partition(count))
        costs.append(await calls_of(world.init("new", 5, partition(count))))
        await world._stop()
    assert costs[1] < 2 * costs[0]


@in_virtual_time
async def test_taking_everything_costs_as_much_for_each_victim_whatever_their_number() -> None:
    costs = []
    for count in (FEW, MANY):
        world = await crowd(count)
        everything = [partition(index) for index in range(count)]
        costs.append(await calls_of(world.init("greedy", 6, *everything)) / count)
        assert set(world.in_force().values()) == {("greedy", 6)}
        assert kept(world) == {(GROUP, "greedy")}
        await world._stop()
    assert costs[1] < 2 * costs[0]


@in_virtual_time
async def test_victims_of_one_request_are_fenced_in_many_turns() -> None:
    world = await crowd(MANY)
    fenced: list[str] = []
    world.homes.before_fence = fenced.append
    taking = asyncio.ensure_future(world.init("greedy", 6, *map(partition, range(MANY))))
    counts = [0]
    while not taking.done():
        await asyncio.sleep(0)
        counts.append(len(fenced))
    await taking
    assert len(set(fenced)) == len(fenced) == MANY
    assert max(after - before for before, after in pairwise(counts)) <= 2 * SLICE // 50
    await world._stop()


@in_virtual_time
async def test_ids_without_partitions_do_not_pile_up() -> None:
    async with GroupAwareWorld() as world:
        for index in range(300):
            assert await world.init_code(f"id-{index}", 3) is E.NONE
        assert kept(world) == {(GROUP, "id-299")}
        await world.restart()
        assert await world.init_code("late", 2) is E.ILLEGAL_GENERATION, "the generation has been"
        assert await world.init_code("one", 3, partition(0)) is E.NONE
        assert kept(world) == {(GROUP, "one")}


@pytest.mark.parametrize("has_offsets", [True, False])
@in_virtual_time
async def test_of_a_group_that_is_no_more_nothing_is_kept(has_offsets: bool) -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, partition(0))
        if has_offsets:
            assert world.commit("a", partition(0), 7, 3) is E.NONE
            world.end("a")
        world.claims.forget_transactional_id("a")
        assert kept(world) == ({(GROUP, "")} if has_offsets else set()), "what offsets name must not come back"
        await world.restart()
        assert world.in_force() == {}


@pytest.mark.parametrize("how", ["group", "by hand", "offsets", "topic"])
@in_virtual_time
async def test_any_number_of_claims_can_be_dropped(how: str) -> None:
    async with GroupAwareWorld() as world:
        world.world.topics.change("orders", partitions=60)
        for index in range(60):
            assert await world.init_code(f"{index:02}" + "x" * 30_000, 3, partition(index)) is E.NONE
        world.world.commit({partition(0): 1})
        limit_batches(world.log)
        coordinator = world.world.coordinator
        if how == "group":
            coordinator.delete_group(GROUP)
        elif how == "by hand":
            world.claims.drop(GROUP, None, how)
        elif how == "offsets":
            assert set(coordinator.delete_offsets(GROUP, [partition(index) for index in range(60)])) == {E.NONE}
        else:
            coordinator.on_topics_deleted(["orders"])
        assert world.in_force() == {}
        assert kept(world) == (set() if how == "group" else {(GROUP, "")})
        await world.restart()
        assert world.in_force() == {}


@in_virtual_time
async def test_what_is_left_of_claims_that_are_dropped_in_portions_keeps_its_owners() -> None:
    async with GroupAwareWorld() as world:
        world.world.topics.change("orders", partitions=90)
        for index in range(45):
            mine, ours = partition(index), partition(45 + index)
            assert await world.init_code(f"{index:02}" + "x" * 30_000, 3, mine, ours) is E.NONE
        limit_batches(world.log)
        world.claims.drop(GROUP, [partition(index) for index in range(45)], "offsets deleted")
        left = {partition(45 + index): (f"{index:02}" + "x" * 30_000, 3) for index in range(45)}
        assert world.in_force() == left
        await world.restart()
        assert world.in_force() == left


@pytest.mark.parametrize("forget", [True, False])
@in_virtual_time
async def test_to_drop_all_claims_costs_as_much_as_there_are_producers(forget: bool) -> None:
    async with GroupAwareWorld() as world:
        for number in range(4):
            claimed = frozenset(partition(number * 2500 + index) for index in range(2500))
            world.claims.claim(GROUP, f"id-{number}", 3, claimed)
        assert len(world.in_force()) == 10_000
        lines, _ = lines_of(lambda: world.claims.drop(GROUP, None, "by hand", forget=forget))
        assert lines < 1000
        assert world.in_force() == {}
        assert world.claims.claimed_partitions == 0
        assert world.claims._groups_of == {}
        await world.restart()
        assert world.in_force() == {}


@in_virtual_time
async def test_the_claims_of_a_producer_share_one_object() -> None:
    async with GroupAwareWorld() as world:
        world.claims.claim(GROUP, "id", 3, frozenset(partition(index) for index in range(100)))
        claims = world.world.coordinator._claims.of_group(GROUP)
        assert len(claims) == 100
        assert len(set(map(id, claims.values()))) == 1


@pytest.mark.parametrize("killed", [True, False])
@in_virtual_time
async def test_a_drop_that_fails_in_between_gives_no_partition_to_an_earlier_holder(
    killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = [f"{number:02}" + "x" * 30_000 for number in range(8, 16)]
    later = [f"{number:02}" + "x" * 30_000 for number in range(8)]
    async with GroupAwareWorld() as world:
        world.world.topics.change("orders", partitions=len(later))
        for names in (earlier, later):
            for index, name in enumerate(names):
                world.claims.claim(GROUP, name, 3, frozenset([partition(index)]))
        owners = {partition(index): (name, 3) for index, name in enumerate(later)}
        assert world.in_force() == owners
        append, appended = world.claims._append, 0

        def append_twice(*arguments: Any, **options: Any) -> Any:
            nonlocal appended
            appended += 1
            if appended == 3:
                raise KafkaError(E.NOT_COORDINATOR)
            return append(*arguments, **options)

        monkeypatch.setattr(world.claims, "_append", append_twice)
        with pytest.raises(KafkaError):
            world.claims.drop(GROUP, None, "by hand")
        left = dict(list(owners.items())[-len(world.in_force()) :])
        assert 0 < len(left) < len(owners)
        assert world.in_force() == left
        if killed:
            await world.restart()
            assert world.in_force() == left
        world.claims.drop(GROUP, None, "by hand")
        assert world.in_force() == {}
        await world.restart()
        assert world.in_force() == {}


@in_virtual_time
async def test_a_log_line_lists_some_of_many_producers() -> None:
    async with GroupAwareWorld() as world:
        for number in range(50):
            world.claims.claim(GROUP, f"id-{number:02}", 3, frozenset([partition(number)]))
        await world.initialiser.unfence(GROUP, Cause("IncrementalAlterConfigs"))
        (unfenced,) = world.lines.said("claims_unfenced")
        assert (len(unfenced["claims"]), unfenced["count"]) == (20, 50)
        (dropped,) = world.lines.said("claims_dropped")
        assert (dropped["transactional_ids"], dropped["count"]) == ([f"id-{number:02}" for number in range(20)], 50)
