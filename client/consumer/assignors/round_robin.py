"""The round-robin assignor: assigns all partitions of all topics one by one to the subscribers in turn."""

from __future__ import annotations

from collections.abc import Mapping

from ...group_protocol import Subscription
from ...values import TopicPartition
from .base import Assigned, Assignor, in_order, subscribers


class RoundRobinAssignor(Assignor):
    """Kafka's RoundRobinAssignor."""

    name = "roundrobin"

    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assigned:
        result: Assigned = {member: [] for member in members}
        ordered = in_order(members)
        turn = 0
        for topic in subscribers(members, partitions):
            for index in range(partitions[topic]):
                while topic not in members[ordered[turn % len(ordered)]].topics:
                    turn += 1  # ends, because at least one member subscribes to the topic
                result[ordered[turn % len(ordered)]].append(TopicPartition(topic, index))
                turn += 1
        return result
