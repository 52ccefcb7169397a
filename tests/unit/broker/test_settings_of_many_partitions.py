"""New settings of a topic with many partitions are applied in slices, and in effect when the request is answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from oncelog.broker.handlers import incremental_alter_configs
from oncelog.broker.log import LogConfig, PartitionLog
from oncelog.broker.metadata import Topic
from oncelog.broker.node import BrokerNode
from oncelog.broker.scheduling.steps import SLICE, run_in_slices
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.slices import context_of

PARTITIONS = 2 * SLICE
TOPIC = 2


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    """A broker that has a topic of many partitions, with a log each."""
    async with BrokerNode(durability="os", logging_level="error") as broker:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        for index in range(PARTITIONS):
            await run_in_slices(broker.replica_manager.partition("t", index).open())
        yield broker


def topic_of(broker: BrokerNode) -> Topic:
    topic = broker.metadata.topic("t")
    assert topic is not None
    return topic


def retentions(broker: BrokerNode) -> set[int]:
    """The retention times in ms of the topic's logs."""
    logs = [log for log in broker.log_manager.logs() if log.topic == "t"]
    assert len(logs) == PARTITIONS
    return {log.config.retention_ms for log in logs}


class Turns:
    """Counts the turns of the event loop, and the logs that get new settings in each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changed: Counter[int] = Counter()
        self._turn = 0
        update_config = PartitionLog.update_config

        def counted(log: PartitionLog, config: LogConfig) -> None:
            self.changed[self._turn] += 1
            update_config(log, config)

        monkeypatch.setattr(PartitionLog, "update_config", counted)
        self._task = asyncio.ensure_future(self._count())

    async def _count(self) -> None:
        while True:
            self._turn += 1
            await asyncio.sleep(0)

    def end(self) -> None:
        self._task.cancel()


async def test_settings_are_applied_in_slices_and_before_the_answer(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(monkeypatch)
    request = IncrementalAlterConfigsRequest(
        [AlterConfigsResource(TOPIC, "t", [AlterableConfig("retention.ms", 0, "12345")])]
    )
    response = await incremental_alter_configs.handle(context_of(broker, request, 1), request)
    turns.end()
    assert [result.error_code for result in response.responses] == [0]
    assert retentions(broker) == {12345}
    assert sum(turns.changed.values()) == PARTITIONS
    assert max(turns.changed.values()) <= SLICE


async def test_newest_of_two_changes_at_a_time_is_in_effect_everywhere(broker: BrokerNode) -> None:
    topic = topic_of(broker)
    first = broker.metadata.change_topic(topic, configs={"retention.ms": "1"})
    second = broker.metadata.change_topic(topic, configs={"retention.ms": "2"})
    await asyncio.wait([first, second])
    assert retentions(broker) == {2}


async def test_topic_may_be_deleted_while_its_settings_are_applied(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(monkeypatch)
    topic = topic_of(broker)
    change = broker.metadata.change_topic(topic, configs={"retention.ms": "1"})
    deletion = broker.metadata.delete_topic(topic)
    await asyncio.wait([change, deletion])
    turns.end()
    assert change.exception() is None
    assert deletion.exception() is None
    assert sum(turns.changed.values()) < PARTITIONS


async def test_stop_waits_until_the_settings_are_applied(broker: BrokerNode) -> None:
    change = broker.metadata.change_topic(topic_of(broker), configs={"retention.ms": "1"})
    await broker.metadata.settled()
    assert retentions(broker) == {1}
    await change
