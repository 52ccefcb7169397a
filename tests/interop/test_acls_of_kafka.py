"""Random ACLs, and what a client may then do, compared with Apache Kafka request by request.

Both brokers have the same topics, groups and transactional ids. The client is User:alice, logged in by SASL. The rules
are changed by User:ANONYMOUS of another listener, a super user. Compared are the results of creating, listing and
deleting rules, and, for each request of the client, the codes that depend on permissions and the names that are shown.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from oncelog import Broker
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
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
from oncelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from oncelog.protocol.messages.describe_topic_partitions import TopicRequest as NamedTopic
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
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.protocol.messages.sync_group import SyncGroupRequest
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from oncelog.protocol.records import Record, encode_batch
from oncelog.protocol.schema import Request, Struct
from support.access import codes
from support.apache_kafka import ApacheKafka, free_port
from support.raw_connection import RawConnection

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS = int(os.environ.get("ACL_ROUNDS", "40"))
SEED = int(os.environ.get("ACL_SEED", "1"))

PASSWORD = "secret"
LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}";'
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": LOGIN,
}

TOPICS = ("t", "to", "other")
GROUPS = ("g", "go")
IDS = ("x", "xy")
NEW = "tnew"
UNKNOWN = b"no such topic id"

# Codes that do not depend on permissions alone, or that the brokers' states explain, count as success.
COMPARED = {29, 30, 31, 53, 55, 100}


def acl(chance: random.Random) -> AclCreation:
    """Return a random rule."""
    kind = chance.choice((2, 2, 2, 2, 3, 3, 4, 5, 5))
    names = {2: (*TOPICS, NEW), 3: GROUPS, 4: ("kafka-cluster",), 5: IDS}[kind]
    name = chance.choice((*names, *names, names[0][0], "*"))
    pattern = chance.choice((3, 3, 4))
    if kind == 4:
        name, pattern = "kafka-cluster", 3
    return AclCreation(
        kind,
        name,
        pattern,
        chance.choice(("User:alice", "User:alice", "User:alice", "User:*", "User:bob")),
        chance.choice(("*", "*", "127.0.0.1", "10.0.0.1")),
        chance.choice((2, *range(3, 13))),
        chance.choice((3, 3, 3, 2)),
    )


def batch() -> bytes:
    return bytes(encode_batch([Record(0, 0, None, b"v", [])]))


def requests(ids: dict[str, bytes]) -> Iterator[tuple[Request[Any], int]]:
    """Yield the requests of one round, with their versions. None of them changes what the others return."""
    for version in (4, 9, 12):
        yield MetadataRequest([MetadataRequestTopic(name=name) for name in (*TOPICS, "none")], False), version
    yield MetadataRequest(None, False, True, True), 10
    yield MetadataRequest([MetadataRequestTopic(one) for one in (*ids.values(), UNKNOWN)], False), 12
    yield MetadataRequest([MetadataRequestTopic(name=name) for name in ("t", "none")], False, True, True), 9
    yield DescribeClusterRequest(True), 1
    yield DescribeTopicPartitionsRequest([]), 0
    yield DescribeTopicPartitionsRequest([NamedTopic(name) for name in (*TOPICS, "none")]), 0
    offsets = [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, -1)]) for name in (*TOPICS, "none")]
    yield ListOffsetsRequest(-1, 0, offsets), 6
    epochs = [OffsetForLeaderTopic(name, [OffsetForLeaderPartition(0, -1, 0)]) for name in (*TOPICS, "none")]
    yield OffsetForLeaderEpochRequest(-2, epochs), 4
    asked = [FetchPartition(0, partition_max_bytes=99)]
    yield FetchRequest(max_wait_ms=0, topics=[FetchTopic(name, partitions=asked) for name in (*TOPICS, "none")]), 12
    by_id = (*ids.values(), UNKNOWN)
    yield FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic_id=one, partitions=asked) for one in by_id]), 13
    data = [PartitionProduceData(0, batch())]
    yield (
        ProduceRequest(
            acks=1, timeout_ms=9, topic_data=[TopicProduceData(name, partition_data=data) for name in (*TOPICS, "none")]
        ),
        9,
    )
    yield (
        ProduceRequest(
            acks=1, timeout_ms=9, topic_data=[TopicProduceData(topic_id=one, partition_data=data) for one in by_id]
        ),
        13,
    )
    deleted = [DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)]) for name in (*TOPICS, "none")]
    yield DeleteRecordsRequest(deleted, 9000), 2
    yield CreatePartitionsRequest([CreatePartitionsTopic(name, 9) for name in (*TOPICS, "none")], 9000, True), 3
    yield CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in (NEW, "u")], 9000, True), 7
    resources = [(2, "t"), (2, "other"), (4, "1"), (2, "none")]
    yield (
        DescribeConfigsRequest([DescribeConfigsResource(kind, name, ["cleanup.policy"]) for kind, name in resources]),
        4,
    )
    altered = [AlterConfigsResource(kind, name, []) for kind, name in resources[:2]]
    yield IncrementalAlterConfigsRequest(altered, True), 1
    yield ListConfigResourcesRequest([2]), 1
    yield DescribeLogDirsRequest([]), 4
    for version in range(3):
        yield ElectLeadersRequest(0, [TopicPartitions(name, [0]) for name in (*TOPICS, "none")], 9000), version
    moved = [ReassignableTopic(name, [ReassignablePartition(0, [1])]) for name in (*TOPICS, "none")]
    yield AlterPartitionReassignmentsRequest(9000, True, moved), 1
    yield ListPartitionReassignmentsRequest(9000, None), 0
    yield AlterReplicaLogDirsRequest([AlterReplicaLogDir("/", [AlterReplicaLogDirTopic("t", [0])])]), 2
    yield DescribeProducersRequest([TopicRequest(name, [0]) for name in TOPICS]), 0
    # groups
    for key_type, keys in ((0, GROUPS), (1, IDS)):
        yield FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys)), 4
        yield FindCoordinatorRequest(key=keys[0], key_type=key_type), 3
    for group in GROUPS:
        yield JoinGroupRequest(group, 10_000, 10_000, "", None, "c", [JoinGroupRequestProtocol("r", b"")]), 5
        yield SyncGroupRequest(group, 1, "m", None, "c", "r"), 5
        yield HeartbeatRequest(group, 1, "m"), 4
        yield LeaveGroupRequest(group, members=[MemberIdentity("m")]), 5
        commits = [
            OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(0, 1)]) for name in TOPICS[:2]
        ]
        yield OffsetCommitRequest(group, 99, "m", topics=commits), 8
        yield OffsetFetchRequest(group, [OffsetFetchRequestTopic(name, [0]) for name in TOPICS]), 7
        yield OffsetFetchRequest(group, None), 7
        yield OffsetDeleteRequest("none" + group, [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]), 0
    several = [OffsetFetchRequestGroup(group, topics=None) for group in GROUPS]
    yield OffsetFetchRequest(groups=several), 8
    wanted = [OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in TOPICS]
    yield OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=wanted) for group in GROUPS]), 8
    yield ListGroupsRequest(), 4
    yield DescribeGroupsRequest(list(GROUPS), True), 5
    yield DeleteGroupsRequest(["gnone", "none"]), 2
    # transactions
    for name in IDS:
        yield AddOffsetsToTxnRequest(name, 99, 0, "g"), 3
        topics = [AddPartitionsToTxnTopic(topic, [0]) for topic in (*TOPICS, "none")]
        yield (
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=99,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=topics,
            ),
            3,
        )
        commits_ = [TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(0, 1)]) for topic in TOPICS]
        yield TxnOffsetCommitRequest(name, "g", 99, 0, 1, "m", topics=commits_), 3
        yield EndTxnRequest(name, 99, 0, True), 3
    yield InitProducerIdRequest("x", 9000, 99, 0), 4
    yield InitProducerIdRequest(None, 9000), 4
    yield WriteTxnMarkersRequest([WritableTxnMarker(99, 0, False, [WritableTxnMarkerTopic("none", [0])], 0)]), 1
    yield DescribeTransactionsRequest(list(IDS)), 0
    yield ListTransactionsRequest(), 1
    yield DescribeAclsRequest(2, None, 1, None, None, 1, 1), 3
    yield CreateAclsRequest([AclCreation(4, "wrong", 3, "User:alice", "*", 3, 3)]), 3
    yield DeleteAclsRequest([DeleteAclsFilter(2, "none", 3, None, None, 3, 3)]), 3
    yield DeleteTopicsRequest([DeleteTopicState("none"), DeleteTopicState(None, UNKNOWN)], timeout_ms=9000), 6


SHOWN = {
    "name",
    "topic_id",
    "topic",
    "group_id",
    "transactional_id",
    "partition_index",
    "partition",
    "index",
    "resource_name",
    "key",
    "cluster_authorized_operations",
    "topic_authorized_operations",
    "authorized_operations",
    "num_partitions",
}


def outline(struct: Struct, ids: dict[bytes, str]) -> Any:
    """Return what is compared of a response: names, compared codes, permissions, and the rows in any order."""
    values: dict[str, Any] = {}
    for spec in struct.fields:
        value = getattr(struct, spec.name)
        if spec.name.endswith("error_code"):
            values[spec.name] = value if value in COMPARED else 0
        elif spec.name in SHOWN and not isinstance(value, list):
            # Apache Kafka returns a random id for a topic that CreateTopics only validates.
            values[spec.name] = ids.get(value, value == UNKNOWN) if isinstance(value, bytes) else value
        elif isinstance(value, Struct):
            values[spec.name] = outline(value, ids)
        elif isinstance(value, list) and spec.name not in ("brokers", "nodes", "configs", "metrics"):
            rows = [outline(item, ids) for item in value if isinstance(item, Struct)]
            rows = [row for row in rows if not is_internal(row)]
            if rows:
                values[spec.name] = sorted(rows, key=repr)
    return values


def is_internal(row: Any) -> bool:
    return any(str(row.get(name, "")).startswith("__") for name in ("name", "topic", "resource_name"))


class Side:
    """One broker: a super user's connection, and a client's."""

    def __init__(self, admin: RawConnection, client: RawConnection) -> None:
        self.admin = admin
        self.client = client
        self.ids: dict[str, bytes] = {}

    async def prepare(self) -> None:
        answer = await self.client.call(SaslHandshakeRequest("PLAIN"), 1)
        assert answer.error_code == 0, answer
        login = await self.client.call(SaslAuthenticateRequest(f"\0alice\0{PASSWORD}".encode()), 1)
        assert login.error_code == 0, login
        for name in TOPICS:
            self.ids[name] = await self.admin.create_topic(name)
        for group in GROUPS:
            await self.ready(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
            rows = [OffsetCommitRequestPartition(0, 1)]
            commit = [OffsetCommitRequestTopic(name, partitions=rows) for name in TOPICS]
            await self.ready(OffsetCommitRequest(group, -1, "", topics=commit), 8)
        for name in IDS:
            await self.ready(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
            await self.ready(InitProducerIdRequest(name, 9000), 4)

    async def ready(self, request: Request[Any], version: int) -> None:
        """Repeat a request until it succeeds. Apache Kafka creates its internal topics when they are first needed."""
        async with asyncio.timeout(60):
            while codes(await self.admin.call(request, version)):
                await asyncio.sleep(0.1)

    async def replace(self, items: list[AclCreation]) -> tuple[list[int], list[Any]]:
        """Replace all rules. Return the codes of their creation, and the rules as they are listed when in effect."""
        deleted = await self.admin.call(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]), 3)
        assert deleted.filter_results[0].error_code == 0
        await self.until_listed(0)
        created = await self.admin.call(CreateAclsRequest(items), 3)
        error_codes = [row.error_code for row in created.results]
        distinct = {repr(item) for item, code in zip(items, error_codes, strict=True) if code == 0}
        return error_codes, await self.until_listed(len(distinct))

    async def until_listed(self, count: int) -> list[Any]:
        async with asyncio.timeout(30):
            while True:
                described = await self.admin.call(DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
                rules = sorted(
                    (
                        row.resource_type,
                        row.resource_name,
                        row.pattern_type,
                        a.principal,
                        a.host,
                        a.operation,
                        a.permission_type,
                    )
                    for row in described.resources
                    for a in row.acls
                )
                if len(rules) == count:
                    return rules
                await asyncio.sleep(0.02)

    async def outlines(self) -> AsyncIterator[tuple[str, Any]]:
        names = {topic_id: name for name, topic_id in self.ids.items()}
        for request, version in requests(self.ids):
            answer = await self.client.call(request, version)
            yield f"{request} v{version}", outline(answer, names)


@pytest.mark.skipif(shutil.which("mvn") is None, reason="needs Java and Maven")
async def test_permissions_are_those_of_apache_kafka(tmp_path: Path) -> None:
    sasl_port = free_port()
    kafka = ApacheKafka(tmp_path / "kafka")
    everywhere = f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}"
    kafka.properties = {
        **SETTINGS,
        "listeners": f"{everywhere},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "advertised.listeners": everywhere,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "auto.create.topics.enable": "false",
    }
    listeners = ["PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"]
    settings: dict[str, Any] = {**SETTINGS, "listeners": listeners, "auto.create.topics.enable": False}
    own = Broker(tmp_path / "own", **settings)
    chance = random.Random(SEED)
    differences: list[str] = []
    decisions = 0
    async with AsyncExitStack() as stack:
        stack.enter_context(kafka)
        await stack.enter_async_context(own)
        assert own._node._listeners is not None
        own_ports = [own._node._listeners.named(name).port for name in ("PLAINTEXT", "SASL_PLAINTEXT")]
        sides = []
        for admin, client in ((kafka.port, sasl_port), own_ports):
            wires = [await stack.enter_async_context(RawConnection(f"127.0.0.1:{port}")) for port in (admin, client)]
            sides.append(Side(*wires))
            await sides[-1].prepare()
        theirs, ours = sides
        for number in range(ROUNDS):
            items = [acl(chance) for _ in range(chance.choice((0, 3, 8, 15, 30)))]
            replaced = [await side.replace(items) for side in sides]
            if replaced[0] != replaced[1]:
                differences.append(f"round {number}: {replaced[0]} != {replaced[1]}")
            expected = [pair async for pair in theirs.outlines()]
            found = [pair async for pair in ours.outlines()]
            for (name, kafkas), (_, own_one) in zip(expected, found, strict=True):
                decisions += repr(kafkas).count("error_code'")
                if kafkas != own_one:
                    differences.append(
                        f"round {number}: {name}\n  Kafka:   {kafkas}\n  oncelog: {own_one}\n  {replaced[1][1]}"
                    )
    print(f"seed {SEED}: {ROUNDS} rounds, {decisions:,} decisions, {len(differences)} differences")
    assert decisions > ROUNDS * 100, decisions
    assert not differences, f"{len(differences)} differences\n" + "\n".join(differences[:20])
