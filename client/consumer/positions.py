"""Where reading begins: `Positions` finds an offset for every assigned partition that has none yet.

The committed offset of the group first; where there is none, what auto.offset.reset says. Found in the background, one
look-up at a time, so that a poll is not held up by a partition whose offsets cannot be told yet. A partition that is
assigned anew, or sought elsewhere, meanwhile (its `incarnation` is another) keeps what it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster import Cluster
from ..config import ConsumerConfig
from ..errors import KafkaTimeoutError, PendingTransactionError
from ..offset_lookup import list_offsets
from ..values import TopicPartition
from .errors import NoOffsetForPartitionError
from .offsets import CommittedOffsets
from .subscription import EARLIEST, LATEST, PartitionState, SubscriptionState


class Positions:
    """See the module's docstring. `changed` is called after each look-up."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        committed: CommittedOffsets | None,
        changed: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._policy = config.auto_offset_reset
        self._read_committed = config.isolation_level == "read_committed"
        self._timeout_s = config.default_api_timeout_ms / 1000
        self._subscription = subscription
        self._committed = committed
        self._changed = changed
        self._task: asyncio.Task[None] | None = None

    def find(self) -> None:
        """Have a position found for every partition that lacks one; raises why the last look-up failed for good."""
        if self._task is not None:
            if not self._task.done():
                return
            done, self._task = self._task, None
            error = None if done.cancelled() else done.exception()
            if error is not None and not (isinstance(error, KafkaError) and error.retriable):
                raise error
        if any(state.position is None for state in self._subscription.assigned.values()):
            self._task = asyncio.create_task(self._find(), name="positions")
            self._task.add_done_callback(lambda _: self._changed())

    async def of(self, partition: TopicPartition, timeout_s: float) -> int:
        """Return a partition's position; raises KafkaTimeoutError where it is not known within the timeout."""
        failure: BaseException | None = None
        try:
            async with asyncio.timeout(timeout_s):
                while (position := self._subscription.state(partition).position) is None:
                    self.find()
                    if self._task is not None:
                        task = self._task
                        await asyncio.wait({task})
                        failure = None if task.cancelled() else task.exception()
        except TimeoutError as late:
            if isinstance(late, KafkaError):
                raise
            text = f"the position of {partition} is not known within {timeout_s * 1000:.0f} ms"
            if isinstance(failure, PendingTransactionError):
                raise PendingTransactionError(failure.code, f"{text}: {failure.message}") from late
            why = f": {failure}" if failure is not None else ""
            raise KafkaTimeoutError(ErrorCode.REQUEST_TIMED_OUT, text + why) from late
        return position

    def start_over(self) -> None:
        """What is being looked up may have been read before it was committed: look again."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        """Look no further."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look_up_resets(self, states: list[PartitionState]) -> None:
        """Find the offsets of partitions that are to go to the beginning, the end, or a time."""
        asked = {
            state.partition: (state, state.incarnation, state.reset_to)
            for state in states
            if state.reset_to is not None
        }
        if not asked:
            return
        found = await list_offsets(
            self._cluster,
            {one: timestamp for one, (_, _, timestamp) in asked.items() if timestamp is not None},
            read_committed=self._read_committed,
            timeout_s=self._timeout_s,
        )
        for partition, (state, incarnation, _) in asked.items():
            if state.incarnation == incarnation and partition in found:
                state.seek(found[partition].offset)

    async def _find(self) -> None:
        """Committed offsets first; where there are none, what auto.offset.reset says."""
        states = [state for state in self._subscription.assigned.values() if state.position is None]
        fresh = {state.partition: (state, state.incarnation) for state in states if state.reset_to is None}
        if fresh and self._committed is not None:
            committed = await self._committed.fetch(list(fresh), timeout_s=self._timeout_s)
            for partition, (state, incarnation) in list(fresh.items()):
                found = committed.get(partition)
                if state.incarnation != incarnation:
                    del fresh[partition]
                elif found is not None:
                    state.seek(found.offset, found.leader_epoch)
                    del fresh[partition]
        if fresh:
            if self._policy == "none":
                raise NoOffsetForPartitionError(fresh)
            for state, incarnation in fresh.values():
                if state.incarnation == incarnation:
                    state.reset(EARLIEST if self._policy == "earliest" else LATEST)
        self._changed()
        await self.look_up_resets(states)
