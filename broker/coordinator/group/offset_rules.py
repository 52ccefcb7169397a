"""Decides which offsets may be committed, deleted and expired; keeps no state.

A commit is checked against the group. Members specify their generation. "Simple" consumers (no member id, generation
-1) may commit only while the group has no members. A transactional commit is not refused during a rebalance (KIP-447):
its producer is fenced by generation and member id, if the request contains them (v3+). A producer that knows oncelog's
wire extension may specify a generation without a member id. In a group with members this generation must be the current
one. In a group without members it must not be older than the group's generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    """Raise KafkaError unless the committer may commit now.

    `member_optional` is true if the commit may specify a generation without a member id. The error code is
    UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID or REBALANCE_IN_PROGRESS.
    """
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return
    if member_optional and generation_id >= 0 and not member_id and group_instance_id is None:
        # In a group whose members have all left, no member has the current generation, and the claims were dropped with
        # the last member. Without this check a stale producer could still commit.
        if generation_id < group.generation_id or (group.members and generation_id != group.generation_id):
            raise _wrong_generation(group, generation_id)
    elif generation_id >= 0 or member_id or group_instance_id is not None:
        group.check_member(member_id, group_instance_id)
        if generation_id != group.generation_id:
            raise _wrong_generation(group, generation_id)
    elif not transactional:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Group {group.group_id!r} has members, and only they can commit its offsets. Use another group id.",
        )
    if not transactional and group.state is GroupState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def _wrong_generation(group: ClassicGroup, generation_id: int) -> KafkaError:
    return KafkaError(
        ErrorCode.ILLEGAL_GENERATION,
        f"Group {group.group_id!r} is in generation {group.generation_id}, not {generation_id}. Join the group again,"
        " or commit with its current generation.",
    )


def check_offset_delete(group: ClassicGroup | None, group_id: str) -> ClassicGroup:
    """Return the group if its offsets may be deleted, else raise KafkaError GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id!r}. Check the group id.")
    if group.state is not GroupState.EMPTY and not group.is_consumer_group:
        # the broker cannot know which topics the members of such a group use
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    return group


def check_group_delete(group: ClassicGroup | None, group_id: str) -> ClassicGroup:
    """Return the group if it may be deleted, else raise KafkaError GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id!r}. Check the group id.")
    if group.state is not GroupState.EMPTY:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id!r} has members. Stop them first.")
    return group


def expired(
    group: ClassicGroup,
    offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]],
    now_ms: int,
    retention_ms: int,
) -> Iterator[TopicPartition]:
    """Yield the partitions whose offset is past its retention (KIP-211). The caller must exclude pending offsets.

    The retention starts when the group becomes empty. In a stable consumer group and for simple consumers it starts
    with the commit of the offset. An offset with its own expiry time expires at that time. Offsets of a topic to which
    a member subscribes never expire. No offset expires during a rebalance, or while the members' subscriptions are
    unknown.
    """
    if group.protocol_type is not None and group.state is GroupState.EMPTY:
        since = group.state_timestamp_ms
    elif group.protocol_type is None or (
        group.is_consumer_group and group.subscribed_topics is not None and group.state is GroupState.STABLE
    ):
        since = None
    else:
        return
    for (topic, index), offset in offsets:
        if group.is_subscribed_to(topic):
            continue
        if offset.expire_timestamp_ms >= 0:
            is_over = now_ms >= offset.expire_timestamp_ms
        else:
            base_ms = offset.commit_timestamp_ms if since is None else since
            is_over = now_ms - base_ms >= retention_ms
        if is_over:
            yield topic, index
