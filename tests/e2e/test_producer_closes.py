"""Closing a producer ends every wait: no delivery stays undecided, whatever the close was interrupted by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from oncelog import Admin, KafkaError, Producer
from oncelog.client.errors import CommitUnknownError, ErrorCode, IllegalStateError, KafkaTimeoutError
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.produce import ProduceRequest
from support.proxy import FaultProxy
from support.reading import make_topic

Fresh = Callable[[str], str]


@pytest.fixture
async def proxy(bootstrap: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(bootstrap) as running:
        yield running


async def outcome(delivery: object) -> BaseException | None:
    async with asyncio.timeout(60):
        (result,) = await asyncio.gather(delivery, return_exceptions=True)  # type: ignore[call-overload]
    return result if isinstance(result, BaseException) else None


async def waiting(delivery: object) -> None:
    await delivery  # type: ignore[misc]


async def test_records_of_a_topic_that_was_never_learned_fail(proxy: FaultProxy, fresh_name: Fresh) -> None:
    producer = Producer(bootstrap_servers=proxy.address)
    await producer.start()
    proxy.hold(MetadataRequest, 3.0, times=10)
    delivery = producer.send(fresh_name("topic"), b"1")
    with pytest.raises(KafkaError, match="closed"):
        await producer.close(timeout_s=0.1)
    assert isinstance(await outcome(waiting(delivery)), KafkaError)


async def test_a_cancelled_close_decides_every_delivery(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    producer = Producer(bootstrap_servers=proxy.address, linger_ms=0, batch_size=0)
    await producer.start()
    await producer.send(topic, b"0")
    proxy.hold(ProduceRequest, 3.0, times=50)
    deliveries = [producer.send(topic, b"%d" % number) for number in range(20)]
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0.1)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    for delivery in deliveries:
        assert isinstance(await outcome(waiting(delivery)), KafkaError)


async def in_transaction(address: str, topic: str, transactional_id: str) -> Producer:
    producer = Producer(bootstrap_servers=address, transactional_id=transactional_id, linger_ms=0)
    await producer.start()
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send(topic, b"0")
    return producer


async def test_closing_a_transactional_producer_takes_no_longer_than_it_may(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    producer = await in_transaction(proxy.address, topic, fresh_name("transactional"))
    proxy.hold(EndTxnRequest, 60.0, times=10)
    async with asyncio.timeout(60):
        await producer.close(timeout_s=0.2)


async def test_closing_waits_for_a_commit_under_way(bootstrap: str, proxy: FaultProxy, fresh_name: Fresh) -> None:
    topic, transactional_id = make_topic(bootstrap, fresh_name("topic")), fresh_name("transactional")
    producer = await in_transaction(proxy.address, topic, transactional_id)
    proxy.hold(ProduceRequest, 0.5)
    producer.send(topic, b"1")
    committing = asyncio.create_task(producer.commit_transaction())
    await asyncio.sleep(0)
    await producer.close()
    await committing
    async with Admin(bootstrap_servers=bootstrap) as admin:
        described = await admin.describe_transactions([transactional_id])
    assert described[transactional_id].state in ("PrepareCommit", "CompleteCommit")


async def test_a_commit_cut_off_by_a_close_is_not_known_and_cannot_be_asked_for(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    producer = await in_transaction(proxy.address, topic, fresh_name("transactional"))
    proxy.hold(EndTxnRequest, 60.0)
    committing = asyncio.create_task(producer.commit_transaction())
    async with asyncio.timeout(60):
        while not proxy.seen["EndTxn"]:
            await asyncio.sleep(0.01)
        await producer.close(timeout_s=0.1)
        with pytest.raises(CommitUnknownError) as caught:
            await committing
    assert not caught.value.can_ask_again


async def test_who_waits_for_a_broker_when_the_producer_is_closed_is_told_so(
    proxy: FaultProxy, fresh_name: Fresh
) -> None:
    producer = Producer(bootstrap_servers=proxy.address, transactional_id=fresh_name("transactional"))
    await producer.start()
    proxy.down = True
    proxy.break_connections()
    initialising = asyncio.create_task(producer.init_transactions())
    await asyncio.sleep(0.2)
    await producer.close()
    with pytest.raises(IllegalStateError, match="closed"):  # and not CancelledError: nobody has cancelled it
        await initialising


async def test_a_second_close_waits_until_the_first_has_sent_the_records(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    producer = Producer(bootstrap_servers=proxy.address)
    await producer.start()
    await producer.send(topic, b"0")
    proxy.hold(ProduceRequest, 0.5, times=1)
    delivery = producer.send(topic, b"1")
    first = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    await producer.close()
    assert delivery.result().offset == 1
    await first
    await producer.close()


async def test_closes_at_the_same_time_raise_the_same_failure(bootstrap: str, fresh_name: Fresh) -> None:
    topic = fresh_name("topic")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(topic, 1, configs={"max.message.bytes": "500"})
    producer = Producer(bootstrap_servers=bootstrap, linger_ms=60_000)
    await producer.start()
    await producer.partitions_for(topic)
    producer.send(topic, b"x" * 5000)
    failures = await asyncio.gather(*(producer.close() for _ in range(3)), return_exceptions=True)
    assert [getattr(failure, "code", None) for failure in failures] == [ErrorCode.MESSAGE_TOO_LARGE] * 3


async def test_a_close_that_waits_for_another_has_its_own_timeout(
    bootstrap: str, proxy: FaultProxy, fresh_name: Fresh
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    producer = Producer(bootstrap_servers=proxy.address)
    await producer.start()
    await producer.send(topic, b"0")
    proxy.hold(ProduceRequest, 3.0, times=10)
    producer.send(topic, b"1")
    first = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    with pytest.raises(KafkaTimeoutError, match="still being closed"):
        await producer.close(timeout_s=0.01)
    first.cancel()
    with pytest.raises(KafkaError, match="closed"):
        await producer.close()
    assert first.cancelled()
