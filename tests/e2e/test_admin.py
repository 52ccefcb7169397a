"""The admin client. On our broker and, with --kafka, on Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from oncelog import Admin, Consumer, KafkaError, OffsetAndMetadata, Producer, TopicPartition
from oncelog.client.admin import ConfigResource, NewTopic
from oncelog.client.admin.values import ResourceType
from oncelog.client.errors import IllegalStateError, InvalidTopicError, KafkaTimeoutError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest
from oncelog.protocol.messages.create_topics import CreateTopicsRequest
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from support.proxy import FaultProxy

Names = Callable[[str], str]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so: Kafka's brokers learn of changes a moment after they were answered."""
    async with asyncio.timeout(60):
        while not await condition():
            pass


async def test_topics_are_created_described_grown_and_deleted(bootstrap: str, fresh_name: Names) -> None:
    name = fresh_name("topic")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 2, configs={"retention.ms": "12345"})])
        await until(lambda: _has(admin, name))
        described = (await admin.describe_topics([name]))[name]
        assert [one.index for one in described.partitions] == [0, 1]
        assert all(one.leader_id >= 0 for one in described.partitions)
        await admin.create_partitions({name: 5})

        async def has_grown() -> bool:
            return len((await admin.describe_topics([name]))[name].partitions) == 5

        await until(has_grown)
        await admin.delete_topics([name])

        async def is_gone() -> bool:
            return not await _has(admin, name)

        await until(is_gone)


async def _has(admin: Admin, name: str) -> bool:
    return name in await admin.list_topics()


async def test_what_fails_is_told_by_item(bootstrap: str, fresh_name: Names) -> None:
    there, bad = fresh_name("topic"), "not/allowed"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(there, 1)
        outcomes = await admin.create_topics(
            [NewTopic(there, 1), NewTopic(bad, 1), NewTopic(fresh_name("new"), 1)], raise_errors=False
        )
        codes = [error.code if error else None for error in outcomes.values()]
        assert codes.count(None) == 1
        assert ErrorCode.TOPIC_ALREADY_EXISTS in codes
        assert isinstance(outcomes[bad], InvalidTopicError)
        with pytest.raises(KafkaError, match=there) as raised:
            await admin.create_topic(there, 1)
        assert raised.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        missing = await admin.delete_topics([fresh_name("missing")], raise_errors=False)
        assert [error.code if error else None for error in missing.values()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_outcomes_come_in_the_order_of_the_call_whatever_the_order_of_the_response(
    bootstrap: str, fresh_name: Names
) -> None:
    names = [fresh_name("topic") for _ in range(3)]
    async with FaultProxy(bootstrap) as proxy, Admin(bootstrap_servers=proxy.address) as admin:
        proxy.change(CreateTopicsRequest, lambda answer: answer.topics.reverse())
        assert list(await admin.create_topics([NewTopic(name, 1) for name in names])) == names
        proxy.change(CreatePartitionsRequest, lambda answer: answer.results.reverse())
        assert list(await admin.create_partitions(dict.fromkeys(names, 2))) == names
        proxy.change(DeleteTopicsRequest, lambda answer: answer.responses.reverse())
        assert list(await admin.delete_topics(names)) == names


async def test_validate_only_creates_nothing(bootstrap: str, fresh_name: Names) -> None:
    name = fresh_name("topic")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        assert await admin.create_topics([NewTopic(name, 1)], validate_only=True) == {name: None}
        assert name not in await admin.list_topics()


async def test_validate_only_adds_no_partitions(bootstrap: str, fresh_name: Names) -> None:
    name = fresh_name("topic")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(name, 2)
        await admin.create_partitions({name: 3}, validate_only=True)
        with pytest.raises(KafkaError, match="INVALID_PARTITIONS"):
            await admin.create_partitions({name: 1}, validate_only=True)
        await until(lambda: _has(admin, name))
        assert len((await admin.describe_topics([name]))[name].partitions) == 2


async def test_changes_whose_response_was_lost_succeed(bootstrap: str, fresh_name: Names) -> None:
    name = fresh_name("topic")
    async with FaultProxy(bootstrap) as proxy, Admin(bootstrap_servers=proxy.address) as admin:
        proxy.break_after(CreateTopicsRequest)
        await admin.create_topic(name, 2)
        proxy.break_after(CreatePartitionsRequest)
        await admin.create_partitions({name: 3})
        assert len((await admin.describe_topics([name]))[name].partitions) == 3
        proxy.break_after(DeleteTopicsRequest)
        await admin.delete_topics([name])
        assert name not in await admin.list_topics()


async def test_group_whose_deletion_lost_its_response_is_deleted(bootstrap: str, fresh_name: Names) -> None:
    name, group_id = fresh_name("topic"), fresh_name("group")
    async with FaultProxy(bootstrap) as proxy, Admin(bootstrap_servers=proxy.address) as admin:
        await admin.create_topic(name, 1)
        await admin.alter_group_offsets(group_id, {TopicPartition(name, 0): 0})
        proxy.break_after(DeleteGroupsRequest)
        await admin.delete_groups([group_id])
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
            await admin.delete_groups([group_id])


async def test_a_topic_that_existed_before_is_not_created_however_often_a_response_is_lost(
    bootstrap: str, fresh_name: Names
) -> None:
    name = fresh_name("topic")
    async with FaultProxy(bootstrap) as proxy, Admin(bootstrap_servers=proxy.address) as admin:
        await admin.create_topic(name, 2)
        proxy.break_after(CreateTopicsRequest)
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
            await admin.create_topic(name, 2)


async def test_the_cluster_is_described(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        cluster = await admin.describe_cluster()
        assert [f"{node.host}:{node.port}" for node in cluster.brokers] == [bootstrap]
        assert cluster.controller_id == cluster.brokers[0].id
        assert len(cluster.cluster_id) == 22


async def test_configs_are_read_set_and_taken_back(bootstrap: str, fresh_name: Names) -> None:
    name = fresh_name("topic")
    topic = ConfigResource(ResourceType.TOPIC, name)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(name, 1)
        await until(lambda: _has(admin, name))
        before = (await admin.describe_configs([topic]))[topic]["retention.ms"]
        await admin.alter_configs({topic: {"retention.ms": "86400000"}})

        async def is_set() -> bool:
            entry = (await admin.describe_configs([topic]))[topic]["retention.ms"]
            return (entry.value, entry.source) == ("86400000", 1)

        await until(is_set)
        await admin.alter_configs({topic: {"retention.ms": None}})

        async def is_back() -> bool:
            return (await admin.describe_configs([topic]))[topic]["retention.ms"] == before

        await until(is_back)
        outcomes = await admin.alter_configs({topic: {"retention.ms": "soon"}}, raise_errors=False)
        assert outcomes[topic] is not None


async def test_groups_are_listed_described_and_deleted(bootstrap: str, fresh_name: Names) -> None:
    name, group = fresh_name("topic"), fresh_name("group")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(name, 2)
        async with Consumer(bootstrap_servers=bootstrap, group_id=group, topics=[name], client_id="me") as consumer:
            while not consumer.assignment():
                await consumer.poll(1000)
            await consumer.commit()
            listed = [one for one in await admin.list_groups() if one.group_id == group]
            assert [(one.protocol_type, one.state) for one in listed] == [("consumer", "Stable")]
            described = (await admin.describe_groups([group]))[group]
            (member,) = described.members
            assert described.state == "Stable"
            assert described.protocol == "range"
            assert member.client_id == "me"
            assert set(member.partitions) == consumer.assignment()
            outcomes = await admin.delete_groups([group], raise_errors=False)
            assert outcomes[group] is not None
            assert outcomes[group].code is ErrorCode.NON_EMPTY_GROUP  # type: ignore[union-attr]
        assert group in [one.group_id for one in await admin.list_groups(["Empty"])]
        await admin.delete_groups([group])
        assert (await admin.describe_groups([group]))[group].state == "Dead"
        assert group not in [one.group_id for one in await admin.list_groups()]


async def test_offsets_of_a_group_are_set_read_and_deleted(bootstrap: str, fresh_name: Names) -> None:
    name, group = fresh_name("topic"), fresh_name("group")
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(name, 2)
        assert await admin.group_offsets(group) == {}
        wanted: dict[TopicPartition, int | OffsetAndMetadata] = {first: 7, second: OffsetAndMetadata(3, "note")}
        await admin.alter_group_offsets(group, wanted)
        offsets = await admin.group_offsets(group)
        assert offsets == {first: OffsetAndMetadata(7), second: OffsetAndMetadata(3, "note")}
        await admin.delete_group_offsets(group, [first])
        assert set(await admin.group_offsets(group)) == {second}


async def test_offsets_of_partitions_are_listed(bootstrap: str, fresh_name: Names) -> None:
    name = fresh_name("topic")
    partition = TopicPartition(name, 0)
    async with Admin(bootstrap_servers=bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
        await admin.create_topic(name, 1)
        for number in (5, 9, 7):
            await producer.enqueue(name, b"", partition=0, timestamp_ms=number)
            await producer.flush()
        found = [(await admin.list_offsets({partition: at}))[partition] for at in (-2, -1, -3, 6, 10)]
        assert [one.offset for one in found] == [0, 3, 1, 1, -1]
        assert [one.timestamp for one in found[2:]] == [9, 9, -1]
        assert await admin.delete_records({partition: -1}) == {partition: 3}
        assert (await admin.list_offsets({partition: -2}))[partition].offset == 3


async def test_a_topic_that_does_not_exist_is_told_in_time(bootstrap: str, fresh_name: Names) -> None:
    async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=500) as admin:
        missing = fresh_name("missing")
        with pytest.raises(KafkaError, match=missing):
            await admin.describe_topics([missing])
        with pytest.raises(KafkaTimeoutError, match=missing):
            await admin.list_offsets({TopicPartition(missing, 0): -1})
    with pytest.raises(IllegalStateError, match="closed"):
        await admin.list_topics()


async def test_nobody_there_is_told_in_time() -> None:
    with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1"):
        await Admin(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=300).start()
