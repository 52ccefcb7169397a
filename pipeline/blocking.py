"""The asyncio client for Spark's plain threads: `BlockingCluster` owns an event loop that runs only while it is asked.

Nothing happens between calls: what arrives meanwhile waits in the socket. One per thread, closed by whoever opened it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from ..client.cluster import Cluster
from ..client.config import ClientConfig

T = TypeVar("T")


class BlockingCluster:
    """`with BlockingCluster(config) as kafka: kafka.run(work(kafka.cluster))`. Raises as `Cluster.start` does."""

    def __init__(self, config: ClientConfig, timeout_s: float, *, create_topics: bool = False) -> None:
        self.config = config
        self.timeout_s = timeout_s
        self._loop = uvloop.new_event_loop()
        try:
            self.cluster = self.run(self._start(config, create_topics))
        except BaseException:
            self._loop.close()
            raise

    async def _start(self, config: ClientConfig, create_topics: bool) -> Cluster:
        cluster = Cluster(config, allow_auto_topic_creation=create_topics)
        try:
            await cluster.start(self.timeout_s)
        except BaseException:
            await cluster.close()
            raise
        return cluster

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run until the coroutine is done; an exception, also KeyboardInterrupt, leaves nothing running."""
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise

    def close(self) -> None:
        """Close connections and loop. Safe to call twice."""
        if self._loop.is_closed():
            return
        try:
            self.run(self.cluster.close())
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
