"""Group-aware and per-partition producers, alone and in one group; workers; rebalances amid a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from oncelog import Consumer, ConsumerRecord, Processor, Producer, ProducerFencedError
from oncelog.client.errors import ConfigError, UnsupportedVersionError
from oncelog.client.processor import ProcessorTransaction
from oncelog.client.processor.producers import GroupAwareProducer
from oncelog.client.values import TopicPartition
from support.processing_job import PARTITIONS, WAIT_S, Job, Names, stop

COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


@pytest.fixture
async def job(bootstrap: str, fresh_name: Names) -> Job:
    job = Job(bootstrap, fresh_name)
    await job.create()
    return job


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.sleep(0.01)


def assigned(processor: Processor) -> set[TopicPartition]:
    return set().union(*(worker._consumer.assignment() for worker in processor._workers))


async def test_a_producer_for_each_partition_commits_the_partitions_apart(job: Job) -> None:
    together: list[set[int]] = []

    async def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        together.append({record.partition for record in records})
        job.copy(records, transaction)

    await job.fill(range(600))
    async with job.processor(process=process, consumer_group_aware_transaction=False) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(600)
        await stop(processor, running)
        assert processor.metrics.records_in == processor.metrics.records_out == 600
    assert all(len(partitions) == 1 for partitions in together)
    await job.check(600)


async def test_the_ids_are_those_of_application_topic_and_partition(job: Job) -> None:
    """Whoever initialises such an id fences the processor's producer of that partition, and only that one."""
    await job.fill(range(30))
    application, entered, go_on = job.fresh_name("application"), asyncio.Event(), asyncio.Event()

    async def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        job.copy(records, transaction)
        if records[0].partition == 1 and not go_on.is_set():
            entered.set()
            await go_on.wait()

    async with job.processor(
        process=process, consumer_group_aware_transaction=False, application_id=application
    ) as processor:
        running = asyncio.create_task(processor.run())
        async with asyncio.timeout(WAIT_S):
            await entered.wait()
        rival_id = f"{application}-{job.source}-1"
        async with Producer(bootstrap_servers=job.bootstrap, transactional_id=rival_id) as rival:
            await rival.init_transactions()
            go_on.set()
            await job.until_committed(30)
            with pytest.raises(ProducerFencedError):
                async with rival.transaction() as txn:
                    txn.send(job.target, b"never", partition=1)
        await stop(processor, running)
        assert processor.metrics.reinitialisations >= 1
    await job.check(30)


@pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])
async def test_partitions_go_from_one_kind_to_the_other_and_back(job: Job, settings: dict[str, object]) -> None:
    def member(group_aware: bool) -> Processor:
        return job.processor(
            max_batch_records=10, consumer_group_aware_transaction=group_aware, consumer_settings=settings
        )

    await job.fill(range(150))
    async with AsyncExitStack() as members:
        old = await members.enter_async_context(member(False))
        tasks = {old: asyncio.create_task(old.run())}
        await job.until_committed(30)
        new = await members.enter_async_context(member(True))
        tasks[new] = asyncio.create_task(new.run())
        await job.fill(range(150, 300))
        await until(lambda: bool(assigned(old)) and bool(assigned(new)))
        await job.fill(range(300, 450))
        await job.until_committed(450)
        await stop(old, tasks.pop(old))
        await old.__aexit__(None, None, None)
        await job.fill(range(450, 600))
        await job.until_committed(600)
        await until(lambda: len(assigned(new)) == PARTITIONS)
        back = await members.enter_async_context(member(False))
        tasks[back] = asyncio.create_task(back.run())
        await until(lambda: bool(assigned(back)))
        await stop(new, tasks.pop(new))
        await new.__aexit__(None, None, None)
        await job.fill(range(600, 750))
        await job.until_committed(750)
        await stop(back, tasks.pop(back))
    await job.check(750)


@pytest.mark.parametrize("group_aware", [True, False], ids=["group-aware", "per-partition"])
@pytest.mark.parametrize("heir_group_aware", [True, False], ids=["to-group-aware", "to-per-partition"])
async def test_what_a_vanished_member_left_open_is_decided_before_its_heir_reads(
    job: Job, group_aware: bool, heir_group_aware: bool
) -> None:
    """The member hangs with records and offsets sent; the group goes on without it, and then it wakes up."""
    await job.fill(range(60))
    inside, wake_up = asyncio.Event(), asyncio.Event()
    zombie = job.processor(
        consumer_group_aware_transaction=group_aware,
        consumer_settings={"session_timeout_ms": 6000, "max_poll_interval_ms": 1000},
        producer_settings={"transaction_timeout_ms": 4000},
    )
    async with zombie:
        worker = zombie._workers[0]
        commit = worker._commit_known

        async def hang(producer: Producer) -> None:
            inside.set()
            await wake_up.wait()  # offsets are sent, the decision is not
            await commit(producer)

        worker._commit_known = hang  # type: ignore[method-assign]
        hanging = asyncio.create_task(zombie.run())
        async with asyncio.timeout(WAIT_S):
            await inside.wait()
        async with job.processor(consumer_group_aware_transaction=heir_group_aware) as heir:
            running = asyncio.create_task(heir.run())
            await job.until_committed(60)
            wake_up.set()
            await stop(heir, running)
        zombie.stop()
        async with asyncio.timeout(WAIT_S):
            await hanging
    await job.check(60)


async def test_several_workers_in_one_process(job: Job) -> None:
    await job.fill(range(900))
    async with job.processor(workers=3, max_batch_records=50) as processor:
        running = asyncio.create_task(processor.run())
        await until(lambda: all(worker._consumer.assignment() for worker in processor._workers))
        await job.fill(range(900, 1200))
        await job.until_committed(1200)
        await stop(processor, running)
        assert processor.metrics.records_in == 1200
        assert processor.metrics.rebalances >= 3
    await job.check(1200)


async def test_one_worker_that_fails_ends_them_all(job: Job) -> None:
    await assert_all_workers_end(job, 3, failing(job, ValueError("thirteen")), ValueError, "thirteen")


@pytest.mark.parametrize("plain", [True, False], ids=["plain function", "coroutine function"])
@pytest.mark.parametrize("workers", [1, 3])
async def test_a_function_that_raises_cancelled_error_by_itself_ends_all_workers_with_an_error(
    job: Job, workers: int, plain: bool
) -> None:
    process = failing(job, asyncio.CancelledError())

    async def process_waiting(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        process(records, transaction)

    function = process if plain else process_waiting
    await assert_all_workers_end(job, workers, function, RuntimeError, "the function raised CancelledError")


def failing(job: Job, error: BaseException) -> Callable[[list[ConsumerRecord], ProcessorTransaction], None]:
    """Return a function that copies records, and that raises an error for the record 13."""

    def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        job.copy(records, transaction)
        if any(record.value == b"13" for record in records):
            raise error

    return process


async def assert_all_workers_end(
    job: Job,
    workers: int,
    process: Callable[[list[ConsumerRecord], ProcessorTransaction], Awaitable[None] | None],
    error: type[Exception],
    message: str,
) -> None:
    """Check that the failure of one worker ends the run with this error, and that the next run copies each record."""
    async with job.processor(workers=workers, process=process) as processor:
        running = asyncio.create_task(processor.run())
        await until(lambda: all(worker._consumer.assignment() for worker in processor._workers))
        await job.fill(range(30))
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(error, match=message):
                await running
    async with job.processor() as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(30)
        await stop(processor, running)
    await job.check(30)


async def test_a_rebalance_in_the_middle_of_a_transaction_aborts_it(job: Job) -> None:
    """The function would never end: the group does not wait for it until max.poll.interval.ms."""
    await job.fill(range(30))
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        job.copy(records, transaction)
        if not cancelled.is_set():
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    async with AsyncExitStack() as members:
        first = await members.enter_async_context(job.processor(process=process))
        tasks = [(first, asyncio.create_task(first.run()))]
        async with asyncio.timeout(WAIT_S):
            await entered.wait()
        second = await members.enter_async_context(job.processor())
        tasks.append((second, asyncio.create_task(second.run())))
        async with asyncio.timeout(WAIT_S):
            await cancelled.wait()
        await job.until_committed(30)
        assert first.metrics.aborts >= 1
        for processor, task in tasks:
            await stop(processor, task)
    await job.check(30)


async def test_nothing_is_read_before_the_committed_offsets_of_the_new_generation(job: Job) -> None:
    """A member that keeps its partitions in a cooperative rebalance goes on at the committed offsets, too."""
    await job.fill(range(300))
    async with AsyncExitStack() as members:
        first = await members.enter_async_context(job.processor(max_batch_records=5, consumer_settings=COOPERATIVE))
        tasks = [(first, asyncio.create_task(first.run()))]
        await job.until_committed(10)
        for _ in range(3):
            owned = first._workers[0]._owned
            other = Consumer(
                COOPERATIVE,
                bootstrap_servers=job.bootstrap,
                group_id=job.group,
                topics=[job.source],
                enable_auto_commit=False,
            )
            async with other:
                await other.poll(1000)
                await until(lambda before=owned: first._workers[0]._owned not in (before, None))  # type: ignore[misc]
        await job.until_committed(300)
        await stop(*tasks[0])
    await job.check(300)


async def test_the_feature_is_used_where_it_is_and_may_be_required(job: Job, request: pytest.FixtureRequest) -> None:
    await job.fill(range(30))
    if request.config.getoption("--kafka"):
        with pytest.raises(UnsupportedVersionError, match=r"group\.aware\.transaction"):
            await job.processor(consumer_group_aware_transaction="require").__aenter__()
    async with job.processor(
        consumer_group_aware_transaction=True if request.config.getoption("--kafka") else "require"
    ) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(30)
        producers = processor._workers[0]._producers
        assert isinstance(producers, GroupAwareProducer)
        assert producers._owned.producer.group_aware is not request.config.getoption("--kafka")
        await stop(processor, running)
    await job.check(30)


def test_a_group_aware_worker_needs_a_name_and_per_partition_producers_may_have_one() -> None:
    with pytest.raises(ConfigError, match="give each worker its own id"):
        Processor(topics=["t"], group_id="g", process=print)
    Processor(topics=["t"], group_id="g", process=print, consumer_group_aware_transaction=False)
    Processor(topics=["t"], group_id="g", process=print, consumer_group_aware_transaction=False, transactional_id="x")
