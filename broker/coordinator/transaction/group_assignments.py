"""What the producers of one group hold, and who owns a partition when several do. Plain data and pure rules.

Each transactional id has one assignment: the generation of its latest group-aware initialisation and the partitions it
claimed then. Two may hold a partition, from the moment the later one claims it until the earlier one is fenced and has
released it. The owner is the one of the newest generation; at equal generation, the one that claimed later.

Two memories stand beside the assignments:

* `forgotten_generation`: claims up to that generation were dropped. Committed offsets may still name them (their
  records aren't written anew for it), and must not bring them back.
* `found`: claims that committed offsets name and that are newer than anything known here: part of
  `__transaction_state` was lost. They count until they are replaced or dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ..claims import NO_GENERATION, Claim, TopicPartition

NOTHING_FORGOTTEN = -2
"""Below every generation, `NO_GENERATION` included."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one transactional id holds; `order` grows with every claim in the group, `made_ms` is since the epoch.

    Without partitions it holds nothing, but still says that its generation has been.
    """

    generation_id: int
    partitions: frozenset[TopicPartition]
    made_ms: int
    order: int

    @property
    def rank(self) -> tuple[int, int]:
        """The higher one owns what both hold."""
        return self.generation_id, self.order


@dataclass(slots=True)
class GroupAssignments:
    """The assignments of one group, by transactional id."""

    held: dict[str, Assignment] = field(default_factory=dict)
    forgotten_generation: int = NOTHING_FORGOTTEN
    found: dict[TopicPartition, Claim] = field(default_factory=dict)
    last_order: int = 0

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known of the group."""
        return not self.held and not self.found and self.forgotten_generation == NOTHING_FORGOTTEN

    @property
    def recorded_generation(self) -> int:
        """The newest generation in the assignments: what claims in offsets must exceed to count."""
        return max((assignment.generation_id for assignment in self.held.values()), default=NOTHING_FORGOTTEN)

    @property
    def newest_generation(self) -> int:
        """The newest generation that counts, NO_GENERATION where there is none."""
        found = (claim.generation_id for claim in self.found.values())
        return max(NO_GENERATION, self.recorded_generation, max(found, default=NO_GENERATION))

    def next_order(self) -> int:
        """The order of the next claim."""
        self.last_order += 1
        return self.last_order

    def owners(self) -> dict[TopicPartition, tuple[str, Assignment]]:
        """Who owns each partition, those of `found` left out."""
        ranked = sorted(self.held.items(), key=lambda item: item[1].rank)
        return {partition: (name, held) for name, held in ranked for partition in held.partitions}

    def holders(self, partitions: Collection[TopicPartition]) -> dict[str, int]:
        """Every transactional id that holds one of the partitions, owner or not, and its generation."""
        wanted = frozenset(partitions)
        holders = {
            claim.transactional_id: claim.generation_id
            for partition, claim in self.found.items()
            if partition in wanted
        }
        for name, assignment in self.held.items():
            if not wanted.isdisjoint(assignment.partitions):
                holders[name] = assignment.generation_id
        return holders

    def adopt(self, offsets: Mapping[TopicPartition, Claim]) -> None:
        """Take what committed offsets say into account, at start: only what is newer than all that is known here."""
        known = max(self.recorded_generation, self.forgotten_generation)
        self.found = {partition: claim for partition, claim in offsets.items() if claim.generation_id > known}

    def later_than(self, order: int) -> Iterator[tuple[str, Assignment]]:
        """Assignments that were made after that one, in order."""
        later = [item for item in self.held.items() if item[1].order > order]
        return iter(sorted(later, key=lambda item: item[1].order))
