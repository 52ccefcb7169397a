"""Other code cancels all tasks of the event loop, as asyncio.run does at its end: the clients go on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from oncelog import Consumer, Delivery, Producer, RebalanceListener, TopicPartition, TransactionalProducerPool
from oncelog.client.errors import KafkaTimeoutError
from oncelog.client.pool.pooled_producer import PooledTransaction
from oncelog.client.shared_task import BEGIN_AGAIN_S
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from support.proxy import FaultProxy
from support.reading import make_topic, values

Fresh = Callable[[str], str]

WAIT_S = 30.0
TURNS = (0, 1, 2, 3, 5, 8)
"""How many turns of the event loop a call has had when all tasks are cancelled."""


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def cancel_all_except(*kept: asyncio.Task[Any]) -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task(), *kept}:
        task.cancel()


async def none_is_left(before: set[asyncio.Task[Any]]) -> None:
    """Wait until the tasks are those of `before`."""
    async with asyncio.timeout(WAIT_S):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.01)


def is_running(name: str) -> bool:
    return any(task.get_name() == name for task in asyncio.all_tasks())


@pytest.mark.parametrize("count", TURNS)
@pytest.mark.parametrize("how", ["close", "flush", "commit_transaction"])
async def test_a_record_that_waits_for_its_topic_is_sent(
    bootstrap: str, fresh_name: Fresh, how: str, count: int
) -> None:
    transactional = {"transactional_id": fresh_name("id")} if how == "commit_transaction" else {}
    producer = Producer({"bootstrap.servers": bootstrap, **transactional})
    await producer.start()
    if transactional:
        await producer.init_transactions()
        await producer.begin_transaction()
    delivery = producer.send(fresh_name("topic"), b"1")
    await turns(count)
    cancel_all_except()
    async with asyncio.timeout(WAIT_S):
        await getattr(producer, how)()
        assert delivery.result().offset == 0
        await producer.close()


@pytest.mark.parametrize("count", TURNS)
async def test_a_call_that_waits_for_a_topic_goes_on(bootstrap: str, fresh_name: Fresh, count: int) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        enqueueing = asyncio.create_task(producer.enqueue(fresh_name("topic"), b"1"))
        await turns(count)
        cancel_all_except(enqueueing)
        async with asyncio.timeout(WAIT_S):
            assert (await (await enqueueing)).offset == 0


@pytest.mark.parametrize("count", TURNS)
async def test_a_call_in_a_finally_block_of_a_cancelled_task_goes_on(
    bootstrap: str, fresh_name: Fresh, count: int
) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer, asyncio.timeout(WAIT_S):
        begun = asyncio.Event()

        async def work() -> Delivery:
            try:
                await asyncio.Event().wait()
            finally:
                begun.set()
                return await producer.enqueue(fresh_name("topic"), b"1")  # noqa: B012

        working = asyncio.create_task(work())
        await turns(1)
        working.cancel()
        await begun.wait()
        await turns(count)
        cancel_all_except(working)
        assert (await (await working)).offset == 0


async def test_a_call_that_waits_for_a_topic_has_its_timeout(bootstrap: str, fresh_name: Fresh) -> None:
    """Each look-up is cancelled, so that none of them reports the timeout."""
    async with FaultProxy(bootstrap) as proxy, asyncio.timeout(WAIT_S):
        producer = Producer(bootstrap_servers=proxy.address, max_block_ms=200)
        await producer.start()
        proxy.open.clear()
        enqueueing = asyncio.create_task(producer.enqueue(fresh_name("topic"), b"1"))
        while not enqueueing.done():
            for task in asyncio.all_tasks():
                if task.get_name().startswith("metadata of"):
                    task.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(KafkaTimeoutError, match="still unknown"):
            await enqueueing
        await producer.close()


@pytest.mark.parametrize("count", TURNS)
async def test_a_batch_that_waits_for_a_connection_is_sent(bootstrap: str, fresh_name: Fresh, count: int) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.partitions_for(topic)
        connections = [state.connection for state in producer._cluster._connections._states.values()]
        for connection in connections:
            assert connection is not None
            connection.close()
        delivery = await producer.enqueue(topic, b"1")
        await turns(count)
        cancel_all_except()
        async with asyncio.timeout(WAIT_S):
            assert (await delivery).offset == 0


@pytest.mark.parametrize("count", TURNS)
async def test_the_next_transaction_begins_although_the_abort_of_a_failed_one_was_cancelled(
    bootstrap: str, fresh_name: Fresh, count: int
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(bootstrap_servers=bootstrap, transactional_id=fresh_name("id")) as producer:

        async def fail() -> None:
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"1")
                raise LookupError

        failing = asyncio.create_task(fail())
        async with asyncio.timeout(WAIT_S):
            while not is_running("abort a transaction"):
                await asyncio.sleep(0)
            await turns(count)
            is_cancelled = is_running("abort a transaction")  # it may have ended during the turns
            cancel_all_except(failing)
            with pytest.raises(LookupError) as caught:
                await failing
            assert is_cancelled or count > 0
            assert not is_cancelled or "was cancelled" in caught.value.__notes__[0]
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"2")
    assert values(bootstrap, topic) == [b"2"]


async def test_no_task_is_left_if_tasks_are_cancelled_until_then(bootstrap: str, fresh_name: Fresh) -> None:
    async with FaultProxy(bootstrap) as proxy:
        producer = Producer(bootstrap_servers=proxy.address)
        await producer.start()
        proxy.open.clear()
        delivery = producer.send(fresh_name("topic"), b"1")
        for _ in range(100):
            tasks = {task for task in asyncio.all_tasks() if task.get_name().startswith("metadata of")}
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        assert not tasks
        proxy.open.set()
        async with asyncio.timeout(WAIT_S):
            assert (await delivery).offset == 0
            await producer.close()


def test_a_producer_that_a_program_does_not_close_leaves_no_task(bootstrap: str, fresh_name: Fresh) -> None:
    program = """if True:
        import asyncio, sys
        from oncelog import Producer
        async def main():
            producer = Producer(bootstrap_servers=sys.argv[1])
            await producer.start()
            producer.send(sys.argv[2], b"1")
        asyncio.run(main())
        """
    command = [sys.executable, "-c", program, bootstrap, fresh_name("topic")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert ended.returncode == 0
    assert "Task was destroyed" not in ended.stderr


async def test_a_consumer_learns_topics_and_reads_on(bootstrap: str, fresh_name: Fresh) -> None:
    first, second = (make_topic(bootstrap, fresh_name("topic")) for _ in range(2))
    async with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
        asyncio.timeout(WAIT_S),
    ):
        consumer.assign([(first, 0)])
        await producer.send(first, b"1")
        assert (await anext(consumer)).value == b"1"
        cancel_all_except()
        await producer.send(first, b"2")
        assert (await anext(consumer)).value == b"2"
        cancel_all_except()
        consumer.assign([(second, 0)])
        await producer.send(second, b"3")
        assert (await anext(consumer)).value == b"3"


@pytest.mark.parametrize("step", ["prepare", "join", "complete"])
async def test_a_consumer_joins_its_group(bootstrap: str, fresh_name: Fresh, step: str) -> None:
    """The poll that waits for the join goes on, although its step of the rebalance was cancelled."""
    topic = make_topic(bootstrap, fresh_name("topic"))

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            await asyncio.sleep(0)  # the step can be cancelled here

    async with (
        Consumer(
            bootstrap_servers=bootstrap, topics=[topic], group_id=fresh_name("group"), listener=Listener()
        ) as consumer,
        asyncio.timeout(WAIT_S),
    ):

        async def join() -> None:
            while not consumer.assignment():
                await consumer.poll(100)

        joining = asyncio.create_task(join())
        while not is_running(f"rebalance: {step}"):
            await asyncio.sleep(0)
        cancel_all_except(joining)
        await joining
        await consumer.poll(0)


async def test_a_member_of_a_group_sends_heartbeats(bootstrap: str, fresh_name: Fresh) -> None:
    topic, group = make_topic(bootstrap, fresh_name("topic")), fresh_name("group")

    def heartbeats() -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks() if task.get_name() == f"heartbeats of group {group}"]

    async with (
        Consumer(bootstrap_servers=bootstrap, topics=[topic], group_id=group) as consumer,
        asyncio.timeout(WAIT_S),
    ):
        while not consumer.assignment():
            await consumer.poll(100)
        assert len(heartbeats()) == 1
        cancel_all_except()
        await turns(2)
        assert not heartbeats()
        while not heartbeats():  # even while the program does not poll
            await asyncio.sleep(0.01)
        assert len(heartbeats()) == 1


async def test_a_consumer_with_a_pattern_learns_new_topics(bootstrap: str, fresh_name: Fresh) -> None:
    prefix = fresh_name("topic")
    first, second = f"{prefix}.a", f"{prefix}.b"
    make_topic(bootstrap, first)
    settings: dict[str, Any] = {"metadata_max_age_ms": 200, "group_id": fresh_name("group")}
    async with (
        Consumer(bootstrap_servers=bootstrap, pattern=rf"{prefix}\..*", **settings) as consumer,
        asyncio.timeout(WAIT_S),
    ):
        while consumer.assignment() != {(first, 0)}:
            await consumer.poll(50)
        cancel_all_except()
        make_topic(bootstrap, second)
        while consumer.assignment() != {(first, 0), (second, 0)}:
            await consumer.poll(50)


async def test_a_pool_shares_its_ids_with_another_pool(bootstrap: str, fresh_name: Fresh) -> None:
    settings: dict[str, Any] = {"prefix": fresh_name("pool"), "size": 2, "session_timeout_ms": 6000}
    async with TransactionalProducerPool(bootstrap_servers=bootstrap, **settings) as first, asyncio.timeout(WAIT_S):
        while first.status.held < 2:
            await asyncio.sleep(0.01)
        cancel_all_except()
        async with TransactionalProducerPool(bootstrap_servers=bootstrap, **settings) as second:
            while (first.status.held, second.status.held) != (1, 1):
                await asyncio.sleep(0.01)


def pool_of_one(bootstrap: str, fresh_name: Fresh) -> TransactionalProducerPool[Any, Any]:
    settings: dict[str, Any] = {"prefix": fresh_name("pool"), "size": 1, "exclusive": True}
    return TransactionalProducerPool(bootstrap_servers=bootstrap, **settings)


async def give_back_and_cancel_the_abort(pool: TransactionalProducerPool[Any, Any], topic: str) -> None:
    """Give back a producer with an open transaction, and cancel all tasks, one of which aborts the transaction."""
    producer = await pool.take()
    transaction = await producer.transaction().__aenter__()
    await transaction.send(topic, b"aborted")
    producer.give_back()
    cancel_all_except()
    await turns(2)


async def test_a_pool_lends_a_producer_again_whose_abort_was_cancelled(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with pool_of_one(bootstrap, fresh_name) as pool, asyncio.timeout(WAIT_S):
        await give_back_and_cancel_the_abort(pool, topic)
        async with pool.transaction() as transaction:
            await transaction.send(topic, b"committed")


async def test_a_pool_that_closes_closes_a_producer_whose_abort_was_cancelled(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    before = asyncio.all_tasks()
    async with pool_of_one(bootstrap, fresh_name) as pool, asyncio.timeout(WAIT_S):
        await give_back_and_cancel_the_abort(pool, topic)
    await none_is_left(before)


async def test_a_pool_that_takes_long_to_close_closes_a_producer_whose_abort_was_cancelled(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with FaultProxy(bootstrap) as proxy, asyncio.timeout(WAIT_S):
        before = asyncio.all_tasks()
        settings: dict[str, Any] = {"prefix": fresh_name("pool"), "size": 2, "exclusive": True}
        pool = TransactionalProducerPool(bootstrap_servers=proxy.address, **settings)
        await pool.start()
        await give_back_and_cancel_the_abort(pool, topic)
        producer = await pool.take()
        transaction = await producer.transaction().__aenter__()
        await transaction.send(topic, b"aborted")
        proxy.hold(EndTxnRequest, 3 * BEGIN_AGAIN_S, times=1)
        producer.give_back()
        await pool.close()
        await none_is_left(before)


async def test_a_pool_whose_close_is_cancelled_with_the_tasks_that_have_producers_closes_these(
    bootstrap: str, fresh_name: Fresh
) -> None:
    before = asyncio.all_tasks()
    settings: dict[str, Any] = {"prefix": fresh_name("pool"), "size": 2, "exclusive": True}
    pool = TransactionalProducerPool(bootstrap_servers=bootstrap, **settings)
    await pool.start()

    begun: list[PooledTransaction[Any, Any]] = []

    async def use() -> None:
        async with pool.producer() as producer:
            begun.append(await producer.transaction().__aenter__())
            await asyncio.Event().wait()

    users = [asyncio.create_task(use()) for _ in range(2)]
    while len(begun) < 2:
        await asyncio.sleep(0.01)
    closing = asyncio.create_task(pool.close())
    await turns(1)
    for task in (*users, closing):
        task.cancel()
    await asyncio.gather(closing, *users, return_exceptions=True)
    await none_is_left(before)


async def test_the_close_of_a_producer_of_a_pool_waits_although_the_abort_was_cancelled(
    bootstrap: str, fresh_name: Fresh
) -> None:
    async with pool_of_one(bootstrap, fresh_name) as pool, asyncio.timeout(WAIT_S):
        producer = await pool.take()
        await producer.transaction().__aenter__()
        closing = asyncio.create_task(producer.close())
        await turns(1)
        cancel_all_except(closing)
        await closing
        assert pool.status.idle == 1


async def test_a_pool_lends_an_id_again_whose_renewal_was_cancelled_twice(bootstrap: str, fresh_name: Fresh) -> None:
    async with FaultProxy(bootstrap) as proxy, asyncio.timeout(WAIT_S):
        settings: dict[str, Any] = {"prefix": fresh_name("pool"), "size": 1, "exclusive": True, "renew_after_s": 0.1}
        async with TransactionalProducerPool(bootstrap_servers=proxy.address, **settings) as pool:
            await (await pool.take()).close()
            proxy.hold(InitProducerIdRequest, 1.0, times=1)
            while pool.status.idle:
                await asyncio.sleep(0.01)
            while renewing := [task for task in asyncio.all_tasks() if task.get_name().startswith("renew idle")]:
                for task in renewing:
                    task.cancel()
                await turns(1)
            await (await pool.take()).close()
