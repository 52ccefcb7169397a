"""A topic with very many committed offsets is deleted: others get their turn, and its name waits until all are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from oncelog.broker.coordinator.group import deleted_topics
from oncelog.broker.coordinator.group.coordinator import Commit, Committer
from oncelog.broker.coordinator.group.group_log import GroupLog
from oncelog.broker.metadata import Topic
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode, KafkaError

PARTITIONS = 1_000
GROUPS = [f"group-{number}" for number in range(5)]


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode(durability="os", logging_level="error") as broker:
        yield broker


def committed(broker: BrokerNode) -> int:
    coordinator = broker.group_coordinator
    return sum(fetched.offset is not None for group in GROUPS for fetched in coordinator.fetch_offsets(group, None))


async def with_offsets(broker: BrokerNode) -> Topic:
    topic = await broker.metadata.create_topic("t", PARTITIONS, {})
    await broker.metadata.create_topic("kept", 1, {})
    for group in GROUPS:
        for start in range(0, PARTITIONS, 100):
            commits = [Commit(("t", index), 5, -1, None) for index in range(start, start + 100)]
            broker.group_coordinator.commit_offsets(group, Committer(), commits)
        broker.group_coordinator.commit_offsets(group, Committer(), [Commit(("kept", 0), 5, -1, None)])
    assert committed(broker) == len(GROUPS) * (PARTITIONS + 1)
    return topic


def refusal(broker: BrokerNode) -> KafkaError | None:
    """Why a new topic "t" cannot be created; None: it is."""
    try:
        broker.metadata.create_topic("t", PARTITIONS, {})
    except KafkaError as error:
        return error
    return None


async def test_offsets_of_a_deleted_topic_go_in_slices(broker: BrokerNode) -> None:
    topic = await with_offsets(broker)
    deletion = broker.metadata.delete_topic(topic)
    while broker.metadata.topic("t") is not None:
        await asyncio.sleep(0)
    turns = 0
    while not deletion.done():
        before = committed(broker)
        await asyncio.sleep(0)
        assert before - committed(broker) <= deleted_topics.REMOVED_AT_ONCE
        turns += 1
    assert turns > len(GROUPS) * PARTITIONS / deleted_topics.REMOVED_AT_ONCE
    assert await deletion is topic
    assert committed(broker) == len(GROUPS)


async def test_name_is_free_when_all_offsets_are_gone(broker: BrokerNode) -> None:
    topic = await with_offsets(broker)
    broker.metadata.delete_topic(topic)
    refused = 0
    while (error := refusal(broker)) is not None:
        assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        refused += 1
        await asyncio.sleep(0)
    assert refused > len(GROUPS) * PARTITIONS / deleted_topics.REMOVED_AT_ONCE
    assert committed(broker) == len(GROUPS), "the new topic has no offsets"


async def test_stop_in_the_middle_of_a_deletion_is_finished_by_the_next_start(tmp_path: object) -> None:
    async with BrokerNode(str(tmp_path), durability="os", logging_level="error") as broker:
        topic = await with_offsets(broker)
        broker.metadata.delete_topic(topic)
        while broker.metadata.topic("t") is not None:
            await asyncio.sleep(0)
        assert committed(broker) > len(GROUPS)
    async with BrokerNode(str(tmp_path), durability="os", logging_level="error") as broker:
        assert committed(broker) == len(GROUPS)
        await broker.metadata.create_topic("t", PARTITIONS, {})
        assert committed(broker) == len(GROUPS)


async def test_name_of_a_deleted_topic_is_refused_until_its_offsets_can_be_removed(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await broker.metadata.create_topic("t", 1, {})
    log = broker.replica_manager.partition("t", 0).log
    broker.group_coordinator.commit_offsets(GROUPS[0], Committer(), [Commit(("t", 0), 5, -1, None)])
    with monkeypatch.context() as patched:
        patched.setattr(GroupLog, "remove", disk_full)
        assert await broker.metadata.delete_topic(topic) is topic
        assert log not in list(broker.log_manager.logs()), "data goes all the same, and makes room"
        error = refusal(broker)
        assert error is not None
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    await broker.metadata.create_topic("t", 1, {})
    assert committed(broker) == 0, "the new topic is read from its beginning"


async def test_name_stays_reserved_if_the_next_start_cannot_remove_the_offsets_either(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupLog, "remove", disk_full)
    async with BrokerNode(str(tmp_path), durability="os", logging_level="error") as broker:
        topic = await broker.metadata.create_topic("t", 1, {})
        broker.group_coordinator.commit_offsets(GROUPS[0], Committer(), [Commit(("t", 0), 5, -1, None)])
        await broker.metadata.delete_topic(topic)
    async with BrokerNode(str(tmp_path), durability="os", logging_level="error") as broker:
        error = refusal(broker)
        assert error is not None
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        monkeypatch.undo()
        await broker.metadata.create_topic("t", 1, {})
        assert committed(broker) == 0, "the new topic is read from its beginning"
    async with BrokerNode(str(tmp_path), durability="os", logging_level="error") as broker:
        assert broker.metadata.topic("t") is not None
        assert committed(broker) == 0


def disk_full(*_: object, **__: Any) -> None:
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "as if the disk were full")
