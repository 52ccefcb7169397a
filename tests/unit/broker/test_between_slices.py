"""What another request changes between two slices of a large one is neither lost, nor done twice, nor half seen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from oncelog.broker.coordinator.group.coordinator import Commit, Committer
from oncelog.broker.handlers import create_partitions, offset_fetch
from oncelog.broker.metadata import Topic
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from support.slices import context_of, run

PARTITIONS = 2_000
COMMITS = 25
"""More than the slices in which the offsets are looked up."""


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode(durability="os", logging_level="error", request_max_new_partitions=40) as broker:
        yield broker


async def test_topic_that_appears_in_between_counts_against_the_new_partitions_of_a_request(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t-{number}" for number in range(30)]
    for name in names:
        await broker.metadata.create_topic(name, 1, {})
    change_topic = broker.metadata.change_topic
    created: list[Any] = []

    def changed(topic: Topic, *, partitions: int | None = None, configs: Mapping[str, str] | None = None) -> Any:
        if not created:
            created.append(broker.metadata.create_topic("late", 1, {}))
        return change_topic(topic, partitions=partitions, configs=configs)

    monkeypatch.setattr(broker.metadata, "change_topic", changed)
    items = [*(CreatePartitionsTopic(name, 2, None) for name in names), CreatePartitionsTopic("late", 20, None)]
    request = CreatePartitionsRequest(items, 1000, False)
    response = await create_partitions.handle(context_of(broker, request, 3), request)
    assert [result.error_code for result in response.results] == [0] * 30 + [ErrorCode.POLICY_VIOLATION]
    late = broker.metadata.topic("late")
    assert late is not None
    assert late.partitions == 1


@pytest.mark.parametrize("wanted", [None, list(range(PARTITIONS))], ids=["all", "named"])
async def test_offset_fetch_of_many_partitions_returns_no_half_of_a_commit(
    broker: BrokerNode, wanted: list[int] | None
) -> None:
    await broker.metadata.create_topic("t", PARTITIONS, {})

    def commit(offset: int) -> None:
        commits = [Commit(("t", index), offset, -1, None) for index in range(PARTITIONS)]
        broker.group_coordinator.commit_offsets("g", Committer(), commits)

    commit(0)
    topics = None if wanted is None else [OffsetFetchRequestTopic("t", wanted)]
    request = OffsetFetchRequest(group_id="g", topics=topics)
    steps = offset_fetch.handle(context_of(broker, request, 7), request)
    response = run(steps, lambda count: commit(count + 1) if count < COMMITS else None)
    (topic,) = response.topics
    assert len(topic.partitions) == PARTITIONS
    assert len({partition.committed_offset for partition in topic.partitions}) == 1
