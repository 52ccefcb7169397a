"""Removes the offsets of deleted topics, and the claims on their partitions, from all groups.

A new topic of the same name would inherit these offsets and claims, so the name stays reserved until they are removed.
The offsets of all groups are examined in portions. Deletions that are waiting when a scan begins share that scan;
deletions that arrive during a scan share the next one.

A scan lists a group's partitions only once, and transactions may end during the scan. The scan still finds every
offset, because no client can commit on the partitions of a deleted topic. An offset that becomes committed during the
scan was pending before, so its partition is in the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ....protocol.errors import KafkaError
from ....protocol.schema import NO_UUID
from ...scheduling.steps import Steps, distinct, run_at_once, run_in_slices
from .claims import ClaimMap
from .offsets import OffsetStore, TopicPartition

if TYPE_CHECKING:
    from ...metadata import Metadata, Topic


REMOVED_AT_ONCE: Final = 100
"""How many offsets are removed with one batch of tombstones, before other tasks may run.

If the broker has at most this many groups, and at most this many offsets and claims, a deletion examines and removes
them without a pause.
"""

_UNITS_PER_REMOVAL: Final = 5
"""The cost of removing an offset, in units of work (`steps.py`)."""

_EXAMINED_AT_ONCE: Final = 200
"""How many partitions are examined before other tasks may run."""

RemoveOffsets: TypeAlias = Callable[[str, Collection[TopicPartition], str], None]
"""A function that removes a group's offsets and claims on these partitions, for the given reason."""

_Find: TypeAlias = Callable[[str, Sequence[TopicPartition]], list[TopicPartition]]
"""A function that returns those of a group's partitions whose topic has been deleted."""


def is_replaced(topic: Topic | None, topic_id: bytes) -> bool:
    """Whether an offset with this topic id belongs to an earlier topic that had the name of `topic`.

    Such an offset counts as absent, even if it could not be removed. Return False if no topic has the name now, or if
    `topic_id` is unknown (`NO_UUID`).
    """
    return topic is not None and topic_id != topic.topic_id and topic_id != NO_UUID


class DeletedTopics:
    """The removal of the offsets and claims of deleted topics."""

    def __init__(
        self,
        offsets: OffsetStore,
        claims: ClaimMap,
        metadata: Metadata,
        remove_offsets: RemoveOffsets,
        logger: Any,
    ) -> None:
        self._offsets = offsets
        self._claims = claims
        self._metadata = metadata
        self._remove_offsets = remove_offsets
        self._logger = logger
        self._waiting: list[tuple[frozenset[str], asyncio.Future[None]]] = []
        self._scans: asyncio.Task[None] | None = None

    # ---- deletion

    def deleted(self, topics: Iterable[str], groups: int) -> Awaitable[None] | None:
        """Remove the offsets of deleted topics. `groups` is the number of groups that exist.

        If there are many groups or offsets, return an awaitable that is done when all are removed. The topics' names
        must not be reused until then. If some offsets cannot be removed, all others are removed, and the call or the
        await raises KafkaError. The names must then not be reused until a later call has removed the rest.
        """
        gone = frozenset(topics)
        if groups <= REMOVED_AT_ONCE and self._offsets.count() + self._claims.count() <= REMOVED_AT_ONCE:
            failures = run_at_once(self._removal(self._all_groups(), _of_topics(gone)))
            for failure in failures.values():
                raise failure
            return None
        loop = asyncio.get_running_loop()
        removed: asyncio.Future[None] = loop.create_future()
        removed.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may be gone
        self._waiting.append((gone, removed))
        if self._scans is None:
            self._scans = loop.create_task(self._scan(), name="remove-offsets-of-topics")
        return removed

    async def _scan(self) -> None:
        """Scan all groups, and repeat the scan until no deletion is waiting."""
        served: list[tuple[frozenset[str], asyncio.Future[None]]] = []
        try:
            while self._waiting:
                served, self._waiting = self._waiting, []
                gone = frozenset[str]().union(*(topics for topics, _ in served))
                failures: Mapping[str, Exception]
                try:
                    failures = await run_in_slices(self._removal(self._all_groups(), _of_topics(gone)))
                except Exception as error:
                    failures = dict.fromkeys(gone, error)
                for topics, removed in served:
                    _end(removed, next((failures[topic] for topic in topics if topic in failures), None))
        finally:
            self._scans = None
            for _, removed in (*served, *self._waiting):
                removed.cancel()  # some are left only if this task was cancelled

    # ---- topics that were deleted earlier

    def remove_lost(self) -> None:
        """When the broker starts, remove the offsets of deleted topics that a crash left in the log.

        Pending offsets of a replaced topic (deleted, and created again under the same name) are dropped only from
        memory: a tombstone would also remove the offsets of the new topic. The next start of the broker finds the
        dropped offsets again, whether they are pending or committed then. For the same reason, a committed offset of a
        replaced topic is not removed while an offset of the new topic is pending. The old offset counts as absent
        (`is_replaced`), and the next start removes it.
        """
        self._drop_pending_of_replaced()
        # If an offset cannot be removed, its topic's name is still reserved (`deleted`), or the offset counts as absent
        # (`is_replaced`). The next start tries again.
        run_at_once(self._removal(self._all_groups(), self._lost))

    async def remove_lost_in_slices(self, groups: Iterable[str]) -> None:
        """Do the same as `remove_lost` for groups that are read after the broker's start, before they are served."""
        self._drop_pending_of_replaced()
        await run_in_slices(self._removal(groups, self._lost))

    def _lost(self, group_id: str, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [partition for partition in partitions if self._is_lost(group_id, partition)]

    def _is_lost(self, group_id: str, partition: TopicPartition) -> bool:
        topic = self._metadata.topic(partition[0])
        if topic is None:
            return True
        # A pending offset belongs to the current topic, because those of the earlier topic have been dropped.
        offsets = self._offsets
        return is_replaced(topic, offsets.topic_id(group_id, partition)) and not offsets.is_pending(group_id, partition)

    def _drop_pending_of_replaced(self) -> None:
        topic = self._metadata.topic
        self._offsets.drop_pending_where(lambda partition, offset: is_replaced(topic(partition[0]), offset.topic_id))

    # ---- a scan

    def _all_groups(self) -> list[str]:
        return [*self._offsets.groups(), *self._claims.groups()]

    def _removal(self, groups: Iterable[str], find: _Find) -> Steps[dict[str, KafkaError]]:
        """Remove these groups' offsets and claims on the partitions that `find` returns. Return the errors by topic."""
        failures: dict[str, KafkaError] = {}
        for group_id in (yield from distinct(groups)):
            removed = 0
            known = [*self._offsets.known(group_id), *self._claims.of_group(group_id)]
            for start in range(0, len(known), _EXAMINED_AT_ONCE):
                portion = known[start : start + _EXAMINED_AT_ONCE]
                doomed = find(group_id, portion)
                for first in range(0, len(doomed), REMOVED_AT_ONCE):
                    part = [p for p in doomed[first : first + REMOVED_AT_ONCE] if self._is_known(group_id, p)]
                    try:
                        self._remove_offsets(group_id, part, "the topic was deleted")
                    except KafkaError as error:
                        self._logger.error("offsets_not_removed", group=group_id, error=str(error))
                        failures.update((topic, error) for topic, _ in part)
                    else:
                        removed += len(part)
                    yield _UNITS_PER_REMOVAL * len(part)
                yield len(portion) // 2
            if removed:
                self._logger.info("offsets_of_deleted_topics_removed", group=group_id, partitions=removed)
            yield 1
        return failures

    def _is_known(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether the group has a committed or pending offset, or a claim, on the partition."""
        return self._offsets.has(group_id, partition) or self._claims.get(group_id, partition) is not None


def _of_topics(gone: Collection[str]) -> _Find:
    return lambda _, partitions: [partition for partition in partitions if partition[0] in gone]


def _end(removed: asyncio.Future[None], failure: Exception | None) -> None:
    if removed.done():
        return  # the caller was cancelled
    if failure is None:
        removed.set_result(None)
    else:
        removed.set_exception(failure)
