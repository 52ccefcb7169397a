"""Who may commit, delete or see offsets, and when they expire: rules only, no state of its own.

A commit is checked against the group: members name their generation; "simple" consumers (no member id, generation -1)
may commit only while the group has no members. A transactional commit is not refused because a rebalance is going on
(KIP-447): its producer is fenced by generation and member id, where the request has them (v3+). An extension-aware
producer may name a generation without a member: in a group that has members it must be the current one, in one that
they have left not an older one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....protocol.errors import ErrorCode, KafkaError
from .classic_group import ClassicGroup
from .offsets import OffsetAndMetadata, TopicPartition
from .state import GroupState


def check_commit(
    group: ClassicGroup,
    member_id: str,
    group_instance_id: str | None,
    generation_id: int,
    *,
    transactional: bool,
    member_optional: bool = False,
) -> None:
    """Raise KafkaError UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID or REBALANCE_IN_PROGRESS.

    `member_optional`: a generation may come without a member.
    """
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return
    if member_optional and generation_id >= 0 and not member_id and group_instance_id is None:
        # In an emptied group nobody has the present generation, and claims went with the last member: without this
        # a producer that slept through it all would still be let in.
        if generation_id < group.generation_id or (group.members and generation_id != group.generation_id):
            raise _wrong_generation(group, generation_id)
    elif generation_id >= 0 or member_id or group_instance_id is not None:
        group.check_member(member_id, group_instance_id)
        if generation_id != group.generation_id:
            raise _wrong_generation(group, generation_id)
    elif not transactional:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Group {group.group_id!r} has members: only they can commit its offsets.",
        )
    if not transactional and group.state is GroupState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def _wrong_generation(group: ClassicGroup, generation_id: int) -> KafkaError:
    return KafkaError(
        ErrorCode.ILLEGAL_GENERATION,
        f"Group {group.group_id!r} is in generation {group.generation_id}, not {generation_id}.",
    )


def check_offset_delete(group: ClassicGroup | None, group_id: str) -> ClassicGroup:
    """The group, if offsets of it may be deleted at all; raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id!r}.")
    if group.state is not GroupState.EMPTY and not group.is_consumer_group:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)  # what its members need, nobody can know
    return group


def check_group_delete(group: ClassicGroup | None, group_id: str) -> ClassicGroup:
    """The group, if it may be deleted; raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id!r}.")
    if group.state is not GroupState.EMPTY:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id!r} has members: stop them first.")
    return group


def expired(
    group: ClassicGroup,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    now_ms: int,
    retention_ms: int,
) -> Iterator[TopicPartition]:
    """The partitions whose offset has outlived its retention (KIP-211); pending transactions are the caller's matter.

    In an empty group that counts from when it became empty; in a stable consumer group, and for simple consumers, from
    the commit, and never for a topic that a member subscribes to. While a rebalance is going on nothing expires.
    """
    if group.protocol_type is not None and group.state is GroupState.EMPTY:
        since = group.state_timestamp_ms
    elif group.protocol_type is None or (
        group.is_consumer_group and group.subscribed_topics is not None and group.state is GroupState.STABLE
    ):
        since = None
    else:
        return
    for (topic, index), offset in offsets.items():
        if group.is_subscribed_to(topic):
            continue
        if offset.expire_timestamp_ms >= 0:
            is_over = now_ms >= offset.expire_timestamp_ms
        else:
            base_ms = offset.commit_timestamp_ms if since is None else since
            is_over = now_ms - base_ms >= retention_ms
        if is_over:
            yield topic, index
