"""acks=0: the broker says nothing, but what the network does not take is neither dropped nor piled up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from oncelog import Consumer, KafkaTimeoutError, Producer, TopicPartition
from support.proxy import FaultProxy, topic_behind_proxy

WAIT_S = 60.0
VALUE = bytes(1_000)
RECORDS = 25_000
"""More bytes than the sockets between producer and broker take by themselves."""


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with topic_behind_proxy("t") as proxy:
        yield proxy


def producer_of(proxy: FaultProxy, **settings: Any) -> Producer:
    return Producer(settings, bootstrap_servers=proxy.address, acks=0, enable_idempotence=False)


async def send_all(producer: Producer) -> None:
    for _ in range(RECORDS):
        await producer.enqueue("t", VALUE)


async def test_a_producer_that_is_closed_without_answers_has_sent_everything(proxy: FaultProxy) -> None:
    producer = producer_of(proxy)
    await producer.start()
    await producer.send("t", VALUE)
    proxy.open.clear()
    await send_all(producer)
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    proxy.open.set()
    end = 0
    async with Consumer(bootstrap_servers=proxy.address) as consumer:
        partition = TopicPartition("t", 0)
        with suppress(TimeoutError):  # the last assertion tells how many records have arrived
            async with asyncio.timeout(WAIT_S):
                await closing
                while end <= RECORDS:
                    end = (await consumer.end_offsets([partition]))[partition]
                    await asyncio.sleep(0.05)
    assert end == RECORDS + 1


async def test_buffer_memory_bounds_what_waits_for_the_network_without_answers(proxy: FaultProxy) -> None:
    producer = producer_of(proxy, buffer_memory=1_000_000, max_block_ms=500)
    await producer.start()
    await producer.send("t", VALUE)
    proxy.open.clear()
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(KafkaTimeoutError, match=r"buffer\.memory = 1000000"):
            await send_all(producer)
    proxy.open.set()
    await producer.close()


async def test_a_connection_that_takes_nothing_is_given_up_without_answers(proxy: FaultProxy) -> None:
    async with producer_of(proxy, buffer_memory=1_000_000, request_timeout_ms=500) as producer:
        await producer.send("t", VALUE)
        proxy.silent = True
        sending = asyncio.create_task(send_all(producer))
        await asyncio.sleep(0)
        async with asyncio.timeout(WAIT_S):
            while producer._sender._in_flight != {1: producer.config.max_in_flight_requests_per_connection}:
                await asyncio.sleep(0.01)
            proxy.silent = False  # for new connections only
            await sending
