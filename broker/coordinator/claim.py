"""Defines claims, and the interfaces through which the two coordinators use them.

A claim is the exclusive right of a producer to commit a group's offsets on a partition. The transaction coordinator to
which the group id is assigned stores the claims durably (`claims/keeper.py`). The group coordinator checks commits
against the claims (`group/claims.py`). The two coordinators may one day run on different brokers, so they call each
other only through the protocols in this file. This file keeps no state. It contains one rule: whether a claim fences a
commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]

NO_GENERATION: Final = -1
"""The generation id of a claim or an offset commit without a generation."""


class Claim(NamedTuple):
    """The right of a transactional id, the owner, to commit a group's offsets on a partition.

    Owners are compared by transactional id, because the producer id of a transactional id may change. `producer_id` is
    -1 while it is unknown. `made_ms` is the time when the claim was made, in ms since the epoch, or -1 if it is
    unknown.
    """

    producer_id: int
    transactional_id: str
    generation_id: int
    made_ms: int = -1

    def fences(self, transactional_id: str, generation_id: int) -> bool:
        """Whether the claim refuses an offset commit with this transactional id and generation.

        It refuses every commit with another transactional id, unless the commit has a generation that is at least as
        new as the claim's.
        """
        if transactional_id == self.transactional_id:
            return False
        return generation_id < 0 or generation_id < self.generation_id


class ClaimKeeper(Protocol):
    """The operations that the group coordinator needs from the transaction coordinator, which stores the claims."""

    def newest_generation(self, group_id: str) -> int:
        """Return the newest generation recorded for the group, or NO_GENERATION if no generation is recorded."""

    def drop(
        self, group_id: str, partitions: Collection[TopicPartition] | None, reason: str, *, forget: bool = False
    ) -> asyncio.Future[None] | None:
        """Drop the group's claims on these partitions, or on all partitions (None), with immediate effect.

        `forget` is true if the group itself is being deleted, so that its generation need not be remembered. Return
        None if the change is durable already, otherwise a shared future that is done when the change is durable. The
        call and the future raise KafkaError with a coordinator error code. After an error nothing has changed, with one
        exception: if very many claims were to be dropped, some of them may have been dropped. A repeated call drops the
        rest.
        """

    def restore(self, group_id: str, in_offsets: Mapping[TopicPartition, Claim]) -> None:
        """Enforce the claims of a group whose offsets became readable only after the broker's start.

        `in_offsets` are the claims that the group's committed offsets contain. Claims that are no longer valid are
        dropped.
        """


class ClaimedGroups(Protocol):
    """The operations that the transaction coordinator needs from the group coordinator, in order to manage claims.

    None of these methods awaits. Only `check_served` raises KafkaError.
    """

    def check_served(self, group_id: str) -> None:
        """Raise KafkaError if the group cannot be served, or if its id is empty."""

    def generation_with_members(self, group_id: str) -> int | None:
        """Return the group's generation, or None if the group has no members."""

    def pending_producers(self, group_id: str, partitions: Collection[TopicPartition]) -> set[int]:
        """Return the ids of the producers whose open transactions contain offset commits for any of the partitions."""

    def install_claims(self, group_id: str, claims: Mapping[TopicPartition, Claim]) -> None:
        """Replace all claims of the group."""

    def change_claims(self, group_id: str, claims: Mapping[TopicPartition, Claim | None]) -> None:
        """Replace the group's claims on these partitions; None removes a claim. Claims on other partitions stay."""

    def may_have_offsets(self, group_id: str) -> bool:
        """Whether the log may contain offsets of the group, pending or committed.

        If so, the offsets' records may contain claims.
        """

    def claims_in_offsets(self) -> dict[str, dict[TopicPartition, Claim]]:
        """Return the claims that the replay found in the records of committed offsets, by group id and partition."""

    def is_outlived(self, group_id: str, claim: Claim) -> bool:
        """Whether the group has become empty since the claim was made. Such a claim no longer applies."""

    def emptied_ms(self, group_id: str) -> int:
        """Return the time when the group last became empty, in ms since the epoch.

        Return -1 if that time is unknown, if the group never became empty, or if the group does not exist.
        """
