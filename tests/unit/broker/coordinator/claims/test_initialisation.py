"""Group-aware initialisation step by step: the order of claim, fences and answer, and what waits for what."""

from __future__ import annotations

import asyncio

import pytest
from oncelog.broker.coordinator.transaction.events import Cause
from oncelog.broker.observability.metrics import CLAIMED, CLAIMS_DROPPED, CLAIMS_MADE, PARKED_IN_GROUPS, WAITS
from oncelog.protocol.errors import CONCURRENT_PRODUCER_COMMIT, ErrorCode
from support.group_aware_world import GROUP, GroupAwareWorld
from support.group_world import in_virtual_time

E = ErrorCode
OPERATOR = Cause("IncrementalAlterConfigs", "operator", "/here")
P0, P1, P2 = ("orders", 0), ("orders", 1), ("orders", 2)


@in_virtual_time
async def test_claims_are_durable_before_anyone_is_fenced() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        world.log.disk.flush_on_ask = False
        taking = asyncio.ensure_future(world.init("b", 2, P0))
        await asyncio.sleep(0.1)
        assert world.in_force() == {P0: ("b", 2)}, "in force with the append"
        assert world.homes.ids["a"].fenced_by == []
        assert "b" not in world.homes.ids
        world.log.disk.flush_on_ask = True
        world.log.disk.flush()
        await taking
        assert world.homes.ids["a"].fenced_by == ["b"]


@in_virtual_time
async def test_a_claim_that_does_not_become_durable_fences_nobody_and_is_no_success() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        world.log.disk.flush_on_ask = False
        taking = asyncio.ensure_future(world.init_code("b", 2, P0))
        await asyncio.sleep(0.1)
        world.log.disk.fail()
        assert await taking is E.NOT_COORDINATOR
        assert world.homes.ids["a"].fenced_by == []


@in_virtual_time
async def test_a_claim_that_cannot_be_appended_changes_nothing() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        world.log.refuse = E.KAFKA_STORAGE_ERROR
        assert await world.init_code("b", 2, P0, P1) is E.NOT_COORDINATOR
        assert world.in_force() == {P0: ("a", 1)}
        assert world.homes.ids["a"].fenced_by == []
        world.log.refuse = None
        assert await world.init_code("c", 1, P1) is E.NONE, "generation 2 was never recorded"


@in_virtual_time
async def test_the_answer_waits_until_the_victims_transaction_is_complete() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        complete = world.homes.hold("a")
        taking = asyncio.ensure_future(world.init("b", 2, P0))
        await asyncio.sleep(0.5)
        assert not taking.done()
        assert "b" not in world.homes.ids, "its own identity comes last"
        complete.set()
        await taking


@in_virtual_time
async def test_past_the_wait_it_may_be_asked_again_and_nobody_is_fenced_twice() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        complete = world.homes.hold("a")
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await world.init_code("b", 2, P0) is E.CONCURRENT_TRANSACTIONS
        assert loop.time() - began == 1.0
        assert await world.init_code("b", 2, P0) is E.CONCURRENT_TRANSACTIONS
        again = asyncio.ensure_future(world.init_code("b", 2, P0))
        await asyncio.sleep(0.3)
        complete.set()
        assert await again is E.NONE
        assert world.homes.ids["a"].fenced_by == ["b"]


@in_virtual_time
async def test_another_taker_waits_for_the_same_fence() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0, P1)
        complete = world.homes.hold("a")
        first = asyncio.ensure_future(world.init_code("b", 2, P0))
        await asyncio.sleep(0.1)
        assert await world.init_code("c", 2, P1) is E.CONCURRENT_TRANSACTIONS
        assert await first is E.CONCURRENT_TRANSACTIONS
        last = asyncio.ensure_future(world.init_code("c", 2, P1))
        complete.set()
        assert await last is E.NONE
        assert world.homes.ids["a"].fenced_by == ["b"]


@in_virtual_time
async def test_who_needs_nothing_of_the_victim_does_not_wait_for_it() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        world.homes.hold("a")
        assert await world.init_code("b", 2, P0) is E.CONCURRENT_TRANSACTIONS
        assert await world.init_code("c", 2, P1) is E.NONE
        assert await world.init_code("d", 2, ("orders", 1), group="another") is E.NONE


@in_virtual_time
async def test_groups_do_not_wait_for_each_other_and_calls_of_one_group_do() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        complete = world.homes.hold("a")
        taking = asyncio.ensure_future(world.init_code("b", 2, P0))
        await asyncio.sleep(0.1)
        assert await world.init_code("x", 2, P0, group="another") is E.NONE
        behind = asyncio.ensure_future(world.init_code("c", 2, P1))
        await asyncio.sleep(0.1)
        assert not behind.done()
        complete.set()
        assert [await taking, await behind] == [E.NONE, E.NONE]


@in_virtual_time
async def test_a_caller_that_is_being_fenced_waits_for_that_first() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        complete = world.homes.hold("a")
        assert await world.init_code("b", 2, P0) is E.CONCURRENT_TRANSACTIONS
        assert await world.init_code("a", 2, P1) is E.CONCURRENT_TRANSACTIONS
        again = asyncio.ensure_future(world.init("a", 2, P1))
        complete.set()
        identity = await again
        assert identity.producer_epoch == world.homes.ids["a"].epoch, "nothing bumped it after it was told"
        assert await world.init_code("b", 2, P0) is E.NONE
        assert world.homes.ids["a"].fenced_by == ["b"]
        assert world.commit("a", P1, 1, 2) is E.NONE


@in_virtual_time
async def test_a_connection_that_closes_leaves_a_claim_that_fences_all_the_same() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        world.log.disk.flush_on_ask = False
        taking = asyncio.ensure_future(world.init("b", 2, P0))
        await asyncio.sleep(0.1)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        world.log.disk.flush_on_ask = True
        world.log.disk.flush()
        await asyncio.sleep(0.1)
        assert world.homes.ids["a"].fenced_by == ["b"]
        assert world.commit("a", P0, 1, 1) is CONCURRENT_PRODUCER_COMMIT
        assert await world.init_code("c", 2, P0) is E.NONE


@in_virtual_time
async def test_pending_commits_make_a_victim_without_a_claim() -> None:
    async with GroupAwareWorld() as world:
        await world.homes.initialise("stock", 0, None, cause=None, deadline=0)  # type: ignore[arg-type]
        assert world.commit("stock", P0, 5) is E.NONE
        world.homes.on_complete = lambda name: world.end(name, commit=False)
        assert await world.init_code("b", 1, P1) is E.NONE
        assert world.homes.ids["stock"].fenced_by == []
        assert await world.init_code("b", 1, P0) is E.NONE
        assert world.homes.ids["stock"].fenced_by == ["b"]
        assert world.world.committed(P0) == {}


@in_virtual_time
async def test_its_own_pending_commits_are_its_own_business() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        assert world.commit("a", P0, 5, 1) is E.NONE
        assert await world.init_code("a", 1, P0) is E.NONE
        assert world.homes.ids["a"].fenced_by == []


@in_virtual_time
async def test_pending_commits_of_nobody_known_are_waited_for() -> None:
    async with GroupAwareWorld() as world:
        world.world.commit({P0: 5}, producer=77)
        assert await world.init_code("b", 1, P0) is E.CONCURRENT_TRANSACTIONS
        assert world.lines.said("pending_offsets_of_nobody")[0]["producer_ids"] == [77]
        world.world.end(77, commit=True)
        assert await world.init_code("b", 1, P0) is E.NONE


@in_virtual_time
async def test_a_commit_that_overtakes_the_fence_is_refused_by_the_claim() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        refused = []
        world.homes.before_fence = lambda name: refused.append(world.commit("a", P0, 1, 1))
        await world.init("b", 2, P0)
        assert refused == [CONCURRENT_PRODUCER_COMMIT]


@in_virtual_time
async def test_mutual_fences_past_the_limit_are_refused_with_both_named_and_time_heals() -> None:
    async with GroupAwareWorld() as world:
        codes = [await world.init_code("ab"[turn % 2], 3, P0) for turn in range(8)]
        assert codes == [E.NONE] * 6 + [E.ILLEGAL_GENERATION, E.NONE], "the owner may repeat its own call"
        (warned,) = world.lines.said("producers_fence_each_other")
        assert warned["transactional_ids"] == ["a", "b"]
        assert world.in_force() == {P0: ("b", 3)}
        assert await world.init_code("c", 3, P0) is E.NONE, "others may"
        await asyncio.sleep(61)
        assert await world.init_code("a", 3, P0) is E.NONE


@in_virtual_time
async def test_newer_generations_are_never_a_fight() -> None:
    async with GroupAwareWorld() as world:
        codes = [await world.init_code("ab"[turn % 2], turn, P0) for turn in range(20)]
        assert set(codes) == {E.NONE}


@in_virtual_time
async def test_the_last_member_may_leave_while_producers_are_initialised() -> None:
    async with GroupAwareWorld() as world:
        (joined,) = await world.world.stable_group(1)
        await world.init("a", joined.generation_id, P0)
        complete = world.homes.hold("a")
        taking = asyncio.ensure_future(world.init_code("b", joined.generation_id, P0))
        await asyncio.sleep(0.1)
        world.world.leave(joined.member_id)
        assert world.in_force() == {}
        complete.set()
        await taking
        await world.restart()
        assert world.in_force() == {}


@in_virtual_time
async def test_a_clock_that_is_set_back_makes_no_claim_older_than_its_empty_group() -> None:
    async with GroupAwareWorld() as world:
        (joined,) = await world.world.stable_group(1)
        await asyncio.sleep(10)
        world.world.leave(joined.member_id)
        world.clock.ahead_ms -= 5_000
        await world.init("a", joined.generation_id, P0)
        await world.restart()
        assert world.in_force() == {P0: ("a", joined.generation_id)}


@in_virtual_time
async def test_unfencing_waits_for_its_turn() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        complete = world.homes.hold("a")
        taking = asyncio.ensure_future(world.init_code("b", 2, P0))
        await asyncio.sleep(0.1)
        unfencing = asyncio.ensure_future(world.initialiser.unfence(GROUP, OPERATOR))
        await asyncio.sleep(0.1)
        assert not unfencing.done()
        complete.set()
        assert await taking is E.NONE
        await unfencing
        assert world.in_force() == {}
        assert await world.init_code("c", -1, P0) is E.NONE


@in_virtual_time
async def test_what_waits_is_bounded_in_number() -> None:
    async with GroupAwareWorld(transaction_pending_wait_max_requests=2) as world:
        await world.init("a", 1, P0)
        complete = world.homes.hold("a")
        taking = asyncio.ensure_future(world.init_code("b", 2, P0))
        await asyncio.sleep(0.01)
        behind = asyncio.ensure_future(world.init_code("c", 2, P1))
        await asyncio.sleep(0.01)
        assert await world.init_code("d", 2, P2) is E.CONCURRENT_TRANSACTIONS
        complete.set()
        assert [await taking, await behind] == [E.NONE, E.NONE]


@in_virtual_time
async def test_stopping_answers_who_waits() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        world.homes.hold("a")
        taking = asyncio.ensure_future(world.init_code("b", 2, P0))
        await asyncio.sleep(0.1)
        await world.initialiser.stop()
        assert await taking is E.CONCURRENT_TRANSACTIONS
        assert await world.init_code("c", 2, P1) is E.COORDINATOR_NOT_AVAILABLE


@in_virtual_time
async def test_a_group_whose_home_is_unreadable_is_not_served() -> None:
    async with GroupAwareWorld() as world:
        world.homes.unreadable.add(GROUP)
        assert await world.init_code("a", 1, P0) is E.COORDINATOR_NOT_AVAILABLE
        assert await world.init_code("a", 1, P0, group="another") is E.NONE


@in_virtual_time
async def test_every_wait_claim_and_refusal_is_told_with_its_reason_and_who_asked() -> None:
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0)
        world.homes.hold("a")
        assert await world.init_code("b", 2, P0) is E.CONCURRENT_TRANSACTIONS
        assert await world.init_code("c", 1, P0) is E.ILLEGAL_GENERATION
        claimed = world.lines.said("partitions_claimed")[-1]
        assert (claimed["transactional_id"], claimed["generation"], claimed["fences"]) == ("b", 2, ["a"])
        (waited,) = world.lines.said("request_waited")
        assert (waited["outcome"], waited["waited_ms"], waited["client_id"]) == ("gave_up", 1000, "b")
        refused = world.lines.said("request_refused")
        assert [line["code"] for line in refused] == ["CONCURRENT_TRANSACTIONS", "ILLEGAL_GENERATION"]
        for line in (claimed, waited, *refused):
            assert line["request"] == "InitProducerId"
            assert line["host"] == "/here"
            assert line["reason"]
        await world.initialiser.unfence(GROUP, OPERATOR)
        (unfenced,) = world.lines.said("claims_unfenced")
        assert unfenced["client_id"] == "operator"
        assert world.metrics.value(CLAIMS_MADE) == 2
        assert world.metrics.value(CLAIMS_DROPPED, "unfenced by hand") == 1
        assert world.metrics.value(CLAIMED) == 0
        assert world.metrics.value(PARKED_IN_GROUPS) == 0
        assert world.metrics.value(WAITS, "InitProducerId", "gave_up") == 1


@in_virtual_time
async def test_a_victim_that_came_back_is_fenced_by_who_claims_then() -> None:
    """It was fenced, and what it let go is not yet on disk, when it began anew without its group and committed."""
    async with GroupAwareWorld() as world:
        await world.init("a", 1, P0, P1)
        fenced = world.homes.hold("a")
        taking = asyncio.ensure_future(world.init_code("b", 2, P0))
        await asyncio.sleep(0.1)
        world.log.disk.flush_on_ask = False
        fenced.set()
        await asyncio.sleep(0.1)
        taking.cancel()
        await asyncio.wait([taking])
        await world.homes.initialise("a", 60_000, None, cause=OPERATOR, deadline=0)
        assert world.commit("a", P1, 5, 1) is E.NONE
        world.homes.on_complete = lambda name: world.end(name, commit=False)
        claiming = asyncio.ensure_future(world.init_code("c", 2, P1))
        await asyncio.sleep(0.1)
        world.log.disk.flush_on_ask = True
        world.log.disk.flush()
        assert await claiming is E.NONE
        assert world.homes.ids["a"].fenced_by == ["b", "c"]
        assert world.world.pending(P1) == set()


@pytest.mark.parametrize("letter", ["g", "ß", "語"])
@in_virtual_time
async def test_an_id_is_given_out_for_the_longest_group_name(letter: str) -> None:
    group = letter * (32_767 // len(letter.encode()))
    async with GroupAwareWorld(group_id_max_bytes=32_767) as world:
        assert await world.init_code(None, 1, P0, group=group) is E.NONE
        ((name, _),) = world.in_force(group).values()
        assert len(name.encode()) <= 32_767
