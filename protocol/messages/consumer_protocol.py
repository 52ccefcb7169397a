"""ConsumerProtocolAssignment and ConsumerProtocolSubscription."""

from __future__ import annotations

from ..schema import Message, Struct, array, binary, data, int32, string, struct


@struct
class TopicPartition(Struct):
    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@data(versions="0-3", flexible="none")
class ConsumerProtocolAssignment(Message):
    """What the leader of a classic group assigns to one member, opaque to the broker: partitions, and the assignor's
    own bytes. Travels in SyncGroup. The versions go with those of the subscription.
    """

    assigned_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    user_data: bytes | None = binary("0+", default=None, nullable="0+")


@struct
class OwnedTopicPartition(Struct):
    topic: str = string("1+")
    partitions: list[int] = array("int32", "1+")


@data(versions="0-3", flexible="none")
class ConsumerProtocolSubscription(Message):
    """What a member of a classic group tells the leader, opaque to the broker: topics and the assignor's own bytes.
    Travels in JoinGroup. v1 adds the partitions it owns (KIP-429, cooperative rebalancing), v2 the generation in which
    it owned them (KIP-792), v3 its rack (KIP-881).
    """

    topics: list[str] = array("string", "0+")
    user_data: bytes | None = binary("0+", default=None, nullable="0+")
    owned_partitions: list[OwnedTopicPartition] = array(OwnedTopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", default=None, nullable="3+", ignorable=True)
