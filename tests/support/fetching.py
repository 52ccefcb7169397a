"""A broker in memory for `Fetcher`: batches of one record each, limited to a request's sizes as in Kafka.

As in Kafka's fetch sessions, partitions that were in a response come after those that were not.
"""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any, cast

from oncelog.client.cluster import Cluster
from oncelog.client.config import ConsumerConfig
from oncelog.client.consumer.fetcher import Fetcher
from oncelog.client.consumer.subscription import SubscriptionState
from oncelog.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from oncelog.client.values import TopicPartition
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from oncelog.protocol.records import Record, encode_batch

TOPIC = "t"
TOPIC_ID = bytes(15) + b"\1"
RETRY_S = 0.1
ANSWER_S = 0.001


class FetchWorld:
    """A cluster of `nodes` nodes. `sizes[n]` are the value sizes of partition n, which node n modulo `nodes` leads."""

    def __init__(self, sizes: list[list[int]], nodes: int = 1, **settings: Any) -> None:
        self.logs = [
            [encode_batch([Record(at, 0, None, bytes(size))], base_offset=at) for at, size in enumerate(partition)]
            for partition in sizes
        ]
        self.partitions = [TopicPartition(TOPIC, index) for index in range(len(sizes))]
        parts = tuple(PartitionMetadata(index, index % nodes, 0) for index in range(len(sizes)))
        self.metadata = ClusterMetadata(
            topics={TOPIC: TopicMetadata(TOPIC, TOPIC_ID, ErrorCode.NONE, False, parts)},
            leaders={TopicPartition(TOPIC, part.index): part.leader_id for part in parts},
        )
        self.subscription = SubscriptionState()
        self.subscription.assign_manually(self.partitions)
        for partition in self.partitions:
            self.subscription.state(partition).seek(0)
        self.arrived = asyncio.Event()
        self._answers = itertools.count(1)
        self._answered = [0] * len(sizes)
        config = ConsumerConfig.of({}, bootstrap_servers="127.0.0.1:1", **settings)
        self.fetcher = Fetcher(cast(Cluster, self), config, self.subscription, self.arrived.set)

    # -- the methods of a cluster that Fetcher calls

    def leader_of(self, partition: TopicPartition) -> int | None:
        return self.metadata.leader_of(partition)

    async def connection(self, node_id: int, channel: str) -> Any:
        return SimpleNamespace(version_of=lambda request, newest: 17, send=self._answer)

    def request_refresh(self) -> None:
        pass

    def retry_backoff(self, attempt: int) -> float:
        return RETRY_S

    # -- the broker

    async def _answer(self, request: FetchRequest, version: int) -> FetchResponse:
        partitions, left = [], request.max_bytes
        for wanted in sorted(request.topics[0].partitions, key=lambda wanted: self._answered[wanted.partition]):
            data = b""
            for batch in self.logs[wanted.partition][wanted.fetch_offset :]:
                fits = len(data) + len(batch) <= min(wanted.partition_max_bytes, left)
                if not fits and (data or left < request.max_bytes):
                    break
                data += batch
            left -= len(data)
            if data:
                self._answered[wanted.partition] = next(self._answers)
                partitions.append(PartitionData(partition_index=wanted.partition, high_watermark=1 << 40, records=data))
        await asyncio.sleep(ANSWER_S if partitions else request.max_wait_ms / 1000)
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)])
