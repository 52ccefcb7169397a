"""A consumer alone: positions, look-ups, isolation, resets. On our broker and, with --kafka, on Apache Kafka."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from oncelog import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from oncelog.client.cluster import Cluster, KeyType
from oncelog.client.consumer import NoOffsetForPartitionError, OffsetAndTimestamp, OffsetOutOfRangeError
from oncelog.client.errors import IllegalStateError, error_for
from oncelog.protocol.errors import ErrorCode
from support.topics import created_topic

Names = Callable[[str], str]


@pytest.fixture
async def topic(bootstrap: str, fresh_name: Names) -> str:
    return await created_topic(bootstrap, fresh_name("topic"), 2)


def reader(bootstrap: str, **settings: Any) -> Consumer:
    return Consumer({"auto_offset_reset": "earliest", **settings}, bootstrap_servers=bootstrap)


async def fill(bootstrap: str, topic: str, count: int, partition: int = 0, start: int = 0) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(start, start + count):
            await producer.enqueue(topic, b"%d" % number, partition=partition, timestamp_ms=1_000_000 + number)
        await producer.flush()


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        values += [record.value for record in await consumer.poll(5000)]
    return values


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


async def test_records_come_in_order_with_everything_they_had(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.enqueue(
            topic, b"value", key=b"key", partition=1, timestamp_ms=1234, headers=[("a", b"1"), ("a", None)]
        )
        await producer.enqueue(topic, None, key=b"gone", partition=1, timestamp_ms=1235)
        await producer.flush()
    async with reader(bootstrap) as consumer:
        consumer.assign([(topic, 1)])
        records: list[Any] = []
        while len(records) < 2:
            records += await consumer.poll(5000)
    first, second = records
    assert (first.topic, first.partition, first.offset, first.timestamp) == (topic, 1, 0, 1234)
    assert (first.key, first.value, first.headers) == (b"key", b"value", [("a", b"1"), ("a", None)])
    assert (second.offset, second.key, second.value, second.headers) == (1, b"gone", None, [])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_all_codecs_are_read(bootstrap: str, topic: str, codec: Any) -> None:
    async with Producer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=50) as producer:
        for number in range(100):
            await producer.enqueue(topic, b"%d" % number, partition=0)
        await producer.flush()
    async with reader(bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        assert await read(consumer, 100) == numbers(0, 100)


async def test_poll_hands_out_no_more_than_asked_and_moves_the_position_by_it(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 50)
    partition = TopicPartition(topic, 0)
    async with reader(bootstrap) as consumer:
        consumer.assign([partition])
        assert await consumer.position(partition) == 0
        got = await consumer.poll(5000, max_records=7)
        assert [record.offset for record in got] == list(range(len(got)))
        assert 0 < len(got) <= 7
        assert await consumer.position(partition) == len(got)
        rest = await read(consumer, 50 - len(got))
        assert rest == numbers(len(got), 50)
        assert await consumer.lag(partition) == 0


async def test_the_position_moves_with_each_record_of_the_iteration(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 20)
    partition = TopicPartition(topic, 0)
    async with reader(bootstrap) as consumer:
        consumer.assign([partition])
        seen = 0
        async for record in consumer:
            assert record.offset == seen
            seen += 1
            assert await consumer.position(partition) == seen
            if seen == 20:
                break


async def test_seek_goes_back_and_forth(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 30)
    partition = TopicPartition(topic, 0)
    async with reader(bootstrap) as consumer:
        consumer.assign([partition])
        assert await read(consumer, 30) == numbers(0, 30)
        consumer.seek(partition, 25)
        assert await read(consumer, 5) == numbers(25, 30)
        await consumer.seek_to_beginning()
        assert await consumer.position(partition) == 0
        assert (await read(consumer, 1))[0] == b"0"
        await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 30
        with pytest.raises(IllegalStateError):
            consumer.seek((topic, 1), 0)


async def test_a_paused_partition_is_silent_and_goes_on_where_it_was(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 10, partition=0)
    await fill(bootstrap, topic, 10, partition=1, start=100)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with reader(bootstrap) as consumer:
        consumer.assign([first, second])
        consumer.pause(first)
        assert consumer.paused() == {first}
        assert await read(consumer, 10) == numbers(100, 110)
        assert await consumer.poll(50) == []
        consumer.resume(first)
        assert await read(consumer, 10) == numbers(0, 10)


async def test_getmany_can_be_limited_to_partitions(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 10, partition=0)
    await fill(bootstrap, topic, 10, partition=1, start=100)
    async with reader(bootstrap) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        found: list[bytes | None] = []
        while len(found) < 10:
            batches = await consumer.getmany(5000, partitions=[(topic, 1)])
            assert set(batches) == {TopicPartition(topic, 1)}
            found += [record.value for record in batches[TopicPartition(topic, 1)]]
        assert found == numbers(100, 110)
        assert await read(consumer, 10) == numbers(0, 10)


async def test_offsets_can_be_looked_up(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 30)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with reader(bootstrap) as consumer:
        assert await consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
        assert await consumer.end_offsets([first, second]) == {first: 30, second: 0}
        times = await consumer.offsets_for_times({first: 1_000_010, second: 5})
        found = times[first]
        assert isinstance(found, OffsetAndTimestamp)
        assert (found.offset, found.timestamp) == (10, 1_000_010)
        assert times[second] is None
        assert len(await consumer.partitions_for(topic)) == 2


async def test_without_a_committed_offset_latest_skips_what_is_there(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    await fill(bootstrap, topic, 10)
    partition = TopicPartition(topic, 0)
    async with reader(bootstrap, auto_offset_reset="latest", group_id=fresh_name("group")) as consumer:
        consumer.assign([partition])
        assert await consumer.position(partition) == 10
        await fill(bootstrap, topic, 5, start=10)
        assert await read(consumer, 5) == numbers(10, 15)


async def test_reset_policy_none_raises_and_a_seek_mends_it(bootstrap: str, topic: str, fresh_name: Names) -> None:
    await fill(bootstrap, topic, 3)
    partition = TopicPartition(topic, 0)
    async with reader(bootstrap, auto_offset_reset="none", group_id=fresh_name("group")) as consumer:
        consumer.assign([partition])
        with pytest.raises(NoOffsetForPartitionError) as raised:
            await consumer.poll(10_000)
        assert raised.value.partitions == (partition,)
        consumer.seek(partition, 99)
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.poll(10_000)
        consumer.seek(partition, 1)
        assert await read(consumer, 2) == numbers(1, 3)


async def test_an_offset_out_of_range_is_reset(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 3)
    partition = TopicPartition(topic, 0)
    async with reader(bootstrap) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        assert await read(consumer, 3) == numbers(0, 3)


async def test_deleted_records_are_gone(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 10)
    partition = TopicPartition(topic, 0)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        assert await admin.delete_records({partition: 4}) == {partition: 4}
    async with reader(bootstrap) as consumer:
        consumer.assign([partition])
        assert await read(consumer, 6) == numbers(4, 10)
        assert (await consumer.beginning_offsets([partition]))[partition] == 4


async def test_commits_survive_the_consumer(bootstrap: str, topic: str, fresh_name: Names) -> None:
    await fill(bootstrap, topic, 10)
    partition, group = TopicPartition(topic, 0), fresh_name("group")
    async with reader(bootstrap, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        assert await consumer.committed(partition) == {partition: None}
        assert len(await read(consumer, 10)) == 10
        await consumer.commit({partition: OffsetAndMetadata(4, "half way")})
        committed = (await consumer.committed(partition))[partition]
        assert committed is not None
        assert (committed.offset, committed.metadata) == (4, "half way")
    async with reader(bootstrap, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        assert await read(consumer, 6) == numbers(4, 10)
        told: list[object] = []
        await consumer.commit_async(callback=lambda offsets, error: told.append((dict(offsets), error)))
        assert told
        assert told[0][1] is None  # type: ignore[index]
        assert (await consumer.committed(partition))[partition].offset == 10  # type: ignore[union-attr]


async def test_a_commit_does_not_overtake_an_earlier_one(bootstrap: str, topic: str, fresh_name: Names) -> None:
    partition = TopicPartition(topic, 0)
    async with reader(bootstrap, group_id=fresh_name("group"), enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        await consumer.commit({partition: 1})  # finds the coordinator
        earlier = consumer.commit_async({partition: 2})
        await consumer.commit({partition: 3})
        await earlier
        assert (await consumer.committed(partition))[partition].offset == 3  # type: ignore[union-attr]


async def test_a_background_commit_that_nobody_awaits_reports_its_failure(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))
    async with reader(bootstrap, group_id=fresh_name("group"), enable_auto_commit=False) as consumer:
        consumer.assign([(topic, 0)])
        await asyncio.wait([consumer.commit_async({TopicPartition(fresh_name("missing"), 0): 1})])
    gc.collect()
    failures = [report["exception"] for report in reports]
    assert [failure.code for failure in failures] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_read_committed_sees_neither_aborted_nor_open_transactions(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    partition = TopicPartition(topic, 0)
    async with (
        Producer(bootstrap_servers=bootstrap, transactional_id=fresh_name("txn")) as one,
        Producer(bootstrap_servers=bootstrap, transactional_id=fresh_name("txn")) as other,
        reader(bootstrap, isolation_level="read_committed") as committed,
        reader(bootstrap) as everything,
    ):
        await one.init_transactions()
        await other.init_transactions()
        for number in range(10):
            await one.begin_transaction()
            await other.begin_transaction()
            await (await one.enqueue(topic, b"one-%d" % number, partition=0))
            await (await other.enqueue(topic, b"other-%d" % number, partition=0))
            await (one.commit_transaction() if number % 2 else one.abort_transaction())
            await (other.abort_transaction() if number % 3 else other.commit_transaction())
        await one.begin_transaction()
        await (await one.enqueue(topic, b"open", partition=0))
        committed.assign([partition])
        everything.assign([partition])
        wanted = {b"one-%d" % n for n in range(1, 10, 2)} | {b"other-%d" % n for n in range(0, 10, 3)}
        assert set(await read(committed, len(wanted))) == wanted
        assert len(await read(everything, 21)) == 21
        assert await committed.poll(100) == []
        ends = await committed.end_offsets([partition]), await everything.end_offsets([partition])
        assert ends[0][partition] < ends[1][partition]
        assert await committed.lag(partition) == 0
        await one.commit_transaction()
        assert await read(committed, 1) == [b"open"]
        assert await committed.lag(partition) == 0


async def test_large_records_come_whatever_the_limits(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(5):
            await producer.enqueue(topic, bytes([number]) * 300_000, partition=0)
        await producer.flush()
    async with reader(bootstrap, max_partition_fetch_bytes=1000, fetch_max_bytes=1000) as consumer:
        consumer.assign([(topic, 0)])
        values = await read(consumer, 5)
        assert [(value[0], len(value)) for value in values if value] == [(n, 300_000) for n in range(5)]


async def test_what_is_sent_while_a_poll_waits_comes_at_once(bootstrap: str, topic: str) -> None:
    async with reader(bootstrap, fetch_max_wait_ms=20_000) as consumer:
        consumer.assign([(topic, 0)])
        waiting = asyncio.create_task(consumer.poll(60_000))
        await fill(bootstrap, topic, 1)
        async with asyncio.timeout(60):
            assert [record.value for record in await waiting] == [b"0"]


async def test_wakeup_ends_a_poll(bootstrap: str, topic: str) -> None:
    async with reader(bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        waiting = asyncio.create_task(consumer.poll(60_000))
        await consumer.position((topic, 0))
        consumer.wakeup()
        async with asyncio.timeout(60):
            assert await waiting == []


async def test_a_cancelled_poll_loses_nothing(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 100)
    async with reader(bootstrap, max_partition_fetch_bytes=2000) as consumer:
        consumer.assign([(topic, 0)])
        values: list[bytes | None] = []
        while len(values) < 100:
            polling = asyncio.create_task(consumer.poll(5000, max_records=3))
            if len(values) % 2:
                polling.cancel()
            done = (await asyncio.gather(polling, return_exceptions=True))[0]
            if not isinstance(done, BaseException):
                values += [record.value for record in done]
            elif len(values) % 2:
                values += [record.value for record in await consumer.poll(5000, max_records=3)]
        assert values == numbers(0, 100)


async def test_one_task_polls_at_a_time(bootstrap: str, topic: str) -> None:
    async with reader(bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        waiting = asyncio.create_task(consumer.poll(60_000))
        await asyncio.sleep(0)
        with pytest.raises(IllegalStateError, match="another task"):
            await consumer.poll(0)
        consumer.wakeup()
        await waiting


async def test_the_iteration_ends_when_the_consumer_is_closed(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 1)
    consumer = reader(bootstrap)
    await consumer.start()
    consumer.assign([(topic, 0)])
    closing = [asyncio.create_task(consumer.close()) async for _ in consumer]
    await asyncio.gather(*closing)
    with pytest.raises(IllegalStateError, match="closed"):
        await consumer.poll(0)


async def test_partitions_that_are_not_asked_for_do_not_hold_up_the_others(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 2000)
    async with reader(bootstrap, max_partition_fetch_bytes=4096) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        assert await consumer.getmany(5000, 1)
        await fill(bootstrap, topic, 100, partition=1)
        found: list[bytes | None] = []
        async with asyncio.timeout(60):
            while len(found) < 100:
                batches = await consumer.getmany(1000, partitions=[(topic, 1)])
                assert batches.keys() <= {(topic, 1)}
                found += [record.value for records in batches.values() for record in records]
        assert found == numbers(0, 100)
        rest = await read(consumer, 1999)
        assert rest == numbers(1, 2000)


async def fill_with_small_batches(bootstrap: str, topic: str, count: int, partitions: int) -> None:
    """Write `count` records to each partition, in batches of one."""
    async with Producer(bootstrap_servers=bootstrap, batch_size=1) as producer:
        for number in range(count):
            for partition in range(partitions):
                await producer.enqueue(topic, b"%0900d" % number, partition=partition)
        await producer.flush()


async def test_partition_that_is_paused_while_much_of_it_waits_does_not_hold_up_the_others(
    bootstrap: str, topic: str
) -> None:
    await fill_with_small_batches(bootstrap, topic, 200, partitions=1)
    async with reader(bootstrap, max_partition_fetch_bytes=4096) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        assert len(await read(consumer, 200)) == 200  # nothing of the start is under way any more
        await fill_with_small_batches(bootstrap, topic, 200, partitions=1)
        await fill(bootstrap, topic, 100, partition=1)
        consumer.pause((topic, 0))
        async with asyncio.timeout(60):
            assert await read(consumer, 100) == numbers(0, 100)
        consumer.resume((topic, 0))
        assert len(await read(consumer, 200)) == 200


async def test_partition_that_is_given_up_while_much_of_it_waits_does_not_hold_up_the_others(
    bootstrap: str, topic: str
) -> None:
    await fill_with_small_batches(bootstrap, topic, 200, partitions=1)
    async with reader(bootstrap, max_partition_fetch_bytes=4096) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        assert len(await read(consumer, 200)) == 200  # nothing of the start is under way any more
        await fill_with_small_batches(bootstrap, topic, 200, partitions=1)
        await fill(bootstrap, topic, 100, partition=1)
        consumer.assign([(topic, 1)])
        async with asyncio.timeout(60):
            assert await read(consumer, 100) == numbers(0, 100)


async def test_background_commits_arrive_in_the_order_of_the_calls(
    bootstrap: str, topic: str, fresh_name: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = TopicPartition(topic, 0)
    looked_up = 0
    find = Cluster._find_coordinator

    async def first_not_available(cluster: Cluster, key_type: KeyType, key: str) -> Any:
        nonlocal looked_up
        looked_up += 1
        if looked_up == 1:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is loading")
        return await find(cluster, key_type, key)

    monkeypatch.setattr(Cluster, "_find_coordinator", first_not_available)
    async with Consumer(bootstrap_servers=bootstrap, group_id=fresh_name("group")) as consumer:
        consumer.assign([partition])
        commits = [consumer.commit_async({partition: offset}) for offset in (1, 2, 3)]
        await asyncio.gather(*commits)
        found = (await consumer.committed(partition))[partition]
    assert found is not None
    assert found.offset == 3
