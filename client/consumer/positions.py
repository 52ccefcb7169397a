"""`Positions`: looks up the initial position of every assigned partition that has no position.

The initial position is the group's committed offset or, without one, the offset that auto.offset.reset selects.
Look-ups run in the background, so a partition whose offset is not available yet holds up neither a poll nor the other
partitions. A partition that is assigned again in the meantime, or gets a position by `seek`, has another `incarnation`
and keeps its new position.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster import Cluster
from ..config import ConsumerConfig
from ..errors import KafkaTimeoutError, PendingTransactionError, UnknownTopicError
from ..offset_lookup import ListedOffset, list_offsets
from ..values import OffsetAndMetadata, TopicPartition
from .errors import NoOffsetForPartitionError
from .missing_topics import REPEAT_S, is_missing
from .offsets import CommittedOffsets
from .subscription import EARLIEST, LATEST, PartitionState, SubscriptionState

log = logging.getLogger(__name__)


class Positions:
    """Looks up missing positions. `changed` is called when a position has been found, and when a look-up has ended."""

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
        self._notify = changed
        self._progress = asyncio.Event()
        self._under_way: dict[asyncio.Task[None], frozenset[int]] = {}
        """Each look-up under way, with the incarnations of its partitions."""
        self._ended: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        """The exception of the last look-up that ended, or None."""
        self._warned = ("", 0.0)
        """The last failure that was logged as a warning, and the loop time of the warning."""

    def find(self) -> None:
        """Start a look-up for every partition without a position. If a look-up has failed with an error that a retry
        cannot correct, raise this error.
        """
        while self._ended:
            done = self._ended.pop(0)
            error = None if done.cancelled() else done.exception()
            if error is None:
                continue
            if not (isinstance(error, KafkaError) and error.retriable):
                raise error
            level = logging.DEBUG if self._was_warned(error) else logging.WARNING
            log.log(level, "positions could not be looked up; trying again: %s", error)
        known = frozenset[int]().union(*self._under_way.values())
        states = [
            state
            for state in self._subscription.assigned.values()
            if state.position is None and state.incarnation not in known
        ]
        if fresh := [state for state in states if state.reset_to is None]:
            if self._committed is None:
                self._begin_as_set(fresh)
            else:
                self._look_up(self._go_to_committed(self._committed, fresh), fresh)
        if resets := [state for state in states if state.reset_to is not None]:
            self._look_up(self.look_up_resets(resets), resets)

    def _was_warned(self, error: KafkaError) -> bool:
        """Return whether this failure was logged as a warning in the last `REPEAT_S` seconds, here or by MissingTopics.

        If not, count it as logged now.
        """
        if isinstance(error, UnknownTopicError) and any(
            is_missing(self._cluster.metadata, one.topic) for one in self._subscription.assigned
        ):
            return True
        text, now = str(error), asyncio.get_running_loop().time()
        if text == self._warned[0] and now - self._warned[1] < REPEAT_S:
            return True
        self._warned = text, now
        return False

    async def of(self, partition: TopicPartition, timeout_s: float) -> int:
        """Return a partition's position. Raises KafkaTimeoutError if it is still unknown after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while (position := self._subscription.state(partition).position) is None:
                    self._progress.clear()
                    self.find()
                    await self._progress.wait()
        except TimeoutError as late:
            if isinstance(late, KafkaError):
                raise
            failure = self._failure
            text = f"the position of {partition} could not be determined within {timeout_s * 1000:.0f} ms"
            if isinstance(failure, PendingTransactionError):
                raise PendingTransactionError(failure.code, f"{text}: {failure.message}") from late
            why = f": {failure}" if failure is not None else ""
            raise KafkaTimeoutError(ErrorCode.REQUEST_TIMED_OUT, text + why) from late
        return position

    def start_over(self) -> None:
        """Repeat the look-ups under way, because they may have read an offset before a newer offset was committed."""
        for task in self._under_way:
            task.cancel()
        self._under_way.clear()
        self._progress.set()

    async def close(self) -> None:
        """Cancel the look-ups under way."""
        tasks = list(self._under_way)
        self.start_over()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def look_up_resets(self, states: Collection[PartitionState]) -> None:
        """Look up the offsets of partitions that were reset to the beginning, the end, or a time."""
        asked = {
            state.partition: (state, state.incarnation, state.reset_to)
            for state in states
            if state.reset_to is not None
        }
        if not asked:
            return

        def take(found: Mapping[TopicPartition, ListedOffset]) -> None:
            for partition, (state, incarnation, _) in asked.items():
                if partition in found and state.incarnation == incarnation:
                    state.seek(found[partition].offset)
            self._changed()

        await list_offsets(
            self._cluster,
            {one: timestamp for one, (_, _, timestamp) in asked.items() if timestamp is not None},
            read_committed=self._read_committed,
            timeout_s=self._timeout_s,
            on_found=take,
        )

    # -- inside

    def _changed(self) -> None:
        self._progress.set()
        self._notify()

    def _look_up(self, work: Coroutine[None, None, None], states: Collection[PartitionState]) -> None:
        task = asyncio.create_task(work, name="positions")
        self._under_way[task] = frozenset(state.incarnation for state in states)
        task.add_done_callback(self._looked_up)

    def _looked_up(self, task: asyncio.Task[None]) -> None:
        if self._under_way.pop(task, None) is None:
            return  # `start_over` has dropped this look-up
        self._ended.append(task)
        self._failure = None if task.cancelled() else task.exception()
        self._changed()

    async def _go_to_committed(self, committed: CommittedOffsets, states: Collection[PartitionState]) -> None:
        asked = {state.partition: (state, state.incarnation) for state in states}

        def take(answer: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
            without: list[PartitionState] = []
            for partition, found in answer.items():
                state, incarnation = asked[partition]
                if state.incarnation != incarnation:
                    continue
                if found is None:
                    without.append(state)
                else:
                    state.seek(found.offset, found.leader_epoch)
            self._changed()
            if without:
                self._begin_as_set(without)

        await committed.fetch(list(asked), timeout_s=self._timeout_s, on_found=take)

    def _begin_as_set(self, states: Collection[PartitionState]) -> None:
        """Reset partitions without a committed offset to the start or the end, as auto.offset.reset says.

        Raises NoOffsetForPartitionError with auto.offset.reset=none.
        """
        if self._policy == "none":
            raise NoOffsetForPartitionError([state.partition for state in states])
        for state in states:
            state.reset(EARLIEST if self._policy == "earliest" else LATEST)
        self._changed()
