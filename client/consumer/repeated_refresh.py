"""`RepeatedRefresh`: refreshes the metadata while a topic or a leader that the consumer waits for is missing.

A missing topic, or a partition without a leader, is looked up after retry.backoff.ms, then at growing intervals up to
retry.backoff.max.ms, as Kafka's client does. Otherwise the consumer would notice the new topic or leader only with the
next regular refresh, up to a minute later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ..cluster import Cluster
from ..values import TopicPartition


class RepeatedRefresh:
    """Refreshes the metadata while wanted topics or leaders are missing, after waits that grow up to
    retry.backoff.max.ms.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._attempt = 0
        self._timer: asyncio.TimerHandle | None = None

    def look(self, topics: Collection[str], partitions: Collection[TopicPartition]) -> None:
        """Schedule a refresh if the current metadata lacks one of these topics, or the leader of one of these
        partitions.
        """
        wanted = {*topics, *(one.topic for one in partitions if self._cluster.leader_of(one) is None)}
        if not any(map(self._may_come, wanted)):
            self._attempt = 0
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._cluster.retry_backoff(self._attempt), self._ask)
            self._attempt += 1

    def _may_come(self, topic: str) -> bool:
        """Return whether the topic, or the leader of one of its partitions, is missing but may appear soon."""
        known = self._cluster.metadata.topics.get(topic)
        if known is None or known.error_code:
            return known is None or known.error_code.retriable
        return any(partition.leader_id < 0 for partition in known.partitions)

    def close(self) -> None:
        """Cancel the scheduled refresh."""
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self) -> None:
        self._timer = None
        self._cluster.request_refresh()
