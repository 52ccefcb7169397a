"""The range assignor: for each topic separately, every member gets a range of consecutive partitions.

Topics with the same number of partitions and the same subscribers are co-partitioned: partition n of each topic goes to
the same member.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...group_protocol import Subscription
from ...values import TopicPartition
from .base import Assigned, Assignor, subscribers


class RangeAssignor(Assignor):
    """Kafka's RangeAssignor (without racks)."""

    name = "range"

    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assigned:
        result: Assigned = {member: [] for member in members}
        for topic, interested in subscribers(members, partitions).items():
            each, extra = divmod(partitions[topic], len(interested))
            start = 0
            for number, member in enumerate(interested):
                end = start + each + (number < extra)
                result[member] += [TopicPartition(topic, index) for index in range(start, end)]
                start = end
        return result
