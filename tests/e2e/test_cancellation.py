"""A caller's timeout is kept when the broker is gone: every call and every block of the client ends soon after it.

The broker is gone in two ways: it refuses connections, or it takes requests and never answers. What was cancelled
may use cancel.grace.ms at each step, which is short here; the settings that bound waiting otherwise are long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import oncelog
import pytest
from oncelog import (
    Admin,
    Broker,
    Consumer,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Processor,
    Producer,
    RebalanceListener,
    TopicPartition,
    TransactionalProducerPool,
)
from oncelog.client.consumer import membership
from oncelog.protocol.messages.produce import ProduceRequest
from support.proxy import FaultProxy

CLIENT = str(Path(oncelog.__file__).parent / "client")
PATIENCE_S = 8.0
"""How long a call may take that waits for minutes if it does not heed its cancellation."""
LIMIT_S = 0.2
WAIT_S = 30.0
ONE = TopicPartition("t", 0)
SETTINGS: dict[str, Any] = {"cancel_grace_ms": 200, "request_timeout_ms": 60_000, "reconnect_backoff_max_ms": 50}


class Gone:
    """A broker behind a proxy; `leave` makes it go away."""

    def __init__(self, proxy: FaultProxy, silent: bool) -> None:
        self.address = proxy.address
        self._proxy = proxy
        self._silent = silent
        self._gone = False
        self._then: Callable[[], None] = lambda: None

    def when_gone(self, then: Callable[[], None]) -> None:
        """Call `then` when the broker leaves, or now if it has left."""
        self._then = then
        if self._gone:
            then()

    def answered(self, api: type[Any]) -> asyncio.Event:
        """Return an event that is set when a request of this API has been answered."""
        event = asyncio.Event()
        self._proxy.on_answer = lambda answered, _: event.set() if answered is api else None
        return event

    def leave(self) -> None:
        self._gone = True
        self._then()
        if self._silent:
            self._proxy.silent = True
        else:
            self._proxy.down = True
            self._proxy.break_connections()

    def come_back(self) -> None:
        self._gone = False
        self._proxy.silent = self._proxy.down = False
        self._proxy.break_connections()


@pytest.fixture(autouse=True)
def what_bounds_leaving_a_group_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only cancel.grace.ms may end a wait within PATIENCE_S."""
    monkeypatch.setattr(membership, "JOIN_GRACE_S", 10 * WAIT_S)


@pytest.fixture(params=[False, True], ids=["refuses", "silent"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Gone]:
    async with (
        Broker() as broker,
        FaultProxy(broker.address) as proxy,
        Admin(bootstrap_servers=broker.address) as admin,
    ):
        await admin.create_topic("t", 1)
        yield Gone(proxy, request.param)


@pytest.fixture(autouse=True)
async def nothing_is_left_behind() -> AsyncIterator[None]:
    """No task of a client outlives it, and no exception is lost."""
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    before = asyncio.all_tasks()
    yield
    left = [task for task in asyncio.all_tasks() - before if getattr(task.get_coro(), "cr_code", None) is not None]
    ours = [task for task in left if task.get_coro().cr_code.co_filename.startswith(CLIENT)]  # type: ignore[union-attr]
    assert not ours
    assert not lost


async def promptly(broker: Gone, work: Callable[[], Awaitable[Any]]) -> None:
    """Run under a timeout that strikes when the broker has gone; the whole must be over soon after."""
    now = asyncio.get_running_loop().time

    async def limited() -> None:
        async with asyncio.timeout(None) as scope:

            def gone() -> None:
                scope.reschedule(now() + LIMIT_S)
                bound.reschedule(now() + PATIENCE_S)

            broker.when_gone(gone)
            await work()

    async with asyncio.timeout(WAIT_S) as bound:
        with pytest.raises(TimeoutError):
            await limited()


def pool_of(broker: Gone, **settings: Any) -> TransactionalProducerPool:
    return TransactionalProducerPool(
        bootstrap_servers=broker.address, prefix="p-", size=1, exclusive=True, **{**SETTINGS, **settings}
    )


async def test_a_transaction_of_a_pool(broker: Gone) -> None:
    async with contextlib.AsyncExitStack() as stack:
        pool = await stack.enter_async_context(pool_of(broker, max_wait_s=0.05))

        async def work() -> None:
            async with pool.transaction() as txn:
                await txn.send("t", b"before")
                broker.leave()
                await txn.send("t", b"lost")

        await promptly(broker, work)
        assert pool.status.in_use == 1, "its producer is still being settled"
        assert pool.status.idle == 0
        with pytest.raises(TimeoutError):  # and is not lent meanwhile
            await pool.take()
        stack.pop_all()
        async with asyncio.timeout(PATIENCE_S):
            await pool.close(timeout_s=0.1)


async def test_a_producer_of_a_pool_is_lent_again_when_the_broker_is_back(broker: Gone) -> None:
    async with pool_of(broker) as pool:

        async def work() -> None:
            async with pool.transaction() as txn:
                await txn.send("t", b"before")
                broker.leave()
                await asyncio.sleep(WAIT_S)

        await promptly(broker, work)
        broker.come_back()
        async with asyncio.timeout(WAIT_S), pool.transaction() as txn:
            txn.send("t", b"after")
        assert pool.status == (1, 0, 1, 0)
    async with Consumer(
        bootstrap_servers=broker.address, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as reader:
        reader.assign([ONE])
        async with asyncio.timeout(WAIT_S):
            assert (await anext(reader)).value == b"after"


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt])
async def test_leaving_the_block_of_a_pools_producer(broker: Gone, kind: type[BaseException]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        pool = await stack.enter_async_context(pool_of(broker))

        async def work() -> None:
            async with asyncio.timeout(None) as bound, pool.producer() as producer, producer.transaction() as txn:
                await txn.send("t", b"before")
                broker.leave()
                bound.reschedule(asyncio.get_running_loop().time() + PATIENCE_S)
                raise kind

        with pytest.raises(kind):
            await work()
        assert pool.status.in_use == 1, "its producer is still being settled"
        stack.pop_all()
        async with asyncio.timeout(PATIENCE_S):
            await pool.close(timeout_s=0.1)


async def test_leaving_a_pool(broker: Gone) -> None:
    async def work() -> None:
        async with pool_of(broker) as pool, pool.transaction() as txn:
            await txn.send("t", b"before")
            broker.leave()
            await asyncio.sleep(WAIT_S)

    await promptly(broker, work)


async def test_leaving_a_pool_that_shares_its_suffixes(broker: Gone) -> None:
    async def work() -> None:
        pool = TransactionalProducerPool(bootstrap_servers=broker.address, prefix="s-", size=1, **SETTINGS)
        async with pool, pool.transaction() as txn:
            await txn.send("t", b"before")
            broker.leave()
            ready.set()
            await asyncio.sleep(WAIT_S)

    ready = asyncio.Event()
    task = asyncio.ensure_future(work())
    await ready.wait()
    async with asyncio.timeout(PATIENCE_S):
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled()


async def test_closing_a_pool_that_settles_a_transaction(broker: Gone) -> None:
    pool = TransactionalProducerPool(bootstrap_servers=broker.address, prefix="s-", size=1, **SETTINGS)
    await pool.start()

    async def work() -> None:
        async with pool.transaction() as txn:
            await txn.send("t", b"before")
            broker.leave()
            await asyncio.sleep(WAIT_S)

    await promptly(broker, work)
    await promptly(broker, pool.close)


async def test_a_transaction_of_a_producer(broker: Gone) -> None:
    async with Producer(bootstrap_servers=broker.address, transactional_id="x", **SETTINGS) as producer:

        async def work() -> None:
            async with producer.transaction() as txn:
                await txn.send("t", b"before")
                broker.leave()
                await asyncio.sleep(WAIT_S)

        await promptly(broker, work)
        assert not producer.ready
        await promptly(broker, producer.begin_transaction)  # it waits for the abort, and can be cancelled
        broker.come_back()
        async with asyncio.timeout(WAIT_S), producer.transaction() as txn:
            await txn.send("t", b"after")


async def test_a_block_that_fails_can_be_cancelled_while_it_aborts(broker: Gone) -> None:
    async with Producer(bootstrap_servers=broker.address, transactional_id="x", **SETTINGS) as producer:

        async def work() -> None:
            async with producer.transaction() as txn:
                await txn.send("t", b"before")
                broker.leave()
                raise LookupError

        await promptly(broker, work)
        broker.come_back()
        async with asyncio.timeout(WAIT_S), producer.transaction() as txn:
            await txn.send("t", b"after")


@pytest.mark.parametrize("kind", ["producer", "consumer", "pool"])
async def test_leaving_a_client_that_another_task_closes(broker: Gone, kind: str) -> None:
    """The block ends as cancelled, although its wait for the other close() ends without success."""
    closing: list[asyncio.Future[None]] = []
    raised: list[BaseException] = []

    def client() -> Any:
        if kind == "consumer":
            return Consumer(bootstrap_servers=broker.address, group_id="g", topics=["t"], **SETTINGS)
        if kind == "producer":
            return Producer(bootstrap_servers=broker.address, transactional_id="x", **SETTINGS)
        return pool_of(broker)

    async def begin(client: Any) -> None:
        if kind == "consumer":
            while not client.assignment():
                await client.poll(100)
        else:
            producer = await client.take() if kind == "pool" else client
            transaction = await producer.transaction().__aenter__()
            await transaction.send("t", b"value")

    async def work() -> None:
        try:
            async with client() as open_client:
                await begin(open_client)
                broker.leave()
                closing.append(asyncio.ensure_future(open_client.close()))
                await asyncio.sleep(WAIT_S)
        except BaseException as error:
            raised.append(error)
            raise

    try:
        await promptly(broker, work)
    finally:
        for close in closing:
            close.cancel()
        await asyncio.gather(*closing, return_exceptions=True)
    assert isinstance(raised[0], asyncio.CancelledError)


async def test_leaving_a_producer(broker: Gone) -> None:
    async def work() -> None:
        async with Producer(bootstrap_servers=broker.address, **SETTINGS) as producer:
            await producer.send("t", b"before")
            broker.leave()
            await producer.send("t", b"lost")

    await promptly(broker, work)


async def test_leaving_a_transactional_producer(broker: Gone) -> None:
    async def work() -> None:
        async with Producer(bootstrap_servers=broker.address, transactional_id="x", **SETTINGS) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("t", b"before")
            broker.leave()
            await producer.send("t", b"lost")

    await promptly(broker, work)


PRODUCER_CALLS: dict[str, Callable[[Producer], Awaitable[Any]]] = {
    "send": lambda p: p.send("t", b"lost"),
    "send to an unknown topic": lambda p: p.send("unknown", b"lost"),
    "enqueue to an unknown topic": lambda p: p.enqueue("unknown", b"lost"),
    "flush": lambda p: p.flush(),
    "partitions_for": lambda p: p.partitions_for("unknown"),
    "close": lambda p: p.close(),
}


@pytest.mark.parametrize("name", PRODUCER_CALLS)
async def test_a_call_of_a_producer(broker: Gone, name: str) -> None:
    async def work() -> None:
        async with Producer(bootstrap_servers=broker.address, **SETTINGS) as producer:
            await producer.send("t", b"before")
            broker.leave()
            producer.send("t", b"lost")
            await PRODUCER_CALLS[name](producer)

    await promptly(broker, work)


TRANSACTION_CALLS: dict[str, Callable[[Producer], Awaitable[Any]]] = {
    "send_offsets": lambda p: p.send_offsets({ONE: 1}, ConsumerGroupMetadata("g")),
    "commit": lambda p: p.commit_transaction(),
    "abort": lambda p: p.abort_transaction(),
    "close": lambda p: p.close(),
}


@pytest.mark.parametrize("name", TRANSACTION_CALLS)
async def test_a_step_of_a_transaction(broker: Gone, name: str) -> None:
    async def work() -> None:
        async with Producer(bootstrap_servers=broker.address, transactional_id="x", **SETTINGS) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("t", b"before")
            broker.leave()
            await TRANSACTION_CALLS[name](producer)

    await promptly(broker, work)


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
async def test_starting(broker: Gone, kind: Any) -> None:
    broker.leave()
    await promptly(broker, kind(bootstrap_servers=broker.address, **SETTINGS).start)


class Committing(RebalanceListener):
    """Does what the documentation of a listener advises."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        assert self.consumer is not None
        await self.consumer.commit()


CONSUMER_CALLS: dict[str, Callable[[Consumer], Awaitable[Any]]] = {
    "poll": lambda c: c.poll(600_000),
    "iteration": lambda c: anext(c),
    "commit": lambda c: c.commit({ONE: 1}),
    "committed": lambda c: c.committed(ONE),
    "end_offsets": lambda c: c.end_offsets([ONE]),
    "seek_to_end": lambda c: c.seek_to_end(),
    "unsubscribe": lambda c: c.unsubscribe(),
    "partitions_for": lambda c: c.partitions_for("unknown"),
    "close": lambda c: c.close(),
}


@pytest.mark.parametrize("listens", [False, True], ids=["no listener", "listener"])
@pytest.mark.parametrize("name", CONSUMER_CALLS)
async def test_a_call_of_a_consumer_and_leaving_it(broker: Gone, name: str, listens: bool) -> None:
    listener = Committing()
    ready = asyncio.Event()

    async def work() -> None:
        async with Consumer(
            bootstrap_servers=broker.address, group_id="g", auto_offset_reset="earliest", **SETTINGS
        ) as consumer:
            listener.consumer = consumer
            consumer.subscribe(["t"], listener=listener if listens else None)
            await anext(consumer)
            broker.leave()
            ready.set()
            await CONSUMER_CALLS[name](consumer)
            await asyncio.sleep(WAIT_S)

    async with Producer(bootstrap_servers=broker.address) as producer:
        await producer.send("t", b"record")
    task = asyncio.ensure_future(work())
    async with asyncio.timeout(WAIT_S):
        await ready.wait()
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled()


async def test_a_listener_may_commit_while_the_consumer_is_closed(broker: Gone) -> None:
    listener = Committing()
    async with Producer(bootstrap_servers=broker.address) as producer:
        await producer.send("t", b"record")
    settings: Any = {"bootstrap_servers": broker.address, "group_id": "g"}
    async with asyncio.timeout(WAIT_S):
        async with Consumer(**settings, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            listener.consumer = consumer
            consumer.subscribe(["t"], listener=listener)
            await anext(consumer)
        async with Consumer(**settings) as after:
            assert (await after.committed(ONE))[ONE] == OffsetAndMetadata(1, "", 0)


ADMIN_CALLS: dict[str, Callable[[Admin], Awaitable[Any]]] = {
    "list_topics": lambda a: a.list_topics(),
    "describe_topics": lambda a: a.describe_topics(["t"]),
    "create_topic": lambda a: a.create_topic("new"),
    "describe_groups": lambda a: a.describe_groups(["g"]),
    "list_groups": lambda a: a.list_groups(),
    "list_offsets": lambda a: a.list_offsets({ONE: -1}),
    "fence_producers": lambda a: a.fence_producers(["x"]),
    "list_transactions": lambda a: a.list_transactions(),
}


@pytest.mark.parametrize("name", ADMIN_CALLS)
async def test_a_call_of_an_admin_client_and_leaving_it(broker: Gone, name: str) -> None:
    async def work() -> None:
        async with Admin(bootstrap_servers=broker.address, **SETTINGS) as admin:
            broker.leave()
            await ADMIN_CALLS[name](admin)

    await promptly(broker, work)


@pytest.mark.parametrize("broker", [True], indirect=True, ids=["silent"])
@pytest.mark.parametrize("group_aware", [True, False])
async def test_leaving_a_processor_after_an_error(broker: Gone, group_aware: bool) -> None:
    begun = asyncio.Event()

    async def process(records: list[Any], transaction: Any) -> None:
        written = broker.answered(ProduceRequest)
        transaction.send("out", b"made")
        await written.wait()
        begun.set()
        await asyncio.sleep(WAIT_S)

    async def work() -> None:
        async with Processor(
            bootstrap_servers=broker.address,
            group_id="g",
            transactional_id="x",
            topics=["t"],
            process=process,
            consumer_group_aware_transaction=group_aware,
            **SETTINGS,
        ) as processor:
            running = asyncio.ensure_future(processor.run())
            running.add_done_callback(lambda done: done.cancelled())
            await begun.wait()
            broker.leave()
            raise LookupError

    async with Producer(bootstrap_servers=broker.address) as producer:
        await producer.send("t", b"record")
    await promptly(broker, work)


@pytest.mark.parametrize("moment", ["in the function", "at the commit", "while idle"])
@pytest.mark.parametrize("group_aware", [True, False])
async def test_a_processor(broker: Gone, moment: str, group_aware: bool) -> None:
    reached = asyncio.Event()

    async def process(records: list[Any], transaction: Any) -> None:
        transaction.send("out", b"made")
        if moment == "while idle":
            return
        broker.leave()
        reached.set()
        if moment == "in the function":
            await asyncio.sleep(WAIT_S)

    async def work() -> None:
        async with Processor(
            bootstrap_servers=broker.address,
            group_id="g",
            transactional_id="x",
            topics=["t"],
            process=process,
            consumer_group_aware_transaction=group_aware,
            on_progress=lambda _: (broker.leave(), reached.set()),  # type: ignore[func-returns-value, arg-type]
            **SETTINGS,
        ) as processor:
            await processor.run()

    async with Producer(bootstrap_servers=broker.address) as producer:
        await producer.send("t", b"record")
    task = asyncio.ensure_future(work())
    async with asyncio.timeout(WAIT_S):
        await reached.wait()
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled()
