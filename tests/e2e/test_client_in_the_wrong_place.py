"""Calls in a wrong thread, callbacks that would never run, and impossible subscriptions: nothing hangs or leaks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from oncelog import Admin, Consumer, IllegalStateError, Producer


async def in_another_thread(call: Callable[[], Any]) -> None:
    """Make a call in a thread with its own event loop, and check that it is refused."""

    async def work() -> None:
        result = call()
        if asyncio.iscoroutine(result):
            await result

    with pytest.raises(IllegalStateError, match="only in the thread of its event loop"):
        await asyncio.to_thread(asyncio.run, work())


async def test_a_producer_refuses_other_threads(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("threads")
    async with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await in_another_thread(lambda: producer.send(topic, b"the topic is not known yet"))
        await producer.send(topic, b"1")
        await in_another_thread(lambda: producer.send(topic, b"2"))
        await in_another_thread(lambda: producer.enqueue(topic, b"2"))
        await in_another_thread(producer.flush)
        await in_another_thread(producer.commit_transaction)
        await in_another_thread(producer.transaction)
        assert (await producer.send(topic, b"3")).offset == 1
        await producer.commit_transaction()


async def test_a_consumer_and_an_admin_client_refuse_other_threads(
    bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("threads")
    async with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(bootstrap_servers=bootstrap, group_id=topic, topics=[topic], auto_offset_reset="earliest") as consumer,
    ):
        await producer.send(topic, b"1")
        for call in (consumer.poll, consumer.commit, consumer.wakeup, admin.list_topics):
            await in_another_thread(call)
        assert (await anext(consumer)).value == b"1"
        assert topic in await admin.list_topics()


async def callback(*arguments: object) -> None:
    """Never run."""


@pytest.mark.parametrize(("wrong", "problem"), [(callback, "coroutine function"), (3, "must be a function, not int")])
async def test_a_callback_that_cannot_run_is_refused_before_the_record_is_sent(
    bootstrap: str, fresh_name: Callable[[str], str], wrong: Any, problem: str
) -> None:
    topic = fresh_name("callback")
    async with Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(TypeError, match=f"on_delivery.* {problem}"):
            producer.send(topic, b"1", on_delivery=wrong)
        with pytest.raises(TypeError, match=f"on_delivery.* {problem}"):
            await producer.enqueue(topic, b"1", on_delivery=wrong)
        assert (await producer.send(topic, b"2")).offset == 0
    async with Consumer(bootstrap_servers=bootstrap, group_id=topic) as consumer:
        with pytest.raises(TypeError, match=f"callback.* {problem}"):
            consumer.commit_async({(topic, 0): 1}, wrong)


def test_a_consumer_with_an_impossible_subscription_cannot_be_made() -> None:
    with pytest.raises(IllegalStateError, match=r"needs a group: set group\.id"):
        Consumer(topics=["orders"])
    with pytest.raises(IllegalStateError, match="either topics or a pattern"):
        Consumer(topics=["orders"], pattern="orders", group_id="g")
    with pytest.raises(re.error):
        Consumer(pattern="(", group_id="g")
