"""Encodes and decodes the records of `__consumer_offsets`: groups and offsets, in Kafka's layout.

Defines the mapping between objects and records; never appends or replays records. Kafka's tools can read these records,
and this file can read Kafka's records. Records of other kinds (KIP-848 groups, share groups) are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....protocol.codec import (
    UnknownRecord,
    decode_record_key,
    decode_record_value,
    encode_record_key,
    encode_record_value,
)
from ....protocol.messages.group_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ....protocol.schema import NO_UUID
from .classic_group import ClassicGroup
from .member import ClassicGroupMember, ClientIdentity, OfferedProtocol, OfferedProtocols
from .offsets import Claim, OffsetAndMetadata, TopicPartition
from .state import GroupState

GROUP_VALUE_VERSION = 3
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
OFFSET_VALUE_VERSION_WITH_TAGS = 4


def group_key(group_id: str) -> bytes:
    """Encode the key of a group's metadata record."""
    return encode_record_key(GroupMetadataKey(group_id))


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """Encode the key of a committed offset's record."""
    return encode_record_key(OffsetCommitKey(group_id, *partition))


def decode_key(key: bytes) -> GroupMetadataKey | OffsetCommitKey | UnknownRecord:
    """Decode a record's key; return UnknownRecord for a record of another kind.

    Raise DecodeError if the key is malformed.
    """
    decoded = decode_record_key(key, [GroupMetadataKey, OffsetCommitKey, LegacyOffsetCommitKey])
    if isinstance(decoded, LegacyOffsetCommitKey):
        return OffsetCommitKey(decoded.group, decoded.topic, decoded.partition)
    assert isinstance(decoded, GroupMetadataKey | OffsetCommitKey | UnknownRecord)
    return decoded


def encode_group(group: ClassicGroup, assignments: Mapping[str, bytes]) -> bytes:
    """Encode a group's metadata.

    `assignments` maps member ids to assignments. A member without an entry gets an empty assignment.
    """
    protocol = group.protocol_name or ""
    members = [
        MemberMetadata(
            member.member_id,
            member.group_instance_id,
            member.client.client_id,
            member.client.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.metadata(protocol),
            assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=members,
    )
    return encode_record_value(value, GROUP_VALUE_VERSION)


def decode_group(group_id: str, value: bytes) -> ClassicGroup:
    """Decode a group's metadata. The group's state is EMPTY if it has no members, else STABLE.

    Raise DecodeError if the value is malformed or has an unknown, newer version.
    """
    read = decode_record_value(GroupMetadataValue, value)
    group = ClassicGroup(group_id, None if read.current_state_timestamp < 0 else read.current_state_timestamp)
    for member in read.members:
        timeout_ms = member.session_timeout if member.rebalance_timeout < 0 else member.rebalance_timeout
        group.add(
            ClassicGroupMember(
                member.member_id,
                member.group_instance_id,
                ClientIdentity(member.client_id, member.client_host),
                rebalance_timeout_ms=timeout_ms,
                session_timeout_ms=member.session_timeout,
                # A group written by an old release may lack fields that a new member must have. It is accepted without
                # them.
                protocol_type=read.protocol_type or "unknown",
                protocols=OfferedProtocols([OfferedProtocol(read.protocol or "", bytes(member.subscription))]),
                assignment=bytes(member.assignment),
            )
        )
    group.generation_id = read.generation
    group.protocol_type = read.protocol_type or None
    if group.members:
        group.state = group.previous_state = GroupState.STABLE
        group.protocol_name = read.protocol or ""
        if read.leader in group.members:
            group.leader_id = read.leader
    elif group.protocol_type is not None:
        group.emptied_ms = read.current_state_timestamp
    group.subscribed_topics = group.compute_subscribed_topics()
    return group


def encode_offset(offset: OffsetAndMetadata) -> bytes:
    """Encode a committed offset's value.

    The version is 1 if the offset has its own expiry time and no claim, else 4 if it has a topic id or a claim, else 3.
    No version can store both a claim and an expiry time. If an offset has both, the claim is stored. The expiry time,
    which only an old client can have requested, is lost.
    """
    value = OffsetCommitValue(
        offset=offset.committed_offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
    )
    if offset.expire_timestamp_ms >= 0 and offset.claim is None:
        value.leader_epoch = -1
        value.expire_timestamp = offset.expire_timestamp_ms
        return encode_record_value(value, OFFSET_VALUE_VERSION_WITH_EXPIRY)
    if offset.topic_id == NO_UUID and offset.claim is None:
        return encode_record_value(value, OFFSET_VALUE_VERSION)
    value.topic_id = offset.topic_id
    if offset.claim is not None:
        value.producer_id = offset.claim.producer_id
        value.transactional_id = offset.claim.transactional_id
        value.generation = offset.claim.generation_id
    return encode_record_value(value, OFFSET_VALUE_VERSION_WITH_TAGS)


def decode_offset(value: bytes) -> OffsetAndMetadata:
    """Decode a committed offset's value. Raise DecodeError if it is malformed or has an unknown, newer version."""
    read = decode_record_value(OffsetCommitValue, value)
    claim = None
    if read.transactional_id is not None:
        claim = Claim(read.producer_id, read.transactional_id, read.generation, read.commit_timestamp)
    return OffsetAndMetadata(
        committed_offset=read.offset,
        leader_epoch=read.leader_epoch,
        metadata=read.metadata,
        commit_timestamp_ms=read.commit_timestamp,
        expire_timestamp_ms=read.expire_timestamp,
        topic_id=read.topic_id,
        claim=claim,
    )
