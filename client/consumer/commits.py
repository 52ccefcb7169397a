"""`Commits`: commits positions automatically, in the background on request, and before partitions are given up.

It keeps track of the commits under way, so that a rebalance can wait for them, and of the time of the next automatic
commit. `offsets.py` sends the commits.
"""

from __future__ import annotations

import asyncio
import logging

from ...protocol.errors import KafkaError
from ..cluster import Cluster
from ..config import ConsumerConfig
from ..values import OffsetAndMetadata, TopicPartition
from .offsets import CommittedOffsets
from .subscription import SubscriptionState

log = logging.getLogger(__name__)


class Commits:
    """The automatic and background commits of a consumer."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, subscription: SubscriptionState, offsets: CommittedOffsets
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._offsets = offsets
        self._loop = asyncio.get_running_loop()
        self._timeout_s = config.default_api_timeout_ms / 1000
        self._last_chance_s = min(self._timeout_s, config.max_poll_interval_ms / 1000 / 2)
        self._interval_s = config.auto_commit_interval_ms / 1000
        self.automatic = config.enable_auto_commit
        self._due_at = self._loop.time() + self._interval_s
        self._under_way: set[asyncio.Task[None]] = set()
        self._automatic_one: asyncio.Task[None] | None = None

    @property
    def due(self) -> bool:
        """Whether an automatic commit is due."""
        return self.automatic and self._loop.time() >= self._due_at

    def postpone(self) -> None:
        """Postpone the next automatic commit until a full interval has passed from now on."""
        self._due_at = self._loop.time() + self._interval_s

    def consumed(self, only: set[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions to commit: those of all partitions, or of the partitions in `only`.

        Positions in a topic that was deleted and created again are left out: they would skip records of the new topic.
        """
        return {
            one: OffsetAndMetadata(offset, "", epoch)
            for one, (offset, epoch) in self._subscription.positions().items()
            if (only is None or one in only)
            and not self._cluster.metadata.is_recreated(one.topic, self._subscription.assigned[one].topic_id)
        }

    def in_background(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> asyncio.Task[None]:
        """Commit in the background, without retries. The result or error of the returned task is that of the commit."""
        work = self._offsets.commit(
            offsets, in_group=self._subscription.automatic, timeout_s=self._timeout_s, retry=False
        )
        task = asyncio.create_task(work, name="commit")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def if_due(self) -> None:
        """Begin the automatic commit if it is due."""
        if not self.due:
            return
        self.postpone()
        if self._automatic_one is not None and not self._automatic_one.done():
            return
        offsets = self.consumed()
        if offsets:
            self._automatic_one = self.in_background(offsets)
            self._automatic_one.add_done_callback(self._automatic_one_done)

    def _automatic_one_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.warning("automatic commit failed; the next commit includes its offsets: %s", error)
            self._due_at = min(self._due_at, self._loop.time() + self._cluster.retry_backoff(0))

    async def settle(self, timeout_s: float | None = None) -> None:
        """Wait for commits under way, because the coordinator must have them before this member joins or leaves."""
        if self._under_way:
            await asyncio.wait(set(self._under_way), timeout=self._timeout_s if timeout_s is None else timeout_s)

    async def before(self, when: str, only: set[TopicPartition]) -> None:
        """Commit the positions of partitions that are about to be given up, if commits are automatic."""
        if not self.automatic or not only:
            return
        try:
            await self._offsets.commit(self.consumed(only), in_group=True, timeout_s=self._last_chance_s)
        except KafkaError as error:
            log.warning("automatic commit %s failed; records may be read again: %s", when, error)

    async def last(self, timeout_s: float) -> None:
        """Commit all positions when the consumer closes, if commits are automatic."""
        if not self.automatic:
            return
        try:
            await self._offsets.commit(self.consumed(), in_group=self._subscription.automatic, timeout_s=timeout_s)
        except KafkaError as error:
            log.warning("automatic commit at close failed; records will be read again: %s", error)

    async def cancel(self) -> None:
        """Cancel the commits under way."""
        for task in list(self._under_way):
            task.cancel()
        if self._under_way:
            await asyncio.wait(set(self._under_way))
