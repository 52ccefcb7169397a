"""Claims: how long they last, what is left of them on disk, and what a start makes of that."""

from __future__ import annotations

import asyncio

import pytest
from oncelog.broker.coordinator.claims.records import encode_assignment_key
from oncelog.broker.coordinator.transaction.transaction_log import decode_key
from oncelog.protocol.codec import decode_record_value, record_version
from oncelog.protocol.errors import CONCURRENT_PRODUCER_COMMIT, ErrorCode, KafkaError
from oncelog.protocol.messages.group_log import OffsetCommitValue
from oncelog.protocol.messages.transaction_log import GroupAssignmentKey
from support.group_aware_world import GROUP, GroupAwareWorld
from support.group_world import in_virtual_time

E = ErrorCode
P0, P1, P2 = ("orders", 0), ("orders", 1), ("payments", 0)


def on_disk(world: GroupAwareWorld) -> dict[str, bytes]:
    """Transactional id → value, as the log has it; "" is what was forgotten."""
    found: dict[str, bytes] = {}
    for _, record in world.log.records:
        assert record.key is not None
        key = decode_key(record.key)
        assert isinstance(key, GroupAssignmentKey)
        found.pop(key.transactional_id, None)
        if record.value is not None:
            found[key.transactional_id] = record.value
    return found


@in_virtual_time
async def test_claims_lie_in_the_partition_of_the_group() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        ((partition, record),) = world.log.records
        assert partition == world.log.partition_for(GROUP)
        assert record.key == encode_assignment_key(GROUP, "a")


@in_virtual_time
async def test_they_are_in_force_again_after_a_start() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0, P2)
        await world.init("b", 3, P1)
        await world.restart()
        assert world.in_force() == {P0: ("a", 3), P1: ("b", 3), P2: ("a", 3)}
        assert world.commit("b", P0, 1) is CONCURRENT_PRODUCER_COMMIT
        assert await world.init_code("b", 2, P1) is E.ILLEGAL_GENERATION


@in_virtual_time
async def test_a_victim_lets_go_of_what_it_lost_and_keeps_the_rest() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0, P1)
        await world.init("b", 2, P0)
        assert world.in_force() == {P0: ("b", 2), P1: ("a", 1)}
        await world.init("c", 2, P1)
        assert set(on_disk(world)) == {"b", "c"}


@in_virtual_time
async def test_a_kill_before_the_victim_let_go_leaves_the_later_owner() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 5, P0, P1)
        world.homes.hold("a")
        assert await world.init_code("b", 5, P0) is E.CONCURRENT_TRANSACTIONS
        await world.restart()
        assert world.in_force() == {P0: ("b", 5), P1: ("a", 5)}
        world.homes.held.clear()
        assert await world.init_code("b", 5, P0) is E.NONE
        assert world.homes.ids["a"].fenced_by == ["b", "b"], "the start forgot that it had been asked for"


@in_virtual_time
async def test_a_record_that_is_rewritten_does_not_come_to_own_more() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 5, P0, P2)
        world.homes.hold("a")
        assert await world.init_code("b", 5, P0) is E.CONCURRENT_TRANSACTIONS
        world.world.coordinator.on_topics_deleted(["payments"])
        await world.restart()
        assert world.in_force() == {P0: ("b", 5)}


@in_virtual_time
async def test_what_the_later_owner_lets_go_does_not_fall_back() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 5, P0)
        world.homes.hold("a")
        assert await world.init_code("b", 5, P0) is E.CONCURRENT_TRANSACTIONS
        assert await world.init_code("b", 5, P1) is E.NONE
        assert world.in_force() == {P1: ("b", 5)}


@in_virtual_time
async def test_dropped_claims_are_not_brought_back_by_offsets_that_name_them() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        assert world.commit("a", P0, 7, 3) is E.NONE
        world.end("a")
        assert world.commit("a", P0, 8, 3) is E.NONE, "and one that is pending yet"
        world.claims.drop(GROUP, None, "by hand")
        world.end("a")
        await world.restart()
        assert world.in_force() == {}
        assert world.world.committed(P0) == {P0: 8}
        assert await world.init_code("b", -1, P0) is E.NONE
        assert world.in_force() == {P0: ("b", -1)}
        await world.restart()
        assert world.in_force() == {P0: ("b", -1)}


@in_virtual_time
async def test_what_was_forgotten_is_forgotten_itself_when_a_newer_generation_comes() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        world.world.commit({P0: 1})
        world.claims.drop(GROUP, None, "by hand")
        assert set(on_disk(world)) == {""}
        await world.init("a", 4, P0)
        assert set(on_disk(world)) == {"a"}
        world.claims.drop(GROUP, None, "deleted", forget=True)
        assert on_disk(world) == {}


@in_virtual_time
async def test_claims_lost_from_their_log_count_by_the_offsets_that_name_them() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0, P1)
        assert world.commit("a", P0, 7, 3) is E.NONE
        world.end("a")
        world.log.cut(0)
        await world.restart()
        assert world.in_force() == {P0: ("a", 3)}
        assert await world.init_code("b", 2, P1) is E.ILLEGAL_GENERATION
        assert await world.init_code("b", 4, P0) is E.NONE
        assert world.homes.ids["a"].fenced_by == ["b"]
        await world.restart()
        assert world.in_force() == {P0: ("b", 4)}


@in_virtual_time
async def test_claims_in_offsets_of_an_earlier_topic_do_not_count() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0, P2)
        for partition in (P0, P2):
            assert world.commit("a", partition, 7, 3) is E.NONE
        world.end("a")
        world.log.cut(0)
        world.world.topics.change("orders", topic_id=b"another topic id")
        world.world.log.refuse = E.KAFKA_STORAGE_ERROR
        await world.restart()
        assert world.in_force() == {P2: ("a", 3)}


@in_virtual_time
async def test_offsets_name_the_claim_on_their_partition() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        producer_id = world.homes.ids["a"].producer_id
        assert world.commit("a", P0, 7, 3) is E.NONE
        world.end("a", commit=False)
        world.world.commit({P0: 8, P1: 9})
        values = [decode_record_value(OffsetCommitValue, r.value or b"") for _, r in world.world.log.records if r.key]
        assert [(v.transactional_id, v.generation) for v in values] == [("a", 3), ("a", 3), (None, -1)]
        assert values[0].producer_id == producer_id
        versions = [record_version(r.value or b"") for _, r in world.world.log.records if r.key]
        assert versions == [4, 4, 4]


@in_virtual_time
async def test_claims_go_with_deleted_offsets_topics_and_groups() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0, P1, P2)
        assert world.world.coordinator.delete_offsets(GROUP, [P0]) == [E.NONE]
        assert world.in_force() == {P1: ("a", 3), P2: ("a", 3)}
        world.world.coordinator.on_topics_deleted(["payments"])
        assert world.in_force() == {P1: ("a", 3)}
        world.world.coordinator.delete_group(GROUP)
        assert world.in_force() == {}
        assert on_disk(world) == {}
        await world.restart()
        assert world.in_force() == {}
        assert await world.init_code("b", 1, P1) is E.NONE, "the group's generations begin anew"


@in_virtual_time
async def test_deleting_is_answered_when_the_claims_are_durably_gone() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        world.log.disk.flush_on_ask = False
        world.world.coordinator.delete_group(GROUP)
        settled = world.world.coordinator.settled(GROUP)
        assert settled is not None
        await asyncio.sleep(0.01)
        assert not settled.done()
        world.log.disk.flush()
        await settled


@in_virtual_time
async def test_a_group_whose_claims_cannot_be_dropped_is_not_deleted() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        world.world.commit({P0: 3})
        world.log.refuse = E.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError) as refused:
            world.world.coordinator.delete_group(GROUP)
        assert refused.value.code is E.NOT_COORDINATOR
        assert world.world.committed(P0) == {P0: 3}
        assert world.in_force() == {P0: ("a", 3)}


@in_virtual_time
async def test_claims_go_with_expired_ids() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        await world.init("b", 3, P1)
        world.claims.forget_transactional_id("a")
        assert world.in_force() == {P1: ("b", 3)}
        await world.restart()
        assert world.in_force() == {P1: ("b", 3)}


@in_virtual_time
async def test_claims_expire_with_their_group() -> None:
    async with GroupAwareWorld(offsets_retention_minutes=10) as world:
        await world.init("a", 3, P0)
        await asyncio.sleep(5 * 60)
        await world.world.coordinator._cleanup.expire()
        assert world.in_force() == {P0: ("a", 3)}
        await asyncio.sleep(6 * 60)
        await world.world.coordinator._cleanup.expire()
        assert world.in_force() == {}
        assert world.world.state() is None


@in_virtual_time
async def test_claims_expire_with_their_offset() -> None:
    async with GroupAwareWorld(offsets_retention_minutes=10) as world:
        await world.init("a", 3, P0)
        assert world.commit("a", P0, 1, 3) is E.NONE
        world.end("a")
        await asyncio.sleep(11 * 60)
        await world.world.coordinator._cleanup.expire()
        assert world.in_force() == {}


@in_virtual_time
async def test_a_start_drops_what_lost_its_reason_while_nobody_looked() -> None:
    async with GroupAwareWorld() as world:
        (joined,) = await world.world.stable_group(1)
        await world.init("a", joined.generation_id, P0, P2)
        await asyncio.sleep(1)
        world.log.refuse = E.KAFKA_STORAGE_ERROR
        world.world.leave(joined.member_id)
        assert world.in_force() != {}, "the drop could not be written"
        world.log.refuse = None
        await world.restart()
        assert world.in_force() == {}

        await world.init("a", joined.generation_id + 5, P0, P2)
        del world.world.topics.topics["payments"]
        await world.restart()
        assert world.in_force() == {P0: ("a", joined.generation_id + 5)}


@in_virtual_time
async def test_a_drop_that_failed_is_tried_again() -> None:
    async with GroupAwareWorld() as world:
        (joined,) = await world.world.stable_group(1)
        await world.init("a", joined.generation_id, P0)
        await asyncio.sleep(1)
        world.log.refuse = E.KAFKA_STORAGE_ERROR
        world.world.leave(joined.member_id)
        world.log.refuse = None
        await world.world.coordinator._cleanup.expire()
        assert world.in_force() == {}


@in_virtual_time
async def test_a_record_of_another_release_costs_its_group_only() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        await world.init("x", 3, P1, group="another")
        key = encode_assignment_key(GROUP, "b")
        world.log.append(world.log.partition_for(GROUP), [(key, b"\x00\x63?")], timestamp_ms=0)
        await world.restart()
        assert await world.init_code("a", 4, P0) is E.COORDINATOR_NOT_AVAILABLE
        assert await world.init_code("x", 4, P1, group="another") is E.NONE
        assert world.lines.said("claims_unreadable")[0]["group"] == GROUP


@in_virtual_time
async def test_below_the_level_claims_stay_on_disk_and_refuse_nobody() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        await world.homes.initialise("b", 0, None, cause=None, deadline=0)  # type: ignore[arg-type]
        world.world.group_aware = False
        await world.restart()
        assert world.in_force() == {}
        assert world.commit("b", P0, 1) is E.NONE
        world.end("b")
        world.world.group_aware = True
        await world.restart()
        assert world.in_force() == {P0: ("a", 3)}


@in_virtual_time
async def test_below_the_level_claims_go_with_their_group() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        world.world.commit({P0: 1})
        world.world.group_aware = False
        await world.restart()
        world.world.coordinator.delete_group(GROUP)
        world.world.group_aware = True
        await world.restart()
        assert world.in_force() == {}


@in_virtual_time
async def test_a_state_partition_that_is_read_late_counts_when_all_of_it_is_there() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 3, P0)
        await world.init("b", 4, P0)
        records = [record.batch() for _, record in world.log.records]
        world.log.records.clear()
        world.homes.unreadable.add(GROUP)
        await world.restart()
        assert world.in_force() == {}
        world.replay(records[:1], 0)
        await asyncio.sleep(0.2)
        assert world.in_force() == {}
        world.replay(records[1:], 0)
        world.homes.unreadable.clear()
        await asyncio.sleep(0.2)
        assert world.in_force() == {P0: ("b", 4)}


@pytest.mark.parametrize("partitions", [(P0,), ()], ids=["claimed", "generation only"])
@pytest.mark.parametrize("when", ["it is formed", "a start"])
@in_virtual_time
async def test_members_of_a_group_that_begins_anew_are_not_locked_out(
    partitions: tuple[tuple[str, int], ...], when: str
) -> None:
    """A claim of a life before, when generations were higher, came after the group was deleted."""
    async with GroupAwareWorld() as world:
        await world.init("before", 57, *partitions)
        if when == "a start":
            world.log.refuse = E.KAFKA_STORAGE_ERROR  # the drop is lost
        (joined,) = await world.world.stable_group(1)
        if when == "a start":
            world.log.refuse = None
            await world.restart()
        assert joined.generation_id < 57
        assert await world.init_code("now", joined.generation_id, P0) is E.NONE
        assert world.in_force() == {P0: ("now", joined.generation_id)}
        assert world.commit("now", P0, 1, joined.generation_id) is E.NONE
        assert world.commit("before", P0, 1, 57) is E.ILLEGAL_GENERATION
        assert world.commit("before", P0, 1) is CONCURRENT_PRODUCER_COMMIT


@in_virtual_time
async def test_claims_of_generations_that_have_been_stay_when_members_come() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", -1, P0)
        await world.init("b", 1, P1)
        (joined,) = await world.world.stable_group(1)
        assert joined.generation_id == 1
        assert world.in_force() == {P0: ("a", -1), P1: ("b", 1)}


@pytest.mark.parametrize("restarted", [False, True])
@in_virtual_time
async def test_a_producer_that_slept_until_its_group_was_empty_is_late(restarted: bool) -> None:
    """Claims went with the last member; the generation of a group that members have left is nobody's."""
    async with GroupAwareWorld() as world:
        (member,) = await world.world.stable_group(1)
        await world.init("sleeper", member.generation_id, P0)
        world.world.leave(member.member_id)
        assert world.in_force() == {}
        if restarted:
            await world.restart()
        assert world.commit("sleeper", P0, 1, member.generation_id) is E.ILLEGAL_GENERATION
        assert world.commit("sleeper", P0, 1) is E.NONE, "as any commit to a group without members"


@pytest.mark.parametrize("restarted", [False, True])
@in_virtual_time
async def test_claims_of_members_that_left_refuse_nobody_even_if_the_drop_cannot_be_written(restarted: bool) -> None:
    async with GroupAwareWorld() as world:
        (member,) = await world.world.stable_group(1)
        await world.init("a", member.generation_id, P0)
        await world.init("other", -1, group="another")
        await asyncio.sleep(1)
        world.log.refuse = E.KAFKA_STORAGE_ERROR
        world.world.leave(member.member_id)
        if restarted:
            await world.restart()
        assert world.commit("other", P0, 7) is E.NONE
        world.end("other")
        (member,) = await world.world.stable_group(1)
        assert world.commit("other", P0, 8) is E.NONE, "nor when there are members again"
        world.end("other")
        world.log.refuse = None
        await world.world.coordinator._cleanup.expire()
        assert world.in_force() == {}


@pytest.mark.parametrize("restarted", [False, True])
@in_virtual_time
async def test_claims_of_a_life_before_refuse_no_member_even_if_the_drop_cannot_be_written(restarted: bool) -> None:
    async with GroupAwareWorld() as world:
        await world.init("before", 57, P0)
        await world.init("now", -1, group="another")
        world.log.refuse = E.KAFKA_STORAGE_ERROR
        (member,) = await world.world.stable_group(1)
        if restarted:
            await world.restart()
        assert world.commit("now", P0, 7, member.generation_id) is E.NONE
