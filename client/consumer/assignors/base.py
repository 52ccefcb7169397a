"""`Assignor`: the base class of assignors. Sans-I/O: the caller passes subscriptions and numbers of partitions.

Invariants of every assignor: each partition of a subscribed topic is assigned to exactly one of the topic's
subscribers. As the only exception, a cooperative assignor leaves a partition unassigned if its owner must first give it
up. The result depends on the arguments only, not on the order in which members are passed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import ClassVar

from ...group_protocol import Subscription
from ...values import TopicPartition


class RebalanceProtocol(IntEnum):
    """EAGER: members give up all partitions before they join. COOPERATIVE: members give up only the partitions that
    move, and then join again so that these can be assigned (KIP-429).
    """

    EAGER = 0
    COOPERATIVE = 1


Assigned = dict[str, list[TopicPartition]]
"""member id → partitions of the member."""


class Assignor(ABC):
    """A strategy for assigning partitions. `name` is Kafka's name, because members agree on a strategy by its name."""

    name: ClassVar[str]
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.EAGER})

    @abstractmethod
    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assigned:
        """Return an assignment. `members` maps member ids to subscriptions. `partitions` maps topics that exist to
        their number of partitions.
        """

    def user_data(self) -> bytes | None:
        """Return the data that this member sends to the next leader together with its subscription."""
        return None

    def assigned(self, partitions: Iterable[TopicPartition], generation_id: int) -> None:  # noqa: B027  # optional
        """Store this member's new assignment; called after every rebalance."""


def subscribers(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the subscribers of each known topic. Topics are in ascending order, and subscribers in the order of
    `in_order`.
    """
    ordered = in_order(members)
    wanted = sorted({topic for subscription in members.values() for topic in subscription.topics})
    return {
        topic: [member for member in ordered if topic in members[member].topics]
        for topic in wanted
        if partitions.get(topic, 0) > 0
    }


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids in Kafka's order: static members by instance id, then the other members by member id."""

    def key(member: str) -> tuple[bool, str]:
        instance = members[member].group_instance_id
        return (instance is None, member if instance is None else instance)

    return sorted(members, key=key)
