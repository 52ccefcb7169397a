"""Removes groups, offsets and claims: by request, with their topic, with the last member, or by expiry.

Owns the dependencies: a claim is removed with its offset, with its group and with the group's last member. A group
without members is removed when it has neither offsets nor claims left. Never decides whether a request to delete is
acceptable; `offset_rules` does.

A claim is dropped before its offset is removed. If the drop fails, nothing has changed. After a crash in between, a
repeated removal completes the first one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ....protocol.errors import KafkaError
from ...scheduling.steps import Steps, run_in_slices
from ...system.ports import Clock
from ...system.settled_clock import SettledClock
from ..claim import Claim, ClaimKeeper
from .claims import ClaimMap
from .classic_group import ClassicGroup
from .group_log import GroupLog
from .membership import GroupMembership
from .offset_rules import expired
from .offsets import OffsetAndMetadata, OffsetStore, TopicPartition
from .prepared_deletion import PreparedDeletion
from .state import GroupState

if TYPE_CHECKING:
    from ...metadata import Metadata


IsGone: TypeAlias = Callable[[TopicPartition, "OffsetAndMetadata | None"], bool]
"""Whether the topic of a partition is gone; receives the partition's committed offset, None if it has none."""

_EXPIRED_AT_ONCE: Final = 200
"""How many offsets are checked for expiry in one step."""

_UNITS_PER_GROUP: Final = 10
_UNITS_PER_REMOVAL: Final = 5
"""The cost of expiring a group or of removing an offset, in units of work (`steps.py`)."""

_REMOVED_AT_ONCE: Final = 300
"""How many offsets are removed before the event loop runs other tasks."""

_EXAMINED_AT_ONCE: Final = 2000
"""How many offsets are checked before the event loop runs other tasks."""


class GroupCleanup:
    """The part of the group coordinator that removes groups, offsets and claims. Times are in ms since the epoch."""

    def __init__(
        self,
        log: GroupLog,
        offsets: OffsetStore,
        membership: GroupMembership,
        claims: ClaimMap,
        metadata: Metadata,
        clock: Clock,
        logger: Any,
        *,
        retention_ms: int,
        clock_settle_ms: int,
    ) -> None:
        self.claim_keeper: ClaimKeeper | None = None
        self._log = log
        self._offsets = offsets
        self._membership = membership
        self._claims = claims
        self._metadata = metadata
        self._clock = clock
        self._logger = logger
        self._retention_ms = retention_ms
        self._settled_clock = SettledClock(clock, clock_settle_ms, logger, "the expiry of groups and offsets")
        self._unsettled: dict[str, asyncio.Future[None]] = {}

    # ---- removal by request

    def prepare_deletion(self, group_id: str) -> Steps[PreparedDeletion]:
        """Prepare, in steps, the batch that `delete_group` appends. This is for groups with very many offsets."""
        prepared = PreparedDeletion(group_id, self._offsets)
        yield from prepared.prepare()
        return prepared

    def delete_group(self, group: ClassicGroup, prepared: PreparedDeletion | None = None) -> None:
        """Delete the group, its offsets and its claims. If it raises KafkaError, deleting again removes the rest.

        If `prepared` is given, it must be current.
        """
        self.forget_if_unused(group)
        if group.state is GroupState.DEAD:
            return
        self._drop(group.group_id, None, "the group was deleted", forget=True)
        if prepared is None:
            self._log.remove_group(group.group_id)
        else:
            self._log.remove_prepared(prepared)
        group.transition_to(GroupState.DEAD, self._clock.now_ms())
        del self._membership.groups[group.group_id]
        self._logger.info("group_deleted", group=group.group_id)

    def forget_if_unused(self, group: ClassicGroup) -> None:
        """Remove a group that has no records in the log and, in memory, no data besides its id."""
        group_id = group.group_id
        used = (
            not group.was_never_stored
            or group.pending_join
            or self._offsets.of_group(group_id)
            or self._offsets.has_pending(group_id)
            or self._claims.of_group(group_id)
            or (self.claim_keeper is not None and self.claim_keeper.newest_generation(group_id) >= 0)
        )
        if not used and self._membership.groups.get(group_id) is group:
            group.transition_to(GroupState.DEAD, self._clock.now_ms())
            del self._membership.groups[group_id]

    def remove_offsets(self, group_id: str, partitions: Collection[TopicPartition], reason: str) -> None:
        """Remove the group's offsets on these partitions, committed or pending, and the claims on them."""
        claims = self._claims.of_group(group_id)
        claimed = [partition for partition in partitions if partition in claims]
        if claimed:
            self._drop(group_id, claimed, reason)
        doomed = dict.fromkeys(partition for partition in partitions if self._offsets.has(group_id, partition))
        if doomed:
            self._log.remove(group_id, doomed)

    def unsettled(self, group_id: str) -> asyncio.Future[None] | None:
        """Return None if all drops of the group's claims are durable, else a future that resolves when they are.

        The future is shared: await it through `asyncio.shield`.
        """
        return self._unsettled.get(group_id)

    def _drop(
        self, group_id: str, partitions: Collection[TopicPartition] | None, reason: str, *, forget: bool = False
    ) -> None:
        if self.claim_keeper is None:
            return
        dropping = self.claim_keeper.drop(group_id, partitions, reason, forget=forget)
        if dropping is not None:
            self._unsettled[group_id] = dropping
            dropping.add_done_callback(lambda done: self._settled(group_id, done))

    def _settled(self, group_id: str, done: asyncio.Future[None]) -> None:
        if self._unsettled.get(group_id) is done:
            del self._unsettled[group_id]

    # ---- removal with the last member

    def group_emptied(self, group: ClassicGroup) -> None:
        """Drop the group's claims after its last member has left. The claims must not apply to future members."""
        try:
            self._drop(group.group_id, None, "the group's last member left")
        except KafkaError as error:  # `expire` tries again
            self._logger.warning("claims_not_dropped", group=group.group_id, error=str(error))

    def generation_began(self, group: ClassicGroup) -> None:
        """Drop the group's claims if a generation above the group's current generation is recorded.

        A group that was lost or deleted, or never had members, counts its generations from 1 again. Claims of a later
        generation were made while the group had no members. They would fence all members until the group reaches that
        generation.
        """
        keeper = self.claim_keeper
        if keeper is None or keeper.newest_generation(group.group_id) <= group.generation_id:
            return
        try:
            self._drop(group.group_id, None, "the group counts its generations from 1 again")
        except KafkaError as error:  # tried again when the next generation begins or the broker starts
            self._logger.warning("claims_not_dropped", group=group.group_id, error=str(error))

    @classmethod
    def is_outlived(cls, group: ClassicGroup | None, claim: Claim) -> bool:
        """Whether the group's last member left after the claim was made; False if the group never had members."""
        return 0 <= claim.made_ms < cls.emptied_ms(group)

    @staticmethod
    def emptied_ms(group: ClassicGroup | None) -> int:
        """Return the time when the group's last member left, in ms since the epoch.

        Return -1 if the group has members, never had any, or does not exist.
        """
        if group is None or group.state is not GroupState.EMPTY or group.protocol_type is None:
            return -1
        return -1 if group.state_timestamp_ms is None else group.state_timestamp_ms

    # ---- removal with the topic

    def topics_deleted(self, topics: Iterable[str]) -> Awaitable[None] | None:
        """Remove the offsets of deleted topics; otherwise a new topic of the same name would inherit them.

        If there are many offsets, return an awaitable that removes them in slices. The topics' names must not be reused
        until it is done. The call, or the await, raises KafkaError if offsets could not be removed, after removing all
        others. The names must then not be reused until a later call has removed the rest.
        """
        gone = set(topics)
        if self._offsets.count() + len(self._membership.groups) <= _REMOVED_AT_ONCE:
            failure = self._remove_where(lambda partition, _: partition[0] in gone)
            if failure is not None:
                raise failure
            return None
        return self._remove_in_slices(
            dict.fromkeys((*self._offsets.groups(), *self._claims.groups())), lambda partition, _: partition[0] in gone
        )

    async def _remove_in_slices(self, groups: Iterable[str], is_gone: IsGone) -> None:
        examined = 0
        failure: KafkaError | None = None
        for group_id in groups:
            known = self._offsets.partitions(group_id).union(self._claims.of_group(group_id))
            doomed = [p for p in known if is_gone(p, self._offsets.get(group_id, p))]
            for start in range(0, len(doomed), _REMOVED_AT_ONCE):
                await asyncio.sleep(0)
                portion = doomed[start : start + _REMOVED_AT_ONCE]
                failure = self._remove(group_id, [p for p in portion if self._is_known(group_id, p)]) or failure
            examined += 1 + len(known)
            if examined >= _EXAMINED_AT_ONCE:
                examined = 0
                await asyncio.sleep(0)
        if failure is not None:
            raise failure

    def _is_known(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether the group has a committed or pending offset, or a claim, on the partition."""
        return self._offsets.has(group_id, partition) or self._claims.get(group_id, partition) is not None

    def remove_offsets_of_lost_topics(self) -> None:
        """Remove, when the broker starts, the offsets of deleted topics that a crash left in the log.

        Pending offsets of a replaced topic (deleted, and created again under the same name) are dropped only from
        memory: a tombstone would also remove the offsets of the new topic. The next start of the broker finds the
        dropped offsets again, pending or committed.
        """

        self._offsets.drop_pending_where(self._is_replaced)
        self._remove_where(self._is_lost)

    async def remove_offsets_of_lost_topics_in_slices(self, groups: Iterable[str]) -> None:
        """Remove the offsets of deleted topics.

        This is for groups that are read after the broker's start, before they are served.
        """
        self._offsets.drop_pending_where(self._is_replaced)
        with suppress(KafkaError):  # logged; the next start of the broker tries again
            await self._remove_in_slices(groups, self._is_lost)

    def _is_replaced(self, partition: TopicPartition, offset: OffsetAndMetadata) -> bool:
        topic = self._metadata.topic(partition[0])
        return topic is not None and any(offset.topic_id) and offset.topic_id != topic.topic_id

    def _is_lost(self, partition: TopicPartition, offset: OffsetAndMetadata | None) -> bool:
        if self._metadata.topic(partition[0]) is None:
            return True
        return offset is not None and self._is_replaced(partition, offset)

    def _remove_where(self, is_gone: IsGone) -> KafkaError | None:
        failure: KafkaError | None = None
        for group_id in dict.fromkeys((*self._offsets.groups(), *self._claims.groups())):
            known = self._offsets.partitions(group_id).union(self._claims.of_group(group_id))
            doomed = [p for p in known if is_gone(p, self._offsets.get(group_id, p))]
            failure = self._remove(group_id, doomed) or failure
        return failure

    def _remove(self, group_id: str, doomed: Collection[TopicPartition]) -> KafkaError | None:
        """Remove a group's offsets of deleted topics. Return the error, None if the removal succeeded."""
        if not doomed:
            return None
        try:
            self.remove_offsets(group_id, doomed, "the topic was deleted")
        except KafkaError as error:
            self._logger.error("offsets_not_removed", group=group_id, error=str(error))
            return error
        self._logger.info("offsets_of_deleted_topics_removed", group=group_id, partitions=len(doomed))
        return None

    # ---- expiry

    async def expire(self) -> None:
        """Remove offsets past their retention, and groups without members, offsets and claims."""
        await run_in_slices(self.expiry())

    def expiry(self) -> Steps[None]:
        """Do the work of `expire` in steps. Each step uses its group's state at the time of the step."""
        now_ms = self._settled_clock.now_ms()
        for group in list(self._membership.groups.values()):
            if self._is_deleted(group):
                continue
            if self._log.is_unreadable(group.group_id):
                continue  # the group's state in memory is incomplete
            try:
                yield from self._expire(group, now_ms)
            except KafkaError as error:
                self._logger.warning("expiry_not_written", group=group.group_id, error=str(error))
            yield _UNITS_PER_GROUP

    def _is_deleted(self, group: ClassicGroup) -> bool:
        return self._membership.groups.get(group.group_id) is not group

    def _expire(self, group: ClassicGroup, now_ms: int) -> Steps[None]:
        group_id = group.group_id
        yield from self._expire_offsets(group, now_ms)
        if self._is_deleted(group) or group.state is not GroupState.EMPTY:
            return
        idle: list[tuple[TopicPartition, Claim]] = []
        claims = list(self._claims.of_group(group_id).items())
        for start in range(0, len(claims), _EXPIRED_AT_ONCE):
            portion = claims[start : start + _EXPIRED_AT_ONCE]
            idle += [item for item in portion if self._is_idle(group, *item, now_ms)]
            yield len(portion)
        if self._is_deleted(group) or group.state is not GroupState.EMPTY:
            return
        # Of the claims that are idle, some may have been replaced or used since their step.
        dropped = [
            partition
            for partition, claim in idle
            if self._claims.get(group_id, partition) == claim and self._is_idle(group, partition, claim, now_ms)
        ]
        if dropped:
            self._drop(group_id, dropped, "the claim expired")
        offsets = self._offsets.of_group(group_id)
        left = offsets or self._offsets.has_pending(group_id)
        if not (left or self._claims.of_group(group_id) or group.pending_join):
            self.delete_group(group)

    def _is_idle(self, group: ClassicGroup, partition: TopicPartition, claim: Claim, now_ms: int) -> bool:
        """Whether the group has outlived the claim, or the claim is past the retention and has no committed offset."""
        return self.is_outlived(group, claim) or (
            claim.made_ms <= now_ms - self._retention_ms and self._offsets.get(group.group_id, partition) is None
        )

    def _expire_offsets(self, group: ClassicGroup, now_ms: int) -> Steps[None]:
        group_id = group.group_id
        committed = self._offsets.committed(group_id)
        partitions = [] if committed is None else list(committed.partitions())
        removed = 0
        for start in range(0, len(partitions), _EXPIRED_AT_ONCE):
            if self._is_deleted(group):
                break
            offsets = [
                (partition, offset)
                for partition in partitions[start : start + _EXPIRED_AT_ONCE]
                if (offset := self._offsets.get(group_id, partition)) is not None
            ]
            doomed = [
                partition
                for partition in expired(group, offsets, now_ms, self._retention_ms)
                if not self._offsets.is_pending(group_id, partition)
            ]
            if doomed:
                self.remove_offsets(group_id, doomed, "the offset expired")
                removed += len(doomed)
            yield len(offsets) + _UNITS_PER_REMOVAL * len(doomed)
        if removed:
            self._logger.info("offsets_expired", group=group_id, partitions=removed)
