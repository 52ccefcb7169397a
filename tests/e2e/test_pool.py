"""The pool of transactional producers: lending, giving back, replacing, and sharing a prefix with other pools."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest
from oncelog import Consumer, Producer, ProducerFencedError
from oncelog.client.errors import CommitUnknownError, ConfigError, IllegalStateError
from oncelog.client.pool import PooledTransaction, PoolExhaustedError, TransactionalProducerPool
from oncelog.client.pool.pooled_producer import Loan, PooledProducer
from oncelog.protocol.messages.end_txn import EndTxnRequest
from support.proxy import FaultProxy
from support.topics import created_topic

Names = Callable[[str], str]
WAIT_S = 30.0


@pytest.fixture
async def topic(bootstrap: str, fresh_name: Names) -> str:
    return await created_topic(bootstrap, fresh_name("topic"), 1)


@pytest.fixture
def prefix(fresh_name: Names) -> str:
    return fresh_name("pool") + "-"


def pool_of(bootstrap: str, prefix: str, **options: Any) -> TransactionalProducerPool:
    settings: dict[str, Any] = {"session_timeout_ms": 6000, **options}
    return TransactionalProducerPool(bootstrap_servers=bootstrap, prefix=prefix, **settings)


@pytest.fixture(params=[True, False], ids=["exclusive", "shared"])
async def pool(bootstrap: str, prefix: str, request: pytest.FixtureRequest) -> AsyncIterator[TransactionalProducerPool]:
    async with pool_of(bootstrap, prefix, size=3, exclusive=request.param) as pool:
        yield pool


async def values(bootstrap: str, topic: str) -> list[bytes | None]:
    """What a read_committed reader sees, when no transaction is open."""
    partition = (topic, 0)
    async with (
        Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as reader,
        Consumer(bootstrap_servers=bootstrap) as ends,
        asyncio.timeout(WAIT_S),
    ):
        while await reader.end_offsets([partition]) != await ends.end_offsets([partition]):
            pass
        reader.assign([partition])
        found = []
        while await reader.lag(partition):
            found += [record.value for record in await reader.poll(500)]
        return found


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_pool_starts_only_once_even_if_two_tasks_start_it(bootstrap: str, prefix: str) -> None:
    pool = pool_of(bootstrap, prefix, size=1)
    first, second = await asyncio.gather(pool.start(), pool.start(), return_exceptions=True)
    await pool.close()
    assert first is None
    assert isinstance(second, IllegalStateError)


async def test_tasks_have_transactions_at_the_same_time(
    pool: TransactionalProducerPool, bootstrap: str, topic: str, prefix: str
) -> None:
    ids: set[str] = set()
    together = asyncio.Barrier(3)

    async def work(number: int) -> None:
        async with pool.transaction() as txn:
            ids.add(txn.transactional_id)
            txn.send(topic, b"%d" % number)
            await together.wait()

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        for number in range(9):
            tasks.create_task(work(number))
    assert ids == {f"{prefix}{suffix}" for suffix in range(3)}
    assert sorted(value or b"" for value in await values(bootstrap, topic)) == [b"%d" % number for number in range(9)]
    assert pool.status == (3, 0, 3, 0)


async def test_an_exception_aborts_and_the_producer_comes_back(
    pool: TransactionalProducerPool, bootstrap: str, topic: str
) -> None:
    used = []
    for number in range(3):
        try:
            async with pool.transaction() as txn:
                used.append(txn.transactional_id)
                txn.send(topic, b"%d" % number)
                if number == 1:
                    raise ValueError("no")
        except ValueError:
            pass
    assert len(set(used)) == 1
    assert pool.status.idle == 1
    assert await values(bootstrap, topic) == [b"0", b"2"]


async def test_a_lent_producer_does_several_transactions_and_aborts_what_is_open_when_given_back(
    pool: TransactionalProducerPool, bootstrap: str, topic: str
) -> None:
    async with pool.producer() as producer:
        for number in range(3):
            async with producer.transaction() as txn:
                txn.send(topic, b"%d" % number)
        open_one = producer.transaction()
        await (await open_one.__aenter__()).send(topic, b"never")
    assert pool.status == (pool.status.held, 0, 1, 0)
    async with pool.transaction() as txn:
        txn.send(topic, b"3")
    assert await values(bootstrap, topic) == [b"0", b"1", b"2", b"3"]


async def test_a_pool_that_is_exhausted_says_so_in_time(bootstrap: str, prefix: str) -> None:
    async with pool_of(bootstrap, prefix, size=1, max_wait_s=0.2, max_waiting=1) as pool:
        await until(lambda: pool.status.held == 1)

        async def take() -> None:
            async with pool.transaction():
                pass

        async with pool.transaction():
            loop = asyncio.get_running_loop()
            begun = loop.time()
            first, second = asyncio.create_task(take()), asyncio.create_task(take())
            with pytest.raises(PoolExhaustedError, match="already waiting for a producer"):
                await second
            with pytest.raises(
                PoolExhaustedError, match=r"within max_wait_s = 0\.2; of 1 producers this process has 1"
            ):
                await first
            assert 0.19 <= loop.time() - begun < 5
        await take()


async def test_who_waits_first_is_served_first(bootstrap: str, prefix: str) -> None:
    order: list[int] = []
    async with pool_of(bootstrap, prefix, size=1) as pool, asyncio.TaskGroup() as tasks:

        async def take(number: int) -> None:
            async with pool.transaction():
                order.append(number)

        async with pool.transaction():
            for number in range(5):
                tasks.create_task(take(number))
            await until(lambda: pool.status.waiting == 5)
    assert order == [0, 1, 2, 3, 4]


async def test_a_waiting_task_that_is_cancelled_does_not_keep_its_turn(bootstrap: str, prefix: str) -> None:
    async with pool_of(bootstrap, prefix, size=1) as pool:

        async def take() -> None:
            async with pool.transaction():
                pass

        async with pool.transaction():
            first, second = asyncio.create_task(take()), asyncio.create_task(take())
            await until(lambda: pool.status.waiting == 2)
            first.cancel()
        async with asyncio.timeout(WAIT_S):
            await second
        assert first.cancelled()


async def test_a_producer_belongs_to_the_task_that_took_it(pool: TransactionalProducerPool, topic: str) -> None:
    async with pool.transaction() as txn:

        async def straggler() -> None:
            txn.send(topic, b"from another task")

        with pytest.raises(IllegalStateError, match="belongs to task"):
            await asyncio.create_task(straggler())
        with pytest.raises(IllegalStateError, match="belongs to task"):
            await asyncio.to_thread(txn.send, topic, b"from another thread")
        with pytest.raises(IllegalStateError, match="has a producer of this pool already"):
            await pool.take()
    with pytest.raises(IllegalStateError, match="given back"):
        txn.send(topic, b"too late")


async def test_another_event_loop_is_refused(pool: TransactionalProducerPool) -> None:
    def elsewhere() -> None:
        with pytest.raises(IllegalStateError, match="another event loop"):
            asyncio.run(_take(pool))

    await asyncio.to_thread(elsewhere)


async def _take(pool: TransactionalProducerPool) -> None:
    await pool.take()


async def test_a_producer_that_its_task_never_gave_back_is_taken_back(
    pool: TransactionalProducerPool, bootstrap: str, topic: str
) -> None:
    async def leak() -> None:
        producer = await pool.take()
        txn = await producer.transaction().__aenter__()
        await txn.send(topic, b"never")

    await asyncio.create_task(leak())
    await until(lambda: pool.status.in_use == 0)
    assert await values(bootstrap, topic) == []


async def test_a_fenced_producer_is_replaced(bootstrap: str, topic: str, prefix: str) -> None:
    async with pool_of(bootstrap, prefix, size=1) as pool:
        async with pool.transaction() as txn:
            txn.send(topic, b"before")
        async with Producer(bootstrap_servers=bootstrap, transactional_id=f"{prefix}0") as rival:
            await rival.init_transactions()
        with pytest.raises(ProducerFencedError):
            async with pool.transaction() as txn:
                txn.send(topic, b"fenced")
        assert pool.status.idle == 0
        async with pool.transaction() as txn:
            txn.send(topic, b"after")
    assert await values(bootstrap, topic) == [b"before", b"after"]


async def test_an_idle_producer_is_renewed(bootstrap: str, topic: str, prefix: str) -> None:
    async with pool_of(bootstrap, prefix, size=1, renew_after_s=0.2) as pool:
        async with pool.producer() as taken:
            async with taken.transaction() as txn:
                txn.send(topic, b"before")
            producer = taken._loan.check()
        assert producer._transactions is not None
        manager = producer._transactions.manager
        before = (manager.producer_id, manager.producer_epoch)
        await until(lambda: (manager.producer_id, manager.producer_epoch) > before and pool.status.idle == 1)
        async with pool.transaction() as txn:
            txn.send(topic, b"after")
    assert await values(bootstrap, topic) == [b"before", b"after"]


async def test_pools_with_one_prefix_never_use_an_id_at_the_same_time(bootstrap: str, topic: str, prefix: str) -> None:
    """Pools come and go while all of them work; nobody is ever fenced."""
    in_use: set[str] = set()
    total = 0
    stopping = False

    async def work(pool: TransactionalProducerPool) -> None:
        nonlocal total
        while not stopping:
            async with pool.transaction() as txn:
                assert txn.transactional_id not in in_use
                in_use.add(txn.transactional_id)
                txn.send(topic, b"%d" % total)
                total += 1
                await asyncio.sleep(0.002)
                used = txn.transactional_id
                in_use.discard(used)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        pools = []
        for _ in range(3):
            pools.append(await stack.enter_async_context(pool_of(bootstrap, prefix, size=6, max_wait_s=WAIT_S)))
            for _ in range(2):
                tasks.create_task(work(pools[-1]))
            await until(lambda: sum(pool.status.held for pool in pools) == 6 and min(p.status.held for p in pools) > 0)
        await until(lambda: [pool.status.held for pool in pools] == [2, 2, 2])
        begun = total
        await until(lambda: total >= begun + 50)
        stopping = True
    assert sorted(map(int, filter(None, await values(bootstrap, topic)))) == list(range(total))


async def test_a_pool_that_ends_leaves_its_share_to_the_others(bootstrap: str, prefix: str) -> None:
    async with pool_of(bootstrap, prefix, size=4) as staying:
        async with pool_of(bootstrap, prefix, size=4) as leaving:
            await until(lambda: (staying.status.held, leaving.status.held) == (2, 2))
        await until(lambda: staying.status.held == 4)


async def test_a_suffix_in_use_moves_only_when_its_transaction_has_ended(
    bootstrap: str, topic: str, prefix: str
) -> None:
    async with pool_of(bootstrap, prefix, size=2) as first:
        go_on = asyncio.Event()

        async def work(number: int) -> None:
            async with first.transaction() as txn:
                txn.send(topic, b"%d" % number)
                await go_on.wait()

        tasks = [asyncio.create_task(work(number)) for number in range(2)]
        await until(lambda: first.status.in_use == 2)
        async with pool_of(bootstrap, prefix, size=2, max_wait_s=1) as second:
            with pytest.raises(PoolExhaustedError, match="this process has 0"):
                await second.take()
            go_on.set()
            await asyncio.gather(*tasks)
            await until(lambda: (first.status.held, second.status.held) == (1, 1))
            async with second.transaction() as txn:
                txn.send(topic, b"2")
    assert sorted(filter(None, await values(bootstrap, topic))) == [b"0", b"1", b"2"]


async def test_a_pool_that_was_taken_for_dead_is_fenced_by_its_successor(
    bootstrap: str, topic: str, prefix: str
) -> None:
    """It has a transaction under way and does not know: what it wrote is never seen, what its successor writes is."""
    async with pool_of(bootstrap, prefix, size=1) as zombie:
        async with asyncio.TaskGroup() as tasks:
            written, go_on = asyncio.Event(), asyncio.Event()

            async def hang() -> None:
                async with zombie.transaction() as txn:
                    await txn.send(topic, b"zombie")
                    written.set()
                    await go_on.wait()

            async def fenced() -> None:
                with pytest.raises(ProducerFencedError):
                    await hang()

            tasks.create_task(fenced())
            await written.wait()
            membership = zombie._leases._membership  # type: ignore[attr-defined]
            await membership.close()  # no more heartbeats
            async with pool_of(bootstrap, prefix, size=1, max_wait_s=WAIT_S) as successor:
                async with successor.transaction() as txn:
                    txn.send(topic, b"successor")
                go_on.set()
        assert zombie.status.idle == 0
    assert await values(bootstrap, topic) == [b"successor"]


async def test_closing_aborts_what_is_open_and_refuses_what_waits(bootstrap: str, topic: str, prefix: str) -> None:
    pool = pool_of(bootstrap, prefix, size=1)
    await pool.start()
    inside = asyncio.Event()

    async def hang() -> None:
        async with pool.transaction() as txn:
            await txn.send(topic, b"never")
            inside.set()
            await asyncio.Event().wait()

    hanging = asyncio.create_task(hang())
    await inside.wait()
    waiting = asyncio.create_task(pool.take())
    await until(lambda: pool.status.waiting == 1)
    await pool.close()
    with pytest.raises(IllegalStateError, match="closed"):
        await waiting
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    with pytest.raises(IllegalStateError, match="closed"):
        await pool.take()
    assert await values(bootstrap, topic) == []


@pytest.mark.parametrize("lent", ["a transaction", "a producer"])
@pytest.mark.parametrize("error", [ZeroDivisionError, TimeoutError, asyncio.CancelledError])
async def test_an_exception_in_a_block_is_raised_although_the_pool_was_closed_meanwhile(
    bootstrap: str, topic: str, prefix: str, error: type[BaseException], lent: str
) -> None:
    pool = pool_of(bootstrap, prefix, size=1)
    await pool.start()

    async def fail_in(block: AbstractAsyncContextManager[PooledTransaction[Any, Any]]) -> None:
        async with block as txn:
            txn.send(topic, b"never")
            await pool.close()
            raise error

    async def fail() -> None:
        if lent == "a transaction":
            await fail_in(pool.transaction())
        else:
            async with pool.producer() as producer:
                await fail_in(producer.transaction())

    with pytest.raises(error):
        await fail()
    with pytest.raises(IllegalStateError, match="closed"):
        await pool.take()
    assert await values(bootstrap, topic) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefix": ""},
        {"size": 0},
        {"size": 10_001},
        {"renew_after_s": 0},
        {"max_wait_s": -1},
        {"transactional_id": "x"},
        {"acks": 0},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        TransactionalProducerPool(**{"prefix": "p", **wrong})  # type: ignore[arg-type]


async def test_an_unknown_commit_sends_nobody_to_ask_a_producer_that_is_gone(
    bootstrap: str, topic: str, prefix: str
) -> None:
    async with (
        FaultProxy(bootstrap) as proxy,
        pool_of(proxy.address, prefix, size=1, exclusive=True, max_block_ms=1000, request_timeout_ms=1000) as pool,
    ):
        async with pool.transaction() as txn:
            await txn.send(topic, b"1")

        async def cut_off() -> None:
            async with pool.transaction() as txn:
                await txn.send(topic, b"2")
                proxy.break_after(EndTxnRequest, times=1000)

        with pytest.raises(CommitUnknownError) as caught:
            await cut_off()
        assert not caught.value.can_ask_again
        proxy.clear_faults()
        async with pool.transaction() as txn:  # the initialisation of the next producer finds what was decided
            await txn.send(topic, b"3")
    assert await values(bootstrap, topic) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("steps", [1, 3, 10])
async def test_a_cancelled_close_leaves_nothing_behind(bootstrap: str, topic: str, prefix: str, steps: int) -> None:
    before = asyncio.all_tasks()
    pool = pool_of(bootstrap, prefix, size=2)
    await pool.start()
    async with pool.transaction() as txn:
        await txn.send(topic, b"1")
    closing = asyncio.create_task(pool.close())
    for _ in range(steps):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    async with asyncio.timeout(WAIT_S):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.01)


async def test_a_task_that_lives_long_does_not_keep_its_former_loans(bootstrap: str, prefix: str) -> None:
    async with pool_of(bootstrap, prefix, size=1, exclusive=True) as pool:
        loans = weakref.WeakSet[Loan]()
        for _ in range(20):
            producer = await pool.take()
            loans.add(producer._loan)
            await producer.close()
        del producer
        gc.collect()
        assert len(loans) == 0


async def test_a_second_close_waits_for_the_first(bootstrap: str, prefix: str, topic: str) -> None:
    async with FaultProxy(bootstrap) as proxy, asyncio.timeout(WAIT_S):
        pool = pool_of(proxy.address, prefix, size=1, exclusive=True)
        await pool.start()
        producer = await pool.take()
        await producer.transaction().__aenter__()
        proxy.hold(EndTxnRequest, 0.3, times=1)
        first = asyncio.create_task(pool.close())
        await asyncio.sleep(0)
        await pool.close()
        assert not pool._loans
        await first


async def test_a_pool_that_is_closed_while_it_starts_does_not_open(bootstrap: str, prefix: str) -> None:
    before = asyncio.all_tasks()
    pool = pool_of(bootstrap, prefix, size=1)
    starting = asyncio.create_task(pool.start())
    await asyncio.sleep(0)
    await pool.close()
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(IllegalStateError, match="closed"):
            await starting
        with pytest.raises(IllegalStateError, match="closed"):
            await pool.take()
    assert asyncio.all_tasks() == before


async def test_closing_waits_for_the_abort_of_a_producer_that_is_given_back_meanwhile(
    bootstrap: str, prefix: str, topic: str
) -> None:
    async with FaultProxy(bootstrap) as proxy, asyncio.timeout(WAIT_S):
        pool = pool_of(proxy.address, prefix, size=2, exclusive=True)
        await pool.start()

        taken: list[PooledProducer[Any, Any]] = []

        async def take() -> None:
            producer = await pool.take()
            transaction = await producer.transaction().__aenter__()
            await transaction.send(topic, b"value")
            taken.append(producer)
            await asyncio.Event().wait()

        tasks = [asyncio.create_task(take()) for _ in range(2)]
        while len(taken) < 2:
            await asyncio.sleep(0.01)
        proxy.hold(EndTxnRequest, 0.3)
        proxy.hold(EndTxnRequest, 1.0)
        taken[0].give_back()
        closing = asyncio.create_task(pool.close())
        await asyncio.sleep(0)
        taken[1].give_back()
        await closing
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("settle ")]
        for task in tasks:
            task.cancel()
