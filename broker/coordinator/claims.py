"""Claims: which producer alone may commit offsets of a group on a partition; and the two interfaces around them.

The group's home among the transaction coordinators keeps the claims (durable, `transaction/group_claims.py`), the group
coordinator checks commits against them (`group/claims.py`). Both may be on different brokers one day, so they know each
other only through the protocols here. Owns the vocabulary, no state and no rule but one: which of two claims is newer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]

NO_GENERATION: Final = -1
"""The generation of a claim, or of a commit, that names none."""


class Claim(NamedTuple):
    """A partition's owner. Owners are compared by transactional id, for a producer id may change under it.

    `producer_id` is -1 as long as it is not known; `made_ms` (since the epoch) is when the claim was made, or -1.
    """

    producer_id: int
    transactional_id: str
    generation_id: int
    made_ms: int = -1

    def fences(self, transactional_id: str, generation_id: int) -> bool:
        """Whether a commit by that id, at that generation, is refused: it is another's, and not of a newer owner."""
        if transactional_id == self.transactional_id:
            return False
        return generation_id < 0 or generation_id < self.generation_id


class ClaimKeeper(Protocol):
    """What the group coordinator asks of the group's home."""

    def newest_generation(self, group_id: str) -> int:
        """The newest generation that was recorded for the group, NO_GENERATION where there is none."""

    def drop(
        self, group_id: str, partitions: Collection[TopicPartition] | None, reason: str, *, forget: bool = False
    ) -> asyncio.Future[None] | None:
        """Claims of the group on these partitions, or all (None), are gone, in this very step.

        `forget`: the group itself is gone, so nothing of it has to be remembered. None: durable; else a future, which
        the caller shares. Raises KafkaError, as the future does, in a coordinator's codes; then nothing has changed, or
        of very many claims some are gone: it is to be asked again.
        """


class ClaimedGroups(Protocol):
    """What the group's home asks of the group coordinator. Plain calls that raise KafkaError where it is not served."""

    def check_served(self, group_id: str) -> None:
        """Raise KafkaError where the group cannot be served, or has no name."""

    def generation_with_members(self, group_id: str) -> int | None:
        """The group's generation, None when it has no members."""

    def pending_producers(self, group_id: str, partitions: Collection[TopicPartition]) -> set[int]:
        """The producer ids that have undecided offset commits on any of the partitions."""

    def install_claims(self, group_id: str, claims: Mapping[TopicPartition, Claim]) -> None:
        """From now on these are the group's claims, and no others."""

    def change_claims(self, group_id: str, claims: Mapping[TopicPartition, Claim | None]) -> None:
        """From now on these are the group's claims on these partitions, None: there is none. The others stay."""

    def may_have_offsets(self, group_id: str) -> bool:
        """Whether offsets of the group may lie in the log, decided or not, which may name claims."""

    def claims_in_offsets(self) -> dict[str, dict[TopicPartition, Claim]]:
        """At start: the claims that lie in committed offsets, by group."""

    def is_outlived(self, group_id: str, claim: Claim) -> bool:
        """Whether the group's last member left after the claim was made."""

    def emptied_ms(self, group_id: str) -> int:
        """When the group's last member left, since the epoch; -1 while it has members or where there is no group."""
