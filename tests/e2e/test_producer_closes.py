"""Closing a producer ends every wait: no delivery stays undecided, whatever the close was interrupted by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from oncelog import KafkaError, Producer
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
    async with asyncio.timeout(5):
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
