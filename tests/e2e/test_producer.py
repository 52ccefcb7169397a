"""The producer against a running broker: records arrive as they were sent, and settings do what they say."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest
from oncelog import (
    Admin,
    BufferFullError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    Producer,
    RecordMetadata,
    RecordTooLargeError,
    RetriableError,
)
from support.reading import make_topic, read_topic, values

Fresh = Callable[[str], str]


async def test_send_returns_where_the_record_was_written(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(bootstrap_servers=bootstrap) as producer:
        first = await producer.send(topic, b"one", key=b"k", timestamp_ms=1234, headers=[("h", b"v"), ("n", None)])
        second = await producer.send(topic, None, key=b"k")
    assert first == RecordMetadata(topic, 0, 0, 1234)
    assert (second.offset, second.partition) == (1, 0)
    one, two = read_topic(bootstrap, topic)[0]
    assert (one.key(), one.value(), one.headers()) == (b"k", b"one", [("h", b"v"), ("n", None)])
    assert one.timestamp()[1] == 1234
    assert two.value() is None


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_arrives(bootstrap: str, fresh_name: Fresh, codec: str) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    sent = [b"record %d " % number * 20 for number in range(500)]
    async with Producer({"bootstrap.servers": bootstrap, "compression.type": codec}) as producer:
        for value in sent:
            await producer.enqueue(topic, value)
    assert values(bootstrap, topic) == sent


async def test_keys_land_where_stock_clients_put_them(bootstrap: str, fresh_name: Fresh) -> None:
    from confluent_kafka import Producer as StockProducer

    topic = make_topic(bootstrap, fresh_name("topic"), partitions=5)
    keys = [b"key-%d" % number for number in range(40)] + [b"", b"\xff" * 100]
    stock = StockProducer({"bootstrap.servers": bootstrap, "partitioner": "murmur2"})
    for key in keys:
        stock.produce(topic, b"stock", key)
    assert stock.flush(30) == 0
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for key in keys:
            producer.send(topic, b"ours", key=key)
    placed: dict[bytes, dict[bytes, int]] = {b"stock": {}, b"ours": {}}
    for partition, found in read_topic(bootstrap, topic).items():
        for message in found:
            placed[message.value() or b""][message.key() or b""] = partition
    assert placed[b"ours"] == placed[b"stock"]


async def test_records_without_key_fill_batches_and_spread(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), partitions=3)
    async with Producer(bootstrap_servers=bootstrap, batch_size=1000) as producer:
        deliveries = [producer.send(topic, b"x" * 100) for _ in range(600)]
        metadata = await asyncio.gather(*deliveries)
    used = [one.partition for one in metadata]
    assert set(used) == {0, 1, 2}
    changes = sum(before != after for before, after in itertools.pairwise(used))
    assert changes < 120, "records without a key move on only when a batch is full"


async def test_order_is_kept_in_each_partition(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), partitions=2)
    async with Producer(bootstrap_servers=bootstrap, batch_size=300, linger_ms=0) as producer:
        for number in range(2000):
            await producer.enqueue(topic, b"%06d" % number, partition=number % 2)
    for partition, found in read_topic(bootstrap, topic).items():
        assert [message.value() for message in found] == [b"%06d" % number for number in range(partition, 2000, 2)]


async def test_without_idempotence_and_with_every_acks(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    for acks in ("all", 1, 0):
        async with Producer(bootstrap_servers=bootstrap, enable_idempotence=False, acks=acks) as producer:
            metadata = await producer.send(topic, b"acks %s" % str(acks).encode())
            assert (metadata.offset == -1) is (acks == 0)
    for _ in range(100):
        if len(values(bootstrap, topic)) == 3:
            break
    assert values(bootstrap, topic) == [b"acks all", b"acks 1", b"acks 0"]


async def test_two_producers_on_one_topic(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(bootstrap_servers=bootstrap) as one, Producer(bootstrap_servers=bootstrap) as two:
        await asyncio.gather(*[producer.send(topic, b"x") for producer in (one, two) for _ in range(100)])
    assert len(values(bootstrap, topic)) == 200


async def test_a_topic_is_created_by_the_first_record(bootstrap: str, fresh_name: Fresh) -> None:
    topic = fresh_name("auto")
    async with Producer(bootstrap_servers=bootstrap) as producer:
        early = producer.send(topic, b"first")  # the topic is not known: the record waits for that
        later = await producer.enqueue(topic, b"second")
        assert (await early).offset == 0
        assert (await later).offset == 1
        assert await producer.partitions_for(topic) >= 1


async def test_a_batch_too_large_for_the_topic_is_split(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), config={"max.message.bytes": "2000"})
    sent = [b"%03d" % number * 100 for number in range(60)]
    async with Producer(bootstrap_servers=bootstrap, batch_size=16_000) as producer:
        deliveries = [producer.send(topic, value) for value in sent]
        metadata = await asyncio.gather(*deliveries)
    assert [one.offset for one in metadata] == list(range(60))
    assert values(bootstrap, topic) == sent


async def test_a_record_too_large_is_refused_and_the_next_ones_go_on(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), config={"max.message.bytes": "2000"})
    async with Producer(bootstrap_servers=bootstrap, max_request_size=100_000) as producer:
        await producer.send(topic, b"before")
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
            producer.send(topic, b"x" * 100_000)
        large = producer.send(topic, b"x" * 5000)
        with pytest.raises(RecordTooLargeError):
            await large
        await producer.send(topic, b"after")
    assert values(bootstrap, topic) == [b"before", b"after"]


async def test_a_failed_delivery_that_nobody_awaits_is_raised_by_flush(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), config={"max.message.bytes": "2000"})
    async with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"x" * 5000)
        with pytest.raises(RecordTooLargeError):
            await producer.flush()
        producer.send(topic, b"small")
        await producer.flush()


async def test_failed_raises_each_failure_once_and_ends_with_the_producer(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), config={"max.message.bytes": "2000"})
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(2):
            failing = asyncio.create_task(producer.failed())
            await producer.send(topic, b"small")
            assert not failing.done()
            await producer.enqueue(topic, b"x" * 5000)
            with pytest.raises(RecordTooLargeError):
                await failing
            await producer.flush()
        waiting = asyncio.create_task(producer.failed())
        await producer.send(topic, b"small")
        assert not waiting.done()
    with pytest.raises(IllegalStateError, match="is closed"):
        await waiting


@pytest.mark.parametrize("placed", [True, False])
async def test_each_flush_raises_the_failure_of_a_record_that_it_waited_for(
    bootstrap: str, fresh_name: Fresh, placed: bool
) -> None:
    good = make_topic(bootstrap, fresh_name("good"))
    small = make_topic(bootstrap, fresh_name("small"), config={"max.message.bytes": "2000"})

    async def flushed(topic: str, size: int) -> BaseException | None:
        await producer.partitions_for(topic)
        producer.send(topic, bytes(size))
        (failure,) = await asyncio.gather(producer.flush(), return_exceptions=True)
        return failure

    async with Producer(bootstrap_servers=bootstrap) as producer:
        if placed:
            await producer.enqueue(good, b"")
            await producer.enqueue(small, b"")
            await producer.flush()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(flushed(topic, size)) for topic, size in ((good, 1), (small, 5000), (good, 1))]
        assert isinstance(tasks[1].result(), RecordTooLargeError)
        await producer.flush()


async def test_a_full_buffer_refuses_send_and_lets_enqueue_wait(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(
        bootstrap_servers=bootstrap, buffer_memory=50_000, batch_size=10_000, linger_ms=60_000, request_timeout_ms=5000
    ) as producer:
        await producer.partitions_for(topic)
        await producer.enqueue(topic, b"first")
        with pytest.raises(BufferFullError, match=r"buffer\.memory"):
            [producer.send(topic, b"x" * 900) for _ in range(100)]
        for _ in range(200):
            await producer.enqueue(topic, b"x" * 900)
        await producer.flush()
    assert len(values(bootstrap, topic)) > 200


async def test_a_cancelled_enqueue_has_handed_over_nothing(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    reported: list[KafkaError | None] = []
    async with Producer(bootstrap_servers=bootstrap, batch_size=1000) as producer:
        await producer.send(topic, b"first")
        returned = 1

        async def feed() -> None:
            nonlocal returned
            while True:
                await producer.enqueue(topic, b"value", on_delivery=lambda error, _: reported.append(error))
                returned += 1

        for _ in range(5):
            feeding = asyncio.create_task(feed())
            await asyncio.sleep(0)  # it runs until a batch is full
            assert feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        await producer.flush()
    assert returned > 5
    assert len(values(bootstrap, topic)) == returned
    assert reported == [None] * (returned - 1)


async def test_tasks_that_enqueue_at_the_same_time_keep_their_order(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(bootstrap_servers=bootstrap, batch_size=1000) as producer:
        await producer.send(topic, b"first")
        await asyncio.gather(*(producer.enqueue(topic, b"%d" % number) for number in range(500)))
    assert values(bootstrap, topic) == [b"first", *(b"%d" % number for number in range(500))]


async def test_bad_records_are_refused_in_words(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for known in (False, True):
            with pytest.raises(TypeError, match="value must be bytes or None, not str; encode it"):
                producer.send(topic, "text")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="key must be bytes"):
                producer.send(topic, b"", key=5)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="headers must be"):
                producer.send(topic, b"", headers=[("a", 1)])  # type: ignore[list-item]
            if not known:
                await producer.send(topic, b"good")
        with pytest.raises(RetriableError, match="partitions are 0 to 0"):
            producer.send(topic, b"", partition=7)
        with pytest.raises(ValueError, match="before 1970"):
            producer.send(topic, b"", timestamp_ms=-5)
        with pytest.raises(InvalidTopicError):
            await producer.send("not a topic name!", b"")
    assert values(bootstrap, topic) == [b"good"]


async def test_a_producer_that_is_not_open_says_so(bootstrap: str) -> None:
    producer = Producer(bootstrap_servers=bootstrap)
    with pytest.raises(IllegalStateError, match="not started"):
        producer.send("t", b"")
    await producer.start()
    with pytest.raises(IllegalStateError, match=r"needs a producer with a transactional\.id"):
        await producer.begin_transaction()
    await producer.close()
    await producer.close()
    with pytest.raises(IllegalStateError, match="is closed"):
        await producer.flush()


async def test_no_broker_is_a_timeout_that_tells_why() -> None:
    from support.apache_kafka import free_port

    producer = Producer(bootstrap_servers=f"127.0.0.1:{free_port()}", max_block_ms=300)
    with pytest.raises(KafkaTimeoutError, match="Connection refused"):
        await producer.start()


async def test_keys_go_to_partitions_that_a_topic_has_since_it_was_made_anew(bootstrap: str, fresh_name: Fresh) -> None:
    topic = fresh_name("topic")
    keys = [b"%d" % number for number in range(12)]
    async with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Producer(bootstrap_servers=bootstrap, request_timeout_ms=5000, delivery_timeout_ms=10_000) as producer,
    ):
        await admin.create_topic(topic, 6)
        for key in keys:
            await producer.send(topic, b"old", key=key)
        await admin.delete_topics([topic])
        await admin.create_topic(topic, 2)
        await producer.send(topic, b"new", partition=0)  # the refused attempt tells the producer
        placed = [await producer.send(topic, b"new", key=key) for key in keys]
        assert {one.partition for one in placed} == {0, 1}
        with pytest.raises(KafkaError, match="has no partition 5: its known partitions are 0 to 1"):
            producer.send(topic, b"new", partition=5)
