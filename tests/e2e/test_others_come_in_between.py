"""A large request of one client does not hold up the others: they are answered many times before it is."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import replace
from types import GeneratorType
from typing import Any

import pytest
from oncelog.broker.coordinator.claims.assignments import Assignment, GroupAssignments
from oncelog.broker.coordinator.transaction.metadata import new_metadata
from oncelog.broker.coordinator.transaction.state import TransactionState, TransactionVersion
from oncelog.broker.handlers.produce import PARTITIONS_AT_ONCE
from oncelog.broker.node import BrokerNode
from oncelog.broker.observability.metrics import KNOWN_IDS
from oncelog.broker.partitions.markers import Marker
from oncelog.broker.scheduling import steps
from oncelog.broker.scheduling.steps import Steps
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
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
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from oncelog.protocol.messages.describe_topic_partitions import TopicRequest as TopicToDescribe
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from oncelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnTopic
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from oncelog.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from oncelog.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from oncelog.protocol.messages.init_producer_id import AssignedPartitions, InitProducerIdRequest
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from oncelog.protocol.messages.list_groups import ListGroupsRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
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
)
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
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
from oncelog.protocol.schema import Request
from support.counted_lines import CountedLines, lines_of_longest_turn
from support.raw_connection import RawConnection, batch

pytestmark = [pytest.mark.oncelog_only(reason="looks at this broker's turns"), pytest.mark.timeout(120)]

MANY = 15_000
TURNS = 8
"""How many answers others get at least while the request is executed."""


def missing(count: int = MANY) -> list[str]:
    return [f"missing-{number}" for number in range(count)]


def fetch(partitions: int, **fields: Any) -> FetchRequest:
    asked = [FetchPartition(index, -1, 0, partition_max_bytes=100) for index in range(partitions)]
    return FetchRequest(min_bytes=1, max_bytes=1000, topics=[FetchTopic("missing", partitions=asked)], **fields)


LARGE: dict[str, tuple[Callable[[], Request[Any]], int]] = {
    "CreateTopics": (lambda: CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in missing(2000)], 1000), 7),
    "CreateTopics, only validated": (
        lambda: CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in missing(4000)], 1000, True),
        7,
    ),
    "DeleteTopics": (lambda: DeleteTopicsRequest([DeleteTopicState(name) for name in missing()]), 6),
    "Metadata of many topics": (
        lambda: MetadataRequest([MetadataRequestTopic(name=name) for name in missing()], False),
        12,
    ),
    "Metadata of many partitions": (lambda: MetadataRequest([MetadataRequestTopic(name="wide")], False), 12),
    "DescribeConfigs": (lambda: DescribeConfigsRequest([DescribeConfigsResource(2, n, None) for n in missing()]), 4),
    "DescribeGroups": (lambda: DescribeGroupsRequest(missing()), 5),
    "DescribeProducers": (lambda: DescribeProducersRequest([TopicRequest("missing", list(range(MANY)))]), 0),
    "DeleteRecords": (
        lambda: DeleteRecordsRequest(
            [DeleteRecordsTopic("missing", [DeleteRecordsPartition(n, 0) for n in range(MANY)])], 1000
        ),
        2,
    ),
    "FindCoordinator": (lambda: FindCoordinatorRequest(key_type=0, coordinator_keys=missing()), 4),
    "ListOffsets": (
        lambda: ListOffsetsRequest(-1, 0, [ListOffsetsTopic("no", [ListOffsetsPartition(n) for n in range(MANY)])]),
        6,
    ),
    "OffsetFetch": (
        lambda: OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("missing", list(range(MANY)))]),
        7,
    ),
    "Fetch": (lambda: fetch(MANY), 12),
    "Produce": (
        lambda: ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData("no", partition_data=[PartitionProduceData(n, b"") for n in range(MANY)])],
        ),
        9,
    ),
    "WriteTxnMarkers": (
        lambda: WriteTxnMarkersRequest(
            [WritableTxnMarker(1, 0, False, [WritableTxnMarkerTopic("no", list(range(MANY)))])]
        ),
        1,
    ),
    "a key type that is not known": (
        lambda: FindCoordinatorRequest(key_type=77, coordinator_keys=missing()),
        4,
    ),
}


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokerNode]:
    monkeypatch.setattr(steps, "SLICE", steps.SLICE // 3)
    async with BrokerNode(durability="os", logging_level="error", transaction_max_partitions=ROWS) as running:
        assert running.dispatcher.apis(), "all handlers are imported: no turn of a test does that"
        async with RawConnection(running.address) as wire:
            made = await wire.call(CreateTopicsRequest([CreatableTopic("wide", 10_000, 1)], 1000), 7)
            assert made.topics[0].error_code == 0
        yield running


async def turns_until_answered(broker: BrokerNode, request: Request[Any], version: int) -> int:
    """How often another client is answered from the execution of this request to the first byte of its answer."""
    execute = broker.dispatcher.execute
    begun = asyncio.Event()

    def noted(exchange: Any) -> Any:
        if exchange.api.request is type(request) and exchange.context.client_id == "large":
            begun.set()
        return execute(exchange)

    broker.dispatcher.execute = noted  # type: ignore[method-assign]
    async with RawConnection(broker.address, "large") as large, RawConnection(broker.address) as other:
        await other.call(ApiVersionsRequest(), 2)
        large.send(request, version)
        answered = asyncio.ensure_future(large._reader.readexactly(4))
        await begun.wait()
        turns = 0
        while not answered.done():
            await other.call(ApiVersionsRequest(), 2)
            turns += 1
        return turns


@pytest.mark.parametrize("name", LARGE)
async def test_others_are_answered_while_a_large_request_is(broker: BrokerNode, name: str) -> None:
    build, version = LARGE[name]
    turns = await turns_until_answered(broker, build(), version)
    assert turns >= TURNS


OF_MANY_ROWS: dict[str, tuple[Callable[[], Request[Any]], int]] = {
    "LeaveGroup": (lambda: LeaveGroupRequest("no-group", "", [MemberIdentity(name) for name in missing()]), 4),
    "DeleteGroups": (lambda: DeleteGroupsRequest(missing()), 2),
    "OffsetCommit": (
        lambda: OffsetCommitRequest(
            "g",
            topics=[OffsetCommitRequestTopic("no", partitions=[OffsetCommitRequestPartition(n) for n in range(MANY)])],
        ),
        8,
    ),
    "AddPartitionsToTxn": (
        lambda: AddPartitionsToTxnRequest(
            [
                AddPartitionsToTxnTransaction(name, 1, 0, False, [AddPartitionsToTxnTopic("no", [0])])
                for name in missing(10_000)
            ]
        ),
        4,
    ),
}
"""Requests whose decoding and answer alone would let others in often enough."""


@pytest.mark.parametrize("name", OF_MANY_ROWS)
async def test_others_come_in_between_the_rows_of_a_request(broker: BrokerNode, name: str) -> None:
    build, version = OF_MANY_ROWS[name]
    request = build()
    (api,) = [api for api in broker.dispatcher.apis() if isinstance(request, api.request)]
    turns, passed = 0, list[int]()

    def handle(context: Any, request: Any) -> Any:
        first, reply = turns, api.handle(context, request)

        def steps(reply: Any) -> Any:
            result = yield from reply
            passed.append(turns - first)
            return result

        async def ended(reply: Any) -> Any:
            result = await reply
            passed.append(turns - first)
            return result

        if isinstance(reply, GeneratorType):
            return steps(reply)
        if isinstance(reply, Coroutine):
            return ended(reply)
        passed.append(0)
        return reply

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    broker.dispatcher._apis[api.key] = replace(api, handle=handle)
    async with RawConnection(broker.address) as wire:
        counting = asyncio.ensure_future(count())
        await wire.call(request, version)
        counting.cancel()
    (between,) = passed
    assert between >= TURNS


ROWS = 30_000
GROUP = 32
LINES_AT_ONCE = 28_000
"""With shorter slices, a turn of the event loop executes fewer lines of Python than a large request has rows."""


def topic_names() -> list[str]:
    return missing(ROWS)


def add_partitions(topics: dict[str, list[int]], producer: tuple[int, int] = (1, 0)) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()],
    )


def add_partitions_of_brokers(
    topics: dict[str, list[int]],
    producer: tuple[int, int] = (1, 0),
    *,
    session: bool = False,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    rows = [AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()]
    return AddPartitionsToTxnRequest(
        [AddPartitionsToTxnTransaction("id", *producer, verify_only, rows, session=session)]
    )


IN_SHORT_TURNS: dict[str, tuple[Callable[[], Request[Any]], int]] = {
    "CreatePartitions": (
        lambda: CreatePartitionsRequest([CreatePartitionsTopic(name, 2) for name in topic_names()], 1000, False),
        3,
    ),
    "AlterConfigs": (
        lambda: AlterConfigsRequest([AlterConfigsResource(2, name, []) for name in topic_names()], False),
        2,
    ),
    "AlterConfigs of one topic": (
        lambda: AlterConfigsRequest(
            [AlterConfigsResource(2, "wide", [AlterableConfig(name, "1") for name in topic_names()])], False
        ),
        2,
    ),
    "IncrementalAlterConfigs": (
        lambda: IncrementalAlterConfigsRequest([IncrementalResource(2, name, []) for name in topic_names()], False),
        1,
    ),
    "IncrementalAlterConfigs of one topic": (
        lambda: IncrementalAlterConfigsRequest(
            [IncrementalResource(2, "wide", [IncrementalConfig(name, 0, "1") for name in topic_names()])], False
        ),
        1,
    ),
    "IncrementalAlterConfigs of the broker": (
        lambda: IncrementalAlterConfigsRequest(
            [IncrementalResource(4, "", [IncrementalConfig("log.retention.ms", 0, "1")])], False
        ),
        1,
    ),
    "IncrementalAlterConfigs of one group": (
        lambda: IncrementalAlterConfigsRequest(
            [IncrementalResource(32, "g", [IncrementalConfig("transaction.claims", 1, None)] * ROWS)], False
        ),
        1,
    ),
    "IncrementalAlterConfigs of one topic that deletes settings": (
        lambda: IncrementalAlterConfigsRequest(
            [IncrementalResource(2, "wide", [IncrementalConfig(name, 1, None) for name in topic_names()])], True
        ),
        1,
    ),
    "DescribeConfigs of one topic": (
        lambda: DescribeConfigsRequest([DescribeConfigsResource(2, "wide", topic_names())]),
        4,
    ),
    "DescribeUserScramCredentials": (
        lambda: DescribeUserScramCredentialsRequest([UserName(name) for name in topic_names()]),
        0,
    ),
    "AlterUserScramCredentials": (
        lambda: AlterUserScramCredentialsRequest([ScramCredentialDeletion(name, 1) for name in topic_names()], []),
        0,
    ),
    "AlterUserScramCredentials of one user": (
        lambda: AlterUserScramCredentialsRequest([ScramCredentialDeletion("user", 1)] * ROWS, []),
        0,
    ),
    "DeleteRecords": (
        lambda: DeleteRecordsRequest(
            [DeleteRecordsTopic("missing", [DeleteRecordsPartition(n, 0) for n in range(ROWS)])], 1000
        ),
        2,
    ),
    "Fetch of topics without partitions": (
        lambda: FetchRequest(min_bytes=1, max_bytes=1000, topics=[FetchTopic(name) for name in topic_names()]),
        12,
    ),
    "Produce to topics without partitions": (
        lambda: ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name) for name in topic_names()]),
        9,
    ),
    "ListTransactions in states": (lambda: ListTransactionsRequest(state_filters=topic_names()), 2),
    "ListTransactions of producers": (lambda: ListTransactionsRequest(producer_id_filters=list(range(ROWS))), 2),
    "DescribeTransactions": (lambda: DescribeTransactionsRequest(topic_names()), 0),
    "AddPartitionsToTxn": (lambda: add_partitions({"no": list(range(ROWS))}), 3),
    "AddPartitionsToTxn of topics": (lambda: add_partitions({name: [0] for name in topic_names()}), 3),
    "AddPartitionsToTxn of an unknown id": (lambda: add_partitions({"wide": [n % 10_000 for n in range(ROWS)]}), 3),
    "AddPartitionsToTxn of brokers": (lambda: add_partitions_of_brokers({"no": list(range(ROWS))}), 4),
    "AddPartitionsToTxn of brokers and topics": (
        lambda: add_partitions_of_brokers({name: [0] for name in topic_names()}),
        4,
    ),
    "AddPartitionsToTxn of brokers and an unknown id": (
        lambda: add_partitions_of_brokers({"wide": [n % 10_000 for n in range(ROWS)]}),
        4,
    ),
    "AddPartitionsToTxn of brokers that verify a session": (
        lambda: add_partitions_of_brokers({"no": list(range(ROWS))}, session=True, verify_only=True),
        4,
    ),
    "WriteTxnMarkers": (
        lambda: WriteTxnMarkersRequest(
            [WritableTxnMarker(1, 0, False, [WritableTxnMarkerTopic("no", list(range(ROWS)))])]
        ),
        1,
    ),
    "WriteTxnMarkers of many producers": (
        lambda: WriteTxnMarkersRequest(
            [WritableTxnMarker(n, 0, False, [WritableTxnMarkerTopic("no", [0])]) for n in range(ROWS)]
        ),
        1,
    ),
    "EndTxn": (lambda: EndTxnRequest("id", 1, 0, True, [EndTxnTopic("no", list(range(ROWS)))]), 3),
    "EndTxn of topics": (
        lambda: EndTxnRequest("id", 1, 0, True, [EndTxnTopic(name, [0]) for name in topic_names()]),
        3,
    ),
    "InitProducerId of a group": (
        lambda: InitProducerIdRequest(
            "id",
            60_000,
            consumer_group_id="g",
            consumer_group_generation=1,
            assigned_partitions=[AssignedPartitions("no", list(range(ROWS)))],
        ),
        4,
    ),
    "CreateTopics": (
        lambda: CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in topic_names()], 1000, True),
        7,
    ),
    "CreateTopics of one topic with many settings": (
        lambda: CreateTopicsRequest(
            [CreatableTopic("new", 1, 1, configs=[CreatableTopicConfig(name, "1") for name in topic_names()])], 1000
        ),
        7,
    ),
    "CreateTopics of one topic with many assignments": (
        lambda: CreateTopicsRequest(
            [CreatableTopic("new", -1, -1, [CreatableReplicaAssignment(n, [1]) for n in range(ROWS)])], 1000
        ),
        7,
    ),
    "DeleteTopics": (lambda: DeleteTopicsRequest([DeleteTopicState(name) for name in topic_names()]), 6),
    "Metadata": (lambda: MetadataRequest([MetadataRequestTopic(name=name) for name in topic_names()], False), 12),
    "Metadata that would create topics": (
        lambda: MetadataRequest([MetadataRequestTopic(name=name) for name in topic_names()], True),
        12,
    ),
    "DescribeLogDirs": (
        lambda: DescribeLogDirsRequest([DescribableLogDirTopic("no", list(range(ROWS)))]),
        4,
    ),
    "DescribeTopicPartitions": (
        lambda: DescribeTopicPartitionsRequest([TopicToDescribe(name) for name in topic_names()], 2000, None),
        0,
    ),
    "DescribeTopicPartitions behind all of its topics": (
        lambda: DescribeTopicPartitionsRequest([TopicToDescribe(name) for name in topic_names()], 2000, Cursor("z", 0)),
        0,
    ),
    "OffsetCommit of one partition": (
        lambda: OffsetCommitRequest(
            "g", topics=[OffsetCommitRequestTopic("wide", partitions=[OffsetCommitRequestPartition(0, 5)] * ROWS)]
        ),
        8,
    ),
    "TxnOffsetCommit of one partition": (
        lambda: TxnOffsetCommitRequest(
            "tx", "g", topics=[TxnOffsetCommitRequestTopic("wide", [TxnOffsetCommitRequestPartition(0, 5)] * ROWS)]
        ),
        3,
    ),
    "TxnOffsetCommit of many topics": (
        lambda: TxnOffsetCommitRequest(
            "tx",
            "g",
            topics=[TxnOffsetCommitRequestTopic(n, [TxnOffsetCommitRequestPartition(0, 5)]) for n in topic_names()],
        ),
        3,
    ),
    "FindCoordinator": (lambda: FindCoordinatorRequest(key_type=0, coordinator_keys=topic_names()), 4),
    "ListGroups": (lambda: ListGroupsRequest(states_filter=topic_names(), types_filter=topic_names()), 5),
    "DescribeProducers": (lambda: DescribeProducersRequest([TopicRequest(name, [0]) for name in topic_names()]), 0),
    "ElectLeaders of one topic": (lambda: ElectLeadersRequest(0, [TopicPartitions("wide", [0] * ROWS)]), 2),
    "ElectLeaders of many topics": (
        lambda: ElectLeadersRequest(0, [TopicPartitions(name, [0]) for name in topic_names()]),
        2,
    ),
    "AlterReplicaLogDirs": (
        lambda: AlterReplicaLogDirsRequest([AlterReplicaLogDir("/", [AlterReplicaLogDirTopic("wide", [0] * ROWS)])]),
        2,
    ),
    "AlterPartitionReassignments": (
        lambda: AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic("wide", [ReassignablePartition(0, [1])] * ROWS)]
        ),
        1,
    ),
    "ListConfigResources": (lambda: ListConfigResourcesRequest([2] * ROWS), 1),
    "JoinGroup": (
        lambda: JoinGroupRequest(
            "g", 60_000, 60_000, "", None, "consumer", [JoinGroupRequestProtocol(name, b"") for name in topic_names()]
        ),
        3,
    ),
    "DescribeGroups of one group": (lambda: DescribeGroupsRequest(["g"] * ROWS), 5),
    "OffsetFetch of one topic": (
        lambda: OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("missing", list(range(ROWS)))]),
        7,
    ),
    "OffsetFetch of many topics": (
        lambda: OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(n, [0]) for n in topic_names()]),
        7,
    ),
    "OffsetFetch of many groups": (
        lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=n, topics=None) for n in topic_names()]),
        8,
    ),
}


LONG_NAMES = [f"{number}-" + "x" * 4_000 for number in range(200)]

WITH_LONG_NAMES: dict[str, tuple[Callable[[], Request[Any]], int]] = {
    "OffsetFetch": (
        lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=n, topics=[]) for n in LONG_NAMES]),
        8,
    ),
    "DescribeGroups": (lambda: DescribeGroupsRequest(LONG_NAMES), 5),
    "DeleteGroups": (lambda: DeleteGroupsRequest(LONG_NAMES), 2),
    "DescribeTransactions": (lambda: DescribeTransactionsRequest(LONG_NAMES), 0),
    "FindCoordinator": (lambda: FindCoordinatorRequest(key_type=0, coordinator_keys=LONG_NAMES), 4),
}
"""Requests whose names are hashed: those of groups and ids are if a partition of their topic cannot be read."""


@pytest.mark.parametrize("name", IN_SHORT_TURNS)
async def test_no_turn_goes_through_all_rows_of_a_request(broker: BrokerNode, name: str) -> None:
    build, version = IN_SHORT_TURNS[name]
    assert await lines_of_longest_turn(broker, build(), version) < LINES_AT_ONCE


@pytest.mark.parametrize("name", WITH_LONG_NAMES)
async def test_no_turn_hashes_all_names_of_a_request(broker: BrokerNode, name: str) -> None:
    build, version = WITH_LONG_NAMES[name]
    broker.group_coordinator._log.unreadable[999] = "its file is damaged"
    broker.transaction_coordinator.state.unreadable[999] = "its file is damaged"
    assert await lines_of_longest_turn(broker, build(), version) < LINES_AT_ONCE


async def test_first_change_of_a_password_is_a_short_turn(broker: BrokerNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("scram", "scram_credentials"):  # which are imported at their first use
        monkeypatch.delitem(sys.modules, f"oncelog.auth.{name}", raising=False)
    change = ScramCredentialUpsertion("user", 1, 4096, b"salt", b"salted password")
    request = AlterUserScramCredentialsRequest([], [change])
    assert await lines_of_longest_turn(broker, request, 0) < LINES_AT_ONCE // 4


async def test_no_turn_goes_through_all_partitions_of_deleted_topics(broker: BrokerNode) -> None:
    names = [f"unused-{number}" for number in range(8)]
    async with RawConnection(broker.address) as wire:
        for name in names:
            made = await wire.call(CreateTopicsRequest([CreatableTopic(name, 10_000, 1)], 10_000), 7)
            assert made.topics[0].error_code == 0
    request = DeleteTopicsRequest([DeleteTopicState(name) for name in names])
    assert await lines_of_longest_turn(broker, request, 6) < LINES_AT_ONCE
    assert not [name for name in names if broker.metadata.topic(name) is not None]
    async with RawConnection(broker.address) as wire:
        again = await wire.call(CreateTopicsRequest([CreatableTopic(names[0], 1, 1)], 10_000), 7)
        assert again.topics[0].error_code == 0


async def test_no_turn_goes_through_all_claims_of_a_group(broker: BrokerNode) -> None:
    claimed = frozenset(("wide", index) for index in range(ROWS // 4))
    for number in range(4):
        more = frozenset((f"wide-{number}", index) for _, index in claimed)
        broker.group_initialiser._claims.claim("g", f"id-{number}", 1, more)
    request = DescribeConfigsRequest([DescribeConfigsResource(GROUP, "g", None)])
    assert await lines_of_longest_turn(broker, request, 4) < LINES_AT_ONCE
    async with RawConnection(broker.address) as wire:
        (result,) = (await wire.call(request, 4)).results
        claims = [claim for config in result.configs for claim in json.loads(config.value or "")]
        assert len(claims) == ROWS
        assert claims == sorted(claims, key=lambda claim: (claim["topic"], claim["partition"]))


async def test_the_claims_of_a_described_group_are_rows() -> None:
    async with (
        BrokerNode(durability="os", logging_level="error", response_max_rows=10) as broker,
        RawConnection(broker.address) as wire,
    ):
        request = DescribeConfigsRequest([DescribeConfigsResource(GROUP, "g", None)])
        broker.group_initialiser._claims.claim("g", "id", 1, frozenset(("t", index) for index in range(8)))
        assert (await wire.call(request, 4)).results[0].error_code == ErrorCode.NONE
        broker.group_initialiser._claims.claim("g", "id", 1, frozenset(("t", index) for index in range(11)))
        assert (await wire.call(request, 4)).results[0].error_code == ErrorCode.INVALID_REQUEST


async def test_no_turn_goes_through_all_groups_with_claims(broker: BrokerNode) -> None:
    held = Assignment(1, frozenset([("wide", 0)]), 0, 1)
    claims = broker.group_initialiser._claims._groups
    for number in range(ROWS):
        claims[f"g-{number:05}"] = GroupAssignments()
        claims[f"g-{number:05}"].put("id", held)
    request = ListConfigResourcesRequest([GROUP])
    assert await lines_of_longest_turn(broker, request, 1) < LINES_AT_ONCE
    async with RawConnection(broker.address) as wire:
        listed = (await wire.call(request, 1)).config_resources
        assert [item.resource_name for item in listed] == sorted(claims)


async def test_no_turn_goes_through_all_transactional_ids(broker: BrokerNode) -> None:
    for number in range(ROWS):
        empty = new_metadata(f"id-{number}", number, 60_000, 0)
        broker.transaction_coordinator.state.create(replace(empty, producer_epoch=0))
    request = ListTransactionsRequest()
    assert await lines_of_longest_turn(broker, request, 1) < LINES_AT_ONCE
    async with RawConnection(broker.address) as wire:
        assert len((await wire.call(request, 1)).transaction_states) == ROWS
    with CountedLines() as counted:
        counted.begin()
        assert broker.metrics.value(KNOWN_IDS) == ROWS
        await asyncio.sleep(0)
    assert counted.longest < LINES_AT_ONCE


LINES_OF_A_RECORD = 4 * ROWS
"""What the record of a transaction of so many partitions takes; it is made in the turn that registers or ends it."""


async def test_no_turn_goes_through_all_partitions_of_a_transaction(broker: BrokerNode) -> None:
    topics = {f"wide-{number}": list(range(ROWS // 4)) for number in range(4)}
    async with RawConnection(broker.address) as wire:
        for name in topics:
            made = await wire.call(CreateTopicsRequest([CreatableTopic(name, ROWS // 4, 1)], 10_000), 7)
            assert made.topics[0].error_code == 0
        initialised = await wire.call(InitProducerIdRequest("id", 60_000), 3)
    producer = initialised.producer_id, initialised.producer_epoch
    transactions = broker.transaction_coordinator
    written = [EndTxnTopic(name, indexes) for name, indexes in topics.items()]
    requests: list[tuple[Request[Any], int]] = [
        (add_partitions(topics, producer), 3),
        (add_partitions_of_brokers(topics, producer), 4),
        (add_partitions_of_brokers(topics, producer, verify_only=True), 4),
        (DescribeTransactionsRequest(["id"]), 0),
        (EndTxnRequest("id", *producer, True, written), 3),
    ]
    for request, version in requests:
        assert len(transactions.describe("id").topic_partitions) in (0, ROWS)
        lines = await lines_of_longest_turn(broker, request, version)
        assert lines < LINES_OF_A_RECORD, type(request)
    assert transactions.describe("id").state.is_commit


@pytest.mark.parametrize("codes", [(ErrorCode.NONE,), (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE)])
async def test_no_turn_goes_through_all_markers_of_a_transaction(
    broker: BrokerNode, codes: tuple[ErrorCode, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = broker.transaction_coordinator
    producer = await transactions.init_producer_id("id", 60_000)
    partitions = [(f"wide-{number}", index) for number in range(4) for index in range(ROWS // 4)]
    for number in range(4):
        await broker.metadata.create_topic(f"wide-{number}", ROWS // 4, {})
    await transactions.registration.add_partitions("id", *producer, partitions)
    appended: Counter[tuple[str, int]] = Counter()

    def append(key: tuple[str, int], marker: Marker) -> asyncio.Future[None]:
        """Append nothing, so that no files are made; the marker is durable, or refused, as the case wants."""
        code = codes[min(appended[key], len(codes) - 1)]
        appended[key] += 1
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        durable = asyncio.get_running_loop().create_future()
        durable.set_result(None)
        return durable

    def opened(key: tuple[str, int]) -> Steps[None]:
        yield 0

    monkeypatch.setattr(broker.replica_manager, "_append_marker", append)
    monkeypatch.setattr(broker.replica_manager, "_opened", opened)
    await transactions.end_txn("id", *producer, True, TransactionVersion.TV_0)
    assert transactions.describe("id").state is TransactionState.PREPARE_COMMIT
    with CountedLines() as counted:
        counted.begin()
        while transactions.describe("id").state.is_prepare:
            await asyncio.sleep(0)
    assert transactions.describe("id").state is TransactionState.COMPLETE_COMMIT
    assert appended == dict.fromkeys(partitions, len(codes))
    assert counted.longest < LINES_AT_ONCE


async def test_no_turn_goes_through_all_assignments_of_the_leader() -> None:
    async with (
        BrokerNode(durability="os", logging_level="error", group_initial_rebalance_delay_ms=0) as broker,
        RawConnection(broker.address) as wire,
    ):
        protocols = [JoinGroupRequestProtocol("range", b"")]
        joined = await wire.call(JoinGroupRequest("g", 60_000, 60_000, "", None, "consumer", protocols), 3)
        assert joined.leader == joined.member_id
        assignments = [SyncGroupRequestAssignment(name, b"x") for name in topic_names()]
        request = SyncGroupRequest("g", joined.generation_id, joined.member_id, assignments=assignments)
        assert await lines_of_longest_turn(broker, request, 3) < LINES_AT_ONCE


def deletion(group: str, topics: dict[str, Iterable[int]]) -> OffsetDeleteRequest:
    rows = [OffsetDeleteRequestTopic(n, [OffsetDeleteRequestPartition(i) for i in p]) for n, p in topics.items()]
    return OffsetDeleteRequest(group, rows)


ON_OFFSETS: dict[str, tuple[Callable[[], Request[Any]], int]] = {
    "OffsetDelete of unknown partitions": (lambda: deletion("g", {"no": range(ROWS)}), 0),
    "OffsetDelete of many topics": (lambda: deletion("g", {name: [0] for name in topic_names()}), 0),
    "OffsetDelete of one partition": (lambda: deletion("g", {"wide": [7] * ROWS}), 0),
    "OffsetDelete": (lambda: deletion("g", {"wide": range(10_000)}), 0),
    "DeleteGroups": (lambda: DeleteGroupsRequest(["g"]), 2),
}


@pytest.mark.parametrize("name", ON_OFFSETS)
async def test_no_turn_goes_through_all_offsets_of_a_group(broker: BrokerNode, name: str) -> None:
    build, version = ON_OFFSETS[name]
    rows = [OffsetCommitRequestPartition(index, 5) for index in range(10_000)]
    async with RawConnection(broker.address) as wire:
        commit = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("wide", partitions=rows)])
        committed = await wire.call(commit, 8)
        assert {row.error_code for row in committed.topics[0].partitions} == {0}
    assert await lines_of_longest_turn(broker, build(), version) < LINES_AT_ONCE


async def test_others_are_answered_while_a_large_session_is_looked_through(broker: BrokerNode) -> None:
    async with RawConnection(broker.address) as wire:
        opened = await wire.call(fetch(MANY, session_id=0, session_epoch=0), 12)
    assert opened.session_id
    assert broker.fetch_sessions.partitions == MANY
    again = FetchRequest(session_id=opened.session_id, session_epoch=1, min_bytes=1, max_bytes=1000)
    turns = await turns_until_answered(broker, again, 12)
    assert turns >= TURNS


UNUSED = 104
"""Partitions whose files are made: far fewer than what makes a request large."""


@pytest.mark.parametrize("api", ["ListOffsets", "Produce", "Fetch"])
async def test_others_are_answered_while_the_files_of_many_partitions_are_made(broker: BrokerNode, api: str) -> None:
    indexes = range(UNUSED)
    requests: dict[str, tuple[Request[Any], int]] = {
        "ListOffsets": (
            ListOffsetsRequest(-1, 0, [ListOffsetsTopic("wide", [ListOffsetsPartition(n) for n in indexes])]),
            6,
        ),
        "Produce": (
            ProduceRequest(
                acks=1,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData("wide", partition_data=[PartitionProduceData(n, batch(b"x")) for n in indexes])
                ],
            ),
            9,
        ),
        "Fetch": (
            FetchRequest(
                max_wait_ms=1,
                min_bytes=1,
                max_bytes=1000,
                topics=[
                    FetchTopic("wide", partitions=[FetchPartition(n, -1, 0, partition_max_bytes=100) for n in indexes])
                ],
            ),
            12,
        ),
    }
    assert await turns_until_answered(broker, *requests[api]) >= TURNS


EXISTING = 300
"""Partitions whose logs are open when the batches come."""


async def test_others_come_in_between_appends_to_many_partitions(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [PartitionProduceData(n, batch(b"x")) for n in range(EXISTING)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData("wide", partition_data=rows)])
    loop = asyncio.get_running_loop()
    appends_of_turn: Counter[int] = Counter()
    turn = 0

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(next_turn)

    async with RawConnection(broker.address) as wire:
        await wire.call(request, 9)
        log = broker.log_manager.get("wide", 0)
        assert log is not None
        append = type(log).append

        def noted(*arguments: Any, **named: Any) -> Any:
            appends_of_turn[turn] += 1
            return append(*arguments, **named)

        monkeypatch.setattr(type(log), "append", noted)
        next_turn()
        second = (await wire.call(request, 9)).responses[0].partition_responses
    assert [(part.error_code, part.base_offset) for part in second] == [(0, 1)] * EXISTING
    assert appends_of_turn.total() == EXISTING
    assert max(appends_of_turn.values()) <= PARTITIONS_AT_ONCE
