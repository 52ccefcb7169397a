"""A producer on a simulated cluster: the real accumulator and sender, without a client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any

from oncelog.client.config import ProducerConfig
from oncelog.client.metadata import PartitionMetadata, TopicMetadata
from oncelog.client.producer.accumulator import RecordAccumulator
from oncelog.client.producer.batch import Delivery
from oncelog.client.producer.sender import Sender
from oncelog.protocol.errors import ErrorCode

from .simulated_leader import SimulatedCluster

TOPIC = "t"


class SimulatedProducer:
    """An idempotent producer of one topic. Leaving its context closes the sender and waits for its tasks."""

    def __init__(self, cluster: SimulatedCluster, config: Mapping[str, object], partitions: int = 1) -> None:
        loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        settings = ProducerConfig.of({"linger.ms": 0, **config})
        self.accumulator = RecordAccumulator(settings, loop.time, lambda: self._sender.wake())
        self._sender = Sender(settings, cluster, self.accumulator, None, self._spawn, self._crashed)  # type: ignore[arg-type]
        self._sender.producer_id, self._sender.producer_epoch = 7, 0
        leaders = tuple(PartitionMetadata(index, 0, 0) for index in range(partitions))
        self._topic = self.accumulator.use_topic(TopicMetadata(TOPIC, bytes(16), ErrorCode.NONE, False, leaders))

    async def __aenter__(self) -> SimulatedProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sender.close()
        await asyncio.gather(*self._tasks)

    def append(self, partition: int, value: bytes) -> Delivery:
        """Append a record. The buffer must have room for it."""
        delivery = self.accumulator.append(self._topic, partition, 0, None, value, ())
        assert delivery is not None
        return delivery

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _crashed(self, what: str, cause: Exception) -> None:
        raise cause
