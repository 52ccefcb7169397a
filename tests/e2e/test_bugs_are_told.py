"""An exception that no part of the client expects fails what waits for that part, with the exception as the cause.

Each test puts such an exception into one background task. Nothing may hang, and nothing may be lost in silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import pytest
from oncelog import (
    Admin,
    Broker,
    Consumer,
    FatalError,
    KafkaError,
    PoolExhaustedError,
    Producer,
    TransactionalProducerPool,
)

WAIT_S = 20.0


class Bug(Exception):
    """What nobody expects."""


def fail(*arguments: object, **named: Any) -> NoReturn:
    raise Bug("in the middle")


async def fail_later(*arguments: object, **named: Any) -> NoReturn:
    raise Bug("in the middle")


def is_caused_by_the_bug(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Bug):
            return True
        error = error.__cause__
    return False


@pytest.fixture
async def bootstrap() -> AsyncIterator[str]:
    async with Broker() as broker, Admin(bootstrap_servers=broker.address) as admin:
        await admin.create_topic("t", 1)
        yield broker.address


def lose_connections(producer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for state in producer._cluster._connections._states.values():
        state.connection.close()
    monkeypatch.setattr(producer._cluster, "connection", fail_later)


PRODUCER_PARTS: dict[str, Callable[[Any, pytest.MonkeyPatch], None]] = {
    "a pass of the sender": lambda p, m: m.setattr(p._accumulator, "is_ready", fail),
    "the encoding of a batch": lambda p, m: m.setattr("oncelog.client.producer.batch.ProducerBatch.encode", fail),
    "the writing of a request": lambda p, m: m.setattr("oncelog.client.connection.Connection.send", fail),
    "an answer": lambda p, m: m.setattr(p._sender._outcomes, "acknowledge", fail),
    "a connection": lose_connections,
}


@pytest.mark.parametrize("transactional", [False, True], ids=["idempotent", "transactional"])
@pytest.mark.parametrize("part", PRODUCER_PARTS)
async def test_a_bug_in_the_sender_fails_what_waits(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, part: str, transactional: bool
) -> None:
    settings: dict[str, Any] = {"transactional_id": "x"} if transactional else {}
    async with asyncio.timeout(WAIT_S):
        producer = Producer(bootstrap_servers=bootstrap, **settings)
        await producer.start()
        if transactional:
            await producer.init_transactions()
            await producer.begin_transaction()
        await producer.send("t", b"before")
        PRODUCER_PARTS[part](producer, monkeypatch)
        sent = producer.send("t", b"lost")
        with pytest.raises(FatalError, match="in the middle") as failed:
            await sent
        assert is_caused_by_the_bug(failed.value)
        with pytest.raises(FatalError, match="in the middle"):
            await producer.enqueue("t", b"refused")
        with pytest.raises(FatalError, match="in the middle"):
            await (producer.commit_transaction() if transactional else producer.flush())
        monkeypatch.undo()
        await producer.close()


async def test_a_bug_while_a_topic_is_learned_fails_records(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(WAIT_S), Producer(bootstrap_servers=bootstrap) as producer:
        monkeypatch.setattr(producer._cluster, "_metadata_request", fail)
        sent = producer.send("t", b"lost")
        with pytest.raises(KafkaError, match="in the middle") as failed:
            await sent
        assert is_caused_by_the_bug(failed.value)
        with pytest.raises(KafkaError, match="in the middle"):
            await producer.enqueue("t", b"lost")
        monkeypatch.undo()
        assert (await producer.send("t", b"after")).offset == 0


async def test_a_bug_in_a_refresh_does_not_end_the_refreshing(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(WAIT_S), Producer(bootstrap_servers=bootstrap) as producer:
        failed, refreshed = asyncio.Event(), asyncio.Event()

        def fail_once(*arguments: object) -> NoReturn:
            monkeypatch.undo()
            failed.set()
            fail()

        monkeypatch.setattr(producer._cluster, "_metadata_request", fail_once)
        producer._cluster.request_refresh()
        await failed.wait()
        producer._cluster.on_metadata(lambda _: refreshed.set())
        await refreshed.wait()


CONSUMER_PARTS: dict[str, Callable[[Any, pytest.MonkeyPatch], None]] = {
    "the fetcher": lambda c, m: m.setattr(c._fetcher, "_take_answer", fail),
    "what to fetch": lambda c, m: m.setattr(c._fetcher, "_wanted", fail),
    "the look-up of positions": lambda c, m: m.setattr(c._coordinator.offsets, "fetch", fail_later),
    "the steps of a rebalance": lambda c, m: m.setattr(c._coordinator, "_prepare", fail_later),
    "the join": lambda c, m: m.setattr(c._coordinator.membership, "join", fail_later),
    "the heartbeats": lambda c, m: m.setattr(c._coordinator.membership, "_heartbeat", fail_later),
}


@pytest.mark.parametrize("part", CONSUMER_PARTS)
async def test_a_bug_in_a_part_of_a_consumer_is_raised_by_poll(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    async with asyncio.timeout(WAIT_S):
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send("t", b"record")
        consumer = Consumer(
            bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=20
        )
        await consumer.start()
        CONSUMER_PARTS[part](consumer, monkeypatch)
        consumer.subscribe(["t"])

        async def poll_on() -> None:
            while True:
                await consumer.poll(10_000)

        with pytest.raises((KafkaError, Bug)) as failed:
            await poll_on()
        assert is_caused_by_the_bug(failed.value)
        monkeypatch.undo()
        await consumer.close()


async def test_a_bug_in_the_leases_of_a_pool_is_the_reason_why_no_producer_comes(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(WAIT_S):
        pool: Any = TransactionalProducerPool(bootstrap_servers=bootstrap, prefix="p-", max_wait_s=0.5)
        monkeypatch.setattr(pool._leases, "_protocols", fail)
        async with pool:
            with pytest.raises(PoolExhaustedError, match="in the middle"):
                await pool.take()
