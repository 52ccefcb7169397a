"""How many partitions all topics may have together, whoever creates them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.raw_connection import RawConnection

pytestmark = pytest.mark.oncelog_only(reason="brokers with a limit of their own")
E = ErrorCode
INTERNAL = 100


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[RawConnection]:
    """A broker in which topics may have five partitions more."""
    async with (
        BrokerNode(tmp_path, logging_level="error", max_partitions=INTERNAL + 5) as broker,
        RawConnection(broker.address) as wire,
    ):
        yield wire


async def create(wire: RawConnection, *topics: CreatableTopic) -> list[int]:
    response = await wire.call(CreateTopicsRequest(list(topics), 10_000), 7)
    return [topic.error_code for topic in response.topics]


async def ask_for(wire: RawConnection, *names: str) -> list[int]:
    """Have topics created by asking for them."""
    asked = [MetadataRequestTopic(name=name) for name in names]
    response = await wire.call(MetadataRequest(asked, allow_auto_topic_creation=True), 12)
    return [topic.error_code for topic in response.topics]


async def grow(wire: RawConnection, name: str, count: int) -> int:
    response = await wire.call(CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)], 10_000), 3)
    return response.results[0].error_code


async def test_no_request_makes_more_partitions_than_allowed(wire: RawConnection) -> None:
    topics = [CreatableTopic(name, count, -1) for name, count in (("a", 3), ("b", 3), ("c", 2))]
    assert await create(wire, *topics) == [0, E.POLICY_VIOLATION, 0], "topics on their way to the disk count"
    assert await grow(wire, "a", 4) == E.POLICY_VIOLATION
    assert await ask_for(wire, "d") == [E.POLICY_VIOLATION]
    assigned = CreatableTopic("e", -1, -1, [CreatableReplicaAssignment(0, [1])])
    assert await create(wire, assigned) == [E.POLICY_VIOLATION]


async def test_the_limit_is_named_in_the_answer(wire: RawConnection) -> None:
    response = await wire.call(CreateTopicsRequest([CreatableTopic("a", 6, -1)], 10_000), 7)
    assert "max.partitions = 105" in (response.topics[0].error_message or "")


async def test_deleted_topics_make_room(wire: RawConnection) -> None:
    assert await create(wire, CreatableTopic("a", 5, -1)) == [0]
    assert await ask_for(wire, "b") == [E.POLICY_VIOLATION]
    await wire.call(DeleteTopicsRequest([DeleteTopicState("a")], timeout_ms=10_000), 6)
    assert await ask_for(wire, "b", "c") == [0, 0]
    assert await grow(wire, "b", 4) == 0
    assert await grow(wire, "c", 2) == E.POLICY_VIOLATION


async def test_topics_of_an_earlier_start_count(tmp_path: Path) -> None:
    async with BrokerNode(tmp_path, logging_level="error") as broker, RawConnection(broker.address) as wire:
        assert await create(wire, CreatableTopic("a", 5, -1), CreatableTopic("b", 7, -1)) == [0, 0]
        assert await grow(wire, "a", 6) == 0
        await wire.call(DeleteTopicsRequest([DeleteTopicState("b")], timeout_ms=10_000), 6)
        assert broker.metadata.partition_count == INTERNAL + 6
    async with (
        BrokerNode(tmp_path, logging_level="error", max_partitions=INTERNAL + 6) as broker,
        RawConnection(broker.address) as wire,
    ):
        assert broker.metadata.partition_count == INTERNAL + 6
        assert await create(wire, CreatableTopic("c", 1, -1)) == [E.POLICY_VIOLATION]
