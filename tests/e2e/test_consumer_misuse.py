"""A consumer that cannot read says why: not started, nothing subscribed, topics that are not there."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from oncelog import Admin, Broker, Consumer, IllegalStateError, Processor, Producer, TransactionalProducerPool

Names = Callable[[str], str]
WAIT_S = 20.0
ONE = ("t", 0)

CALLS: dict[str, Callable[[Consumer], Any]] = {
    "subscribe": lambda c: c.subscribe(["t"]),
    "unsubscribe": lambda c: c.unsubscribe(),
    "assign": lambda c: c.assign([ONE]),
    "poll": lambda c: c.poll(),
    "getmany": lambda c: c.getmany(),
    "__anext__": lambda c: anext(c),
    "position": lambda c: c.position(ONE),
    "seek": lambda c: c.seek(ONE, 0),
    "seek_to_beginning": lambda c: c.seek_to_beginning(),
    "seek_to_end": lambda c: c.seek_to_end(),
    "consumed_offset": lambda c: c.consumed_offset(ONE),
    "is_recreated": lambda c: c.is_recreated("t", bytes(16)),
    "forget_positions": lambda c: c.forget_positions(),
    "pause": lambda c: c.pause(ONE),
    "resume": lambda c: c.resume(),
    "lag": lambda c: c.lag(ONE),
    "commit": lambda c: c.commit(),
    "commit_async": lambda c: c.commit_async(),
    "committed": lambda c: c.committed(ONE),
    "beginning_offsets": lambda c: c.beginning_offsets([ONE]),
    "end_offsets": lambda c: c.end_offsets([ONE]),
    "offsets_for_times": lambda c: c.offsets_for_times({}),
    "group_metadata": lambda c: c.group_metadata(),
    "group_assignment": lambda c: c.group_assignment(),
    "enforce_rebalance": lambda c: c.enforce_rebalance(),
    "until_rebalance": lambda c: c.until_rebalance(),
    "partitions_for": lambda c: c.partitions_for("t"),
}
WITHOUT_EFFECT = {"start", "close", "subscription", "assignment", "paused", "wakeup"}


def test_every_method_is_looked_at() -> None:
    public = {name for name, _ in inspect.getmembers(Consumer, inspect.isfunction) if not name.startswith("_")}
    assert public - WITHOUT_EFFECT == CALLS.keys() - {"__anext__"}


@pytest.mark.parametrize("closed", [False, True], ids=["not started", "closed"])
@pytest.mark.parametrize("name", CALLS)
async def test_a_consumer_that_is_not_started_says_what_to_do(name: str, closed: bool) -> None:
    consumer = Consumer(group_id="g")
    if closed:
        await consumer.close()
    expected: type[Exception] = StopAsyncIteration if closed and name == "__anext__" else IllegalStateError

    async def call() -> None:
        result = CALLS[name](consumer)
        if isinstance(result, Awaitable):
            await result

    with pytest.raises(expected) as refused:
        await call()
    if expected is IllegalStateError:
        assert ("is closed" if closed else "use it as a context manager, or call start()") in str(refused.value)


@pytest.mark.parametrize("kind", [Consumer, Producer, Admin])
async def test_a_client_that_is_closed_while_it_starts_stays_closed(bootstrap: str, kind: Any) -> None:
    client = kind(bootstrap_servers=bootstrap)
    starting = asyncio.ensure_future(client.start())
    await asyncio.sleep(0)
    with pytest.raises(IllegalStateError, match="starts only once"):
        await client.start()
    await client.close()
    with pytest.raises(IllegalStateError, match="closed"):
        await starting


@pytest.mark.parametrize(
    "make",
    [
        Producer,
        Consumer,
        Admin,
        lambda config: TransactionalProducerPool(config, prefix="p"),
        lambda config: Processor(config, group_id="g", transactional_id="x", topics=["t"], process=print),
    ],
    ids=["Producer", "Consumer", "Admin", "TransactionalProducerPool", "Processor"],
)
@pytest.mark.parametrize("config", ["host:9092", ["host:9092"], 9092])
def test_what_is_no_mapping_of_settings_is_refused_with_the_right_form(make: Any, config: object) -> None:
    with pytest.raises(TypeError, match=r"'bootstrap\.servers': 'localhost:9092'"):
        make(config)


async def test_a_consumer_with_nothing_to_read_raises(bootstrap: str, fresh_name: Names) -> None:
    async with asyncio.timeout(WAIT_S), Consumer(bootstrap_servers=bootstrap, group_id=fresh_name("g")) as consumer:
        for call in (lambda: anext(consumer), lambda: consumer.poll(), lambda: consumer.getmany()):
            with pytest.raises(IllegalStateError, match="nothing to read: subscribe"):
                await call()
        consumer.assign([(fresh_name("topic"), 0)])
        assert await consumer.poll() == []
        await consumer.unsubscribe()
        with pytest.raises(IllegalStateError, match="nothing to read"):
            await consumer.poll(60_000)


@pytest.mark.parametrize("manual", [False, True], ids=["subscribe", "assign"])
async def test_a_topic_that_does_not_exist_is_warned_of_once(caplog: pytest.LogCaptureFixture, manual: bool) -> None:
    async with (
        asyncio.timeout(WAIT_S),
        Broker(auto_create_topics_enable=False) as broker,
        Consumer(bootstrap_servers=broker.address, group_id="g", auto_offset_reset="earliest") as consumer,
        Admin(bootstrap_servers=broker.address) as admin,
        Producer(bootstrap_servers=broker.address) as producer,
    ):
        if manual:
            consumer.assign([("nope", 0)])
        else:
            consumer.subscribe(["nope"])
        for _ in range(5):
            assert await consumer.poll(50) == []
            await consumer._cluster.refresh()
        warned = [one for one in caplog.records if one.levelno == logging.WARNING and "nope" in one.getMessage()]
        assert len(warned) == 1
        assert "does not exist" in warned[0].getMessage()
        assert "auto.create.topics.enable" in warned[0].getMessage()
        await admin.create_topic("nope", 1)
        await producer.send("nope", b"at last")
        await consumer._cluster.refresh()
        assert (await anext(consumer)).value == b"at last"


@pytest.mark.parametrize(("topic", "partition"), [("nope", 0), ("one", 5)], ids=["topic", "partition"])
async def test_repeated_look_ups_of_a_missing_partition_repeat_no_warning(
    caplog: pytest.LogCaptureFixture, topic: str, partition: int
) -> None:
    caplog.set_level(logging.DEBUG, "oncelog.client.consumer")
    async with (
        asyncio.timeout(WAIT_S),
        Broker(auto_create_topics_enable=False) as broker,
        Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer,
        Admin(bootstrap_servers=broker.address) as admin,
    ):
        await admin.create_topic("one", 1)
        consumer.assign([(topic, partition)])
        while sum("could not be looked up" in one.getMessage() for one in caplog.records) < 3:
            assert await consumer.poll(50) == []
        warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
        assert len(warned) == 1
        assert topic in warned[0]


async def test_partitions_of_a_topic_that_does_not_exist_are_not_waited_for() -> None:
    async with (
        asyncio.timeout(WAIT_S),
        Broker(auto_create_topics_enable=False) as broker,
        Consumer(bootstrap_servers=broker.address, default_api_timeout_ms=600_000) as consumer,
    ):
        with pytest.raises(Exception, match="topic 'nope' does not exist"):
            await consumer.partitions_for("nope")
