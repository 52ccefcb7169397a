"""A delivery fails when delivery.timeout.ms have passed, whatever the batches before it are doing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from oncelog.client.config import ProducerConfig
from oncelog.client.errors import KafkaTimeoutError
from oncelog.client.metadata import PartitionMetadata, TopicMetadata
from oncelog.client.producer.accumulator import RecordAccumulator
from oncelog.client.producer.sender import Sender
from oncelog.protocol.errors import ErrorCode
from support.simulated_leader import Fate, SimulatedCluster
from support.virtual_time import VirtualTimeLoop

TOPIC = "t"
METADATA = TopicMetadata(TOPIC, bytes(16), ErrorCode.NONE, False, (PartitionMetadata(0, 0, 0),))


async def _ages_at_failure(batches: int, pause_s: float) -> list[float]:
    """Send batches that are never answered, with a pause between them; return the age in s at which each failed.

    One batch is acknowledged before, so that several may be in flight.
    """
    loop = asyncio.get_running_loop()
    waiting = iter([(Fate.SERVED, 0.001)])
    cluster = SimulatedCluster(lambda: next(waiting, (Fate.SERVED, 30.0)))
    config = ProducerConfig.of({"linger.ms": 0, "request.timeout.ms": 900, "delivery.timeout.ms": 1000})
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def crashed(what: str, cause: Exception) -> None:
        raise cause

    accumulator = RecordAccumulator(config, loop.time, lambda: sender.wake())
    sender = Sender(config, cluster, accumulator, None, spawn, crashed)  # type: ignore[arg-type]
    sender.producer_id, sender.producer_epoch = 7, 0
    topic = accumulator.use_topic(METADATA)

    async def age_at_failure() -> float:
        began = loop.time()
        delivery = accumulator.append(topic, 0, 0, None, b"value", ())
        assert delivery is not None
        with pytest.raises(KafkaTimeoutError, match=r"delivery\.timeout\.ms"):
            await delivery
        return loop.time() - began

    first = accumulator.append(topic, 0, 0, None, b"first", ())
    assert first is not None
    await first
    ages = []
    for _ in range(batches):
        ages.append(asyncio.create_task(age_at_failure()))
        await asyncio.sleep(pause_s)
    done = await asyncio.gather(*ages)
    sender.close()
    await asyncio.gather(*tasks)
    return done


def test_batches_behind_an_overdue_one_in_flight_fail_in_time() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        ages = runner.run(_ages_at_failure(3, 0.3))
    assert ages == pytest.approx([1.0, 1.0, 1.0], abs=0.01)
