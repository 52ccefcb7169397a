"""Tasks that wait for room in the buffer learn soon that there is none to wait for any more, or that there is room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from oncelog import Consumer, IllegalStateError, Producer
from oncelog.protocol.messages.produce import ProduceRequest
from support.proxy import FaultProxy, topic_behind_proxy

WAIT_S = 20.0
"""Below max.block.ms, after which waiting ends in any case."""
HELD_S = 0.5
VALUE = bytes(10_000)
TASKS = 40
SETTINGS: dict[str, object] = {"buffer_memory": 65_536, "batch_size": 16_384, "max_block_ms": 60_000}


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with topic_behind_proxy("t") as proxy:
        yield proxy


async def outcomes(waiting: Iterable[asyncio.Task[Any]]) -> list[Any]:
    async with asyncio.timeout(WAIT_S):
        return await asyncio.gather(*waiting, return_exceptions=True)


async def test_records_that_wait_for_room_are_refused_when_their_transaction_is_aborted(proxy: FaultProxy) -> None:
    async with Producer(SETTINGS, bootstrap_servers=proxy.address, transactional_id="x") as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"known from here on")
        proxy.hold(ProduceRequest, HELD_S)
        await producer.begin_transaction()
        waiting = [asyncio.create_task(producer.enqueue("t", VALUE)) for _ in range(TASKS)]
        await asyncio.sleep(0)
        assert any(not one.done() for one in waiting)
        await producer.abort_transaction()
        refused = [one for one in await outcomes(waiting) if isinstance(one, BaseException)]
        assert refused
        assert all(isinstance(one, IllegalStateError) for one in refused)
        async with asyncio.timeout(WAIT_S), producer.transaction() as txn:
            await txn.enqueue("t", VALUE)


async def test_records_that_wait_for_room_are_refused_when_the_producer_is_closed(proxy: FaultProxy) -> None:
    producer = Producer(SETTINGS, bootstrap_servers=proxy.address)
    await producer.start()
    await producer.send("t", b"known from here on")
    proxy.hold(ProduceRequest, HELD_S)
    waiting = [asyncio.create_task(producer.enqueue("t", VALUE)) for _ in range(TASKS)]
    await asyncio.sleep(0)
    assert any(not one.done() for one in waiting)
    await producer.close()
    refused = [one for one in await outcomes(waiting) if isinstance(one, BaseException)]
    assert all(isinstance(one, IllegalStateError) for one in refused)


async def test_headers_of_an_iterator_are_those_of_a_record_that_has_waited(proxy: FaultProxy) -> None:
    async with asyncio.timeout(WAIT_S), Producer(SETTINGS, bootstrap_servers=proxy.address) as producer:
        await producer.send("t", b"known from here on", headers=iter([("number", b"-1")]))
        proxy.hold(ProduceRequest, HELD_S)
        waiting = [
            asyncio.create_task(producer.enqueue("t", VALUE, headers=iter([("number", b"%d" % number)])))
            for number in range(TASKS)
        ]
        await asyncio.sleep(0)
        assert any(not one.done() for one in waiting)
        await asyncio.gather(*waiting)
        await producer.flush()
        async with Consumer(bootstrap_servers=proxy.address, auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            headers = [(await anext(consumer)).headers for _ in range(TASKS + 1)]
    assert sorted(headers) == sorted([("number", b"%d" % number)] for number in range(-1, TASKS))
