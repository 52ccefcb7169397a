"""What an assignor is. Sans-I/O: it is told the members' subscriptions and how many partitions each topic has.

Invariants of every assignor: each partition of a topic that somebody subscribes to goes to exactly one member, who
subscribes to it; the result depends on the arguments only, not on the order in which members are named.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import ClassVar

from ...values import TopicPartition
from ..protocol import Subscription


class RebalanceProtocol(IntEnum):
    """EAGER: members give everything up before they join. COOPERATIVE: only what moves, in a second round (KIP-429)."""

    EAGER = 0
    COOPERATIVE = 1


Assigned = dict[str, list[TopicPartition]]
"""member id → its partitions."""


class Assignor(ABC):
    """One strategy. `name` is what members agree on, and thus Kafka's."""

    name: ClassVar[str]
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.EAGER})

    @abstractmethod
    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assigned:
        """Share out: `members` by id, `partitions` = number per topic (a topic that does not exist is left out)."""

    def user_data(self) -> bytes | None:
        """Return what this member tells the next leader beside its subscription."""
        return None

    def assigned(self, partitions: Iterable[TopicPartition], generation_id: int) -> None:  # noqa: B027  # may be left
        """Remember what this member got; called after every rebalance."""


def subscribers(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[str, list[str]]:
    """Return topic → its subscribers in the order in which they are served; topics ascending, unknown ones left out."""
    ordered = in_order(members)
    wanted = sorted({topic for subscription in members.values() for topic in subscription.topics})
    return {
        topic: [member for member in ordered if topic in members[member].topics]
        for topic in wanted
        if partitions.get(topic, 0) > 0
    }


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids as Kafka orders them: static ones by their instance id, then the others by member id."""

    def key(member: str) -> tuple[bool, str]:
        instance = members[member].group_instance_id
        return (instance is None, member if instance is None else instance)

    return sorted(members, key=key)
