"""Use the asyncio client from Spark's plain threads: `BlockingCluster` has an event loop that runs only during calls.

Data that arrives between calls waits in the socket. Each thread uses its own BlockingCluster and closes it.
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
    """A blocking client: `with BlockingCluster(config, timeout_s) as kafka: kafka.run(work(kafka.cluster))`.

    The constructor connects, and raises the same errors as `Cluster.start`.
    """

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
        """Run a coroutine and return its result.

        If an exception such as KeyboardInterrupt interrupts this call, the coroutine is cancelled first.
        """
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise

    def close(self) -> None:
        """Close the connections and the event loop. Safe to call twice."""
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
