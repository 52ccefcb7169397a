"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, expiry: what is committed, for whom, and what survives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from oncelog.broker.coordinator.group.classic_group import MAX_SUBSCRIBED
from oncelog.broker.coordinator.group.offsets import Claim
from oncelog.broker.coordinator.group.records import decode_key, decode_offset, group_key
from oncelog.protocol.codec import encode_versioned
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from support.batch_limit import limit_batches
from support.group_world import GroupWorld, in_virtual_time

O0, O1, P0 = ("orders", 0), ("orders", 1), ("payments", 0)
DAY_S = 24 * 3600


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(KafkaError) as caught:
        yield
    assert caught.value.code is code


# ---- who may commit


@in_virtual_time
async def test_anybody_may_commit_for_a_group_without_members() -> None:
    async with GroupWorld() as world:
        assert world.commit({O0: 5, P0: 7}) == [0, 0]
        assert world.committed() == {O0: 5, P0: 7}
        assert world.state() == "Empty"
        assert world.committed(O0, O1) == {O0: 5}
        assert world.committed(group="other") == {}


@in_virtual_time
async def test_only_members_of_the_generation_may_commit_while_there_are_members() -> None:
    async with GroupWorld() as world:
        (leader,) = await world.stable_group(1)
        assert world.commit({O0: 5}, member=leader) == [0]
        with refused(ErrorCode.UNKNOWN_MEMBER_ID):
            world.commit({O0: 6})
        leader.generation_id = 0
        with refused(ErrorCode.ILLEGAL_GENERATION):
            world.commit({O0: 6}, member=leader)
        assert world.committed() == {O0: 5}


@in_virtual_time
async def test_a_member_commits_during_the_joining_but_not_while_the_leader_assigns() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        parked = world.join(leader.member_id)
        assert world.commit({O0: 5}, member=other) == [0]
        again = await world.join(other.member_id)
        await parked
        with refused(ErrorCode.REBALANCE_IN_PROGRESS):
            world.commit({O0: 6}, member=again)


@in_virtual_time
async def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    async with GroupWorld() as world:
        (leader,) = await world.stable_group(1)
        for _ in range(3):
            await asyncio.sleep(9)
            assert world.commit({O0: 5}, member=leader) == [0]


@in_virtual_time
async def test_a_generation_of_a_group_that_is_not_known_is_refused_in_the_clients_words() -> None:
    async with GroupWorld() as world:
        (leader,) = await world.stable_group(1)
        with refused(ErrorCode.GROUP_ID_NOT_FOUND):
            world.commit({O0: 1}, member=leader, group="other")
        with refused(ErrorCode.ILLEGAL_GENERATION):
            world.commit({O0: 1}, member=leader, group="other", knows_missing_groups=False)
        with refused(ErrorCode.ILLEGAL_GENERATION):
            world.commit({O0: 1}, member=leader, group="other", producer=1)


@in_virtual_time
async def test_unknown_partitions_and_large_metadata_are_refused_by_themselves() -> None:
    async with GroupWorld(offset_metadata_max_bytes=10) as world:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert world.commit({O0: 1, ("nope", 0): 1, ("orders", 4): 1, ("orders", -1): 1}) == [0] + [unknown] * 3
        assert world.commit({O1: 1}, metadata="x" * 10) == [0]
        assert world.commit({O1: 2}, metadata="x" * 11) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert world.committed() == {O0: 1, O1: 1}


@in_virtual_time
async def test_metadata_and_leader_epoch_come_back() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1}, metadata="été")
        await world.restart()
        (found,) = world.coordinator.fetch_offsets("g", [O0])
        assert found.offset is not None
        assert (found.offset.metadata, found.offset.leader_epoch) == ("été", 0)


# ---- durability


@in_virtual_time
async def test_a_commit_is_settled_when_the_disk_has_it_and_readers_wait_for_that_too() -> None:
    async with GroupWorld(flush_on_ask=False) as world:
        world.commit({O0: 5})
        settled = world.coordinator.settled("g")
        assert settled is not None
        await asyncio.sleep(1)
        assert not settled.done()
        reader = world.coordinator.settled("g")
        world.log.disk.flush()
        await settled
        assert reader is not None
        await reader
        assert world.coordinator.settled("g") is None


@in_virtual_time
async def test_a_disk_that_takes_too_long_is_told_to_the_client() -> None:
    async with GroupWorld(flush_on_ask=False, offsets_commit_timeout_ms=5000) as world:
        world.commit({O0: 5})
        settled = world.coordinator.settled("g")
        assert settled is not None
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await settled


@in_virtual_time
async def test_a_failed_flush_is_told_as_not_coordinator() -> None:
    async with GroupWorld(flush_on_ask=False) as world:
        world.commit({O0: 5})
        settled = world.coordinator.settled("g")
        assert settled is not None
        world.log.disk.fail()
        with refused(ErrorCode.NOT_COORDINATOR):
            await settled


@in_virtual_time
async def test_a_commit_that_cannot_be_appended_changes_nothing() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 5})
        world.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
        with refused(ErrorCode.NOT_COORDINATOR):
            world.commit({O0: 6})
        assert world.committed() == {O0: 5}


@in_virtual_time
async def test_a_group_that_was_never_written_has_nothing_to_wait_for() -> None:
    async with GroupWorld(flush_on_ask=False) as world:
        world.coordinator.fetch_offsets("never", None)
        assert world.coordinator.settled("never") is None


# ---- transactions


@in_virtual_time
async def test_offsets_of_a_transaction_count_when_it_commits() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1})
        assert world.commit({O0: 5, O1: 6}, producer=7) == [0, 0]
        assert world.committed() == {O0: 1}
        assert world.pending(O0, O1, P0) == {O0, O1}
        world.end(7, commit=True)
        assert world.committed() == {O0: 5, O1: 6}
        assert world.pending(O0, O1) == set()


@in_virtual_time
async def test_offsets_of_an_aborted_transaction_leave_no_trace() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1})
        world.commit({O0: 5, O1: 6}, producer=7)
        world.end(7, commit=False)
        assert world.committed() == {O0: 1}
        assert world.pending(O0, O1) == set()


@in_virtual_time
async def test_a_marker_settles_its_own_producer_only() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 5}, producer=7)
        world.commit({O0: 6}, producer=8)
        world.end(7, commit=True)
        assert world.pending(O0) == {O0}
        assert world.committed() == {O0: 5}
        world.end(8, commit=False)
        assert world.committed() == {O0: 5}


@in_virtual_time
async def test_a_marker_settles_its_own_partition_of_the_offsets_topic_only() -> None:
    async with GroupWorld() as world:
        names = [f"group-{number}" for number in range(20)]
        here = names[0]
        there = next(n for n in names if world.coordinator.partition_for(n) != world.coordinator.partition_for(here))
        for name in (here, there):
            world.commit({O0: 5}, producer=7, group=name)
        world.end(7, commit=True, group=here)
        assert world.committed(group=here) == {O0: 5}
        assert world.committed(group=there) == {}
        assert world.pending(O0, group=there) == {O0}


@in_virtual_time
async def test_a_decided_offset_is_told_when_its_marker_is_durable() -> None:
    async with GroupWorld(flush_on_ask=False) as world:
        world.commit({O0: 5}, producer=7)
        world.log.disk.flush()
        world.end(7, commit=True)
        reader = world.coordinator.settled("g")
        assert reader is not None
        world.log.disk.flush()
        await reader
        assert world.committed() == {O0: 5}


@in_virtual_time
async def test_a_repeated_marker_does_not_settle_the_next_transaction() -> None:
    async with GroupWorld() as world:
        partition = world.coordinator.partition_for("g")
        late = world.log.append_marker(partition, 7, True)
        world.commit({O0: 5}, producer=7)
        world.coordinator.complete_transaction(partition, 7, 0, True, late)
        assert world.committed() == {}
        assert world.pending(O0) == {O0}
        await world.restart()
        assert world.pending(O0) == {O0}


@in_virtual_time
async def test_the_later_record_wins_whatever_ends_first() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 5}, producer=7)
        world.commit({O0: 9})
        world.end(7, commit=True)
        assert world.committed() == {O0: 9}
        await world.restart()
        assert world.committed() == {O0: 9}


@in_virtual_time
async def test_pending_offsets_and_decided_transactions_survive_a_restart() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1})
        world.commit({O0: 5}, producer=7)
        world.end(7, commit=True)
        world.commit({O1: 6}, producer=8)
        world.end(8, commit=False)
        world.commit({P0: 7}, producer=9)
        await world.restart()
        assert world.committed() == {O0: 5}
        assert world.pending(O0, O1, P0) == {P0}
        world.end(9, commit=True)
        assert world.committed() == {O0: 5, P0: 7}


@in_virtual_time
async def test_a_transaction_of_members_is_fenced_by_generation_and_member() -> None:
    async with GroupWorld() as world:
        (leader,) = await world.stable_group(1)
        assert world.commit({O0: 5}, member=leader, producer=7) == [0]
        leader.generation_id = 0
        with refused(ErrorCode.ILLEGAL_GENERATION):
            world.commit({O0: 6}, member=leader, producer=7)
        leader.generation_id, leader.member_id = 1, "stranger"
        with refused(ErrorCode.UNKNOWN_MEMBER_ID):
            world.commit({O0: 6}, member=leader, producer=7)


@in_virtual_time
async def test_a_transaction_without_member_and_generation_is_let_in_as_before_kip_447() -> None:
    async with GroupWorld() as world:
        await world.stable_group(1)
        assert world.commit({O0: 5}, producer=7) == [0]


@in_virtual_time
async def test_a_transaction_may_commit_while_a_rebalance_is_going_on() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        parked = world.join(leader.member_id)
        assert world.commit({O0: 5}, member=other, producer=7) == [0]
        again = await world.join(other.member_id)
        assert world.state() == "CompletingRebalance"
        assert world.commit({O0: 6}, member=again, producer=7) == [0]
        await parked


# ---- deletion


@in_virtual_time
async def test_deleted_offsets_are_gone_after_a_restart_too_and_take_pending_ones_along() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1, O1: 2, P0: 3})
        world.commit({P0: 4}, producer=7)
        assert world.coordinator.delete_offsets("g", [O0, P0, ("nope", 0)]) == [
            0,
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        world.end(7, commit=True)
        assert world.committed() == {O1: 2}
        await world.restart()
        assert world.committed() == {O1: 2}


def subscription(topics: list[str]) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics), 0)


@in_virtual_time
async def test_offsets_of_subscribed_topics_are_kept_while_there_are_members() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1, P0: 2})
        (leader,) = await world.stable_group(1, protocols=[("range", subscription(["orders"]))])
        codes = world.coordinator.delete_offsets("g", [O0, P0])
        assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
        assert world.committed() == {O0: 1}
        world.leave(leader.member_id)
        assert world.coordinator.delete_offsets("g", [O0]) == [0]


@in_virtual_time
async def test_a_subscription_that_claims_a_newer_version_than_it_has_is_read() -> None:
    """kafkajs claims version 1, but writes only the fields of version 0."""
    async with GroupWorld() as world:
        world.commit({O0: 1, P0: 2})
        protocols = [("RoundRobinAssigner", b"\0\1" + subscription(["orders"])[2:])]
        await world.stable_group(1, protocols=protocols)
        codes = world.coordinator.delete_offsets("g", [O0, P0])
        assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]


@in_virtual_time
async def test_members_that_subscribe_to_more_topics_than_are_read_keep_all_offsets() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1, P0: 2})
        members = [await world.new_member() for _ in range(2)]
        counts = [MAX_SUBSCRIBED // 2, MAX_SUBSCRIBED // 2 + 1]
        joined = await asyncio.gather(
            *[
                world.join(member, protocols=[("range", subscription(["orders"] * count))])
                for member, count in zip(members, counts, strict=True)
            ]
        )
        assert [answer.error_code for answer in joined] == [0, 0]
        group = world.coordinator.group("g")
        assert group is not None
        assert group.subscribed_topics is None
        codes = world.coordinator.delete_offsets("g", [O0, P0])
        assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2
        world.leave(*members)
        assert world.coordinator.delete_offsets("g", [O0, P0]) == [0, 0]


@in_virtual_time
async def test_the_same_subscription_of_many_members_is_read_once() -> None:
    async with GroupWorld() as world:
        many = [("range", subscription([f"topic-{number}" for number in range(1000)] + ["orders"]))]
        await asyncio.gather(*[world.join(version=3, protocols=many) for _ in range(200)])
        group = world.coordinator.group("g")
        assert group is not None
        assert group.is_subscribed_to("orders")
        assert not group.is_subscribed_to("payments")


@in_virtual_time
async def test_offsets_of_other_kinds_of_groups_are_kept_while_there_are_members() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1})
        await world.stable_group(1, protocol_type="connect")
        with refused(ErrorCode.NON_EMPTY_GROUP):
            world.coordinator.delete_offsets("g", [O0])
        with refused(ErrorCode.GROUP_ID_NOT_FOUND):
            world.coordinator.delete_offsets("nobody", [O0])


@in_virtual_time
async def test_a_group_is_deleted_with_its_offsets_for_good() -> None:
    async with GroupWorld() as world:
        (leader,) = await world.stable_group(1)
        world.commit({O0: 1}, member=leader)
        with refused(ErrorCode.NON_EMPTY_GROUP):
            world.coordinator.delete_group("g")
        world.leave(leader.member_id)
        world.commit({P0: 4}, producer=7)
        world.coordinator.delete_group("g")
        world.end(7, commit=True)
        for _ in range(2):
            assert (world.state(), world.committed()) == (None, {})
            await world.restart()
        with refused(ErrorCode.GROUP_ID_NOT_FOUND):
            world.coordinator.delete_group("g")


@in_virtual_time
async def test_a_group_with_the_longest_name_is_deleted_with_all_its_offsets() -> None:
    async with GroupWorld(group_id_max_bytes=32_767) as world:
        world.topics.change("orders", partitions=100)
        name = "g" * 32_767
        for index in range(100):
            world.commit({("orders", index): 1}, group=name)
        limit_batches(world.log)
        world.coordinator.delete_group(name)
        assert world.committed(group=name) == {}


@in_virtual_time
async def test_a_deleted_topics_offsets_go_with_it() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1, P0: 2})
        world.commit({O1: 3}, producer=7)
        world.coordinator.on_topics_deleted(["orders"])
        world.end(7, commit=True)
        assert world.committed() == {P0: 2}
        await world.restart()
        assert world.committed() == {P0: 2}


@in_virtual_time
async def test_offsets_of_a_topic_that_was_replaced_while_nobody_looked_are_not_believed() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1, P0: 2})
        del world.topics.topics["payments"]
        world.topics.change("orders", topic_id=b"another topic id")
        await world.restart()
        assert world.committed() == {}


@in_virtual_time
async def test_pending_offsets_of_a_topic_that_was_replaced_while_nobody_looked_are_never_committed() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 7, P0: 3}, producer=7)
        world.topics.change("orders", topic_id=b"another topic id")
        world.commit({O0: 1})
        world.commit({O1: 2}, producer=8)
        await world.restart()
        assert world.pending(O0, O1, P0) == {O1, P0}
        world.end(7, commit=True)
        world.end(8, commit=True)
        for _ in range(2):
            assert world.committed() == {O0: 1, O1: 2, P0: 3}
            await world.restart()


@in_virtual_time
async def test_a_deletion_is_not_done_while_the_topics_offsets_cannot_be_removed() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1, P0: 2})
        world.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
        with refused(ErrorCode.NOT_COORDINATOR):
            world.coordinator.on_topics_deleted(["orders"])
        world.log.refuse = None
        world.coordinator.on_topics_deleted(["orders"])
        assert world.committed() == {P0: 2}


# ---- expiry


@in_virtual_time
async def test_offsets_of_a_group_that_cannot_be_understood_do_not_expire() -> None:
    async with GroupWorld(offsets_retention_minutes=60) as world:
        world.commit({O0: 1})
        partition = world.coordinator.partition_for("g")
        world.log.append(partition, [(group_key("g"), b"\x7f\xff")], timestamp_ms=0)
        await world.restart()
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            world.committed()
        await asyncio.sleep(DAY_S)
        world.log.append(partition, [(group_key("g"), None)], timestamp_ms=0)
        await world.restart()
        assert world.committed() == {O0: 1}


@in_virtual_time
async def test_offsets_of_a_simple_group_expire_from_their_commit_on_and_the_group_with_them() -> None:
    async with GroupWorld(offsets_retention_minutes=24 * 60) as world:
        world.commit({O0: 1})
        await asyncio.sleep(DAY_S / 2)
        world.commit({O1: 2})
        await asyncio.sleep(DAY_S * 0.51)
        assert world.committed() == {O1: 2}
        await asyncio.sleep(DAY_S * 0.51)
        assert world.state() is None
        await world.restart()
        assert (world.state(), world.committed()) == (None, {})


@in_virtual_time
async def test_offsets_of_an_active_group_do_not_expire_and_then_count_from_its_end() -> None:
    async with GroupWorld(offsets_retention_minutes=24 * 60) as world:
        (leader,) = await world.stable_group(1, session_ms=1_800_000)
        world.commit({O0: 1}, member=leader)
        for _ in range(200):
            await asyncio.sleep(900)
            world.heartbeat(leader)
        assert world.committed() == {O0: 1}
        world.leave(leader.member_id)
        await asyncio.sleep(DAY_S * 0.9)
        assert world.committed() == {O0: 1}
        await asyncio.sleep(DAY_S * 0.2)
        assert world.state() is None


@in_virtual_time
async def test_an_old_clients_own_retention_counts() -> None:
    async with GroupWorld(offsets_retention_minutes=7 * 24 * 60) as world:
        world.commit({O0: 1}, retention_ms=3_600_000)
        world.commit({O1: 2})
        await world.restart()
        await asyncio.sleep(2 * 3600)
        assert world.committed() == {O1: 2}


@in_virtual_time
async def test_nothing_expires_under_a_transaction_that_is_not_decided() -> None:
    async with GroupWorld(offsets_retention_minutes=60) as world:
        world.commit({O0: 1})
        world.commit({O0: 5}, producer=7)
        world.commit({O0: 6}, producer=8, group="only-pending")
        await asyncio.sleep(DAY_S)
        assert world.committed() == {O0: 1}
        assert world.state("only-pending") == "Empty"
        world.end(7, commit=False)
        await asyncio.sleep(DAY_S)
        assert world.state() is None


@in_virtual_time
async def test_a_group_of_which_nothing_is_left_is_forgotten() -> None:
    async with GroupWorld() as world:
        await world.new_member()  # asked for a member id and never came back
        assert world.state() == "Empty"
        await asyncio.sleep(3600)
        assert world.state() is None


# ---- what is on disk


@in_virtual_time
async def test_a_group_whose_record_cannot_be_read_is_not_served_and_others_are() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1})
        world.commit({O0: 2}, group="other")
        for _, record in world.log.records:
            if record.value is not None and decode_key(record.key or b"").group == "g":  # type: ignore[union-attr]
                record.value = b"\x00\x63" + record.value[2:]  # a version nobody knows yet
        await world.restart()
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            world.committed()
        assert world.committed(group="other") == {O0: 2}


@in_virtual_time
@pytest.mark.parametrize("bad", range(2))
async def test_groups_are_listed_without_those_of_a_partition_that_cannot_be_read(
    bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with GroupWorld() as world:
        names = {world.coordinator.partition_for(name): name for name in map(str, range(30))}
        for name in names.values():
            world.commit({O0: 1}, group=name)
        replay = world.log.replay

        def failing(partition: int) -> Iterator[bytes]:
            if partition == bad:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "offline")
            return replay(partition)

        monkeypatch.setattr(world.log, "replay", failing)
        await world.restart()
        listed = {group.group_id for group in world.coordinator.groups()}
        assert listed == {name for partition, name in names.items() if partition != bad}
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            world.committed(group=names[bad])


@in_virtual_time
async def test_a_record_that_was_replaced_or_aborted_cannot_make_a_group_unreadable() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1})
        world.commit({O1: 1}, producer=7)
        for _, record in world.log.records:
            assert record.value is not None
            record.value = b"\x00\x63" + record.value[2:]
        world.end(7, commit=False)
        world.commit({O0: 2})
        await world.restart()
        assert world.committed() == {O0: 2}


@in_virtual_time
async def test_a_tombstone_removes_an_offset_that_was_committed_under_the_older_kind_of_key() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1, O1: 1})
        _, record = world.log.records[0]
        assert record.key is not None
        older = b"\x00\x00" + record.key[2:]
        record.key = older
        world.log.append(world.log.records[0][0], [(b"\x00\x01" + older[2:], None)], timestamp_ms=0)
        await world.restart()
        assert world.committed() == {O1: 1}


@in_virtual_time
async def test_records_of_other_kinds_are_left_alone() -> None:
    async with GroupWorld() as world:
        partition = world.coordinator.partition_for("g")
        world.log.append(partition, [(b"\x00\x03\x00\x01g", b"\x00\x00rest"), (b"\x7f\xff", None)], timestamp_ms=0)
        world.commit({O0: 1})
        await world.restart()
        assert world.committed() == {O0: 1}
        assert len(world.log.records) == 3


@in_virtual_time
async def test_a_partition_that_cannot_be_replayed_keeps_its_groups_from_being_believed_empty() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1})
        broken = world.coordinator.partition_for("g")
        replay = world.log.replay

        def fail(partition: int):  # type: ignore[no-untyped-def]
            if partition == broken:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "damaged")
            return replay(partition)

        world.log.replay = fail  # type: ignore[method-assign]
        await world.restart()
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            world.committed()
        assert (await world.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@in_virtual_time
async def test_compaction_that_keeps_the_newest_of_each_key_changes_nothing() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1})
        world.commit({O0: 5}, producer=7)
        world.end(7, commit=True)
        world.commit({O1: 1})
        world.commit({O1: 2})
        newest = {record.key: record.offset for _, record in world.log.records if record.commit is None}
        world.log.compact(lambda record: record.commit is None and newest[record.key] != record.offset)
        await world.restart()
        assert world.committed() == {O0: 5, O1: 2}


@in_virtual_time
async def test_a_claim_on_disk_is_kept_by_plain_commits() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1})
        store = world.coordinator._offsets
        value = store.get("g", O0)
        assert value is not None
        claim = Claim(7, "app-1", 3)
        world.coordinator._log.put_offsets("g", [(O0, value._replace(claim=claim))])
        await world.restart()
        world.commit({O0: 2}, retention_ms=5)
        await world.restart()
        kept = world.coordinator._offsets.get("g", O0)
        assert kept is not None
        assert kept.claim is not None
        assert (kept.committed_offset, kept.claim[:3]) == (2, claim[:3])


@in_virtual_time
async def test_offset_records_have_the_lowest_version_that_carries_them() -> None:
    async with GroupWorld() as world:
        world.commit({O0: 1}, retention_ms=1000)
        world.commit({O1: 1})
        versions = [int.from_bytes((record.value or b"")[:2], "big") for _, record in world.log.records]
        assert versions == [1, 4]
        assert decode_offset(world.log.records[1][1].value or b"").topic_id == world.topics.topics["orders"].topic_id
