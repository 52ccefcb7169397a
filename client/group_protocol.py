"""Encodes and decodes the metadata that members of a group exchange through the coordinator.

The formats of subscriptions and assignments are those of Kafka's ConsumerProtocol, so that the members of a group may
use different clients (KIP-429, KIP-792, KIP-881).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..protocol.codec import decode_versioned, encode_versioned
from ..protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopicPartition,
)
from ..protocol.messages.consumer_protocol import TopicPartition as AssignedTopic
from .values import TopicPartition

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 1


@dataclass(slots=True)
class Subscription:
    """A member's subscription. `generation_id` is the generation in which the member got `owned`, or -1 if unknown."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None
    group_instance_id: str | None = field(default=None, compare=False)


@dataclass(slots=True)
class Assignment:
    """A member's assignment."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition indexes of each topic. Topics and indexes are in ascending order."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return grouped


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode a subscription as the metadata of JoinGroup."""
    return encode_versioned(
        ConsumerProtocolSubscription(
            topics=sorted(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=[
                OwnedTopicPartition(topic=topic, partitions=indexes)
                for topic, indexes in group_by_topic(subscription.owned).items()
            ],
            generation_id=subscription.generation_id,
            rack_id=subscription.rack_id,
        ),
        SUBSCRIPTION_VERSION,
    )


def decode_subscription(data: bytes) -> Subscription:
    """Return the subscription decoded from a member's metadata of any version. Raises DecodeError."""
    message = decode_versioned(ConsumerProtocolSubscription, data)
    return Subscription(
        topics=tuple(message.topics),
        user_data=None if message.user_data is None else bytes(message.user_data),
        owned=tuple(TopicPartition(one.topic, index) for one in message.owned_partitions for index in one.partitions),
        generation_id=message.generation_id,
        rack_id=message.rack_id,
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """Encode an assignment for SyncGroup."""
    return encode_versioned(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                AssignedTopic(topic=topic, partitions=indexes)
                for topic, indexes in group_by_topic(assignment.partitions).items()
            ],
            user_data=assignment.user_data,
        ),
        ASSIGNMENT_VERSION,
    )


def decode_assignment(data: bytes) -> Assignment:
    """Return the assignment decoded from data of any version. Empty data means no partitions. Raises DecodeError."""
    if not data:
        return Assignment()
    message = decode_versioned(ConsumerProtocolAssignment, data)
    return Assignment(
        tuple(TopicPartition(one.topic, index) for one in message.assigned_partitions for index in one.partitions),
        None if message.user_data is None else bytes(message.user_data),
    )
