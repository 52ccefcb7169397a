"""Edge cases of admin requests: impossible names and numbers, empty lists. The answers are those of Kafka 4.1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from oncelog.protocol.messages.alter_configs import AlterConfigsRequest
from oncelog.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
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
from oncelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest
from oncelog.protocol.messages.describe_producers import TopicRequest as ProducersOfTopic
from oncelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from oncelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from oncelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.raw_connection import RawConnection, batch

Name = Callable[[str], str]
E = ErrorCode
TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5
SET, DELETE, APPEND, SUBTRACT = range(4)


async def create(
    wire: RawConnection, name: str, configs: dict[str, str], partitions: int = 1, replicas: int = 1
) -> CreatableTopicResult:
    given = [CreatableTopicConfig(key, value) for key, value in configs.items()]
    topic = CreatableTopic(name, partitions, replicas, configs=given)
    return (await wire.call(CreateTopicsRequest([topic], 10_000), 7)).topics[0]


async def alter(wire: RawConnection, name: str, *changes: tuple[str, int, str | None]) -> AlterConfigsResourceResponse:
    resource = AlterConfigsResource(TOPIC, name, [AlterableConfig(*change) for change in changes])
    return (await wire.call(IncrementalAlterConfigsRequest([resource]), 1)).responses[0]


async def setting(wire: RawConnection, topic: str, name: str) -> str | None:
    """The value of a topic's setting, as DescribeConfigs reports it."""
    described = await wire.call(DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, [name])]), 4)
    (row,) = described.results[0].configs
    return row.value


async def assert_own_settings(wire: RawConnection, topic: str, expected: dict[str, str], is_kafka: bool) -> None:
    """Check settings that the topic itself has. Apache Kafka's broker shows a change a moment after its response."""
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, list(expected))])
    wanted = {name: (value, DYNAMIC_TOPIC_CONFIG) for name, value in expected.items()}
    async with asyncio.timeout(30):
        while True:
            (described,) = (await wire.call(request, 4)).results
            found = {row.name: (row.value, row.config_source) for row in described.configs}
            if found == wanted or not is_kafka:
                break
            await asyncio.sleep(0.01)
    assert found == wanted


async def test_log_dirs_have_partitions_that_were_never_used(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, name, {}, partitions=3)).error_code == 0
        written = batch(b"x")
        sizes: list[list[tuple[int, int]]] = [[]]
        async with asyncio.timeout(30):
            # Apache Kafka creates the partitions later, one after the other.
            while (await wire.produce(name, written)).error_code:
                pass
            while len(sizes[0]) < 3:
                everything = (await wire.call(DescribeLogDirsRequest(None), 4)).results[0].topics
                sizes = [
                    sorted((row.partition_index, row.partition_size) for row in topic.partitions)
                    for topic in everything
                    if topic.name == name
                ]
        assert sizes == [[(0, len(written)), (1, 0), (2, 0)]]
        asked = [DescribableLogDirTopic(name, [1, 7, -1]), DescribableLogDirTopic(fresh_name("none"), [0])]
        found = [
            (topic.name, row.partition_index, row.partition_size)
            for topic in (await wire.call(DescribeLogDirsRequest(asked), 4)).results[0].topics
            for row in topic.partitions
        ]
        assert found == [(name, 1, 0)]


async def test_more_in_sync_replicas_than_exist_do_not_stop_writes(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(name, min_insync_replicas="2")
        assert await setting(wire, name, "min.insync.replicas") == "2"
        assert (await wire.produce(name, batch(b"x"))).error_code == 0
        for refused in ("0", "-1"):
            created = await create(wire, fresh_name("topic"), {"min.insync.replicas": refused})
            assert created.error_code == E.INVALID_CONFIG


async def test_a_lower_bound_of_compaction_above_the_upper_is_refused(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")
    crossed = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, name, crossed)).error_code == E.INVALID_CONFIG
        assert (await create(wire, name, {"max.compaction.lag.ms": "5"})).error_code == 0
        assert (await alter(wire, name, ("min.compaction.lag.ms", SET, "6"))).error_code == E.INVALID_CONFIG
        assert (await alter(wire, name, ("min.compaction.lag.ms", SET, "5"))).error_code == 0


async def test_an_unknown_setting_can_be_deleted_but_not_set(bootstrap: str, fresh_name: Name, is_kafka: bool) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, name, {})).error_code == 0
        changed = await alter(wire, name, ("no.such.setting", DELETE, None), ("retention.ms", SET, "77"))
        assert changed.error_code == 0
        await assert_own_settings(wire, name, {"retention.ms": "77"}, is_kafka)
        for operation in (SET, APPEND):
            refused = await alter(wire, name, ("no.such.setting", operation, "1"))
            assert refused.error_code == E.INVALID_CONFIG


async def test_cleanup_policy_may_become_empty(bootstrap: str, fresh_name: Name, is_kafka: bool) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, name, {"cleanup.policy": ""})).error_code == 0
        assert (await alter(wire, name, ("cleanup.policy", APPEND, "compact"))).error_code == 0
        await assert_own_settings(wire, name, {"cleanup.policy": "compact"}, is_kafka)
        assert (await alter(wire, name, ("cleanup.policy", SUBTRACT, "compact"))).error_code == 0
        await assert_own_settings(wire, name, {"cleanup.policy": ""}, is_kafka)


@pytest.mark.oncelog_only(reason="some versions of Apache Kafka accept repeated items")
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("delete,", "has an empty item"),
        (",", "has an empty item"),
        ("delete,delete", "has an item more than once"),
        (",".join(["delete"] * 4000), "has more than 2 items"),
    ],
)
async def test_a_list_with_impossible_items_is_refused(
    bootstrap: str, fresh_name: Name, value: str, problem: str
) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        refused = await create(wire, name, {"cleanup.policy": value})
        assert (refused.error_code, problem in str(refused.error_message)) == (E.INVALID_CONFIG, True)
        assert (await create(wire, name, {})).error_code == 0
        changed = await alter(wire, name, ("cleanup.policy", SET, value))
        assert (changed.error_code, problem in str(changed.error_message)) == (E.INVALID_CONFIG, True)
        request = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(BROKER, "", [AlterableConfig("log.cleanup.policy", SET, value)])]
        )
        changed = (await wire.call(request, 1)).responses[0]
        assert (changed.error_code, problem in str(changed.error_message)) == (E.INVALID_REQUEST, True)


@pytest.mark.oncelog_only(reason="Apache Kafka reads any number of items")
@pytest.mark.parametrize("operation", [SET, APPEND, SUBTRACT])
async def test_a_list_of_throttled_replicas_has_at_most_a_thousand_items(
    bootstrap: str, fresh_name: Name, operation: int
) -> None:
    name, setting = fresh_name("topic"), "leader.replication.throttled.replicas"
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, name, {setting: ",".join(["0:1"] * 1000)})).error_code == 0
        changed = await alter(wire, name, (setting, operation, ",".join(["0:1"] * 1001)))
        assert (changed.error_code, "has more than 1000 items" in str(changed.error_message)) == (
            E.INVALID_CONFIG,
            True,
        )


@pytest.mark.oncelog_only(reason="Apache Kafka reads any number of items")
@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
async def test_more_items_than_there_are_cannot_be_appended_or_removed(
    bootstrap: str, fresh_name: Name, operation: int
) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, name, {})).error_code == 0
        refused = await alter(wire, name, ("cleanup.policy", operation, "delete," * 4000))
        assert refused.error_code == E.INVALID_CONFIG
        assert (await alter(wire, name, ("cleanup.policy", APPEND, "compact,compact"))).error_code == 0
        assert await setting(wire, name, "cleanup.policy") == "delete,compact"


STORED = "delete,delete"
"""A list that an earlier release has stored, and that no client can store now."""


@pytest.mark.oncelog_only(reason="starts a broker of its own")
async def test_a_stored_list_does_not_keep_other_settings_of_its_topic_from_changing() -> None:
    async with BrokerNode(durability="os", logging_level="error") as broker, RawConnection(broker.address) as wire:
        await broker.metadata.create_topic("t", 1, {"cleanup.policy": STORED})
        assert (await alter(wire, "t", ("retention.ms", SET, "77"))).error_code == 0
        assert (await alter(wire, "t", ("cleanup.policy", SET, STORED), ("retention.ms", SET, "78"))).error_code == 0
        replaced = [ReplacedConfig("cleanup.policy", STORED), ReplacedConfig("retention.ms", "79")]
        request = AlterConfigsRequest([ReplacedResource(TOPIC, "t", replaced)])
        assert (await wire.call(request, 1)).responses[0].error_code == 0
        assert await setting(wire, "t", "retention.ms") == "79"
        assert (await alter(wire, "t", ("cleanup.policy", SET, "compact,compact"))).error_code == E.INVALID_CONFIG
        assert (await alter(wire, "t", ("cleanup.policy", APPEND, "compact"))).error_code == 0
        assert await setting(wire, "t", "cleanup.policy") == "delete,compact"
        assert (await alter(wire, "t", ("cleanup.policy", SET, STORED))).error_code == E.INVALID_CONFIG


@pytest.mark.oncelog_only(reason="starts a broker of its own")
async def test_a_stored_list_does_not_keep_other_settings_of_the_broker_from_changing() -> None:
    async with BrokerNode(durability="os", logging_level="error") as broker, RawConnection(broker.address) as wire:
        await broker.metadata.change_broker_configs("", {"log.cleanup.policy": STORED})
        changes = [AlterableConfig("log.cleanup.policy", SET, STORED), AlterableConfig("log.retention.ms", SET, "77")]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "", changes)])
        assert (await wire.call(request, 1)).responses[0].error_code == 0


async def test_nothing_cannot_be_appended_to_a_list(bootstrap: str, fresh_name: Name, is_kafka: bool) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, name, {"cleanup.policy": "compact"})).error_code == 0
        for nothing in ("", " "):
            refused = await alter(wire, name, ("cleanup.policy", APPEND, nothing))
            assert refused.error_code == E.INVALID_CONFIG
        assert (await alter(wire, name, ("cleanup.policy", SUBTRACT, ""))).error_code == 0
        await assert_own_settings(wire, name, {"cleanup.policy": "compact"}, is_kafka)


async def test_every_negative_retention_in_bytes_is_accepted(bootstrap: str, fresh_name: Name) -> None:
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, fresh_name("topic"), {"retention.bytes": "-2"})).error_code == 0
        assert (await create(wire, fresh_name("topic"), {"retention.ms": "-2"})).error_code == E.INVALID_CONFIG


async def test_the_topic_of_metadata_cannot_be_created(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        refused = await create(wire, "__cluster_metadata", {})
        assert refused.error_code == E.INVALID_REQUEST
        assert refused.error_message is not None
        assert refused.error_message.startswith("Creation of internal topic __cluster_metadata is prohibited.")
        asked = MetadataRequest([MetadataRequestTopic(name="__cluster_metadata")], True)
        assert (await wire.call(asked, 9)).topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"),
    [
        (0, 0, E.INVALID_REPLICATION_FACTOR),
        (-2, -2, E.INVALID_REPLICATION_FACTOR),
        (1, 0, E.INVALID_REPLICATION_FACTOR),
        (1, 9, E.INVALID_REPLICATION_FACTOR),
        (0, 1, E.INVALID_PARTITIONS),
        (0, 9, E.INVALID_PARTITIONS),
    ],
)
async def test_impossible_numbers_of_a_new_topic(
    bootstrap: str, fresh_name: Name, partitions: int, replicas: int, code: ErrorCode
) -> None:
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, fresh_name("topic"), {}, partitions, replicas)).error_code == code


async def test_settings_of_a_topic_without_name(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        assert (await alter(wire, "", ("retention.ms", SET, "1"))).error_code == E.INVALID_REQUEST
        assert (await alter(wire, "a b", ("retention.ms", SET, "1"))).error_code == E.INVALID_TOPIC_EXCEPTION
        replaced = await wire.call(AlterConfigsRequest([ReplacedResource(TOPIC, "", [])]), 2)
        assert replaced.responses[0].error_code == E.INVALID_REQUEST


async def test_a_topic_to_delete_needs_a_name_or_an_id(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        for state in (DeleteTopicState(None), DeleteTopicState("x", b"sixteen bytes id")):
            refused = await wire.call(DeleteTopicsRequest([state], [], 10_000), 6)
            assert refused.responses[0].error_code == E.INVALID_REQUEST


async def test_clients_that_know_no_code_for_disabled_deletion(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("broker")
    async with (
        BrokerNode(directory, {"delete.topic.enable": False, "logging.level": "error"}) as broker,
        RawConnection(broker.address) as wire,
    ):
        await wire.create_topic("t")
        codes = [
            (await wire.call(DeleteTopicsRequest([], ["t"], 10_000), version)).responses[0].error_code
            for version in (1, 2, 3)
        ]
    assert codes == [E.INVALID_REQUEST, E.INVALID_REQUEST, E.TOPIC_DELETION_DISABLED]


async def test_settings_that_another_release_has_stored_do_not_hide_the_others(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    stored = {
        "retention.ms": "a while",
        "min.compaction.lag.ms": "10",
        "max.compaction.lag.ms": "5",
        "min.insync.replicas": "-1",
    }
    directory = tmp_path_factory.mktemp("broker")
    async with (
        BrokerNode(directory, {"logging.level": "error"}) as broker,
        RawConnection(broker.address) as wire,
    ):
        await broker.metadata.create_topic("t", 1, stored)
        asked = DescribeConfigsResource(TOPIC, "t", list(stored))
        (described,) = (await wire.call(DescribeConfigsRequest([asked]), 4)).results
        assert (await wire.produce("t", batch(b"x"))).error_code == 0
    assert (described.error_code, described.error_message) == (0, "")
    assert {row.name: (row.value, row.config_source) for row in described.configs} == {
        "retention.ms": ("604800000", DEFAULT_CONFIG),
        "min.compaction.lag.ms": ("10", DYNAMIC_TOPIC_CONFIG),
        "max.compaction.lag.ms": ("5", DYNAMIC_TOPIC_CONFIG),
        "min.insync.replicas": ("1", DEFAULT_CONFIG),
    }


async def test_impossible_cursors(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")

    async def described(topics: list[str], cursor: Cursor) -> list[tuple[str | None, int]]:
        request = DescribeTopicPartitionsRequest([TopicRequest(topic) for topic in topics], 10, cursor)
        return [(topic.name, topic.error_code) for topic in (await wire.call(request, 0)).topics]

    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, name, {})).error_code == 0
        refused = [(name, E.INVALID_REQUEST)]
        assert await described([name], Cursor(name, -1)) == refused
        assert await described([name], Cursor("", 0)) == refused, "before all requested topics"
        assert await described([name], Cursor(name + "z", 0)) == refused, "after all requested topics"
        assert await described([name], Cursor(name, 0)) == [(name, 0)]
        assert (name, 0) in await described([], Cursor(name[:-1], 0)), "all topics, from the cursor on"
        assert await described([], Cursor("", -1)) == []


@pytest.mark.parametrize("version", range(3, 7))
async def test_authorized_operations_of_an_unknown_group(bootstrap: str, fresh_name: Name, version: int) -> None:
    group_id = fresh_name("group")
    async with RawConnection(bootstrap) as wire:
        while (await wire.call(FindCoordinatorRequest(group_id, 0), 2)).error_code:
            pass
        described = E.COORDINATOR_LOAD_IN_PROGRESS.value
        while described in (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR):
            (group,) = (await wire.call(DescribeGroupsRequest([group_id], True), version)).groups
            described = group.error_code
    assert group.group_state == "Dead"
    assert described == (E.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert (group.authorized_operations == -(1 << 31)) == (version >= 6)


async def test_a_refused_producer_has_no_epoch(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        for version in (0, 4):
            refused = await wire.call(InitProducerIdRequest("id", 0), version)
            assert refused.error_code == E.INVALID_TRANSACTION_TIMEOUT
            assert (refused.producer_id, refused.producer_epoch) == (-1, -1)


async def test_a_refused_batch_has_no_offset(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, name, {})).error_code == 0
        data = TopicProduceData(name, partition_data=[PartitionProduceData(0, batch(b"x"))])
        refused = await wire.call(ProduceRequest(None, 5, 1000, [data]), 9)
        (row,) = refused.responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (E.INVALID_REQUIRED_ACKS, -1)


async def test_the_error_of_an_unknown_partition_has_no_code_in_its_text(bootstrap: str, fresh_name: Name) -> None:
    async with RawConnection(bootstrap) as wire:
        response = await wire.call(DescribeProducersRequest([ProducersOfTopic(fresh_name("none"), [9])]), 0)
        (row,) = response.topics[0].partitions
        assert row.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert "UNKNOWN_TOPIC_OR_PARTITION" not in (row.error_message or "")


async def test_listed_resources_can_be_described(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        listed = (await wire.call(ListConfigResourcesRequest([]), 1)).config_resources
        assert {item.resource_type for item in listed} >= {2, 4}
        asked = [DescribeConfigsResource(item.resource_type, item.resource_name, None) for item in listed]
        described = (await wire.call(DescribeConfigsRequest(asked), 4)).results
        assert {(row.resource_type, row.error_code) for row in described if row.error_code} == set()


@pytest.mark.parametrize("election_type", [0, 1])
async def test_the_only_replica_is_always_elected(bootstrap: str, fresh_name: Name, election_type: int) -> None:
    name, none = fresh_name("election"), fresh_name("none")
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, name, {}, 2)).error_code == 0
        asked = [TopicPartitions(name, [1, 7, 0]), TopicPartitions(none, [0])]
        for version in range(3):
            if version or not election_type:
                answer = await wire.call(ElectLeadersRequest(election_type, asked, 10_000), version)
                needless, unknown = E.ELECTION_NOT_NEEDED, E.UNKNOWN_TOPIC_OR_PARTITION
                assert answer.error_code == 0
                assert elected(answer, name) == {1: needless, 7: unknown, 0: needless}
                assert elected(answer, none) == {0: unknown}
        every = await wire.call(ElectLeadersRequest(election_type, None, 10_000), 2)
        assert (every.error_code, elected(every, name)) == (0, {})


def elected(answer: ElectLeadersResponse, topic: str) -> dict[int, int]:
    results = (one for one in answer.replica_election_results if one.topic == topic)
    return {row.partition_id: row.error_code for one in results for row in one.partition_result}


async def test_partitions_can_be_assigned_only_to_the_broker_that_has_them(bootstrap: str, fresh_name: Name) -> None:
    name, none = fresh_name("assigned"), fresh_name("none")
    cases: list[tuple[str, int, list[int] | None, ErrorCode]] = [
        (name, 0, [1], E.NONE),
        (name, 1, None, E.NO_REASSIGNMENT_IN_PROGRESS),
        (name, 2, [], E.INVALID_REPLICA_ASSIGNMENT),
        (name, 3, [2], E.INVALID_REPLICA_ASSIGNMENT),
        (name, 4, [1, 1], E.INVALID_REPLICA_ASSIGNMENT),
        (name, 9, [1], E.UNKNOWN_TOPIC_OR_PARTITION),
        (none, 0, [1], E.UNKNOWN_TOPIC_OR_PARTITION),
        (none, 1, None, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    async with RawConnection(bootstrap) as wire:
        assert (await create(wire, name, {}, 5)).error_code == 0
        topics = [
            ReassignableTopic(one, [ReassignablePartition(index, to) for topic, index, to, _ in cases if topic == one])
            for one in (name, none)
        ]
        for version in (0, 1):
            answer = await wire.call(AlterPartitionReassignmentsRequest(10_000, True, topics), version)
            rows = {
                (one.name, row.partition_index): row.error_code for one in answer.responses for row in one.partitions
            }
            assert (answer.error_code, answer.error_message) == (0, None)
            assert rows == {(topic, index): code for topic, index, _, code in cases}
        for asked in (
            None,
            [ListPartitionReassignmentsTopics(name, [0, 9]), ListPartitionReassignmentsTopics(none, [0])],
        ):
            listed = await wire.call(ListPartitionReassignmentsRequest(10_000, asked), 0)
            assert (listed.error_code, listed.error_message, listed.topics) == (0, None, [])


async def test_an_election_of_an_unknown_type_is_refused(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        assert (await wire.call(ElectLeadersRequest(5, None, 10_000), 2)).error_code != 0


OF_ANOTHER_CLUSTER = {
    "compression.type": "lz4",
    "remote.storage.enable": "false",
    "local.retention.ms": "-2",
    "local.retention.bytes": "-2",
    "leader.replication.throttled.replicas": "",
    "follower.replication.throttled.replicas": "0:1,2:3",
    "retention.ms": "77777777",
}
"""Settings as MirrorMaker and other tools copy them from the topics of another cluster."""


async def test_a_topic_can_have_the_settings_of_another_cluster(
    bootstrap: str, fresh_name: Name, is_kafka: bool
) -> None:
    name = fresh_name("copied")
    async with RawConnection(bootstrap) as wire:
        created = await create(wire, name, OF_ANOTHER_CLUSTER)
        assert (created.error_code, created.error_message) == (0, None)
        await assert_own_settings(wire, name, OF_ANOTHER_CLUSTER, is_kafka)
        for setting, value in (
            ("compression.type", "lz5"),
            ("remote.storage.enable", "true"),
            ("local.retention.ms", "-3"),
            ("leader.replication.throttled.replicas", "0:x"),
        ):
            assert (await alter(wire, name, (setting, SET, value))).error_code == E.INVALID_CONFIG


async def test_replicas_stay_in_the_only_data_directory(bootstrap: str, fresh_name: Name) -> None:
    name, none = fresh_name("placed"), fresh_name("none")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(name, 3)
        for index in range(3):
            assert (await wire.produce(name, batch(b"x"), partition=index)).error_code == 0
        (directory,) = (await wire.call(DescribeLogDirsRequest([]), 4)).results
        dirs = [
            AlterReplicaLogDir(
                directory.log_dir, [AlterReplicaLogDirTopic(name, [0, 9]), AlterReplicaLogDirTopic(none, [0])]
            ),
            AlterReplicaLogDir("/elsewhere", [AlterReplicaLogDirTopic(name, [1])]),
        ]
        for version in (1, 2):
            answer = await wire.call(AlterReplicaLogDirsRequest(dirs), version)
            rows = {
                (one.topic_name, row.partition_index): row.error_code
                for one in answer.results
                for row in one.partitions
            }
            assert rows == {
                (name, 0): E.NONE,
                (name, 1): E.LOG_DIR_NOT_FOUND,
                (name, 9): E.UNKNOWN_TOPIC_OR_PARTITION,
                (none, 0): E.UNKNOWN_TOPIC_OR_PARTITION,
            }
