"""What a transaction with many partitions costs in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from itertools import pairwise

from oncelog.broker.coordinator.transaction.state import TransactionState, TransactionVersion
from oncelog.broker.coordinator.transaction.transaction_log import decode_value
from oncelog.broker.scheduling.steps import SLICE, ResultT, run_at_once
from support.counted_lines import lines_of
from support.transaction_ports import CoordinatorWorld

MANY = 9_900


def wide(count: int = MANY) -> list[tuple[str, int]]:
    return [(f"t{index % 3}", index) for index in range(count)]


async def complete(w: CoordinatorWorld, transactional_id: str) -> None:
    while not w.coordinator.describe(transactional_id).state.is_complete:
        await asyncio.sleep(0)


async def test_a_partition_is_added_without_going_through_the_others() -> None:
    async with CoordinatorWorld() as w:
        registration = w.coordinator.registration
        who = await w.coordinator.init_producer_id("id", 60_000)
        await registration.add_partitions("id", *who, wide())
        for index in (20_000, 20_001):
            added = partial(registration.add_partitions_now, "id", *who, [("t1", index)], TransactionVersion.TV_0)
            lines, _ = lines_of(added)
            assert lines < 1_000
        value = w.log.records[-1][1].value
        assert value is not None
        assert decode_value("id", value).topic_partitions == {*wide(), ("t1", 20_000), ("t1", 20_001)}


async def test_the_sorted_partitions_of_a_transaction_are_forgotten_when_it_is_over() -> None:
    async with CoordinatorWorld() as w:
        who = await w.coordinator.init_producer_id("id", 60_000)
        await w.coordinator.registration.add_partitions("id", *who, wide())
        assert w.coordinator.state._sorted
        await w.coordinator.end_txn("id", *who, True, TransactionVersion.TV_0)
        await complete(w, "id")
        w.coordinator.state.write_completed()
        assert not w.coordinator.state._sorted


async def test_aborting_a_large_transaction_counts_as_much_work_as_it_is() -> None:
    async with CoordinatorWorld() as w:
        for tid in ("small", "large"):
            who = await w.coordinator.init_producer_id(tid, 60_000)
            await w.coordinator.registration.add_partitions(tid, *who, wide(MANY if tid == "large" else 1))
        w.clock.advance(60_001)
        units = [done for done in w.coordinator.maintenance.abort_timed_out(w.clock.now_ms()) if isinstance(done, int)]
        assert sorted(units)[0] < 100
        assert sorted(units)[-1] > SLICE, "no other transaction is aborted in the same turn"
        assert run_at_once(w.coordinator.maintenance.abort_timed_out(w.clock.now_ms())) is None
        await complete(w, "large")
        assert w.coordinator.describe("large").state is TransactionState.COMPLETE_ABORT


async def test_transactions_whose_ends_become_durable_together_begin_to_write_markers_in_many_turns() -> None:
    async with CoordinatorWorld(flush_on_ask=False) as w:

        async def flushed(call: Awaitable[ResultT]) -> ResultT:
            running = asyncio.ensure_future(call)
            while not running.done():
                w.log.disk.flush()
                w.partitions.flush()
                await asyncio.sleep(0)
            return await running

        ids = [f"id-{number}" for number in range(300)]
        for tid in ids:
            who = await flushed(w.coordinator.init_producer_id(tid, 60_000))
            await flushed(w.coordinator.registration.add_partitions(tid, *who, [("t", 0), ("t", 1)]))
        w.clock.advance(60_001)
        run_at_once(w.coordinator.maintenance.abort_timed_out(w.clock.now_ms()))
        w.log.disk.flush()
        begun = [len(w.partitions.written)]
        while begun[-1] < len(ids):
            await asyncio.sleep(0)
            begun.append(len(w.partitions.written))
            assert len(begun) < 1_000
        assert max(after - before for before, after in pairwise(begun)) <= 2 * SLICE // 50
        w.partitions.flush()
        for tid in ids:
            await flushed(complete(w, tid))
