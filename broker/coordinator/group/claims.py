"""Keeps each group's claims by partition. The group coordinator uses them to refuse commits of fenced producers.

A claim is the exclusive right of a producer to commit a group's offsets on a partition. The transaction coordinator
makes and drops claims, and installs them here through `ClaimedGroups` in `coordinator/claim.py`. This file writes
nothing to a log. An installed claim is durable already, or becomes so before any response reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from ....protocol.errors import CONCURRENT_PRODUCER_COMMIT, KafkaError
from ..claim import Claim, TopicPartition

_NONE: Final[Mapping[TopicPartition, Claim]] = MappingProxyType({})


class ClaimMap:
    """The claims of all groups of this coordinator.

    `is_in_force(group_id, claim)` returns whether a claim still applies. A claim that no longer applies is ignored,
    even if it has not been dropped yet.
    """

    def __init__(self, is_in_force: Callable[[str, Claim], bool]) -> None:
        self._is_in_force = is_in_force
        self._groups: dict[str, dict[TopicPartition, Claim]] = {}

    def install(self, group_id: str, claims: Mapping[TopicPartition, Claim]) -> None:
        """Replace all claims of the group."""
        if claims:
            self._groups[group_id] = dict(claims)
        else:
            self._groups.pop(group_id, None)

    def change(self, group_id: str, claims: Mapping[TopicPartition, Claim | None]) -> None:
        """Replace the group's claims on these partitions; None removes a claim. Claims on other partitions stay."""
        of_group = self._groups.setdefault(group_id, {})
        for partition, claim in claims.items():
            if claim is None:
                of_group.pop(partition, None)
            else:
                of_group[partition] = claim
        if not of_group:
            del self._groups[group_id]

    def groups(self) -> Iterable[str]:
        """Return the ids of the groups that have claims."""
        return self._groups.keys()

    def count(self) -> int:
        """Return the number of claims of all groups. The cost grows with the number of groups."""
        return sum(map(len, self._groups.values()))

    def of_group(self, group_id: str) -> Mapping[TopicPartition, Claim]:
        """Return the group's claims by partition."""
        return self._groups.get(group_id, _NONE)

    def get(self, group_id: str, partition: TopicPartition) -> Claim | None:
        """Return the claim on the partition, or None if the partition has no claim."""
        claims = self._groups.get(group_id)
        return None if claims is None else claims.get(partition)

    def check(
        self, group_id: str, partitions: Iterable[TopicPartition], transactional_id: str, generation_id: int
    ) -> None:
        """Raise KafkaError CONCURRENT_PRODUCER_COMMIT if a claim on one of the partitions refuses the commit."""
        claims = self._groups.get(group_id)
        if claims is None:
            return
        for partition in partitions:
            claim = claims.get(partition)
            if claim is None or not claim.fences(transactional_id, generation_id):
                continue
            if self._is_in_force(group_id, claim):
                raise KafkaError(
                    CONCURRENT_PRODUCER_COMMIT,
                    f"Partition {partition[0]}-{partition[1]} of group {group_id!r} is claimed by producer"
                    f" {claim.transactional_id!r} in generation {claim.generation_id}, but {transactional_id!r} commits"
                    f" in generation {generation_id}. Initialise the producer again in the group's current generation.",
                )
