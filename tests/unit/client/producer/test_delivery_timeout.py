"""A delivery fails when delivery.timeout.ms have passed, whatever the batches before it are doing."""

from __future__ import annotations

import asyncio

import pytest
from oncelog.client.errors import ErrorCode, KafkaTimeoutError, UnknownTopicError
from oncelog.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from support.simulated_leader import Fate, SimulatedCluster
from support.simulated_producer import TOPIC, SimulatedProducer
from support.virtual_time import VirtualTimeLoop


async def _ages_at_failure(batches: int, pause_s: float) -> list[float]:
    """Send batches that are never answered, with a pause between them; return the age in s at which each failed.

    One batch is acknowledged before, so that several may be in flight.
    """
    loop = asyncio.get_running_loop()
    waiting = iter([(Fate.SERVED, 0.001)])
    cluster = SimulatedCluster(lambda: next(waiting, (Fate.SERVED, 30.0)))
    async with SimulatedProducer(cluster, {"request.timeout.ms": 900, "delivery.timeout.ms": 1000}) as producer:

        async def age_at_failure() -> float:
            began = loop.time()
            with pytest.raises(KafkaTimeoutError, match=r"delivery\.timeout\.ms"):
                await producer.append(0, b"value")
            return loop.time() - began

        await producer.append(0, b"first")
        ages = []
        for _ in range(batches):
            ages.append(asyncio.create_task(age_at_failure()))
            await asyncio.sleep(pause_s)
        return await asyncio.gather(*ages)


def test_batches_behind_an_overdue_one_in_flight_fail_in_time() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        ages = runner.run(_ages_at_failure(3, 0.3))
    assert ages == pytest.approx([1.0, 1.0, 1.0], abs=0.01)


def test_a_batch_for_a_topic_that_was_deleted_fails_with_that_reason() -> None:
    async def test() -> None:
        cluster = SimulatedCluster(lambda: (Fate.SERVED, 30.0))
        async with SimulatedProducer(cluster, {"request.timeout.ms": 900, "delivery.timeout.ms": 1000}) as producer:
            delivery = producer.append(0, b"value")
            deleted = MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TOPIC)
            cluster.metadata = cluster.metadata.updated(MetadataResponse(topics=[deleted]), keep=None)
            with pytest.raises(UnknownTopicError, match=rf"delivery\.timeout\.ms = 1000: topic '{TOPIC}' does not"):
                await delivery

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test())


async def _seconds_of_a_refused_batch() -> float:
    """Return how long a batch takes that is first refused as too large."""
    loop = asyncio.get_running_loop()
    fates = iter([(Fate.SERVED, 0.001), (Fate.TOO_LARGE, 0.001)])
    cluster = SimulatedCluster(lambda: next(fates, (Fate.SERVED, 0.001)))
    async with SimulatedProducer(cluster, {}) as producer:
        await producer.append(0, b"first")  # makes the connection
        began = loop.time()
        deliveries = [producer.append(0, b"%d" % number) for number in range(10)]
        await deliveries[-1]
        return loop.time() - began


def test_the_parts_of_a_refused_batch_are_sent_at_once() -> None:
    """Unlike after other refusals, there is nothing to wait for: retry.backoff.ms would only take time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(_seconds_of_a_refused_batch()) < 0.02
