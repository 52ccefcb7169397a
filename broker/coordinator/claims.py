"""Claims: the exclusive right of a producer to commit a group's offsets on a partition; and the interfaces for them.

The transaction coordinator that is the group's home stores the claims durably (`transaction/group_claims.py`); the
group coordinator checks commits against them (`group/claims.py`). The two may one day be on different brokers, so they
use each other only through the protocols here. Owns no state, and one rule: whether a claim fences a commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]

NO_GENERATION: Final = -1
"""The generation of a claim, or of a commit, that names none."""


class Claim(NamedTuple):
    """The owner of a partition. Owners are compared by transactional id, because its producer id may change.

    `producer_id` is -1 while it is unknown; `made_ms` (ms since the epoch) is when the claim was made, or -1.
    """

    producer_id: int
    transactional_id: str
    generation_id: int
    made_ms: int = -1

    def fences(self, transactional_id: str, generation_id: int) -> bool:
        """Whether a commit by that id is refused: the id is not the owner, and the generation is older or missing."""
        if transactional_id == self.transactional_id:
            return False
        return generation_id < 0 or generation_id < self.generation_id


class ClaimKeeper(Protocol):
    """The operations that the group coordinator needs from the group's home."""

    def newest_generation(self, group_id: str) -> int:
        """The newest generation recorded for the group, NO_GENERATION if there is none."""

    def drop(
        self, group_id: str, partitions: Collection[TopicPartition] | None, reason: str, *, forget: bool = False
    ) -> asyncio.Future[None] | None:
        """Drop the group's claims on these partitions, or all (None), with immediate effect.

        `forget`: the group itself is deleted, so its generation need not be remembered. Returns None if the change is
        durable, else a shared future. The call and the future raise KafkaError in a coordinator's codes; then nothing
        has changed, or, of very many claims, only some are dropped: call again.
        """


class ClaimedGroups(Protocol):
    """The operations that the group's home needs from the group coordinator, without awaits.

    They raise KafkaError if the group is not served.
    """

    def check_served(self, group_id: str) -> None:
        """Raise KafkaError if the group cannot be served, or its id is empty."""

    def generation_with_members(self, group_id: str) -> int | None:
        """The group's generation, None if it has no members."""

    def pending_producers(self, group_id: str, partitions: Collection[TopicPartition]) -> set[int]:
        """The producer ids that have undecided offset commits on any of the partitions."""

    def install_claims(self, group_id: str, claims: Mapping[TopicPartition, Claim]) -> None:
        """Replace all claims of the group."""

    def change_claims(self, group_id: str, claims: Mapping[TopicPartition, Claim | None]) -> None:
        """Replace the group's claims on these partitions; None removes a claim. Other partitions keep theirs."""

    def may_have_offsets(self, group_id: str) -> bool:
        """Whether the log may contain offsets of the group, decided or not, which may name claims."""

    def claims_in_offsets(self) -> dict[str, dict[TopicPartition, Claim]]:
        """The claims found in committed offsets at start, by group."""

    def is_outlived(self, group_id: str, claim: Claim) -> bool:
        """Whether the group's last member left after the claim was made."""

    def emptied_ms(self, group_id: str) -> int:
        """When the group's last member left, in ms since the epoch; -1 if it has members or there is no group."""
