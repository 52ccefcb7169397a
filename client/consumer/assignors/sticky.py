"""The sticky assignor (KIP-54): it balances the members, and lets them keep as many of their partitions as possible.

It uses the eager protocol: members give up all partitions during the rebalance. A member sends its previous assignment
and generation as user data, in the format of Kafka's StickyAssignor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct, error
from typing import Final

from ...group_protocol import Subscription, group_by_topic
from ...values import TopicPartition
from .base import Assigned, Assignor
from .sticky_plan import plan, valid_owners

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


class StickyAssignor(Assignor):
    """Kafka's StickyAssignor."""

    name = "sticky"

    def __init__(self) -> None:
        self._owned: tuple[TopicPartition, ...] | None = None
        self._generation = -1

    def user_data(self) -> bytes | None:
        return None if self._owned is None else encode_user_data(self._owned, self._generation)

    def assigned(self, partitions: Iterable[TopicPartition], generation_id: int) -> None:
        self._owned = tuple(sorted(partitions))
        self._generation = generation_id

    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assigned:
        claims = {member: _claim(subscription) for member, subscription in members.items()}
        return plan(members, partitions, valid_owners(members, claims))


def _claim(subscription: Subscription) -> tuple[int, Iterable[TopicPartition]]:
    if subscription.user_data:
        owned, generation = decode_user_data(subscription.user_data)
        return generation, owned
    return subscription.generation_id, subscription.owned


def encode_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """Return StickyAssignorUserData v1: [{topic, [partition]}] and the generation, without a leading version."""
    grouped = group_by_topic(owned)
    pieces = [_INT32.pack(len(grouped))]
    for topic, indexes in grouped.items():
        name = topic.encode()
        pieces += [_INT16.pack(len(name)), name, _INT32.pack(len(indexes)), *map(_INT32.pack, indexes)]
    return b"".join([*pieces, _INT32.pack(generation)])


def decode_user_data(data: bytes) -> tuple[list[TopicPartition], int]:
    """Return the owned partitions and the generation from data in v1 or v0. The generation of v0 is -1. Data that
    cannot be decoded counts as an empty list of partitions.
    """
    owned: list[TopicPartition] = []
    at = 4
    try:
        (topics,) = _INT32.unpack_from(data, 0)
        for _ in range(topics):
            (length,) = _INT16.unpack_from(data, at)
            name = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (count,) = _INT32.unpack_from(data, at)
            at += 4
            for _ in range(count):
                owned.append(TopicPartition(name, _INT32.unpack_from(data, at)[0]))
                at += 4
        generation = _INT32.unpack_from(data, at)[0] if len(data) - at >= 4 else -1
    except (error, UnicodeDecodeError):
        return [], -1
    return owned, generation
