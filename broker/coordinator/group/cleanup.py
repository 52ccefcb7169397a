"""Removes groups, offsets and claims: on request, after a topic's deletion, when the last member leaves, or by expiry.

Enforces the dependencies: a claim is removed with its offset, with its group, or with the group's last member. A group
without members is removed when it has neither offsets nor claims left. Never decides whether a request to delete is
acceptable; `offset_rules` does. `deleted_topics` finds the offsets of deleted topics.

A claim is dropped before its offset is removed. If the drop fails, nothing has changed. After a crash in between,
repeating the removal completes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

from ....protocol.errors import KafkaError
from ...scheduling.steps import Steps, run_in_slices
from ...system.ports import Clock
from ...system.settled_clock import SettledClock
from ..claim import Claim, ClaimKeeper
from .claims import ClaimMap
from .classic_group import ClassicGroup
from .deleted_topics import DeletedTopics
from .group_log import GroupLog
from .membership import GroupMembership
from .offset_rules import expired
from .offsets import OffsetStore, TopicPartition
from .prepared_deletion import PreparedDeletion
from .state import GroupState

if TYPE_CHECKING:
    from ...metadata import Metadata


_EXPIRED_AT_ONCE: Final = 200
"""How many offsets are checked for expiry before other tasks may run."""

_UNITS_PER_GROUP: Final = 10
_UNITS_PER_REMOVAL: Final = 5
"""The cost of expiring a group or of removing an offset, in units of work (`steps.py`)."""


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
        self._clock = clock
        self._logger = logger
        self._retention_ms = retention_ms
        self._settled_clock = SettledClock(clock, clock_settle_ms, logger, "the expiry of groups and offsets")
        self._unsettled: dict[str, asyncio.Future[None]] = {}
        self.deleted_topics = DeletedTopics(offsets, claims, metadata, self.remove_offsets, logger)

    # ---- removal by request

    def prepare_deletion(self, group_id: str) -> Steps[PreparedDeletion]:
        """Prepare the batch that `delete_group` appends, in steps, because a group may have very many offsets."""
        yield from self._offsets.settle(group_id)
        prepared = PreparedDeletion(group_id, self._offsets)
        yield from prepared.prepare()
        return prepared

    def delete_group(self, group: ClassicGroup, prepared: PreparedDeletion | None = None) -> None:
        """Delete the group, its offsets and its claims. If this raises KafkaError, a repeated call removes the rest.

        If `prepared` is given, it must contain a tombstone for every offset of the group
        (`PreparedDeletion.is_current`).
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
        """Remove the group if it has no records in the log, and no data in memory besides its id."""
        group_id = group.group_id
        used = (
            not group.was_never_stored
            or group.pending_join
            or self._offsets.may_have_any(group_id)
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

        The future is shared, so callers must await it through `asyncio.shield`.
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
        """Drop the group's claims if their newest recorded generation is above the group's current generation.

        A group that was lost or deleted, or never had members, counts its generations from 1. Its claims of a later
        generation were made before it was lost, or while it had no members. They would fence all members until the
        group reaches that generation.
        """
        if not self._is_anew(group):
            return
        try:
            self._drop(group.group_id, None, "the generations of the group begin at 1 again")
        except KafkaError as error:  # tried again when the next generation begins or the broker starts
            self._logger.warning("claims_not_dropped", group=group.group_id, error=str(error))

    def is_in_force(self, group_id: str, claim: Claim) -> bool:
        """Whether a claim still applies. A claim that must be dropped no longer applies, even before it is dropped."""
        group = self._membership.groups.get(group_id)
        return not (self.is_outlived(group, claim) or (group is not None and group.members and self._is_anew(group)))

    def _is_anew(self, group: ClassicGroup) -> bool:
        """Whether the newest generation recorded for the group's claims is above the group's current generation."""
        keeper = self.claim_keeper
        return keeper is not None and keeper.newest_generation(group.group_id) > group.generation_id

    @staticmethod
    def is_outlived(group: ClassicGroup | None, claim: Claim) -> bool:
        """Whether the group has become empty since the claim was made. Such a claim no longer applies."""
        return group is not None and 0 <= claim.made_ms < group.emptied_ms

    # ---- removal with the topic

    def topics_deleted(self, topics: Iterable[str]) -> Awaitable[None] | None:
        """Remove the offsets of deleted topics, as `DeletedTopics.deleted` describes."""
        return self.deleted_topics.deleted(topics, len(self._membership.groups))

    # ---- expiry

    async def expire(self) -> None:
        """Remove expired offsets and claims, and the groups that then have no members, no offsets and no claims."""
        await run_in_slices(self.expiry())

    def expiry(self) -> Steps[None]:
        """Do the work of `expire` in steps, between which the groups may change."""
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
        if self._is_deleted(group):
            return
        idle: list[tuple[TopicPartition, Claim]] = []
        claims = list(self._claims.of_group(group_id).items())
        for start in range(0, len(claims), _EXPIRED_AT_ONCE):
            portion = claims[start : start + _EXPIRED_AT_ONCE]
            idle += [item for item in portion if self._is_idle(group, *item, now_ms)]
            yield len(portion)
        if self._is_deleted(group):
            return
        # Some of the idle claims may have been replaced or used since the step that found them.
        dropped = [
            partition
            for partition, claim in idle
            if self._claims.get(group_id, partition) == claim and self._is_idle(group, partition, claim, now_ms)
        ]
        if dropped:
            self._drop(group_id, dropped, "the claim expired")
        if group.state is not GroupState.EMPTY:
            return
        left = self._offsets.may_have_any(group_id)
        if not (left or self._claims.of_group(group_id) or group.pending_join):
            self.delete_group(group)

    def _is_idle(self, group: ClassicGroup, partition: TopicPartition, claim: Claim, now_ms: int) -> bool:
        """Whether the claim is outlived (`is_outlived`), or is old and unused in a group without members.

        A claim is old if it was made longer ago than the retention, and unused if its partition has no offset.
        """
        return self.is_outlived(group, claim) or (
            group.state is GroupState.EMPTY
            and claim.made_ms <= now_ms - self._retention_ms
            and self._offsets.get(group.group_id, partition) is None
        )

    def _expire_offsets(self, group: ClassicGroup, now_ms: int) -> Steps[None]:
        group_id = group.group_id
        yield from self._offsets.settle(group_id)
        committed = self._offsets.moved(group_id)
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
