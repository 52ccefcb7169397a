"""Records that cannot be processed: to the dead-letter topic, in the transaction that also commits their offset."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from oncelog import Admin, Consumer, ConsumerRecord, Producer
from oncelog.client.admin import ConfigResource
from oncelog.client.admin.values import ResourceType
from oncelog.client.errors import ErrorCode, IllegalStateError, RecordTooLargeError, RetriableError
from oncelog.client.processor import OutputRecord, ProcessorTransaction
from oncelog.client.processor.worker import IDLE_POLL_MS
from support.processing_job import PARTITIONS, WAIT_S, Job, Names, stop

BAD = {7, 41, 42, 43, 99}


@pytest.fixture
async def job(bootstrap: str, fresh_name: Names) -> Job:
    job = Job(bootstrap, fresh_name)
    job.dead = fresh_name("dead")
    await job.create(job.dead)
    return job


def number_of(record: ConsumerRecord) -> int:
    assert record.value is not None
    return int(record.value)


async def dead_letters(job: Job) -> list[ConsumerRecord]:
    async with Consumer(bootstrap_servers=job.bootstrap, isolation_level="read_committed") as consumer:
        partitions = [(job.dead, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        found: list[ConsumerRecord] = []
        async with asyncio.timeout(WAIT_S):
            while sum([await consumer.lag(partition) for partition in partitions]):
                found += await consumer.poll(1000)
        return found


async def process_all(job: Job, total: int, **options: Any) -> None:
    async with job.processor(dead_letter_topic=job.dead, **options) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(total)
        await stop(processor, running)
        assert processor.metrics.records_in == total
        assert processor.metrics.dead_letters == len([number for number in BAD if number < total])


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the errors that the log lines about dead letters name, in order."""
    lines = [record.getMessage() for record in caplog.records]
    return [line.partition(" goes to the dead-letter topic: ")[2] for line in lines if "dead-letter topic" in line]


async def check(job: Job, total: int) -> None:
    good = [[n for n in range(index, total, PARTITIONS) if n not in BAD] for index in range(PARTITIONS)]
    assert await job.result() == good
    assert sorted(map(number_of, await dead_letters(job))) == sorted(number for number in BAD if number < total)


@pytest.mark.parametrize("group_aware", [True, False], ids=["group-aware", "per-partition"])
async def test_a_batch_function_that_fails_loses_only_the_culprits(job: Job, group_aware: bool) -> None:
    await job.fill(range(200))

    def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            transaction.send(job.target, record.value, partition=record.partition)
            if number_of(record) in BAD:
                raise ValueError(f"{number_of(record)} cannot be processed")

    await process_all(job, 200, process=process, consumer_group_aware_transaction=group_aware)
    await check(job, 200)


async def test_the_culprit_is_found_though_each_fetch_takes_longer_than_an_idle_poll(job: Job) -> None:
    await job.fill(range(9))

    def copy(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            if number_of(record) in BAD:
                raise ValueError(f"{record.value!r} is bad")
            transaction.send(job.target, record.value, partition=record.partition)

    slow = {"fetch_min_bytes": 10_000_000, "fetch_max_wait_ms": IDLE_POLL_MS + 500}
    await process_all(job, 9, process=copy, consumer_settings=slow)
    await check(job, 9)


async def test_a_transformation_that_fails_costs_no_abort(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    await job.fill(range(200))

    def transform(record: ConsumerRecord) -> list[OutputRecord]:
        if number_of(record) in BAD:
            raise ValueError("cannot be processed")
        return [OutputRecord(job.target, record.value, partition=record.partition)]

    async with job.processor(dead_letter_topic=job.dead, transform=transform) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(200)
        await stop(processor, running)
        assert processor.metrics.aborts == 0
        assert processor.metrics.dead_letters == len(BAD)
        assert processor.metrics.records_out == 200 - len(BAD)
    await check(job, 200)
    assert logged(caplog) == ["ValueError('cannot be processed')"] * len(BAD)


async def test_a_dead_letter_says_where_it_came_from_and_keeps_the_rest(job: Job) -> None:
    async with Producer(bootstrap_servers=job.bootstrap) as producer:
        sent = await producer.send(
            job.source, b"\x00bad", key=b"key", partition=2, timestamp_ms=1234, headers=[("own", b"1"), ("none", None)]
        )

    def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        raise ValueError("no number: " + "x" * 5000)

    async with job.processor(dead_letter_topic=job.dead, process=process) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(1)
        await stop(processor, running)
    (letter,) = await dead_letters(job)
    assert (letter.key, letter.value, letter.timestamp) == (b"key", b"\x00bad", 1234)
    assert letter.headers[:2] == [("own", b"1"), ("none", None)]
    errors = dict(letter.headers[2:])
    assert errors.pop("__oncelog.errors.message") == b"no number: " + b"x" * 989
    assert errors == {
        "__oncelog.errors.topic": job.source.encode(),
        "__oncelog.errors.partition": b"2",
        "__oncelog.errors.offset": b"%d" % sent.offset,
        "__oncelog.errors.exception": b"ValueError",
    }


def refuse(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
    raise ValueError("é" * 900)


async def fill_with_bytes(job: Job, *sizes: int) -> None:
    async with Producer(bootstrap_servers=job.bootstrap) as producer:
        for size in sizes:
            await producer.send(job.source, bytes(size), partition=0)


async def test_a_dead_letter_near_the_producers_limit_says_less_about_its_error(job: Job) -> None:
    await fill_with_bytes(job, 1000, 1660)
    async with job.processor(
        dead_letter_topic=job.dead, process=refuse, producer_settings={"max_request_size": 1900}
    ) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(2)
        await stop(processor, running)
    shortened, brief = sorted(await dead_letters(job), key=lambda letter: len(letter.value or b""))
    errors = dict(shortened.headers)
    assert errors["__oncelog.errors.exception"] == b"ValueError"
    message = (errors["__oncelog.errors.message"] or b"").decode()
    assert 200 < len(message) < 900
    assert message == "é" * len(message)
    assert dict(brief.headers) == {
        "__oncelog.errors.topic": job.source.encode(),
        "__oncelog.errors.partition": b"0",
        "__oncelog.errors.offset": b"1",
    }


@pytest.mark.parametrize("size", [1000, 1400], ids=["without-its-error", "not-at-all"])
async def test_a_dead_letter_beyond_the_topics_limit_is_sent_without_its_error(job: Job, size: int) -> None:
    await fill_with_bytes(job, size)
    async with Admin(bootstrap_servers=job.bootstrap) as admin:
        await admin.alter_configs({ConfigResource(ResourceType.TOPIC, job.dead): {"max.message.bytes": "1400"}})
    async with job.processor(dead_letter_topic=job.dead, process=refuse) as processor:
        running = asyncio.create_task(processor.run())
        if size == 1400:
            too_large = f"dead letter of {job.source}-0 at offset 0 .*'{job.dead}'"
            with pytest.raises(RecordTooLargeError, match=too_large):
                async with asyncio.timeout(WAIT_S):
                    await running
        else:
            await job.until_committed(1)
            await stop(processor, running)
    letters = await dead_letters(job)
    assert [[name for name, _ in letter.headers] for letter in letters] == (
        [[f"__oncelog.errors.{part}" for part in ("topic", "partition", "offset")]] if size == 1000 else []
    )


async def test_an_output_that_is_too_large_makes_its_input_a_dead_letter(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    await job.fill(range(60))

    def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            value = bytes(3_000_000) if number_of(record) in BAD else record.value
            transaction.send(job.target, value, partition=record.partition)

    await process_all(job, 60, process=process)
    await check(job, 60)
    assert len(logged(caplog)) == 4


async def test_a_retriable_error_is_retried_and_buries_nothing(job: Job) -> None:
    failures = 0
    await job.fill(range(30))

    def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        nonlocal failures
        job.copy(records, transaction)
        if failures < 2:
            failures += 1
            raise RetriableError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "something outside is away for a while")

    async with job.processor(dead_letter_topic=job.dead, process=process) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(30)
        await stop(processor, running)
    assert await dead_letters(job) == []
    await job.check(30)


async def test_the_function_may_bury_a_record_itself(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    await job.fill(range(60))
    kept: list[Callable[..., None]] = []

    def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        kept.append(transaction.dead_letter)
        for record in records:
            if number_of(record) in BAD:
                transaction.dead_letter(record, ValueError("bad"))
            else:
                transaction.send(job.target, record.value, partition=record.partition)

    await process_all(job, 60, process=process)
    await check(job, 60)
    assert logged(caplog) == ["ValueError('bad')"] * 4


async def test_without_a_dead_letter_topic_it_cannot(job: Job) -> None:
    await job.fill(range(1))
    with pytest.raises(IllegalStateError, match="dead_letter_topic"):
        async with job.processor(process=lambda records, txn: txn.dead_letter(records[0], ValueError())) as processor:
            await processor.run()
