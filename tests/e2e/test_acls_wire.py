"""What clients may do with ACLs, as they see it on the wire: each API with all it requires, and with one thing less."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from oncelog import Broker
from oncelog.broker.acls.acl import Acl
from oncelog.broker.api.requirements import REQUIREMENTS
from oncelog.protocol.access_rules import PatternType, Permission
from oncelog.protocol.apis import api_name
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, OpData, RequestEntryData
from oncelog.protocol.messages.alter_client_quotas import EntityData as AlteredEntity
from oncelog.protocol.messages.alter_configs import AlterConfigsRequest
from oncelog.protocol.messages.alter_configs import AlterConfigsResource as AlteredResource
from oncelog.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from oncelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from oncelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.describe_acls import DescribeAclsRequest
from oncelog.protocol.messages.describe_cluster import DescribeClusterRequest
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
)
from oncelog.protocol.messages.describe_topic_partitions import (
    TopicRequest as NamedTopic,
)
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from oncelog.protocol.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from oncelog.protocol.messages.list_groups import ListGroupsRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.messages.sync_group import SyncGroupRequest
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from oncelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from oncelog.protocol.records import Record, encode_batch
from oncelog.protocol.schema import Request
from support.access import (
    EVERYTHING,
    Op,
    Type,
    World,
    codes,
    limited_broker,
    refusals,
    rule,
    without_requirements,
)

TOPIC, GROUP, CLUSTER, ID = 29, 30, 31, 53
UNKNOWN_TOPIC, UNKNOWN_ID = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with limited_broker() as made:
        yield made


def batch() -> bytes:
    return bytes(encode_batch([Record(0, 0, None, b"v", [])]))


def need(operation: Op, type: Type, name: str = "kafka-cluster") -> Acl:
    return rule(operation, type, name)


@dataclass
class Case:
    """A request that fails with `code` without any of its `needs`, and whose needs suffice."""

    request: Request[Any]
    version: int
    needs: list[Acl]
    code: int

    def __str__(self) -> str:
        return f"{api_name(self.request.spec.key)}-v{self.version}"


def case(request: Request[Any], versions: list[int], needs: list[Acl], code: int) -> list[Case]:
    return [Case(request, version, needs, code) for version in versions]


T = [need(Op.DESCRIBE, Type.TOPIC, "t")]
PRODUCER = {"producer_id": 1, "producer_epoch": 0}

ONE_NEED = [
    *case(ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])]), [1, 6], T, TOPIC),
    *case(
        OffsetForLeaderEpochRequest(-2, [OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])]),
        [2, 4],
        T,
        TOPIC,
    ),
    *case(MetadataRequest([MetadataRequestTopic(name="t")]), [1, 3], T, TOPIC),
    *case(MetadataRequest([MetadataRequestTopic(name="t")], False), [4, 9, 13], T, TOPIC),
    *case(DescribeTopicPartitionsRequest([NamedTopic("t")]), [0], T, TOPIC),
    *case(
        FetchRequest(max_wait_ms=0, topics=[FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=9)])]),
        [4, 12],
        [need(Op.READ, Type.TOPIC, "t")],
        TOPIC,
    ),
    *case(
        ProduceRequest(
            acks=-1, timeout_ms=9, topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, batch())])]
        ),
        [3, 9, 12],
        [need(Op.WRITE, Type.TOPIC, "t")],
        TOPIC,
    ),
    *case(
        DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 0)])], 9),
        [0, 2],
        [need(Op.DELETE, Type.TOPIC, "t")],
        TOPIC,
    ),
    *case(
        CreatePartitionsRequest([CreatePartitionsTopic("t", 9)], 9, True),
        [0, 3],
        [need(Op.ALTER, Type.TOPIC, "t")],
        TOPIC,
    ),
    *case(
        DescribeConfigsRequest([DescribeConfigsResource(2, "t", None)]),
        [1, 4],
        [need(Op.DESCRIBE_CONFIGS, Type.TOPIC, "t")],
        TOPIC,
    ),
    *case(
        DescribeConfigsRequest([DescribeConfigsResource(4, "1", None)]),
        [1, 4],
        [need(Op.DESCRIBE_CONFIGS, Type.CLUSTER)],
        CLUSTER,
    ),
    *case(
        DescribeConfigsRequest([DescribeConfigsResource(32, "g", None)]),
        [1, 4],
        [need(Op.DESCRIBE_CONFIGS, Type.GROUP, "g")],
        GROUP,
    ),
    *case(
        AlterConfigsRequest([AlteredResource(2, "t", [])], True),
        [0, 2],
        [need(Op.ALTER_CONFIGS, Type.TOPIC, "t")],
        TOPIC,
    ),
    *case(
        IncrementalAlterConfigsRequest([AlterConfigsResource(2, "t", [])], True),
        [0, 1],
        [need(Op.ALTER_CONFIGS, Type.TOPIC, "t")],
        TOPIC,
    ),
    *case(
        IncrementalAlterConfigsRequest([AlterConfigsResource(4, "1", [])], True),
        [0, 1],
        [need(Op.ALTER_CONFIGS, Type.CLUSTER)],
        CLUSTER,
    ),
    *case(
        IncrementalAlterConfigsRequest([AlterConfigsResource(32, "g", [])], True),
        [0, 1],
        [need(Op.ALTER_CONFIGS, Type.GROUP, "g")],
        GROUP,
    ),
    *case(ListConfigResourcesRequest(), [0, 1], [need(Op.DESCRIBE_CONFIGS, Type.CLUSTER)], CLUSTER),
    *case(DescribeLogDirsRequest(None), [3, 4], [need(Op.DESCRIBE, Type.CLUSTER)], CLUSTER),
    *case(
        AlterReplicaLogDirsRequest([AlterReplicaLogDir("/", [AlterReplicaLogDirTopic("t", [0])])]),
        [1, 2],
        [need(Op.ALTER, Type.CLUSTER)],
        CLUSTER,
    ),
    *case(ElectLeadersRequest(0, [TopicPartitions("t", [0])]), [0, 1, 2], [need(Op.ALTER, Type.CLUSTER)], CLUSTER),
    *case(AlterPartitionReassignmentsRequest(), [0, 1], [need(Op.ALTER, Type.CLUSTER)], CLUSTER),
    *case(ListPartitionReassignmentsRequest(), [0], [need(Op.DESCRIBE, Type.CLUSTER)], CLUSTER),
    *case(DescribeProducersRequest([TopicRequest("t", [0])]), [0], [need(Op.READ, Type.TOPIC, "t")], TOPIC),
    *case(DescribeTransactionsRequest(["x"]), [0], [need(Op.DESCRIBE, Type.TRANSACTIONAL_ID, "x")], ID),
    # groups
    *case(FindCoordinatorRequest(key="g", key_type=0), [0, 3], [need(Op.DESCRIBE, Type.GROUP, "g")], GROUP),
    *case(
        FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), [4, 6], [need(Op.DESCRIBE, Type.GROUP, "g")], GROUP
    ),
    *case(
        FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        [4, 6],
        [need(Op.DESCRIBE, Type.TRANSACTIONAL_ID, "x")],
        ID,
    ),
    *case(FindCoordinatorRequest(key="x", key_type=1), [1, 3], [need(Op.DESCRIBE, Type.TRANSACTIONAL_ID, "x")], ID),
    *case(
        FindCoordinatorRequest(key_type=64, coordinator_keys=["g"]), [6], [need(Op.DESCRIBE, Type.GROUP, "g")], GROUP
    ),
    *case(
        JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]),
        [4, 9],
        [need(Op.READ, Type.GROUP, "g")],
        GROUP,
    ),
    *case(SyncGroupRequest("g", 1, "m", None, "consumer", "range"), [0, 5], [need(Op.READ, Type.GROUP, "g")], GROUP),
    *case(HeartbeatRequest("g", 1, "m"), [0, 4], [need(Op.READ, Type.GROUP, "g")], GROUP),
    *case(LeaveGroupRequest("g", "m"), [0, 2], [need(Op.READ, Type.GROUP, "g")], GROUP),
    *case(LeaveGroupRequest("g", members=[MemberIdentity("m")]), [3, 5], [need(Op.READ, Type.GROUP, "g")], GROUP),
    *case(DescribeGroupsRequest(["g"]), [0, 5, 6], [need(Op.DESCRIBE, Type.GROUP, "g")], GROUP),
    *case(DeleteGroupsRequest(["g"]), [0, 2], [need(Op.DELETE, Type.GROUP, "g")], GROUP),
    # transactions
    *case(InitProducerIdRequest("x", 9000), [0, 5], [need(Op.WRITE, Type.TRANSACTIONAL_ID, "x")], ID),
    *case(InitProducerIdRequest(None, 9000), [0, 5], [need(Op.IDEMPOTENT_WRITE, Type.CLUSTER)], CLUSTER),
    *case(InitProducerIdRequest(None, 9000), [0, 5], [need(Op.WRITE, Type.TOPIC, "any")], CLUSTER),
    *case(EndTxnRequest("x", 1, 0, True), [0, 5], [need(Op.WRITE, Type.TRANSACTIONAL_ID, "x")], ID),
    *case(
        AddPartitionsToTxnRequest(
            transactions=[AddPartitionsToTxnTransaction("x", 1, 0, False, [AddPartitionsToTxnTopic("t", [0])])]
        ),
        [4, 5],
        [need(Op.CLUSTER_ACTION, Type.CLUSTER)],
        CLUSTER,
    ),
    # ACLs
    *case(DescribeAclsRequest(1, None, 1, None, None, 1, 1), [1, 3], [need(Op.DESCRIBE, Type.CLUSTER)], CLUSTER),
    *case(
        DeleteAclsRequest([DeleteAclsFilter(1, "-", 3, None, None, 1, 1)]),
        [1, 3],
        [need(Op.ALTER, Type.CLUSTER)],
        CLUSTER,
    ),
    *case(
        CreateAclsRequest([AclCreation(2, "-", 3, "User:-", "*", 3, 3)]),
        [1, 3],
        [need(Op.ALTER, Type.CLUSTER)],
        CLUSTER,
    ),
]


@pytest.mark.parametrize("tested", ONE_NEED, ids=str)
async def test_an_api_needs_one_permission(world: World, tested: Case) -> None:
    await world.wire.create_topic("t")
    await world.only()
    refused = await world.wire.call(tested.request, tested.version)
    assert codes(refused) == {tested.code}, refused
    await world.only(*tested.needs)
    answered = await world.wire.call(tested.request, tested.version)
    assert not refusals(answered), answered


SEVERAL_NEEDS = [
    *case(
        OffsetCommitRequest(
            "g", topics=[OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])]
        ),
        [2, 9],
        [need(Op.READ, Type.GROUP, "g"), need(Op.READ, Type.TOPIC, "t")],
        0,
    ),
    *case(
        OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])]),
        [1, 2, 7],
        [need(Op.DESCRIBE, Type.GROUP, "g"), need(Op.DESCRIBE, Type.TOPIC, "t")],
        0,
    ),
    *case(
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])]
        ),
        [8, 9],
        [need(Op.DESCRIBE, Type.GROUP, "g"), need(Op.DESCRIBE, Type.TOPIC, "t")],
        0,
    ),
    *case(
        OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]),
        [0],
        [need(Op.DELETE, Type.GROUP, "g"), need(Op.READ, Type.TOPIC, "t")],
        0,
    ),
    *case(
        AddOffsetsToTxnRequest("x", 1, 0, "g"),
        [0, 4],
        [need(Op.WRITE, Type.TRANSACTIONAL_ID, "x"), need(Op.READ, Type.GROUP, "g")],
        0,
    ),
    *case(
        TxnOffsetCommitRequest(
            "x", "g", 1, 0, topics=[TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 1)])]
        ),
        [0, 5],
        [
            need(Op.WRITE, Type.TRANSACTIONAL_ID, "x"),
            need(Op.READ, Type.GROUP, "g"),
            need(Op.READ, Type.TOPIC, "t"),
        ],
        0,
    ),
    *case(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0])],
        ),
        [0, 3],
        [need(Op.WRITE, Type.TRANSACTIONAL_ID, "x"), need(Op.WRITE, Type.TOPIC, "t")],
        0,
    ),
    *case(
        ProduceRequest(
            "x",
            acks=-1,
            timeout_ms=9,
            topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, batch())])],
        ),
        [3, 12],
        [need(Op.WRITE, Type.TRANSACTIONAL_ID, "x"), need(Op.WRITE, Type.TOPIC, "t")],
        0,
    ),
]


@pytest.mark.parametrize("tested", SEVERAL_NEEDS, ids=str)
async def test_an_api_needs_each_of_several_permissions(world: World, tested: Case) -> None:
    await world.wire.create_topic("t")
    offsets = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])]
    assert not codes(await world.wire.call(OffsetCommitRequest("g", topics=offsets), 8))
    expected = {Type.TOPIC: TOPIC, Type.GROUP: GROUP, Type.TRANSACTIONAL_ID: ID}
    for missing in tested.needs:
        await world.only(*(other for other in tested.needs if other is not missing))
        refused = await world.wire.call(tested.request, tested.version)
        assert refusals(refused) == {expected[Type(missing.resource_type)]}, refused
    await world.only(*tested.needs)
    answered = await world.wire.call(tested.request, tested.version)
    assert not refusals(answered), answered


async def test_every_api_has_a_row(world: World) -> None:
    served = {api_name(api.key) for api in world.broker._node.served_apis()}
    assert served <= REQUIREMENTS.keys()


async def test_an_api_without_a_row_is_refused_to_all_but_super_users(monkeypatch: pytest.MonkeyPatch) -> None:
    without_requirements(monkeypatch, "Heartbeat")
    for super_users, code in (("", CLUSTER), ("User:ANONYMOUS", ErrorCode.UNKNOWN_MEMBER_ID)):
        async with limited_broker(super_users=super_users) as world:
            assert (await world.wire.call(HeartbeatRequest("g", 1, "m"), 4)).error_code == code


async def test_super_users_may_do_everything() -> None:
    async with limited_broker(super_users="User:other;User:ANONYMOUS") as world:
        await world.only(rule(Op.ALL, Type.TOPIC, "*", permission=Permission.DENY))
        await world.wire.create_topic("t")
        assert (await world.wire.produce("t", batch())).error_code == 0


async def test_everyone_may_use_what_has_no_acl() -> None:
    async with limited_broker(allow_everyone_if_no_acl_found=True) as world:
        await world.only()
        await world.wire.create_topic("t")
        assert (await world.wire.produce("t", batch())).error_code == 0
        await world.only(rule(Op.READ, Type.TOPIC, "t", principal="User:other"))
        assert (await world.wire.produce("t", batch())).error_code == TOPIC


async def test_the_rest_of_a_request_is_executed(world: World) -> None:
    for name in ("mine", "theirs"):
        await world.wire.create_topic(name)
    await world.only(
        rule(Op.WRITE, Type.TOPIC, "mine"), rule(Op.READ, Type.TOPIC, "mine"), rule(Op.READ, Type.GROUP, "g")
    )
    data = [TopicProduceData(name, partition_data=[PartitionProduceData(0, batch())]) for name in ("theirs", "mine")]
    produced = await world.wire.call(ProduceRequest(acks=-1, timeout_ms=9000, topic_data=data), 9)
    rows = {row.name: row.partition_responses[0] for row in produced.responses}
    assert (rows["theirs"].error_code, rows["theirs"].base_offset) == (TOPIC, -1)
    assert (rows["mine"].error_code, rows["mine"].base_offset) == (0, 0)
    offsets = [
        OffsetCommitRequestTopic(
            name, partitions=[OffsetCommitRequestPartition(0, 1), OffsetCommitRequestPartition(1, 1)]
        )
        for name in ("theirs", "mine", "unknown")
    ]
    committed = await world.wire.call(OffsetCommitRequest("g", topics=offsets), 9)
    found = {row.name: [(item.partition_index, item.error_code) for item in row.partitions] for row in committed.topics}
    assert found["theirs"] == found["unknown"] == [(0, TOPIC), (1, TOPIC)]
    assert found["mine"] == [(0, 0), (1, UNKNOWN_TOPIC)]
    fetched = await world.wire.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 9)
    assert [topic.name for topic in fetched.groups[0].topics] == ["mine"]
    await world.only(*EVERYTHING)
    fetched = await world.wire.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 9)
    assert [topic.name for topic in fetched.groups[0].topics] == ["mine"], "nothing was committed for the others"


async def test_the_rest_of_a_request_may_fail_as_a_whole(world: World) -> None:
    for name in ("mine", "theirs"):
        await world.wire.create_topic(name)
    await world.only(rule(Op.READ, Type.TOPIC, "mine"), rule(Op.READ, Type.GROUP, "g"))
    rows = [OffsetCommitRequestPartition(0, 1)]
    topics = [OffsetCommitRequestTopic(name, partitions=rows) for name in ("theirs", "mine")]
    answer = await world.wire.call(OffsetCommitRequest("g", 7, "a stranger", topics=topics), 8)
    found = {row.name: row.partitions[0].error_code for row in answer.topics}
    assert found == {"theirs": TOPIC, "mine": ErrorCode.ILLEGAL_GENERATION}


async def test_a_request_that_creates_too_much_fails_but_for_what_is_denied() -> None:
    async with limited_broker(request_max_new_partitions=3) as world:
        await world.only(rule(Op.CREATE, Type.TOPIC, "a"))
        topics = [CreatableTopic(name, 9, 1) for name in ("a", "b")]
        answer = await world.wire.call(CreateTopicsRequest(topics, 9000), 7)
        assert {row.name: row.error_code for row in answer.topics} == {"a": ErrorCode.POLICY_VIOLATION, "b": TOPIC}


async def test_an_unknown_group_is_reported_even_if_all_its_topics_are_denied(world: World) -> None:
    await world.only(rule(Op.DELETE, Type.GROUP, "g"))
    request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])])
    answer = await world.wire.call(request, 0)
    assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_offsets_of_hidden_topics_are_not_listed(world: World) -> None:
    for name in ("mine", "theirs"):
        await world.wire.create_topic(name)
    topics = [
        OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(0, 1)]) for name in ("theirs", "mine")
    ]
    assert not codes(await world.wire.call(OffsetCommitRequest("g", topics=topics), 9))
    await world.only(rule(Op.READ, Type.TOPIC, "mine"), rule(Op.READ, Type.GROUP, "g"))
    several = await world.wire.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 8)
    one = await world.wire.call(OffsetFetchRequest("g", None), 5)
    assert [topic.name for topic in several.groups[0].topics] == [topic.name for topic in one.topics] == ["mine"]


async def test_a_denied_produce_without_response_closes_the_connection(world: World) -> None:
    await world.wire.create_topic("t")
    await world.only(rule(Op.DESCRIBE, Type.TOPIC, "t"))
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch())])]
    world.wire.send(ProduceRequest(acks=0, timeout_ms=9, topic_data=data), 9)
    assert await world.wire.closed()


async def test_topics_by_id(world: World) -> None:
    """An id that is unknown gets 100. A hidden topic gets 29 without its name."""
    topic_id = await world.wire.create_topic("t")
    unknown = b"no such topic id"
    await world.only()
    asked = MetadataRequest([MetadataRequestTopic(topic_id), MetadataRequestTopic(unknown)], False)
    found = {row.topic_id: (row.error_code, row.name) for row in (await world.wire.call(asked, 12)).topics}
    assert found == {topic_id: (TOPIC, None), unknown: (UNKNOWN_ID, None)}
    deleted = await world.wire.call(
        DeleteTopicsRequest([DeleteTopicState(None, topic_id), DeleteTopicState(None, unknown)]), 6
    )
    gone = {row.topic_id: (row.error_code, row.name) for row in deleted.responses}
    assert gone == found
    data = [
        TopicProduceData(topic_id=one, partition_data=[PartitionProduceData(0, batch())]) for one in (topic_id, unknown)
    ]
    produced = await world.wire.call(ProduceRequest(acks=-1, timeout_ms=9, topic_data=data), 13)
    assert {row.topic_id: row.partition_responses[0].error_code for row in produced.responses} == {
        topic_id: TOPIC,
        unknown: UNKNOWN_ID,
    }
    asked_partitions = [FetchPartition(0, partition_max_bytes=9)]
    topics = [FetchTopic(topic_id=one, partitions=asked_partitions) for one in (topic_id, unknown)]
    fetched = await world.wire.call(FetchRequest(max_wait_ms=0, topics=topics), 13)
    assert {row.topic_id: row.partitions[0].error_code for row in fetched.responses} == {
        topic_id: TOPIC,
        unknown: UNKNOWN_ID,
    }


async def test_hidden_and_unknown_topics_look_the_same_by_name(world: World) -> None:
    await world.wire.create_topic("t")
    await world.only()
    asked = [MetadataRequestTopic(name=name) for name in ("t", "unknown")]
    answer = await world.wire.call(MetadataRequest(asked, True), 12)
    assert {(row.error_code, row.topic_id, len(row.partitions)) for row in answer.topics} == {(TOPIC, bytes(16), 0)}
    deleted = await world.wire.call(DeleteTopicsRequest([DeleteTopicState(name) for name in ("t", "unknown")]), 6)
    assert {(row.error_code, row.topic_id) for row in deleted.responses} == {(TOPIC, bytes(16))}


async def test_listings_hide_what_may_not_be_described(world: World) -> None:
    for name in ("mine", "theirs"):
        await world.wire.create_topic(name)
        topics = [OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(0, 1)])]
        assert not codes(await world.wire.call(OffsetCommitRequest(name, topics=topics), 9))
        assert not codes(await world.wire.call(InitProducerIdRequest(name, 9000), 4))
    await world.only(
        rule(Op.DESCRIBE, Type.TOPIC, "mi", pattern=PatternType.PREFIXED),
        rule(Op.DESCRIBE, Type.GROUP, "mine"),
        rule(Op.DESCRIBE, Type.TRANSACTIONAL_ID, "mine"),
    )
    wire = world.wire
    assert [row.name for row in (await wire.call(MetadataRequest(None, False), 12)).topics] == ["mine"]
    assert [row.name for row in (await wire.call(MetadataRequest([]), 0)).topics] == ["mine"]
    assert [row.name for row in (await wire.call(DescribeTopicPartitionsRequest([]), 0)).topics] == ["mine"]
    assert [row.group_id for row in (await wire.call(ListGroupsRequest(), 5)).groups] == ["mine"]
    listed = await wire.call(ListTransactionsRequest(), 1)
    assert [row.transactional_id for row in listed.transaction_states] == ["mine"]
    await world.only(rule(Op.DESCRIBE, Type.CLUSTER))
    assert {row.group_id for row in (await wire.call(ListGroupsRequest(), 5)).groups} == {"mine", "theirs"}
    assert (await wire.call(DescribeGroupsRequest(["mine"]), 5)).groups[0].error_code == GROUP


async def test_authorized_operations_are_those_of_the_client(world: World) -> None:
    await world.wire.create_topic("t")
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])]
    assert not codes(await world.wire.call(OffsetCommitRequest("g", topics=topics), 9))
    await world.only(
        rule(Op.WRITE, Type.TOPIC, "t"), rule(Op.ALL, Type.GROUP, "g"), rule(Op.ALTER_CONFIGS, Type.CLUSTER)
    )
    wire = world.wire
    asked = MetadataRequest([MetadataRequestTopic(name="t")], False, True, True)
    answer = await wire.call(asked, 10)
    assert answer.topics[0].topic_authorized_operations == 1 << Op.WRITE | 1 << Op.DESCRIBE
    assert answer.cluster_authorized_operations == 0, "the client may not describe the cluster"
    assert (await wire.call(DescribeClusterRequest(True), 1)).cluster_authorized_operations == 0
    assert (await wire.call(DescribeClusterRequest(False), 1)).cluster_authorized_operations == -(2**31)
    described = (await wire.call(DescribeGroupsRequest(["g"], True), 5)).groups[0]
    bits = sum(1 << operation for operation in (Op.READ, Op.DELETE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS))
    assert described.authorized_operations == bits
    await world.only(rule(Op.ALTER_CONFIGS, Type.CLUSTER), rule(Op.DESCRIBE, Type.CLUSTER))
    bits = 1 << Op.DESCRIBE | 1 << Op.ALTER_CONFIGS | 1 << Op.DESCRIBE_CONFIGS
    assert (await wire.call(DescribeClusterRequest(True), 1)).cluster_authorized_operations == bits


async def test_creating_topics(world: World) -> None:
    def asked(*names: str) -> CreateTopicsRequest:
        return CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names], 9000)

    await world.only(rule(Op.CREATE, Type.TOPIC, "a"))
    answer = await world.wire.call(asked("a", "b"), 7)
    assert {row.name: row.error_code for row in answer.topics} == {"a": 0, "b": TOPIC}
    assert {row.num_partitions for row in answer.topics} == {-1}
    created = next(row for row in answer.topics if row.name == "a")
    assert (created.topic_config_error_code, created.num_partitions, created.replication_factor) == (TOPIC, -1, -1)
    assert not created.configs
    await world.only(rule(Op.CREATE, Type.CLUSTER), rule(Op.DESCRIBE_CONFIGS, Type.TOPIC, "c"))
    (created,) = (await world.wire.call(asked("c"), 7)).topics
    assert (created.error_code, created.topic_config_error_code, created.num_partitions) == (0, 0, 1)
    assert created.configs


async def test_metadata_creates_topics_only_with_create(world: World) -> None:
    async def code() -> int:
        return (
            (await world.wire.call(MetadataRequest([MetadataRequestTopic(name="new")], True), 9)).topics[0].error_code
        )

    await world.only(rule(Op.CREATE, Type.TOPIC, "*"))
    assert await code() == TOPIC, "Create does not imply Describe"
    await world.only(rule(Op.DESCRIBE, Type.TOPIC, "new"))
    assert await code() == TOPIC
    await world.only(*EVERYTHING)
    everything = await world.wire.call(MetadataRequest(None, False), 9)
    assert "new" not in {row.name for row in everything.topics}
    await world.only(rule(Op.DESCRIBE, Type.TOPIC, "new"), rule(Op.CREATE, Type.CLUSTER))
    assert await code() == 0


async def test_deleting_topics(world: World) -> None:
    ids = {name: await world.wire.create_topic(name) for name in ("a", "b", "c")}

    async def delete(*topics: DeleteTopicState) -> list[tuple[int, str | None, bytes]]:
        answer = await world.wire.call(DeleteTopicsRequest(list(topics)), 6)
        return [(row.error_code, row.name, row.topic_id) for row in answer.responses]

    await world.only(rule(Op.DESCRIBE, Type.TOPIC, "*"))
    assert await delete(DeleteTopicState("a")) == [(TOPIC, "a", ids["a"])]
    assert await delete(DeleteTopicState(None, ids["a"])) == [(TOPIC, "a", ids["a"])]
    assert await delete(DeleteTopicState("unknown")) == [(UNKNOWN_TOPIC, "unknown", bytes(16))]
    await world.only(rule(Op.DELETE, Type.TOPIC, "a"))
    assert await delete(DeleteTopicState("a")) == [(0, "a", ids["a"])]
    await world.only(rule(Op.DELETE, Type.CLUSTER))
    assert await delete(DeleteTopicState(None, ids["b"]), DeleteTopicState("c")) == [
        (0, "b", ids["b"]),
        (0, "c", ids["c"]),
    ]


async def test_deleting_hidden_topics_tells_nothing_about_their_ids(world: World) -> None:
    ids = {name: await world.wire.create_topic(name) for name in ("a", "b")}
    await world.only()
    for name, topic_id in (("a", ids["a"]), ("a", ids["b"]), ("nothing", ids["a"])):
        request = DeleteTopicsRequest([DeleteTopicState(name), DeleteTopicState(None, topic_id)])
        answer = await world.wire.call(request, 6)
        rows = [(row.error_code, row.name, row.topic_id) for row in answer.responses]
        assert rows == [(TOPIC, name, bytes(16)), (TOPIC, None, topic_id)]
    await world.only(rule(Op.DELETE, Type.TOPIC, "*"))
    request = DeleteTopicsRequest([DeleteTopicState("a"), DeleteTopicState(None, ids["a"])])
    (row,) = (await world.wire.call(request, 6)).responses
    assert row.error_code == ErrorCode.INVALID_REQUEST, "the same topic twice"


async def test_a_topic_that_may_not_be_described_is_not_deleted_by_name(world: World) -> None:
    ids = {name: await world.wire.create_topic(name) for name in ("a", "b")}
    denied = rule(Op.DESCRIBE, Type.TOPIC, "*", permission=Permission.DENY)
    await world.only(rule(Op.DELETE, Type.TOPIC, "*"), denied)
    for name in ("a", "nothing"):
        (row,) = (await world.wire.call(DeleteTopicsRequest([DeleteTopicState(name)]), 6)).responses
        assert (row.error_code, row.topic_id) == (TOPIC, bytes(16))
    (row,) = (await world.wire.call(DeleteTopicsRequest([DeleteTopicState(None, ids["b"])]), 6)).responses
    assert (row.error_code, row.name) == (0, "b")


async def test_a_refused_change_of_quotas_names_its_entities(world: World) -> None:
    await world.only()
    entity = [AlteredEntity("user", "bob"), AlteredEntity("client-id", None)]
    request = AlterClientQuotasRequest([RequestEntryData(entity, [OpData("producer_byte_rate", 1e6)])])
    (entry,) = (await world.wire.call(request, 1)).entries
    assert (entry.error_code, entry.entity) == (CLUSTER, entity)


@pytest.mark.parametrize("version", [2, 5])
async def test_pending_offsets_of_a_hidden_topic_are_not_told(world: World, version: int) -> None:
    await world.wire.create_topic("t")
    producer = await world.wire.call(InitProducerIdRequest("x", 9000), 4)
    who = producer.producer_id, producer.producer_epoch
    assert (await world.wire.call(AddOffsetsToTxnRequest("x", *who, "g"), 3)).error_code == 0
    offsets = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5)])]
    assert not codes(await world.wire.call(TxnOffsetCommitRequest("x", "g", *who, topics=offsets), 2))
    group = rule(Op.DESCRIBE, Type.GROUP, "g")
    for more, code, row_code in (((), 0, TOPIC), ((rule(Op.DESCRIBE, Type.TOPIC, "t"),), 14, 14)):
        await world.only(group, *more)
        answer = await world.wire.call(OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])]), version)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (code, row_code)


async def test_refused_rows_have_no_values_of_the_request(world: World) -> None:
    await world.wire.create_topic("t")
    await world.only()
    listed = await world.wire.call(
        ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, 123)])]), 6
    )
    (row,) = listed.topics[0].partitions
    assert (row.error_code, row.timestamp, row.offset) == (TOPIC, -1, -1)
    epochs = OffsetForLeaderEpochRequest(-2, [OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, 3, 5)])])
    (end,) = (await world.wire.call(epochs, 4)).topics[0].partitions
    assert (end.error_code, end.leader_epoch, end.end_offset) == (TOPIC, -1, -1)
    deletion = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])], 9000)
    (deleted,) = (await world.wire.call(deletion, 2)).topics[0].partitions
    assert (deleted.error_code, deleted.low_watermark) == (TOPIC, -1)
    offset = await world.wire.call(OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])]), 1)
    assert offset.topics[0].partitions[0].committed_offset == -1


async def test_a_denied_topic_stops_the_others_of_a_transaction(world: World) -> None:
    for name in ("mine", "theirs"):
        await world.wire.create_topic(name)
    producer = await world.wire.call(InitProducerIdRequest("x", 9000), 4)
    await world.only(rule(Op.WRITE, Type.TOPIC, "mine"), rule(Op.WRITE, Type.TRANSACTIONAL_ID, "x"))
    for count in (1, 150):  # a few partitions, and enough to be handled in steps
        topics = [AddPartitionsToTxnTopic(name, list(range(count))) for name in ("mine", "theirs")]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=topics,
        )
        answer = await world.wire.call(request, 3)
        found = {row.name: row.results_by_partition for row in answer.results_by_topic_v3_and_below}
        assert found["mine"][0].partition_error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
        assert {row.partition_error_code for row in found["theirs"]} == {TOPIC}


async def test_an_open_session_of_fetches_follows_the_rules(world: World) -> None:
    await world.wire.create_topic("t")
    topics = [FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=99)])]
    first = await world.wire.call(FetchRequest(max_wait_ms=0, topics=topics, session_epoch=0), 12)
    assert not codes(first)
    await world.only()
    again = FetchRequest(max_wait_ms=0, session_id=first.session_id, session_epoch=1)
    assert codes(await world.wire.call(again, 12)) == {TOPIC}


async def test_a_group_aware_producer_needs_its_group_its_topics_and_its_id(world: World) -> None:
    from oncelog.protocol.messages.init_producer_id import AssignedPartitions

    await world.wire.create_topic("t")

    async def code(transactional_id: str | None) -> int:
        request = InitProducerIdRequest(
            transactional_id,
            9000,
            consumer_group_id="g",
            consumer_group_generation=1,
            assigned_partitions=[AssignedPartitions("t", [0])],
        )
        return (await world.wire.call(request, 5, extension_version=1)).error_code

    for transactional_id, name in (("x", "x"), (None, "g-group-aware-")):
        group, topic = rule(Op.READ, Type.GROUP, "g"), rule(Op.READ, Type.TOPIC, "t")
        own = rule(Op.WRITE, Type.TRANSACTIONAL_ID, name, pattern=PatternType.PREFIXED)
        for acls, expected in (((topic, own), GROUP), ((group, own), TOPIC), ((group, topic), ID)):
            await world.only(*acls)
            assert await code(transactional_id) == expected
        await world.only(group, topic, own)
        assert await code(transactional_id) not in (GROUP, TOPIC, ID)


async def test_markers_need_alter_or_cluster_action(world: World) -> None:
    from oncelog.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic

    await world.wire.create_topic("t")
    request = WriteTxnMarkersRequest([WritableTxnMarker(1, 0, False, [WritableTxnMarkerTopic("t", [0])], 0)])
    await world.only()
    assert codes(await world.wire.call(request, 1)) == {CLUSTER}
    for operation in (Op.ALTER, Op.CLUSTER_ACTION):
        await world.only(rule(operation, Type.CLUSTER))
        assert not refusals(await world.wire.call(request, 1))


# ---- managing ACLs


def creation(*changes: tuple[str, Any]) -> AclCreation:
    made = AclCreation(2, "t", 3, "User:alice", "*", 3, 3)
    for name, value in changes:
        setattr(made, name, value)
    return made


async def test_acls_are_created_described_and_deleted(world: World) -> None:
    wire = world.wire
    items = [
        creation(),
        creation(("resource_pattern_type", 4), ("resource_name", "orders-")),
        creation(("operation", 4)),
        creation(),
    ]
    created = await wire.call(CreateAclsRequest(items), 3)
    assert [(row.error_code, row.error_message) for row in created.results] == [(0, None)] * 4
    asked = DescribeAclsRequest(2, None, 1, "User:alice", None, 1, 1)
    described = await wire.call(asked, 3)
    found = {
        (row.resource_type, row.resource_name, row.pattern_type): {(acl.principal, acl.operation) for acl in row.acls}
        for row in described.resources
    }
    assert found == {(2, "t", 3): {("User:alice", 3), ("User:alice", 4)}, (2, "orders-", 4): {("User:alice", 3)}}
    filters = [
        DeleteAclsFilter(2, "t", 3, "User:alice", None, 3, 1),
        DeleteAclsFilter(2, "orders-1", 2, "User:alice", None, 1, 1),
    ]
    deleted = await wire.call(DeleteAclsRequest(filters), 3)
    assert [[(acl.resource_name, acl.error_code) for acl in row.matching_acls] for row in deleted.filter_results] == [
        [("t", 0)],
        [("orders-", 0)],
    ]
    left = (await wire.call(asked, 3)).resources
    assert [(row.resource_name, [acl.operation for acl in row.acls]) for row in left] == [("t", [4])]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("resource_name", ""), "The resource name is empty"),
        (("resource_type", 4), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (("resource_type", 99), "Resource type 99 does not exist"),
        (("resource_pattern_type", 5), "Pattern type 5 does not exist"),
        (("operation", 99), "Operation 99 does not exist"),
        (("permission_type", 9), "Permission type 9 does not exist"),
        (("principal", "alice"), "'alice' is not a principal"),
    ],
)
async def test_an_invalid_acl_is_refused_and_the_others_are_created(world: World, change: Any, message: str) -> None:
    created = await world.wire.call(CreateAclsRequest([creation(change), creation()]), 3)
    assert [row.error_code for row in created.results] == [ErrorCode.INVALID_REQUEST, 0]
    assert message in (created.results[0].error_message or "")


@pytest.mark.parametrize("name", ["resource_type", "operation", "permission_type", "resource_pattern_type"])
async def test_an_acl_with_a_type_for_filters_fails_the_request(world: World, name: str) -> None:
    created = await world.wire.call(CreateAclsRequest([creation(), creation((name, 1))]), 3)
    assert {row.error_code for row in created.results} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert rule(Op.READ, Type.TOPIC, "t", principal="User:alice") not in world.broker._node.metadata.acls


@pytest.mark.parametrize(
    "request_",
    [
        CreateAclsRequest([creation(("operation", 0))]),
        DescribeAclsRequest(0, None, 1, None, None, 1, 1),
        DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 0)]),
    ],
    ids=lambda request: type(request).__name__,
)
async def test_unknown_types_close_the_connection(world: World, request_: Request[Any]) -> None:
    world.wire.send(request_, 3)
    assert await world.wire.closed()


@pytest.mark.parametrize("change", [("host", "a.host.name"), ("host", "*")])
async def test_kafka_accepts_any_host_and_any_operation(world: World, change: Any) -> None:
    items = [creation(change), creation(("resource_type", 4), ("resource_name", "kafka-cluster"))]
    assert not codes(await world.wire.call(CreateAclsRequest(items), 3))


async def test_the_number_of_acls_is_limited() -> None:
    async with limited_broker(max_acls=6) as world:
        items = [creation(("resource_name", f"t{number}")) for number in range(3)]
        refused = await world.wire.call(CreateAclsRequest(items), 3)
        assert {row.error_code for row in refused.results} == {ErrorCode.POLICY_VIOLATION}
        assert "max.acls = 6" in (refused.results[0].error_message or "")
        assert not codes(await world.wire.call(CreateAclsRequest(items[:2]), 3))
        assert not codes(await world.wire.call(CreateAclsRequest(items[:2]), 3)), "they exist already"


async def test_many_acls_are_described_and_deleted_in_slices(world: World) -> None:
    items = [creation(("resource_name", f"t{number}")) for number in range(2000)]
    assert not codes(await world.wire.call(CreateAclsRequest(items), 3))
    described = await world.wire.call(DescribeAclsRequest(2, None, 1, "User:alice", None, 1, 1), 3)
    assert len(described.resources) == 2000
    deleted = await world.wire.call(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, "User:alice", None, 1, 1)]), 3)
    assert len(deleted.filter_results[0].matching_acls) == 2000
    assert not (await world.wire.call(DescribeAclsRequest(2, None, 1, "User:alice", None, 1, 1), 3)).resources


async def test_acls_without_an_authorizer() -> None:
    from support.raw_connection import RawConnection

    async with Broker() as broker, RawConnection(broker.address) as wire:
        requests: list[Request[Any]] = [
            CreateAclsRequest([creation()]),
            DescribeAclsRequest(1, None, 1, None, None, 1, 1),
            DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]),
        ]
        for request in requests:
            assert codes(await wire.call(request, 3)) == {ErrorCode.SECURITY_DISABLED}
