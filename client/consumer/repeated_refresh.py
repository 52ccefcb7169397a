"""Asks for metadata again while they lack what a consumer waits for: `RepeatedRefresh`.

A topic that does not exist yet, or a partition without a leader, is asked for after retry.backoff.ms, and less and less
often up to retry.backoff.max.ms, as Kafka's client does. Otherwise it would be noticed with the next refresh that
something else brings about, a minute later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ..cluster import Cluster
from ..values import TopicPartition


class RepeatedRefresh:
    """See the module's docstring."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._attempt = 0
        self._timer: asyncio.TimerHandle | None = None

    def look(self, topics: Collection[str], partitions: Collection[TopicPartition]) -> None:
        """See whether the present metadata have these topics, and leaders of these partitions."""
        wanted = {*topics, *(one.topic for one in partitions if self._cluster.leader_of(one) is None)}
        if not any(map(self._may_come, wanted)):
            self._attempt = 0
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._cluster.retry_backoff(self._attempt), self._ask)
            self._attempt += 1

    def _may_come(self, topic: str) -> bool:
        """Whether something of the topic is missing that may be there soon."""
        known = self._cluster.metadata.topics.get(topic)
        if known is None or known.error_code:
            return known is None or known.error_code.retriable
        return any(partition.leader_id < 0 for partition in known.partitions)

    def close(self) -> None:
        """Ask no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self) -> None:
        self._timer = None
        self._cluster.request_refresh()
