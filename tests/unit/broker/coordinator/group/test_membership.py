"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: who is told what, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.broker.scheduling.patient_timers import AFTER_STANDSTILL_S, PatientTimers
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.leave_group import MemberIdentity
from support.group_world import REBALANCE_MS, SESSION_MS, GroupWorld, in_virtual_time
from support.virtual_time import VirtualTimeLoop

PATIENT = 60_000
"""A session timeout that outlasts what a test does."""


# ---- joining


@in_virtual_time
async def test_a_member_without_id_is_given_one_and_joins_with_it() -> None:
    async with GroupWorld() as world:
        asked = await world.join(client_id="app")
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert asked.member_id.startswith("app-")
        joined = await world.join(asked.member_id)
        assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, asked.member_id)
        assert [member.member_id for member in joined.members] == [asked.member_id]
        assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
@pytest.mark.parametrize("instance", [False, True], ids=["dynamic", "static"])
def test_a_member_id_fits_into_a_string_of_the_protocol(letter: str, instance: bool) -> None:
    longest = letter * (32_767 // len(letter.encode()))

    @in_virtual_time
    async def join() -> None:
        async with GroupWorld() as world:
            name = longest if instance else None
            joined = await world.join(version=3, instance=name, client_id="app" if instance else longest)
            assert joined.member_id.startswith(letter * 5_000)
            assert len(joined.member_id.encode()) <= 32_767
            synced = await world.sync(joined, {joined.member_id: b"all"}, instance=name)
            assert synced.error_code == ErrorCode.NONE, "the group is stored"

    join()


@in_virtual_time
async def test_clients_before_version_4_join_at_once() -> None:
    async with GroupWorld() as world:
        joined = await world.join(version=3)
        assert (joined.error_code, joined.generation_id) == (0, 1)


@in_virtual_time
async def test_a_member_id_nobody_gave_is_refused() -> None:
    async with GroupWorld() as world:
        assert (await world.join("made-up")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await world.stable_group(1)
        assert (await world.join("made-up")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time
async def test_a_handed_out_member_id_expires() -> None:
    async with GroupWorld() as world:
        member = await world.new_member()
        await asyncio.sleep(SESSION_MS / 1000 + 0.1)
        assert (await world.join(member)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time
async def test_session_timeouts_outside_the_bounds_are_refused() -> None:
    async with GroupWorld(group_min_session_timeout_ms=5000, group_max_session_timeout_ms=9000) as world:
        for session_ms in (4999, 9001):
            assert (await world.join(session_ms=session_ms)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


@in_virtual_time
async def test_an_empty_group_id_is_refused() -> None:
    async with GroupWorld() as world:
        assert (await world.join(group="")).error_code == ErrorCode.INVALID_GROUP_ID


@in_virtual_time
async def test_the_first_rebalance_waits_for_more_members_as_long_as_they_come() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=3000) as world:
        first, second = await world.new_member(), await world.new_member()
        loop = asyncio.get_running_loop()
        began = loop.time()
        one = world.join(first)
        await asyncio.sleep(2)
        two = world.join(second)
        answers = await asyncio.gather(one, two)
        assert loop.time() - began == pytest.approx(6, abs=0.1)  # extended once, because a member came meanwhile
        assert {answer.generation_id for answer in answers} == {1}
        assert {len(answer.members) for answer in answers} == {0, 2}


@in_virtual_time
async def test_a_new_member_starts_a_rebalance_that_is_answered_together() -> None:
    async with GroupWorld() as world:
        (old,) = await world.stable_group(1)
        newcomer = world.join(await world.new_member())
        await asyncio.sleep(1)
        assert not newcomer.done()
        assert world.heartbeat(old) == ErrorCode.REBALANCE_IN_PROGRESS
        again = world.join(old.member_id)
        answers = await asyncio.gather(again, newcomer)
        assert [answer.generation_id for answer in answers] == [2, 2]
        assert {answer.leader for answer in answers} == {old.member_id}


@in_virtual_time
async def test_a_pending_member_id_holds_up_the_rebalance_until_it_expires() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2, session_ms=PATIENT)
        await world.new_member(session_ms=6000)  # never comes back
        again = [world.join(member.member_id, session_ms=PATIENT) for member in (leader, other)]
        await asyncio.sleep(5)
        assert not any(future.done() for future in again)
        await asyncio.sleep(2)
        assert [future.result().generation_id for future in again] == [2, 2]


@in_virtual_time
async def test_who_misses_the_rebalance_is_dropped() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2, session_ms=PATIENT, rebalance_ms=20_000)
        again = world.join(leader.member_id, session_ms=PATIENT, rebalance_ms=20_000)
        for _ in range(4):
            await asyncio.sleep(5.1)
            world.heartbeat(other)
        answer = again.result()
        assert [member.member_id for member in answer.members] == [leader.member_id]
        assert world.heartbeat(other) == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time
async def test_another_member_leads_when_the_leader_misses_the_rebalance() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2, session_ms=PATIENT, rebalance_ms=5000)
        newcomer = world.join(await world.new_member(rebalance_ms=5000), rebalance_ms=5000)
        again = world.join(other.member_id, session_ms=PATIENT, rebalance_ms=5000)
        await asyncio.sleep(5.1)
        assert again.result().leader == newcomer.result().leader == other.member_id
        assert world.heartbeat(leader) == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time
async def test_the_protocol_with_most_votes_among_the_common_ones_wins() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=1000) as world:
        offers = [
            [("sticky", b"1"), ("range", b"1"), ("only-mine", b"1")],
            [("range", b"2"), ("sticky", b"2")],
            [("range", b"3"), ("sticky", b"3")],
        ]
        answers = await asyncio.gather(
            *[world.join(await world.new_member(protocols=offer), protocols=offer) for offer in offers]
        )
        assert {answer.protocol_name for answer in answers} == {"range"}
        (leader,) = [answer for answer in answers if answer.members]
        assert sorted(member.metadata for member in leader.members) == [b"1", b"2", b"3"]


@in_virtual_time
async def test_a_member_without_a_common_protocol_is_refused() -> None:
    async with GroupWorld() as world:
        (leader,) = await world.stable_group(1)
        wrong: tuple[dict[str, Any], ...] = (
            {"protocols": [("other", b"")]},
            {"protocols": []},
            {"protocol_type": "connect"},
        )
        for options in wrong:
            answer = await world.join(**options)
            assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.heartbeat(leader) == ErrorCode.NONE


@in_virtual_time
async def test_an_empty_group_takes_any_protocol_type_but_needs_one() -> None:
    async with GroupWorld() as world:
        assert (await world.join(protocol_type="")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (await world.join(protocols=[])).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@in_virtual_time
async def test_a_full_group_refuses_newcomers_and_keeps_its_members() -> None:
    async with GroupWorld(group_max_size=1) as world:
        (leader,) = await world.stable_group(1)
        assert (await world.join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await world.join(leader.member_id)).generation_id == 2


@in_virtual_time
async def test_a_follower_that_repeats_its_join_is_told_the_generation_again() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        again = await world.join(other.member_id)
        assert (again.generation_id, again.members) == (1, [])
        assert world.heartbeat(leader) == ErrorCode.NONE


@in_virtual_time
async def test_a_follower_with_new_metadata_starts_a_rebalance() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        again = world.join(other.member_id, protocols=[("range", b"changed")])
        assert world.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
        answer = await world.join(leader.member_id)
        assert b"changed" in {member.metadata for member in answer.members}
        assert (await again).generation_id == 2


@in_virtual_time
async def test_a_member_that_asks_twice_gets_its_first_request_answered_too() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        first = world.join(leader.member_id)
        second = world.join(leader.member_id)
        assert (await first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        third = world.join(other.member_id)
        assert {answer.generation_id for answer in await asyncio.gather(second, third)} == {2}


# ---- syncing


@in_virtual_time
async def test_nobody_is_told_an_assignment_before_it_is_durable() -> None:
    async with GroupWorld(flush_on_ask=False) as world:
        joined = await world.join(version=3)
        synced = world.sync(joined, {joined.member_id: b"mine"})
        await asyncio.sleep(1)
        assert not synced.done()
        assert world.state() == "CompletingRebalance"
        world.log.disk.flush()
        assert (await synced).assignment == b"mine"
        assert world.state() == "Stable"


@in_virtual_time
async def test_followers_wait_for_the_leader() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=10) as world:
        members = [await world.new_member() for _ in range(2)]
        answers = await asyncio.gather(*[world.join(member) for member in members])
        leader = next(answer for answer in answers if answer.members)
        other = next(answer for answer in answers if not answer.members)
        waiting = world.sync(other)
        await asyncio.sleep(1)
        assert not waiting.done()
        await world.sync(leader, {other.member_id: b"o"})
        assert (await waiting).assignment == b"o"
        assert (await world.sync(leader)).assignment == b""  # the leader gave itself nothing


@in_virtual_time
async def test_a_leader_that_repeats_itself_before_the_disk_has_it_changes_nothing() -> None:
    async with GroupWorld(flush_on_ask=False) as world:
        joined = await world.join(version=3)
        first = world.sync(joined, {joined.member_id: b"first"})
        second = world.sync(joined, {joined.member_id: b"second"})
        assert (await first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        world.log.disk.flush()
        assert (await second).assignment == b"first"
        await world.restart()
        assert (await world.sync(joined)).assignment == b"first"


@in_virtual_time
async def test_an_assignment_that_cannot_be_stored_starts_a_rebalance() -> None:
    async with GroupWorld() as world:
        joined = await world.join(version=3)
        world.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
        assert (await world.sync(joined, {})).error_code == ErrorCode.NOT_COORDINATOR
        assert world.state() == "PreparingRebalance"
        world.log.refuse = None
        again = await world.join(joined.member_id)
        assert (await world.sync(again, {joined.member_id: b"x"})).assignment == b"x"


@in_virtual_time
async def test_a_flush_that_fails_starts_a_rebalance() -> None:
    async with GroupWorld(flush_on_ask=False) as world:
        joined = await world.join(version=3)
        synced = world.sync(joined, {})
        world.log.disk.fail()
        assert (await synced).error_code == ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_a_rebalance_overtakes_an_assignment_on_its_way_to_the_disk() -> None:
    async with GroupWorld(flush_on_ask=False) as world:
        joined = await world.join(version=3)
        synced = world.sync(joined, {joined.member_id: b"stale"})
        newcomer = world.join(version=3)
        assert (await synced).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        world.log.disk.flush()
        await asyncio.sleep(0.1)
        assert world.state() == "PreparingRebalance"
        again = await world.join(joined.member_id, version=3)
        assert again.generation_id == (await newcomer).generation_id == 2


@in_virtual_time
async def test_who_sends_no_sync_in_time_is_dropped() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=10) as world:
        options: Any = {"session_ms": PATIENT, "rebalance_ms": 8000}
        members = [await world.new_member(**options) for _ in range(2)]
        answers = await asyncio.gather(*[world.join(member, **options) for member in members])
        leader = next(answer for answer in answers if answer.members)
        silent = next(answer for answer in answers if not answer.members)
        assert (await world.sync(leader, {})).error_code == 0
        await asyncio.sleep(8.1)
        assert world.heartbeat(silent) == ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


@in_virtual_time
async def test_sync_is_checked() -> None:
    async with GroupWorld() as world:
        (leader,) = await world.stable_group(1)
        refusals: list[tuple[ErrorCode, dict[str, Any]]] = [
            (ErrorCode.UNKNOWN_MEMBER_ID, {"member_id": "other"}),
            (ErrorCode.ILLEGAL_GENERATION, {"generation_id": 7}),
            (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, {"protocol_name": "sticky"}),
            (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, {"protocol_type": "connect"}),
            (ErrorCode.UNKNOWN_MEMBER_ID, {"group": "nobody"}),
        ]
        for expected, fields in refusals:
            assert (await world.sync(leader, **fields)).error_code == expected
        world.join(await world.new_member())
        assert (await world.sync(leader)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


# ---- sessions


@in_virtual_time
async def test_heartbeats_keep_a_member_and_silence_ends_it() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        for _ in range(4):
            await asyncio.sleep(SESSION_MS / 1000 * 0.9)
            world.heartbeat(leader)
        assert world.heartbeat(other) == ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


@in_virtual_time
async def test_heartbeats_are_checked() -> None:
    async with GroupWorld() as world:
        (leader,) = await world.stable_group(1)
        assert world.heartbeat(leader, generation=0) == ErrorCode.ILLEGAL_GENERATION
        assert world.heartbeat(leader, group="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat(leader, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time
async def test_a_parked_join_keeps_a_member_alive_beyond_its_session() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2, rebalance_ms=50_000)
        again = world.join(leader.member_id, rebalance_ms=50_000)
        for _ in range(4):
            await asyncio.sleep(SESSION_MS / 1000 * 0.9)
            assert world.heartbeat(other) == ErrorCode.REBALANCE_IN_PROGRESS
        answers = await asyncio.gather(again, world.join(other.member_id))
        assert {answer.generation_id for answer in answers} == {2}


@in_virtual_time
async def test_a_new_member_whose_client_vanished_does_not_stay_for_ever() -> None:
    async with GroupWorld() as world:
        (leader,) = await world.stable_group(1, session_ms=1_000_000, rebalance_ms=1_000_000)
        newcomer = world.join(await world.new_member(), rebalance_ms=1_000_000)  # its connection breaks
        await asyncio.sleep(301)
        assert (await newcomer).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        again = await world.join(leader.member_id)
        assert [member.member_id for member in again.members] == [leader.member_id]


@in_virtual_time
async def test_the_last_member_gone_leaves_an_empty_group_of_a_new_generation() -> None:
    async with GroupWorld() as world:
        await world.stable_group(1)
        await asyncio.sleep(SESSION_MS / 1000 + 0.1)
        assert world.state() == "Empty"
        joined = await world.join(await world.new_member())
        assert joined.generation_id == 3


# ---- leaving


@in_virtual_time
async def test_leaving_starts_a_rebalance_at_once() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        assert world.leave(other.member_id) == [0]
        assert world.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
        assert world.heartbeat(other) == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await world.join(leader.member_id)).generation_id == 2


@in_virtual_time
async def test_a_batch_of_members_leaves_with_a_code_for_each() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        pending = await world.new_member()
        assert world.leave(other.member_id, "stranger", pending) == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
        assert world.leave("x", group="nobody") == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert (await world.join(pending)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await world.join(leader.member_id)).generation_id == 2


@in_virtual_time
async def test_a_member_id_that_leaves_before_it_joins_begins_no_rebalance() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        pending = await world.new_member()
        assert world.leave(pending) == [0]
        assert [world.heartbeat(leader), world.heartbeat(other)] == [0, 0]
        assert (await world.join(pending)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time
async def test_a_rebalance_that_waits_for_leaving_members_only_ends_with_one_generation() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        pending = await world.new_member()
        parked = world.join(leader.member_id)
        assert world.leave(other.member_id, pending) == [0, 0]
        joined = await parked
        assert joined.generation_id == 2
        assert (await world.sync(joined, {joined.member_id: b"all"})).assignment == b"all"
        assert world.heartbeat(joined) == 0


@in_virtual_time
async def test_a_member_that_leaves_while_it_joins_has_its_join_answered() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        parked = world.join(other.member_id, protocols=[("range", b"changed")])
        assert world.leave(other.member_id) == [0]
        assert (await parked).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await world.join(leader.member_id)).generation_id == 2


@in_virtual_time
async def test_everybody_leaving_during_the_initial_delay_ends_it() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=3000) as world:
        member = await world.new_member()
        parked = world.join(member)
        assert world.leave(member) == [0]
        assert (await parked).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert world.state() == "Empty"


# ---- static members (KIP-345)


async def _static_pair(world: GroupWorld, version: int = 9) -> tuple[dict[str, Any], dict[str, Any]]:
    """A stable group of two static members; (leader, follower) as {"join": …, "instance": …}."""
    answers = await asyncio.gather(*[world.join(instance=name, version=version) for name in ("a", "b")])
    joined: list[dict[str, Any]] = [
        {"join": answer, "instance": name} for answer, name in zip(answers, "ab", strict=True)
    ]
    leader = next(member for member in joined if member["join"].members)
    follower = next(member for member in joined if not member["join"].members)
    assignments = {member["join"].member_id: member["instance"].encode() for member in joined}
    await asyncio.gather(world.sync(leader["join"], assignments), world.sync(follower["join"]))
    return leader, follower


@in_virtual_time
async def test_a_static_member_comes_back_without_a_rebalance_and_fences_its_former_self() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=10) as world:
        leader, follower = await _static_pair(world)
        back = await world.join(instance=follower["instance"])
        assert back.error_code == 0
        assert back.generation_id == 1
        assert back.member_id != follower["join"].member_id
        assert not back.skip_assignment
        synced = await world.sync(back, instance=follower["instance"])
        assert synced.assignment == follower["instance"].encode()
        assert world.heartbeat(leader["join"]) == ErrorCode.NONE
        old = follower["join"]
        assert world.heartbeat(old, instance=follower["instance"]) == ErrorCode.FENCED_INSTANCE_ID
        assert (await world.sync(old, instance=follower["instance"])).error_code == ErrorCode.FENCED_INSTANCE_ID
        fenced = await world.join(old.member_id, instance=follower["instance"])
        assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


@in_virtual_time
async def test_a_static_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=10) as world:
        leader, _ = await _static_pair(world)
        back = await world.join(instance=leader["instance"])
        assert back.skip_assignment
        assert back.leader == back.member_id
        assert len(back.members) == 2


@in_virtual_time
async def test_a_static_leader_of_before_version_9_is_told_that_somebody_else_leads() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=10) as world:
        leader, _ = await _static_pair(world, version=8)
        back = await world.join(instance=leader["instance"], version=8)
        assert back.leader == leader["join"].member_id
        assert (back.members, back.skip_assignment) == ([], False)


@in_virtual_time
async def test_a_static_member_that_comes_back_with_another_protocol_starts_a_rebalance() -> None:
    async with GroupWorld() as world:
        joined = await world.join(instance="a", protocols=[("range", b""), ("sticky", b"")])
        await world.sync(joined, {})
        back = await world.join(instance="a", protocols=[("sticky", b"")])
        assert (back.generation_id, back.protocol_name) == (2, "sticky")


@in_virtual_time
async def test_a_static_take_over_is_answered_when_it_is_durable() -> None:
    async with GroupWorld(flush_on_ask=False) as world:
        joined = await world.join(instance="a")
        synced = world.sync(joined, {joined.member_id: b"mine"})
        world.log.disk.flush()
        await synced
        back = world.join(instance="a")
        await asyncio.sleep(1)
        assert not back.done()
        world.log.disk.flush()
        assert (await back).error_code == 0
        await world.restart(lost=True)
        assert (await world.sync(await back, instance="a")).assignment == b"mine"


@in_virtual_time
async def test_a_static_member_that_waited_for_the_disk_longer_than_its_session_is_watched_again() -> None:
    async with GroupWorld() as world:
        joined = await world.join(instance="a")
        await world.sync(joined, {joined.member_id: b"mine"}, instance="a")
        world.log.disk.flush_on_ask = False
        back = world.join(instance="a")
        await asyncio.sleep(3 * SESSION_MS / 1000)
        assert not back.done(), "the disk takes its time"
        world.log.disk.flush()
        assert (await back).error_code == 0
        await asyncio.sleep(0.9 * SESSION_MS / 1000)
        assert world.state() == "Stable", "its session begins with the answer"
        await asyncio.sleep(0.2 * SESSION_MS / 1000)
        assert world.state() == "Empty", "a member that never shows up again does not keep its partitions"


@in_virtual_time
async def test_a_static_take_over_that_cannot_be_stored_is_taken_back() -> None:
    async with GroupWorld() as world:
        joined = await world.join(instance="a")
        await world.sync(joined, {joined.member_id: b"mine"})
        world.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
        assert (await world.join(instance="a")).error_code == ErrorCode.NOT_COORDINATOR
        assert world.heartbeat(joined, instance="a") == ErrorCode.NONE
        assert (await world.sync(joined, instance="a")).assignment == b"mine"


@in_virtual_time
async def test_a_static_take_over_while_the_leader_assigns_starts_the_rebalance_anew() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=10) as world:
        answers = await asyncio.gather(*[world.join(instance=name) for name in ("a", "b")])
        waiting = world.sync(answers[1], instance="b")
        back = world.join(instance="a")
        assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        again = world.join(answers[1].member_id, instance="b")
        assert {answer.generation_id for answer in await asyncio.gather(back, again)} == {2}


@in_virtual_time
async def test_a_static_take_over_answers_the_parked_join_of_the_former_self() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=1000) as world:
        first = world.join(instance="a")
        second = world.join(instance="a")
        assert (await first).error_code == ErrorCode.FENCED_INSTANCE_ID
        assert (await second).error_code == 0


@in_virtual_time
async def test_a_full_group_takes_its_static_members_back() -> None:
    async with GroupWorld(group_max_size=2, group_initial_rebalance_delay_ms=10) as world:
        _, follower = await _static_pair(world)
        assert (await world.join(instance=follower["instance"])).error_code == 0
        assert (await world.join(instance="c")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@in_virtual_time
async def test_a_missing_static_member_keeps_its_place_in_a_rebalance() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=10) as world:
        options: Any = {"session_ms": PATIENT, "rebalance_ms": 5000}
        answers = await asyncio.gather(*[world.join(instance=name, **options) for name in ("a", "b")])
        leader = next(answer for answer in answers if answer.members)
        other = next(answer for answer in answers if not answer.members)
        await asyncio.gather(world.sync(leader, {}), world.sync(other))
        again = world.join(leader.member_id, instance="a" if leader is answers[0] else "b", **options)
        await asyncio.sleep(5.1)
        assert len((await again).members) == 2


def _count_turns(world: GroupWorld, most: int = 100) -> list[float]:
    """The times at which timers ran from now on. After `most` the loop is stopped: its clock might never move again."""
    turns: list[float] = []
    run_due = world.coordinator._timer.run_due

    def counted(*args: Any) -> None:
        turns.append(asyncio.get_running_loop().time())
        if len(turns) > most:
            asyncio.get_running_loop().stop()
        run_due(*args)

    world.coordinator._timer.run_due = counted  # type: ignore[method-assign, assignment]
    return turns


@in_virtual_time
async def test_a_group_of_silent_static_members_costs_no_turns_until_their_sessions_end() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        options: Any = {"session_ms": PATIENT, "rebalance_ms": 0}
        static = await world.join(instance="a", **options)
        await world.sync(static, {})
        dynamic = await world.new_member(rebalance_ms=0)
        joined = await world.join(dynamic, rebalance_ms=0)
        turns = _count_turns(world)
        assert world.leave(joined.member_id) == [0]
        await asyncio.sleep(PATIENT / 1000 + 1)
        assert world.state() == "Empty"
        assert len(turns) < 10


@in_virtual_time
async def test_the_first_static_member_to_join_again_ends_the_wait_of_a_group_of_silent_ones() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=10) as world:
        options: Any = {"session_ms": PATIENT, "rebalance_ms": 5000}
        answers = await asyncio.gather(*[world.join(instance=name, **options) for name in ("a", "b", "c")])
        leader = next(answer for answer in answers if answer.members)
        await asyncio.gather(*[world.sync(it, {} if it is leader else None) for it in answers])
        removed = answers.index(leader)
        turns = _count_turns(world)
        assert world.leave(leader.member_id) == [0]
        await asyncio.sleep(30)
        assert world.state() == "PreparingRebalance"
        assert len(turns) < 10
        back = world.join(instance="abc"[removed - 1], **options)
        await asyncio.sleep(4.9)
        assert not back.done(), "the others have the rebalance timeout to join as well"
        await asyncio.sleep(0.2)
        assert len((await back).members) == 2


@in_virtual_time
async def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=10) as world:
        leader, follower = await _static_pair(world)
        asked = [MemberIdentity("", follower["instance"]), MemberIdentity("", "nobody")]
        codes = [response.error_code for response in world.coordinator.leave("g", asked)]
        assert codes == [0, ErrorCode.UNKNOWN_MEMBER_ID]
        assert world.heartbeat(leader["join"]) == ErrorCode.REBALANCE_IN_PROGRESS


@in_virtual_time
async def test_a_fenced_static_member_cannot_leave_for_its_successor() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=10) as world:
        _, follower = await _static_pair(world)
        await world.join(instance=follower["instance"])
        asked = [MemberIdentity(follower["join"].member_id, follower["instance"])]
        (response,) = world.coordinator.leave("g", asked)
        assert response.error_code == ErrorCode.FENCED_INSTANCE_ID


# ---- restarts


@in_virtual_time
async def test_members_go_on_in_their_generation_after_a_restart() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        await world.restart(lost=True)
        assert world.state() == "Stable"
        for member in (leader, other):
            assert world.heartbeat(member) == ErrorCode.NONE
            assert (await world.sync(member)).assignment == member.member_id.encode()
        again = await asyncio.gather(world.join(leader.member_id), world.join(other.member_id))
        assert {answer.generation_id for answer in again} <= {1, 2}


@in_virtual_time
async def test_members_that_do_not_show_up_after_a_restart_expire() -> None:
    async with GroupWorld() as world:
        leader, other = await world.stable_group(2)
        await world.restart()
        await asyncio.sleep(SESSION_MS / 1000 * 0.6)
        assert world.heartbeat(leader) == ErrorCode.NONE
        await asyncio.sleep(SESSION_MS / 1000 * 0.6)
        assert world.heartbeat(other) == ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


@in_virtual_time
async def test_static_members_and_an_emptied_group_survive_a_restart() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=10) as world:
        leader, follower = await _static_pair(world)
        await world.restart()
        back = await world.join(instance=follower["instance"])
        assert (back.generation_id, back.error_code) == (1, 0)
        world.leave(leader["join"].member_id, back.member_id)
        await world.restart()
        assert world.state() == "Empty"
        assert (await world.join(await world.new_member())).generation_id == 3


@in_virtual_time
async def test_a_stopping_coordinator_answers_what_is_parked_and_refuses_the_rest() -> None:
    async with GroupWorld() as world:
        leader, _ = await world.stable_group(2)
        parked = world.join(leader.member_id)
        await world.coordinator.stop()
        assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
        assert (await world.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(KafkaError) as refused:
            world.commit({("orders", 0): 1})
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@in_virtual_time
async def test_a_coordinator_that_has_not_loaded_says_so() -> None:
    world = GroupWorld()
    assert (await world.join()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@in_virtual_time
async def test_members_whose_heartbeats_wait_stay_when_the_process_stood_still() -> None:
    async with GroupWorld() as world:
        (member,) = await world.stable_group(1)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop._jumping.now += 3 * SESSION_MS / 1000
        for _ in range(5):
            await asyncio.sleep(0)  # timers fire before the requests that wait are read
        assert world.heartbeat(member) == ErrorCode.NONE
        await asyncio.sleep(SESSION_MS / 2000)
        assert world.heartbeat(member) == ErrorCode.NONE
        loop._jumping.now += 3 * SESSION_MS / 1000
        await asyncio.sleep(AFTER_STANDSTILL_S + 0.1)
        assert world.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time
async def test_a_member_whose_heartbeat_waits_stays_when_the_process_stood_still_while_another_session_ended() -> None:
    async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
        (gone,) = await world.stable_group(1, group="gone", session_ms=SESSION_MS - 3000)
        (member,) = await world.stable_group(1)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        codes: list[ErrorCode] = []
        end_of_session = loop.time() + SESSION_MS / 1000
        loop.stand_still(end_of_session - 3, 4, lambda: codes.append(world.heartbeat(member)))
        await asyncio.sleep(SESSION_MS / 1000 + 2)
        assert codes == [ErrorCode.NONE]
        assert world.heartbeat(gone, group="gone") == ErrorCode.UNKNOWN_MEMBER_ID
        await asyncio.sleep(SESSION_MS / 1000)
        assert world.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_ends_at_one_wake_up_although_timers_fire_a_little_early(monkeypatch: pytest.MonkeyPatch) -> None:
    class EarlyLoop(VirtualTimeLoop):
        """A loop whose timers fire up to one ms early, like those of uvloop."""

        def call_at(self, when: float, *arguments: Any, **context: Any) -> asyncio.TimerHandle:  # type: ignore[override]
            return super().call_at(when - min(0.001, (when - self.time()) / 2), *arguments, **context)

    async def body() -> None:
        async with GroupWorld(group_initial_rebalance_delay_ms=0) as world:
            (member,) = await world.stable_group(1)
            wake_ups.clear()
            await asyncio.sleep(SESSION_MS / 1000 + 1)
            assert world.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID
            assert len(wake_ups) == 1

    wake_ups: list[float] = []
    call_at = PatientTimers.call_at

    def counted(timers: PatientTimers, at: float, read_clock: Any, action: Any) -> Any:
        def noted(time: float) -> None:
            wake_ups.append(time)
            action(time)

        return call_at(timers, at, read_clock, noted)

    monkeypatch.setattr(PatientTimers, "call_at", counted)
    with asyncio.Runner(loop_factory=EarlyLoop) as runner:
        runner.run(body())


@in_virtual_time
async def test_a_generation_begins_a_session_of_a_static_member_that_has_not_joined() -> None:
    async with GroupWorld() as world:
        long: dict[str, Any] = {"session_ms": 4 * REBALANCE_MS, "version": 3}
        static = await world.join(instance="i", **long)
        await world.sync(static, {static.member_id: b"all"}, instance="i")
        await asyncio.sleep(2.5 * REBALANCE_MS / 1000)
        other = await world.join(**long)
        await world.sync(other, {static.member_id: b"half", other.member_id: b"half"})
        await asyncio.sleep(0.6 * REBALANCE_MS / 1000)
        assert world.heartbeat(other) == ErrorCode.NONE
        back = await world.join(instance="i", **long)
        assert (back.error_code, back.generation_id) == (0, other.generation_id)
