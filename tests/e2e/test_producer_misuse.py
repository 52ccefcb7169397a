"""What a program passes to a producer wrongly fails the call, and disturbs no other record."""

from __future__ import annotations

import array
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
from oncelog import (
    Admin,
    Broker,
    Consumer,
    InvalidTopicError,
    KafkaError,
    Producer,
    TransactionalProducerPool,
    UnknownTopicError,
)
from oncelog.protocol.errors import ErrorCode

Names = Callable[[str], str]
WAIT_S = 20.0
Send = Callable[..., Any]

WRONG: list[dict[str, Any]] = [
    {"timestamp_ms": 1.7e9},
    {"timestamp_ms": 2**70},
    {"timestamp_ms": True},
    {"partition": "0"},
    {"partition": True},
    {"partition": 0.0},
    {"partition": -1},
    {"key": "text"},
    {"value": "text"},
    {"value": array.array("i", [1])},
    {"headers": [("a", "b")]},
    {"headers": [("\ud800", b"")]},
    {"topic": b"t"},
    {"topic": None},
    {"topic": ["t"]},
    {"topic": "no spaces"},
    {"topic": "x" * 250},
    {"topic": "\ud800"},
    {"topic": ""},
]


@asynccontextmanager
async def sends(kind: str, bootstrap: str, name: str) -> AsyncIterator[Send]:
    """The call of this kind that takes a record, for a topic that is not known yet."""
    settings: Any = {"bootstrap_servers": bootstrap}
    if kind in ("send", "enqueue"):
        async with Producer(**settings) as producer:
            yield getattr(producer, kind)
    elif kind == "transaction":
        async with Producer(**settings, transactional_id=name) as producer, producer.transaction() as txn:
            yield txn.send
    else:
        async with (
            TransactionalProducerPool(**settings, prefix=name, size=1, exclusive=True) as pool,
            pool.transaction() as txn,
        ):
            yield txn.enqueue


@pytest.mark.parametrize("known", [False, True], ids=["unknown topic", "known topic"])
@pytest.mark.parametrize("kind", ["send", "enqueue", "transaction", "pool"])
async def test_a_wrong_value_fails_the_call_and_nothing_else(
    bootstrap: str, fresh_name: Names, kind: str, known: bool
) -> None:
    topic = fresh_name("topic")
    async with asyncio.timeout(WAIT_S), Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(topic, 2)
        async with sends(kind, bootstrap, fresh_name("misuse")) as send:
            deliveries = []

            async def hand_over(**record: Any) -> None:
                sent = send(record.pop("topic", topic), **record)
                deliveries.append(await sent if asyncio.iscoroutine(sent) else sent)

            if known:
                await hand_over(value=b"first", partition=0)
                await deliveries[0]
            for wrong in WRONG:
                with pytest.raises((TypeError, ValueError)):
                    await hand_over(**wrong)
            await hand_over(value=b"last", partition=0)
            assert (await deliveries[-1]).offset == len(deliveries) - 1


async def test_a_partitioner_that_fails_fails_its_record_alone(bootstrap: str, fresh_name: Names) -> None:
    topic = fresh_name("topic")

    def choose(topic: str, key: bytes | None, count: int) -> int:
        if key == b"raise":
            raise LookupError("no such customer")
        return 0.5 if key == b"float" else 0  # type: ignore[return-value]

    async with (
        asyncio.timeout(WAIT_S),
        Admin(bootstrap_servers=bootstrap) as admin,
        Producer(bootstrap_servers=bootstrap, partitioner_class=choose) as producer,
    ):
        await admin.create_topic(topic, 1)
        held = [producer.send(topic, b"", key=key) for key in (b"raise", b"float", b"good")]
        with pytest.raises(KafkaError, match="no such customer") as failed:
            await held[0]
        assert isinstance(failed.value.__cause__, KafkaError)
        assert isinstance(failed.value.__cause__.__cause__, LookupError)
        with pytest.raises(KafkaError, match=r"partitioner\.class must be an int, not float"):
            await held[1]
        assert (await held[2]).offset == 0
        with pytest.raises(LookupError):
            producer.send(topic, b"", key=b"raise")


class _Unprintable:
    def __repr__(self) -> str:
        raise LookupError("detached")


async def test_a_partitioner_whose_error_cannot_be_printed_fails_its_record_alone(
    bootstrap: str, fresh_name: Names
) -> None:
    topic = fresh_name("topic")

    def choose(topic: str, key: bytes | None, count: int) -> int:
        if key == b"raise":
            raise KeyError(_Unprintable())
        return 0

    async with (
        asyncio.timeout(WAIT_S),
        Admin(bootstrap_servers=bootstrap) as admin,
        Producer(bootstrap_servers=bootstrap, partitioner_class=choose) as producer,
    ):
        await admin.create_topic(topic, 1)
        held = [producer.send(topic, b"", key=key) for key in (b"raise", b"good")]
        with pytest.raises(KafkaError, match="could be chosen: KeyError"):
            await held[0]
        assert (await held[1]).offset == 0


def test_a_transaction_whose_partitioner_exits_cannot_commit_without_the_record() -> None:
    """The records wait for the partitions of their topic, and the event loop goes on after SystemExit."""

    def choose(topic: str, key: bytes | None, count: int) -> int:
        if key == b"exit":
            raise SystemExit("once")
        return 0

    async def send() -> None:
        async with (
            asyncio.timeout(WAIT_S),
            Broker() as broker,
            Producer(bootstrap_servers=broker.address, transactional_id="t", partitioner_class=choose) as producer,
        ):
            await producer.init_transactions()
            await producer.begin_transaction()
            held = [producer.send("topic", key, key=key) for key in (b"first", b"exit", b"last")]
            for delivery in held[1:]:
                with pytest.raises(KafkaError, match=r"no partition of topic 'topic' could be chosen: SystemExit"):
                    await delivery
            with pytest.raises(KafkaError, match="abort"):
                await producer.commit_transaction()
            await producer.abort_transaction()

    loop = asyncio.new_event_loop()
    exits = 0
    with closing(loop):
        sending = loop.create_task(send())
        while not sending.done():
            try:
                loop.run_until_complete(sending)
            except SystemExit:
                exits += 1
    sending.result()
    assert exits == 1


@pytest.mark.parametrize("kind", ["send", "enqueue"])
async def test_a_topic_that_does_not_exist_is_named_as_the_reason(fresh_name: Names, kind: str) -> None:
    async with (
        Broker(auto_create_topics_enable=False) as broker,
        Producer(bootstrap_servers=broker.address, max_block_ms=300) as producer,
    ):
        sent: Any = getattr(producer, kind)("nope", b"")
        with pytest.raises(UnknownTopicError, match=r"topic 'nope' does not exist.*auto\.create\.topics") as failed:
            await sent
        assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_wait_for_a_topic_that_does_not_exist_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        asyncio.timeout(WAIT_S),
        Broker(auto_create_topics_enable=False) as broker,
        Admin(bootstrap_servers=broker.address) as admin,
        Producer(bootstrap_servers=broker.address) as producer,
    ):
        waiting = [producer.send("nope", b""), producer.send("nope", b"")]
        while not caplog.records:
            await asyncio.sleep(0.01)
        assert not waiting[0].done()
        await admin.create_topic("nope", 1)
        assert [(await one).offset for one in waiting] == [0, 1]
    told = "topic 'nope' does not exist; waiting up to 60000 ms until it is created"
    assert [one.getMessage() for one in caplog.records] == [told]


async def test_a_consumer_refuses_topics_that_no_request_could_name(bootstrap: str, fresh_name: Names) -> None:
    async with (
        asyncio.timeout(WAIT_S),
        Consumer(bootstrap_servers=bootstrap, group_id=fresh_name("group")) as consumer,
    ):
        wrong: Any
        for wrong in ([b"t"], [None], "t", b"t"):
            with pytest.raises(TypeError):
                consumer.subscribe(wrong)
        for wrong in ([("t", "0")], [(b"t", 0)], [("t", True)], [("t", -1)], [("a b", 0)], ["t0"]):
            with pytest.raises((TypeError, ValueError)):
                consumer.assign(wrong)
        with pytest.raises(TypeError):
            await consumer.partitions_for(None)  # type: ignore[arg-type]
        for name in ("no spaces", "\ud800", "x" * 250):
            with pytest.raises(InvalidTopicError):
                consumer.subscribe([name])
            with pytest.raises(InvalidTopicError):
                await consumer.partitions_for(name)
        for call in (consumer.beginning_offsets, consumer.end_offsets):
            with pytest.raises((TypeError, ValueError)):
                await call([("t", "0")])  # type: ignore[list-item]
        assert await consumer.partitions_for(fresh_name("topic"))
