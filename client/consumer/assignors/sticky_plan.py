"""Plans the assignments of both sticky assignors: as balanced as possible, and with few moved partitions.

Sans-I/O. The owner of a partition is the member that claims it in the newest generation. If two members claim the
partition in that generation, it has no owner (KIP-792). Members with too many partitions give some up, and members with
too few get more. If members subscribe to different topics, single partitions are moved until no move makes the plan
more even.

Balanced means: no partition can move to a subscriber that has at least two partitions fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...group_protocol import Subscription
from ...values import TopicPartition
from .base import Assigned, in_order, subscribers

Claims = Mapping[str, tuple[int, Iterable[TopicPartition]]]
"""member id → (generation, partitions that the member owned in the generation)."""


def valid_owners(members: Mapping[str, Subscription], claims: Claims) -> dict[TopicPartition, str]:
    """Return the owner of each partition: the member that claims it in the newest generation. If two members claim
    it in that generation, it has no owner.
    """
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in in_order(members):
        generation, owned = claims.get(member, (-1, ()))
        for partition in dict.fromkeys(owned):
            known = best.get(partition)
            if known is None or generation > known[0]:
                best[partition] = (generation, member)
            elif generation == known[0]:
                best[partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in best.items() if owner is not None}


def plan(
    members: Mapping[str, Subscription], partitions: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> Assigned:
    """Return an assignment of all partitions. Partitions stay with their `owners` as far as the balance allows."""
    interested = subscribers(members, partitions)
    order = in_order(members)
    result: Assigned = {member: [] for member in order}
    unassigned: list[TopicPartition] = []
    for topic, who in interested.items():
        able = set(who)
        for index in range(partitions[topic]):
            partition = TopicPartition(topic, index)
            owner = owners.get(partition)
            if owner in able:
                result[owner].append(partition)
            else:
                unassigned.append(partition)
    if all(len(who) == len(order) for who in interested.values()):
        _even_out(result, order, unassigned)
    else:
        _fill(result, interested, unassigned)
        _balance(result, interested, owners)
    for mine in result.values():
        mine.sort()
    return {member: result[member] for member in members}


def _even_out(result: Assigned, order: list[str], unassigned: list[TopicPartition]) -> None:
    """Assign partitions to members that all subscribe to the same topics, so that the members' numbers of partitions
    differ by one at most. Owners keep as many partitions as this allows.
    """
    total = len(unassigned) + sum(map(len, result.values()))
    least, with_one_more = divmod(total, len(order)) if order else (0, 0)
    # The members with the most partitions keep one more, so that the fewest partitions move.
    for member in sorted(order, key=lambda one: -len(result[one])):
        quota = least
        if with_one_more and len(result[member]) > least:
            quota, with_one_more = least + 1, with_one_more - 1
        unassigned += result[member][quota:]
        del result[member][quota:]
    unassigned.sort()
    waiting = iter(unassigned)
    for member in order:
        while len(result[member]) < least:
            result[member].append(next(waiting))
    for member in order:
        if with_one_more and len(result[member]) == least:
            result[member].append(next(waiting))
            with_one_more -= 1
    assert next(waiting, None) is None, "a partition was left over"


def _fill(result: Assigned, interested: Mapping[str, list[str]], unassigned: list[TopicPartition]) -> None:
    """Give each unassigned partition to the subscriber with the fewest partitions. Partitions with few subscribers come
    first.
    """
    for partition in sorted(unassigned, key=lambda one: (len(interested[one.topic]), one)):
        least = min(interested[partition.topic], key=lambda member: len(result[member]))
        result[least].append(partition)


def _balance(result: Assigned, interested: Mapping[str, list[str]], owners: Mapping[TopicPartition, str]) -> None:
    """Move single partitions while a move makes the plan more even. The loop ends, because each move lowers the sum of
    the squared numbers of partitions.
    """
    moved = True
    while moved:
        moved = False
        for giver in sorted(result, key=lambda member: -len(result[member])):
            # Partitions that the giver did not own before go first, because no previous owner loses them.
            for partition in sorted(result[giver], key=lambda one: (owners.get(one) == giver, one)):
                taker = min(
                    interested[partition.topic],
                    key=lambda member: (len(result[member]), owners.get(partition) != member),
                )
                if len(result[taker]) + 1 < len(result[giver]):
                    result[giver].remove(partition)
                    result[taker].append(partition)
                    moved = True
