"""The processor: exactly once through aborts, rebalances, fencing and restarts. On our broker and on Apache Kafka."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from oncelog import Admin, ConsumerRecord, Processor, RecordCorruptError
from oncelog.client.errors import ConfigError, ErrorCode, FatalError, IllegalStateError, KafkaError, RetriableError
from oncelog.client.processor import Metrics, OutputRecord, ProcessorTransaction
from oncelog.client.processor.producers import GroupAwareProducer
from support.processing_job import PARTITIONS, WAIT_S, Job, Names, stop


@pytest.fixture
async def job(bootstrap: str, fresh_name: Names) -> Job:
    job = Job(bootstrap, fresh_name)
    await job.create()
    return job


async def test_every_record_is_processed_once_and_in_order(job: Job) -> None:
    seen: list[Metrics] = []
    await job.fill(range(1000))
    async with job.processor(max_batch_records=100, on_progress=lambda m: seen.append(m)) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(1000)
        await stop(processor, running)
        assert processor.metrics.records_in == processor.metrics.records_out == 1000
        assert processor.metrics.commits == len(seen) >= 10
    await job.check(1000)


async def test_transform_gives_any_number_of_records(job: Job) -> None:
    await job.fill(range(30))

    async def transform(record: ConsumerRecord) -> list[OutputRecord]:
        assert record.value is not None
        number = int(record.value)
        return [OutputRecord(job.target, record.value, partition=0)] * (number % 3)

    async with job.processor(transform=transform) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(30)
        await stop(processor, running)
    found = Counter((await job.result())[0])
    assert found == Counter({number: number % 3 for number in range(30) if number % 3})


async def test_a_function_that_raises_aborts_and_the_next_run_does_it_again(job: Job) -> None:
    await job.fill(range(50))

    def fail(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        job.copy(records, transaction)
        raise ValueError("cannot be processed")

    transactional_id = job.fresh_name("transactional")
    async with job.processor(transactional_id, process=fail) as processor:
        with pytest.raises(ValueError, match="cannot be processed") as failed:
            await processor.run()
        (note,) = failed.value.__notes__
        assert re.fullmatch(rf"while processing a batch of \d+ records: {job.source}-\d offsets \d+ to \d+.*", note)
        assert any(entry.name == "fail" for entry in failed.traceback)
        assert processor.metrics.commits == 0
    assert await job.result() == [[], [], []]
    async with job.processor(transactional_id) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(50)
        await stop(processor, running)
    await job.check(50)


async def test_a_batch_that_cannot_be_read_ends_the_run(job: Job) -> None:
    await job.fill(range(50))
    async with job.processor(consumer_settings={"max_batch_objects": 1}) as processor, asyncio.timeout(WAIT_S):
        with pytest.raises(RecordCorruptError, match=f"{job.source}-.* to skip it"):
            await processor.run()


async def test_cancelling_aborts_the_transaction_under_way(job: Job) -> None:
    await job.fill(range(50))
    inside = asyncio.Event()

    async def hang(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        job.copy(records, transaction)
        inside.set()
        await asyncio.Event().wait()

    async with job.processor(process=hang) as processor:
        running = asyncio.create_task(processor.run())
        async with asyncio.timeout(WAIT_S):
            await inside.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await job.result() == [[], [], []]
    async with job.processor() as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(50)
        await stop(processor, running)
    await job.check(50)


async def test_closing_cancels_a_run_under_way(job: Job) -> None:
    await job.fill(range(50))
    inside = asyncio.Event()

    async def hang(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        job.copy(records, transaction)
        inside.set()
        await asyncio.Event().wait()

    async with job.processor(process=hang) as processor:
        running = asyncio.create_task(processor.run())
        async with asyncio.timeout(WAIT_S):
            await inside.wait()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await job.result() == [[], [], []]


@pytest.mark.parametrize("phase", ["gathering", "processing", "offsets", "deciding"])
async def test_a_cancelled_run_can_be_run_again(job: Job, phase: str) -> None:
    await job.fill(range(60))
    async with job.processor(max_batch_records=20) as processor:
        worker, reached = processor._workers[0], asyncio.Event()

        def then_cancel(call: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
            async def cancelled(*args: object, **named: Any) -> None:
                if reached.is_set():
                    return await call(*args, **named)
                doing = asyncio.ensure_future(call(*args, **named))
                reached.set()
                await asyncio.gather(doing)

            return cancelled

        def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
            job.copy(records, transaction)
            if phase == "processing" and not reached.is_set():
                reached.set()
                raise asyncio.CancelledError

        worker._options = replace(worker._options, process=process)
        running = asyncio.create_task(processor.run())
        async with asyncio.timeout(WAIT_S):
            while worker._dirty:
                await asyncio.sleep(0)
        assert isinstance(worker._producers, GroupAwareProducer)
        producer = worker._producers._owned.producer
        if phase == "offsets":
            producer.send_offsets_to_transaction = then_cancel(producer.send_offsets_to_transaction)  # type: ignore[method-assign, assignment]
        elif phase == "deciding":
            assert producer._transactions is not None
            calls = producer._transactions._calls
            calls.end = then_cancel(calls.end)  # type: ignore[method-assign, assignment]
        async with asyncio.timeout(WAIT_S):
            while phase == "gathering" and not worker._batch.records:
                await asyncio.sleep(0)
            if phase != "gathering":
                await reached.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        running = asyncio.create_task(processor.run())
        await job.until_committed(60)
        await stop(processor, running)
    await job.check(60)


@pytest.mark.parametrize("reset", [None, "latest"])
async def test_the_first_records_survive_an_abort(job: Job, reset: str | None) -> None:
    """Nothing is committed yet when the first transaction is aborted: going back must not mean the end."""
    aborted = 0

    def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        nonlocal aborted
        job.copy(records, transaction)
        if aborted < 3:
            aborted += 1
            raise RetriableError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    processor = Processor(
        bootstrap_servers=job.bootstrap,
        topics=[job.source],
        group_id=job.group,
        transactional_id=job.fresh_name("transactional"),
        process=process,
        consumer_settings={} if reset is None else {"auto_offset_reset": reset},
    )
    async with processor:
        running = asyncio.create_task(processor.run())
        async with asyncio.timeout(WAIT_S):
            worker = processor._workers[0]
            while worker._dirty or len(worker._consumer._subscription.positions()) < PARTITIONS:
                await asyncio.sleep(0.01)  # before that, the end of the topic may be looked up once more
        await job.fill(range(30))
        await job.until_committed(30)
        await stop(processor, running)
    await job.check(30)


async def test_a_transaction_that_timed_out_is_done_again(job: Job) -> None:
    """The coordinator aborts it and fences the producer; a new producer with the same id goes on."""
    await job.fill(range(60))
    slow = True

    async def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        nonlocal slow
        job.copy(records, transaction)
        if slow:
            slow = False
            await until_aborted(job.bootstrap, transactional_id)

    transactional_id = job.fresh_name("transactional")
    async with job.processor(
        transactional_id, process=process, producer_settings={"transaction_timeout_ms": 500}
    ) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(60)
        await stop(processor, running)
        assert processor.metrics.reinitialisations + processor.metrics.aborts >= 1
    await job.check(60)


async def until_aborted(bootstrap: str, transactional_id: str) -> None:
    """Wait until the coordinator has ended an ongoing transaction by itself."""
    from oncelog.client.cluster import Cluster, KeyType
    from oncelog.client.config import ClientConfig
    from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest

    cluster = Cluster(ClientConfig.of(bootstrap_servers=bootstrap))
    seen = set()
    try:
        await cluster.start(10)
        async with asyncio.timeout(WAIT_S):
            while "CompleteAbort" not in seen:
                node = await cluster.coordinator(KeyType.TRANSACTION, transactional_id, 10)
                answer = await cluster.call(node, DescribeTransactionsRequest(transactional_ids=[transactional_id]))
                state = answer.transaction_states[0].transaction_state
                if "Ongoing" in seen or state == "Ongoing":
                    seen.add(state)
    finally:
        await cluster.close()


async def test_workers_share_and_take_over(job: Job) -> None:
    await job.fill(range(300))
    async with AsyncExitStack() as workers:
        first = await workers.enter_async_context(job.processor(max_batch_records=20))
        tasks = [asyncio.create_task(first.run())]
        await job.until_committed(20)
        second = await workers.enter_async_context(job.processor(max_batch_records=20))
        tasks.append(asyncio.create_task(second.run()))
        await job.fill(range(300, 600))
        await job.until_committed(600)
        await stop(first, tasks[0])
        await first.__aexit__(None, None, None)
        await job.fill(range(600, 900))
        await job.until_committed(900)
        await stop(second, tasks[1])
    await job.check(900)


async def test_a_cooperative_group_is_exactly_once_too(job: Job) -> None:
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    await job.fill(range(300))
    async with AsyncExitStack() as workers:
        first = await workers.enter_async_context(job.processor(max_batch_records=10, consumer_settings=settings))
        tasks = [asyncio.create_task(first.run())]
        await job.until_committed(20)
        second = await workers.enter_async_context(job.processor(max_batch_records=10, consumer_settings=settings))
        tasks.append(asyncio.create_task(second.run()))
        await job.fill(range(300, 600))
        await job.until_committed(600)
        await stop(second, tasks[1])
        await stop(first, tasks[0])
    await job.check(600)


async def test_a_worker_that_vanished_is_replaced_and_what_it_left_open_is_aborted(job: Job) -> None:
    """The replacement has the same transactional id: it aborts, then reads the committed offsets, then goes on."""
    await job.fill(range(90))
    transactional_id = job.fresh_name("transactional")
    inside = asyncio.Event()

    async def hang(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        job.copy(records, transaction)
        inside.set()
        await asyncio.Event().wait()

    settings = {"group_instance_id": "worker"}
    zombie = job.processor(transactional_id, process=hang, consumer_settings=settings)
    async with zombie:
        hanging = asyncio.create_task(zombie.run())
        async with asyncio.timeout(WAIT_S):
            await inside.wait()
        async with job.processor(transactional_id, consumer_settings=settings) as processor:
            running = asyncio.create_task(processor.run())
            await job.until_committed(90)
            await stop(processor, running)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
    await job.check(90)


async def test_two_processors_with_one_transactional_id_do_not_fence_each_other_for_ever(
    job: Job, request: pytest.FixtureRequest
) -> None:
    transactional_id = job.fresh_name("transactional")
    total = 0
    async with AsyncExitStack() as workers:
        both = [await workers.enter_async_context(job.processor(transactional_id, max_batch_records=1)) for _ in "ab"]
        tasks = [asyncio.create_task(one.run()) for one in both]
        async with asyncio.timeout(WAIT_S):
            while not any(task.done() for task in tasks):  # both must have work for as long as that takes
                await job.fill(range(total, total + 30))
                total += 30
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=0.1)
        for one in both:
            one.stop()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        # Apache Kafka refuses a fenced producer's commit with INVALID_TXN_STATE until its transaction is aborted.
        expected = KafkaError if request.config.getoption("--kafka") else FatalError
        assert any(isinstance(outcome, expected) for outcome in outcomes)
    async with job.processor(transactional_id) as last:
        running = asyncio.create_task(last.run())
        await job.until_committed(total)
        await stop(last, running)
    await job.check(total)


async def test_a_batch_larger_than_the_buffer_goes_through(job: Job) -> None:
    def blow_up(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            for _ in range(20):
                transaction.send(job.target, bytes(10_000), partition=record.partition)

    await job.fill(range(30))
    async with job.processor(process=blow_up, producer_settings={"buffer_memory": 100_000}) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(30)
        await stop(processor, running)
        assert processor.metrics.records_out == 600


async def test_a_record_that_waits_for_room_keeps_the_content_it_was_sent_with(job: Job) -> None:
    row = bytearray()
    headers: list[tuple[str, bytes]] = []

    def reuse(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            assert record.value is not None
            row[:] = record.value.ljust(10_000)
            headers[:] = [("number", record.value)]
            transaction.send(job.target, row, key=record.value, partition=0, headers=headers)

    await job.fill(range(60))
    async with job.processor(process=reuse, producer_settings={"buffer_memory": 100_000}) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(60)
        await stop(processor, running)
    copies = await job.copies(60)
    assert [(copy.value or b"").strip() for copy in copies] == [copy.key for copy in copies]
    assert [list(copy.headers) for copy in copies] == [[("number", copy.key)] for copy in copies]


async def test_a_wrong_type_fails_the_call_even_if_records_wait_for_room(job: Job) -> None:
    refused: list[TypeError] = []

    def overfill(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for _ in range(20):
            transaction.send(job.target, bytes(10_000))
        try:
            transaction.send(job.target, "text")  # type: ignore[arg-type]
        except TypeError as error:
            refused.append(error)

    await job.fill(range(1))
    async with job.processor(process=overfill, producer_settings={"buffer_memory": 100_000}) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(1)
        await stop(processor, running)
        assert processor.metrics.records_out == 20
    assert len(refused) == 1


async def test_sending_after_the_function_has_returned_is_refused(job: Job) -> None:
    kept: list[ProcessorTransaction] = []
    await job.fill(range(1))
    async with job.processor(process=lambda records, transaction: kept.append(transaction)) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(1)
        await stop(processor, running)
    with pytest.raises(IllegalStateError, match="the transaction has ended"):
        kept[0].send(job.target, b"late")


async def _yields_later(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> AsyncIterator[None]:
    for record in records:
        transaction.send("never", record.value)
        yield


def _yields(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> Iterator[None]:
    for record in records:
        transaction.send("never", record.value)
        yield


async def _returns_a_generator(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> Iterator[None]:
    return _yields(records, transaction)


@pytest.mark.parametrize("process", [_yields, _yields_later, _returns_a_generator])
async def test_a_function_that_is_a_generator_is_refused_and_skips_nothing(job: Job, process: Any) -> None:
    await job.fill(range(3))
    async with job.processor(process=process) as processor, asyncio.timeout(WAIT_S):
        running = asyncio.create_task(processor.run())
        committing = asyncio.create_task(job.until_committed(3))
        await asyncio.wait({running, committing}, return_when=asyncio.FIRST_COMPLETED)
        assert not committing.done(), "records that nobody processed are committed"
        committing.cancel()
        with pytest.raises(TypeError, match="generator"):
            await running


async def test_settings_of_one_client_may_be_given_for_both(job: Job) -> None:
    await job.fill(range(30))
    settings: Any = {"group.instance.id": "worker", "linger_ms": 1, "client_id": "copier"}
    async with job.processor(**settings) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(30)
        processor.stop()
        await running


async def test_a_setting_that_neither_client_knows_is_refused(job: Job) -> None:
    with pytest.raises(ConfigError, match="is not a setting"):
        job.processor(group_instance="worker")


def test_settings_that_the_processor_owns_are_refused() -> None:
    for settings in ({"isolation_level": "read_uncommitted"}, {"enable.auto.commit": True}, {"group_id": "other"}):
        with pytest.raises(ConfigError, match="set by the processor"):
            Processor(topics=["t"], group_id="g", transactional_id="t", process=print, consumer_settings=settings)
    with pytest.raises(ConfigError, match="process"):
        Processor(topics=["t"], group_id="g", transactional_id="t")


async def test_a_batch_of_a_deleted_topic_skips_no_record_of_the_new_topic_of_its_name(job: Job) -> None:
    """The topic is deleted and created again while its records are processed, and the worker ends after the commit."""
    await job.fill([0, 3, 6])
    seen: list[bytes | None] = []
    noticed = asyncio.Event()
    replacing: list[asyncio.Task[None]] = []

    async def replace_topic() -> None:
        async with Admin(bootstrap_servers=job.bootstrap) as admin:
            await admin.delete_topics([job.source])
            async with asyncio.timeout(WAIT_S):
                while job.source in await admin.list_topics():
                    await asyncio.sleep(0.05)
        await job.create_source()
        await job.fill([9, 12, 15, 18])

    async def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        if len(seen) == 3:
            raise ValueError("the worker ends here")
        seen.extend(record.value for record in records)
        if len(seen) == 3:
            replacing.append(asyncio.create_task(replace_topic()))
            await asyncio.shield(replacing[0])  # a rebalance in the middle cancels this function
            async with asyncio.timeout(WAIT_S):
                await noticed.wait()

    def notice(topic_ids: set[bytes]) -> None:
        if len(topic_ids) > 1:
            noticed.set()

    settings = {"metadata_max_age_ms": 100, "allow_auto_create_topics": False}
    async with job.processor(process=process, consumer_settings=settings) as processor:
        watching = asyncio.create_task(watch_topic_id(processor, job.source, notice))
        with pytest.raises(ValueError, match="ends here"):
            await processor.run()
        watching.cancel()
    await run_until_written(job, 4)
    assert await job.result() == [[9, 12, 15, 18], [], []]


async def test_offsets_of_a_deleted_topic_are_refused_although_the_worker_has_not_heard_of_the_new_one(
    job: Job, request: pytest.FixtureRequest
) -> None:
    """A plain function blocks the event loop, so that the worker's metadata are older than the new topic.

    The worker ends after the commit, so that the next worker begins at the committed offset.
    """
    if request.config.getoption("--kafka"):
        pytest.skip("Apache Kafka's TxnOffsetCommit has no topic ids")
    await job.fill([0, 3, 6])
    seen: list[bytes | None] = []

    async def replace_topic() -> None:
        async with Admin(bootstrap_servers=job.bootstrap) as admin:
            await admin.delete_topics([job.source])
        await job.create_source()
        await job.fill([9, 12, 15, 18])

    def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        if seen:
            raise ValueError("the worker ends here")
        seen.extend(record.value for record in records)
        replacing = threading.Thread(target=asyncio.run, args=(replace_topic(),))
        replacing.start()
        replacing.join(WAIT_S)

    async with job.processor(process=process, max_batch_records=3, max_batch_ms=10_000) as processor:
        with pytest.raises(ValueError, match="ends here"):
            await processor.run()
    assert seen == [b"0", b"3", b"6"]
    await run_until_written(job, 4)
    assert await job.result() == [[9, 12, 15, 18], [], []]


async def run_until_written(job: Job, count: int) -> None:
    """Run another worker until the output topic has `count` records."""
    async with job.processor() as processor:
        running = asyncio.create_task(processor.run())
        async with asyncio.timeout(WAIT_S):
            while sum(map(len, await job.result())) < count:
                await asyncio.sleep(0.05)
        await stop(processor, running)


async def watch_topic_id(processor: Processor, topic: str, notice: Callable[[set[bytes]], None]) -> None:
    """Tell `notice` all ids of the topic that the worker's consumer has seen until now."""
    seen: set[bytes] = set()
    while True:
        known = processor._workers[0]._consumer._cluster.metadata.topics.get(topic)
        if known is not None and known.partitions:
            seen.add(known.topic_id)
        notice(seen)
        await asyncio.sleep(0.01)
