"""Every time that a program passes is a finite number from 0 on; anything else is refused, and waits for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import oncelog.sync
import pytest
from oncelog import (
    ConfigError,
    Consumer,
    Processor,
    Producer,
    RecordMetadata,
    TopicPartition,
    TransactionalProducerPool,
)
from oncelog.client.processor.processes import WorkerProcesses

Names = Callable[[str], str]
ONE = TopicPartition("t", 0)
WAIT_S = 20.0
WRONG: list[Any] = [float("nan"), float("inf"), -1, -0.001, "1", b"1", True]


@pytest.fixture(params=WRONG, ids=repr)
def wrong(request: pytest.FixtureRequest) -> Any:
    return request.param


def refused(name: str, wrong: object) -> Any:
    kind = ValueError if type(wrong) in (int, float) else TypeError
    return pytest.raises(kind, match=name)


@pytest.fixture
async def consumer(bootstrap: str) -> AsyncIterator[Consumer]:
    async with asyncio.timeout(WAIT_S), Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([ONE])
        yield consumer


CONSUMER_CALLS: dict[str, Callable[[Consumer, Any], Awaitable[Any]]] = {
    "poll": lambda c, wrong: c.poll(wrong),
    "getmany": lambda c, wrong: c.getmany(timeout_ms=wrong),
    "position": lambda c, wrong: c.position(ONE, wrong),
    "close": lambda c, wrong: c.close(timeout_s=wrong),
}


@pytest.mark.parametrize("name", CONSUMER_CALLS)
async def test_of_a_consumer(consumer: Consumer, name: str, wrong: Any) -> None:
    with refused("timeout_m?s", wrong):
        await CONSUMER_CALLS[name](consumer, wrong)
    assert await consumer.poll(0) == [], "it is open"


@pytest.mark.parametrize("wrong", ["1", 1.0, True], ids=repr)
async def test_a_number_of_records_is_a_whole_number(consumer: Consumer, wrong: Any) -> None:
    with pytest.raises(TypeError, match="max_records"):
        await consumer.poll(0, wrong)


@pytest.mark.parametrize("transactional_id", [None, "x"])
async def test_of_a_producer(bootstrap: str, fresh_name: Names, wrong: Any, transactional_id: str | None) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id) as producer:
        with refused("timeout_s", wrong):
            await producer.close(wrong)
        if transactional_id is None:
            assert (await producer.send(fresh_name("topic"), b"it is open")).offset == 0


async def test_of_a_pool(bootstrap: str, wrong: Any) -> None:
    async with TransactionalProducerPool(bootstrap_servers=bootstrap, prefix="p-", size=1, exclusive=True) as pool:
        with refused("timeout_s", wrong):
            await pool.close(wrong)
        assert pool.status == (1, 0, 0, 0), "it is open"


def test_of_a_blocking_producer(bootstrap: str, fresh_name: Names, wrong: Any) -> None:
    with oncelog.sync.Producer(bootstrap_servers=bootstrap) as producer:
        delivery = producer.send(fresh_name("topic"), b"")
        with refused("timeout_s", wrong):
            delivery.result(wrong)
        assert isinstance(delivery.result(), RecordMetadata)


ARGUMENTS: dict[str, Callable[[Any], object]] = {
    "max_wait_s": lambda wrong: TransactionalProducerPool(prefix="p-", max_wait_s=wrong),
    "renew_after_s": lambda wrong: TransactionalProducerPool(prefix="p-", renew_after_s=wrong),
    "session_timeout_ms": lambda wrong: TransactionalProducerPool(prefix="p-", session_timeout_ms=wrong),
    "max_waiting": lambda wrong: TransactionalProducerPool(prefix="p-", max_waiting=wrong),
    "size": lambda wrong: TransactionalProducerPool(prefix="p-", size=wrong),
    "max_batch_ms": lambda wrong: _processor(max_batch_ms=wrong),
    "max_batch_records": lambda wrong: _processor(max_batch_records=wrong),
    "workers": lambda wrong: _processor(workers=wrong),
    "restarts": lambda wrong: WorkerProcesses("a:b", restarts=wrong),
    "restart_window_s": lambda wrong: WorkerProcesses("a:b", restart_window_s=wrong),
    "stop_timeout_s": lambda wrong: WorkerProcesses("a:b", stop_timeout_s=wrong),
}


def _processor(**arguments: Any) -> Processor:
    return Processor(group_id="g", transactional_id="x", topics=["t"], transform=lambda record: None, **arguments)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_of_a_constructor_is_a_config_error(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        ARGUMENTS[name](wrong)
    assert refused.value.key == name
