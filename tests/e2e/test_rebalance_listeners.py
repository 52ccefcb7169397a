"""Rebalance listeners that take long, or call the consumer that waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from oncelog import Consumer, IllegalStateError, Producer, TopicPartition, sync
from oncelog.client.consumer import RebalanceListener
from oncelog.protocol.messages.leave_group import LeaveGroupRequest
from support.proxy import FaultProxy

Names = Callable[[str], str]
WAIT_S = 20.0


async def member(bootstrap: str, fresh_name: Names, listener: RebalanceListener) -> tuple[Consumer, str]:
    """A started consumer that subscribes to a topic with one record."""
    topic = fresh_name("topic")
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send(topic, b"record", partition=0)
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=fresh_name("group"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    consumer.subscribe([topic], listener=listener)
    return consumer, topic


class Slow(RebalanceListener):
    """Gives up partitions when it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.begun = asyncio.Event()
        self.running = self.most_at_once = 0

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        first = not self.begun.is_set()
        self.begun.set()
        if first:
            await self.may.wait()
        self.running -= 1


async def test_a_cancelled_unsubscribe_leaves_the_rebalance_under_way_to_the_next_poll(
    bootstrap: str, fresh_name: Names
) -> None:
    listener = Slow()
    consumer, _ = await member(bootstrap, fresh_name, listener)
    async with asyncio.timeout(WAIT_S):
        await anext(consumer)
        consumer.enforce_rebalance()
        while not listener.begun.is_set():
            await consumer.poll(10)
        leaving = asyncio.ensure_future(consumer.unsubscribe())
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
        for _ in range(5):
            await consumer.poll(200)
        listener.may.set()
        # It never committed, so the record comes again with the new assignment.
        assert (await anext(consumer)).value == b"record"
        assert listener.most_at_once == 1
        assert consumer.assignment()
    await consumer.close()


CALLS: dict[str, Callable[[Consumer], Awaitable[Any]]] = {
    "close": lambda consumer: consumer.close(),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "poll": lambda consumer: consumer.poll(600_000),
    "iteration": lambda consumer: anext(consumer),
}


class Calling(RebalanceListener):
    """Makes a call that waits for the rebalance, when the poll that began it has returned."""

    def __init__(self, call: Callable[[], Awaitable[Any]]) -> None:
        self._call = call
        self.begun, self.alone = asyncio.Event(), asyncio.Event()
        self.refused: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self.begun.set()
        await self.alone.wait()
        try:
            await self._call()
        except IllegalStateError as error:
            self.refused.set_result(error)
        else:
            self.refused.set_result(None)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_would_wait_for_its_own_listener_is_refused(
    bootstrap: str, fresh_name: Names, name: str
) -> None:
    listener = Calling(lambda: CALLS[name](consumer))
    consumer, topic = await member(bootstrap, fresh_name, listener)
    async with asyncio.timeout(WAIT_S):
        while not listener.begun.is_set():
            await consumer.poll(10)
        listener.alone.set()
        assert "rebalance listener" in str(await listener.refused)
        assert (await anext(consumer)).topic == topic
        await consumer.close()


async def test_a_listener_may_begin_a_task_that_closes_the_consumer(bootstrap: str, fresh_name: Names) -> None:
    class Closing(RebalanceListener):
        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            self.closing = asyncio.ensure_future(consumer.close())

    listener = Closing()
    consumer, _ = await member(bootstrap, fresh_name, listener)
    async with asyncio.timeout(WAIT_S):
        async for _ in consumer:
            pass
        await listener.closing


@pytest.mark.parametrize("timeout_s", [0.0, None])
async def test_closing_ends_every_task_however_short_the_time(
    bootstrap: str, fresh_name: Names, timeout_s: float | None
) -> None:
    before = asyncio.all_tasks()
    consumer, _ = await member(bootstrap, fresh_name, RebalanceListener())
    async with asyncio.timeout(WAIT_S):
        await anext(consumer)
        consumer.forget_positions()  # positions are looked up while it is closed
        await consumer.poll(0)
        await consumer.close(timeout_s=timeout_s)
    assert asyncio.all_tasks() - before == set()


class Forever(RebalanceListener):
    """Never gives up its partitions."""

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        await asyncio.Event().wait()


async def test_closing_does_not_wait_for_ever_for_a_listener(bootstrap: str, fresh_name: Names) -> None:
    topic = fresh_name("topic")
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send(topic, b"record")
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=fresh_name("group"),
        topics=[topic],
        listener=Forever(),
        auto_offset_reset="earliest",
        max_poll_interval_ms=300,
        default_api_timeout_ms=300,
    )
    async with asyncio.timeout(WAIT_S):
        await consumer.start()
        await anext(consumer)
        await consumer.close()


async def _generates(partitions: set[TopicPartition]) -> Any:
    yield partitions


class AsyncGenerator(RebalanceListener):
    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> Any:
        yield partitions


class Generator(RebalanceListener):
    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> Any:
        yield partitions


class Half:
    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        pass


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        (AsyncGenerator(), "on_partitions_revoked returns a generator"),
        (Generator(), "on_partitions_assigned returns a generator"),
        (Half(), "has no method on_partitions_revoked"),
    ],
)
async def test_a_listener_that_could_not_be_called_is_refused(
    bootstrap: str, fresh_name: Names, listener: Any, words: str
) -> None:
    with pytest.raises(IllegalStateError, match=words):
        Consumer(bootstrap_servers=bootstrap, group_id="g", topics=["t"], listener=listener)
    with pytest.raises(IllegalStateError, match=words):
        sync.Consumer(bootstrap_servers=bootstrap, group_id="g", topics=["t"], listener=listener)
    async with Consumer(bootstrap_servers=bootstrap, group_id=fresh_name("group")) as consumer:
        with pytest.raises(IllegalStateError, match=words):
            consumer.subscribe([fresh_name("topic")], listener=listener)


async def test_a_listener_that_returns_a_generator_fails_the_poll(bootstrap: str, fresh_name: Names) -> None:
    listener = RebalanceListener()
    listener.on_partitions_assigned = lambda partitions: _generates(partitions)  # type: ignore[method-assign]
    consumer, _ = await member(bootstrap, fresh_name, listener)
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(IllegalStateError, match="returns a generator"):
            await anext(consumer)
        await consumer.close()


async def test_a_cancelled_future_that_a_listener_awaits_ends_the_poll(bootstrap: str, fresh_name: Names) -> None:
    class Waiting(RebalanceListener):
        async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

    consumer, _ = await member(bootstrap, fresh_name, Waiting())
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(asyncio.CancelledError):
            await anext(consumer)
        await consumer.close()


async def test_a_call_in_a_task_that_the_listener_waits_for_is_refused(bootstrap: str, fresh_name: Names) -> None:
    class Waiting(RebalanceListener):
        async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            await asyncio.create_task(consumer.close())

    consumer, topic = await member(bootstrap, fresh_name, Waiting())
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(IllegalStateError, match="rebalance listener"):
            await anext(consumer)
        assert (await anext(consumer)).topic == topic
        await consumer.close()


class Joins(RebalanceListener):
    """Waits for another task before it gives up partitions."""

    def __init__(self) -> None:
        self.task: asyncio.Future[None]

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        await asyncio.wait({self.task})


async def test_a_listener_may_wait_for_a_task_that_closes_the_consumer_too(bootstrap: str, fresh_name: Names) -> None:
    listener = Joins()
    consumer, _ = await member(bootstrap, fresh_name, listener)
    reads = asyncio.Event()

    async def read() -> None:
        async for _ in consumer:
            reads.set()
        await consumer.close()  # as at the end of an `async with` block

    async with asyncio.timeout(WAIT_S):
        listener.task = asyncio.create_task(read())
        await reads.wait()
        await consumer.close()
        assert listener.task.done()


async def test_a_listener_may_close_the_consumer_that_is_being_closed(bootstrap: str, fresh_name: Names) -> None:
    class Closes(RebalanceListener):
        async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            await consumer.close()

    consumer, _ = await member(bootstrap, fresh_name, Closes())
    async with asyncio.timeout(WAIT_S):
        await anext(consumer)
        await consumer.close()


async def test_a_second_close_waits_for_the_first_if_there_is_no_listener(bootstrap: str, fresh_name: Names) -> None:
    async with FaultProxy(bootstrap) as proxy, asyncio.timeout(WAIT_S):
        consumer = Consumer(bootstrap_servers=proxy.address, group_id=fresh_name("group"), topics=[fresh_name("topic")])
        await consumer.start()
        await consumer.poll(1000)
        proxy.hold(LeaveGroupRequest, 0.3)
        first = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        await consumer.close()
        assert proxy.seen["LeaveGroup"] == 1
        await first
