"""`TopicPartitionCounts`: the number of partitions of each topic, which the driver fixes once for all tasks.

A topic may get more partitions while rows are written to it. Tasks that distribute rows among different numbers of
partitions would contradict each other, and a repeated task would contradict its first attempt.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from ...client.cluster import Cluster
from ...client.config import ProducerConfig
from ...client.errors import UnknownTopicError
from ..blocking import BlockingCluster
from ..options import SinkOptions
from .produce import CLIENT_DEFAULTS

MAX_AGE_S: Final = 60.0
"""The age in seconds after which a cached number of partitions is requested again, if the driver has not fixed it."""


async def partition_counts(cluster: Cluster, topic: str, timeout_s: float) -> dict[str, int]:
    """Return the number of partitions of a topic or, with an empty name, of all topics that exist now.

    A topic that does not exist is left out, unless brokers and client allow its creation. Raises KafkaError.
    """
    if topic:
        try:
            return {topic: len((await cluster.topic(topic, timeout_s, patient=False)).partitions)}
        except UnknownTopicError:
            return {}
    cluster.track_all()
    topics = (await cluster.refresh()).topics
    return {name: len(known.partitions) for name, known in topics.items() if known.partitions}


class TopicPartitionCounts:
    """The number of partitions of each topic.

    If a topic was created after the driver had fixed the numbers, each task's process requests the topic's number of
    partitions and caches it.
    """

    _asked: dict[tuple[str, str], tuple[int, float]] = {}  # noqa: RUF012  # shared by all instances of a process

    def __init__(self, options: Mapping[str, str], decided: Mapping[str, int]) -> None:
        self._options = dict(options)
        self._decided = dict(decided)

    @classmethod
    def decided(cls, options: Mapping[str, str], topic: str) -> TopicPartitionCounts:
        """Return the current numbers, for `topic` or, if it is empty, for all topics. Raises KafkaError."""
        with _open(options) as kafka:
            return cls(options, kafka.run(partition_counts(kafka.cluster, topic, kafka.timeout_s)))

    def __call__(self, topic: str) -> int:
        """Return the number of partitions among which rows without a partition are distributed."""
        return self._decided.get(topic) or self._recent(topic)

    def existing(self, topic: str, named: int) -> int:
        """Return the topic's number of partitions. If the partition `named` is not known, ask the cluster again."""
        count = self._recent(topic)
        return count if named < count else self._ask(topic)

    def _recent(self, topic: str) -> int:
        count, asked_at = self._asked.get(self._where(topic), (0, 0.0))
        if not count or time.monotonic() - asked_at > MAX_AGE_S:
            return self._ask(topic)
        return count

    def _ask(self, topic: str) -> int:
        """Ask the cluster for the topic's number of partitions. This creates the topic if the brokers allow it."""
        with _open(self._options) as kafka:
            count = len(kafka.run(kafka.cluster.topic(topic, kafka.timeout_s)).partitions)
        self._asked[self._where(topic)] = count, time.monotonic()
        return count

    def _where(self, topic: str) -> tuple[str, str]:
        return self._options["kafka.bootstrap.servers"], topic


def _open(options: Mapping[str, str]) -> BlockingCluster:
    config = SinkOptions(options).client(ProducerConfig, **CLIENT_DEFAULTS)
    return BlockingCluster(config, config.max_block_ms / 1000, create_topics=True)
