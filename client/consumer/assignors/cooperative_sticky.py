"""The cooperative sticky assignor (KIP-429): as the sticky one, but members go on with what they keep.

A partition that moves is given to nobody in the round in which its owner loses it; when the owner has given it up it
joins again, and the next round gives it to the new one. So two members never have one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final

from ...values import TopicPartition
from ..protocol import Subscription
from .base import Assigned, Assignor, RebalanceProtocol
from .sticky_plan import plan, valid_owners

_GENERATION: Final = Struct(">i")


class CooperativeStickyAssignor(Assignor):
    """Kafka's CooperativeStickyAssignor. Its user data is the generation; what is owned stands in the subscription."""

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._generation = -1

    def user_data(self) -> bytes | None:
        return _GENERATION.pack(self._generation)

    def assigned(self, partitions: Iterable[TopicPartition], generation_id: int) -> None:
        self._generation = generation_id

    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assigned:
        claims = {member: (_generation(one), one.owned) for member, one in members.items()}
        result = plan(members, partitions, valid_owners(members, claims))
        # Whoever still holds a partition, however old its claim, must have given it up before another one gets it.
        holders: dict[TopicPartition, set[str]] = {}
        for member, subscription in members.items():
            for partition in subscription.owned:
                holders.setdefault(partition, set()).add(member)
        return {
            member: [one for one in mine if not holders.get(one, set()) - {member}] for member, mine in result.items()
        }


def _generation(subscription: Subscription) -> int:
    if subscription.generation_id >= 0:
        return subscription.generation_id
    data = subscription.user_data
    return int(_GENERATION.unpack_from(data)[0]) if data is not None and len(data) >= 4 else -1
