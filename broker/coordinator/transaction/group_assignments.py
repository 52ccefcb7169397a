"""What the producers of one group hold, and who owns a partition when several do. Plain data and pure rules.

Each transactional id has one assignment: the generation of its latest group-aware initialisation and the partitions it
claimed then. Two may hold a partition, from the moment the later one claims it until the earlier one is fenced and has
released it. The owner is the one of the newest generation; at equal generation, the one that claimed later.

Two memories stand beside the assignments:

* `forgotten_generation`: claims up to that generation were dropped. Committed offsets may still name them (their
  records are not written anew for it), and must not bring them back.
* `found`: claims that committed offsets name and that are newer than anything known here: part of
  `__transaction_state` was lost. They count until they are replaced or dropped.

A group may have as many producers as it has partitions, so nothing that happens at a claim looks at all of them: what
it costs depends on the partitions that are concerned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ..claims import NO_GENERATION, Claim, TopicPartition

NOTHING_FORGOTTEN = -2
"""Below every generation, `NO_GENERATION` included."""

_SPENT_AT_ONCE: Final = 10


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
    """The assignments of one group, by transactional id. `put` alone changes them."""

    forgotten_generation: int = NOTHING_FORGOTTEN
    found: dict[TopicPartition, Claim] = field(default_factory=dict)
    last_order: int = 0
    _held: dict[str, Assignment] = field(default_factory=dict)
    _holders: dict[TopicPartition, set[str]] = field(default_factory=dict)
    _generations: Counter[int] = field(default_factory=Counter)
    _without_partitions: dict[str, None] = field(default_factory=dict)

    @property
    def held(self) -> Mapping[str, Assignment]:
        """Transactional id → assignment."""
        return MappingProxyType(self._held)

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known of the group."""
        return not self._held and not self.found and self.forgotten_generation == NOTHING_FORGOTTEN

    @property
    def recorded_generation(self) -> int:
        """The newest generation in the assignments: what claims in offsets must exceed to count."""
        return max(self._generations, default=NOTHING_FORGOTTEN)

    @property
    def newest_generation(self) -> int:
        """The newest generation that counts, NO_GENERATION where there is none."""
        found = (claim.generation_id for claim in self.found.values())
        return max(NO_GENERATION, self.recorded_generation, max(found, default=NO_GENERATION))

    def next_order(self) -> int:
        """The order of the next claim."""
        self.last_order += 1
        return self.last_order

    def put(self, transactional_id: str, assignment: Assignment | None) -> None:
        """The id holds this, and nothing else; None: nothing is known of it."""
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

    # ---- who holds and who owns

    def holding(self, partition: TopicPartition) -> Collection[str]:
        """Every transactional id that holds the partition, owner or not; those of `found` left out."""
        return self._holders.get(partition, frozenset())

    def owner(self, partition: TopicPartition) -> str | None:
        """Who owns the partition; `found` left out."""
        holders = self._holders.get(partition)
        return None if holders is None else max(holders, key=lambda name: self._held[name].rank)

    def owners(self) -> dict[TopicPartition, tuple[str, Assignment]]:
        """Who owns each partition, those of `found` left out."""
        owners = ((partition, self.owner(partition)) for partition in self._holders)
        return {partition: (name, self._held[name]) for partition, name in owners if name is not None}

    @property
    def owned(self) -> int:
        """How many partitions have an owner."""
        return len(self._holders) + sum(partition not in self._holders for partition in self.found)

    def holders(self, partitions: Iterable[TopicPartition]) -> dict[str, int]:
        """Every transactional id that holds one of the partitions, owner or not, and its generation."""
        holders: dict[str, int] = {}
        for partition in partitions:
            claim = self.found.get(partition)
            if claim is not None:
                holders.setdefault(claim.transactional_id, claim.generation_id)
            for name in self._holders.get(partition, ()):
                holders[name] = self._held[name].generation_id
        return holders

    def adopt(self, offsets: Mapping[TopicPartition, Claim]) -> None:
        """Take what committed offsets say into account, at start: only what is newer than all that is known here."""
        known = max(self.recorded_generation, self.forgotten_generation)
        self.found = {partition: claim for partition, claim in offsets.items() if claim.generation_id > known}

    # ---- what a change brings with it

    def spent(self, generation_id: int) -> list[str]:
        """Ids without partitions that need no assignment once there is another one of that generation.

        A few at a time: they go with claims, and each claim leaves one at most.
        """
        without = self._without_partitions
        return [name for name in without if self._held[name].generation_id <= generation_id][:_SPENT_AT_ONCE]

    def newest_after(self, changes: Mapping[str, Assignment | None]) -> int:
        """The newest generation in the assignments once these have changed; NOTHING_FORGOTTEN where none is left."""
        newest = max((held.generation_id for held in changes.values() if held is not None), default=NOTHING_FORGOTTEN)
        gone = Counter(self._held[name].generation_id for name in changes if name in self._held)
        stays = (generation for generation, count in self._generations.items() if count > gone[generation])
        return max(newest, max(stays, default=NOTHING_FORGOTTEN))

    def concerned(self, changes: Mapping[str, Assignment | None]) -> set[TopicPartition]:
        """The partitions whose owner, or the owner's generation, may be another once these have changed."""
        concerned: set[TopicPartition] = set()
        for name, after in changes.items():
            before = self._held.get(name)
            if before is not None and after is not None and before.rank == after.rank:
                concerned |= before.partitions ^ after.partitions
            else:
                concerned.update(*(held.partitions for held in (before, after) if held is not None))
        return concerned

    def with_overtaken(self, changes: Mapping[str, Assignment | None]) -> dict[str, Assignment | None]:
        """The changes, and that nobody gets back what its owner, who took it from them, now lets go."""
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
        """Who took partitions from one of them since, and from these in turn: their order must stay."""
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
    """The same assignment of fewer partitions, None when none is left."""
    left = frozenset(partitions)
    if not left:
        return None
    return Assignment(assignment.generation_id, left, assignment.made_ms, assignment.order)
