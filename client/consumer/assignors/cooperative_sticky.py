"""The cooperative sticky assignor (KIP-429): like the sticky assignor, but members give up only the partitions that
move.

A partition that moves is assigned to no member in the rebalance in which its owner loses it. When the owner has given
it up, the owner joins again, and the next rebalance assigns the partition to its new member. So two members never own a
partition at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final

from ...group_protocol import Subscription
from ...values import TopicPartition
from .base import Assigned, Assignor, RebalanceProtocol
from .sticky_plan import plan, valid_owners

_GENERATION: Final = Struct(">i")


class CooperativeStickyAssignor(Assignor):
    """Kafka's CooperativeStickyAssignor. Its user data contains the generation. The subscription itself contains the
    owned partitions.
    """

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
        # A member that still owns a partition must give it up before another member gets it, however old the claim is.
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
