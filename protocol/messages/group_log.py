"""Define the keys and values of the records in `__consumer_offsets`."""

from __future__ import annotations

from ..schema import Message, Struct, array, binary, int32, int64, record_key, record_value, string, struct, uuid


@record_key(id=0, versions="0", flexible="none")
class LegacyOffsetCommitKey(Message):
    """The key of a committed offset as brokers before 0.9 wrote it. Its fields are those of OffsetCommitKey."""

    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


@record_key(id=1, versions="0", flexible="none")
class OffsetCommitKey(Message):
    """The key of a committed offset in `__consumer_offsets`."""

    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


@record_value(id=1, versions="0-4", flexible="4+")
class OffsetCommitValue(Message):
    """A committed offset: the next offset to read, with leader epoch, metadata and commit time (ms since the epoch).
    Only v1 has an expiry time. v3 adds the leader epoch (KIP-320), v4 is flexible. oncelog's extension adds, in tags
    from 9000 on, a copy of the producer's claim on the partition. The copy counts if the claim's own record is lost.
    """

    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0, tagged="4+")
    producer_id: int = int64("4+", default=-1, tag=9000, tagged="4+", ignorable=True)
    generation: int = int32("4+", default=-1, tag=9001, tagged="4+", ignorable=True)
    transactional_id: str | None = string("4+", default=None, nullable="4+", tag=9002, tagged="4+", ignorable=True)


@record_key(id=2, versions="0", flexible="none")
class GroupMetadataKey(Message):
    """The key of a classic group's state in `__consumer_offsets`."""

    group: str = string("0")


@struct
class MemberMetadata(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32("0+")
    subscription: bytes = binary("0+")
    assignment: bytes = binary("0+")


@record_value(id=2, versions="0-4", flexible="4+")
class GroupMetadataValue(Message):
    """The state of a classic group after a rebalance: generation, protocol, leader and members. Subscriptions and
    assignments of members are opaque bytes. v2 adds the time of the last change of state (ms since the epoch), v3 group
    instance ids (KIP-345). Timeouts are in ms.
    """

    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")
