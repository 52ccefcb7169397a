"""Topics on the wire: creating, describing, changing and deleting them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_configs import (
    AlterableConfig as ReplacedConfig,
)
from oncelog.protocol.messages.alter_configs import (
    AlterConfigsRequest,
)
from oncelog.protocol.messages.alter_configs import (
    AlterConfigsResource as ReplacedResource,
)
from oncelog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from oncelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.describe_cluster import DescribeClusterRequest
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.raw_connection import RawConnection, batch

Name = Callable[[str], str]
E = ErrorCode
TOPIC, BROKER = 2, 4


async def create(wire: RawConnection, topic: CreatableTopic, validate_only: bool = False, version: int = 7) -> int:
    request = CreateTopicsRequest([topic], 10_000, validate_only)
    return (await wire.call(request, version)).topics[0].error_code


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_created_topic_is_in_metadata(bootstrap: str, fresh_name: Name, version: int) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        response = await wire.call(CreateTopicsRequest([CreatableTopic(name, 3, 1)], 10_000), version)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [(name, 0)]
        if version >= 5:
            created = response.topics[0]
            assert (created.num_partitions, created.replication_factor) == (3, 1)
            assert {row.name for row in created.configs or ()} >= {"cleanup.policy", "retention.ms"}
        for _ in range(200):  # Apache Kafka's metadata is a moment behind its answer
            everything = await wire.call(MetadataRequest(None), 12)
            found = [topic for topic in everything.topics if topic.name == name]
            if found:
                break
        [topic] = found
        assert sorted(part.partition_index for part in topic.partitions) == [0, 1, 2]
        if version >= 7:
            assert topic.topic_id == response.topics[0].topic_id != bytes(16)


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"),
    [(0, 1, E.INVALID_PARTITIONS), (-2, 1, E.INVALID_PARTITIONS), (1, 0, E.INVALID_REPLICATION_FACTOR),
     (1, 3, E.INVALID_REPLICATION_FACTOR), (-1, -1, E.NONE)],
)  # fmt: skip
async def test_impossible_numbers_are_refused(
    bootstrap: str, fresh_name: Name, partitions: int, replicas: int, code: ErrorCode
) -> None:
    async with RawConnection(bootstrap) as wire:
        assert await create(wire, CreatableTopic(fresh_name("topic"), partitions, replicas)) == code


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250, "ümlaut"])
async def test_impossible_names_are_refused(bootstrap: str, name: str) -> None:
    async with RawConnection(bootstrap) as wire:
        assert await create(wire, CreatableTopic(name, 1, 1)) == E.INVALID_TOPIC_EXCEPTION


async def test_names_that_collide_or_exist_are_refused(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("some.topic")
    async with RawConnection(bootstrap) as wire:
        assert await create(wire, CreatableTopic(name, 1, 1)) == E.NONE
        assert await create(wire, CreatableTopic(name, 1, 1)) == E.TOPIC_ALREADY_EXISTS
        assert await create(wire, CreatableTopic(name.replace(".", "_"), 1, 1)) == E.INVALID_TOPIC_EXCEPTION
        twice = fresh_name("twice")
        both = CreateTopicsRequest([CreatableTopic(twice, 1, 1), CreatableTopic(twice, 1, 1)], 5000)
        assert [topic.error_code for topic in (await wire.call(both, 7)).topics] == [E.INVALID_REQUEST]


async def test_configs_are_checked_before_anything_is_created(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        for key, value in (("no.such.config", "1"), ("retention.ms", "long"), ("retention.ms", None)):
            topic = CreatableTopic(name, 1, 1, [], [CreatableTopicConfig(key, value)])
            assert await create(wire, topic) == E.INVALID_CONFIG
        assert await create(wire, CreatableTopic(name, 1, 1), validate_only=True) == E.NONE
        assert await create(wire, CreatableTopic(name, 1, 1)) == E.NONE


async def test_manual_assignments(bootstrap: str, fresh_name: Name) -> None:
    async with RawConnection(bootstrap) as wire:
        node = (await wire.call(MetadataRequest([]), 12)).brokers[0].node_id

        def assigned(*rows: tuple[int, list[int]], partitions: int = -1) -> CreatableTopic:
            assignments = [CreatableReplicaAssignment(index, brokers) for index, brokers in rows]
            return CreatableTopic(fresh_name("topic"), partitions, -1, assignments)

        assert await create(wire, assigned((0, [node]), (1, [node]))) == E.NONE
        assert await create(wire, assigned((0, [node]), (2, [node]))) == E.INVALID_REPLICA_ASSIGNMENT
        assert await create(wire, assigned((0, [node + 77]))) == E.INVALID_REPLICA_ASSIGNMENT
        assert await create(wire, assigned((0, list(range(10_000))))) == E.INVALID_REPLICA_ASSIGNMENT
        assert await create(wire, assigned((0, [node]), partitions=1)) == E.INVALID_REQUEST


async def test_metadata_answers_by_name_and_by_id_and_says_what_is_missing(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        topic_id = await wire.create_topic(name, 2)
        by_id = [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(b"\x05" * 16, None)]
        response = await wire.call(MetadataRequest(by_id, False), 12)
        codes = {(topic.name, topic.topic_id): topic.error_code for topic in response.topics}
        assert codes == {(name, topic_id): E.NONE, (None, b"\x05" * 16): E.UNKNOWN_TOPIC_ID}
        by_name = [MetadataRequestTopic(name=wanted) for wanted in (name, fresh_name("missing"), "not valid")]
        response = await wire.call(MetadataRequest(by_name, False), 12)
        assert sorted(topic.error_code for topic in response.topics) == [0, 3, 17]
        assert len(response.brokers) == 1
        assert response.cluster_id
        old = await wire.call(MetadataRequest([MetadataRequestTopic(name=name)]), 0)
        assert [(topic.name, topic.error_code) for topic in old.topics] == [(name, 0)]
        assert (await wire.call(MetadataRequest([]), 12)).topics == []


async def test_asking_for_the_metadata_of_a_missing_topic_creates_it(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("auto")
    async with RawConnection(bootstrap) as wire, asyncio.timeout(60):
        while True:
            topic = (await wire.call(MetadataRequest([MetadataRequestTopic(name=name)], True), 9)).topics[0]
            if topic.error_code == 0:
                break
            await asyncio.sleep(0.01)  # Apache Kafka creates the topic a moment after its response
        assert (topic.error_code, len(topic.partitions)) == (0, 1)


@pytest.mark.oncelog_only(reason="Apache Kafka's first response has no partitions")
async def test_the_first_response_already_has_the_topic_that_it_created(bootstrap: str, fresh_name: Name) -> None:
    async with RawConnection(bootstrap) as wire:
        request = MetadataRequest([MetadataRequestTopic(name=fresh_name("auto"))], True)
        (topic,) = (await wire.call(request, 9)).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 1)


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_deleted_topic_is_gone_with_its_data(bootstrap: str, fresh_name: Name, version: int) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire, asyncio.timeout(60):
        await wire.create_topic(name)
        assert (await wire.produce(name, batch(b"old"))).base_offset == 0
        if version >= 6:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name)], timeout_ms=10_000)
        else:
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        assert [item.error_code for item in (await wire.call(request, version)).responses] == [0]
        while True:
            topic = (await wire.call(MetadataRequest([MetadataRequestTopic(name=name)], False), 12)).topics[0]
            if topic.error_code:
                break
            await asyncio.sleep(0.01)  # Apache Kafka's brokers learn of it a moment after the response
        assert topic.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert (await wire.call(request, version)).responses[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        await wire.create_topic(name)
        assert (await wire.produce(name, batch(b"new"))).base_offset == 0


@pytest.mark.oncelog_only(reason="Apache Kafka may give up before it begins")
async def test_a_change_of_a_topic_is_answered_when_it_is_made_whatever_its_timeout(
    bootstrap: str, fresh_name: Name
) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        created = await wire.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)], timeout_ms=0), 7)
        assert created.topics[0].error_code == E.NONE
        more = CreatePartitionsRequest([CreatePartitionsTopic(name, 2, None)], timeout_ms=0)
        assert (await wire.call(more, 3)).results[0].error_code == E.NONE
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name)], timeout_ms=0)
        assert (await wire.call(gone, 6)).responses[0].error_code == E.NONE
        assert (await wire.call(gone, 6)).responses[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_is_deleted_by_its_id(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        topic_id = await wire.create_topic(name)
        states = [DeleteTopicState(None, topic_id), DeleteTopicState(None, b"\x06" * 16)]
        responses = (await wire.call(DeleteTopicsRequest(states, timeout_ms=10_000), 6)).responses
        seen = {item.topic_id: (item.name, item.error_code) for item in responses}
        assert seen == {topic_id: (name, 0), b"\x06" * 16: (None, E.UNKNOWN_TOPIC_ID)}


async def test_partitions_can_be_added_and_never_taken_away(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")

    async def grow(wire: RawConnection, count: int, **more: Any) -> int:
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, **more)], 10_000)
        return (await wire.call(request, 3)).results[0].error_code

    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(name, 2)
        assert await grow(wire, 2, assignments=None) == E.INVALID_PARTITIONS
        assert await grow(wire, 1, assignments=None) == E.INVALID_PARTITIONS
        wrong = [CreatePartitionsAssignment([12345])]
        assert await grow(wire, 3, assignments=wrong) == E.INVALID_REPLICA_ASSIGNMENT
        assert await grow(wire, 4, assignments=None) == E.NONE
        topic = (await wire.call(MetadataRequest([MetadataRequestTopic(name=name)], False), 12)).topics[0]
        assert len(topic.partitions) == 4
        missing = CreatePartitionsRequest([CreatePartitionsTopic(fresh_name("no"), 3, None)], 5000)
        assert (await wire.call(missing, 3)).results[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


async def describe(wire: RawConnection, kind: int, name: str, *keys: str) -> dict[str, tuple[str | None, int]]:
    resource = DescribeConfigsResource(kind, name, list(keys) or None)
    result = (await wire.call(DescribeConfigsRequest([resource], True, True), 4)).results[0]
    assert result.error_code == 0, result
    return {row.name: (row.value, row.config_source) for row in result.configs}


async def test_configs_are_described_with_where_they_come_from(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(name, retention_ms="12345")
        rows = await describe(wire, TOPIC, name)
        assert rows["retention.ms"] == ("12345", 1)
        assert rows["cleanup.policy"] == ("delete", 5)
        assert set(await describe(wire, TOPIC, name, "retention.ms")) == {"retention.ms"}
        node = str((await wire.call(MetadataRequest([]), 12)).brokers[0].node_id)
        assert (await describe(wire, BROKER, node, "num.partitions"))["num.partitions"][0] == "1"
        missing = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, fresh_name("no"), None)])
        assert (await wire.call(missing, 4)).results[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_configs_change_step_by_step_and_take_effect(bootstrap: str, fresh_name: Name, is_kafka: bool) -> None:
    name = fresh_name("topic")

    async def code_of_large_batch(expected: int) -> int:
        """In Kafka, a change takes effect only when the broker has learned of it from its controller."""
        async with asyncio.timeout(30):
            while (code := (await wire.produce(name, batch(bytes(2000)))).error_code) != expected and is_kafka:
                await asyncio.sleep(0.01)
            return code

    async def alter(wire: RawConnection, *changes: tuple[str, int, str | None], validate_only: bool = False) -> int:
        rows = [AlterableConfig(*change) for change in changes]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, name, rows)], validate_only)
        return (await wire.call(request, 1)).responses[0].error_code

    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(name)
        assert (await wire.produce(name, batch(bytes(2000)))).error_code == E.NONE
        assert await alter(wire, ("max.message.bytes", 0, "500"), ("cleanup.policy", 2, "compact")) == E.NONE
        rows = await describe(wire, TOPIC, name)
        assert rows["max.message.bytes"] == ("500", 1)
        assert set((rows["cleanup.policy"][0] or "").split(",")) == {"compact", "delete"}
        assert await code_of_large_batch(E.MESSAGE_TOO_LARGE) == E.MESSAGE_TOO_LARGE
        assert await alter(wire, ("cleanup.policy", 3, "compact"), ("max.message.bytes", 1, None)) == E.NONE
        rows = await describe(wire, TOPIC, name)
        assert (rows["cleanup.policy"][0], rows["max.message.bytes"][1]) == ("delete", 5)
        assert await code_of_large_batch(E.NONE) == E.NONE
        assert await alter(wire, ("retention.ms", 0, "soon")) == E.INVALID_CONFIG
        assert await alter(wire, ("retention.ms", 2, "5")) == E.INVALID_CONFIG
        assert await alter(wire, ("retention.ms", 0, "5"), validate_only=True) == E.NONE
        assert (await describe(wire, TOPIC, name))["retention.ms"][1] == 5


async def test_alter_configs_replaces_everything(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(name, retention_ms="12345")
        resource = ReplacedResource(TOPIC, name, [ReplacedConfig("segment.bytes", "1048576")])
        response = await wire.call(AlterConfigsRequest([resource]), 2)
        assert response.responses[0].error_code == E.NONE
        rows = await describe(wire, TOPIC, name)
        assert (rows["segment.bytes"], rows["retention.ms"][1]) == (("1048576", 1), 5)


async def test_a_topic_is_described_in_pages(bootstrap: str, fresh_name: Name) -> None:
    name = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(name, 5)
        seen: list[int] = []
        cursor: Cursor | None = None
        for _ in range(5):
            request = DescribeTopicPartitionsRequest([TopicRequest(name)], 2, cursor)
            page = await wire.call(request, 0)
            seen += [part.partition_index for part in page.topics[0].partitions]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == [0, 1, 2, 3, 4]


async def test_the_cluster_is_described(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        response = await wire.call(DescribeClusterRequest(), 1)
        known = await wire.call(MetadataRequest([]), 12)
        assert response.cluster_id == known.cluster_id
        assert [(b.broker_id, b.host, b.port) for b in response.brokers] == [
            (b.node_id, b.host, b.port) for b in known.brokers
        ]
