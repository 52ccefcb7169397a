"""The admin client's requests about groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...protocol.errors import PENDING_TRANSACTION, ErrorCode, KafkaError
from ...protocol.messages.delete_groups import DeleteGroupsRequest
from ...protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest
from ...protocol.messages.list_groups import ListGroupsRequest
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ...protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from ..connection import Connection
from ..errors import error_for
from ..group_protocol import PROTOCOL_TYPE, decode_assignment, group_by_topic
from ..offset_fetch import LAST_FETCH_OF_ONE_GROUP, read_offset_fetch
from ..values import OffsetAndMetadata, TopicPartition
from .calls import AdminCalls, failure, one_each, only
from .values import GroupDescription, GroupListing, GroupMember


async def list_groups(calls: AdminCalls, states: Iterable[str]) -> list[GroupListing]:
    """Return the groups of all brokers. Sends ListGroups to each broker, because it lists only its own groups."""
    wanted = list(states)

    async def one(node_id: int) -> list[GroupListing]:
        connection = await calls.cluster.connection(node_id)
        version = connection.version_of(ListGroupsRequest)
        answer = await connection.send(ListGroupsRequest(states_filter=wanted if version >= 4 else []), version)
        if answer.error_code:
            raise error_for(answer.error_code, "groups could not be listed")
        return [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups]

    listed = await calls.of_every_broker(one, "list groups")
    return sorted({group for groups in listed for group in groups})


async def describe_group(calls: AdminCalls, group_id: str) -> GroupDescription:
    """Describe a group; a group that does not exist has the state Dead."""
    answer, _, node_id, _ = await calls.of_group(
        group_id,
        lambda connection: (DescribeGroupsRequest(groups=[group_id]), connection.version_of(DescribeGroupsRequest)),
        lambda answer, _: [one.error_code for one in answer.groups],
        f"describe group {group_id!r}",
    )
    group = only(group_id, ((one.group_id, one) for one in answer.groups), _group)
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(group_id, "Dead", "", "", node_id, ())
    problem = failure(group.error_code, group.error_message, _group(group_id))
    if problem is not None:
        raise problem
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        node_id,
        tuple(_member(group, member) for member in group.members),
    )


def _group(group_id: str) -> str:
    return f"group {group_id!r}"


def _member(group: DescribedGroup, member: DescribedGroupMember) -> GroupMember:
    partitions: tuple[TopicPartition, ...] = ()
    if group.protocol_type == PROTOCOL_TYPE:
        partitions = tuple(sorted(decode_assignment(bytes(member.member_assignment)).partitions))
    return GroupMember(member.member_id, member.group_instance_id, member.client_id, member.client_host, partitions)


async def delete_group(calls: AdminCalls, group_id: str) -> KafkaError | None:
    """Delete a group. Return the failure, or None.

    If a response was lost and the repeated request does not find the group, the group counts as deleted.
    """
    try:
        answer, _, _, lost = await calls.of_group(
            group_id,
            lambda connection: (
                DeleteGroupsRequest(groups_names=[group_id]),
                connection.version_of(DeleteGroupsRequest),
            ),
            lambda answer, _: [one.error_code for one in answer.results],
            f"delete group {group_id!r}",
        )
    except KafkaError as error:  # the caller also has the outcomes of other groups
        return error
    rows = ((one.group_id, failure(one.error_code, None, _group(group_id))) for one in answer.results)
    outcome = one_each([group_id], rows, _group)[group_id]
    return None if lost and outcome is not None and outcome.code is ErrorCode.GROUP_ID_NOT_FOUND else outcome


async def group_offsets(
    calls: AdminCalls, group_id: str, *, require_stable: bool
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return all committed offsets of a group, by partition."""

    def build(connection: Connection) -> tuple[OffsetFetchRequest, int]:
        version = connection.version_of(OffsetFetchRequest)
        request = OffsetFetchRequest(require_stable=require_stable and version >= LAST_FETCH_OF_ONE_GROUP)
        if version <= LAST_FETCH_OF_ONE_GROUP:
            request.group_id, request.topics = group_id, None
        else:
            request.groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
        return request, version

    answer, version, *_ = await calls.of_group(group_id, build, _fetch_codes, f"read the offsets of group {group_id!r}")
    found, problem = read_offset_fetch(answer, version, group_id)
    if problem is not None:
        raise problem
    return {one: position for one, position in found.items() if position is not None}


def _fetch_codes(answer: OffsetFetchResponse, version: int) -> list[int]:
    if version <= LAST_FETCH_OF_ONE_GROUP:
        codes = [answer.error_code, *(data.error_code for topic in answer.topics for data in topic.partitions)]
    else:
        codes = [
            code
            for group in answer.groups
            for code in (group.error_code, *(data.error_code for topic in group.topics for data in topic.partitions))
        ]
    # The extension reuses another API's error code for an open transaction. That API's error is not retriable, but an
    # open transaction is worth a retry.
    return [ErrorCode.UNSTABLE_OFFSET_COMMIT if code == PENDING_TRANSACTION else code for code in codes]


async def alter_group_offsets(
    calls: AdminCalls, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, KafkaError | None]:
    """Commit offsets of a group without members. Return the failure of each partition, or None."""
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[TopicPartition(topic, index)].offset,
                        committed_leader_epoch=offsets[TopicPartition(topic, index)].leader_epoch,
                        committed_metadata=offsets[TopicPartition(topic, index)].metadata,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in group_by_topic(offsets).items()
        ],
    )
    answer, *_ = await calls.of_group(
        group_id,
        lambda connection: (request, connection.version_of(OffsetCommitRequest)),
        _commit_codes,
        f"write offsets of group {group_id!r}",
    )
    return _outcomes(group_id, offsets, answer)


def _outcomes(
    group_id: str, partitions: Iterable[TopicPartition], answer: OffsetCommitResponse | OffsetDeleteResponse
) -> dict[TopicPartition, KafkaError | None]:
    """Return the failure of each partition; None for each partition whose change succeeded."""

    def subject(one: TopicPartition) -> str:
        return f"group {group_id!r}, {one}"

    rows = (
        (TopicPartition(topic.name, data.partition_index), data.error_code)
        for topic in answer.topics
        for data in topic.partitions
    )
    return one_each(partitions, ((one, failure(code, None, subject(one))) for one, code in rows), subject)


def _commit_codes(answer: OffsetCommitResponse, version: int) -> list[int]:
    codes = [data.error_code for topic in answer.topics for data in topic.partitions]
    return [
        code for code in codes if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]  # a missing partition is a final result


async def delete_group_offsets(
    calls: AdminCalls, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Delete committed offsets. Return the failure of each partition, or None. Raises a failure of the whole group.

    If a response was lost and the repeated request does not find the group, the offsets count as deleted.
    """
    wanted = list(partitions)
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for topic, indexes in group_by_topic(wanted).items()
        ],
    )
    answer, _, _, lost = await calls.of_group(
        group_id,
        lambda connection: (request, connection.version_of(OffsetDeleteRequest)),
        lambda answer, _: [answer.error_code],
        f"delete offsets of group {group_id!r}",
    )
    if lost and answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return dict.fromkeys(wanted)
    problem = failure(answer.error_code, None, _group(group_id))
    if problem is not None:
        raise problem
    return _outcomes(group_id, wanted, answer)
