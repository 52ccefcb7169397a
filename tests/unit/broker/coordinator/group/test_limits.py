"""What groups may take of the broker's memory and time, and what refused requests leave behind: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

import pytest
from oncelog.broker.coordinator.group import cleanup, group_log
from oncelog.broker.coordinator.group.classic_group import ClassicGroup
from oncelog.broker.coordinator.group.records import encode_group
from oncelog.broker.coordinator.group.timer import DeadlineTimer
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.join_group import JoinGroupResponse
from oncelog.protocol.messages.sync_group import SyncGroupResponse
from support.batch_limit import MAX_MESSAGE_BYTES, limit_batches
from support.group_world import REBALANCE_MS, SESSION_MS, GroupWorld, in_virtual_time
from support.virtual_time import LoopClock

E = ErrorCode


def groups(world: GroupWorld) -> set[str]:
    return {group.group_id for group in world.coordinator.groups()}


def counted(world: GroupWorld) -> tuple[int, int]:
    """What is counted, and what it should be."""
    footprint = world.coordinator._membership._footprint
    sizes = [group.size_of(member) for group in world.coordinator.groups() for member in group.members.values()]
    return footprint.member_bytes, sum(sizes)


@in_virtual_time
async def test_refused_joins_leave_no_group() -> None:
    async with GroupWorld() as world:
        for refused in (
            world.join(group="a", protocol_type=""),
            world.join(group="b", protocols=[]),
            world.join("made up", group="c"),
            world.join(group="d", session_ms=1),
            world.join(group=""),
        ):
            assert (await refused).error_code not in (E.NONE, E.MEMBER_ID_REQUIRED)
        assert groups(world) == set()
        assert not world.log.records


@in_virtual_time
async def test_member_id_that_nobody_joins_with_leaves_no_group() -> None:
    async with GroupWorld() as world:
        await world.new_member(group="forgotten")
        left = await world.new_member(group="left")
        world.commit({("orders", 0): 5}, group="with offsets")
        await world.new_member(group="with offsets")
        assert groups(world) == {"forgotten", "left", "with offsets"}
        world.leave(left, group="left")
        assert groups(world) == {"forgotten", "with offsets"}
        await asyncio.sleep(SESSION_MS / 1000 + 1)
        assert groups(world) == {"with offsets"}
        assert len(world.log.records) == 1, "what was never written needs no tombstone"


@in_virtual_time
async def test_oldest_member_id_gives_way_when_too_many_are_handed_out() -> None:
    async with GroupWorld(group_pending_members_max_bytes=100_000) as world:
        first = await world.new_member(group="first")
        for number in range(200):
            await world.new_member(group=f"flood-{number}", client_id="x" * 10_000)
        assert len(groups(world)) < 10
        assert (await world.join(first, group="first")).error_code == E.UNKNOWN_MEMBER_ID
        newest = await world.new_member(group="newest")
        assert (await world.join(newest, group="newest")).error_code == E.NONE


@in_virtual_time
async def test_members_take_so_much_memory_and_no_more() -> None:
    large = [("range", b"x" * 40_000)]
    async with GroupWorld(group_members_max_bytes=100_000) as world:
        joined = await world.stable_group(1, group="small", session_ms=60_000)
        members = [await world.join(group=f"large-{number}", protocols=large, version=3) for number in range(10)]
        codes = [member.error_code for member in members]
        assert codes == [E.NONE] * 2 + [E.GROUP_MAX_SIZE_REACHED] * 8
        assert len(groups(world)) == 3
        assert world.heartbeat(joined[0], group="small") is E.NONE
        greedy = await world.join(joined[0].member_id, group="small", protocols=large * 2, session_ms=60_000)
        assert greedy.error_code == E.GROUP_MAX_SIZE_REACHED
        assigned = await world.sync(members[0], {members[0].member_id: b"y" * 60_000}, group="large-0")
        assert assigned.error_code == E.GROUP_MAX_SIZE_REACHED
        world.leave(members[0].member_id, group="large-0")
        assert (await world.join(group="large-9", protocols=large, version=3)).error_code == E.NONE
        assert counted(world)[0] == counted(world)[1]


@pytest.mark.parametrize("long", ["group", "protocol_type"])
@in_virtual_time
async def test_long_names_of_groups_and_protocols_count(long: str) -> None:
    """Ids of groups were looked at when a member joined, but not added to what its group takes."""
    async with GroupWorld(group_members_max_bytes=100_000, group_id_max_bytes=32_767) as world:
        names = {"group": "g", "protocol_type": "consumer"}
        codes = []
        for number in range(5):
            given = {**names, "group": f"g{number}", long: f"{number}" * 30_000}
            codes.append((await world.join(**given, version=3)).error_code)  # type: ignore[arg-type]
        assert codes == [E.NONE] * 3 + [E.GROUP_MAX_SIZE_REACHED] * 2
        assert counted(world)[0] == counted(world)[1] > 90_000
        await world.restart()
        assert (await world.join(group="h" * 30_000, version=3)).error_code == E.NONE, "no group had been stored"


async def refused_assignment(
    world: GroupWorld,
) -> tuple[JoinGroupResponse, JoinGroupResponse, asyncio.Future[SyncGroupResponse]]:
    """Let a leader be refused while the other member is parked. Return leader, follower, and the parked response."""
    members = [await world.new_member() for _ in range(2)]
    joined = await asyncio.gather(*[world.join(member) for member in members])
    leader, follower = sorted(joined, key=lambda answer: answer.leader != answer.member_id)
    parked = world.sync(follower)
    refused = await world.sync(leader, {leader.member_id: b"x" * 30_000})
    assert refused.error_code == E.GROUP_MAX_SIZE_REACHED
    return leader, follower, parked


@in_virtual_time
async def test_refused_assignment_changes_nothing() -> None:
    async with GroupWorld(group_members_max_bytes=20_000) as world:
        leader, follower, parked = await refused_assignment(world)
        assert world.state() == "CompletingRebalance"
        assert not parked.done()
        accepted = await world.sync(leader, {leader.member_id: b"l", follower.member_id: b"f"})
        assert (accepted.assignment, (await parked).assignment) == (b"l", b"f")


@in_virtual_time
async def test_leader_whose_assignment_is_refused_holds_the_others_up_only_until_the_rebalance_timeout() -> None:
    async with GroupWorld(group_members_max_bytes=20_000) as world:
        leader, follower, parked = await refused_assignment(world)
        for _ in range(REBALANCE_MS // 1000 + 1):
            world.heartbeat(leader)
            await asyncio.sleep(1)
        assert parked.done()
        assert (await parked).error_code == E.REBALANCE_IN_PROGRESS
        assert world.heartbeat(leader) is E.UNKNOWN_MEMBER_ID
        again = await world.join(follower.member_id)
        assert (again.generation_id, again.leader) == (2, follower.member_id)


@in_virtual_time
async def test_group_that_does_not_fit_into_a_record_is_refused_before_it_is_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[str] = []

    def encode(group: ClassicGroup, assignments: Mapping[str, bytes]) -> bytes:
        encoded.append(group.group_id)
        return encode_group(group, assignments)

    monkeypatch.setattr(group_log, "encode_group", encode)
    async with GroupWorld() as world:
        limit_batches(world.log)
        for total, code in ((MAX_MESSAGE_BYTES, E.UNKNOWN_SERVER_ERROR), (MAX_MESSAGE_BYTES - 1_000, E.NONE)):
            members = [await world.new_member() for _ in range(2)]
            joined = await asyncio.gather(*[world.join(member) for member in members])
            leader, follower = sorted(joined, key=lambda answer: answer.leader != answer.member_id)
            parked = world.sync(follower)
            synced = world.sync(leader, dict.fromkeys(members, b"x" * (total // 2)))
            assert [(await answer).error_code for answer in (synced, parked)] == [code, code]
            assert bool(encoded) == (code is E.NONE)
            assert world.state() == ("Stable" if code is E.NONE else "PreparingRebalance")
            assert world.leave(*members) == [0, 0]


@in_virtual_time
async def test_the_default_limit_has_room_for_a_thousand_members_of_100_kb() -> None:
    async with GroupWorld() as world:
        subscription = [("range", b"x" * 100_000)]
        joins = [world.join(protocols=subscription, version=3) for _ in range(1000)]
        joined = await asyncio.gather(*joins)
        assert {it.error_code for it in joined} == {E.NONE}
        leader = next(it for it in joined if it.members)
        assert len(leader.members) == 1000
        synced = [
            world.sync(it, {m.member_id: b"y" * 10_000 for m in joined} if it is leader else None) for it in joined
        ]
        assert {it.error_code for it in await asyncio.gather(*synced)} == {E.NONE}


@in_virtual_time
async def test_memory_of_a_member_grows_with_the_number_of_its_protocols() -> None:
    async with GroupWorld(group_members_max_bytes=100_000) as world:
        many = [(f"p{number}", b"") for number in range(900)]
        refused = await world.join(protocols=many, version=3)
        assert refused.error_code == E.GROUP_MAX_SIZE_REACHED
        assert (await world.join(protocols=many[:9], version=3)).error_code == E.NONE
        assert counted(world)[0] == counted(world)[1]


@in_virtual_time
async def test_groups_are_counted() -> None:
    async with GroupWorld(group_max_groups=2) as world:
        world.commit({("orders", 0): 5}, group="a")
        await world.new_member(group="b")
        assert (await world.join(group="c")).error_code == E.GROUP_MAX_SIZE_REACHED
        with pytest.raises(KafkaError) as caught:
            world.commit({("orders", 0): 5}, group="c")
        assert caught.value.code is E.GROUP_MAX_SIZE_REACHED
        assert "group.max.groups" in str(caught.value)
        world.commit({("orders", 0): 6}, group="a")
        await world.restart()
        world.coordinator.delete_group("a")
        world.commit({("orders", 0): 5}, group="c")


@in_virtual_time
async def test_a_new_group_may_not_have_a_long_id() -> None:
    """A group that has only offsets is not counted, so 200,000 groups with ids of 32 KB would take 6 GB."""
    async with GroupWorld(group_id_max_bytes=100) as world:
        world.commit({("orders", 0): 5}, group="é" * 50)
        too_long = "é" * 50 + "x"
        assert (await world.join(group=too_long)).error_code == E.INVALID_GROUP_ID
        with pytest.raises(KafkaError, match=r"The group id has 101 bytes.* group\.id\.max\.bytes = 100") as caught:
            world.commit({("orders", 0): 5}, group=too_long)
        assert caught.value.code is E.INVALID_GROUP_ID
        assert list(world.coordinator._membership.groups) == ["é" * 50]


@pytest.mark.parametrize("seed", range(10))
@in_virtual_time
async def test_what_is_counted_is_what_is_there(seed: int) -> None:
    rng = Random(seed)
    async with GroupWorld() as world:
        known: list[tuple[str, str | None, JoinGroupResponse]] = []

        async def join(group: str, member_id: str, instance: str | None) -> None:
            protocols = [("range", b"x" * rng.randint(0, 5_000))]
            client_id = "c" * rng.randint(1, 300)
            joined = await world.join(
                member_id, group=group, instance=instance, protocols=protocols, client_id=client_id, version=3
            )
            if joined.error_code == 0:
                known.append((group, instance, joined))

        tasks = []
        for _ in range(60):
            group, instance = rng.choice("abc"), rng.choice((None, None, "i", "j"))
            step = rng.random()
            if step < 0.5 or not known:
                tasks.append(asyncio.ensure_future(join(group, "", instance)))
            elif step < 0.6:
                group, instance, joined = rng.choice(known)
                tasks.append(asyncio.ensure_future(join(group, joined.member_id, instance)))
            elif step < 0.8:
                group, instance, joined = rng.choice(known)
                assignments = {joined.member_id: b"y" * rng.randint(0, 3_000)}
                world.sync(joined, assignments, group=group, instance=instance)
            elif step < 0.9:
                group, instance, joined = rng.choice(known)
                world.leave(joined.member_id, group=group)
            else:
                await asyncio.sleep(rng.random() * SESSION_MS / 1000)
            await asyncio.sleep(0)
            assert counted(world)[0] == counted(world)[1]
        await world.restart()
        assert counted(world)[0] == counted(world)[1]
        await asyncio.sleep(10 * SESSION_MS / 1000)
        assert counted(world) == (0, 0)
        await asyncio.gather(*tasks)


@in_virtual_time
async def test_rebalance_timeout_of_zero_leaves_time_to_sync() -> None:
    async with GroupWorld() as world:
        joined = await world.join(await world.new_member(rebalance_ms=0), rebalance_ms=0)
        await asyncio.sleep(0.5)
        assert (await world.sync(joined, {joined.member_id: b"all"})).assignment == b"all"


@in_virtual_time
async def test_expiry_lets_others_in_between() -> None:
    async with GroupWorld(offsets_retention_minutes=1) as world:
        count = 10 * cleanup._EXPIRED_AT_ONCE
        for number in range(count):
            world.commit({("orders", 0): 5}, group=f"group-{number}")
        await asyncio.sleep(120)
        turns = 0
        expiry = asyncio.ensure_future(world.coordinator._cleanup.expire())
        while not expiry.done():
            before = len(groups(world))
            await asyncio.sleep(0)
            assert before - len(groups(world)) <= cleanup._EXPIRED_AT_ONCE
            turns += 1
        assert turns >= 10
        assert groups(world) == set()


@in_virtual_time
async def test_sessions_that_end_together_end_in_portions() -> None:
    timer, done = DeadlineTimer(LoopClock()), []
    for number in range(250):
        timer.schedule(number, 1000, lambda number=number: done.append(number))  # type: ignore[misc]
    await asyncio.sleep(1)
    for _ in range(3):
        before = len(done)
        timer.run_due(100)
        assert len(done) - before <= 100
    assert sorted(done) == list(range(250))


@in_virtual_time
async def test_all_sessions_end_although_few_end_at_once() -> None:
    async with GroupWorld() as world:
        for number in range(200):
            await world.join(group=f"group-{number}", version=3)
        await asyncio.sleep(10 * SESSION_MS / 1000)
        assert {group.state.value for group in world.coordinator.groups()} == {"Empty"}


@in_virtual_time
async def test_protocols_that_no_member_offers_any_more_take_no_memory() -> None:
    async with GroupWorld() as world:
        (leader,) = await world.stable_group(1, session_ms=60_000)
        for number in range(5):
            protocols = [("range", b""), *((f"{number}-{other}", b"") for other in range(100))]
            leader = await world.join(leader.member_id, protocols=protocols)
            assert leader.error_code == E.NONE
            await world.sync(leader, {leader.member_id: b""})
        group = world.coordinator.group("g")
        assert group is not None
        assert len(group._offers) == 101
        world.leave(leader.member_id)
        assert not group._offers
