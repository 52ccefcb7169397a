"""Define ConsumerProtocolAssignment and ConsumerProtocolSubscription."""

from __future__ import annotations

from ..schema import Message, Struct, array, binary, data, int32, string, struct


@struct
class TopicPartition(Struct):
    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@data(versions="0-3", flexible="none")
class ConsumerProtocolAssignment(Message):
    """The assignment that the leader of a classic group gives to one member: partitions, and opaque bytes of the
    assignor. SyncGroup carries it, and the broker does not interpret it. Its versions match those of the subscription.
    """

    assigned_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    user_data: bytes | None = binary("0+", default=None, nullable="0+")


@struct
class OwnedTopicPartition(Struct):
    topic: str = string("1+")
    partitions: list[int] = array("int32", "1+")


@data(versions="0-3", flexible="none")
class ConsumerProtocolSubscription(Message):
    """The subscription that a member of a classic group sends to the leader: topics, and opaque bytes of the assignor.
    JoinGroup carries it, and the broker reads only the topics. v1 adds the partitions that the member owns (KIP-429,
    cooperative rebalancing), v2 the generation in which it owned them (KIP-792), v3 its rack (KIP-881).
    """

    topics: list[str] = array("string", "0+")
    user_data: bytes | None = binary("0+", default=None, nullable="0+")
    owned_partitions: list[OwnedTopicPartition] = array(OwnedTopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", default=None, nullable="3+", ignorable=True)
