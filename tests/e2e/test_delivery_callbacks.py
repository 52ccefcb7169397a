"""`on_delivery`: called once for each record, in order, with what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import oncelog.sync
import pytest
from oncelog import (
    Broker,
    KafkaError,
    Producer,
    RecordMetadata,
    RecordTooLargeError,
    TransactionalProducerPool,
    UnknownTopicError,
)
from support.reading import make_topic

Fresh = Callable[[str], str]


async def test_callbacks_run_in_order_before_flush_returns(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    reports: list[tuple[KafkaError | None, RecordMetadata | None]] = []
    async with Producer(bootstrap_servers=bootstrap, batch_size=100) as producer:
        for _ in range(20):  # the first records wait for the topic's metadata
            producer.send(topic, b"x" * 40, timestamp_ms=5, on_delivery=lambda *report: reports.append(report))
        await producer.flush()
        assert reports == [(None, RecordMetadata(topic, 0, offset, 5)) for offset in range(20)]
        await producer.enqueue(topic, b"x", timestamp_ms=5, on_delivery=lambda *report: reports.append(report))
    assert reports[20:] == [(None, RecordMetadata(topic, 0, 20, 5))]


async def test_a_response_for_several_batches_is_reported_before_flush_returns(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), partitions=5)
    reported: list[int] = []
    async with Producer(bootstrap_servers=bootstrap, linger_ms=1000) as producer:
        await producer.partitions_for(topic)
        for partition in range(5):
            producer.send(
                topic,
                b"",
                partition=partition,
                on_delivery=lambda error, metadata: reported.append(metadata.partition if metadata else -1),
            )
        await producer.flush()
        assert sorted(reported) == [0, 1, 2, 3, 4]


async def test_a_failure_goes_to_the_callback_and_not_to_flush(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), config={"max.message.bytes": "1000"})
    reports: list[tuple[KafkaError | None, RecordMetadata | None]] = []
    async with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, bytes(2000), on_delivery=lambda *report: reports.append(report))
        await producer.flush()
        ((error, metadata),) = reports
        assert isinstance(error, RecordTooLargeError)
        assert metadata is None
        producer.send(topic, bytes(2000))
        with pytest.raises(RecordTooLargeError):
            await producer.flush()


async def test_a_callback_that_only_asks_whether_a_record_was_written_leaves_the_failure_to_flush(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), config={"message.timestamp.after.max.ms": "1000"})
    reports: list[tuple[str, bool]] = []
    async with Producer(bootstrap_servers=bootstrap) as producer:  # both records wait for the topic's metadata
        for name, timestamp_ms in (("written", 5), ("refused", 2**50)):
            delivery = producer.send(topic, b"", timestamp_ms=timestamp_ms)
            delivery.when_done(lambda written, name=name: reports.append((name, written)))  # type: ignore[misc]
            if name == "written":
                await delivery
        with pytest.raises(KafkaError, match="INVALID_TIMESTAMP"):
            await producer.flush()
        assert reports == [("written", True), ("refused", False)]
        delivery.when_done(lambda written: reports.append(("again", written)))
        await producer.flush()
        await asyncio.sleep(0)
        assert reports[2:] == [("again", False)]


async def test_a_failure_received_twice_does_not_hide_that_of_another_record_of_the_batch(
    bootstrap: str, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), config={"message.timestamp.after.max.ms": "1000"})
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.partitions_for(topic)
        reported = producer.send(topic, b"a", timestamp_ms=2**50, on_delivery=lambda error, metadata: None)
        producer.send(topic, b"b", timestamp_ms=2**50)
        with pytest.raises(KafkaError, match="INVALID_TIMESTAMP"):
            await reported
        with pytest.raises(KafkaError, match="INVALID_TIMESTAMP"):
            await producer.flush()
        await producer.flush()


async def test_the_failure_of_a_record_does_not_hide_that_of_another_of_the_same_missing_topic() -> None:
    async with (
        Broker(auto_create_topics_enable=False) as broker,
        Producer(bootstrap_servers=broker.address, max_block_ms=200) as producer,
    ):
        awaited = producer.send("missing", b"a")
        producer.send("missing", b"b")
        with pytest.raises(UnknownTopicError):
            await awaited
        with pytest.raises(UnknownTopicError):
            await producer.flush()
        await producer.flush()


async def test_an_exception_of_a_callback_goes_to_the_event_loop_alone(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    caught: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: caught.append(context["exception"]))

    def fail(error: KafkaError | None, metadata: RecordMetadata | None) -> None:
        raise ValueError("of the callback")

    async with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"one", on_delivery=fail)
        metadata = await producer.send(topic, b"two")
    assert metadata.offset == 1
    assert [str(error) for error in caught] == ["of the callback"]


async def test_transactions_pools_and_blocking_clients_have_callbacks_too(bootstrap: str, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    offsets: list[int] = []

    def note(error: KafkaError | None, metadata: RecordMetadata | None) -> None:
        assert metadata is not None
        offsets.append(metadata.offset)

    async with (
        Producer(bootstrap_servers=bootstrap, transactional_id=fresh_name("id")) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, b"", on_delivery=note)
        await transaction.enqueue(topic, b"", on_delivery=note)
    assert offsets == [0, 1]
    async with (
        TransactionalProducerPool(bootstrap_servers=bootstrap, prefix=fresh_name("pool")) as pool,
        pool.transaction() as pooled,
    ):
        pooled.send(topic, b"", on_delivery=note)
        await pooled.enqueue(topic, b"", on_delivery=note)
    assert offsets == [0, 1, 3, 4]  # a commit marker lies in between

    def work() -> None:
        with oncelog.sync.Producer(bootstrap_servers=bootstrap) as blocking:
            blocking.send(topic, b"", on_delivery=note)
            blocking.flush()

    await asyncio.to_thread(work)
    assert offsets == [0, 1, 3, 4, 6]
