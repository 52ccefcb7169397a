"""Records which partitions of a group's topics each producer has claimed, and which producer owns each partition.

Contains plain data and pure rules. Each transactional id has one assignment: the generation of its latest group-aware
initialisation, and the partitions that the id claimed then and still holds. If an id claims a partition that another id
holds, both hold it until the other id has been fenced and has released it. The owner is the id with the newer
generation. If the generations are equal, the owner is the id that claimed later.

Besides its assignments, a group has two fields:

* `forgotten_generation`: claims up to this generation were dropped. Committed offsets may still contain them, because
  the offsets' records are not rewritten. These claims must not be restored.
* `found`: claims in committed offsets that are newer than all claims in `__transaction_state`, because a part of that
  topic was lost. They are valid until they are replaced or dropped.

A group may have as many producers as partitions. Therefore the cost of a claim depends only on the affected partitions,
not on the number of producers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ..claim import NO_GENERATION, Claim, TopicPartition

NOTHING_FORGOTTEN = -2
"""A value below every generation, including `NO_GENERATION`."""

_SPENT_AT_ONCE: Final = 10


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions that one transactional id holds in a group.

    `made_ms` is the time of the claim in ms since the epoch. `order` grows with every claim in the group. An assignment
    without partitions only records its generation.
    """

    generation_id: int
    partitions: frozenset[TopicPartition]
    made_ms: int
    order: int

    @property
    def rank(self) -> tuple[int, int]:
        """The precedence of the assignment: by generation, then by the order of the claims.

        If two transactional ids hold the same partition, the id whose assignment has the higher rank owns it.
        """
        return self.generation_id, self.order


@dataclass(slots=True)
class GroupAssignments:
    """The assignments of one group, by transactional id. Only `put` changes them.

    `found` are valid claims that only committed offsets contain. `forgotten_generation` is the newest generation whose
    claims were dropped although committed offsets may still contain them. NOTHING_FORGOTTEN means that there are no
    such claims.
    """

    forgotten_generation: int = NOTHING_FORGOTTEN
    found: dict[TopicPartition, Claim] = field(default_factory=dict)
    last_order: int = 0
    _held: dict[str, Assignment] = field(default_factory=dict)
    _holders: dict[TopicPartition, set[str]] = field(default_factory=dict)
    _generations: Counter[int] = field(default_factory=Counter)
    _without_partitions: dict[str, None] = field(default_factory=dict)

    @property
    def held(self) -> Mapping[str, Assignment]:
        """The assignments by transactional id."""
        return MappingProxyType(self._held)

    @property
    def is_blank(self) -> bool:
        """Whether the group has no assignment, no claim in `found` and no forgotten generation."""
        return not self._held and not self.found and self.forgotten_generation == NOTHING_FORGOTTEN

    @property
    def recorded_generation(self) -> int:
        """The newest generation in the assignments.

        A claim in a committed offset is valid only if its generation is newer.
        """
        return max(self._generations, default=NOTHING_FORGOTTEN)

    @property
    def newest_generation(self) -> int:
        """The newest generation in the assignments and in `found`, or NO_GENERATION if both are empty."""
        found = (claim.generation_id for claim in self.found.values())
        return max(NO_GENERATION, self.recorded_generation, max(found, default=NO_GENERATION))

    def _rank(self, transactional_id: str) -> tuple[int, int]:
        return self._held[transactional_id].rank

    def by_rank(self) -> list[str]:
        """Return the transactional ids, the one with the lowest rank first.

        If assignments are removed in this order, every partition keeps its owner until the owner's own
        assignment is removed.
        """
        return sorted(self._held, key=self._rank)

    def next_order(self) -> int:
        """Return the value of `order` for the next claim."""
        self.last_order += 1
        return self.last_order

    def put(self, transactional_id: str, assignment: Assignment | None) -> None:
        """Replace the assignment of a transactional id. None removes it."""
        before = self._held.pop(transactional_id, None)
        if before is not None:
            self._generations[before.generation_id] -= 1
            if not self._generations[before.generation_id]:
                del self._generations[before.generation_id]
            self._without_partitions.pop(transactional_id, None)
            for partition in before.partitions:
                holders = self._holders[partition]
                holders.discard(transactional_id)
                if not holders:
                    del self._holders[partition]
        if assignment is not None:
            self._held[transactional_id] = assignment
            self._generations[assignment.generation_id] += 1
            if not assignment.partitions:
                self._without_partitions[transactional_id] = None
            for partition in assignment.partitions:
                self._holders.setdefault(partition, set()).add(transactional_id)

    def cleared(self, forgotten_generation: int) -> GroupAssignments:
        """Return the group without assignments or `found` claims, but with this `forgotten_generation`.

        The cost does not depend on the number of claims.
        """
        return GroupAssignments(forgotten_generation, last_order=self.last_order)

    # ---- holders and owners

    def holding(self, partition: TopicPartition) -> Collection[str]:
        """Return every transactional id that holds the partition, whether it is the owner or not.

        Claims known only from committed offsets (`found`) are left out.
        """
        return self._holders.get(partition, frozenset())

    def owner(self, partition: TopicPartition) -> str | None:
        """Return the owner of the partition, or None if it has none.

        Claims known only from committed offsets (`found`) are left out.
        """
        holders = self._holders.get(partition)
        if holders is None:
            return None
        if len(holders) == 1:
            return next(iter(holders))
        return max(holders, key=self._rank)

    def owners(self) -> dict[TopicPartition, tuple[str, Assignment]]:
        """Return the owner of each partition with its assignment.

        Claims known only from committed offsets (`found`) are left out.
        """
        owners = ((partition, self.owner(partition)) for partition in self._holders)
        return {partition: (name, self._held[name]) for partition, name in owners if name is not None}

    @property
    def owned(self) -> int:
        """The number of partitions that have an owner.

        Claims known only from committed offsets (`found`) are included.
        """
        return len(self._holders) + sum(partition not in self._holders for partition in self.found)

    @property
    def is_owned(self) -> bool:
        """Whether any partition has an owner. Claims known only from committed offsets (`found`) are included."""
        return bool(self._holders or self.found)

    def owned_partitions(self) -> set[TopicPartition]:
        """Return the partitions that have an owner.

        Claims known only from committed offsets (`found`) are included.
        """
        return {*self._holders, *self.found}

    def holders(self, partitions: Iterable[TopicPartition]) -> dict[str, int]:
        """Return every transactional id that holds any of the partitions, owner or not, with the id's generation."""
        holders: dict[str, int] = {}
        for partition in partitions:
            claim = self.found.get(partition)
            if claim is not None:
                holders.setdefault(claim.transactional_id, claim.generation_id)
            for name in self._holders.get(partition, ()):
                holders[name] = self._held[name].generation_id
        return holders

    def adopt(self, offsets: Mapping[TopicPartition, Claim]) -> None:
        """Set `found` to the claims in committed offsets that are newer than all known claims. Called after the replay.

        The known claims are those in the assignments and those that were dropped (`forgotten_generation`).
        """
        known = max(self.recorded_generation, self.forgotten_generation)
        self.found = {partition: claim for partition, claim in offsets.items() if claim.generation_id > known}

    # ---- consequences of a change

    def spent(self, generation_id: int) -> list[str]:
        """Return up to ten transactional ids whose assignments can be removed when `generation_id` is recorded.

        These assignments have no partitions, and their generation is not newer than `generation_id`. Ten are enough,
        because every claim removes the returned assignments and adds at most one assignment.
        """
        without = self._without_partitions
        return [name for name in without if self._held[name].generation_id <= generation_id][:_SPENT_AT_ONCE]

    def newest_after(self, changes: Mapping[str, Assignment | None]) -> int:
        """Return the newest generation in the assignments after these changes.

        Return NOTHING_FORGOTTEN if no assignment is left.
        """
        newest = max((held.generation_id for held in changes.values() if held is not None), default=NOTHING_FORGOTTEN)
        gone = Counter(self._held[name].generation_id for name in changes if name in self._held)
        stays = (generation for generation, count in self._generations.items() if count > gone[generation])
        return max(newest, max(stays, default=NOTHING_FORGOTTEN))

    def concerned(self, changes: Mapping[str, Assignment | None]) -> set[TopicPartition]:
        """Return the partitions for which these changes may affect the owner or the owner's generation."""
        concerned: set[TopicPartition] = set()
        for name, after in changes.items():
            before = self._held.get(name)
            if before is not None and after is not None and before.rank == after.rank:
                concerned |= before.partitions ^ after.partitions
            else:
                concerned.update(*(held.partitions for held in (before, after) if held is not None))
        return concerned

    def with_overtaken(self, changes: Mapping[str, Assignment | None]) -> dict[str, Assignment | None]:
        """Return `changes`, extended so that all holders of a partition release it together with its owner.

        Otherwise the partition would fall back to an earlier holder.
        """
        freed: set[TopicPartition] = set()
        for name, changed in changes.items():
            held = self._held.get(name)
            if held is not None:
                left = held.partitions if changed is None else held.partitions - changed.partitions
                freed.update(partition for partition in left if self.owner(partition) == name)
        after = dict(changes)
        for name in {name for partition in freed for name in self._holders[partition]}:
            if name not in changes:
                after[name] = shrunk(self._held[name], self._held[name].partitions - freed)
        return after

    def written_behind(self, changes: Mapping[str, Assignment | None]) -> dict[str, Assignment]:
        """Return the assignments that later took partitions from a changed assignment, directly or indirectly.

        Their records must stay after the record of the changed assignment.
        """
        behind: dict[str, Assignment] = {}
        look = [held for held in changes.values() if held is not None]
        while look:
            item = look.pop()
            for partition in item.partitions:
                for name in self._holders.get(partition, ()):
                    held = self._held[name]
                    if held.order > item.order and name not in changes and name not in behind:
                        behind[name] = held
                        look.append(held)
        return behind


def shrunk(assignment: Assignment, partitions: Iterable[TopicPartition]) -> Assignment | None:
    """Return the assignment with only these partitions, or None if no partitions are left."""
    left = frozenset(partitions)
    if not left:
        return None
    return Assignment(assignment.generation_id, left, assignment.made_ms, assignment.order)
