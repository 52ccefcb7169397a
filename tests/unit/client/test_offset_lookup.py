"""Look-ups of offsets in topics that the brokers do not know yet."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from oncelog.client.backoff import ExponentialBackoff
from oncelog.client.config import ConsumerConfig
from oncelog.client.errors import UnknownTopicError
from oncelog.client.metadata import ClusterMetadata, TopicMetadata
from oncelog.client.offset_lookup import LATEST_TIMESTAMP, ListedOffset, list_offsets
from oncelog.client.values import TopicPartition
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from support.scripted_cluster import known_topic
from support.virtual_time import VirtualTimeLoop

END = 30


class ForgetfulCluster:
    """A cluster whose metadata lacks some topics: in each refresh, those of the next element of `missing`.

    While a topic is missing, all others have no leader. After the last element, no topic is missing.
    """

    config = ConsumerConfig.of()
    retry_backoff = ExponentialBackoff(100, 1000, lambda: 0.5)

    def __init__(self, missing: Iterable[Collection[str]]) -> None:
        self.metadata = ClusterMetadata()
        self._missing = iter(missing)

    def leader_of(self, partition: TopicPartition) -> int | None:
        topic = self.metadata.topics.get(partition.topic)
        return 0 if topic is not None and topic.partitions else None

    async def refresh(self, topics: Iterable[str]) -> None:
        missing = next(self._missing, ())

        def described(name: str) -> TopicMetadata:
            if not missing:
                return known_topic(name, 1)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name in missing else ErrorCode.LEADER_NOT_AVAILABLE
            return TopicMetadata(name, bytes(16), code, False, ())

        self.metadata = ClusterMetadata(topics={name: described(name) for name in topics})

    def request_refresh(self) -> None: ...

    async def call(self, node_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        row = ListOffsetsPartitionResponse(partition_index=0, offset=END)
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=one.name, partitions=[row]) for one in request.topics]
        )


def look_up(topics: Collection[str], missing: Iterable[Collection[str]]) -> dict[TopicPartition, ListedOffset]:
    wanted = {TopicPartition(name, 0): LATEST_TIMESTAMP for name in topics}
    cluster: Any = ForgetfulCluster(missing)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(list_offsets(cluster, wanted, read_committed=False, timeout_s=60))


def test_topics_that_are_missing_in_turn_are_looked_up_again() -> None:
    found = look_up("abc", [{"a"}, {"b"}, {"c"}, {"a", "b", "c"}])
    assert {one.topic: listed.offset for one, listed in found.items()} == dict.fromkeys("abc", END)


def test_the_topic_that_stays_missing_is_named() -> None:
    with pytest.raises(UnknownTopicError, match="topic 'b' does not exist"):
        look_up("abc", [{"a", "b"}, {"b"}, {"b", "c"}])
